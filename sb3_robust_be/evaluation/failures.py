"""Failed seeds: which they are, their fraction, and whether one algorithm fails more often than another."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from sb3_robust_be.evaluation.comparisons import Comparison
from sb3_robust_be.evaluation.intervals import Interval
from sb3_robust_be.evaluation.sample_checks import check_choice, check_level

Flags = NDArray[np.bool_]
#: scipy's names of Wilson's score interval and of Clopper and Pearson's.
FRACTION_METHODS: tuple[str, ...] = ("wilson", "exact")


def failed(values: ArrayLike, *, below: float | None = None, marked: ArrayLike | None = None) -> Flags:
    """Whether each run failed: its value is not finite, lies below a threshold, or the run is marked.

    :param values: Shape (runs,); NaN or infinite for a run that diverged or stopped with an error.
    :param below: Values less than this are failures; ``None``: no finite value is.
    :param marked: Booleans (runs,): runs known to have failed, whatever their value.
    """
    runs = np.asarray(values, dtype=np.float64)
    if runs.ndim != 1 or runs.size == 0:
        raise ValueError(f"values has shape {runs.shape}; give one value per run, shape (runs,).")
    flags: Flags = ~np.isfinite(runs)
    if below is not None:
        if math.isnan(below):
            raise ValueError("below is nan; give a threshold.")
        flags |= runs < below
    if marked is not None:
        flags |= _flags("marked", marked, runs.size)
    return flags


def failed_fraction(failures: ArrayLike, level: float = 0.95, method: str = "wilson") -> Interval:
    """Fraction of failed seeds with a binomial interval; one seed is enough for it, if a wide one.

    :param failures: Booleans (runs,), from :func:`failed`.
    :param method: ``"wilson"``, nominal coverage on average, or ``"exact"`` (Clopper–Pearson), at least nominal always.
    """
    check_level(level)
    check_choice("method", method, FRACTION_METHODS)
    flags = _flags("failures", failures)
    ends = scipy.stats.binomtest(int(flags.sum()), flags.size).proportion_ci(level, method=method)
    name = "Wilson score" if method == "wilson" else "Clopper–Pearson"
    return Interval(float(flags.mean()), float(ends.low), float(ends.high), level, name)


def failed_difference(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> Comparison:
    """Difference of two fractions of failed seeds, with Newcombe's (1998, method 10) interval and Fisher's exact test.

    From the Wilson intervals ``[l, u]`` of both: ``d − √((p_x−l_x)² + (u_y−p_y)²)`` to ``d + √((u_x−p_x)² +
    (p_y−l_y)²)``. The statistic is the sample's odds ratio.

    :param x: Booleans (runs,).
    :param y: Booleans (other runs,).
    """
    first, second = _flags("x", x), _flags("y", y)
    of_x, of_y = failed_fraction(first, level), failed_fraction(second, level)
    p, q = of_x.estimate, of_y.estimate
    low = p - q - math.hypot(p - of_x.low, of_y.high - q)
    high = p - q + math.hypot(of_x.high - p, q - of_y.low)
    table = [[int(flags.sum()), int((~flags).sum())] for flags in (first, second)]
    statistic, p_value = scipy.stats.fisher_exact(table)
    interval = Interval(p - q, low, high, level, "Newcombe score")
    seeds, quantity = (first.size, second.size), "difference of fractions"
    return Comparison("Fisher's exact", p - q, interval, float(statistic), float(p_value), seeds, quantity)


def _flags(name: str, values: ArrayLike, runs: int | None = None) -> Flags:
    flags = np.asarray(values)
    if flags.ndim != 1 or flags.size == 0 or (runs is not None and flags.size != runs):
        raise ValueError(f"{name} has shape {flags.shape}; give one boolean per run{f', of {runs}' if runs else ''}.")
    if flags.dtype != np.bool_:
        raise ValueError(f"{name} holds {flags.dtype}; give booleans, as failed() makes.")
    return flags


def lowest_for_failed(finals: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """
    :param finals: Returns by algorithm, on one environment; NaN for runs without one.
    :return: The same with the lowest return of any run in place of NaN; 0 if there is none at all.
    """
    everything = np.concatenate(list(finals.values()))
    finite = everything[np.isfinite(everything)]
    lowest = finite.min() if finite.size else 0.0
    return {name: np.where(np.isfinite(x), x, lowest) for name, x in finals.items()}
