"""Puddle World for all members at once: the environment's own functions, with each member's own noise."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from ..puddle_world import MOVES, PuddleWorldEnv, in_goal, moved, reward_at
from .base import episode_seed
from .vectorised import VectorisedEnv

__all__ = ["PuddleWorld"]


class PuddleWorld(VectorisedEnv):
    """``RobustBE/PuddleWorld-v0``; the state is ``(x, y)``.

    A member's noise comes from the generator that its episode's reset has seeded, two normal numbers per step, as in
    the single environment. The generators are not saved: seed and steps of an episode say where they are.
    """

    env_class = PuddleWorldEnv

    def __init__(self, env: gym.Env[Any, Any], seeds: tuple[int, ...]) -> None:
        super().__init__(env, seeds)
        self._moves = np.array(MOVES).T
        self._generators: dict[int, np.random.Generator] = {}

    def _begin(self, member: int, seed: int) -> np.ndarray:
        observation = super()._begin(member, seed)
        self._generators[member] = self._model.np_random  # a reset with a seed makes a new one each time
        return observation

    def _move(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        normals = np.zeros((len(actions), 2))
        for member, generator in self._generators.items():
            generator.standard_normal(out=normals[member])
        states[:] = moved(states, self._moves[:, actions], normals.T)
        return states.T.astype(np.float32, order="C"), reward_at(states), in_goal(states)

    def _restore(self, state: dict[str, np.ndarray]) -> None:
        for member, (seed, episode) in enumerate(zip(self.seeds, self._episodes.tolist(), strict=True)):
            if member not in self._stopped:
                self._begin(member, episode_seed(seed, episode))
                self._generators[member].standard_normal((int(state["elapsed"][member]), 2))
        super()._restore(state)
