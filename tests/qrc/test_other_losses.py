"""The loss of the first term: DQN's in ours, and the squared one in DQN."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from small_models import make
from stable_baselines3 import DQN
from two_heads import make_batch, make_model

from sb3_robust_be import QRC, QRCHuber, SquaredDQN
from sb3_robust_be.population.baseline import BaselineDQN


def test_without_a_correction_ours_is_dqn_without_a_target_network():
    """The same values, batch for batch, as SB3's own DQN has whose target is copied before each update."""
    shared = {"learning_rate": 1e-2, "max_grad_norm": None}
    ours = make(QRC, correction_weight=0.0, td_error_threshold=1.0, **shared)
    dqn = make(DQN, target_update_interval=1, **{**shared, "max_grad_norm": np.inf})
    for (name, own), other in zip(dqn.q_net.named_parameters(), dqn.q_net_target.parameters(), strict=True):
        own.data.copy_(dict(ours.q_net.named_parameters())[name])
        other.data.copy_(own.data)
    for model in (ours, dqn):
        model._setup_learn(1)
    buffer = make(QRC).learn(40).replay_buffer
    for _ in range(20):
        batch = buffer.sample(8)
        for model in (ours, dqn):
            model.replay_buffer = _Fixed(batch)
            model.train(1, 8)
            if model is dqn:
                model.q_net_target.load_state_dict(model.q_net.state_dict())
    values = dict(ours.q_net.named_parameters())
    for name, own in dqn.q_net.named_parameters():
        th.testing.assert_close(values[name], own, rtol=1e-4, atol=1e-6)


class _Fixed:
    def __init__(self, batch):
        self.batch = batch

    def size(self):
        return 8

    def sample(self, batch_size, env=None):
        return self.batch


@pytest.mark.parametrize("threshold", [None, 0.5, 1.0])
def test_the_gradient_is_that_of_torchs_loss(threshold):
    model = make_model(QRC, correction_weight=0.0, td_error_threshold=threshold)
    batch = make_batch()
    model._compute_gradients(batch, model.update_settings())
    network = model.q_net
    q = network(batch.observations).gather(1, batch.actions)
    target = (batch.rewards + 0.9 * (1 - batch.dones) * network(batch.next_observations).max(1, True).values).detach()
    loss = (
        0.5 * ((target - q) ** 2).mean()
        if threshold is None
        else th.nn.functional.huber_loss(q, target, delta=threshold)
    )
    values = [p for name, p in network.named_parameters() if "h_net" not in name]
    for parameter, gradient in zip(values, th.autograd.grad(loss, values), strict=True):
        th.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


def parameters_after(cls, **kwargs):
    return list(make(cls, target_update_interval=10, **kwargs).learn(80).q_net.parameters())


def test_with_the_threshold_1_it_is_sb3s_dqn():
    for own, sb3s in zip(parameters_after(BaselineDQN), parameters_after(DQN), strict=True):
        assert th.equal(own, sb3s)


def test_its_own_loop_is_sb3s_but_for_the_loss():
    """A threshold that differs from 1 by rounding takes our loop: the same updates within float32."""
    for own, sb3s in zip(
        parameters_after(BaselineDQN, huber_threshold=1.0 + 1e-12), parameters_after(DQN), strict=True
    ):
        th.testing.assert_close(own, sb3s, rtol=1e-4, atol=1e-6)


def test_squared_dqn(tmp_path):
    squared = parameters_after(SquaredDQN)
    for own, other in zip(squared, parameters_after(BaselineDQN, huber_threshold=1e9), strict=True):
        th.testing.assert_close(own, other)
    assert any(not th.allclose(own, other) for own, other in zip(squared, parameters_after(DQN), strict=True))
    model = make(SquaredDQN, target_update_interval=10).learn(60)
    model.save(tmp_path / "model")
    loaded = SquaredDQN.load(tmp_path / "model", env=gym.make("CartPole-v1"))
    assert loaded.huber_threshold is None
    loaded.learn(20, reset_num_timesteps=False)
    with pytest.warns(UserWarning, match="was saved by SB3's DQN"):
        assert QRCHuber.load(tmp_path / "model").huber_threshold == 1.0
    with pytest.raises(ValueError, match="huber_threshold must be positive"):
        SquaredDQN("MlpPolicy", "CartPole-v1", huber_threshold=0)
