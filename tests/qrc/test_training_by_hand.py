"""`train()` called by the user, on a buffer of the user's, and buffers that offer more than uniform samples."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import pytest
import torch as th
from small_models import assert_learned, every_algorithm, make, parameters
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.logger import configure

pytestmark = pytest.mark.filterwarnings("error::UserWarning")


@every_algorithm
def test_train_before_learn(algorithm, tmp_path):
    """On a saved buffer, with no environment step of its own."""
    filled = make(algorithm).learn(40)
    filled.save_replay_buffer(tmp_path / "buffer")
    filled.save(tmp_path / "model")
    for model in (make(algorithm, seed=1), algorithm.load(tmp_path / "model", env=filled.get_env())):
        model.load_replay_buffer(tmp_path / "buffer")
        before, updates = parameters(model), model._n_updates
        model.train(gradient_steps=5, batch_size=8)
        assert_learned(model, before)
        assert model._n_updates == updates + 5
        assert "train/td_error_abs_mean" in model.logger.name_to_value
        model.learn(20)


@every_algorithm
def test_train_before_learn_with_a_logger(algorithm, tmp_path):
    model = make(algorithm)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    rng = np.random.default_rng(0)
    for _ in range(20):
        state = rng.normal(size=(2, 1, 4))
        model.replay_buffer.add(state[0], state[1], np.array([1]), np.array([0.5]), np.array([False]), [{}])
    model.train(gradient_steps=3)
    model.logger.dump(3)
    assert "train/loss" in (tmp_path / "progress.csv").read_text()


@every_algorithm
def test_train_on_an_empty_buffer(algorithm):
    with pytest.raises(ValueError, match=r"replay buffer is empty.*train\(\).*learn\(\).*load_replay_buffer"):
        make(algorithm).train(gradient_steps=1, batch_size=8)


class WeightedSamples(NamedTuple):
    """As prioritised buffers return them."""

    observations: th.Tensor
    actions: th.Tensor
    next_observations: th.Tensor
    dones: th.Tensor
    rewards: th.Tensor
    discounts: th.Tensor | None = None
    weights: th.Tensor | float = 1.0
    indices: np.ndarray | None = None


class WeightedBuffer(ReplayBuffer):
    """Importance weights and the indices to give priorities to."""

    def sample(self, batch_size, env=None):
        data = super().sample(batch_size, env)
        return WeightedSamples(*data[:5], None, th.rand(batch_size, 1), np.arange(batch_size))

    def update_priorities(self, indices, priorities):
        raise AssertionError("said to be ignored")


class UnweightedBuffer(ReplayBuffer):
    """The same samples, of weight 1."""

    def sample(self, batch_size, env=None):
        return WeightedSamples(*super().sample(batch_size, env)[:5])


@every_algorithm
def test_weights_and_priorities_are_said_to_be_ignored(algorithm):
    text = r"WeightedBuffer offers weights, indices, update_priorities\(\), which the update ignores.*ReplayBuffer"
    model = make(algorithm, replay_buffer_class=WeightedBuffer)
    with pytest.warns(UserWarning, match=text) as caught:
        model.learn(20)
    assert len(caught) == 1, "once"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn(10, reset_num_timesteps=False)
        assert make(algorithm, replay_buffer_class=UnweightedBuffer).learn(20)._n_updates == 10


@every_algorithm
def test_weights_of_a_loaded_buffer(algorithm, tmp_path):
    with pytest.warns(UserWarning, match="WeightedBuffer"):
        weighted = make(algorithm, replay_buffer_class=WeightedBuffer).learn(20)
    weighted.save_replay_buffer(tmp_path / "buffer")
    model = make(algorithm).learn(20)
    model.load_replay_buffer(tmp_path / "buffer")
    with pytest.warns(UserWarning, match="WeightedBuffer"):
        model.train(1, 8)
    model.save(tmp_path / "model")
