"""Discrete and MultiDiscrete observations that start at any number, of any number of axes, alone and in a Dict."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from small_envs import SpaceEnv
from small_models import (
    assert_learned,
    assert_same_parameters,
    every_algorithm,
    make,
    parameters,
    q_values,
    reloaded,
)
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_robust_be import QRC, SBEED

pytestmark = pytest.mark.filterwarnings("error::UserWarning")

GRID = np.array([[2, 3, 4], [5, 2, 3]])
GRID_START = np.array([[0, 7, -2], [1, 0, -9]])

# By name: a space, and the same counted from zero on one axis.
SPACES = {
    "from one": (spaces.Discrete(4, start=1), spaces.Discrete(4)),
    "negative": (spaces.Discrete(4, start=-2), spaces.Discrete(4)),
    "below zero": (spaces.Discrete(3, start=-9), spaces.Discrete(3)),
    "small integers": (spaces.Discrete(4, start=-2, dtype=np.int8), spaces.Discrete(4)),
    "multi": (spaces.MultiDiscrete([3, 2], start=[5, -1]), spaces.MultiDiscrete([3, 2])),
    "multi, small": (spaces.MultiDiscrete([3, 2], dtype=np.uint8, start=[5, 1]), spaces.MultiDiscrete([3, 2])),
    "grid": (spaces.MultiDiscrete(GRID), spaces.MultiDiscrete(GRID.ravel())),
    "square": (spaces.MultiDiscrete([[2, 3], [3, 2]]), spaces.MultiDiscrete([2, 3, 3, 2])),
    "grid with starts": (spaces.MultiDiscrete(GRID, start=GRID_START), spaces.MultiDiscrete(GRID.ravel())),
    "up to the last byte": (
        spaces.MultiDiscrete([3, 2], dtype=np.uint8, start=[253, 254]),
        spaces.MultiDiscrete([3, 2]),
    ),
    "three axes": (spaces.MultiDiscrete(GRID[None], start=GRID_START[None]), spaces.MultiDiscrete(GRID.ravel())),
}
every_space = pytest.mark.parametrize("name", SPACES)
both = pytest.mark.parametrize("in_dict", [False, True], ids=["alone", "in a Dict"])


def space_of(name, in_dict):
    space, plain = SPACES[name]
    if not in_dict:
        return copy.deepcopy(space), copy.deepcopy(plain)
    vector = spaces.Box(-1.0, 1.0, (2,), np.float32)
    return tuple(spaces.Dict({"code": copy.deepcopy(part), "vector": vector}) for part in (space, plain))


def counted_from_zero(name, observation):
    """By hand: the observation of the space that stands for it."""
    if isinstance(observation, dict):
        return {**observation, "code": counted_from_zero(name, observation["code"])}
    space, plain = SPACES[name]
    return (np.asarray(observation, np.int64) - space.start).reshape(plain.shape)


class Counted(gym.ObservationWrapper):
    """An environment whose observations are counted from zero by hand."""

    def __init__(self, env, name, plain):
        super().__init__(env)
        self.name, self.observation_space = name, plain

    def observation(self, observation):
        return counted_from_zero(self.name, observation)


def pair(name, in_dict, n_envs=1):
    """Environments that give the same observations, as they are and counted from zero by hand."""
    space, plain = space_of(name, in_dict)
    return (
        make_vec_env(lambda: SpaceEnv(copy.deepcopy(space)), n_envs),
        make_vec_env(lambda: Counted(SpaceEnv(copy.deepcopy(space)), name, plain), n_envs),
    )


def policy_for(in_dict):
    return "MultiInputPolicy" if in_dict else "MlpPolicy"


def learned(name, in_dict, algorithm=QRC, n_envs=1, steps=40, **kwargs):
    return [make(algorithm, env, policy_for(in_dict), **kwargs).learn(steps) for env in pair(name, in_dict, n_envs)]


@both
@every_space
def test_learns_as_if_counted_from_zero(name, in_dict):
    """Bit for bit."""
    assert_same_parameters(*learned(name, in_dict))


@pytest.mark.parametrize("name", ["negative", "grid with starts"])
@every_algorithm
def test_every_algorithm(algorithm, name):
    ours, plain = learned(name, False, algorithm, n_envs=3, train_freq=2)
    assert_same_parameters(ours, plain)
    assert_learned(ours, parameters(make(algorithm, SpaceEnv(space_of(name, False)[0]))))


@pytest.mark.parametrize("behaviour", ["greedy", "softmax"])
def test_sbeed_acts_by_them(behaviour):
    assert_same_parameters(*learned("multi", True, SBEED, behaviour=behaviour, exploration_final_eps=0.0))


@pytest.mark.parametrize("name", ["from one", "multi", "grid with starts"])
def test_with_a_target_network_and_longer_returns(name):
    with pytest.warns(UserWarning, match="target network"):
        assert_same_parameters(*learned(name, False, target_update_interval=5, n_steps=3))
    assert_same_parameters(*learned(name, False, optimize_memory_usage=True, **no_timeouts()))


def no_timeouts():
    return {"replay_buffer_kwargs": {"handle_timeout_termination": False}}


@every_space
def test_each_number_has_a_feature_of_its_own(name):
    space, plain = SPACES[name]
    model = make(QRC, SpaceEnv(space), buffer_size=2)
    extract = model.q_net.extract_features
    first = np.asarray(space.start)
    last = first + (space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n) - 1
    counts = plain.nvec if isinstance(plain, spaces.MultiDiscrete) else np.array([plain.n])
    expected = np.zeros((2, counts.sum()), np.float32)
    expected[0, np.cumsum(counts) - counts] = expected[1, np.cumsum(counts) - 1] = 1
    tensor = model.policy.obs_to_tensor(np.stack([first, last]))[0]
    np.testing.assert_array_equal(extract(tensor, model.q_net.features_extractor).numpy(), expected)


@both
@every_space
def test_predict(name, in_dict):
    """One observation and a batch, as the environment gives them."""
    space, _ = space_of(name, in_dict)
    space.seed(3)
    model, plain = (make(QRC, env, policy_for(in_dict), buffer_size=2) for env in pair(name, in_dict))
    samples = [space.sample() for _ in range(6)]
    batch = {key: np.stack([s[key] for s in samples]) for key in space} if in_dict else np.stack(samples)
    values = q_values(model, batch)
    actions = model.predict(batch, deterministic=True)[0]
    assert actions.shape == (6,)
    assert model.policy.is_vectorized_observation(batch)
    for sample, action, value in zip(samples, actions, values, strict=True):
        found = model.predict(sample, deterministic=True)[0]
        assert (found.shape, found) == ((), action)
        assert not model.policy.is_vectorized_observation(sample)
        th.testing.assert_close(q_values(plain, counted_from_zero(name, sample))[0], value)
    if name in ("from one", "negative") and not in_dict:
        assert model.predict(int(samples[0]), deterministic=True)[0] == actions[0]
        assert model.predict([int(s) for s in samples], deterministic=True)[0].tolist() == actions.tolist()


@both
@every_space
def test_save_load(name, in_dict, tmp_path):
    space, _ = space_of(name, in_dict)
    model = make(QRC, SpaceEnv(space), policy_for(in_dict)).learn(20)
    observation = model.get_env().reset()
    loaded = reloaded(model, tmp_path / "model")
    assert_same_parameters(loaded, model)
    loaded.learn(15)
    bare = QRC.load(tmp_path / "model", env=SpaceEnv(space))
    model.policy.save(tmp_path / "policy")
    policy = type(model.policy).load(tmp_path / "policy", device="cpu")
    for other in (bare, policy, QRC.load(tmp_path / "model")):
        expected = model.predict(observation, deterministic=True)[0]
        np.testing.assert_array_equal(other.predict(observation, deterministic=True)[0], expected)
    model.save_replay_buffer(tmp_path / "buffer")
    bare.load_replay_buffer(tmp_path / "buffer")
    assert bare.replay_buffer.pos == model.replay_buffer.pos
    bare.set_env(make_vec_env(lambda: SpaceEnv(space)))
    bare.learn(15)


@pytest.mark.parametrize("name", ["negative", "small integers", "multi, small", "grid with starts"])
def test_the_replay_buffer_holds_the_environments_numbers(name):
    space, _ = SPACES[name]
    buffer = make(QRC, SpaceEnv(space)).learn(40).replay_buffer
    assert buffer.observations.dtype == space.dtype
    seen = buffer.observations[:40].reshape(40, *space.shape)
    assert all(space.contains(x if space.shape else x[()]) for x in seen)
    first = np.asarray(space.start)
    last = first + (space.nvec if space.shape else space.n) - 1
    np.testing.assert_array_equal(seen.min(axis=0), first)
    np.testing.assert_array_equal(seen.max(axis=0), last)


@both
@every_space
def test_evaluation(name, in_dict):
    """With the environment as it is, which training may have had to wrap."""
    space, _ = space_of(name, in_dict)
    model = make(QRC, SpaceEnv(space), policy_for(in_dict), buffer_size=2)
    for n_envs in (1, 2):
        env = make_vec_env(lambda: SpaceEnv(space), n_envs)
        assert model.predict(env.reset(), deterministic=True)[0].shape == (n_envs,)
        evaluate_policy(model, env, n_eval_episodes=2)


@every_space
def test_numbers_outside_the_space(name):
    space, _ = SPACES[name]
    model = make(QRC, SpaceEnv(space), buffer_size=2)
    first = np.array(space.start, np.int64)
    beyond = first + (space.nvec if space.shape else space.n)
    for observation, number in ((first - 1, (first - 1).flat[0]), (beyond, beyond.flat[0])):
        for given in (observation, np.stack([first, observation])):
            with pytest.raises(ValueError, match=rf"observation has the number {number}, which .*observation_space"):
                model.predict(given, deterministic=True)


def test_other_shapes():
    model = make(QRC, SpaceEnv(SPACES["grid"][0]), buffer_size=2)
    for given in (np.zeros(4, int), np.zeros((2, 5), int), np.zeros((2, 2, 3, 1, 2), int), np.zeros((3, 3, 3), int)):
        with pytest.raises(ValueError, match=r"Unexpected observation shape .* MultiDiscrete"):
            model.predict(given, deterministic=True)


def test_compiling_says_what_it_cannot_do():
    ours, plain = (make(QRC, env, compile=True) for env in pair("negative", False))
    for model in (ours, plain):
        model.set_random_seed(0)
        with pytest.warns(UserWarning, match="compile=True is ignored.*Discrete observations"):
            model.learn(20)
    assert_same_parameters(ours, plain)


def test_hindsight():
    env = BitFlippingEnv(n_bits=3, continuous=False, discrete_obs_space=True)
    model = make(QRC, env, "MultiInputPolicy", replay_buffer_class=HerReplayBuffer, learning_starts=20)
    assert model.learn(60)._n_updates > 0


@pytest.mark.parametrize("name", ["from one", "grid with starts"])
def test_the_top_state_is_learnt(name):
    """One observation, the highest of the space, and one action that is rewarded."""
    space, _ = SPACES[name]

    class Top(SpaceEnv):
        def reset(self, *, seed=None, options=None):
            self.steps = 0
            return self._top(), {}

        def step(self, action):
            return self._top(), float(action), True, False, {}

        def _top(self):
            return np.asarray(space.start + (space.nvec if space.shape else space.n) - 1)

    model = make(QRC, Top(space), learning_rate=1e-2).learn(150)
    values = q_values(model, Top(space).reset()[0])[0]
    th.testing.assert_close(values, th.tensor([0.0, 1.0]), rtol=0, atol=0.1)
