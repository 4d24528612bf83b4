"""Batches of observations: one array, or one per key of a Dict space, with the members along the first axis."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

__all__ = [
    "Observation",
    "by_name",
    "copy",
    "copy_rows",
    "empty",
    "first_elements",
    "from_names",
    "is_supported",
    "write",
]

Observation = np.ndarray | dict[str, np.ndarray]

_NAME = "observations"
_LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)


def is_supported(space: gym.Space[Any]) -> bool:
    """Whether observations can be batched: those of Box, Discrete, MultiBinary, MultiDiscrete, and a Dict of these."""
    parts = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    return all(isinstance(part, _LEAVES) for part in parts)


def empty(space: gym.Space[Any], n: int) -> Observation:
    """Uninitialised arrays for ``n`` observations of the space; int64 of shape ``(n,)`` for Discrete."""
    if isinstance(space, spaces.Dict):
        return {key: _empty(part, n) for key, part in space.spaces.items()}
    return _empty(space, n)


def _empty(space: gym.Space[Any], n: int) -> np.ndarray:
    if isinstance(space, spaces.Discrete):
        return np.empty(n, dtype=np.int64)
    return np.empty((n, *(space.shape or ())), dtype=space.dtype)


def first_elements(space: gym.Space[Any], n: int) -> Observation:
    """Placeholders for ``n`` observations: zeros, or the smallest of the integers."""
    if isinstance(space, spaces.Dict):
        return {key: _first_elements(part, n) for key, part in space.spaces.items()}
    return _first_elements(space, n)


def _first_elements(space: gym.Space[Any], n: int) -> np.ndarray:
    batch = _empty(space, n)
    batch[...] = space.start if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) else 0
    return batch


def write(batch: Observation, member: int, observation: Any) -> None:
    """Put one member's observation into the batch.

    :raises ValueError: If it has another shape than its space, or lacks a key.
    """
    if isinstance(batch, dict):
        for key, part in batch.items():
            if key not in observation:
                raise ValueError(f"the observation lacks the key {key!r}")
            _write(part, member, observation[key], f" under the key {key!r}")
    else:
        _write(batch, member, observation, "")


def _write(batch: np.ndarray, member: int, observation: Any, where: str) -> None:
    array = np.asarray(observation)
    # numpy would repeat what is too small; that (1, n) fits (n,), as it has it, is good enough.
    if array.size * len(batch) != batch.size:
        raise ValueError(f"the observation{where} has the shape {array.shape} and its space {batch.shape[1:]}")
    batch[member] = array


def copy_rows(batch: Observation, members: Any, source: Observation, rows: Any) -> None:
    """Overwrite the observations of these members by those in the rows of another batch."""
    into, out_of = by_name(batch), by_name(source)
    for name, part in into.items():
        part[members] = out_of[name][rows]


def copy(batch: Observation) -> Observation:
    """Copy a batch."""
    return {key: part.copy() for key, part in batch.items()} if isinstance(batch, dict) else batch.copy()


def by_name(batch: Observation) -> dict[str, np.ndarray]:
    """The arrays under flat names, ``observations`` or ``observations/<key>``, to be saved."""
    return {f"{_NAME}/{key}": part for key, part in batch.items()} if isinstance(batch, dict) else {_NAME: batch}


def from_names(batch: Observation, arrays: dict[str, np.ndarray]) -> Observation:
    """The inverse of :func:`by_name`; ``batch`` tells the structure."""
    return {key: arrays[f"{_NAME}/{key}"] for key in batch} if isinstance(batch, dict) else arrays[_NAME]
