"""Cliff World for all members at once, by table look-ups."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from ..cliff_world import START, CliffWorldEnv
from .vectorised import VectorisedEnv

__all__ = ["CliffWorld"]


class CliffWorld(VectorisedEnv):
    """``RobustBE/CliffWorld-v0``; the state is the number of the cell."""

    env_class = CliffWorldEnv

    def __init__(self, env: gym.Env[Any, Any], seeds: tuple[int, ...]) -> None:
        model: Any = env.unwrapped
        self._seen = model._observations
        super().__init__(env, seeds)
        outcomes = [[outcome for [outcome] in row.values()] for row in self._model.P.values()]
        _, self._targets, self._rewards, self._terminated = (
            np.array([[outcome[i] for outcome in row] for row in outcomes]) for i in range(4)
        )

    def _start(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        return np.array(START), self._seen[START]  # whatever the seed: nothing here is random

    def _move(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rewards, terminated = self._rewards[states, actions], self._terminated[states, actions]
        states[:] = self._targets[states, actions]
        return self._seen[states], rewards, terminated
