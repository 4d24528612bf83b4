"""Many copies of an environment, stepped together: in numpy where there is such a version, else one by one."""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from sb3_robust_be.envs import why_unregistered

from .base import LockstepEnv, Step, episode_seed
from .batches import Observation
from .classic_control import Acrobot, CartPole, MountainCar
from .cliff_world_batch import CliffWorld
from .generic import GenericEnv
from .member_failures import Failure
from .puddle_world_batch import PuddleWorld
from .vectorised import VectorisedEnv

__all__ = ["Failure", "LockstepEnv", "Observation", "Step", "episode_seed", "make_lockstep"]

VECTORISED: tuple[type[VectorisedEnv], ...] = (CartPole, MountainCar, Acrobot, CliffWorld, PuddleWorld)


def make_lockstep(env: str | Callable[..., gym.Env[Any, Any]], seeds: Sequence[int], **env_kwargs: Any) -> LockstepEnv:
    """Make one member per seed, all of the same environment.

    The ids of CartPole, Mountain Car, Acrobot, Cliff World and Puddle World, with their options and any
    ``max_episode_steps``, get a numpy version that is equal to gymnasium's step for step. Everything else, factories
    included, gets one instance per member, through which the members see the same episodes.

    :param env: An id that gymnasium knows, or a factory: a class or function that returns a new environment per call.
    :param seeds: One per member, from 0 to 2⁶³ − 1. They may repeat.
    :param env_kwargs: What ``gymnasium.make``, or the factory, is given besides.
    :return: The members, to be reset first.
    :raises gymnasium.error.UnregisteredEnv: If nothing is registered under the id.
    :raises TypeError: If ``env`` is neither an id nor a factory, or ``seeds`` not a sequence of integers.
    :raises ValueError: If there is no seed or one out of range, if the factory returns the same instance twice, or if
        actions or observations are of an unsupported kind. What making the first environment raises is not touched;
        where a later one cannot be made, that member is stopped from the start.
    """
    checked = _checked_seeds(seeds)
    if isinstance(env, str):
        return _from_id(env, checked, env_kwargs)
    if not callable(env):
        raise TypeError(
            f"env={env!r} is neither an id nor a factory: pass a factory, for example lambda: MyEnv(), since every "
            "member needs its own environment"
        )
    return GenericEnv(functools.partial(env, **env_kwargs), checked, name=f"env={env!r}")


def _from_id(env_id: str, seeds: tuple[int, ...], env_kwargs: dict[str, Any]) -> LockstepEnv:
    if env_id.startswith("MinAtar/") and env_id not in gym.registry:
        importlib.import_module("minatar")  # where this is missing, its absence is the reason to give
    make = functools.partial(gym.make, env_id, **env_kwargs)
    try:
        first = make()
    except gym.error.UnregisteredEnv as error:
        remedy = "Correct the id, import the package that registers it, or pass a factory."
        why = why_unregistered(env_id, error)
        raise type(error)(f"env={env_id!r} is not registered with gymnasium. {why} {remedy}") from error
    for vectorised in VECTORISED:
        if vectorised.copies(first):
            return vectorised(first, seeds)
    return GenericEnv(make, seeds, first, name=f"env={env_id!r}")


def _checked_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    try:
        checked = tuple(operator.index(seed) for seed in seeds)
    except TypeError as error:
        raise TypeError(f"seeds={seeds!r} is no sequence of integers: pass one per member, as in range(30)") from error
    if not checked:
        raise ValueError(f"seeds={seeds!r} is empty: pass one per member, as in range(30)")
    if wrong := [seed for seed in checked if not 0 <= seed < 2**63]:
        raise ValueError(f"seeds has {wrong[0]}: pass integers from 0 to 2**63 - 1")
    return checked
