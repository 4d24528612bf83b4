"""The algorithms of the control experiments and the settings that each is tuned over (paper, section 8.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sb3_robust_be.experiments.control.domains import DQN_TARGET
from sb3_robust_be.experiments.control.preset import Contender
from sb3_robust_be.experiments.control.training import LINEAR
from sb3_robust_be.experiments.experiment import Reading

RATES = tuple(2.0**k for k in range(-12, -6))
"""Paper: six step sizes per algorithm, the grid unpublished / Ours: the co-author's range."""
RATES_OF = {"cliff-world": tuple(2.0**k for k in range(-15, -6))}
"""Others on Cliff World, where returns of several algorithms grow again below 2^-12: by the rule of :data:`FURTHER`
only those whose best of :data:`RATES` is at that end would be tried there"""
CLIFF_NOTE = (
    "On Cliff World all have nine step sizes, 2^-15 to 2^-7: below 2^-12 returns of several algorithms grow again."
)
"""Of presets with :data:`RATES_OF`, for reports that no reading tells of it"""
FEW_RATES = tuple(2.0**k for k in (-11, -10, -9))
FURTHER = 3
"""So many step sizes beyond either end are tried where the best lies there, so that nobody has too short a grid"""
LOW_RATES = tuple(2.0**k for k in (-12, -11, -10))
"""For Lunar Lander's wider network"""

Rate = float | Mapping[str, list[float]]
"""A step size, constant or falling, as JSON"""


def falling(start: int, end: int = -13) -> Rate:
    """A step size that falls linearly from ``2^start`` to ``2^end`` over the run.

    :param start: An exponent.
    :param end: Another.
    """
    return {LINEAR: [2.0**start, 2.0**end]}


# A target that is refreshed at every step is none.
REFRESH = (None, 8, 32, 64, 256)
FEW_REFRESH = (None, 8, 64, 256)


QLC_01: dict[str, Any] = {"limit": "magnitude", "policy_kwargs": {"layer_norm": False}}
"""The QLC of 0.1, as the experiments that were made with it ran it"""


def dqn(
    rates: Sequence[float], refresh: Sequence[int | None] = REFRESH, thresholds: Sequence[float] = (1.0, 10.0, math.inf)
) -> Contender:
    """DQN as the paper sweeps it; the threshold ∞ is the squared loss."""
    return Contender(
        "dqn", "dqn", {"learning_rate": rates, "target_update_interval": refresh, "huber_threshold": thresholds}
    )


def dqn_huber(rates: Sequence[float], refresh: Sequence[int | None] = REFRESH) -> Contender:
    """DQN with SB3's loss, whose threshold is 1, alone: within the paper's sweep, its threshold not tuned."""
    return Contender(
        "dqn, Huber loss",
        "dqn",
        {"learning_rate": rates, "target_update_interval": refresh},
        {"huber_threshold": 1.0},
    )


QLC: dict[str, Any] = {"limit": "one_sided", "policy_kwargs": {"layer_norm": True}}
"""QLC as it is by default, but for its learning rate"""
NO_TARGET: dict[str, Any] = {"target_update_interval": None}
SQUARED: dict[str, Any] = {"huber_threshold": math.inf}
LAYER_NORM: dict[str, Any] = {"policy_kwargs": {"layer_norm": True}}

SMOOTH, HARD = "smooth", "hard"


def clipped(algorithm: str, rates: Sequence[float], clip: str) -> Contender:
    """QRC-Huber or GQ-Huber with one of the two readings of the paper's clip.

    :param algorithm: Its name in commands, which is the label of the smooth clip as well: the first reading.
    :param rates: Step sizes.
    :param clip: :data:`SMOOTH`, ``κ tanh(h/κ)``, or :data:`HARD`, h clipped to [−κ, κ].
    """
    label, projection = (algorithm, "smooth_huber") if clip == SMOOTH else (f"{algorithm}, hard clip", "huber")
    return Contender(label, algorithm, {"learning_rate": rates}, {"projection": projection})


def dqn_baselines(rates: Sequence[float], refresh: Sequence[int | None]) -> tuple[Contender, ...]:
    """DQN with the squared loss, with and without a target network, and with layer normalisation.

    :param rates: Step sizes.
    :param refresh: Of the target network, in steps; ``None``, no target network, is a baseline of its own.
    """
    rate, targets = {"learning_rate": rates}, [one for one in refresh if one is not None]
    normalised = {**rate, "target_update_interval": (None, DQN_TARGET), "huber_threshold": (1.0, math.inf)}
    return (
        Contender("dqn, squared loss, target", "dqn", {**rate, "target_update_interval": targets}, SQUARED),
        Contender("dqn, squared loss, no target", "dqn", rate, {**SQUARED, **NO_TARGET}),
        Contender("dqn, layer norm", "dqn", normalised, LAYER_NORM),
    )


RANDOM = Contender(
    "random",
    "dqn",
    {},
    {"exploration_initial_eps": 1.0, "exploration_final_eps": 1.0, "gradient_steps": 0, **NO_TARGET},
)
"""An agent that draws every action and never learns"""


def plain(algorithm: str, rates: Sequence[float]) -> Contender:
    """An algorithm of which the step size alone is chosen, as the paper does for QRC and QRC-Huber."""
    return Contender(algorithm, algorithm, {"learning_rate": rates})


def sbeed(
    rates: Sequence[float],
    refresh: Sequence[int | None] = REFRESH,
    etas: Sequence[float] = (0.01, 0.1, 0.5, 1.0),
    temperatures: Sequence[float] = (0.001, 0.01, 0.1, 1.0),
) -> Contender:
    """SBEED with a target network, as in the paper."""
    return Contender(
        "sbeed",
        "sbeed",
        {"learning_rate": rates, "target_update_interval": refresh, "eta": etas, "temperature": temperatures},
    )


CLIP = Reading(
    "How is h limited?",
    (
        "by τ tanh(h/τ), a twice differentiable estimate of the clip (section 5; caption of the saddlepoint figure)",
        "clipped to [−τ, τ] (equations of sections 5 and 7)",
    ),
    "by τ tanh(h/τ)",
    "the caption says that QRC-Huber and GQ-Huber use a twice differentiable estimate, and section 5 gives this one. "
    "Section 5, on linear prediction, finds the clip itself just as effective and goes on: 'We therefore pursue the "
    "strategy given in Equations [of the clip] for the rest of the paper', which speaks for the other reading. So the "
    "clip stands beside it, a contender of its own; 'just as effective' is judged in control, and not in prediction.",
)
