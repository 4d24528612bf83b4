"""What the numpy versions of gymnasium's environments share: start states, time limits, saving."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from .base import LockstepEnv

__all__ = ["VectorisedEnv"]


class VectorisedEnv(LockstepEnv):
    """All members' states in one array, moved together; a subclass gives the movement.

    The environment it copies, one of gymnasium's own instances, provides the spaces, the constants, the step limit and
    every episode's start state: its ``reset`` is called with the episode's seed.

    :param env: As ``gymnasium.make`` returns it; :meth:`copies` must be true of it.
    :param seeds: One per member.
    """

    env_class: ClassVar[type[gym.Env[Any, Any]]]

    def __init__(self, env: gym.Env[Any, Any], seeds: tuple[int, ...]) -> None:
        assert isinstance(env.action_space, gym.spaces.Discrete)
        super().__init__(env.observation_space, env.action_space, seeds)
        self._model: Any = env.unwrapped
        limit = None if env.spec is None else env.spec.max_episode_steps
        self._max_episode_steps = np.iinfo(np.int64).max if limit is None else limit
        self._elapsed = np.zeros(len(seeds), dtype=np.int64)
        start, _ = self._start(0)
        # Members last, so that each component is one contiguous row. A float32 start leads to float64 states.
        self._states = np.zeros((*start.shape, len(seeds)), dtype=np.result_type(start, np.int64))

    @classmethod
    def copies(cls, env: gym.Env[Any, Any]) -> bool:
        """Whether an environment can be replaced by this numpy version: it is neither rendered nor wrapped further.

        gymnasium lists in ``additional_wrappers`` all but those of ``make`` itself, which limit the number of steps
        and check how the environment is used.
        """
        plain = env.spec is not None and not env.spec.additional_wrappers and env.render_mode is None
        return plain and type(env.unwrapped) is cls.env_class

    @abstractmethod
    def _move(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Move all members: overwrite ``states``, ``(..., N)``, and return new observations, rewards and terminated."""

    def _start(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        observation, _ = self._model.reset(seed=seed)
        return np.asarray(self._model.state), observation

    def _begin(self, member: int, seed: int) -> np.ndarray:
        self._elapsed[member] = 0
        self._states[..., member], observation = self._start(seed)
        return observation

    def _advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        stopped = list(self._stopped)
        kept = self._states[..., stopped] if stopped else None
        observations, rewards, terminated = self._move(self._states, actions)
        if kept is not None:
            self._states[..., stopped] = kept
        self._elapsed += 1
        return observations, rewards, terminated, self._elapsed >= self._max_episode_steps

    def _state(self) -> dict[str, np.ndarray]:
        return {"states": self._states.T, "elapsed": self._elapsed}

    def _restore(self, state: dict[str, np.ndarray]) -> None:
        self._states = np.ascontiguousarray(state["states"].T)
        self._elapsed = state["elapsed"]

    def close(self) -> None:
        """Close the environment that provides the start states."""
        self._model.close()
