"""The paper's control domains, two more to test settings on, and the settings that all algorithms share on them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sb3_robust_be import registry


@dataclass(frozen=True)
class Domain:
    """An environment with its network and replay buffer (paper, appendix "Nonlinear Control")."""

    name: str
    """For people"""
    env: str
    """A gymnasium id"""
    net_arch: tuple[int, ...]
    """Hidden ReLU units"""
    buffer_size: int
    """Newest transitions"""
    steps: int
    """Environment steps of a run of the paper"""
    huber_threshold: float = 1.0
    """κ of QRC-Huber and GQ-Huber: 1, on Mountain Car 2 (paper, section 8.1)"""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    gym_packages: tuple[str, ...] = ()
    """Modules that register the environment"""
    policy: str = "MlpPolicy"
    normalize: Mapping[str, Any] | None = None
    """Arguments of SB3's ``VecNormalize`` that scales observations and rewards; ``None``: nothing is scaled"""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that all algorithms share here, in place of those of :func:`shared_arguments`"""


DOMAINS: dict[str, Domain] = {
    "acrobot": Domain("Acrobot", "Acrobot-v1", (32, 32), 4_000, 100_000),
    "cart-pole": Domain("Cart-pole", "CartPole-v1", (64, 64), 4_000, 100_000),
    "cliff-world": Domain("Cliff World", "RobustBE/CliffWorld-v0", (32, 32), 4_000, 50_000),
    "lunar-lander": Domain("Lunar Lander", "LunarLander-v3", (128, 128), 10_000, 250_000),
    "mountain-car": Domain("Mountain Car", "RobustBE/MountainCar1000-v0", (32, 32), 4_000, 100_000, 2.0),
}

HELD_OUT_DOMAINS: dict[str, Domain] = {
    "mountain-car-200": Domain("Mountain Car, 200 steps", "MountainCar-v0", (32, 32), 4_000, 100_000, 2.0),
    "puddle-world": Domain("Puddle World", "RobustBE/PuddleWorld-v0", (32, 32), 4_000, 100_000),
}
"""Not the paper's: for settings that were chosen elsewhere, as the ``own_domains`` of a ``ControlPreset``. Networks,
buffers, steps and κ are those of the paper's Mountain Car; on Puddle World κ is 1, as where the paper gives no other"""

ALL_DOMAINS = tuple(DOMAINS)
CHEAP_DOMAINS = tuple(key for key in DOMAINS if key != "lunar-lander")

# Refresh of the target network of DQN, in environment steps, where nothing sweeps it.
DQN_TARGET = 64


def shared_arguments(domain: Domain) -> dict[str, Any]:
    """The arguments that all algorithms share on a domain.

    :param domain: Of the run.
    :return: The arguments that every algorithm has in the paper: batch 32, one update per step from the 33rd transition
        on, γ = 0.99, ε = 0.1 throughout, no gradient clipping (section 8.1 and appendix "Nonlinear Control").
    """
    return {
        "policy_kwargs": {"net_arch": list(domain.net_arch)},
        "buffer_size": domain.buffer_size,
        "learning_starts": 32,
        "batch_size": 32,
        "train_freq": 1,
        "gradient_steps": 1,
        "gamma": 0.99,
        "exploration_initial_eps": 0.1,
        "exploration_final_eps": 0.1,
    }


def own_arguments(domain: Domain, algorithm: str) -> dict[str, Any]:
    """The arguments that an algorithm has besides the shared ones.

    :param domain: Of the run.
    :param algorithm: Its name in commands.
    :return: What the algorithm has besides, where nothing sweeps it. DQN: SB3's loss, a target network refreshed every
        64 steps, and, as in the paper, no gradient clipping.
    """
    if algorithm in ("qrc_huber", "gq_huber"):
        return {"huber_threshold": domain.huber_threshold}
    if algorithm in registry.ENTRIES and registry.ENTRIES[algorithm].baseline:
        return {"target_update_interval": DQN_TARGET, "max_grad_norm": math.inf}
    return {}


SCALES = {
    "acrobot": 500.0,
    "cart-pole": 500.0,
    "cliff-world": 1000.0,
    "lunar-lander": 500.0,
    "mountain-car": 1000.0,
    "mountain-car-200": 200.0,
    "puddle-world": 1000.0,
}
"""From a poor return to a good one: the longest episode at ±1 per step; on Cliff World a fall, on Lunar Lander −250 (a
crash) to 250 (a good landing)"""


TOLERANCE = 0.2
"""How far means may differ and still count as insensitive, as a fraction of the domain's scale"""

TOLERANCES = {domain.name: TOLERANCE * SCALES[key] for key, domain in DOMAINS.items()}
"""The same in units of the return, by domain's name"""
