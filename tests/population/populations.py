"""Small populations, and what their members have in common with single agents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN

from sb3_robust_be.population import Population
from sb3_robust_be.registry import classes

ALGORITHMS = classes()

SMALL: dict[str, Any] = {
    "learning_rate": 1e-3,
    "buffer_size": 300,
    "learning_starts": 20,
    "train_freq": 1,
    "batch_size": 8,
    "policy_kwargs": {"net_arch": [16]},
    "verbose": 0,
    "device": "cpu",
}
EVERY_ALGORITHM = ["dqn", *ALGORITHMS]
CLASSES: dict[str, type[DQN]] = {"dqn": DQN, **ALGORITHMS}
_CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not th.cuda.is_available(), reason="there is no CUDA device"))
every_device = pytest.mark.parametrize("device", ["cpu", _CUDA])
every_algorithm = pytest.mark.parametrize("algorithm", EVERY_ALGORITHM)

_SHARED: dict[str, Any] = {
    "learning_rate": [1e-3, 1e-2],
    "target_update_interval": [None, 7],
    # The same, however many steps are to come.
    "exploration_initial_eps": 0.3,
    "exploration_final_eps": 0.3,
}
_OWN: dict[str, dict[str, Any]] = {
    "dqn": {"huber_threshold": [1.0, None]},
    "qrc": {"h_regularization": [0.0, 1.0]},
    "qrc_huber": {"huber_threshold": [0.01, 1.0]},
    "qlc": {"gamma": [0.9, 0.99], "h_regularization_scale": "features"},
    "gq": {"h_learning_rate_ratio": [0.5, 2.0]},
    "gq_huber": {"max_grad_norm": [None, 0.01]},
    "sbeed": {"temperature": [0.1, 1]},
}
TRAINED = {algorithm: _SHARED | own for algorithm, own in _OWN.items()}
"""With and without target network, and with what else sets an algorithm's members apart"""


class Trained(NamedTuple):
    """A population and where it was saved on the way."""

    population: Population
    folder: Path


class CountingEnv(gym.Env):
    """Shows (episode, step) and rewards with the step's number; episodes end by termination, time limit, both, …"""

    ENDS = ((4, True, False), (6, False, True), (5, True, True))
    """Length, terminated and truncated, in turn"""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1000.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.episode = -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.episode, self.count = self.episode + 1, 0
        return np.array([self.episode, 0], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.count += 1
        length, terminated, truncated = self.ENDS[self.episode % 3]
        ended = self.count == length
        observation = np.array([self.episode, self.count], np.float32)
        return observation, float(self.count), ended and terminated, ended and truncated, {}


def make(algorithm: str, seeds: Any = range(3), env: Any = "CartPole-v1", policy: str = "MlpPolicy", **kwargs: Any):
    """A population with 16 hidden units that learns from its 21st step on."""
    return Population(algorithm, policy, env, seeds, **{**SMALL, **kwargs})


def make_single(algorithm: str, env: Any = "CartPole-v1", policy: str = "MlpPolicy", seed: int = 0, **kwargs: Any):
    """A single agent with the same arguments."""
    return CLASSES[algorithm](policy, env, seed=seed, **{**SMALL, **kwargs})


def rows(population: Population) -> th.Tensor:
    """All parameters in the order of the members, shape (members, parameters)."""
    trainer = population._trainer
    found = th.empty(len(population), trainer.learners[0].layout.n_parameters, dtype=trainer.learners[0].rows.dtype)
    for members, learner in zip(trainer.groups, trainer.learners, strict=True):
        found[members] = learner.rows.cpu()
    return found


def find(population: Population, seed: int, **settings: Any) -> int:
    """The index of the one member with this seed and these settings."""
    items = settings.items()
    (found,) = [i for i, m in enumerate(population.members) if m.seed == seed and items <= m.settings.items()]
    return found


def member_state(population: Population, i: int) -> dict[str, np.ndarray]:
    """Copies of all that is a member's own, by name: parameters, moments, target, transitions, episodes, ε."""
    trainer = population._trainer
    learner, row = trainer.learner_of(i)
    tensors = {name: x[row] for name, x in learner.state().items()}
    tensors |= {f"replay/{name}": x[i, : trainer.replay.size] for name, x in trainer.replay.fields().items()}
    arrays = {name: x.cpu().numpy().copy() for name, x in tensors.items()}
    arrays |= {f"episodes/{name}": x for name, x in population.returns[i]._asdict().items()}
    log = trainer.log
    return arrays | {"numbers": np.array([trainer.exploration.rates[i], log.returns[i], log.lengths[i]])}


def assert_same_member(state: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    """Bit for bit."""
    assert state.keys() == other.keys()
    for name, array in state.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@contextmanager
def double_precision() -> Iterator[None]:
    """Networks are float64 within."""
    th.set_default_dtype(th.float64)
    try:
        yield
    finally:
        th.set_default_dtype(th.float32)
