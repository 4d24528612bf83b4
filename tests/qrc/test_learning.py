"""What the algorithms are for: values that do not blow up, and returns that rise."""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback

from sb3_robust_be import QLC, QRC, QRCHuber


class TwoStateChain(gym.Env):
    """From the state with feature 1 always to the state with feature 2, reward 0, then cut off, not terminated.

    The true values are 0. A semi-gradient update multiplies the weight: its target is γ·2w where the value is w.

    :param length: Steps per episode; those after the first lead from the second state to itself.
    """

    observation_space = gym.spaces.Box(0.0, 2.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length=1):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.array([1.0], np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.array([2.0], np.float32), 0.0, False, self.steps == self.length, {}


class LargestValue(BaseCallback):
    """The largest |q| over both states at any step."""

    def __init__(self):
        super().__init__()
        self.largest = self.final = 0.0

    def _on_step(self):
        with th.no_grad():
            self.final = self.model.q_net(th.tensor([[1.0], [2.0]])).abs().max().item()
        self.largest = max(self.largest, self.final)
        return True


def values_on_the_chain(cls, length=1, weight=1.0, **kwargs):
    model = cls(
        "MlpPolicy",
        TwoStateChain(length),
        learning_rate=0.01,
        train_freq=1,
        learning_starts=32,
        buffer_size=1000,
        seed=0,
        policy_kwargs={"net_arch": []},
        **kwargs,
    )
    for network in (model.q_net, model.q_net_target):
        head = network.q_net[-1]
        th.nn.init.constant_(head.weight, weight)
        th.nn.init.zeros_(head.bias)
        head.bias.requires_grad_(False)  # the chain has the features 1 and 2, and no constant one
    values = LargestValue()
    model.learn(3000, callback=values)
    return values


@pytest.mark.parametrize("cls", [QRC, QRCHuber, QLC], ids=lambda c: c.algorithm_name)
def test_values_stay_bounded_on_the_two_state_chain(cls):
    assert values_on_the_chain(cls).largest < 5


def test_dqn_diverges_on_the_two_state_chain():
    assert values_on_the_chain(DQN, target_update_interval=1).final > 50


def test_a_threshold_far_below_the_td_errors_diverges_and_says_so():
    with pytest.warns(UserWarning, match=r"huber_threshold=0\.1 lies far below the TD errors.*Raise huber_threshold"):
        assert values_on_the_chain(QRCHuber, huber_threshold=0.1).final > 50


def test_a_fitting_threshold_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values_on_the_chain(QRCHuber, huber_threshold=1.0)


def test_one_sided_corrections_let_negative_values_diverge():
    # δ = γ·2w − w has the sign of w: upwards it is corrected, downwards it is Q-learning without a target network.
    assert values_on_the_chain(QLC, limit="one_sided").largest < 5
    assert values_on_the_chain(QLC, limit="one_sided", weight=-1.0).final > 50
    assert values_on_the_chain(QLC, limit="magnitude", weight=-1.0).largest < 5


def test_a_second_step_shows_where_the_limit_costs():
    # The second state's TD error is small, and with it what QLC corrects there; QRC corrects by what h says.
    assert values_on_the_chain(QRC, length=2).final < 10
    assert values_on_the_chain(QLC, length=2, limit="magnitude").final > 50
