"""Small models of every algorithm, and what two of them have in common."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from sb3_robust_be.qrc import RobustQLearning
from sb3_robust_be.qrc.validation import constructor_arguments
from sb3_robust_be.registry import classes

ALGORITHMS = classes()

SMALL: dict[str, Any] = {
    "learning_rate": 1e-3,
    "buffer_size": 500,
    "learning_starts": 10,
    "batch_size": 8,
    "train_freq": 1,
    "seed": 0,
    "device": "cpu",
}

every_algorithm = pytest.mark.parametrize("algorithm", list(ALGORITHMS.values()), ids=list(ALGORITHMS))


def those_with(*arguments: str) -> pytest.MarkDecorator:
    """Parametrise by the algorithms whose constructor takes these arguments."""
    found = [cls for cls in ALGORITHMS.values() if set(arguments) <= set(constructor_arguments(cls))]
    return pytest.mark.parametrize("algorithm", found, ids=[cls.algorithm_name for cls in found])


# Those with this family's TD error; another update may refuse n-step returns and bootstrap from something else.
FAMILY = [cls for cls in ALGORITHMS.values() if cls.batch_loss is RobustQLearning.batch_loss]
every_family_algorithm = pytest.mark.parametrize("algorithm", FAMILY, ids=lambda cls: cls.algorithm_name)


def make(algorithm: type[DQN], env: Any = "CartPole-v1", policy: str = "MlpPolicy", **kwargs: Any) -> Any:
    """A model with 16 hidden units that learns from the eleventh step on."""
    if policy != "CnnPolicy":
        kwargs["policy_kwargs"] = {"net_arch": [16], **kwargs.get("policy_kwargs", {})}
    return algorithm(policy, env, **{**SMALL, **kwargs})


class Lines(KVWriter):
    """What SB3 would write to its log, one dictionary per line."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0) -> None:
        self.lines.append(dict(key_values))


def lines_of(model: Any) -> list[dict[str, Any]]:
    """The lines of the model's log from now on."""
    writer = Lines()
    model.set_logger(Logger(folder=None, output_formats=[writer]))
    return writer.lines


def parameters(model: Any) -> dict[str, th.Tensor]:
    """A copy of the policy's parameters and buffers, by name."""
    return {name: value.clone() for name, value in model.policy.state_dict().items()}


def assert_same_parameters(model: Any, other: Any) -> None:
    """Bit for bit, the optimiser's included."""
    assert_same(model.policy.state_dict(), other.policy.state_dict())
    assert_same(model.policy.optimizer.state_dict(), other.policy.optimizer.state_dict())


def assert_same(value: Any, other: Any) -> None:
    """Nested containers of tensors and plain values, bit for bit."""
    if isinstance(value, th.Tensor):
        th.testing.assert_close(value, other, rtol=0, atol=0)
    elif isinstance(value, dict):
        assert value.keys() == other.keys()
        for key in value:
            assert_same(value[key], other[key])
    elif isinstance(value, (list, tuple)):
        assert len(value) == len(other)
        for pair in zip(value, other, strict=True):
            assert_same(*pair)
    else:
        assert value == other


def assert_learned(model: Any, before: dict[str, th.Tensor]) -> None:
    """Updates were made, they changed values and secondary head, and everything is finite."""
    after = parameters(model)
    assert model._n_updates > 0
    assert all(th.isfinite(value).all() for value in after.values())
    for head in ("q_net.q_net.", "q_net.h_net."):
        assert any(not th.equal(after[name], before[name]) for name in after if name.startswith(head)), head


def generators(model: Any) -> dict[str, Any]:
    """The state of everything random that a model draws from while it acts and learns."""
    return {
        "numpy": np.random.get_state(),
        "torch": th.get_rng_state(),
        "python": random.getstate(),
        "actions": copy.deepcopy(model.action_space.np_random.bit_generator.state),
    }


def restore_generators(model: Any, states: dict[str, Any]) -> None:
    """What a run that goes on bit for bit has to put back; SB3 leaves that to its user."""
    np.random.set_state(states["numpy"])
    th.set_rng_state(states["torch"])
    random.setstate(states["python"])
    model.action_space.np_random.bit_generator.state = states["actions"]


def reloaded(model: Any, path: Any, **kwargs: Any) -> Any:
    """Saved, and loaded again with the same environment."""
    model.save(path)
    return type(model).load(path, env=model.get_env(), **kwargs)


def saved_data(path: Any) -> dict[str, Any]:
    """The attributes in a model's file."""
    data, _, _ = load_from_zip_file(path)
    assert data is not None
    return data


def q_values(model: Any, observations: Any) -> th.Tensor:
    """Action values, by SB3's public names, of a batch of observations."""
    model.policy.set_training_mode(False)
    with th.no_grad():
        return model.q_net(model.policy.obs_to_tensor(observations)[0])


class BatchNormExtractor(BaseFeaturesExtractor):
    """Flat features, normalised by their batch."""

    def __init__(self, observation_space: Any) -> None:
        dim = int(np.prod(observation_space.shape))
        super().__init__(observation_space, dim)
        self.net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(dim))

    def forward(self, observations: th.Tensor) -> th.Tensor:
        return self.net(observations)
