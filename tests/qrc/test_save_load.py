"""What is saved comes back: weights, optimiser, arguments, and a run that goes on as if nothing had happened."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
import torch as th
from small_envs import RewardEnv, SpaceEnv, vector_and_code
from small_models import (
    BatchNormExtractor,
    assert_same_parameters,
    every_algorithm,
    every_family_algorithm,
    generators,
    lines_of,
    make,
    reloaded,
    restore_generators,
    saved_data,
    those_with,
)
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import LogEveryNTimesteps
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.type_aliases import TrainFrequencyUnit
from stable_baselines3.common.vec_env import VecNormalize

from sb3_robust_be.qrc.validation import constructor_arguments

# Any warning is an error here, but for the announcement of a target network.
pytestmark = pytest.mark.filterwarnings("error::UserWarning", "ignore:.*bootstraps from a target network:UserWarning")

OWN_VALUES = {
    **{"learning_rate": 3e-3, "buffer_size": 321, "learning_starts": 11, "batch_size": 9, "tau": 0.5, "gamma": 0.93},
    **{"gradient_steps": 2, "replay_buffer_class": ReplayBuffer, "target_update_interval": 10, "max_grad_norm": 7.0},
    **{"replay_buffer_kwargs": {"handle_timeout_termination": False}, "optimize_memory_usage": True},
    **{"exploration_fraction": 0.3, "exploration_initial_eps": 0.9, "exploration_final_eps": 0.2, "seed": 4},
}
OWN_NEW_VALUES = {
    **{"projection": "smooth_huber", "huber_threshold": 3.0, "limit": "same_sign", "h_target": "clipped"},
    **{"h_regularization": 0.5, "h_learning_rate_ratio": 2.0, "compile": True},
    **{"h_averaging": "action", "h_decoupled_weight_decay": True, "h_regularization_scale": "absolute"},
    **{"correction_weight": 0.5, "td_error_threshold": 2.0},
    **{"temperature": 0.5, "eta": 0.25, "behaviour": "softmax"},
}


def taken_by(algorithm, values):
    taken = {name: value for name, value in values.items() if name in constructor_arguments(algorithm)}
    if not getattr(algorithm, "gradient_correction", True):
        taken["td_error_threshold"] = None  # values that follow h have no loss of their own
    return taken


@every_algorithm
def test_save_load(algorithm, tmp_path):
    model = make(algorithm).learn(40)
    loaded = reloaded(model, tmp_path / "model")
    assert_same_parameters(loaded, model)
    observations = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    models = (model, loaded, algorithm.load(tmp_path / "model"))
    actions = [m.predict(observations, deterministic=True)[0] for m in models]
    np.testing.assert_array_equal(actions[0], actions[1])
    np.testing.assert_array_equal(actions[0], actions[2])
    assert (loaded.num_timesteps, loaded._n_updates, loaded._n_calls) == (40, 30, 40)
    assert loaded.exploration_rate == model.exploration_rate
    assert loaded.q_net is loaded.policy.q_net
    loaded.learn(20)


@every_algorithm
def test_arguments_survive_two_loads(algorithm, tmp_path):
    """A load builds the model anew: what it derives from an argument must not replace the argument."""
    own = OWN_VALUES | taken_by(algorithm, OWN_NEW_VALUES)
    added = {p.name for p in constructor_arguments(algorithm).values() if p.kind is p.KEYWORD_ONLY}
    assert added <= own.keys(), "every new argument needs a value here"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(algorithm, make_vec_env("CartPole-v1", 4), train_freq=(2, "step"), **own)
    loaded = reloaded(reloaded(model, tmp_path / "once"), tmp_path / "twice")
    assert {name: getattr(loaded, name) for name in own} == own
    assert loaded.train_freq == (2, TrainFrequencyUnit.STEP)
    assert loaded.policy_kwargs == {**algorithm.default_policy_kwargs, "net_arch": [16]}
    assert loaded.replay_buffer.buffer_size == 321 // 4


@every_algorithm
def test_defaults_survive_two_loads(algorithm, tmp_path):
    model = algorithm("MlpPolicy", "CartPole-v1", buffer_size=50)
    loaded = reloaded(reloaded(model, tmp_path / "once"), tmp_path / "twice")
    # Not kept, or under another name or type, in SB3's own algorithms.
    renamed = {"policy", "env", "device", "buffer_size", "train_freq", "stats_window_size", "_init_setup_model"}
    for name, parameter in constructor_arguments(algorithm).items():
        if name not in renamed:
            own = {"replay_buffer_kwargs": {}, "policy_kwargs": algorithm.default_policy_kwargs}
            # SB3's schedules, which come out of a file as new objects, show all that they consist of.
            assert repr(getattr(loaded, name)) == repr(own.get(name, parameter.default)), name


VARIANTS = {
    "plain": ("CartPole-v1", "MlpPolicy", {}),
    "target": ("CartPole-v1", "MlpPolicy", {"target_update_interval": 7, "tau": 0.5}),
    "clipped": ("CartPole-v1", "MlpPolicy", {"max_grad_norm": 0.1, "gradient_steps": 2, "train_freq": 5}),
    "vec_env": (lambda: make_vec_env("CartPole-v1", 2), "MlpPolicy", {}),
    "vec_normalize": (lambda: VecNormalize(make_vec_env("CartPole-v1", 2)), "MlpPolicy", {}),
    "dict": (lambda: SpaceEnv(vector_and_code()), "MultiInputPolicy", {}),
    "batch_norm": ("CartPole-v1", "MlpPolicy", {"policy_kwargs": {"features_extractor_class": BatchNormExtractor}}),
    "memory": (
        "CartPole-v1",
        "MlpPolicy",
        {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}},
    ),
}


def assert_continues_bit_for_bit(algorithm, path, variant, **kwargs):
    """60 steps at a stretch against 30, save, load, 30."""
    env, policy, settings = VARIANTS[variant]
    settings = {"exploration_initial_eps": 0.3, "exploration_final_eps": 0.3, **settings, **kwargs}

    def new():
        return make(algorithm, env() if callable(env) else env, policy, **settings)

    whole = new().learn(60)
    half = new().learn(30)
    half.save(path / "model")
    half.save_replay_buffer(path / "buffer")
    states = generators(half)
    loaded = algorithm.load(path / "model", env=half.get_env(), force_reset=False)
    loaded.load_replay_buffer(path / "buffer")
    np.random.seed(99)
    restore_generators(loaded, states)
    loaded.learn(30, reset_num_timesteps=False)
    assert_same_parameters(loaded, whole)
    np.testing.assert_array_equal(loaded.replay_buffer.actions, whole.replay_buffer.actions)
    assert (loaded.num_timesteps, loaded._n_updates, loaded._episode_num) == (60, whole._n_updates, whole._episode_num)


@pytest.mark.parametrize("variant", VARIANTS)
@every_algorithm
def test_continues_bit_for_bit(algorithm, variant, tmp_path):
    assert_continues_bit_for_bit(algorithm, tmp_path, variant)


@every_family_algorithm
def test_continues_bit_for_bit_with_n_steps(algorithm, tmp_path):
    assert_continues_bit_for_bit(algorithm, tmp_path, "plain", n_steps=3)


@every_algorithm
def test_continues_bit_for_bit_with_own_arguments(algorithm, tmp_path):
    own = taken_by(algorithm, OWN_NEW_VALUES) | {"compile": False}
    assert_continues_bit_for_bit(algorithm, tmp_path, "plain", **own)


@those_with("huber_threshold")
def test_schedules_are_saved(algorithm, tmp_path):
    model = make(
        algorithm,
        RewardEnv(),
        projection="huber",
        limit=None,
        learning_rate=lambda remaining: 0.001 * remaining,
        huber_threshold=lambda remaining: 1.0 if remaining > 0.5 else 3.0,
    ).learn(12)
    loaded = reloaded(model, tmp_path / "model")
    assert [loaded.huber_threshold(x) for x in (0.9, 0.1)] == [1.0, 3.0]
    assert loaded.learning_rate(0.5) == 0.0005
    with th.no_grad():
        loaded.q_net.h_net.bias.fill_(2.0)
    lines = lines_of(loaded)
    loaded.learn(40, callback=LogEveryNTimesteps(1))
    fractions = [line["train/h_clip_fraction"] for line in lines if "train/h_clip_fraction" in line]
    assert len(fractions) == 40 - 10 - 1, "one per update, of which the last comes after the last line"
    assert fractions[0] == 1.0, "|h| = 2 is beyond a threshold of 1"
    assert fractions[-1] == 0.0, "and within one of 3"
    assert loaded.policy.optimizer.param_groups[0]["lr"] == pytest.approx(0.0)


@every_algorithm
def test_the_file_holds_each_network_once(algorithm, tmp_path):
    """Aliases, statistics and diagnostics are rebuilt; only state-dicts hold tensors."""
    kwargs = {"policy_kwargs": {"features_extractor_class": BatchNormExtractor}, "target_update_interval": 10}
    model = make(algorithm, max_grad_norm=1.0, **kwargs).learn(20)
    model.save(tmp_path / "model")

    def tensors(value):
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, (list, tuple)):
            return [found for entry in value for found in tensors(entry)]
        return [value] if isinstance(value, (th.Tensor, th.nn.Module, th.optim.Optimizer)) else []

    data = saved_data(tmp_path / "model")
    ours = {name for name, value in data.items() if type(value).__module__.startswith("sb3_robust_be")}
    assert ours == set(), "objects of ours are rebuilt, not pickled"
    assert {name: found for name, value in data.items() if (found := tensors(value))} == {}
    assert data["algorithm"] == algorithm.algorithm_name
    assert not {"q_net", "q_net_target", "batch_norm_stats", "batch_norm_stats_target", "policy", "env"} & data.keys()
    assert set(model.get_parameters()) == {"policy", "policy.optimizer"}


@every_algorithm
def test_save_in_the_middle_of_training(algorithm, tmp_path):
    def save(local, _):
        model.save(tmp_path / f"at_{local['self'].num_timesteps}")
        return True

    model = make(algorithm)
    model.learn(14, callback=save)
    assert algorithm.load(tmp_path / "at_14").num_timesteps == 14


@every_algorithm
def test_load_from_memory_and_paths(algorithm, tmp_path):
    model = make(algorithm).learn(15)
    stream = io.BytesIO()
    model.save(stream)
    stream.seek(0)
    assert_same_parameters(algorithm.load(stream), model)
    assert_same_parameters(algorithm.load(stream), model)
    model.save(str(tmp_path / "named.zip"))
    for path in (str(tmp_path / "named"), str(tmp_path / "named.zip"), tmp_path / "named.zip"):
        assert_same_parameters(algorithm.load(path), model)


@every_algorithm
def test_save_with_exclude_and_custom_objects(algorithm, tmp_path):
    model = make(algorithm)
    model.save(tmp_path / "model", exclude=["learning_rate"], include=["_n_calls"])
    assert "learning_rate" not in saved_data(tmp_path / "model")
    default = constructor_arguments(algorithm)["learning_rate"].default
    assert algorithm.load(tmp_path / "model").learning_rate == default
    model.save(tmp_path / "model")
    assert algorithm.load(tmp_path / "model", custom_objects={"learning_rate": 0.5}).learning_rate == 0.5


@every_algorithm
def test_replay_buffer_save_load(algorithm, tmp_path):
    model = make(algorithm, make_vec_env("CartPole-v1", 2)).learn(30)
    model.save_replay_buffer(tmp_path / "buffer")
    other = make(algorithm, make_vec_env("CartPole-v1", 2))
    other.load_replay_buffer(tmp_path / "buffer")
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        np.testing.assert_array_equal(getattr(other.replay_buffer, name), getattr(model.replay_buffer, name))
    assert other.replay_buffer.pos == 15
    other.learn(20)


@every_algorithm
def test_set_env_and_continue(algorithm):
    model = make(algorithm).learn(20)
    model.set_env(make_vec_env("CartPole-v1", 1))
    model.learn(10, reset_num_timesteps=False)
    assert (model.num_timesteps, model._n_updates) == (30, 20)


@every_algorithm
def test_set_parameters(algorithm, tmp_path):
    model, other = make(algorithm).learn(30), make(algorithm, seed=1)
    other.set_parameters(model.get_parameters())
    assert_same_parameters(other, model)
    other = make(algorithm, seed=1)
    model.save(tmp_path / "model")
    other.set_parameters(str(tmp_path / "model"))
    assert_same_parameters(other, model)
    # In part.
    third = make(algorithm, seed=2).learn(15)
    h = third.q_net.h_net.weight.clone()
    weights = {"policy": {"q_net.q_net.0.weight": model.q_net.q_net[0].weight}}
    third.set_parameters(weights, exact_match=False)
    assert th.equal(third.q_net.q_net[0].weight, model.q_net.q_net[0].weight)
    assert th.equal(third.q_net.h_net.weight, h), "what is not named stays"
    with pytest.raises(ValueError, match="nonsense"):
        third.set_parameters({"nonsense": {}})
