"""What SBEED is for: values that do not blow up without a target network, and returns that rise."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.evaluation import evaluate_policy
from test_learning import values_on_the_chain

from sb3_robust_be import SBEED


@pytest.mark.parametrize("eta", [0.1, 0.9])
def test_values_stay_bounded_on_the_two_state_chain(eta):
    assert values_on_the_chain(SBEED, eta=eta).largest < 5


def test_a_constant_next_state_diverges_on_the_two_state_chain():
    """What a target network takes away: refreshed at every step, the update is a semi-gradient's."""
    assert values_on_the_chain(SBEED, eta=0.1, target_update_interval=1).final > 50


def greedy_return_on_cart_pole(seed: int, steps: int) -> float:
    """The paper's setting of Cart-pole, and λ and η of the shipped configuration."""
    model = SBEED(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=2.0**-10,
        buffer_size=4000,
        learning_starts=32,
        train_freq=1,
        target_update_interval=64,
        exploration_initial_eps=0.1,
        exploration_final_eps=0.1,
        policy_kwargs={"net_arch": [64, 64]},
        seed=seed,
        device="cpu",
        temperature=1.0,
        eta=0.1,
    )
    model.learn(steps)
    return float(evaluate_policy(model, gym.make("CartPole-v1"), n_eval_episodes=10, warn=False)[0])


@pytest.mark.slow
def test_cart_pole_is_learned():
    """Up to 500; acting at random gives about 22."""
    returns = [greedy_return_on_cart_pole(seed, 10_000) for seed in (0, 1, 2)]
    assert np.mean(returns) >= 200, returns
