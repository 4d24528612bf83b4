"""Environments whose legal actions are a table of their states, and that fail where another one is taken."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

LEGAL = np.array([[1, 0, 0, 1], [0, 1, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 1, 0], [1, 1, 0, 0]], dtype=bool)
"""Which of four actions are legal in each of six states"""


class IllegalActionError(Exception):
    """An environment was given an action that its mask did not allow."""


class TableEnv(gym.Env):
    """Six states at random, one-hot, whose legal actions are in ``LEGAL``; the largest legal action is rewarded with 1.

    :param ends: Lengths of episodes, drawn for each; negative for those that terminate, the others are cut off.
    :param start: Of the actions.
    :param as_dict: Whether observations are a Dict.
    """

    def __init__(self, ends: tuple[int, ...] = (3, -4), start: int = 0, as_dict: bool = False) -> None:
        one_hot = spaces.Box(0.0, 1.0, (6,), np.float32)
        self.as_dict = as_dict
        self.observation_space = spaces.Dict({"state": one_hot, "state_again": one_hot}) if as_dict else one_hot
        self.action_space = spaces.Discrete(4, start=start)
        self.ends, self.ended = ends, True

    def _observe(self) -> Any:
        self.state = int(self.np_random.integers(6))
        row = np.eye(6, dtype=np.float32)[self.state]
        return {"state": row, "state_again": row.copy()} if self.as_dict else row

    def action_masks(self) -> Any:
        # What a finished game cannot answer, and need not.
        return np.zeros(4, bool) if self.ended else LEGAL[self.state]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.count, self.ended = 0, False
        self.end = self.ends[self.np_random.integers(len(self.ends))]
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        index = int(action) - int(self.action_space.start)
        if not LEGAL[self.state, index]:
            raise IllegalActionError(f"{index} in {self.state}")
        reward = float(index == np.flatnonzero(LEGAL[self.state]).max())
        self.count += 1
        over = self.count == abs(self.end)
        self.ended = over and self.end < 0
        return self._observe(), reward, self.ended, over and self.end > 0, {}


class WithMasks(gym.Wrapper):
    """An environment that says what it is told to say of its actions; by default, that all are legal."""

    def __init__(self, env: gym.Env, masks: Any = None) -> None:
        super().__init__(env)
        self.masks = np.ones(int(env.action_space.n), bool) if masks is None else masks

    def action_masks(self) -> Any:
        return self.masks


BAD_MASKS = {
    "too few": np.ones(1, bool),
    "two rows": np.ones((2, 2), bool),
    "floats": np.ones(2),
    "other integers": np.array([1, 2]),
    "nothing": np.array(None),
    "ragged": [[True], [True, False]],
    "words": ["yes", "no"],
}
