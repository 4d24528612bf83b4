"""Comparisons of two algorithms on independent seeds, each with an estimate, an interval and a two-sided test.

Welch's t for means, the probability of improvement with Brunner and Munzel's test for order; Holm's correction where
many are made. Runs that belong together are in :mod:`~sb3_robust_be.evaluation.pairs`.
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

from sb3_robust_be.evaluation.attainable import attainable_p
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
    :param seeds: Independent runs of each sample; one number for pairs.
    :param quantity: What the effect is, such as "difference of means".
    """

    test: str
    estimate: float
    interval: Interval
    statistic: float
    p_value: float
    seeds: tuple[int, ...]
    quantity: str


MEANS = "difference of means"
IMPROVEMENT = "probability of improvement"


def welch_t(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> Comparison:
    """Difference of the means of independent samples whose variances may differ (Welch, 1947).

    If both samples are constant nothing is known of their spread: then the interval is a point whose ``note`` says so,
    and the p-value that of exchanging the runs, :func:`~sb3_robust_be.evaluation.attainable.attainable_p`.

    Of samples of one shape a nominal 95 % interval covers in 0.95 of simulated experiments or more, with five runs each
    as with thirty. Where one is normal and of the other a tenth of the runs fails, ten standard deviations below
    the rest, it is 0.84 with five, 0.80 with ten and 0.92 with thirty: of ten such runs none fails in 35 %.

    :param x: Shape (runs,), finite.
    :param y: Shape (other runs,), finite.
    """
    check_level(level)
    first, second = sample("x", x), sample("y", y)
    seeds = (len(first), len(second))
    difference = float(first.mean() - second.mean())
    if min(seeds) < 2:
        return unknown("Welch's t", difference, level, "Welch's t", seeds, MEANS)
    if first.min() == first.max() and second.min() == second.max():
        return constant(difference, level, seeds, MEANS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one constant sample is fine here
        result = scipy.stats.ttest_ind(first, second, equal_var=False)
        low, high = map(float, result.confidence_interval(level))
    interval = Interval(difference, low, high, level, "Welch's t")
    return Comparison("Welch's t", difference, interval, float(result.statistic), float(result.pvalue), seeds, MEANS)


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


def brunner_munzel(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> Comparison:
    """How probable it is that a run of x is above one of y, ``P(X > Y) + ½P(X = Y)``, and whether that is not ½.

    The test is Brunner and Munzel's (2000). Mann and Whitney's asks whether the distributions are alike: it calls a
    narrow and a bimodal sample with a probability of ½ different in 10 % of experiments with 30 runs each, where this
    one does in 4 %. No p-value is below that of exchanging the runs. The interval is Student's of the logit, with the
    variance and the degrees of freedom of the test.

    Where all of x lies on one side of all of y, these have no variance. Then the runs are matched at random in as many
    pairs as there are, of which every one says the same: the interval is Wilson's of their fraction, and the p-value
    that of exchanging the runs.

    :param x: Shape (runs,); infinities are allowed, ``-inf`` for a run that diverged.
    :param y: Shape (other runs,), likewise.
    """
    check_level(level)
    first, second = sample("x", x, infinite=True), sample("y", y, infinite=True)
    seeds, test, method = (len(first), len(second)), "Brunner–Munzel", "logit of Brunner–Munzel"
    estimate = float(_improvement(first, second, -1))
    if min(seeds) < 2:
        return unknown(test, estimate, level, method, seeds, IMPROVEMENT)
    # The share of the other sample below each run, less what chance would have it be within its own sample.
    below = [
        (a[:, None] > b).mean(axis=1) + 0.5 * (a[:, None] == b).mean(axis=1)
        for a, b in ((first, second), (second, first))
    ]
    variances = np.array([shares.var(ddof=1) / len(shares) for shares in below])
    if not variances.any():
        return _separated(estimate, level, seeds)
    result = scipy.stats.brunnermunzel(first, second)
    degrees = variances.sum() ** 2 / np.sum(variances**2 / (np.array(seeds) - 1))
    half = scipy.stats.t.ppf(0.5 + 0.5 * level, degrees) * math.sqrt(variances.sum()) / (estimate * (1.0 - estimate))
    low, high = scipy.special.expit(scipy.special.logit(estimate) + np.array([-half, half])).tolist()
    interval = Interval(estimate, low, high, level, method)
    # scipy's statistic is that of the second sample. Far out its t approximation promises more than so few runs can.
    statistic, p_value = -float(result.statistic), max(float(result.pvalue), attainable_p(*seeds))
    return Comparison(test, estimate, interval, statistic, p_value, seeds, IMPROVEMENT)


def _separated(estimate: float, level: float, seeds: tuple[int, int]) -> Comparison:
    """All of one sample on one side of the other, or every run equal to every other."""
    if estimate == 0.5:
        nothing = Interval(0.5, math.nan, math.nan, level, "none", "all runs are equal")
        return Comparison("exchange of runs", 0.5, nothing, math.nan, 1.0, seeds, IMPROVEMENT)
    pairs = min(seeds)
    ends = scipy.stats.binomtest(round(estimate) * pairs, pairs).proportion_ci(level, method="wilson")
    note = "all of one sample is above all of the other"
    interval = Interval(estimate, float(ends.low), float(ends.high), level, "Wilson score of disjoint pairs", note)
    return Comparison("exchange of runs", estimate, interval, math.nan, attainable_p(*seeds), seeds, IMPROVEMENT)


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


def unknown(test: str, estimate: float, level: float, method: str, seeds: tuple[int, ...], quantity: str) -> Comparison:
    """One run in a sample: no spread, so neither interval nor test."""
    interval = Interval(estimate, math.nan, math.nan, level, method, "one run has no spread")
    return Comparison(test, estimate, interval, math.nan, math.nan, seeds, quantity)


def constant(difference: float, level: float, seeds: tuple[int, ...], quantity: str) -> Comparison:
    """Equal runs on each side, or equal differences: only exchanging runs, or signs, tests them."""
    note = "no spread: the runs of each side are equal" if len(seeds) == 2 else "no spread: all differences are equal"
    interval = Interval(difference, difference, difference, level, "none", note)
    p_value = attainable_p(*seeds) if difference else 1.0
    return Comparison("exchange of runs", difference, interval, math.nan, p_value, seeds, quantity)
