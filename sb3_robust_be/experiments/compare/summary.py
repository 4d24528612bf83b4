"""The numbers of a comparison, and what they say in words."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sb3_robust_be.evaluation import (
    Interval,
    Outcome,
    Verdict,
    brunner_munzel,
    failed,
    greater,
    holm_adjusted,
    lowest_for_failed,
    mean_interval,
    worst_decile_mean,
)
from sb3_robust_be.experiments.control.contenders import Rate
from sb3_robust_be.experiments.plot.run_measures import EPISODES, WHEN
from sb3_robust_be.experiments.setting_text import rate_text
from sb3_robust_be.report import aligned
from sb3_robust_be.report.tables import verdict_number

TITLE = f"{EPISODES}, {WHEN}".capitalize()
MEANING = (
    "Every episode of the last quarter of the steps counts in proportion to its steps there, as the agent played it "
    "while learning and exploring."
)
FEWEST = 5
"""Seeds from which on there are probabilities and tests: with fewer, every interval of a probability can be a point"""


class Row(NamedTuple):
    """One algorithm, by the return of its episodes over the last quarter of the steps."""

    algorithm: str
    learning_rate: Rate | None
    """``None``: that of a recording, which does not say"""
    seeds: int
    mean: Interval
    median: float
    worst_decile: float
    failed: int
    """Seeds that diverged or stopped with an error; they count as the lowest return of all"""
    beats_baseline: Interval | None
    """Probability that a seed of it is above a seed of the baseline; ``None`` for the baseline, and where either has
    fewer than :data:`FEWEST` seeds"""
    unfinished: int = 0
    """Seeds whose return counts the episode in which they stopped, with its return so far"""


def summarise(
    finals: Mapping[str, np.ndarray],
    rates: Mapping[str, Rate | None],
    baseline: str,
    unfinished: Mapping[str, np.ndarray] | None = None,
) -> list[Row]:
    """
    :param finals: Returns by algorithm, shape (seeds,).
    :param rates: Learning rates by algorithm.
    :param baseline: One of the algorithms.
    :param unfinished: By algorithm, which seeds' returns count an episode that had not ended; ``None``: no seed's.
    :return: Rows, the highest mean first.
    """
    scores = lowest_for_failed(finals)
    rows = []
    for name, x in scores.items():
        beats = None
        if name != baseline and min(len(x), len(scores[baseline])) >= FEWEST:
            ranked = {k: np.where(np.isfinite(v), v, -np.inf) for k, v in finals.items()}
            beats = brunner_munzel(ranked[name], ranked[baseline]).interval
        rows.append(
            Row(
                algorithm=name,
                learning_rate=rates[name],
                seeds=len(x),
                mean=mean_interval(x, rng=np.random.default_rng(0)),
                median=float(np.median(x)),
                worst_decile=float(worst_decile_mean(x)),
                failed=int(failed(finals[name]).sum()),
                beats_baseline=beats,
                unfinished=0 if unfinished is None else int(unfinished[name].sum()),
            )
        )
    return sorted(rows, key=lambda row: -row.mean.estimate)


def verdict(rows: list[Row], finals: Mapping[str, np.ndarray], env: str) -> str:
    """One sentence: which differences of means these seeds resolve, and how large they are (Welch's t of all pairs).

    All pairs are one family after Holm.

    :param rows: Of :func:`summarise`.
    :param finals: Returns by algorithm.
    :param env: For the sentence.
    :return: The sentence.
    """
    if all(row.failed == row.seeds for row in rows):
        return f"Every run on {env} has failed: see the errors above, or try a smaller step size."
    if len(rows) == 1:
        return f"{rows[0].algorithm} reaches {rows[0].mean} on {env} ({rows[0].seeds} seeds)."
    resolved, open_pairs = _resolved(rows, lowest_for_failed(finals))
    counts = {row.algorithm: row.seeds for row in rows}
    equal = len(set(counts.values())) == 1
    seeds = f"{rows[0].seeds} seeds" if equal else f"seeds ({', '.join(f'{n} of {a}' for a, n in counts.items())})"
    names = [row.algorithm for row in rows]
    if not resolved:
        return f"No difference between {', '.join(names)} on {env} is resolved by {seeds}."
    means = {row.algorithm: f"{row.mean.estimate:.4g}" for row in rows}
    parts = [
        f"{better} ({means[better]}) is above "
        + " and ".join(f"{other} ({means[other]}; {_difference(found)})" for other, found in worse.items())
        for better, worse in resolved.items()
    ]
    sentence = f"On {env}, over {seeds}: {'; '.join(parts)}"
    undecided = "; ".join(f"{a} and {b}" for a, b in open_pairs)
    return f"{sentence}; not decided: {undecided}." if undecided else f"{sentence}."


def _difference(found: Verdict) -> str:
    return f"{verdict_number(found)}, p = {found.p_value:.1g}"


def _resolved(
    rows: list[Row], scores: Mapping[str, np.ndarray]
) -> tuple[dict[str, dict[str, Verdict]], list[tuple[str, str]]]:
    """By the better algorithm the worse ones with the verdicts, and the pairs that are not resolved."""
    pairs = list(itertools.combinations([row.algorithm for row in rows], 2))
    found = holm_adjusted([greater("", scores[better], scores[worse]) for better, worse in pairs])
    resolved: dict[str, dict[str, Verdict]] = {}
    open_pairs = []
    for (better, worse), own in zip(pairs, found, strict=True):
        if own.outcome is Outcome.HOLDS:
            resolved.setdefault(better, {})[worse] = own
        else:
            open_pairs.append((better, worse))
    return resolved, open_pairs


def as_text(rows: list[Row], baseline: str) -> str:
    """
    :param rows: Of :func:`summarise`.
    :param baseline: Its name.
    :return: A table for a terminal, with a column of unfinished seeds if there are any.
    """
    header = ["", "step size", "seeds", "mean [95 %]", "median", "worst 10 %", "failed", f"P(above {baseline})"]
    body = [header, *([*map(str, _cells(row, baseline))] for row in rows)]
    if any(row.unfinished for row in rows):
        counts = ["unfinished", *(str(row.unfinished) for row in rows)]
        body = [[*line[:-1], count, line[-1]] for line, count in zip(body, counts, strict=True)]
    return aligned(body)


def footnotes(rows: list[Row], baseline: str) -> list[str]:
    """What the columns stand for, where that is not plain.

    :param rows: Of :func:`summarise`.
    :param baseline: Its name.
    :return: Sentences.
    """
    notes = []
    if any(row.beats_baseline is None for row in rows if row.algorithm != baseline):
        notes.append(
            f"Few seeds: fewer than {FEWEST} cannot say how likely one algorithm is above another; raise --seeds."
        )
    if any(row.failed for row in rows):
        notes.append("Failed seeds (diverged, or stopped with an error) count as the lowest return of any seed.")
    if any(row.unfinished for row in rows):
        notes.append(
            "Unfinished: seeds whose last episode had not ended and outlasted all that ended in the last quarter. It "
            "counts with its return so far, a bound: too low where rewards are positive, too high where negative."
        )
    return notes


def described(row: Row) -> dict[str, Any]:
    """
    :param row: Of :func:`summarise`.
    :return: The same for JSON.
    """
    return {
        name: _plain(dataclasses.asdict(value)) if isinstance(value, Interval) else value
        for name, value in _plain(row._asdict()).items()
    }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """``None`` for numbers that are not finite, such as the ends of an interval of one seed: JSON has none."""
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in values.items()}


def _cells(row: Row, baseline: str) -> list[Any]:
    beats = (
        ("–" if row.algorithm == baseline else "few seeds")
        if row.beats_baseline is None
        else f"{row.beats_baseline.estimate:.2f} [{row.beats_baseline.low:.2f}, {row.beats_baseline.high:.2f}]"
    )
    return [
        row.algorithm,
        rate_text(row.learning_rate),
        row.seeds,
        str(row.mean),
        f"{row.median:.4g}",
        f"{row.worst_decile:.4g}",
        row.failed,
        beats,
    ]


def edges(rates: Mapping[str, Rate | None], grid: Sequence[Rate]) -> list[str]:
    """Which chosen step sizes are the smallest or largest of those that there were to choose from.

    :param rates: The chosen ones by algorithm.
    :param grid: In ascending order; fewer than two: nothing was chosen.
    :return: A sentence for each end at which there are any: a better one may lie beyond.
    """
    notes = []
    for end, word, beyond in (
        ((grid[0], "smallest", "smaller"), (grid[-1], "largest", "larger")) if len(grid) > 1 else ()
    ):
        if at := [name for name, rate in rates.items() if rate == end]:
            notes.append(
                f"Warning: the best step size of {' and of '.join(at)} is the {word} of those tried, "
                f"{rate_text(end)}: add {beyond} ones to --learning-rates."
            )
    return notes
