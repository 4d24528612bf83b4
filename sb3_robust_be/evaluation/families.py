"""Verdicts of one family, after Holm's correction, and those that too many lost runs leave open."""

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


def holm_adjusted(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Verdicts of one family, with Holm's adjusted p-values; what these no longer support is not resolved.

    A verdict without a p-value (NaN, as of one seed) counts in the family and stays as it is. The intervals stay too:
    each is its own claim's.

    :param verdicts: With the p-values of their tests.
    :return: In the same order.
    """
    n = len(verdicts)
    if n < 2:
        return list(verdicts)
    adjusted = holm([1.0 if np.isnan(verdict.p_value) else verdict.p_value for verdict in verdicts])
    found = []
    for verdict, p in zip(verdicts, adjusted.tolist(), strict=True):
        if np.isnan(verdict.p_value):
            found.append(verdict)
            continue
        verdict = replace(verdict, p_value=p, test=f"{verdict.test}, Holm over {n}")
        if p > 1.0 - verdict.interval.level and verdict.outcome is not Outcome.NOT_RESOLVED:
            verdict = replace(verdict, outcome=Outcome.NOT_RESOLVED, reason=f"p after Holm over {n}")
        found.append(verdict)
    return found


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
    seeds = tuple(map(len, finite))
    if min(seeds) == 0:
        nothing = Interval(math.nan, math.nan, math.nan, 0.95, "none: no runs")
        verdict = Verdict(claim, Outcome.NOT_RESOLVED, math.nan, nothing, "none", math.nan, math.nan, seeds)
    else:
        verdict = judge(claim, *finite, rng=np.random.default_rng(0))
    return unresolved_if_lost(verdict, *samples)
