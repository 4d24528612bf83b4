"""Flattens MultiDiscrete observations of several axes, since SB3 supports one axis only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn


class FlatMultiDiscrete(spaces.MultiDiscrete):
    """A MultiDiscrete space of several axes as one with a single axis.

    :param space: MultiDiscrete of any number of axes, of which this has one, in C order.
    """

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        super().__init__(space.nvec.ravel(), space.dtype, start=space.start.ravel())
        self.shape_before = space.shape
        """What the environment's observations have"""

    def flat(self, array: np.ndarray) -> np.ndarray:
        """Flatten observations of the original space.

        :param array: Observations, one or a batch, as of either space.
        :return: As of this one.
        """
        if array.shape == self.shape_before:
            # An array of one row is taken for a batch of one, as it comes from the wrapper.
            return array if array.shape == (1, *self.shape) else array.reshape(self.shape)
        if array.shape[1:] == self.shape_before:
            return array.reshape(len(array), *self.shape)
        return array  # left to SB3's error, if it is not flat


def _flat_space(space: spaces.Space) -> spaces.Space:
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _flat_space(part) for key, part in space.items()})
    if isinstance(space, spaces.MultiDiscrete):
        return space if len(space.shape) == 1 else FlatMultiDiscrete(space)
    return space


class VecFlattenMultiDiscrete(VecEnvWrapper):
    """Wrapper that flattens MultiDiscrete observations, also within a Dict, in C order.

    :param venv: The environments.
    """

    def __init__(self, venv: VecEnv) -> None:
        super().__init__(venv, observation_space=_flat_space(venv.observation_space))

    def _flat(self, observations: Any, leading: Sequence[int]) -> Any:
        if isinstance(observations, dict):
            parts = self.observation_space.spaces  # type: ignore[attr-defined]
            return {key: np.reshape(x, (*leading, *parts[key].shape)) for key, x in observations.items()}
        return np.reshape(observations, (*leading, *(self.observation_space.shape or ())))

    def reset(self) -> VecEnvObs:
        """
        Reset all environments

        :return: Their observations.
        """
        return self._flat(self.venv.reset(), [self.num_envs])

    def step_wait(self) -> VecEnvStepReturn:
        """
        Wait for the step taken with step_async().

        :return: observation, reward, done, information
        """
        observations, rewards, dones, infos = self.venv.step_wait()
        for info in infos:
            if "terminal_observation" in info:
                info["terminal_observation"] = self._flat(info["terminal_observation"], [])
        return self._flat(observations, [self.num_envs]), rewards, dones, infos


def flatten(env: VecEnv) -> VecEnv:
    """Wrap an environment so that its MultiDiscrete observations have one axis.

    :param env: Wrapped by SB3.
    :return: The same, or wrapped so that no MultiDiscrete observation has several axes.
    """
    space = env.observation_space
    parts = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    several = any(isinstance(part, spaces.MultiDiscrete) and len(part.shape) != 1 for part in parts)
    return VecFlattenMultiDiscrete(env) if several else env
