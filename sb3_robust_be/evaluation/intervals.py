"""Summaries of a sample of runs, one value per seed, and what an interval is.

The interquartile mean is Agarwal et al.'s ("Deep Reinforcement Learning at the Edge of the Statistical Precipice",
2021); everything else is textbook. All take an ``axis``, so that :mod:`~sb3_robust_be.evaluation.bootstrap` can apply
them to many resamples at once. Higher is better throughout: negate errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from sb3_robust_be.evaluation.sample_checks import check_level, sample


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval.

    :param estimate: The statistic of the sample.
    :param low: Lower end; NaN or ``−inf`` where the sample is too small for one.
    :param high: Upper end.
    :param level: Nominal coverage.
    :param method: How the interval was made, such as ``"BCa bootstrap"``.
    :param note: Why the interval is degenerate or made by another method than was asked for; else empty.
    """

    estimate: float
    low: float
    high: float
    level: float
    method: str
    note: str = ""

    def above(self, value: float) -> bool:
        """Whether the whole interval lies above ``value``; never if an end is NaN."""
        return self.low > value and self.high > value

    def below(self, value: float) -> bool:
        """Whether the whole interval lies below ``value``; never if an end is NaN."""
        return self.low < value and self.high < value

    def __str__(self) -> str:
        return f"{self.estimate:.4g} [{self.low:.4g}, {self.high:.4g}]"


class MeanError(NamedTuple):
    """Mean and standard error, both floats or both arrays."""

    mean: Any
    standard_error: Any


def mean_error(values: ArrayLike, axis: int = -1) -> MeanError:
    """``mean ± s/√n`` along ``axis``, with ``s`` the sample standard deviation (divisor ``n − 1``).

    NaN, as for a point of a learning curve that a seed never reached, stays NaN. One run has a NaN error.

    :raises ValueError: Nothing along ``axis``.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or array.shape[axis] == 0:
        raise ValueError(f"values has shape {array.shape}; give at least one run along axis {axis}.")
    runs = array.shape[axis]
    mean = array.mean(axis=axis)
    if runs == 1:
        return MeanError(mean, np.full_like(mean, np.nan)[()])
    return MeanError(mean, array.std(axis=axis, ddof=1) / math.sqrt(runs))


def iqm(values: ArrayLike, axis: int = -1) -> Any:
    """Interquartile mean: the mean without the ``⌊n/4⌋`` lowest and highest values; the mean for ``n < 4``."""
    array = np.sort(np.asarray(values, dtype=np.float64), axis=axis)
    runs = array.shape[axis]
    return np.take(array, range(runs // 4, runs - runs // 4), axis=axis).mean(axis=axis)


def worst_decile_mean(values: ArrayLike, axis: int = -1) -> Any:
    """Mean of the ``max(1, ⌊n/10⌋)`` lowest values: how bad it gets in one run out of ten.

    It rests on a tenth of the runs: a 95 % bootstrap interval of it covers in about 92 % of cases for 150 runs.
    """
    array = np.sort(np.asarray(values, dtype=np.float64), axis=axis)
    worst = max(1, array.shape[axis] // 10)
    return np.take(array, range(worst), axis=axis).mean(axis=axis)


def t_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Student's interval of the mean, ``mean ± t_{n−1}·s/√n``.

    One run gives a NaN interval, constant values their value.

    :param values: Shape (runs,), finite.
    :raises ValueError: Bad values or level.
    """
    check_level(level)
    runs = sample("values", values)
    method = "Student's t"
    mean, error = mean_error(runs)
    if len(runs) == 1:
        return Interval(float(mean), math.nan, math.nan, level, method, "one run has no spread")
    if runs.min() == runs.max():
        return Interval(float(runs[0]), float(runs[0]), float(runs[0]), level, method, "all runs are equal")
    half = float(scipy.stats.t.ppf(0.5 + 0.5 * level, len(runs) - 1) * error)
    return Interval(float(mean), float(mean) - half, float(mean) + half, level, method)
