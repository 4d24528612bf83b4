"""Verdicts on errors, of which less is better, over seeds or draws that belong together."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from sb3_robust_be.evaluation.claims import greater
from sb3_robust_be.evaluation.comparisons import Comparison
from sb3_robust_be.evaluation.failures import failed_fraction
from sb3_robust_be.evaluation.intervals import Interval, t_interval
from sb3_robust_be.evaluation.pairs import PAIRED_MEANS
from sb3_robust_be.evaluation.verdicts import Verdict, computed, decide

#: Relative differences below this are rounding, of solvers or of the order of sums.
ROUNDING = 1e-7

Floats = NDArray[np.float64]

_SHARE = "share of seeds with the lower error"
_RATIO = "ratio of errors"


def lower(claim: str, x: ArrayLike, y: ArrayLike, factor: float = 1.0) -> Verdict:
    """The claim "x's mean error is below y's", or below ``1/factor`` of it: a paired t of ``y/factor − x``.

    Where a run diverged there is no mean: then a sign test of ``x < y/factor`` over the seeds, with what diverged above
    every finite error and equal to what diverged too. Its estimate is the share of seeds on which x is lower, among
    those on which the two differ.

    :param x: Shape (seeds,); not finite for a run that diverged.
    :param y: Likewise, of the same seeds.
    """
    first, second = (np.where(np.isfinite(e), e, np.inf) for e in (np.asarray(x, float), np.asarray(y, float)))
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return _lower_on_most_seeds(claim, first, second / factor)
    if np.allclose(first, second, rtol=ROUNDING, atol=0.0):
        return _equal(claim, (1.0 / factor - 1.0) * float(first.mean()), 0.0, PAIRED_MEANS)
    return greater(claim, second / factor, first, method="paired")


def _lower_on_most_seeds(claim: str, x: Floats, y: Floats) -> Verdict:
    """Judge by the signs of pairs without NaN, infinities allowed."""
    differ = ~np.isclose(x, y, rtol=ROUNDING, atol=0.0)
    wins, pairs = int((x < y)[differ].sum()), int(differ.sum())
    if pairs == 0:
        nothing = Interval(0.5, math.nan, math.nan, 0.95, "Clopper–Pearson", "no seed tells the two apart")
        return decide(claim, Comparison("sign", 0.5, nothing, 0.0, 1.0, (len(x),), _SHARE), 0.5)
    share = failed_fraction((x < y)[differ], method="exact")
    p_value = float(scipy.stats.binomtest(wins, pairs).pvalue)
    return decide(claim, Comparison("sign", share.estimate, share, wins, p_value, (len(x),), _SHARE), 0.5)


def lower_ratio(claim: str, x: ArrayLike, y: ArrayLike, factor: float = 1.0) -> Verdict:
    """The claim "y is more than ``factor`` times x", in the geometric mean over draws: a paired t of ``log y − log x``.

    Where the draws make no difference the ratio is exact.

    :param x: Shape (draws,), positive.
    :param y: Likewise, of the same draws.
    :return: With the ratio ``y/x`` as its estimate.
    """
    first, second = np.log(np.asarray(x, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64))
    ratios = second - first
    if np.abs(ratios).max() < ROUNDING:
        return _equal(claim, 1.0, factor, _RATIO)
    if np.ptp(ratios) < ROUNDING:
        return computed(claim, math.exp(ratios[0]), factor, "above", _RATIO)
    found = greater(claim, second, first, method="paired", margin=math.log(factor))
    ratio = exponential(found.interval)
    return replace(found, estimate=ratio.estimate, interval=ratio, quantity=_RATIO, reference=factor)


def _equal(claim: str, value: float, bound: float, quantity: str) -> Verdict:
    exact = computed(claim, value, bound, "above", quantity)
    return replace(exact, reason="the two are equal, but for rounding")


def exponential(interval: Interval) -> Interval:
    """An interval of logarithms as one of their geometric mean."""
    estimate, low, high = map(math.exp, (interval.estimate, interval.low, interval.high))
    return replace(interval, estimate=estimate, low=low, high=high, method=f"{interval.method} of logarithms")


def geometric_mean(values: ArrayLike) -> Interval:
    """With its interval; a number without one where all values are equal but for rounding.

    :param values: Shape (draws,), positive.
    """
    logs = np.log(np.asarray(values, dtype=np.float64))
    if np.ptp(logs) < ROUNDING:
        value = math.exp(logs[0])
        return Interval(value, value, value, 0.95, "exact")
    return exponential(t_interval(logs))
