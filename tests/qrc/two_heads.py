"""Small float64 models and batches, and the losses as the paper writes them, for tests of the update."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from sb3_robust_be.qrc import RobustQLearning

OBS_DIM, N_ACTIONS, GAMMA = 3, 4, 0.9


class DoubleFlatten(FlattenExtractor):
    """SB3 makes every observation float32; from here on the network is float64."""

    def forward(self, observations: th.Tensor) -> th.Tensor:
        return super().forward(observations).double()


class SpacesOnly(gym.Env):
    """An environment for its spaces."""

    def __init__(self, obs_dim: int = OBS_DIM, n_actions: int = N_ACTIONS) -> None:
        self.observation_space = gym.spaces.Box(-100.0, 100.0, (obs_dim,), np.float32)
        self.action_space = gym.spaces.Discrete(n_actions)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def make_model(
    cls: type[RobustQLearning], seed: int = 0, net_arch=(8, 8), env: gym.Env | None = None, **kwargs: Any
) -> RobustQLearning:
    """A float64 model whose secondary head is not zero."""
    policy_kwargs = {
        "net_arch": list(net_arch),
        "features_extractor_class": DoubleFlatten,
        **kwargs.pop("policy_kwargs", {}),
    }
    model = cls(
        "MlpPolicy", env or SpacesOnly(), seed=seed, buffer_size=100, gamma=GAMMA, policy_kwargs=policy_kwargs, **kwargs
    )
    model.policy.double()
    generator = th.Generator().manual_seed(seed + 1)
    for parameter in model.q_net.h_net.parameters():
        parameter.data = th.randn(parameter.shape, generator=generator, dtype=th.float64)
    return model


def make_batch(batch_size: int = 16, seed: int = 0, reward_scale: float = 3.0) -> ReplayBufferSamples:
    """Random transitions, a quarter of them terminated."""
    generator = th.Generator().manual_seed(seed)
    return ReplayBufferSamples(
        observations=th.randn(batch_size, OBS_DIM, generator=generator),
        actions=th.randint(0, N_ACTIONS, (batch_size, 1), generator=generator),
        next_observations=th.randn(batch_size, OBS_DIM, generator=generator),
        dones=(th.rand(batch_size, 1, generator=generator) < 0.25).double(),
        rewards=reward_scale * th.randn(batch_size, 1, generator=generator, dtype=th.float64),
    )


def gradients(model: RobustQLearning, batch: ReplayBufferSamples) -> dict[str, th.Tensor]:
    """The gradient that the model's own update leaves, by parameter."""
    model._compute_gradients(batch, model.update_settings())
    return {name: th.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.q_net.named_parameters()}


def gradients_of(model: RobustQLearning, loss: th.Tensor, of_target: bool = False) -> dict[str, th.Tensor]:
    """Autograd's gradient of any loss, by parameter of the online (or target) network."""
    named = dict((model.q_net_target if of_target else model.q_net).named_parameters())
    found = th.autograd.grad(loss, list(named.values()), allow_unused=True, retain_graph=True)
    return {name: th.zeros_like(p) if g is None else g for (name, p), g in zip(named.items(), found, strict=True)}


def forward(model: RobustQLearning, batch: ReplayBufferSamples) -> dict[str, th.Tensor]:
    """The symbols of the paper, each (batch, 1), from one pass per network and observation."""
    q_all, h_all = model.q_net.q_and_h(batch.observations)
    discount = GAMMA * (1 - batch.dones)
    b = model.q_net_target(batch.next_observations).max(dim=1, keepdim=True).values
    q, h = q_all.gather(1, batch.actions), h_all.gather(1, batch.actions)
    target = (batch.rewards + discount * b).detach()
    return {"q": q, "h": h, "b": b, "discount": discount, "T": target, "delta": (target - q).detach()}


def assert_close(left: dict[str, th.Tensor], right: dict[str, th.Tensor]) -> None:
    for name, gradient in left.items():
        th.testing.assert_close(gradient, right[name], rtol=1e-9, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")
