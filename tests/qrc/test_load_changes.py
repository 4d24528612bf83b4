"""Arguments changed when a model is loaded reach everything that was derived from them."""

from __future__ import annotations

import pytest
import torch as th
from small_envs import RewardEnv
from small_models import assert_same, every_algorithm, every_family_algorithm, make, reloaded, those_with
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.common.env_util import make_vec_env

from sb3_robust_be import QLC

pytestmark = pytest.mark.filterwarnings("error::UserWarning")


@every_algorithm
def test_load_with_another_log(algorithm, tmp_path, capsys):
    model = make(algorithm).learn(20)
    model.save(tmp_path / "model")
    capsys.readouterr()
    loaded = algorithm.load(tmp_path / "model", model.get_env(), verbose=1, tensorboard_log=str(tmp_path / "board"))
    loaded.learn(20)
    assert "Logging to" in capsys.readouterr().out
    assert list((tmp_path / "board").rglob("events.out.tfevents.*"))


@every_algorithm
def test_load_with_another_window(algorithm, tmp_path):
    """Also where the episodes collected so far are kept."""
    model = make(algorithm).learn(80)
    assert len(model.ep_info_buffer) > 2
    loaded = reloaded(model, tmp_path / "model", stats_window_size=2)
    assert list(loaded.ep_info_buffer) == list(model.ep_info_buffer)[-2:]
    loaded.learn(80, reset_num_timesteps=False)
    assert len(loaded.ep_info_buffer) == 2
    with pytest.raises(TypeError, match=r"stats_window_size must be a number and is the string '7'"):
        reloaded(model, tmp_path / "model", stats_window_size="7")


@every_algorithm
def test_load_with_compile(algorithm, tmp_path):
    """Other than the switch nothing changes, so that what is asked for is whether anything was compiled."""
    loaded = reloaded(make(algorithm), tmp_path / "model", compile=True)
    assert loaded._compiled is not None
    assert reloaded(loaded, tmp_path / "again", compile=False)._compiled is None


@every_algorithm
def test_load_with_other_policy_kwargs(algorithm, tmp_path):
    """SB3's own words; the same ones, and none, are fine."""
    model = make(algorithm)
    with pytest.raises(ValueError, match=r"policy kwargs do not equal the stored policy kwargs.*\[16\].*\[8\]"):
        reloaded(model, tmp_path / "model", policy_kwargs={"net_arch": [8]})
    reloaded(model, tmp_path / "model", policy_kwargs={"net_arch": [16]}).learn(20)
    model = algorithm("MlpPolicy", "CartPole-v1", buffer_size=100, device="cpu")
    assert reloaded(model, tmp_path / "model", policy_kwargs=None).policy_kwargs == algorithm.default_policy_kwargs


def test_a_qlc_of_0_1_loads_as_it_was(tmp_path):
    """Without a word, for it goes on as before; its file does not say ``layer_norm``."""
    model = QLC(
        *("MlpPolicy", "CartPole-v1", 1e-4), limit="magnitude", policy_kwargs={"layer_norm": False}, buffer_size=100
    )
    model.policy_kwargs = {}
    for given in ({}, {"policy_kwargs": None}, {"policy_kwargs": {}}):
        loaded = reloaded(model, tmp_path / "model", **given)
        assert (loaded.limit, loaded.learning_rate, loaded.policy.layer_norm) == ("magnitude", 1e-4, False)
        assert_same(dict(loaded.policy.state_dict()), dict(model.policy.state_dict()))
    with pytest.raises(ValueError, match=r"layer_norm=True, and .*model was saved with layer_norm=False"):
        reloaded(model, tmp_path / "model", policy_kwargs={"layer_norm": True})


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("policy", "CnnPolicy", r"custom_objects=\{'policy_class'"),
        ("_init_setup_model", False, "always builds"),
        ("lr_schedule", lambda _: 0.5, "learning_rate"),
        ("exploration_schedule", lambda _: 0.5, "exploration_final_eps"),
    ],
)
@every_algorithm
def test_what_load_cannot_change(algorithm, name, value, remedy, tmp_path):
    with pytest.raises(TypeError, match=rf"cannot change {name}: .*{remedy}"):
        reloaded(make(algorithm), tmp_path / "model", **{name: value})


@every_algorithm
def test_load_with_an_unknown_argument(algorithm, tmp_path):
    with pytest.raises(TypeError, match=rf"unknown argument 'exploration_final_epsilon'.*{algorithm.__name__}"):
        reloaded(make(algorithm), tmp_path / "model", exploration_final_epsilon=0.3)
    # Attributes are SB3's way to change anything else.
    assert reloaded(make(algorithm), tmp_path / "model", num_timesteps=7).num_timesteps == 7


@every_algorithm
def test_load_with_tau_and_no_target_network(algorithm, tmp_path):
    model = make(algorithm)
    with pytest.warns(UserWarning, match=r"tau=0\.5 is ignored.*target_update_interval") as caught:
        reloaded(model, tmp_path / "model", tau=0.5)
    assert len(caught) == 1
    assert reloaded(model, tmp_path / "model", tau=0.5, target_update_interval=10).q_net_target is not model.q_net


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
