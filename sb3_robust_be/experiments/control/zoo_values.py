"""The values that rl_zoo3 has tuned for DQN and QR-DQN, per environment, as arguments of a contender.

From ``hyperparams/dqn.yml`` and ``hyperparams/qrdqn.yml`` of rl_zoo3 (:data:`ZOO_VERSION`). What these files leave to
SB3 is written out where this package's experiments have other values. The numbers of steps are the experiment's.
"""

from __future__ import annotations

from typing import Any

from sb3_robust_be.experiments.control.training import LINEAR

ZOO_VERSION = "2.9.2"
"""Of rl_zoo3, whose files the values are from"""

_SB3_DQN = {"exploration_initial_eps": 1.0, "max_grad_norm": 10.0}
_SB3_QRDQN = {"exploration_initial_eps": 1.0, "max_grad_norm": None}

CART_POLE = {
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1000,
    "gamma": 0.99,
    "target_update_interval": 10,
    "train_freq": 256,
    "gradient_steps": 128,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
    "policy_kwargs": {"net_arch": [256, 256]},
}
MOUNTAIN_CAR = {
    "learning_rate": 4e-3,
    "batch_size": 128,
    "buffer_size": 10_000,
    "learning_starts": 1000,
    "gamma": 0.98,
    "target_update_interval": 600,
    "train_freq": 16,
    "gradient_steps": 8,
    "exploration_fraction": 0.2,
    "exploration_final_eps": 0.07,
    "policy_kwargs": {"net_arch": [256, 256]},
}
ACROBOT = {
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
_LUNAR_LANDER_QRDQN = {
    "learning_rate": {LINEAR: [1.5e-3, 0.0]},
    "batch_size": 128,
    "buffer_size": 100_000,
    "learning_starts": 10_000,
    "gamma": 0.995,
    "target_update_interval": 1,
    "train_freq": 256,
    "gradient_steps": -1,
    "exploration_fraction": 0.24,
    "exploration_final_eps": 0.18,
    "policy_kwargs": {"net_arch": [256, 256], "n_quantiles": 170},
}


def _quantiles(values: dict[str, Any], n_quantiles: int) -> dict[str, Any]:
    return {**values, "policy_kwargs": {**values["policy_kwargs"], "n_quantiles": n_quantiles}}


ZOO_VALUES: dict[str, dict[str, dict[str, Any]]] = {
    "dqn": {
        key: {**_SB3_DQN, **values}
        for key, values in {
            "acrobot": ACROBOT,
            "cart-pole": CART_POLE,
            "lunar-lander": ACROBOT,
            "mountain-car-200": MOUNTAIN_CAR,
        }.items()
    },
    "qrdqn": {
        key: {**_SB3_QRDQN, **values}
        for key, values in {
            "acrobot": _quantiles(ACROBOT, 25),
            "cart-pole": _quantiles(CART_POLE, 10),
            "lunar-lander": _LUNAR_LANDER_QRDQN,
            "mountain-car-200": _quantiles(MOUNTAIN_CAR, 25),
        }.items()
    },
}
"""Arguments by algorithm and key of a domain"""
