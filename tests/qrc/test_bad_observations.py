"""One observation that is no number stops before it is stored: which one, where and when, and what to do."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from small_models import every_algorithm, make, parameters
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from sb3_robust_be import QLC

pytestmark = pytest.mark.filterwarnings("error::UserWarning", "ignore:invalid value encountered:RuntimeWarning")
NAN, INF = float("nan"), float("inf")


class ObservationEnv(gym.Env):
    """Episodes of 5 steps; the observation number ``bad_at``, counted over steps or over resets, holds ``bad``.

    As a dictionary, the bad number is in ``speed``, beside a ``code`` of integers.
    """

    def __init__(self, bad: float = 0.0, bad_at: int = -1, at_reset: bool = False, as_dict: bool = False) -> None:
        box = spaces.Box(-np.inf, np.inf, (2, 3), np.float32)
        self.as_dict = as_dict
        self.observation_space = spaces.Dict({"code": spaces.Discrete(4), "speed": box}) if as_dict else box
        self.action_space = spaces.Discrete(2)
        self.bad, self.bad_at, self.at_reset = bad, bad_at, at_reset
        self.steps = self.resets = 0

    def _observe(self, is_bad: bool) -> Any:
        speed = self.np_random.normal(size=(2, 3)).astype(np.float32)
        if is_bad:
            speed[1, 2] = self.bad
        return {"code": 3, "speed": speed, "beyond": NAN} if self.as_dict else speed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.resets += 1
        return self._observe(self.at_reset and self.resets == self.bad_at), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self.steps += 1
        bad = not self.at_reset and self.steps == self.bad_at
        return self._observe(bad), 1.0, self.steps % 5 == 0, False, {}


def policy_of(env):
    return "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"


def assert_refused(algorithm, env, text, stored):
    """``learn`` raises ``text`` after this many transitions per environment, and nothing is spoilt."""
    model = make(algorithm, env, policy_of(env), learning_starts=4)
    with pytest.raises(ValueError, match=text):
        model.learn(60)
    buffer = model.replay_buffer
    assert buffer.pos == stored
    for kept in (buffer.observations, buffer.next_observations):
        for values in kept.values() if isinstance(kept, dict) else [kept]:
            assert np.isfinite(values).all()
    assert all(th.isfinite(value).all() for value in parameters(model).values())


def text(index, bad, step, occasion="", key=""):
    return (
        rf"index {index} returned an observation that holds {bad}{re.escape(key)} at position \(1, 2\), at environment "
        rf"step {step}{re.escape(occasion)}\. .*TransformObservation"
    )


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("as_dict", [False, True])
@every_algorithm
def test_an_observation_that_is_no_number(algorithm, bad, as_dict):
    """In the middle of an episode."""
    env = ObservationEnv(bad, 18, as_dict=as_dict)
    assert_refused(algorithm, env, text(0, bad, 18, key=" under the key 'speed'" if as_dict else ""), stored=17)


@pytest.mark.parametrize("as_dict", [False, True])
@every_algorithm
def test_the_last_observation_of_an_episode(algorithm, as_dict):
    """Which only ``infos`` hold; what is beside the space's own keys does not matter."""
    expected = text(0, "nan", 20, " (the last of an episode)", " under the key 'speed'" if as_dict else "")
    assert_refused(algorithm, ObservationEnv(NAN, 20, as_dict=as_dict), expected, stored=19)


@pytest.mark.parametrize(("resets", "step", "occasion"), [(1, 0, " (the first, from reset)"), (4, 15, "")])
@pytest.mark.parametrize("normalised", [False, True])
@every_algorithm
def test_the_first_observation_of_an_episode(algorithm, resets, step, occasion, normalised):
    env = make_vec_env(lambda: ObservationEnv(INF, resets, at_reset=True), 1)
    env = VecNormalize(env) if normalised else env
    assert_refused(algorithm, env, text(0, "inf", step, occasion), stored=max(step - 1, 0))


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@every_algorithm
def test_with_normalisation_the_original_counts(algorithm, bad):
    """Infinity is within the bounds of ``clip_obs`` when it has been normalised; what is stored is what came."""
    env = VecNormalize(make_vec_env(lambda: ObservationEnv(bad, 8), 1))
    assert_refused(algorithm, env, text(0, bad, 8), stored=7)
    # The statistics are spoilt for good.
    env.venv.envs[0].unwrapped.bad_at = -1
    with pytest.raises(ValueError, match="statistics hold such a number from before: make a new one"):
        make(algorithm, env).learn(20)
    assert make(algorithm, VecNormalize(env.venv)).learn(20).num_timesteps == 20


@every_algorithm
def test_the_last_observation_with_normalisation(algorithm):
    env = VecNormalize(make_vec_env(lambda: ObservationEnv(NAN, 20), 1))
    assert_refused(algorithm, env, text(0, "nan", 20, " (the last of an episode)"), stored=19)


@every_algorithm
def test_one_environment_of_many(algorithm):
    env = make_vec_env(ObservationEnv, 3)
    bad = env.envs[2].unwrapped
    bad.bad, bad.bad_at = NAN, 7
    assert_refused(algorithm, env, text(2, "nan", 21), stored=6)
    env = make_vec_env(ObservationEnv, 3)
    bad = env.envs[1].unwrapped
    bad.bad, bad.bad_at = NAN, 10
    assert_refused(algorithm, env, text(1, "nan", 30, " (the last of an episode)"), stored=9)


class SteadyEnv(gym.Env):
    """One observation, of numbers whose squares overflow."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return np.full(3, 3e38, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.full(3, 3e38, np.float32), 1.0, False, False, {}


@every_algorithm
def test_large_numbers_are_numbers(algorithm):
    """They are the user's business."""
    model = make(algorithm, SteadyEnv(), gradient_steps=0).learn(20)
    assert (model.replay_buffer.observations[:20] == np.float32(3e38)).all()


@every_algorithm
def test_observations_fixed_by_the_remedy(algorithm):
    env = ObservationEnv(NAN, 8)
    fixed = gym.wrappers.TransformObservation(env, np.nan_to_num, env.observation_space)
    assert make(algorithm, fixed).learn(30).num_timesteps == 30


class LargeEnv(ObservationEnv):
    """Its numbers are of double precision, in which 1e60 is finite."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2, 3), np.float64)

    def _observe(self, is_bad: bool) -> Any:
        values = self.np_random.normal(size=(2, 3)) * 1e15
        if is_bad:
            values[1, 2] = self.bad
        return values


@pytest.mark.parametrize("bad", [1e60, -1e39])
def test_numbers_beyond_single_precision(bad):
    """Networks compute in it, where they are infinite."""
    text = re.escape(f"returned an observation that holds {bad} at position (1, 2), at environment step 7.")
    assert_refused(QLC, LargeEnv(bad=bad, bad_at=7), text, 6)
    make(QLC, LargeEnv(), "MlpPolicy", learning_starts=19).learn(20)
