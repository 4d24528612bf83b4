"""Bad input: one clear error or warning, that names the argument, the value and the remedy."""

from __future__ import annotations

import re

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from sb3_contrib import QRDQN
from small_envs import RewardEnv, SpaceEnv, images, vector_and_code
from small_models import assert_same, every_algorithm, every_family_algorithm, make, parameters, those_with
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_robust_be.qrc import MlpPolicy
from sb3_robust_be.qrc.validation import constructor_arguments
from sb3_robust_be.registry import classes

ALGORITHMS = classes()

pytestmark = pytest.mark.filterwarnings(
    "error::UserWarning",
    "ignore:.*bootstraps from a target network:UserWarning",
    "ignore:invalid value encountered:RuntimeWarning",
)
NAN, INF = float("nan"), float("inf")


def words(*parts):
    """These parts, in this order."""
    return ".*".join(re.escape(part) for part in parts)


# Names and numbers


@pytest.mark.parametrize(
    ("argument", "choices"),
    [
        ("projection", ["'squared'", "'huber'", "'absolute'", "'smooth_huber'", "'one_sided'"]),
        ("limit", ["None", "'magnitude'", "'same_sign'", "'one_sided'"]),
        ("h_target", ["'td_error'", "'clipped'"]),
        ("h_regularization_scale", ["'absolute'", "'features'"]),
    ],
)
@those_with("projection", "limit", "h_target")
def test_unknown_names(algorithm, argument, choices):
    with pytest.raises(ValueError, match=words(argument, *choices, "'hubber'")):
        make(algorithm, **{argument: "hubber"})


@pytest.mark.parametrize("value", [-0.5, NAN])
@pytest.mark.parametrize("argument", ["huber_threshold", "h_regularization", "h_learning_rate_ratio"])
@those_with("huber_threshold", "h_regularization", "h_learning_rate_ratio")
def test_negative_numbers(algorithm, argument, value):
    with pytest.raises(ValueError, match=words(argument, "negative", str(value))):
        make(algorithm, **{"projection": "huber", argument: value})


@pytest.mark.parametrize("argument", ["h_regularization", "h_learning_rate_ratio"])
@those_with("h_regularization", "h_learning_rate_ratio")
def test_infinite_numbers(algorithm, argument):
    """An infinite step would make every weight of the secondary head NaN at the first update."""
    with pytest.raises(ValueError, match=words(argument, "inf")):
        make(algorithm, **{argument: INF})


@pytest.mark.parametrize("value", [-1.0, NAN])
@every_algorithm
def test_max_grad_norm_out_of_range(algorithm, value):
    with pytest.raises(ValueError, match=words("max_grad_norm", str(value), "None")):
        make(algorithm, max_grad_norm=value)


@pytest.mark.parametrize("value", [0, -5])
@every_algorithm
def test_target_update_interval_out_of_range(algorithm, value):
    expected = words("target_update_interval", "at least 1", str(value), "None")
    with pytest.raises(ValueError, match=expected):
        make(algorithm, target_update_interval=value)


@pytest.mark.parametrize("value", [0.0, INF, None])
@those_with("projection", "huber_threshold")
def test_smooth_huber_needs_a_threshold(algorithm, value):
    with pytest.raises(ValueError, match=words("huber_threshold", "positive", "smooth_huber", f"is {value}")):
        make(algorithm, projection="smooth_huber", huber_threshold=value)


@pytest.mark.parametrize("value", [NAN, -2.0])
@those_with("huber_threshold")
def test_bad_threshold_from_a_schedule(algorithm, value):
    """Told at the update it is for, before anything is learned with it."""
    model = make(algorithm, projection="huber", huber_threshold=lambda left: 1.0 if left > 0.5 else value)
    with pytest.raises(ValueError, match=words("huber_threshold", "negative", str(value), "schedule")):
        model.learn(40)
    assert model.num_timesteps == 20
    assert all(th.isfinite(weights).all() for weights in parameters(model).values())


@those_with("huber_threshold")
def test_threshold_of_another_type(algorithm):
    with pytest.raises(TypeError, match=words("huber_threshold", "must be a number", "[1.0]", "schedule")):
        make(algorithm, projection="huber", huber_threshold=[1.0])
    with pytest.raises(TypeError, match=words("huber_threshold", "must be a number", "'lin_1'")):
        make(algorithm, projection="huber", huber_threshold=lambda _: "lin_1").learn(20)


def numeric_arguments():
    """Every argument of every algorithm whose annotation speaks of numbers; no list to keep up to date."""
    for algorithm in ALGORITHMS.values():
        for name, parameter in constructor_arguments(algorithm).items():
            if re.search(r"\b(int|float)\b", str(parameter.annotation)) and name != "train_freq":
                yield pytest.param(algorithm, name, id=f"{algorithm.algorithm_name}-{name}")


@pytest.mark.parametrize("text", ["1e-3", "3"])
@pytest.mark.parametrize(("algorithm", "argument"), list(numeric_arguments()))
def test_strings_where_numbers_belong(algorithm, argument, text):
    with pytest.raises(TypeError, match=words(argument, "number", repr(text), "YAML", "!!float")):
        make(algorithm, **{argument: text})


@every_algorithm
def test_unknown_arguments(algorithm):
    with pytest.raises(TypeError, match="kappa"):
        make(algorithm, kappa=1.0)
    with pytest.raises(ValueError, match="Policy MlpPolice unknown"):
        make(algorithm, policy="MlpPolice")


# Warnings


@pytest.mark.parametrize("projection", ["squared", "absolute"])
@those_with("projection", "huber_threshold", "h_target")
def test_threshold_without_effect_is_said(algorithm, projection):
    text = words("huber_threshold=2.0", "no effect", f"projection='{projection}'", "None", "'huber'")
    with pytest.warns(UserWarning, match=text) as caught:
        make(algorithm, projection=projection, huber_threshold=2.0, h_target="td_error")
    assert len(caught) == 1
    # Where it has one, as the bound of h's target, nothing is said.
    make(algorithm, projection=projection, huber_threshold=2.0, h_target="clipped")
    make(algorithm, projection=projection, huber_threshold=None, h_target="td_error")


# Optimisers


@those_with("h_regularization")
def test_optimiser_without_weight_decay(algorithm):
    kwargs = {"policy_kwargs": {"optimizer_class": th.optim.Rprop}}
    text = words("h_regularization=0.5", "weight_decay", "Rprop", "Adam", "h_regularization=0")
    with pytest.raises(ValueError, match=text):
        make(algorithm, h_regularization=0.5, **kwargs)
    before = parameters(model := make(algorithm, h_regularization=0.0, **kwargs))
    assert not th.equal(parameters(model.learn(20))["q_net.h_net.bias"], before["q_net.h_net.bias"])


# Spaces and buffers


@pytest.mark.parametrize("space", [gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.MultiDiscrete([2, 2])])
@every_algorithm
def test_other_action_spaces(algorithm, space):
    env = RewardEnv()
    env.action_space = space
    with pytest.raises((AssertionError, ValueError), match=words("Discrete", "action space", str(space)[:4])):
        make(algorithm, env)


@every_algorithm
def test_policies_for_other_spaces(algorithm):
    with pytest.raises(ValueError, match="MultiInputPolicy"):
        make(algorithm, SpaceEnv(vector_and_code()))
    with pytest.raises(ValueError, match=r"MinAtarCNN needs images.*MlpPolicy"):
        make(algorithm, RewardEnv(), "CnnPolicy")


@pytest.mark.parametrize("policy", [DQNPolicy, PPO.policy_aliases["MlpPolicy"]])
@every_algorithm
def test_policies_without_a_secondary_head(algorithm, policy):
    """SB3 takes classes as well as names: DQN's are not enough here."""
    with pytest.raises(ValueError, match=words("policy", policy.__name__, "secondary head", "MlpPolicy", "QRCPolicy")):
        make(algorithm, policy=policy)
    assert make(algorithm, policy=MlpPolicy).learn(15)._n_updates == 5


@every_family_algorithm
def test_n_steps_with_dictionaries(algorithm):
    with pytest.raises(ValueError, match=words("n_steps=3", "Dict", "n_steps=1", "FlattenObservation")):
        make(algorithm, SpaceEnv(vector_and_code()), "MultiInputPolicy", n_steps=3)


@every_family_algorithm
def test_n_steps_with_little_memory(algorithm):
    with pytest.raises(ValueError, match=words("n_steps=3", "optimize_memory_usage=True", "one of the two")):
        make(algorithm, n_steps=3, optimize_memory_usage=True)


@every_family_algorithm
def test_n_steps_with_another_buffer(algorithm):
    """SB3's own warning, with the remedy that does work."""
    with pytest.warns(UserWarning, match=words("n_steps=3", "ignored", "ReplayBuffer", "replay_buffer_kwargs")):
        make(algorithm, n_steps=3, replay_buffer_class=ReplayBuffer)
    kwargs = {"n_steps": 3, "gamma": 0.9}
    model = make(algorithm, replay_buffer_class=NStepReplayBuffer, replay_buffer_kwargs=kwargs).learn(20)
    assert (model.replay_buffer.n_steps, model.replay_buffer.gamma) == (3, 0.9)


@pytest.mark.parametrize("value", [0, -1])
@every_algorithm
def test_n_steps_out_of_range(algorithm, value):
    with pytest.raises(ValueError, match=words("n_steps", "at least 1", str(value))):
        make(algorithm, n_steps=value)


# Rewards


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("normalised", [False, True])
@every_algorithm
def test_rewards_that_are_no_numbers(algorithm, bad, normalised):
    env = make_vec_env(RewardEnv, 1)
    env.envs[0].unwrapped.bad, env.envs[0].unwrapped.bad_at = bad, 17
    model = make(algorithm, VecNormalize(env) if normalised else env)
    with pytest.raises(ValueError, match=words("index 0", f"reward {bad}", "step 17", "TransformReward")):
        model.learn(40)
    assert model.replay_buffer.pos == 16, "it never reaches the buffer"
    assert np.isfinite(model.replay_buffer.rewards).all()
    assert all(th.isfinite(value).all() for value in parameters(model).values())


@every_algorithm
def test_rewards_that_are_no_numbers_in_one_of_many(algorithm):
    env = make_vec_env(RewardEnv, 3)
    env.envs[2].unwrapped.bad, env.envs[2].unwrapped.bad_at = NAN, 5
    with pytest.raises(ValueError, match=words("index 2", "reward nan", "step 15")):
        make(algorithm, env).learn(40)


@every_algorithm
def test_rewards_fixed_by_the_remedy(algorithm):
    env = gym.wrappers.TransformReward(RewardEnv(bad=NAN, bad_at=15), lambda reward: float(np.nan_to_num(reward)))
    assert make(algorithm, env).learn(30).num_timesteps == 30


# Files of others


@pytest.mark.parametrize("other", [PPO, A2C, QRDQN])
@every_algorithm
def test_files_of_other_algorithms(algorithm, other, tmp_path):
    stranger = other("MlpPolicy", "CartPole-v1", device="cpu", policy_kwargs={"net_arch": [16]})
    stranger.save(tmp_path / "stranger")
    policy = type(stranger.policy).__name__
    with pytest.raises(ValueError, match=words("stranger", policy, algorithm.__name__, "DQN", "class that saved it")):
        algorithm.load(tmp_path / "stranger", env="CartPole-v1")


def siblings():
    for algorithm in ALGORITHMS.values():
        for other in ALGORITHMS.values():
            if other is not algorithm:
                yield pytest.param(algorithm, other, id=f"{other.algorithm_name}-as-{algorithm.algorithm_name}")


@pytest.mark.parametrize(("algorithm", "other"), list(siblings()))
def test_files_of_siblings(algorithm, other, tmp_path):
    """Refused, because their arguments would make another algorithm of this one; the remedy takes the weights only."""
    plain = {"policy_kwargs": {"layer_norm": False}}
    sibling = make(other, **plain).learn(20)
    sibling.save(tmp_path / "sibling")
    text = words("sibling", other.algorithm_name, algorithm.__name__, algorithm.algorithm_name, "set_parameters(path)")
    with pytest.raises(ValueError, match=text):
        algorithm.load(tmp_path / "sibling", env=sibling.get_env())
    model = make(algorithm, sibling.get_env(), **plain)
    before = [group["weight_decay"] for group in model.policy.optimizer.param_groups]
    model.set_parameters(str(tmp_path / "sibling"))
    assert_same(parameters(model), parameters(sibling))
    assert [group["weight_decay"] for group in model.policy.optimizer.param_groups] == before, "its own β"
    model.learn(20)


@every_algorithm
def test_images_too_small(algorithm):
    with pytest.raises(ValueError, match=words("MinAtarCNN", "3×3", "2×9", "channels_last", "MlpPolicy")):
        make(algorithm, SpaceEnv(images(2, 9, 1, bool)), "CnnPolicy")
