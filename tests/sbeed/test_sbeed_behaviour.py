"""How SBEED acts: greedily or by π = softmax(q/λ), with ε on top."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from small_envs import MatchEnv, RewardEnv, SpaceEnv, vector_and_code
from small_models import assert_same_parameters, make
from test_save_load import assert_continues_bit_for_bit

from sb3_robust_be import SBEED

OBSERVATIONS = np.ones((6000, 2), np.float32)
# Four standard deviations of a frequency over as many observations.
WITHIN = 4 * np.sqrt(0.25 / len(OBSERVATIONS))


def with_policy(probabilities, env=None, temperature=0.3, **kwargs):
    """A model whose π has these probabilities in every state."""
    model = make(SBEED, env or RewardEnv(), temperature=temperature, **{"behaviour": "softmax", **kwargs})
    with th.no_grad():
        for parameter in model.q_net.parameters():
            parameter.zero_()
        model.q_net.q_net[-1].bias.copy_(temperature * th.tensor(probabilities).log() + 5.0)
    model.exploration_rate = 0.0
    return model


def frequency(model, action=0):
    return np.mean(model.predict(OBSERVATIONS)[0] == action)


@pytest.mark.parametrize("temperature", [1e-3, 0.3, 1e3])
def test_softmax_acts_with_the_policys_probabilities(temperature):
    assert frequency(with_policy([0.8, 0.2], temperature=temperature)) == pytest.approx(0.8, abs=WITHIN)


def test_greedy_takes_the_largest_value():
    assert frequency(with_policy([0.8, 0.2], behaviour="greedy")) == 1.0
    assert frequency(with_policy([0.8, 0.2], temperature=1e-6)) == pytest.approx(0.8, abs=WITHIN)
    model = with_policy([0.8, 0.2])
    model.temperature = 1e-6
    assert frequency(model) == 1.0, "the same values at a lower temperature"


@pytest.mark.parametrize("behaviour", ["greedy", "softmax"])
def test_deterministic_predictions_are_greedy(behaviour):
    model = with_policy([0.4, 0.6], behaviour=behaviour)
    model.exploration_rate = 1.0
    assert (model.predict(OBSERVATIONS, deterministic=True)[0] == 1).all()


@pytest.mark.parametrize(("behaviour", "expected"), [("greedy", 0.75), ("softmax", 0.5 * 0.8 + 0.5 * 0.5)])
def test_epsilon_is_mixed_in(behaviour, expected):
    model = with_policy([0.8, 0.2], behaviour=behaviour)
    model.exploration_rate = 0.5
    assert frequency(model) == pytest.approx(expected, abs=WITHIN)


def test_training_acts_by_the_behaviour():
    model = with_policy([0.8, 0.2], learning_rate=0.0, exploration_initial_eps=0.0, exploration_final_eps=0.0)
    model.learning_starts = 0
    model.learn(400)
    assert np.mean(model.replay_buffer.actions[:400] == 0) == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / 400))


def test_softmax_with_single_observations_dicts_and_actions_that_do_not_start_at_zero():
    single = with_policy([0.5, 0.5]).predict(OBSERVATIONS[0])[0]
    assert single.shape == ()
    model = make(SBEED, SpaceEnv(vector_and_code()), "MultiInputPolicy", behaviour="softmax").learn(20)
    assert model.predict(model.observation_space.sample())[0].shape == ()
    model = with_policy([0.1, 0.2, 0.7], MatchEnv(start=-4))
    actions, _ = model.predict(np.tile(np.eye(3, dtype=np.float32), (2000, 1)))
    assert np.mean(actions == -2) == pytest.approx(0.7, abs=WITHIN)
    assert set(np.unique(actions)) == {-4, -3, -2}
    # The environment refuses anything else.
    model.learning_starts = 0
    model.learn(30)


def test_softmax_is_reproducible():
    settings = {"behaviour": "softmax", "temperature": 1.0, "exploration_fraction": 0.5}
    first, second = (make(SBEED, **settings).learn(60) for _ in range(2))
    assert_same_parameters(first, second)
    np.testing.assert_array_equal(first.replay_buffer.actions, second.replay_buffer.actions)
    greedy = make(SBEED, **{**settings, "behaviour": "greedy"}).learn(60)
    assert (first.replay_buffer.actions != greedy.replay_buffer.actions).any()


def test_softmax_continues_bit_for_bit(tmp_path):
    settings = {"temperature": 2.0, "eta": 0.5, "behaviour": "softmax", "h_learning_rate_ratio": 2.0}
    assert_continues_bit_for_bit(SBEED, tmp_path, "plain", **settings)
    model = SBEED.load(tmp_path / "model")
    assert {name: getattr(model, name) for name in settings} == settings


def test_policy_entropy_is_logged():
    """By hand for π = (0.8, 0.2), in nats; beside the entries that every algorithm has."""
    model = with_policy([0.8, 0.2], learning_rate=0.0).learn(12)
    entropy = -0.8 * np.log(0.8) - 0.2 * np.log(0.2)
    log = model.logger.name_to_value
    assert log["train/policy_entropy"] == pytest.approx(entropy, rel=1e-5)
    assert log["train/h_clip_fraction"] == 0.0
    # δ = 1 + γV − q, where q is 5 + λ·log π and V its mellowmax, 5 − λ·log 2.
    q = 5 + 0.3 * np.log([0.8, 0.2])
    errors = 1 + 0.99 * (5 - 0.3 * np.log(2)) - q
    assert errors.min() - 1e-4 <= log["train/td_error_q05"] <= log["train/td_error_q95"] <= errors.max() + 1e-4


@pytest.mark.parametrize("temperature", [1e-6, 1e3])
def test_policy_entropy_of_extreme_temperatures(temperature):
    model = make(SBEED, SpaceEnv(spaces.Box(-1.0, 1.0, (4,)), n_actions=3), temperature=temperature).learn(12)
    expected = 0.0 if temperature < 1 else np.log(3)
    assert model.logger.name_to_value["train/policy_entropy"] == pytest.approx(expected, abs=1e-3)
