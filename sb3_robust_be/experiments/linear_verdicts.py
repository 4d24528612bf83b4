"""Verdicts on errors, of which less is better, over seeds or draws that belong together."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_robust_be.evaluation import Interval, Verdict, computed, greater, t_interval

#: Relative differences below this are rounding, of solvers or of the order of sums.
ROUNDING = 1e-7

Floats = NDArray[np.float64]


def lower(claim: str, x: ArrayLike, y: ArrayLike, factor: float = 1.0) -> Verdict:
    """The claim "x's mean error is below y's", or below ``1/factor`` of it: a paired t of ``y/factor − x``.

    :param x: Shape (seeds,). What is not finite, a run that diverged, counts as the largest finite error of both.
    :param y: Likewise, of the same seeds.
    """
    first, second = worst_for_diverged(x, y)
    if np.allclose(first, second, rtol=ROUNDING, atol=0.0):
        return _equal(claim, (1.0 / factor - 1.0) * float(first.mean()), 0.0)
    return greater(claim, second / factor, first, method="paired")


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
        return _equal(claim, 1.0, factor)
    if np.ptp(ratios) < ROUNDING:
        return computed(claim, math.exp(ratios[0]), factor, "above")
    found = greater(claim, second, first, method="paired", margin=math.log(factor))
    return replace(found, estimate=math.exp(found.estimate), interval=exponential(found.interval))


def _equal(claim: str, value: float, bound: float) -> Verdict:
    return replace(computed(claim, value, bound, "above"), reason="the errors are equal, but for rounding")


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


def worst_for_diverged(*errors: ArrayLike) -> list[Floats]:
    """The same with the largest finite of all in place of what is not finite; 1 if none is."""
    arrays = [np.asarray(values, dtype=np.float64) for values in errors]
    finite = np.concatenate([values[np.isfinite(values)] for values in arrays])
    worst = float(finite.max()) if finite.size else 1.0
    return [np.where(np.isfinite(values), values, worst) for values in arrays]
