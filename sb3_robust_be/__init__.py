"""Robust Bellman-error algorithms for Stable-Baselines3.

``from sb3_robust_be import QLC`` is all a DQN user changes. Names load on first use, because importing
Stable-Baselines3 takes seconds; importing the package registers its environments with gymnasium.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sb3_robust_be import registry
from sb3_robust_be.envs import register_envs

if TYPE_CHECKING:
    from sb3_robust_be.envs.action_masks import TerminalActionMasks
    from sb3_robust_be.hub import load_from_hub, push_to_hub
    from sb3_robust_be.population import Population, SquaredDQN
    from sb3_robust_be.pretrained import load_pretrained
    from sb3_robust_be.qrc import GQ, QLC, QRC, GQHuber, LayerNormExtractor, MinAtarCNN, QRCHuber
    from sb3_robust_be.sbeed import SBEED

__version__ = "0.1.0"

_HOME = {
    "LayerNormExtractor": "sb3_robust_be.qrc",
    "MinAtarCNN": "sb3_robust_be.qrc",
    "Population": "sb3_robust_be.population",
    "TerminalActionMasks": "sb3_robust_be.envs.action_masks",
    "load_from_hub": "sb3_robust_be.hub",
    "load_pretrained": "sb3_robust_be.pretrained",
    "push_to_hub": "sb3_robust_be.hub",
    **{e.class_name: e.module for e in registry.ENTRIES.values() if e.module.startswith(__name__)},
}

__all__ = [
    "GQ",
    "QLC",
    "QRC",
    "SBEED",
    "GQHuber",
    "LayerNormExtractor",
    "MinAtarCNN",
    "Population",
    "QRCHuber",
    "SquaredDQN",
    "TerminalActionMasks",
    "__version__",
    "load_from_hub",
    "load_pretrained",
    "push_to_hub",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


register_envs()
