"""The paper's experiments, and those of ours that explain them, each in a module of its own; loaded by name."""

from __future__ import annotations

import importlib

from sb3_robust_be.experiments.experiment import Experiment
from sb3_robust_be.messages import did_you_mean

__all__ = ["load_declared", "names"]

_HOMES = {
    "objectives": "objectives_over_weight",
    "fixed-points": "fixed_points_of_objectives",
    "projected-fixed-points": "projected_fixed_points",
    "projected-losses": "projected_losses",
    "prediction": "prediction",
    "control": "control",
    "target-networks": "target_networks",
    "threshold": "threshold",
    "saddlepoint": "saddlepoint",
    "minatar": "minatar",
    "minatar-population": "minatar_population",
    "cliff-maps": "cliff_maps",
    "robustness": "robustness",
    "ingredients": "ingredients",
    "one-setting": "one_setting",
    "drop-in": "drop_in",
    "defaults": "defaults",
    "falling-rate": "falling_rate",
}


def names() -> tuple[str, ...]:
    """
    :return: In the paper's order.
    """
    return tuple(_HOMES)


def load_declared(name: str) -> Experiment:
    """
    :param name: One of :func:`names`.
    :return: The experiment.
    :raises ValueError: If there is none of that name.
    """
    if name not in _HOMES:
        raise ValueError(
            f"{name!r} is no experiment.{did_you_mean(name, _HOMES)} There are {', '.join(_HOMES)}, and files that end "
            "in .py or .yml."
        )
    found: Experiment = importlib.import_module(f"{__name__}.{_HOMES[name]}").EXPERIMENT
    return found
