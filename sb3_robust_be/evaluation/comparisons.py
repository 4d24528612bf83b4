"""Comparisons of two algorithms on independent seeds, each with an estimate, an interval and a two-sided test.

Welch's t for means, the probability of improvement with Mann and Whitney's U for order; Holm's correction where many
are made. Runs that belong together are in :mod:`~sb3_robust_be.evaluation.pairs`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from sb3_robust_be.evaluation.bootstrap import bootstrap_samples
from sb3_robust_be.evaluation.intervals import Interval
from sb3_robust_be.evaluation.sample_checks import (
    N_RESAMPLES,
    Floats,
    check_level,
    sample,
    strata,
)


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    :param test: Its name.
    :param estimate: Of the effect, in the units of ``interval``.
    :param interval: Confidence interval of the effect.
    :param statistic: The test's, such as ``t`` or ``U``.
    :param p_value: Two-sided.
    :param seeds: Runs of each sample; one number for pairs.
    """

    test: str
    estimate: float
    interval: Interval
    statistic: float
    p_value: float
    seeds: tuple[int, ...]


def welch_t(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> Comparison:
    """Difference of the means of independent samples whose variances may differ (Welch, 1947).

    If both samples are constant the limit is given: ``t = ±∞`` and ``p = 0`` for different values, else 0 and 1.

    :param x: Shape (runs,), finite.
    :param y: Shape (other runs,), finite.
    """
    check_level(level)
    first, second = sample("x", x), sample("y", y)
    seeds = (len(first), len(second))
    difference = float(first.mean() - second.mean())
    if min(seeds) < 2:
        return unknown("Welch's t", difference, level, "Welch's t", seeds)
    if first.min() == first.max() and second.min() == second.max():
        return constant("Welch's t", difference, level, "Welch's t", seeds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one constant sample is fine here
        result = scipy.stats.ttest_ind(first, second, equal_var=False)
        low, high = map(float, result.confidence_interval(level))
    interval = Interval(difference, low, high, level, "Welch's t")
    return Comparison("Welch's t", difference, interval, float(result.statistic), float(result.pvalue), seeds)


def probability_of_improvement(
    x: ArrayLike | Mapping[str, ArrayLike],
    y: ArrayLike | Mapping[str, ArrayLike],
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    method: str = "percentile",
    n_resamples: int = N_RESAMPLES,
) -> Interval:
    """``P(X > Y) + ½P(X = Y)`` of independent runs, averaged over games; the bootstrap is stratified by game.

    Per game it is ``U/(n_x·n_y)`` with Mann and Whitney's ``U`` (Agarwal et al., 2021). Only the order of the runs
    matters, so infinities are allowed: ``−inf`` for a run that diverged. Where all of x lies on one side of all of y
    the interval is the point 0 or 1, which says nothing about unseen runs: judge such a case by a test.

    :param x: Shape (runs,), or that for each game.
    :param y: Shape (other runs,), or that for the same games.
    :raises ValueError: Bad values, or different games.
    """
    first, second = strata("x", x, infinite=True), strata("y", y, infinite=True)
    if first.keys() != second.keys():
        raise ValueError(f"x has the games {sorted(first)} and y {sorted(second)}; give the same games.")
    games = list(first)

    def improvement(*samples: Floats, axis: int) -> Any:
        of_x, of_y = samples[: len(games)], samples[len(games) :]
        return np.mean([_improvement(a, b, axis) for a, b in zip(of_x, of_y, strict=True)], axis=0)

    samples = [first[game] for game in games] + [second[game] for game in games]
    return bootstrap_samples(samples, improvement, rng=rng, level=level, method=method, n_resamples=n_resamples)


def _improvement(x: Floats, y: Floats, axis: int) -> Any:
    """``U/(n_x·n_y)`` along the last axis, from the rank sum of x: ``U = R_x − n_x(n_x+1)/2``, mid-ranks for ties."""
    n, m = x.shape[axis], y.shape[axis]
    ranks = scipy.stats.rankdata(np.concatenate((x, y), axis=axis), axis=axis)
    rank_sum = np.take(ranks, range(n), axis=axis).sum(axis=axis)
    return (rank_sum - 0.5 * n * (n + 1)) / (n * m)


def mann_whitney(
    x: ArrayLike,
    y: ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    n_resamples: int = N_RESAMPLES,
) -> Comparison:
    """:func:`probability_of_improvement` in one domain with Mann and Whitney's test that the samples are alike."""
    first, second = sample("x", x, infinite=True), sample("y", y, infinite=True)
    interval = probability_of_improvement(first, second, rng=rng, level=level, n_resamples=n_resamples)
    pooled = np.concatenate((first, second))
    seeds = (len(first), len(second))
    if pooled.min() == pooled.max():
        return Comparison("Mann–Whitney U", interval.estimate, interval, 0.5 * seeds[0] * seeds[1], 1.0, seeds)
    result = scipy.stats.mannwhitneyu(first, second, alternative="two-sided")
    return Comparison(
        "Mann–Whitney U", interval.estimate, interval, float(result.statistic), float(result.pvalue), seeds
    )


def holm(p_values: ArrayLike) -> Floats:
    """Holm's (1979) adjusted p-values: ``p̃_(i) = max_{j ≤ i} min(1, (m − j + 1)·p_(j))``, in the order given.

    Rejecting where ``p̃ ≤ α`` bounds the chance of any false rejection among the ``m`` by ``α``.

    :param p_values: Shape (tests,), in [0, 1].
    """
    p = sample("p_values", p_values)
    if p.min() < 0.0 or p.max() > 1.0:
        raise ValueError(f"p_values range from {p.min():g} to {p.max():g}; give probabilities.")
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(p), 0, -1)))
    adjusted = np.empty_like(p)
    adjusted[order] = steps
    return adjusted


def unknown(test: str, estimate: float, level: float, method: str, seeds: tuple[int, ...]) -> Comparison:
    """One run in a sample: no spread, so neither interval nor test."""
    interval = Interval(estimate, math.nan, math.nan, level, method, "one run has no spread")
    return Comparison(test, estimate, interval, math.nan, math.nan, seeds)


def constant(test: str, difference: float, level: float, method: str, seeds: tuple[int, ...]) -> Comparison:
    """The limit of a t test as the spread goes to zero."""
    interval = Interval(difference, difference, difference, level, method, "all runs are equal")
    statistic = math.copysign(math.inf, difference) if difference else 0.0
    return Comparison(test, difference, interval, statistic, 0.0 if difference else 1.0, seeds)
