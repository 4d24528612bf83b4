"""An environment that goes wrong for one seed alone, in a way of one's choice, and populations in it."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from populations import make, member_state

from sb3_robust_be.envs.lockstep import episode_seed

BAD_SEED = 1
LENGTH = 5
STEPS = 45
AT = 4 * LENGTH + 3
"""The environment step at which the third of the fifth episode is made"""


class FaultyEnv(gym.Env):
    """A random walk over integers and floats; an episode has five steps.

    :param fault: What happens to the member with seed 1; ``None``: nothing, which is otherwise the same environment.
    :param episode: In which of its episodes, from 0.
    :param step: At which step of that, from 1; 0: at the reset.
    """

    calls_after_the_fault = 0

    def __init__(self, fault: str | None = None, episode: int = 4, step: int = 3) -> None:
        self.observation_space = spaces.Dict(
            {"place": spaces.Box(-np.inf, np.inf, (2,), np.float32), "cell": spaces.Discrete(4, start=-2)}
        )
        self.action_space = spaces.Discrete(2)
        self._fault, self._bad_seed, self._bad_step = fault, episode_seed(BAD_SEED, episode), step
        self._broken = False

    def _outcome(self) -> tuple[Any, Any]:
        """Observation and reward, or an exception."""
        FaultyEnv.calls_after_the_fault += self._broken
        cell = int(np.clip(self._place, -2, 1))
        observation: Any = {"place": np.array([self._place, self.np_random.random()], np.float32), "cell": cell}
        if self._fault is None or self._seed != self._bad_seed or self._count != self._bad_step:
            return observation, self._place
        self._broken = True
        if self._fault == "exception":
            raise RuntimeError("lost\nthe robot")
        if self._fault.startswith("reward"):
            return observation, {"nan": np.nan, "inf": np.inf, "huge": 1e39, "text": "fast"}[self._fault.split()[1]]
        key, change = self._fault.split()
        values = {"nan": np.nan, "inf": -np.inf, "top": 2, "low": -3}
        if change == "missing":
            del observation[key]
        elif change == "shape":
            observation[key] = np.zeros(1, np.float32)
        elif key == "place":
            observation[key][1] = values[change]
        else:
            observation[key] = values[change]
        return observation, self._place

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._seed, self._count, self._place = seed, 0, 0.0
        return self._outcome()[0], {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        self._count += 1
        self._place += 2 * int(action) - 1 + 0.1 * self.np_random.normal()
        observation, reward = self._outcome()
        return observation, reward, self._count == LENGTH, False, {}


class Losing(gym.Env):
    """Some resets fail, decided by the seed."""

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, probability: float = 0.004) -> None:
        self.probability = probability

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t = 0
        if self.np_random.random() < self.probability:
            raise RuntimeError("lost")
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), float(action), self.t == LENGTH, False, {}


def population(fault: str | None = None, algorithm: str = "qrc_huber", **kwargs: Any):
    """Three members, of which the second is the one that goes wrong."""
    where = {name: kwargs.pop(name) for name in ("episode", "step") if name in kwargs}
    return make(algorithm, range(3), FaultyEnv, "MultiInputPolicy", env_kwargs={"fault": fault, **where}, **kwargs)


@functools.cache
def nothing_fails(algorithm="qrc_huber", **kwargs):
    """What all members become where nothing fails."""
    healthy = population(None, algorithm, **kwargs).learn(STEPS)
    assert not healthy.failed.any()
    assert healthy.failures == [None] * 3
    return [member_state(healthy, i) for i in range(3)]
