"""The numbers of a comparison, and what they say in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sb3_robust_be.evaluation import (
    Interval,
    Outcome,
    bootstrap_interval,
    failed,
    greater,
    holm,
    probability_of_improvement,
    worst_decile_mean,
)
from sb3_robust_be.experiments.control import lowest_for_failed


class Row(NamedTuple):
    """One algorithm, by its return per step over the last quarter."""

    algorithm: str
    learning_rate: float
    seeds: int
    mean: Interval
    median: float
    worst_decile: float
    failed: int
    """Seeds that diverged or never finished an episode in the last quarter; they count as the lowest return of all"""
    beats_baseline: Interval | None
    """Probability that a seed of it is above a seed of the baseline; ``None`` for the baseline"""


def summarise(finals: Mapping[str, np.ndarray], rates: Mapping[str, float], baseline: str) -> list[Row]:
    """
    :param finals: Returns by algorithm, shape (seeds,).
    :param rates: Learning rates by algorithm.
    :param baseline: One of the algorithms.
    :return: Rows, the highest mean first.
    """
    scores = lowest_for_failed(finals)
    rows = []
    for name, x in scores.items():
        rng = np.random.default_rng(0)
        beats = None
        if name != baseline:
            ranked = {k: np.where(np.isfinite(v), v, -np.inf) for k, v in finals.items()}
            beats = probability_of_improvement(ranked[name], ranked[baseline], rng=rng)
        rows.append(
            Row(
                algorithm=name,
                learning_rate=rates[name],
                seeds=len(x),
                mean=bootstrap_interval(x, np.mean, rng=rng),
                median=float(np.median(x)),
                worst_decile=float(worst_decile_mean(x)),
                failed=int(failed(finals[name]).sum()),
                beats_baseline=beats,
            )
        )
    return sorted(rows, key=lambda row: -row.mean.estimate)


def verdict(rows: list[Row], finals: Mapping[str, np.ndarray], env: str) -> str:
    """One sentence: whether the best mean is resolved from the others (Welch's t, Holm over the others).

    :param rows: Of :func:`summarise`.
    :param finals: Returns by algorithm.
    :param env: For the sentence.
    :return: The sentence.
    """
    best, *others = rows
    if all(row.failed == row.seeds for row in rows):
        return f"Every run on {env} has failed: try a smaller step size, or more steps if no episode has finished."
    if not others:
        return f"{best.algorithm} reaches {best.mean} on {env} ({best.seeds} seeds)."
    scores = lowest_for_failed(finals)
    found = [greater("", scores[best.algorithm], scores[other.algorithm]) for other in others]
    p_values = [1.0 if np.isnan(v.p_value) or v.outcome is not Outcome.HOLDS else v.p_value for v in found]
    adjusted = holm(p_values)
    beaten = [
        f"{other.algorithm} ({other.mean.estimate:.4g}, p = {p:.1g})"
        for other, p in zip(others, adjusted, strict=True)
        if p <= 0.05
    ]
    rest = [other.algorithm for other, p in zip(others, adjusted, strict=True) if p > 0.05]
    seeds = f"{best.seeds} seeds"
    if not beaten:
        names = ", ".join(rest)
        return f"No difference between {best.algorithm} and {names} on {env} is resolved by {seeds}."
    sentence = f"{best.algorithm} ({best.mean.estimate:.4g}) is above {' and '.join(beaten)} on {env} over {seeds}"
    return f"{sentence}; against {', '.join(rest)} {seeds} do not decide." if rest else f"{sentence}."


def as_text(rows: list[Row], baseline: str) -> str:
    """
    :param rows: Of :func:`summarise`.
    :param baseline: Its name.
    :return: A table for a terminal.
    """
    header = ["", "step size", "seeds", "mean [95 %]", "median", "worst 10 %", "failed", f"P(above {baseline})"]
    body = [header, *([*map(str, _cells(row))] for row in rows)]
    widths = [max(len(line[i]) for line in body) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in body
    ]
    return "\n".join(lines)


def _cells(row: Row) -> list[Any]:
    beats = (
        "–"
        if row.beats_baseline is None
        else f"{row.beats_baseline.estimate:.2f} [{row.beats_baseline.low:.2f}, {row.beats_baseline.high:.2f}]"
    )
    return [
        row.algorithm,
        f"{row.learning_rate:.4g}",
        row.seeds,
        f"{row.mean.estimate:.1f} [{row.mean.low:.1f}, {row.mean.high:.1f}]",
        f"{row.median:.1f}",
        f"{row.worst_decile:.1f}",
        row.failed,
        beats,
    ]
