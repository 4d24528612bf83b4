"""Which runs a comparison on an environment consists of."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium import spaces

from sb3_robust_be import registry
from sb3_robust_be.envs import why_unregistered
from sb3_robust_be.envs.action_masks import has_masks
from sb3_robust_be.envs.lockstep import batches
from sb3_robust_be.experiments.compare.user_settings import arguments_of, default_rate
from sb3_robust_be.experiments.control.contenders import Rate
from sb3_robust_be.experiments.control.domains import DOMAINS, Domain
from sb3_robust_be.experiments.control.preset import Contender, ControlPreset, merged
from sb3_robust_be.experiments.control.training import COMPILED_FROM, LINEAR, make_agent
from sb3_robust_be.experiments.environments import import_packages
from sb3_robust_be.images import is_small
from sb3_robust_be.messages import did_you_mean, first_line
from sb3_robust_be.runner.specs import Spec

ALGORITHMS = registry.names()
KEY = "own"
"""Of the environment in tables"""
SELECTION_SEEDS = 10
"""How many choose the step size; none of them is reported"""
# In another environment than the paper's: all of a short run's transitions, Cart-pole's network.
_DEFAULT_BUFFER, _DEFAULT_NETWORK = 100_000, (64, 64)
_MINATAR_FEATURES = {"__import__": "sb3_robust_be.qrc.extractors:MinAtarCNN"}


class Setup(NamedTuple):
    """An environment, and how its agents are made."""

    domain: Domain
    policy: str
    stacked: bool
    """Whether agents are trained in lock-step; else one by one, a process each"""
    small_images: bool
    space: spaces.Space
    """Of the observations"""
    masks: bool
    """Whether the environment has ``action_masks()``"""


def check_algorithms(names: Sequence[str]) -> list[str]:
    """
    :param names: Of algorithms.
    :return: The same.
    :raises ValueError: For unknown, repeated or too few ones.
    """
    for name in names:
        if name not in ALGORITHMS:
            near = did_you_mean(name, ALGORITHMS)
            raise ValueError(f"{name!r} is no algorithm.{near} There are {', '.join(ALGORITHMS)}.")
    if len(set(names)) < len(names) or not names:
        raise ValueError(f"{','.join(names)!r} must name one or more algorithms, each once.")
    return list(names)


def look_at(
    env_id: str,
    net_arch: Sequence[int] | None,
    gym_packages: Sequence[str] = (),
    env_kwargs: Mapping[str, Any] | None = None,
) -> Setup:
    """
    :param env_id: A gymnasium id.
    :param net_arch: Hidden units; ``None``: the paper's for its domains, 64-64 for others.
    :param gym_packages: Modules that register environments.
    :param env_kwargs: Of ``gym.make``.
    :return: How agents learn in it.
    :raises ValueError: For an id that is not registered, or an action space that is not Discrete.
    """
    import_packages({"gym_packages": gym_packages})
    space, masks = _observations_of(env_id, env_kwargs or {})
    known = next((domain for domain in DOMAINS.values() if domain.env == env_id.rpartition(":")[2]), None)
    if known is not None:
        known = dataclasses.replace(known, env=env_id)
    domain = known or Domain(env_id, env_id, _DEFAULT_NETWORK, _DEFAULT_BUFFER, 0)
    if net_arch is not None:
        domain = Domain(domain.name, env_id, tuple(net_arch), domain.buffer_size, 0, domain.huber_threshold)
    domain = dataclasses.replace(domain, gym_packages=tuple(gym_packages), env_kwargs=env_kwargs or {})
    if isinstance(space, spaces.Dict):
        return Setup(domain, "MultiInputPolicy", False, False, space, masks)
    if isinstance(space, spaces.Box) and len(space.shape) == 3:
        if net_arch is not None:
            raise ValueError(f"net_arch is {list(net_arch)}, but {env_id!r} has images, whose network is given.")
        return Setup(domain, "CnnPolicy", False, is_small(space.shape), space, masks)
    return Setup(domain, "MlpPolicy", True, False, space, masks)


def _observations_of(env_id: str, env_kwargs: Mapping[str, Any]) -> tuple[spaces.Space, bool]:
    """The space of an environment's observations, and whether it has action masks."""
    if env_id.startswith("MinAtar/") and env_id not in gym.registry:
        importlib.import_module("minatar")  # where this is missing, its absence is the reason to give
    try:
        env = gym.make(env_id, **env_kwargs)
    except gym.error.DependencyNotInstalled:
        raise
    except Exception as error:
        if isinstance(error, gym.error.UnregisteredEnv):
            reason = why_unregistered(env_id, error)
        else:
            known = isinstance(error, gym.error.Error | ModuleNotFoundError)
            reason = str(error) if known else first_line(error)
        raise ValueError(f"{env_id!r} cannot be made by gymnasium. {reason}") from error
    if not isinstance(env.action_space, spaces.Discrete):
        raise ValueError(f"{env_id!r} has the action space {env.action_space}; these algorithms need a Discrete one.")
    space = env.observation_space
    if not batches.is_supported(space):
        raise ValueError(
            f"{env_id!r} has the observations {space}; wrap it so that they are arrays, or a Dict of them."
        )
    masks = has_masks(env)
    env.close()
    return space, masks


def first_of(rate: Rate) -> float:
    """The step size that a run begins with."""
    return rate[LINEAR][0] if isinstance(rate, Mapping) else rate


def make_preset(
    setup: Setup,
    algorithms: Sequence[str],
    seeds: int,
    steps: int,
    learning_rates: Sequence[Rate],
    layer_norm: bool = False,
    given: Mapping[str, Any] | None = None,
    normalize: Mapping[str, Any] | None = None,
    net_arch: Sequence[int] | None = None,
    own_rates: Collection[str] = (),
) -> ControlPreset:
    """The comparison as a control experiment, as the declared ones are.

    :param setup: Of :func:`look_at`.
    :param algorithms: Their names.
    :param seeds: Reported ones, per algorithm.
    :param steps: Environment steps of a run.
    :param learning_rates: Of which each algorithm's best is chosen, on seeds that are not reported; one: that; none:
        each class's own.
    :param layer_norm: Whether the hidden layers of all of them are normalised.
    :param given: The user's arguments, beside which all else is as the classes have it; ``None``: all is the paper's.
    :param normalize: Arguments of VecNormalize; ``None``: nothing is scaled.
    :param net_arch: Hidden units, where arguments are given; else they are the domain's.
    :param own_rates: Algorithms that have none of the learning rates, but their class's own.
    """
    # Added to the network of the domain.
    network: dict[str, Any] = {}
    own = given or {}
    if setup.policy == "CnnPolicy" and "features_extractor_class" not in (own.get("policy_kwargs") or {}):
        # The network of the images, without hidden layers after it.
        network["net_arch"] = []
        if setup.small_images:
            network["features_extractor_class"] = _MINATAR_FEATURES
    flags: dict[str, Any] = {"layer_norm": True} if layer_norm else {}
    if given is not None and net_arch is not None:
        flags["net_arch"] = list(net_arch)
    # Of equally good step sizes the largest, which comes first.
    rates = sorted(learning_rates, key=first_of, reverse=True)
    return ControlPreset(
        (KEY,),
        tuple(
            Contender(
                name,
                name,
                {"learning_rate": rates if rates and name not in own_rates else [default_rate(name)]},
                merged(_choices(setup, name), arguments_of(name, own), {"policy_kwargs": flags}),
            )
            for name in algorithms
        ),
        seeds=seeds,
        selection_seeds=SELECTION_SEEDS,
        compile=steps >= COMPILED_FROM,
        stacked=setup.stacked,
        own_domains={KEY: dataclasses.replace(setup.domain, steps=steps, policy=setup.policy, normalize=normalize)},
        arguments={"policy_kwargs": network},
        papers_arguments=given is None,
    )


def check_images(setup: Setup) -> None:
    """Refuse images that no network here takes.

    :param setup: Of a comparison.
    :raises ValueError: For images of floats.
    """
    if setup.policy != "CnnPolicy":
        return
    if setup.space.dtype is not None and setup.space.dtype.kind == "f":
        raise ValueError(
            f"{setup.domain.env!r} has observations of shape {setup.space.shape} and type {setup.space.dtype}, which "
            "no network here takes for images. Wrap it to have images of uint8 from 0 to 255, or one row of numbers "
            "(gymnasium.wrappers.FlattenObservation)."
        )


CHANGE = "Change the setting, leave it out (--set NAME=None), or train --single-agents if a population lacks it."
_WRAP = "Wrap it to have vectors, images of uint8 from 0 to 255, or a Dict of them."


def _choices(setup: Setup, algorithm: str) -> dict[str, Any]:
    single = not setup.stacked or not registry.find(algorithm).population
    return {"device": "cpu"} if single else {}


def on_masks(setup: Setup, algorithms: Sequence[str], recorded: bool) -> list[str]:
    """Say who takes legal actions only, where an environment says which are legal.

    :param setup: Of a comparison.
    :param algorithms: Their names.
    :param recorded: Whether recordings are the baseline.
    :return: Sentences; none for an environment without masks.
    """
    from sb3_robust_be.qrc.masked_dqn import MaskedDQN

    if not setup.masks:
        return []
    # Not as single agents: SB3's DQN and QR-DQN.
    masked = {name for name in algorithms if issubclass(registry.load(name), MaskedDQN)}
    stacked = {name for name in algorithms if setup.stacked and registry.find(name).population}
    legal = [name for name in algorithms if name in masked | stacked]
    others = [name for name in algorithms if name not in legal]
    notes = []
    if legal:
        notes.append(f"{setup.domain.env} has action_masks(): legal actions only are taken by {', '.join(legal)}.")
    if others:
        notes.append(
            f"{setup.domain.env} has action_masks(): illegal actions are taken, and bootstrapped from, by "
            f"{', '.join(others)}, since SB3's DQN and sb3-contrib's QR-DQN do not know masks."
        )
    notes += [
        f"{name} uses the environment's action masks here, which SB3's own DQN does not: --single-agents compares with "
        "SB3's."
        for name in legal
        if name not in masked
    ]
    if recorded:
        notes.append("Recordings of SB3's DQN or of QR-DQN, which do not know masks, have illegal actions too.")
    return notes


def check_agents(specs: Sequence[Spec], remedy: str = _WRAP) -> None:
    """Refuse what cannot be trained, before the work.

    :param specs: Of runs, one for each algorithm.
    :param remedy: Said behind the reason.
    :raises ValueError: If an agent cannot be made or cannot act.
    """
    for spec in specs:
        try:
            make_agent({**spec, "compile": False})
        except Exception as error:
            raise ValueError(
                f"{spec['env']!r} cannot be trained on by {spec['algorithm']} with the {spec['policy']}: "
                f"{first_line(error).removesuffix('.')}. {remedy}"
            ) from error
