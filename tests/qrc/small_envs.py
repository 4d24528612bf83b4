"""Environments of a few states, each with one property that a test needs."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class MatchEnv(gym.Env):
    """Three states at random, one-hot; the action with the state's number (from ``start`` on) is rewarded with 1.

    An action outside the space is an error, as in many environments that start counting at 1.
    """

    def __init__(self, start: int = 0, length: int = 10) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Discrete(3, start=start)
        self.length = length

    def _observe(self) -> np.ndarray:
        self.state = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.state]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: int) -> Step:
        if not self.action_space.contains(action):
            raise ValueError(f"{action} is not in {self.action_space}")
        reward = float(action - self.action_space.start == self.state)
        self.steps += 1
        return self._observe(), reward, False, self.steps >= self.length, {}


class SpaceEnv(gym.Env):
    """Observations at random from any space; reward 1 for action 0; episodes of 7 steps end by themselves."""

    def __init__(self, observation_space: spaces.Space, n_actions: int = 2) -> None:
        self.observation_space = observation_space
        self.action_space = spaces.Discrete(n_actions)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: int) -> Step:
        self.steps += 1
        return self.observation_space.sample(), float(action == 0), self.steps >= 7, False, {}


class RewardEnv(gym.Env):
    """One state that never ends; ``reward`` at every step, and ``bad`` at step ``bad_at``."""

    def __init__(self, reward: float = 1.0, bad: float = 0.0, bad_at: int = -1) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.reward, self.bad, self.bad_at = reward, bad, bad_at
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return np.ones(2, np.float32), {}

    def step(self, action: int) -> Step:
        self.steps += 1
        return np.ones(2, np.float32), self.bad if self.steps == self.bad_at else self.reward, False, False, {}


def vector_and_code() -> spaces.Dict:
    """A Dict observation space without images."""
    return spaces.Dict({"vector": spaces.Box(-1.0, 1.0, (3,), np.float32), "code": spaces.Discrete(4)})


def images(height: int, width: int, channels: int, dtype: type = np.uint8, channels_last: bool = True) -> spaces.Box:
    """Images; of bool, as MinAtar has them, they are no images to SB3."""
    shape = (height, width, channels) if channels_last else (channels, height, width)
    return spaces.Box(0, 1 if dtype is bool else 255, shape, dtype)
