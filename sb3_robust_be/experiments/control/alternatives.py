"""The table, the figure and the verdicts of the experiment ``robustness``: alternatives against the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.evaluation import (
    Outcome,
    Verdict,
    combined,
    failed,
    greater,
    holm_adjusted,
    insensitive,
    lowest_for_failed,
    mean_interval,
    unresolved_if_lost,
)
from sb3_robust_be.experiments.control.control_analysis import MEASURE

Runs = Mapping[str, np.ndarray]

OURS, SQUARED, REFERENCE = "qrc_huber", "qrc", "dqn"
WORDS = {Outcome.HOLDS: "better", Outcome.DOES_NOT_HOLD: "worse", Outcome.NOT_RESOLVED: "not resolved"}


def base_of(label: str) -> str:
    """The default that an alternative is compared with: the algorithm alone."""
    return label.partition(",")[0]


def alternatives(own: Runs) -> list[str]:
    """The labels of the alternatives: neither a default nor the reference, DQN."""
    return [label for label in own if base_of(label) != label]


def against_default(own: Runs) -> dict[str, Verdict]:
    """Whether each alternative is above its default, one family after Holm.

    :param own: Final returns (runs,) on one domain by label; NaN for runs without one.
    :return: By label, with the interval of the difference of the means.
    """
    ranked = lowest_for_failed(own)
    labels = alternatives(own)
    found = holm_adjusted([greater(label, ranked[label], ranked[base_of(label)]) for label in labels])
    return {
        label: unresolved_if_lost(verdict, own[label], own[base_of(label)])
        for label, verdict in zip(labels, found, strict=True)
    }


def differences_table(finals: Mapping[str, Runs], rates: Mapping[tuple[str, str], float]) -> report.Table:
    """One row per domain, algorithm and variant.

    :param finals: Final returns (runs,) by domain and label; NaN for runs without one.
    :param rates: The step size by domain and label.
    """
    rows: list[dict[str, Any]] = []
    for domain, own in finals.items():
        ranked, compared = lowest_for_failed(own), against_default(own)
        for label in sorted(own, key=lambda one: (OURS, SQUARED, REFERENCE).index(base_of(one))):
            verdict, gone = compared.get(label), failed(own[label])
            variant = label.partition(", ")[2] or ("reference" if label == REFERENCE else "default")
            rows.append(
                {
                    "domain": domain,
                    "algorithm": report.label(base_of(label)),
                    "variant": variant,
                    "mean": None if gone.all() else mean_interval(ranked[label], rng=np.random.default_rng(0)),
                    "difference to the default": verdict.interval if verdict and not gone.all() else None,
                    "p": verdict and verdict.p_value,
                    "verdict": verdict and WORDS[verdict.outcome],
                    "above in": verdict and report.above_in(verdict),
                    "without a return": int(gone.sum()),
                    "seeds": len(own[label]),
                    "step size": f"2^{np.log2(rates[domain, label]):g}",
                }
            )
    caption = (
        f"{MEASURE.capitalize()}, mean over seeds. Differences of means with Welch's interval; the verdict is after "
        "Holm over a domain's rows, and not resolved where more than a tenth of the runs have no return. Cells of "
        "variants without any return are empty. Above in: the share of pairs of runs in which the variant is above the "
        "default, with its own test, which decides nothing."
    )
    return report.Table("differences", rows, caption)


def differences_plot(finals: Mapping[str, Runs], meanings: Mapping[str, str]) -> report.Plot:
    """Bars of the differences with their intervals, a panel per domain.

    :param finals: Final returns (runs,) by domain and label; NaN for runs without one.
    :param meanings: What each alternative is, in words, by name.
    """
    panels: dict[str, dict[str, dict[str, Any]]] = {}
    for domain, own in finals.items():
        groups = panels.setdefault(domain, {})
        for label, verdict in against_default(own).items():
            groups.setdefault(label.partition(", ")[2], {})[base_of(label)] = verdict.interval
    there = {name for groups in panels.values() for name in groups}
    explained = "; ".join(f"{name}: {meaning}" for name, meaning in meanings.items() if name in there)
    caption = (
        f"{MEASURE.capitalize()}. Above 0, the alternative is better than the algorithm's default. Welch's 95 % "
        f"intervals. {explained}."
    )
    return report.bars("alternatives", panels, measure="difference to the default", caption=caption)


def unchanged(domain: str, own: Runs, tolerance: float, stated: tuple[str, ...]) -> Verdict:
    """The claim that no choice which the paper leaves open moves QRC-Huber's mean by more than ``tolerance``.

    :param domain: Its name.
    :param own: Final returns (runs,) there by label; NaN for runs without one.
    :param tolerance: In units of the return.
    :param stated: Variants that depart from what the paper does say.
    """
    ranked, parts = lowest_for_failed(own), []
    for label in alternatives(own):
        variant = label.partition(", ")[2]
        if base_of(label) != OURS or variant in stated:
            continue
        pair = (label, OURS)
        verdict = insensitive(variant, {one: ranked[one] for one in pair}, tolerance)
        if verdict.outcome is Outcome.HOLDS:
            # One value in place of many runs would be like any other.
            verdict = unresolved_if_lost(verdict, *(own[one] for one in pair))
        parts.append(verdict)
    return combined(f"No choice that the paper leaves open changes QRC-Huber's result on {domain}", parts)


def below_reference(claim: str, finals: Mapping[str, Runs], default: str) -> Verdict:
    """The claim that DQN's mean is above that of each alternative of QRC-Huber on the same observations.

    :param claim: In words.
    :param finals: Final returns (runs,) by domain and label; NaN for runs without one.
    :param default: The domain on which QRC-Huber without any alternative is the default and does not count.
    """
    parts = []
    for domain, own in finals.items():
        ranked = lowest_for_failed(own)
        for label in own:
            if base_of(label) == OURS and (domain, label) != (default, OURS):
                part = f"{domain}: DQN's mean is above that of {report.label(label)}"
                verdict = greater(part, ranked[REFERENCE], ranked[label])
                parts.append(unresolved_if_lost(verdict, own[REFERENCE], own[label]))
    return combined(claim, parts)
