"""Prepares observations for the network: arrays that torch accepts, and integers counted from zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.type_aliases import PyTorchObs

from sb3_robust_be.qrc.flattening import FlatMultiDiscrete

# numpy's letters of the dtypes that every version of torch takes.
_TAKEN_BY_TORCH = "?bBhilqefd"

Starts = Mapping[str | None, Any]
"""First numbers of integer observations by their key, ``None`` where there are no keys; zeros are left out."""


def as_torch_takes(array: np.ndarray) -> np.ndarray:
    """Copy an array that torch would refuse or warn of.

    :param array: Any.
    :return: Itself, or a copy where torch would refuse it (negative strides, another byte order, ``longdouble``) or
        warn (read-only, as of JAX).
    :raises TypeError: If it does not hold numbers.
    """
    flags, dtype = array.flags, array.dtype
    plain = flags.carray or (flags.behaved and min(array.strides, default=0) >= 0)
    if plain and dtype.isnative and dtype.char in _TAKEN_BY_TORCH:
        return array
    if dtype.kind not in "biuf":
        raise TypeError(
            f"observation is an array of dtype {dtype}, which holds no numbers. Pass numbers of one shape, for "
            "instance np.asarray(observation, dtype=np.float32)."
        )
    dtype = dtype.newbyteorder("=")
    if dtype.char not in _TAKEN_BY_TORCH:
        dtype = np.dtype(np.float64 if dtype.kind == "f" else np.int64)
    return np.array(array, dtype=dtype, order="C")


def as_array(observation: Any, space: spaces.Space) -> np.ndarray:
    """Convert an observation to an array of its space.

    :param observation: An observation or a batch: an array, a tensor, numbers in lists, a number.
    :param space: Of the observation.
    :return: The same as an array that torch takes; what a MultiDiscrete space of several axes gives, flat.
    :raises TypeError: If it does not hold numbers.
    :raises ValueError: For integers that the space does not have.
    """
    if isinstance(observation, th.Tensor):
        observation = observation.detach().cpu().numpy()
    array = as_torch_takes(np.asarray(observation))
    if isinstance(space, FlatMultiDiscrete):
        array = space.flat(array)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        _check_range(array, space)
    return array


def _check_range(array: np.ndarray, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
    if isinstance(space, spaces.MultiDiscrete) and array.shape[-1:] != space.shape:
        return  # left to SB3's error
    from_zero = array - np.asarray(space.start, np.int64)
    outside = (from_zero < 0) | (from_zero >= (space.n if isinstance(space, spaces.Discrete) else space.nvec))
    if outside.any():
        raise ValueError(
            f"observation has the number {array[outside].flat[0]}, which {space} does not have. Let the environment's "
            "observation_space name every number that it gives."
        )


def starts_of(space: spaces.Space) -> Starts:
    """Find the integer observations that do not start at zero.

    :param space: Of observations.
    :return: The first numbers of Discrete and MultiDiscrete observations that are not counted from zero.
    """
    parts: dict[Any, spaces.Space] = dict(space.spaces) if isinstance(space, spaces.Dict) else {None: space}
    found = {
        key: np.asarray(part.start).tolist()
        for key, part in parts.items()
        if isinstance(part, (spaces.Discrete, spaces.MultiDiscrete))
    }
    return {key: start for key, start in found.items() if np.any(start)}


def from_zero(observations: PyTorchObs, starts: Starts) -> PyTorchObs:
    """Shift integer observations so that they start at zero.

    :param observations: A batch.
    :param starts: Of its space.
    :return: The same, counted from zero, as SB3's one-hot encoding takes it.
    """
    if isinstance(observations, dict):
        return {key: _shifted(x, starts[key]) if key in starts else x for key, x in observations.items()}
    return _shifted(observations, starts[None])


def _shifted(x: th.Tensor, start: Any) -> th.Tensor:
    return x.long() - th.as_tensor(start, device=x.device)
