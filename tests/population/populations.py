"""Small populations, and what their members have in common with single agents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch as th

from sb3_robust_be.population import Population
from sb3_robust_be.registry import ALGORITHMS

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


def make(algorithm: str, seeds: Any = range(3), env: Any = "CartPole-v1", policy: str = "MlpPolicy", **kwargs: Any):
    """A population with 16 hidden units that learns from its 21st step on."""
    return Population(algorithm, policy, env, seeds, **{**SMALL, **kwargs})


def rows(population: Population) -> th.Tensor:
    """All parameters in the order of the members, shape (members, parameters)."""
    trainer = population._trainer
    found = th.empty(len(population), trainer.learners[0].layout.n_parameters, dtype=trainer.learners[0].rows.dtype)
    for members, learner in zip(trainer.groups, trainer.learners, strict=True):
        found[members] = learner.rows
    return found


@contextmanager
def double_precision() -> Iterator[None]:
    """Networks are float64 within."""
    th.set_default_dtype(th.float64)
    try:
        yield
    finally:
        th.set_default_dtype(th.float32)
