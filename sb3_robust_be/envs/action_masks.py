"""Environments that say which actions are legal, by the protocol of sb3-contrib's MaskablePPO: ``action_masks()``."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

__all__ = ["TERMINAL_ACTION_MASKS", "TerminalActionMasks", "ask_masks", "checked_masks", "has_masks"]

METHOD = "action_masks"
TERMINAL_ACTION_MASKS = "terminal_action_masks"
"""The key of ``info`` that has the mask of an episode's last observation, as SB3's ``terminal_observation`` has that"""


def has_masks(env: gym.Env[Any, Any]) -> bool:
    """Whether an environment, or a wrapper around it, has the method ``action_masks``.

    :param env: Any.
    :return: Whether it can be asked which actions are legal.
    """
    return bool(env.has_wrapper_attr(METHOD))


def ask_masks(env: gym.Env[Any, Any]) -> Any:
    """Ask an environment which actions are legal where it is.

    :param env: With the method ``action_masks``.
    :return: What the method returns, unchecked.
    """
    return env.get_wrapper_attr(METHOD)()


def checked_masks(masks: Any, n_actions: int, n: int | None = None) -> np.ndarray:
    """Check masks, and convert them to booleans.

    :param masks: One per state, True (or 1) where an action is legal, shape (states, actions); of a single state, (1,
        actions) or (actions,).
    :param n_actions: How many actions there are.
    :param n: How many states; ``None``: any number.
    :return: Booleans, shape (states, actions).
    :raises ValueError: If they have another shape, are neither booleans nor integers 0 and 1, or allow a state no
        action.
    """
    try:
        array = np.asarray(masks)
    except (ValueError, TypeError, RuntimeError):  # of several lengths; tensors that numpy cannot read
        array = np.empty((), object)
    if array.ndim == 1 and n in (None, 1):
        array = array[None]
    if n is None:
        expected: tuple[int, ...] = (len(array), n_actions) if array.ndim else (n_actions,)
    else:
        expected = (n, n_actions)
    binary = array.dtype.kind == "b" or (array.dtype.kind in "iu" and bool(((array == 0) | (array == 1)).all()))
    if array.shape != expected or not binary:
        given = " ".join(repr(masks).split())
        raise ValueError(
            f"action_masks must be booleans (or integers 0 and 1) of shape {expected}, True where an action is legal, "
            f"and is {given} (shape {array.shape}, {array.dtype}). Pass, or let action_masks() of the environment "
            f"return, np.array([...], dtype=bool) with {n_actions} entries."
        )
    legal = array.astype(bool, copy=False)
    if not legal.any(axis=1).all():
        row = int(np.flatnonzero(~legal.any(axis=1))[0])
        raise ValueError(
            f"action_masks allows no action at all in row {row}, and the episode has not terminated there. Let the "
            "environment terminate the episode in such a state, or have an action there that does nothing."
        )
    return legal


class TerminalActionMasks(gym.Wrapper[Any, Any, Any, Any]):
    """Wrapper that keeps which actions were legal where an episode has been cut off.

    The value of the last observation of an episode that was truncated counts in learning, and so does its mask. A
    ``VecEnv`` resets by itself before anybody can ask for it; with this wrapper the step's ``info`` has it, as
    ``terminal_action_masks``. It must be outside of what cuts episodes off, such as ``TimeLimit``. A single environment
    and a ``DummyVecEnv`` get it by themselves, for a ``SubprocVecEnv`` pass
    ``make_vec_env(..., wrapper_class=TerminalActionMasks)``.

    :param env: With the method ``action_masks``, as of :class:`sb3_contrib.common.wrappers.ActionMasker`.
    :raises TypeError: If it has no such method.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        if not has_masks(env) or not callable(env.get_wrapper_attr(METHOD)):
            raise TypeError(
                f"{env} has no method action_masks(). Add one that returns one bool per action, or use sb3-contrib's "
                "ActionMasker; what is called action_masks and is no method needs another name."
            )

    def __setattr__(self, name: str, value: Any) -> None:
        # What `VecEnv.set_attr` gives the outermost environment is meant for the one that was outermost before.
        if name == "env" or name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self.env, name, value)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """
        Step the environment.

        :param action: the action
        :return: observation, reward, terminated, truncated, information
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        if truncated and not terminated:
            info = {**info, TERMINAL_ACTION_MASKS: ask_masks(self.env)}
        return observation, reward, terminated, truncated, info
