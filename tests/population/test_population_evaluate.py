"""Greedy evaluations: what SB3 measures of each member, and nothing of training is changed by them."""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
from faulty_envs import FaultyEnv, Losing
from populations import assert_same_member, every_algorithm, make, member_state
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from sb3_robust_be.envs.lockstep import episode_seed


class SeededResets(gym.Wrapper):
    """Resets as a member's environment in lock-step: each episode with a seed of its own."""

    def __init__(self, env: gym.Env, seed: int) -> None:
        super().__init__(env)
        self.member_seed, self.episode = seed, -1

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        return self.env.reset(seed=episode_seed(self.member_seed, self.episode), options=options)


class SeededRewards(gym.Env):
    """Three steps, of which each is rewarded with what the reset's seed says; the observation tells nothing."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2, start=3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.t = seed, 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.t += 1
        return np.zeros(2, np.float32), float(self.seed % 1000), self.t == 3, False, {}


def sb3s(population, i, env, n_episodes, seed):
    """SB3's returns of one member in the same episodes."""
    own = Monitor(SeededResets(env, episode_seed(population.members[i].seed, seed)))
    return evaluate_policy(population[i], own, n_eval_episodes=n_episodes, return_episode_rewards=True)[0]


@every_algorithm
def test_returns_are_those_of_sb3s_evaluate_policy(algorithm, trained):
    population, _ = trained(algorithm)
    found = population.evaluate(4, seed=7)
    assert found.shape == (len(population), 4)
    for i in range(0, len(population), 5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert found[i].tolist() == sb3s(population, i, gym.make("CartPole-v1"), 4, 7)


@pytest.mark.parametrize("env", ["MountainCar-v0", "Acrobot-v1"])
def test_time_limits_end_episodes(env):
    population = make("qlc", [3], env).learn(40)
    found = population.evaluate(2, seed=1)
    assert found.tolist() == [sb3s(population, 0, gym.make(env), 2, 1)]
    assert -500 <= found.min() <= found.max() < 0


def test_episodes_are_those_of_the_seeds():
    """By hand: three times what the seed of each episode says."""
    population = make("qrc", [0, 5], SeededRewards)
    found = population.evaluate(3, seed=2)
    expected = [[3.0 * (episode_seed(episode_seed(s, 2), k) % 1000) for k in range(3)] for s in (0, 5)]
    assert found.tolist() == expected
    assert population.evaluate(3, seed=2).tolist() == expected, "the same again"
    assert not np.isin(population.evaluate(3, seed=3), expected).any()
    assert make("qrc", [5, 0, 9], SeededRewards).evaluate(2, seed=2)[:2].tolist() == [row[:2] for row in expected[::-1]]


@pytest.mark.filterwarnings("ignore:.*bootstraps from a target network:UserWarning")
@pytest.mark.parametrize("algorithm", ["dqn", "qrc_huber"])
def test_training_is_the_same_with_and_without(algorithm):
    """Bit for bit, also before the first step and between two calls of learn."""
    arguments = {"learning_rate": [1e-3, 1e-2], "target_update_interval": [None, 7]}
    plain = make(algorithm, [0, 1], **arguments).learn(50)
    plain.learn(10, reset_num_timesteps=False)
    population, found = make(algorithm, [0, 1], **arguments), []
    population.evaluate(1)
    population.learn(50, callback=lambda p: found.append(p.evaluate(2)) if p.num_timesteps % 7 == 0 else None)
    population.evaluate(1)
    population.learn(10, reset_num_timesteps=False)
    assert len(found) == 7
    assert len({x.tobytes() for x in found}) > 1, "the members learn"
    for i in range(len(plain)):
        assert_same_member(member_state(population, i), member_state(plain, i))


@pytest.mark.filterwarnings("ignore:.*have failed:UserWarning")
def test_members_that_failed_in_training_have_no_returns():
    population = make("qrc", [0, 1], learning_rate=[1e-3, 1e30]).learn(60)
    assert population.failed.tolist() == [False, False, True, True]
    found = population.evaluate(2)
    assert np.isfinite(found).all(axis=1).tolist() == [True, True, False, False]
    assert np.isnan(found[2:]).all()


def test_an_environment_that_fails_ends_its_members_evaluation():
    population = make("qrc", range(3), FaultyEnv, "MultiInputPolicy", env_kwargs={"fault": None})
    healthy = population.evaluate(3)
    population.env_kwargs["fault"] = "exception"
    # The seed that goes wrong is that of the second member's second episode, after two steps.
    bad = episode_seed(episode_seed(1, 0), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("faulty_envs.episode_seed", lambda seed, episode: bad)
        population.env_kwargs |= {"step": 2}
        with pytest.warns(UserWarning, match=r"1 of 3 members could not be evaluated.*Member 1: .*lost") as caught:
            found = population.evaluate(3)
    assert caught[0].filename == __file__
    assert found[[0, 2]].tolist() == healthy[[0, 2]].tolist()
    assert found[1, 0] == healthy[1, 0]
    assert np.isnan(found[1, 1:]).all()
    assert not population.failed.any(), "it has not failed in training"


def test_a_reset_that_fails_after_the_last_episode_costs_nothing():
    """With this seed, the first reset succeeds and the second, which follows the end of the first episode, fails."""

    def draws(seed):
        own = episode_seed(0, seed)
        return [gym.utils.seeding.np_random(episode_seed(own, k))[0].random() for k in (0, 1)]

    seed = next(seed for seed in range(100) if draws(seed)[0] > 0.5 > draws(seed)[1])
    population = make("qrc", [0], Losing, env_kwargs={"probability": 0.0})
    population.env_kwargs["probability"] = 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(population.evaluate(1, seed=seed)).all()
    with pytest.warns(UserWarning, match="1 of 1 members"):
        assert np.isfinite(population.evaluate(2, seed=seed)).tolist() == [[True, False]]


def test_values_that_are_not_finite_end_an_evaluation():
    population = make("qrc", [0, 1]).learn(30)
    healthy = population.evaluate(2)
    learner, row = population._trainer.learner_of(1)
    learner.rows[row] = np.nan
    found = population.evaluate(2)
    assert found[0].tolist() == healthy[0].tolist()
    assert np.isnan(found[1]).all()


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"n_episodes": 0}, ValueError, "n_episodes must be at least 1 and is 0. Pass the episodes"),
        ({"n_episodes": 2.5}, TypeError, "n_episodes must be an integer and is 2.5"),
        ({"seed": -1}, ValueError, "seed must be an integer from 0 on and is -1. Pass one"),
        ({"seed": "x"}, ValueError, "seed must be an integer from 0 on and is 'x'"),
    ],
)
def test_mistakes(arguments, error, says, trained):
    with pytest.raises(error, match=says):
        trained("qrc")[0].evaluate(**arguments)
