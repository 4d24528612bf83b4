"""SB3's DQN with another loss, or without a target network: what it computes, and loading with changed arguments."""

from __future__ import annotations

import io
import math

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from small_models import BatchNormExtractor, assert_same_parameters, make, parameters, saved_data
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

from sb3_robust_be import LayerNormExtractor, SquaredDQN
from sb3_robust_be.population.baseline import BaselineDQN

pytestmark = pytest.mark.filterwarnings("error::UserWarning")

ENV = "CartPole-v1"
NETWORK = {"net_arch": [16], "layer_norm": True}


def load(model, path, **kwargs):
    model.save(path)
    return type(model).load(path, env=gym.make(ENV), **kwargs)


def same_target(model):
    """Whether the target network holds what the network does."""
    pairs = zip(model.q_net.state_dict().values(), model.q_net_target.state_dict().values(), strict=True)
    return all(th.equal(own, target) for own, target in pairs)


# Arguments


@pytest.mark.parametrize("cls", [SquaredDQN, BaselineDQN])
def test_positional_arguments_are_dqns(cls):
    given = ("MlpPolicy", ENV, 2e-3, 77, 5, 16, 0.5, 0.9, 2, 3, None, None, False, 1, 40, 0.2, 0.9, 0.1, 7.0)
    own, sb3s = cls(*given), DQN(*given)
    names = ("learning_rate", "buffer_size", "learning_starts", "batch_size", "tau", "gamma", "train_freq")
    names += ("gradient_steps", "target_update_interval", "exploration_fraction", "max_grad_norm")
    assert [getattr(own, name) for name in names] == [getattr(sb3s, name) for name in names]
    assert own.huber_threshold == (None if cls is SquaredDQN else 1.0)
    assert SquaredDQN("MlpPolicy", ENV, 1e-3, huber_threshold=2.0).huber_threshold == 2.0


@pytest.mark.parametrize(("given", "kept"), [(None, None), (0, None), (5, 5)])
def test_the_interval_is_kept(given, kept, tmp_path):
    model = make(SquaredDQN, target_update_interval=given)
    assert (model.target_update_interval, model.has_target) == (kept, kept is not None)
    model.save(tmp_path / "model")
    assert saved_data(tmp_path / "model")["target_update_interval"] == kept


BAD = [
    ("huber_threshold", 0, ValueError, "must be positive and is 0"),
    ("huber_threshold", -1.0, ValueError, "must not be negative"),
    ("huber_threshold", "1", TypeError, "must be a number"),
    ("target_update_interval", -3, ValueError, "must be at least 0"),
    ("target_update_interval", 2.5, TypeError, "must be an integer"),
    ("max_grad_norm", -1.0, ValueError, "must not be negative"),
]


@pytest.mark.parametrize(("name", "value", "error", "text"), BAD)
def test_bad_values_in_the_constructor_and_in_load(name, value, error, text, tmp_path):
    with pytest.raises(error, match=f"^{name} {text}"):
        make(SquaredDQN, **{name: value})
    with pytest.raises(error, match=f"^{name} {text}"):
        load(make(SquaredDQN), tmp_path / "model", **{name: value})


def test_load_refuses_what_it_does_not_know(tmp_path):
    with pytest.raises(TypeError, match="unknown argument 'huber_treshold'"):
        load(make(SquaredDQN), tmp_path / "model", huber_treshold=1.0)


def test_numbers_changed_by_load_act(tmp_path):
    loaded = load(make(SquaredDQN), tmp_path / "model", huber_threshold=0.5, max_grad_norm=None, stats_window_size=3)
    assert (loaded.huber_threshold, loaded.max_grad_norm) == (0.5, math.inf)
    loaded.learn(20)
    assert loaded.ep_info_buffer.maxlen == 3
    assert loaded.update_settings() == {"threshold": 0.5}


# With and without a target network


def test_a_target_network_that_only_load_asks_for_is_used(tmp_path):
    model = make(SquaredDQN, target_update_interval=None).learn(40)
    assert not model.has_target
    loaded = load(model, tmp_path / "model", target_update_interval=64)
    assert (loaded.target_update_interval, loaded.has_target) == (64, True)
    assert_same_parameters(loaded, model)
    assert same_target(loaded), "not what the network was at first"
    saved = parameters(loaded)
    loaded.learn(20, reset_num_timesteps=False)
    assert all(
        th.equal(value, saved[name]) for name, value in parameters(loaded).items() if name.startswith("q_net_target")
    )
    assert not same_target(loaded)
    data = loaded.replay_buffer.sample(8)
    with th.no_grad():
        next_value = loaded.q_net_target(data.next_observations).max(1, True).values
        q = loaded.q_net(data.observations).gather(1, data.actions)
    td_error = data.rewards + loaded.gamma * (1 - data.dones) * next_value - q
    th.testing.assert_close(loaded.batch_loss(data, loaded.update_settings()).td_error, td_error)
    loaded.learn(64, reset_num_timesteps=False)
    assert not th.equal(parameters(loaded)["q_net_target.q_net.0.weight"], saved["q_net_target.q_net.0.weight"])


@pytest.mark.parametrize("interval", [None, 0])
def test_a_target_network_that_load_takes_away(interval, tmp_path):
    loaded = load(make(SquaredDQN, target_update_interval=10).learn(25), tmp_path / "model")
    assert loaded.has_target
    loaded = load(loaded, tmp_path / "model", target_update_interval=interval)
    assert (loaded.target_update_interval, loaded.has_target) == (None, False)
    loaded.learn(30)
    assert loaded._n_updates > 25
    assert same_target(loaded), "kept for files"


@pytest.mark.parametrize("interval", [None, 1000])
def test_several_environments(interval):
    model = make(SquaredDQN, make_vec_env(ENV, 3), target_update_interval=interval).learn(60)
    assert model._n_updates > 0
    assert model.exploration_rate == pytest.approx(0.05)


def after(cls, gradient_steps=1, **kwargs):
    return list(make(cls, gradient_steps=gradient_steps, **kwargs).learn(60).q_net.state_dict().values())


@pytest.mark.parametrize("policy_kwargs", [{}, {"features_extractor_class": BatchNormExtractor}])
def test_without_one_it_is_sb3s_that_copies_before_every_update(policy_kwargs):
    """One update per step; with batch normalisation too, whose statistics see each batch once, in one mode."""
    own = after(BaselineDQN, target_update_interval=None, policy_kwargs=policy_kwargs)
    sb3s = after(DQN, target_update_interval=1, policy_kwargs=policy_kwargs)
    for value, other in zip(own, sb3s, strict=True):
        th.testing.assert_close(value, other, rtol=1e-4, atol=1e-6)


def test_statistics_of_batch_normalisation_move_once_per_update():
    model = make(
        SquaredDQN, target_update_interval=None, policy_kwargs={"features_extractor_class": BatchNormExtractor}
    )
    model.learn(30)
    norm = model.q_net.features_extractor.net[1]
    assert norm.num_batches_tracked == model._n_updates > 0
    data = model.replay_buffer.sample(8)
    for mode in (True, False):
        model.policy.set_training_mode(mode)
        model.batch_loss(data, model.update_settings())
        assert model.q_net.training == norm.training == mode
    assert norm.num_batches_tracked == model._n_updates + 1


class _Fixed:
    """A replay buffer that gives these batches in turn."""

    def __init__(self, batches):
        self.batches = iter(batches)

    def sample(self, batch_size, env=None):
        return next(self.batches)


@pytest.mark.parametrize("threshold", [1.0, 0.5, None])
def test_no_target_network_means_the_same_for_every_threshold(threshold):
    """Several updates in one call: each bootstraps from what the last one has left, by torch's losses."""
    settings = {"target_update_interval": None, "huber_threshold": threshold, "max_grad_norm": None}
    model = make(BaselineDQN, learning_rate=1e-2, **settings).learn(40)
    batches = [model.replay_buffer.sample(8) for _ in range(3)]
    twin = make(BaselineDQN, learning_rate=1e-2, **settings)
    for part in ("q_net", "q_net_target"):
        getattr(twin, part).load_state_dict(model.q_net.state_dict())
    twin._setup_learn(1)
    twin.replay_buffer = _Fixed(batches)
    twin.train(3, 8)
    network, optimizer = model.q_net, th.optim.Adam(model.q_net.parameters(), lr=1e-2)
    for data in batches:
        with th.no_grad():
            next_value = network(data.next_observations).max(1, True).values
        target = data.rewards + 0.99 * (1 - data.dones) * next_value
        q = network(data.observations).gather(1, data.actions)
        huber = th.nn.functional.huber_loss
        loss = 0.5 * ((target - q) ** 2).mean() if threshold is None else huber(q, target, delta=threshold)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for own, expected in zip(twin.q_net.parameters(), network.parameters(), strict=True):
        th.testing.assert_close(own, expected, rtol=1e-4, atol=1e-6)


def test_several_updates_per_step_tell_it_from_a_copy_per_step():
    own = after(BaselineDQN, 4, target_update_interval=None)
    copied = after(BaselineDQN, 4, target_update_interval=1)
    assert all(map(th.equal, copied, after(DQN, 4, target_update_interval=1)))
    assert any(not th.allclose(a, b, rtol=1e-3) for a, b in zip(own, copied, strict=True))


# Layer normalisation


def test_load_takes_the_original_policy_kwargs(tmp_path):
    model = make(SquaredDQN, policy_kwargs=NETWORK).learn(20)
    assert isinstance(model.q_net.features_extractor, LayerNormExtractor)
    loaded = load(model, tmp_path / "model", policy_kwargs=NETWORK)
    assert_same_parameters(loaded, model)
    loaded.learn(15)
    plain = make(SquaredDQN, policy_kwargs={"layer_norm": False})
    assert_same_parameters(load(plain, tmp_path / "model", policy_kwargs={**NETWORK, "layer_norm": False}), plain)
    for other in ({"net_arch": [8], "layer_norm": True}, {"net_arch": [16]}, {}):
        with pytest.raises(ValueError, match="do not equal the stored policy kwargs"):
            load(model, tmp_path / "model", policy_kwargs=other)


def test_policy_kwargs_in_place_of_those_in_the_file(tmp_path):
    model = make(SquaredDQN, policy_kwargs=NETWORK)
    loaded = load(model, tmp_path / "model", custom_objects={"policy_kwargs": NETWORK})
    assert_same_parameters(loaded, model)


def test_files_of_sb3s_dqn_and_streams(tmp_path):
    dqn = make(DQN, target_update_interval=20).learn(30)
    dqn.save(tmp_path / "dqn")
    loaded = SquaredDQN.load(tmp_path / "dqn", env=gym.make(ENV))
    assert (loaded.huber_threshold, loaded.target_update_interval) == (None, 20)
    assert_same_parameters(loaded, dqn)
    loaded.learn(20)
    stream = io.BytesIO()
    loaded.save(stream)
    stream.seek(0)
    again = SquaredDQN.load(stream, target_update_interval=None)
    assert_same_parameters(again, loaded)
    observation = np.zeros(4, np.float32)
    assert again.predict(observation, deterministic=True)[0] == loaded.predict(observation, deterministic=True)[0]
