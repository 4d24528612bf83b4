"""Failures of single members: an exception of their environment, or values that no agent can learn from."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sb3_robust_be.system import is_storage_trouble

from .batches import Observation

__all__ = ["Failure", "failure_of", "find_bad_observations", "find_bad_rewards"]

# Larger numbers are infinite in a replay buffer or a network.
_LARGEST = np.finfo(np.float32).max
_HERE = Path(__file__).parent


class Failure(NamedTuple):
    """Why a member takes no more steps."""

    reason: str
    """What happened and what to do about it."""
    traceback: str = ""
    """The traceback of the exception; empty if there was none."""


def failure_of(call: str, error: Exception) -> Failure:
    """Turn an exception of a member's environment into its failure.

    :param call: What was called, as in ``"step() of its environment"``.
    :param error: The exception.
    :raises OSError: The exception itself if the disk is full or read-only, which is no member's fault.
    """
    if isinstance(error, OSError) and is_storage_trouble(error):
        raise error
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent != _HERE]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    message = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
    return Failure(
        f"{call} failed with {message}{where}. Fix the environment, then run again.",
        "".join(traceback.format_exception(error)),
    )


def find_bad_rewards(rewards: np.ndarray) -> dict[int, Failure]:
    """Find members with rewards that no agent can learn from.

    :param rewards: ``(N,)``.
    :return: A failure for each member whose reward is NaN, infinite, or too large for float32.
    """
    fine = np.abs(rewards) <= _LARGEST
    if fine.all():
        return {}
    return {
        member: Failure(
            f"step() of its environment returned the reward {rewards[member]}. One such reward would make every weight "
            "NaN: fix the environment, or wrap it in gymnasium.wrappers.TransformReward."
        )
        for member in np.flatnonzero(~fine).tolist()
    }


def find_bad_observations(call: str, space: gym.Space[Any], observations: Observation) -> dict[int, Failure]:
    """Find members with observations that no agent can learn from.

    :param call: What returned them, as in ``"step() of its environment"``.
    :param space: A member's.
    :param observations: ``(N, ...)``.
    :return: A failure for each member with floats that are NaN, infinite or
        too large for float32, or integers outside their Discrete or
        MultiDiscrete space.
    """
    if not isinstance(observations, dict):
        return _find_bad(call, "", space, observations)
    assert isinstance(space, spaces.Dict)
    found: dict[int, Failure] = {}
    for key, part in observations.items():
        found = _find_bad(call, f" under the key {key!r}", space[key], part) | found
    return found


def _find_bad(call: str, where: str, space: gym.Space[Any], values: np.ndarray) -> dict[int, Failure]:
    if values.dtype.kind == "f":
        fine = np.abs(values) <= _LARGEST
    elif isinstance(space, spaces.Discrete):
        fine = (values >= space.start) & (values < space.start + space.n)
    elif isinstance(space, spaces.MultiDiscrete):
        fine = (values >= space.start) & (values < space.start + space.nvec)
    else:
        return {}
    if fine.all():
        return {}
    rows, fine_rows = values.reshape(len(values), -1), fine.reshape(len(values), -1)
    found = {}
    for member in np.flatnonzero(~fine_rows.all(axis=1)).tolist():
        bad = rows[member][~fine_rows[member]][0]
        if values.dtype.kind == "f":
            reason = (
                f"{call} returned an observation with {bad}{where}. One such observation would make every weight NaN: "
                "fix the environment, or wrap it in gymnasium.wrappers.TransformObservation."
            )
        else:
            reason = f"{call} returned an observation with {bad}{where}, which is not in {space}. Fix the environment."
        found[member] = Failure(reason)
    return found
