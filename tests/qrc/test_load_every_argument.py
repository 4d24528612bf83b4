"""Every argument given to `load` acts as it does in the constructor, exploration's also where training is resumed."""

from __future__ import annotations

import functools
import warnings

import gymnasium as gym
import pytest
import torch as th
from small_models import assert_same, every_algorithm, make
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.utils import LinearSchedule

from sb3_robust_be.qrc.validation import constructor_arguments
from sb3_robust_be.registry import classes

ALGORITHMS = classes()

pytestmark = pytest.mark.filterwarnings("error::UserWarning")


class NewestBuffer(ReplayBuffer):
    """A user's own: every sample is the newest transition."""

    def sample(self, batch_size, env=None):
        return self._get_samples(batch_size * [self.pos - 1], env)


# What the saved model has, where it is not the default: with these, every change below changes the run.
BEFORE = {
    **{"target_update_interval": 5, "replay_buffer_kwargs": {"handle_timeout_termination": False}},
    **{"projection": "huber", "huber_threshold": 0.05, "limit": None, "exploration_fraction": 0.5, "temperature": 1.0},
    "h_regularization": 1.0,
}
AFTER = {
    **{"learning_rate": 2e-3, "buffer_size": 20, "learning_starts": 17, "batch_size": 5, "tau": 0.5, "gamma": 0.5},
    **{"train_freq": (3, "step"), "gradient_steps": 2, "replay_buffer_class": NewestBuffer, "n_steps": 3},
    **{"replay_buffer_kwargs": None, "optimize_memory_usage": True, "target_update_interval": None},
    **{"exploration_fraction": 0.9, "exploration_initial_eps": 0.1, "exploration_final_eps": 0.6},
    **{"max_grad_norm": 0.01, "stats_window_size": 1, "seed": 3},
    **{"projection": "squared", "huber_threshold": 0.02, "limit": "same_sign", "h_target": "clipped"},
    **{"h_regularization": 0.5, "h_learning_rate_ratio": 2.0, "h_averaging": "action"},
    **{"h_regularization_scale": "features", "correction_weight": 0.5, "td_error_threshold": 0.01},
    **{"h_decoupled_weight_decay": True, "temperature": 0.5, "eta": 0.25, "behaviour": "softmax"},
}
# Each with a test of its own in test_load_changes.py, or an argument of `load` itself.
APART = {"policy", "env", "device", "_init_setup_model", "policy_kwargs", "tensorboard_log", "verbose", "compile"}


# By these algorithms, with an error.
REFUSED = {("sbeed", "n_steps"), ("gq", "td_error_threshold"), ("gq_huber", "td_error_threshold")}


def arguments():
    """Every argument of every algorithm that changes what a run does."""
    for algorithm in ALGORITHMS.values():
        for name in constructor_arguments(algorithm):
            refused = (algorithm.algorithm_name, name) in REFUSED
            if name not in APART and not refused:
                yield pytest.param(algorithm, name, id=f"{algorithm.algorithm_name}-{name}")


def taken_by(algorithm, values):
    return {name: value for name, value in values.items() if name in constructor_arguments(algorithm)}


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
