"""Every algorithm runs wherever SB3's DQN runs: policies, spaces, vectors of environments, seeds."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from small_envs import MatchEnv, SpaceEnv, images, vector_and_code
from small_models import (
    assert_learned,
    assert_same_parameters,
    every_algorithm,
    make,
    parameters,
    q_values,
)
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import FakeImageEnv, IdentityEnv, SimpleMultiObsEnv

import sb3_robust_be
from sb3_robust_be.envs import MINATAR_GAMES
from sb3_robust_be.qrc import RobustQLearning
from sb3_robust_be.qrc.qrc import FALLING
from sb3_robust_be.qrc.validation import constructor_arguments
from sb3_robust_be.registry import classes

ALGORITHMS = classes()

pytestmark = pytest.mark.filterwarnings("error::UserWarning", "ignore:.*bootstraps from a target network:UserWarning")


@every_algorithm
def test_run(algorithm):
    model = make(algorithm)
    before = parameters(model)
    assert model.learn(40) is model
    assert_learned(model, before)
    assert (model.num_timesteps, model._n_updates) == (40, 30)
    action, state = model.predict(model.env.reset(), deterministic=True)
    assert model.action_space.contains(action[0])
    assert state is None


@every_algorithm
def test_is_a_dqn_to_every_tool_that_asks(algorithm):
    assert issubclass(algorithm, DQN)
    assert getattr(sb3_robust_be, algorithm.__name__) is algorithm


@every_algorithm
def test_arguments_are_dqns_in_dqns_order(algorithm):
    dqns = list(inspect.signature(DQN).parameters.values())
    ours = list(constructor_arguments(algorithm).values())
    assert [p.name for p in ours[: len(dqns)]] == [p.name for p in dqns]
    differing = {p.name for p, q in zip(ours, dqns, strict=False) if p.default != q.default}
    # SBEED's learning rate has not been looked at.
    rate = set() if algorithm is sb3_robust_be.SBEED else {"learning_rate"}
    assert differing == {"target_update_interval", "max_grad_norm"} | rate
    for added in ours[len(dqns) :]:
        assert added.kind is inspect.Parameter.KEYWORD_ONLY
        assert added.default is not inspect.Parameter.empty


@pytest.mark.parametrize(
    ("algorithm", "own"),
    [
        (sb3_robust_be.QRC, {}),
        (sb3_robust_be.QRCHuber, {"projection": "huber", "huber_threshold": 1.0}),
        (sb3_robust_be.QLC, {"projection": "huber", "limit": "one_sided", "learning_rate": FALLING}),
        (sb3_robust_be.GQ, {"h_regularization": 0.0}),
        (sb3_robust_be.GQHuber, {"projection": "huber", "huber_threshold": 1.0, "h_regularization": 0.0}),
    ],
)
def test_what_the_algorithms_differ_in(algorithm, own):
    defaults = {name: p.default for name, p in inspect.signature(RobustQLearning).parameters.items()}
    assert {n: p.default for n, p in constructor_arguments(algorithm).items()} == {**defaults, **own}
    model = algorithm("MlpPolicy", "CartPole-v1", buffer_size=20)
    assert {name: getattr(model, name) for name in own} == own
    assert model.policy.layer_norm == (algorithm is sb3_robust_be.QLC)
    given = {"projection": "absolute", "huber_threshold": None, "limit": "same_sign", "h_regularization": 0.25}
    model = make(algorithm, **given)
    assert {name: getattr(model, name) for name in given} == given


class HandsOn(sb3_robust_be.QRCHuber):
    """As a user may write it."""

    def __init__(self, *args, huber_threshold=2.0, note="", **kwargs):
        self.note = note
        super().__init__(*args, huber_threshold=huber_threshold, **kwargs)


class TakesTwo(sb3_robust_be.QRCHuber):
    def __init__(self, policy, env, _init_setup_model=True):
        super().__init__(policy, env, _init_setup_model=_init_setup_model)


def test_arguments_of_a_subclass(tmp_path):
    arguments = constructor_arguments(HandsOn)
    assert (arguments["huber_threshold"].default, arguments["projection"].default) == (2.0, "huber")
    assert set(arguments) == {*constructor_arguments(sb3_robust_be.QRCHuber), "note"}
    assert set(constructor_arguments(TakesTwo)) == {"policy", "env", "_init_setup_model"}
    make(HandsOn).save(tmp_path / "model")
    # An argument of DQN's constructor that is no attribute, and so is known from the constructors alone.
    assert HandsOn.load(tmp_path / "model", stats_window_size=7, note="again")._stats_window_size == 7


@every_algorithm
def test_positional_arguments_of_dqn(algorithm):
    model = algorithm("MlpPolicy", "CartPole-v1", 2e-3, 300, 20, 16, 1.0, 0.9, 2, 3, None, None, False, 1, None, 0.5)
    assert (model.learning_rate, model.buffer_size, model.learning_starts, model.batch_size) == (2e-3, 300, 20, 16)
    assert (model.gamma, model.gradient_steps, model.exploration_fraction) == (0.9, 3, 0.5)
    model.learn(26)
    assert model._n_updates == 3 * 3


@every_algorithm
def test_deterministic(algorithm):
    first, second = (make(algorithm, exploration_fraction=0.5).learn(40) for _ in range(2))
    assert_same_parameters(first, second)
    other = make(algorithm, seed=1).learn(40)
    assert not th.equal(other.q_net.q_net[0].weight, first.q_net.q_net[0].weight)


@every_algorithm
def test_deterministic_vec_env(algorithm):
    def run():
        return make(algorithm, make_vec_env("CartPole-v1", 3, seed=5), target_update_interval=6).learn(45)

    assert_same_parameters(run(), run())


@every_algorithm
def test_predict_is_deterministic(algorithm):
    model = make(algorithm).learn(30)
    observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    actions, _ = model.predict(observations, deterministic=True)
    np.testing.assert_array_equal(actions, q_values(model, observations).argmax(dim=1).numpy())
    single, _ = model.predict(observations[3], deterministic=True)
    assert single == actions[3]


# A table learned without bootstrapping from a hundred random steps: enough for every algorithm, saddlepoints included.
TABLE = {
    **{"learning_rate": 1e-2, "gamma": 0.0, "batch_size": 64, "policy_kwargs": {"net_arch": []}},
    **{"learning_starts": 99, "train_freq": 100, "gradient_steps": 60},
}


@pytest.mark.parametrize("start", [1, -4])
@every_algorithm
def test_actions_that_do_not_start_at_zero(algorithm, start, tmp_path):
    model = make(algorithm, MatchEnv(start), **TABLE).learn(100)
    observations, best = np.eye(3, dtype=np.float32), np.arange(3) + start
    np.testing.assert_array_equal(model.predict(observations, deterministic=True)[0], best)
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model", env=MatchEnv(start))
    np.testing.assert_array_equal(loaded.predict(observations, deterministic=True)[0], best)
    assert int(loaded.predict(observations[1], deterministic=True)[0]) == best[1]
    # Acting by its values and at random alike: the environment refuses actions outside its space.
    loaded.learning_starts = 0
    loaded.learn(20)
    assert set(np.unique(loaded.replay_buffer.actions[:20])) <= set(best)
    assert set(np.unique(model.replay_buffer.actions[:100])) == set(best)


OBSERVATION_SPACES = {
    "discrete": spaces.Discrete(4),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(3),
    "matrix": spaces.Box(-1.0, 1.0, (2, 3), np.float32),
    "float64": spaces.Box(-1.0, 1.0, (3,), np.float64),
}


@pytest.mark.parametrize("space", OBSERVATION_SPACES.values(), ids=OBSERVATION_SPACES)
@every_algorithm
def test_observation_spaces(algorithm, space):
    model = make(algorithm, SpaceEnv(space))
    before = parameters(model)
    assert_learned(model.learn(30), before)


@every_algorithm
def test_identity(algorithm):
    model = make(algorithm, IdentityEnv(2), **TABLE).learn(100)
    np.testing.assert_array_equal(model.predict(np.array([0, 1]), deterministic=True)[0], [0, 1])


@pytest.mark.parametrize("channels_first", [False, True])
@every_algorithm
def test_cnn(algorithm, channels_first):
    env = FakeImageEnv(3, 36, 40, n_channels=2, channel_first=channels_first)
    model = make(algorithm, env, "CnnPolicy", buffer_size=100)
    before = parameters(model)
    assert_learned(model.learn(16), before)
    action, _ = model.predict(env.observation_space.sample(), deterministic=True)
    assert model.action_space.contains(int(action))


SMALL_IMAGES = {
    "bool_channels_last": images(10, 10, 4, bool),
    "bool_channels_first": images(10, 10, 4, bool, channels_last=False),
    "bool_cube": images(10, 10, 10, bool),
    "uint8_channels_last": images(10, 10, 4),
    "uint8_channels_first": images(10, 10, 4, channels_last=False),
    "float": spaces.Box(0.0, 1.0, (10, 10, 4), np.float32),
}


@pytest.mark.parametrize("space", SMALL_IMAGES.values(), ids=SMALL_IMAGES)
@every_algorithm
def test_cnn_on_small_images(algorithm, space):
    model = make(algorithm, SpaceEnv(space), "CnnPolicy")
    before = parameters(model)
    assert_learned(model.learn(20), before)
    assert model.predict(space.sample(), deterministic=True)[0].shape == ()


@every_algorithm
def test_minatar(algorithm):
    game = sorted(MINATAR_GAMES)[list(ALGORITHMS.values()).index(algorithm) % len(MINATAR_GAMES)]
    model = make(algorithm, f"MinAtar/{game}-v1", "CnnPolicy")
    before = parameters(model)
    assert_learned(model.learn(30), before)
    assert model.replay_buffer.observations.dtype == bool


@every_algorithm
def test_dict_env(algorithm):
    model = make(algorithm, SimpleMultiObsEnv(), "MultiInputPolicy", buffer_size=50)
    before = parameters(model)
    assert_learned(model.learn(16), before)


@pytest.mark.parametrize("n_envs", [1, 3])
@every_algorithm
def test_dict_env_without_images(algorithm, n_envs):
    env = make_vec_env(lambda: SpaceEnv(vector_and_code()), n_envs)
    model = make(algorithm, env, "MultiInputPolicy")
    before = parameters(model)
    assert_learned(model.learn(30), before)


@every_algorithm
def test_vec_env(algorithm):
    model = make(algorithm, make_vec_env("CartPole-v1", 4), train_freq=2)
    before = parameters(model)
    assert_learned(model.learn(48), before)
    # One update every 2 steps of 4 environments, from the rollout that reaches step 16 on.
    assert (model.num_timesteps, model._n_updates) == (48, 5)
    assert model.predict(model.env.reset())[0].shape == (4,)
