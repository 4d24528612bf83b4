"""Comparisons of runs paired by (domain, seed), as in the paper's section 8.3; differences are ``x − y``.

The paper tests MinAtar by a paired t and, against DQN, by a bootstrap t; Wilcoxon's signed ranks are added. All are
two-sided.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Mapping

import numpy as np
import scipy
from numpy.typing import ArrayLike

from sb3_robust_be.evaluation.comparisons import Comparison, constant, unknown
from sb3_robust_be.evaluation.intervals import Interval, t_interval
from sb3_robust_be.evaluation.sample_checks import (
    N_RESAMPLES,
    Floats,
    check_count,
    check_generator,
    check_level,
    paired,
)

PAIRED_MEANS = "mean difference of pairs"
PSEUDO_MEDIAN = "pseudo-median of differences"


def paired_t(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> Comparison:
    """Mean difference of pairs, such as (domain, seed): ``t = √n·d̄/s_d`` (paper, section 8.3).

    Of equal differences the spread is unknown, as in :func:`~sb3_robust_be.evaluation.comparisons.welch_t`.

    :param x: Any shape, such as (seeds, domains), finite.
    :param y: The same shape in the same order; :func:`align_runs` makes such arrays from labelled runs.
    """
    first, second = paired(x, y)
    differences = first - second
    interval = t_interval(differences, level)
    seeds = (len(differences),)
    if len(differences) < 2:
        return unknown("paired t", interval.estimate, level, interval.method, seeds, PAIRED_MEANS)
    if differences.min() == differences.max():
        return constant(interval.estimate, level, seeds, PAIRED_MEANS)
    result = scipy.stats.ttest_1samp(differences, 0.0)
    statistic, p_value = float(result.statistic), float(result.pvalue)
    return Comparison("paired t", interval.estimate, interval, statistic, p_value, seeds, PAIRED_MEANS)


def bootstrap_t(
    x: ArrayLike,
    y: ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    n_resamples: int = N_RESAMPLES,
) -> Comparison:
    """Mean difference of pairs by the studentised bootstrap, "which allows for a skewed sampling distribution".

    With ``t*`` the statistic ``(d̄* − d̄)/(s*/√n)`` of a resample of the differences and ``q`` its quantiles, the
    interval is ``[d̄ − q_{1−α/2}·s/√n, d̄ − q_{α/2}·s/√n]`` and ``p`` twice the smaller tail beyond ``t``, counting the
    sample itself (paper, section 8.3; Efron & Tibshirani 1993, section 12.5). scipy has no studentised bootstrap.
    Below about 100 pairs with heavy tails it rejects too often: at 5 %, 7 % of equal pairs for 25.
    """
    check_level(level)
    check_count("n_resamples", n_resamples)
    check_generator(rng)
    first, second = paired(x, y)
    differences = first - second
    n, mean, method = len(differences), float(differences.mean()), "studentised bootstrap"
    if n < 2:
        return unknown("bootstrap t", mean, level, method, (n,), PAIRED_MEANS)
    if differences.min() == differences.max():
        return constant(mean, level, (n,), PAIRED_MEANS)
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    resampled = differences[rng.integers(n, size=(n_resamples, n))]
    deviation = resampled.mean(axis=1) - mean
    errors = resampled.std(axis=1, ddof=1) / math.sqrt(n)
    # A resample of equal differences has no error: its t* is infinite.
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(deviation == 0.0, 0.0, deviation / errors)
    upper, lower = np.quantile(t, [0.5 + 0.5 * level, 0.5 - 0.5 * level], method="closest_observation")
    interval = Interval(mean, float(mean - upper * error), float(mean - lower * error), level, method)
    observed = mean / error
    tail = min(np.count_nonzero(t >= observed), np.count_nonzero(t <= observed))
    p_value = min(1.0, 2.0 * (tail + 1) / (n_resamples + 1))
    return Comparison("bootstrap t", mean, interval, observed, p_value, (n,), PAIRED_MEANS)


def signed_rank(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> Comparison:
    """Hodges and Lehmann's pseudo-median of paired differences, with Wilcoxon's signed-rank test.

    The estimate is the median of the Walsh averages ``(d_i + d_j)/2, i ≤ j``; the ends of the interval are the
    ``k``-th lowest and highest, with ``k`` from the exact null distribution of the rank sum, so it needs no normality
    but symmetry. With too few pairs for the level (under 6 at 95 %) it is infinite.
    """
    check_level(level)
    first, second = paired(x, y)
    differences = first - second
    n = len(differences)
    walsh = np.sort(0.5 * np.add.outer(differences, differences)[np.triu_indices(n)])
    estimate, method = float(np.median(walsh)), "Walsh averages"
    k = int(np.searchsorted(_signed_rank_cdf(n), 0.5 - 0.5 * level, side="right"))
    if k == 0:
        interval = Interval(estimate, -math.inf, math.inf, level, method, f"{n} pairs are too few for this level")
    else:
        interval = Interval(estimate, float(walsh[k - 1]), float(walsh[-k]), level, method)
    if not differences.any():
        return Comparison("Wilcoxon's signed ranks", estimate, interval, 0.0, 1.0, (n,), PSEUDO_MEDIAN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # small samples with ties, for older scipy
        result = scipy.stats.wilcoxon(differences)
    statistic, p_value = float(result.statistic), float(result.pvalue)
    return Comparison("Wilcoxon's signed ranks", estimate, interval, statistic, p_value, (n,), PSEUDO_MEDIAN)


def _signed_rank_cdf(n: int) -> Floats:
    """``P(W ≤ w)``, ``w = 0 … n(n+1)/2``, for a sum of the ranks ``1 … n`` each counted with probability ½."""
    mass = np.zeros(n * (n + 1) // 2 + 1)
    mass[0] = 1.0
    for rank in range(1, n + 1):
        counted = np.concatenate((np.zeros(rank), mass[:-rank]))
        mass = 0.5 * (mass + counted)
    return np.cumsum(mass)


def align_runs(x: Mapping[Hashable, float], y: Mapping[Hashable, float]) -> tuple[Floats, Floats]:
    """The values of two algorithms in one order, from mappings keyed alike, such as by (domain, seed).

    :raises ValueError: A key that only one of them has.
    """
    if lone := x.keys() ^ y.keys():
        key = min(lone, key=str)
        raise ValueError(f"only {'x' if key in x else 'y'} has {key!r}; give both algorithms the same runs.")
    return np.array([x[key] for key in x], dtype=np.float64), np.array([y[key] for key in x], dtype=np.float64)
