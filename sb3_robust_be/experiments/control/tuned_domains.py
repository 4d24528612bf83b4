"""Environments with the settings that rl_zoo3 has tuned for DQN there, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sb3_robust_be.experiments.control.zoo_values import ACROBOT, CART_POLE, MOUNTAIN_CAR

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


DOMAINS: dict[str, TunedDomain] = {
    domain.env: domain
    for domain in (
        TunedDomain(
            "CartPole-v1",
            50_000,
            CART_POLE,
            floor=9.0,
            solved=475.0,
        ),
        # The zoo has the same settings on Acrobot and Lunar Lander.
        TunedDomain("Acrobot-v1", 100_000, ACROBOT, floor=-500.0, solved=-100.0),
        TunedDomain(
            "MountainCar-v0",
            120_000,
            MOUNTAIN_CAR,
            floor=-200.0,
            solved=-110.0,
        ),
        TunedDomain("LunarLander-v3", 100_000, ACROBOT, floor=-200.0, solved=200.0),
    )
}
