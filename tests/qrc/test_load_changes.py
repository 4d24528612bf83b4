"""Arguments changed when a model is loaded reach everything that was derived from them."""

from __future__ import annotations

import pytest
import torch as th
from small_envs import RewardEnv
from small_models import assert_same, every_algorithm, every_family_algorithm, make, reloaded, those_with
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.common.env_util import make_vec_env

pytestmark = pytest.mark.filterwarnings("error::UserWarning")


@every_algorithm
def test_load_with_other_environments(algorithm, tmp_path):
    model = make(algorithm).learn(20)
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model", env=make_vec_env("CartPole-v1", 3))
    assert (loaded.n_envs, loaded.replay_buffer.n_envs) == (3, 3)
    loaded.learn(30)
    with pytest.raises(ValueError, match="Observation spaces do not match"):
        algorithm.load(tmp_path / "model", env=RewardEnv())


def q_is(model, value):
    """Make every action value this constant."""
    with th.no_grad():
        for parameter in model.q_net.parameters():
            parameter.zero_()
        model.q_net.q_net[-1].bias.fill_(value)


def td_error(model):
    """The median TD error of one update with learning rate 0."""
    model.learning_rate, model.lr_schedule = 0.0, lambda _: 0.0
    model.learn(41)
    return model.logger.name_to_value["train/td_error_q50"]


@pytest.mark.parametrize(("n_steps", "expected"), [(1, 1 + 0.5 * 8 - 8), (2, 1 + 0.5 + 0.25 * 8 - 8)])
@every_family_algorithm
def test_load_with_another_gamma(algorithm, n_steps, expected, tmp_path):
    model = make(algorithm, RewardEnv(), gamma=0.9, n_steps=n_steps, learning_starts=40)
    q_is(model, 8.0)
    loaded = reloaded(model, tmp_path / "model", gamma=0.5)
    assert td_error(loaded) == pytest.approx(expected)
    if n_steps > 1:
        assert isinstance(loaded.replay_buffer, NStepReplayBuffer)
        assert loaded.replay_buffer.gamma == 0.5


@every_family_algorithm
def test_a_loaded_buffer_follows_the_models_gamma_and_n(algorithm, tmp_path):
    model = make(algorithm, RewardEnv(), gamma=0.9, n_steps=2).learn(20)
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = reloaded(model, tmp_path / "model", gamma=0.5, n_steps=4)
    loaded.load_replay_buffer(tmp_path / "buffer")
    assert (loaded.replay_buffer.gamma, loaded.replay_buffer.n_steps) == (0.5, 4)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
@every_family_algorithm
def test_load_with_another_n(algorithm, before, after, tmp_path):
    loaded = reloaded(make(algorithm, n_steps=before), tmp_path / "model", n_steps=after)
    assert isinstance(loaded.replay_buffer, NStepReplayBuffer) == (after > 1)
    assert getattr(loaded.replay_buffer, "n_steps", 1) == after
    loaded.learn(20)


@those_with("h_regularization", "h_learning_rate_ratio")
def test_load_with_another_regularisation_and_ratio(algorithm, tmp_path):
    model = make(algorithm).learn(20)
    loaded = reloaded(model, tmp_path / "model", h_regularization=0.125, h_learning_rate_ratio=4.0)
    assert_same(loaded.policy.optimizer.state_dict()["state"], model.policy.optimizer.state_dict()["state"])
    assert [group["weight_decay"] for group in loaded.policy.optimizer.param_groups] == [0, 0.125]
    loaded.learn(20)
    assert [group["weight_decay"] for group in loaded.policy.optimizer.param_groups] == [0, 0.125]
    assert [group["lr"] for group in loaded.policy.optimizer.param_groups] == [1e-3, 4e-3]
    again = reloaded(loaded, tmp_path / "again", h_learning_rate_ratio=1.0).learn(20)
    assert [group["lr"] for group in again.policy.optimizer.param_groups] == [1e-3, 1e-3]


@pytest.mark.parametrize("rate", [0.25, lambda _: 0.25])
@every_algorithm
def test_load_with_another_learning_rate(algorithm, rate, tmp_path):
    loaded = reloaded(make(algorithm).learn(20), tmp_path / "model", learning_rate=rate).learn(20)
    assert loaded.policy.optimizer.param_groups[0]["lr"] == 0.25


@those_with("huber_threshold")
def test_load_with_another_threshold(algorithm, tmp_path):
    model = make(algorithm, projection="huber", huber_threshold=1.0, learning_rate=0.0)
    with th.no_grad():
        model.q_net.h_net.bias.fill_(2.0)
    for threshold, fraction in ((1.0, 1.0), (4.0, 0.0), (lambda _: 1.5, 1.0)):
        loaded = reloaded(model, tmp_path / "model", huber_threshold=threshold, limit=None).learn(12)
        assert loaded.logger.name_to_value["train/h_clip_fraction"] == fraction


@those_with("huber_threshold")
def test_load_with_bad_arguments(algorithm, tmp_path):
    model = make(algorithm)
    for kwargs in ({"gamma": "0.9"}, {"h_regularization": -1.0}, {"projection": "hubr"}, {"target_update_interval": 0}):
        with pytest.raises((TypeError, ValueError), match=next(iter(kwargs))):
            reloaded(model, tmp_path / "model", **kwargs)
