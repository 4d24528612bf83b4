"""Verdicts on whether QRC-Huber needs its threshold to be tuned, and on the paper's default of 1."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sb3_robust_be.evaluation import Outcome, Verdict, greater, insensitive, lowest_for_failed, unresolved_if_lost
from sb3_robust_be.experiments.rendering import Rendering, combined_if_any

DEFAULT = "κ = 1"


def insensitive_if_found(claim: str, own: Mapping[str, np.ndarray], tolerance: float) -> Verdict:
    """The claim that the means differ by at most ``tolerance``, which lost runs can refute but not support.

    :param claim: In words.
    :param own: Final returns (runs,) on one domain by threshold; NaN for runs without one.
    :param tolerance: In units of the return.
    """
    verdict = insensitive(claim, lowest_for_failed(own), tolerance)
    # One value in place of many runs would be insensitive to anything.
    return unresolved_if_lost(verdict, *own.values()) if verdict.outcome is Outcome.HOLDS else verdict


def robust_to_threshold(
    finals: Mapping[str, Mapping[str, np.ndarray]], tolerances: Mapping[str, float], where: str, ending: str = ""
) -> Rendering:
    """The paper's sentence on thresholds: that any does, and that 1 is a good choice.

    :param finals: Final returns (runs,) by domain's name and threshold, as ``"κ = 1"``; NaN for runs without one.
    :param tolerances: How far means may differ, in units of the return, by domain's name.
    :param where: These domains in words, such as ``"on Cliff World"``.
    :param ending: Of the thresholds' labels, where another clip than the smooth one limits h.
    """
    flat, good, default = [], [], f"{DEFAULT}{ending}"
    for name, own in finals.items():
        tolerance, means = tolerances[name], lowest_for_failed(own)
        claim = f"{name}: the mean changes by at most {tolerance:g} over κ{ending}"
        flat.append(insensitive_if_found(claim, own, tolerance))
        good += [
            greater(
                f"{name}: {default} is at most {tolerance:g} below {label}",
                means[default],
                means[label],
                margin=-tolerance,
            )
            for label in means
            if default in means and label != default
        ]
    return Rendering(
        "For three of the domains, QRC-Huber is robust to the choice of threshold parameter with a default value of "
        "τ = 1 being a good choice.",
        [
            *combined_if_any(f"Insensitive to κ{ending} {where}", flat),
            *combined_if_any(f"{default} is at most a fifth of the scale below any other there", good),
        ],
        [*flat, *good],
    )
