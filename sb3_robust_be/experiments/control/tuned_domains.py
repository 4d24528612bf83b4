"""Environments with the settings that rl_zoo3 has tuned for DQN there, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ZOO_VERSION = "2.9.2"
"""Of rl_zoo3, from whose ``hyperparams/dqn.yml`` the settings are"""

TOLERANCE = 0.1
"""How far below DQN is level with it, as a part of the way from a domain's floor to its solved return"""


@dataclass(frozen=True)
class TunedDomain:
    """An environment with the settings that rl_zoo3 has for DQN there, and what is known of its returns."""

    env: str
    steps: int
    """``n_timesteps``"""
    settings: Mapping[str, Any]
    floor: float
    """Roughly the return of a policy that has learned nothing"""
    solved: float
    """gymnasium's ``reward_threshold``, from which on it calls the environment solved"""

    @property
    def fails_below(self) -> float:
        """A seed has failed if its final return is below this: half of the way from the floor to a solved return."""
        return (self.floor + self.solved) / 2

    @property
    def tolerance(self) -> float:
        """By how much a mean may be below DQN's and still be level with it."""
        return TOLERANCE * (self.solved - self.floor)


# Acrobot's and Lunar Lander's are the same but for the environment.
_LANDER: Mapping[str, Any] = {
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "gamma": 0.99,
    "target_update_interval": 250,
    "train_freq": 4,
    "gradient_steps": -1,
    "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
    "policy_kwargs": {"net_arch": [256, 256]},
}

DOMAINS: dict[str, TunedDomain] = {
    domain.env: domain
    for domain in (
        TunedDomain(
            "CartPole-v1",
            50_000,
            {
                "learning_rate": 2.3e-3,
                "batch_size": 64,
                "buffer_size": 100_000,
                "learning_starts": 1_000,
                "gamma": 0.99,
                "target_update_interval": 10,
                "train_freq": 256,
                "gradient_steps": 128,
                "exploration_fraction": 0.16,
                "exploration_final_eps": 0.04,
                "policy_kwargs": {"net_arch": [256, 256]},
            },
            floor=9.0,
            solved=475.0,
        ),
        TunedDomain("Acrobot-v1", 100_000, _LANDER, floor=-500.0, solved=-100.0),
        TunedDomain(
            "MountainCar-v0",
            120_000,
            {
                "learning_rate": 4e-3,
                "batch_size": 128,
                "buffer_size": 10_000,
                "learning_starts": 1_000,
                "gamma": 0.98,
                "target_update_interval": 600,
                "train_freq": 16,
                "gradient_steps": 8,
                "exploration_fraction": 0.2,
                "exploration_final_eps": 0.07,
                "policy_kwargs": {"net_arch": [256, 256]},
            },
            floor=-200.0,
            solved=-110.0,
        ),
        TunedDomain("LunarLander-v3", 100_000, _LANDER, floor=-200.0, solved=200.0),
    )
}
