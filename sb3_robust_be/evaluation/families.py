"""Verdicts of one family, after Holm's correction, and those that too many lost runs leave open.

How single and combined verdicts work together is told in :mod:`~sb3_robust_be.evaluation.verdicts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from sb3_robust_be.evaluation.comparisons import holm
from sb3_robust_be.evaluation.failures import failed
from sb3_robust_be.evaluation.intervals import Interval
from sb3_robust_be.evaluation.verdicts import Outcome, Verdict

LOST = 0.1
"""Share of runs without a return above which the other runs don't speak for all"""


def judged(claims: Sequence[Verdict], comparisons: Sequence[Verdict]) -> list[Verdict]:
    """An experiment's verdicts as they stand: its combined claims, then its single comparisons, each a family of Holm.

    :param claims: Of :func:`~sb3_robust_be.evaluation.verdicts.combined`, made of uncorrected parts.
    :param comparisons: Uncorrected.
    :return: The claims, then the comparisons.
    """
    return [*holm_adjusted(claims), *holm_adjusted(comparisons)]


def holm_adjusted(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Verdicts of one family, with Holm's adjusted p-values; what these no longer support is not resolved.

    A verdict without a p-value (NaN, as of one seed) counts in the family and stays as it is; what was computed exactly
    has nothing to correct, and does not count. The intervals stay too: each is its own claim's. The probabilities of
    improvement that stand beside means are corrected among themselves.

    :param verdicts: With the p-values of their tests.
    :return: In the same order.
    """
    found = list(verdicts)
    tested = [i for i, verdict in enumerate(verdicts) if verdict.seeds]
    n = len(tested)
    if n < 2:
        return found
    for i, p in zip(tested, _adjusted([verdicts[i].p_value for i in tested]), strict=True):
        verdict = verdicts[i]
        if np.isnan(p):
            continue
        verdict = replace(verdict, p_value=p, test=f"{verdict.test}, Holm over {n}")
        if p > 1.0 - verdict.interval.level and verdict.outcome is not Outcome.NOT_RESOLVED:
            verdict = replace(verdict, outcome=Outcome.NOT_RESOLVED, reason=f"p after Holm over {n}")
        found[i] = verdict
    beside = {i: verdict.improvement for i, verdict in enumerate(found) if verdict.improvement is not None}
    p_values = _adjusted([own.p_value for own in beside.values()]) if beside else []
    for (i, own), p in zip(beside.items(), p_values, strict=True):
        found[i] = replace(found[i], improvement=replace(own, p_value=p))
    return found


def _adjusted(p_values: Sequence[float]) -> list[float]:
    """Holm's, where NaN counts as a test that rejects nothing, and stays NaN."""
    given = np.asarray(p_values, dtype=np.float64)
    adjusted: list[float] = np.where(np.isnan(given), np.nan, holm(np.nan_to_num(given, nan=1.0))).tolist()
    return adjusted


def unresolved_if_lost(verdict: Verdict, *samples: np.ndarray) -> Verdict:
    """Not resolved, with the reason, if more than :data:`LOST` of a sample's runs have no return.

    :param verdict: On these samples.
    :param samples: Returns, each (runs,); NaN for runs without one.
    """
    lost = [failed(runs) for runs in samples]
    if max(flags.mean() for flags in lost) <= LOST:
        return verdict
    counts = " and ".join(f"{flags.sum()} of {len(flags)}" for flags in lost)
    return replace(verdict, outcome=Outcome.NOT_RESOLVED, reason=f"{counts} runs have no return")


def of_finite(judge: Callable[..., Verdict], claim: str, *samples: np.ndarray) -> Verdict:
    """A verdict on spread or shape by the runs that have a return: one value in place of the others has no spread.

    :param judge: ``(claim, *samples, rng) -> `` verdict.
    :param claim: In words.
    :param samples: Returns, each (runs,); NaN for runs without one.
    :return: Not resolved where more than a tenth of a sample's runs have none.
    """
    finite = [runs[np.isfinite(runs)] for runs in samples]
    if min(map(len, finite)) == 0:
        verdict = without_runs(claim, *finite)
    else:
        verdict = judge(claim, *finite, rng=np.random.default_rng(0))
    return unresolved_if_lost(verdict, *samples)


def without_runs(claim: str, *samples: np.ndarray, reason: str = "") -> Verdict:
    """Not resolved, since there are not the runs that it could be judged by.

    :param claim: In words.
    :param samples: Each (runs,): those that there are.
    :param reason: Why.
    """
    nothing = Interval(math.nan, math.nan, math.nan, 0.95, "none: no runs")
    seeds = tuple(map(len, samples))
    return Verdict(claim, Outcome.NOT_RESOLVED, math.nan, nothing, "none", math.nan, math.nan, seeds, reason)
