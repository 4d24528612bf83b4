"""Arguments changed when a model is loaded reach everything that was derived from them."""

from __future__ import annotations

import functools
import inspect
import warnings

import gymnasium as gym
import pytest
import torch as th
from small_envs import RewardEnv
from small_models import assert_same, every_algorithm, every_family_algorithm, make, reloaded, those_with
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import LinearSchedule

from sb3_robust_be.registry import ALGORITHMS

pytestmark = pytest.mark.filterwarnings("error::UserWarning")


class NewestBuffer(ReplayBuffer):
    """A user's own: every sample is the newest transition."""

    def sample(self, batch_size, env=None):
        return self._get_samples(batch_size * [self.pos - 1], env)


# What the saved model has, where it is not the default: with these, every change below changes the run.
BEFORE = {
    **{"target_update_interval": 5, "replay_buffer_kwargs": {"handle_timeout_termination": False}},
    **{"projection": "huber", "huber_threshold": 0.05, "limit": None, "exploration_fraction": 0.5, "temperature": 1.0},
}
AFTER = {
    **{"learning_rate": 2e-3, "buffer_size": 20, "learning_starts": 17, "batch_size": 5, "tau": 0.5, "gamma": 0.5},
    **{"train_freq": (3, "step"), "gradient_steps": 2, "replay_buffer_class": NewestBuffer, "n_steps": 3},
    **{"replay_buffer_kwargs": None, "optimize_memory_usage": True, "target_update_interval": None},
    **{"exploration_fraction": 0.9, "exploration_initial_eps": 0.1, "exploration_final_eps": 0.6},
    **{"max_grad_norm": 0.01, "stats_window_size": 1, "seed": 3},
    **{"projection": "squared", "huber_threshold": 0.02, "limit": "same_sign", "h_target": "clipped"},
    **{"h_regularization": 0.5, "h_learning_rate_ratio": 2.0, "h_averaging": "action"},
    **{"h_decoupled_weight_decay": True, "temperature": 0.5, "eta": 0.25, "behaviour": "softmax"},
}
# Each with a test of its own below, or an argument of `load` itself.
APART = {"policy", "env", "device", "_init_setup_model", "policy_kwargs", "tensorboard_log", "verbose", "compile"}


def arguments():
    """Every argument of every algorithm that changes what a run does."""
    for algorithm in ALGORITHMS.values():
        for name in inspect.signature(algorithm).parameters:
            if name not in APART and (algorithm.algorithm_name, name) != ("sbeed", "n_steps"):
                yield pytest.param(algorithm, name, id=f"{algorithm.algorithm_name}-{name}")


def taken_by(algorithm, values):
    return {name: value for name, value in values.items() if name in inspect.signature(algorithm).parameters}


def run(model):
    """What a run of 30 steps leaves behind."""
    rates = []
    model.learn(30, callback=lambda *_: rates.append(model.exploration_rate) or True)
    buffer = model.replay_buffer
    return {
        "parameters": dict(model.policy.state_dict()),
        "groups": [{k: v for k, v in g.items() if k != "params"} for g in model.policy.optimizer.param_groups],
        "actions": th.as_tensor(buffer.actions),
        "exploration_rates": rates[1:],
        "buffer": (buffer.handle_timeout_termination, buffer.optimize_memory_usage),
        "episodes": (model.ep_info_buffer.maxlen, len(model.ep_info_buffer)),
    }


def is_same(result, other):
    try:
        assert_same(result, other)
    except AssertionError:
        return False
    return True


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """By algorithm, a file after 20 steps and what a run from it leaves behind when nothing is changed."""

    @functools.cache
    def get(algorithm):
        path = tmp_path_factory.mktemp(algorithm.algorithm_name) / "model"
        model = make(algorithm, **taken_by(algorithm, BEFORE)).learn(20)
        with th.no_grad():
            model.q_net.h_net.bias.fill_(-1.0)
        model.save(path)
        return path, run(algorithm.load(path, env=gym.make("CartPole-v1")))

    return get


@pytest.mark.parametrize(("algorithm", "name"), list(arguments()))
def test_load_with_another_argument(algorithm, name, saved):
    """The run is that of a model built with the argument, bit for bit, and another than without it."""
    change = {name: AFTER[name]}
    with warnings.catch_warnings():
        # Of a target network, and of thresholds without effect.
        warnings.simplefilter("ignore")
        path, as_before = saved(algorithm)
        loaded = run(algorithm.load(path, env=gym.make("CartPole-v1"), **change))
        built = make(algorithm, **{**taken_by(algorithm, BEFORE), **change})
        built.set_parameters(str(path))
        assert is_same(loaded, run(built))
    assert not is_same(loaded, as_before), f"{name} changes nothing"


@pytest.mark.parametrize("family", [True, False])
@every_algorithm
def test_load_with_another_exploration(algorithm, family, tmp_path):
    """What SB3's DQN does, when the change is asked for: resuming may explore more than before the interruption."""
    model = make(algorithm if family else DQN).learn(20)
    assert model.exploration_rate == 0.05
    model.save(tmp_path / "model")

    def rates(loaded, steps=20):
        found = []
        loaded.learn(
            steps, reset_num_timesteps=False, callback=lambda *_: found.append(loaded.exploration_rate) or True
        )
        return [*found[1:], loaded.exploration_rate]

    def load(path="model", **kwargs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return algorithm.load(tmp_path / path, env=model.get_env(), **kwargs)

    assert rates(load(exploration_final_eps=0.3)) == [0.3] * 20
    assert rates(load(custom_objects={"exploration_final_eps": 0.3})) == [0.3] * 20
    assert rates(load(exploration_fraction=1.0)) == rates(DQN.load(model_of_dqn(tmp_path), model.get_env()))
    # The same value, said again, is no change.
    assert rates(load(exploration_final_eps=0.05)) == [0.05] * 20
    # The change outlives another file, and acts once: then resuming is resuming again.
    load(exploration_final_eps=0.3).save(tmp_path / "again")
    loaded = load("again")
    assert rates(loaded) == [0.3] * 20
    loaded.save(tmp_path / "later")
    assert rates(load("later")) == [0.3] * 20


def model_of_dqn(path):
    """Of 20 steps, and as many to come with ε falling all the way."""
    DQN("MlpPolicy", "CartPole-v1", learning_starts=10, exploration_fraction=1.0, device="cpu").learn(20).save(
        path / "dqn"
    )
    return path / "dqn"


@every_algorithm
def test_another_schedule_of_exploration(algorithm):
    model = make(algorithm).learn(20)
    model.exploration_schedule = LinearSchedule(0.4, 0.4, 1.0)
    assert model.learn(5, reset_num_timesteps=False).exploration_rate == 0.4
    model.exploration_schedule = lambda _: 0.7
    assert model.learn(5, reset_num_timesteps=False).exploration_rate == 0.7
    model.exploration_rate = 0.2
    assert model.learn(5, reset_num_timesteps=False).exploration_rate == 0.2, "no more than before"


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
    assert reloaded(model, tmp_path / "model", policy_kwargs=None).policy_kwargs == {}


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
