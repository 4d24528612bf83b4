"""Environments for the tests of the lock-step, and how to compare two runs."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sb3_robust_be.envs.lockstep import LockstepEnv, Step
from sb3_robust_be.envs.lockstep.batches import by_name

CART_POLE, MOUNTAIN_CAR, ACROBOT = "CartPole-v1", "MountainCar-v0", "Acrobot-v1"
CLIFF_WORLD, FROZEN_LAKE, BREAKOUT = "RobustBE/CliffWorld-v0", "FrozenLake-v1", "MinAtar/Breakout-v0"
PUDDLE_WORLD = "RobustBE/PuddleWorld-v0"


class DictEnv(gym.Env):
    """A random walk seen in five ways. Actions are −1, 0 and 1; it terminates at ±3, and truncates itself at ±2."""

    def __init__(self, noise: float = 1.0) -> None:
        self.noise, self.closed, self.given = noise, False, []
        self.action_space = spaces.Discrete(3, start=-1)
        self.observation_space = spaces.Dict(
            {
                "place": spaces.Box(-np.inf, np.inf, (2,), np.float32),
                "picture": spaces.Box(0, 255, (3, 4, 1), np.uint8),
                "cell": spaces.Discrete(9, start=-4),
                "bits": spaces.MultiBinary(4),
                "digits": spaces.MultiDiscrete([3, 5]),
            }
        )

    def _observe(self) -> dict[str, Any]:
        place = np.array([self.place, self.np_random.random()])  # float64, unlike its space
        picture = self.np_random.integers(256, size=(3, 4, 1)).astype(np.uint8)
        cell = round(float(np.clip(self.place, -4, 4)))
        return {"place": place, "picture": picture, "cell": cell, "bits": [cell > 0] * 4, "digits": [1, abs(cell)]}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 0.0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.given.append(int(action))
        self.place += action + self.noise * self.np_random.normal()
        return self._observe(), self.place, abs(self.place) > 3, abs(self.place) > 2, {}

    def close(self) -> None:
        self.closed = True


class UnseededEnv(gym.Env):
    """Shows a number that no seed decides; ``lasting`` ones stay at 0. Episodes end after ``length`` steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,))
    action_space = spaces.Discrete(2)
    count = 0
    length = 5

    def __init__(self, lasting: bool = False) -> None:
        self.lasting = lasting

    def _observe(self) -> np.ndarray:
        UnseededEnv.count += not self.lasting
        return np.array([0.0 if self.lasting else UnseededEnv.count], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._observe(), 0.0, self.steps >= UnseededEnv.length, False, {}


def random_actions(env: LockstepEnv, n_steps: int, seed: int = 0) -> np.ndarray:
    """``(n_steps, N)`` elements of the action space."""
    rng, space = np.random.default_rng(seed), env.action_space
    return rng.integers(space.start, space.start + space.n, size=(n_steps, len(env.seeds)))


def arrays(step: Step) -> dict[str, np.ndarray]:
    """All arrays of a step, those of Dict observations apart."""
    rest = {"rewards": step.rewards, "terminated": step.terminated, "truncated": step.truncated}
    final = {f"final {name}": part for name, part in by_name(step.final_observations).items()}
    return by_name(step.observations) | final | rest


def assert_equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    """Equal to the last bit, in dtype as in shape."""
    assert one.keys() == other.keys()
    for name, part in one.items():
        assert part.dtype == other[name].dtype, name
        np.testing.assert_array_equal(part, other[name], strict=True, err_msg=name)
