"""Bootstrap intervals of any statistic, whole or stratified by game (Efron & Tibshirani, 1993).

Stratified means that every game's runs are resampled among themselves, so each resample has the runs per game of the
original, as in Agarwal et al. (2021). scipy does the work: independent samples of one statistic are strata.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from sb3_robust_be.evaluation.intervals import Interval
from sb3_robust_be.evaluation.sample_checks import (
    N_RESAMPLES,
    Floats,
    check_choice,
    check_count,
    check_generator,
    check_level,
    generator_argument,
    quantities,
    run_curves,
    sample,
)

METHODS: tuple[str, ...] = ("BCa", "percentile")
#: Numbers resampled at once. Of one sample 1.6 MB, about what a core's own cache holds: it takes two thirds of the time
#: of 16 MB, and its draws are the same for any size. Several samples draw in turns of a batch, so that their intervals
#: depend on it.
BATCH_NUMBERS, BATCH_NUMBERS_OF_SEVERAL = 200_000, 2_000_000


def bootstrap_interval(
    values: ArrayLike,
    statistic: Callable[..., Any] = np.mean,
    *,
    rng: np.random.Generator,
    groups: Sequence[Any] | None = None,
    level: float = 0.95,
    method: str = "BCa",
    n_resamples: int = N_RESAMPLES,
) -> Interval:
    """Interval of ``statistic(values, axis=-1)``.

    :param values: Shape (runs,), finite.
    :param statistic: ``(values, axis) -> number(s)``, such as ``np.median``, ``iqm`` or ``worst_decile_mean``; it may
        not depend on the order of the runs.
    :param groups: The game of each run, shape (runs,): resampling stays within a game. ``None``: all are alike.
    :param method: ``"BCa"``, bias-corrected and accelerated, or ``"percentile"``.
    :raises ValueError: Bad values, groups, level, method or number of resamples.
    :return: See :func:`bootstrap_samples` for what degenerate samples give.
    """
    runs = sample("values", values)
    if groups is None:
        return bootstrap_samples([runs], statistic, rng=rng, level=level, method=method, n_resamples=n_resamples)
    labels = np.asarray(groups)
    if labels.shape != runs.shape:
        raise ValueError(f"groups has shape {labels.shape} for values {runs.shape}; give one group per run.")
    parts = [runs[labels == label] for label in np.unique(labels)]

    def pooled(*resampled: Floats, axis: int) -> Any:
        return statistic(np.concatenate(resampled, axis=axis), axis=axis)

    return bootstrap_samples(parts, pooled, rng=rng, level=level, method=method, n_resamples=n_resamples)


def bootstrap_samples(
    samples: Sequence[Floats],
    statistic: Callable[..., Any],
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    method: str = "BCa",
    n_resamples: int = N_RESAMPLES,
) -> Interval:
    """Interval of ``statistic(*samples, axis=-1)``, each sample resampled independently of the others.

    Degenerate samples: one run in a sample gives a NaN interval, since a single run has no spread to resample. If all
    resamples agree, as those of constant data do, the interval is the point. Where BCa is undefined (its correction
    needs a statistic that changes when a run is left out) the percentile interval stands in. ``note`` says so.

    :param samples: Arrays (runs,), finite or at least without NaN.
    :param statistic: ``(*samples, axis) -> number(s)``.
    """
    check_level(level)
    check_choice("method", method, METHODS)
    check_count("n_resamples", n_resamples)
    check_generator(rng)
    estimate = float(statistic(*samples, axis=-1))
    name = f"{method} bootstrap"
    if min(map(len, samples)) < 2:
        return Interval(estimate, math.nan, math.nan, level, name, "one run has no spread to resample")
    result = _resampled(samples, statistic, rng, level, method, n_resamples)
    low, high = map(float, result.confidence_interval)
    return _interval(estimate, result.bootstrap_distribution, low, high, level, method)


def bootstrap_means(
    values: ArrayLike, *, rng: np.random.Generator, level: float = 0.95, n_resamples: int = N_RESAMPLES
) -> list[Interval]:
    """BCa intervals of the means of several quantities of the same runs, which are resampled together.

    It is as if each had its own :func:`bootstrap_interval` with the same resamples, for a fraction of the time.

    :param values: Shape (quantities, runs), finite.
    :return: One per quantity; see :func:`bootstrap_samples` for what degenerate ones give.
    :raises ValueError: Bad values, level or number of resamples.
    """
    check_level(level)
    check_count("n_resamples", n_resamples)
    check_generator(rng)
    array = quantities(values)
    if min(array.shape) < 2:
        return [bootstrap_samples([row], np.mean, rng=rng, level=level, n_resamples=n_resamples) for row in array]
    by_run = np.ascontiguousarray(array.T)

    def means(drawn: NDArray[np.intp], axis: int) -> Floats:
        """Of resamples of the runs' numbers, shape (…, runs): (quantities, …)."""
        if drawn.ndim == 1:  # every run once
            return np.asarray(array.mean(axis=axis))
        # Run after run, which is the order in which numpy adds as well, but without a copy of all resampled values.
        first, *others = drawn.T
        total = by_run.take(first, axis=0)
        for places in others:
            total += by_run.take(places, axis=0)
        return (total / drawn.shape[axis]).T

    result = _resampled([np.arange(array.shape[1])], means, rng, level, "BCa", n_resamples)
    columns = (array.mean(axis=1), result.bootstrap_distribution, *result.confidence_interval)
    return [
        _interval(float(e), own, float(low), float(high), level, "BCa")
        for e, own, low, high in zip(*columns, strict=True)
    ]


def _resampled(
    samples: Sequence[NDArray[Any]],
    statistic: Callable[..., Any],
    rng: np.random.Generator,
    level: float,
    method: str,
    n_resamples: int,
) -> Any:
    """scipy's result, along the last axis; the statistic may have several rows."""
    numbers = BATCH_NUMBERS if len(samples) == 1 else BATCH_NUMBERS_OF_SEVERAL
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # scipy warns of what the notes of an interval say
        return scipy.stats.bootstrap(
            samples,
            statistic,
            n_resamples=n_resamples,
            batch=max(1, numbers // sum(part.size for part in samples)),
            vectorized=True,
            axis=-1,
            confidence_level=level,
            method=method,
            **generator_argument(scipy.stats.bootstrap, rng),
        )


def percentile_interval(estimate: float, resampled: Floats, level: float = 0.95) -> Interval:
    """
    :param estimate: The statistic of the sample.
    :param resampled: The statistic of each resample, shape (resamples,), finite.
    :param level: Of the interval.
    :return: Between two quantiles of the resamples; the point if all of them agree.
    """
    low, high = np.quantile(resampled, [0.5 - 0.5 * level, 0.5 + 0.5 * level])
    return _interval(estimate, resampled, float(low), float(high), level, "percentile")


def _interval(estimate: float, resampled: Floats, low: float, high: float, level: float, method: str) -> Interval:
    name = f"{method} bootstrap"
    if resampled.min() == resampled.max():
        return Interval(estimate, estimate, estimate, level, name, "every resample gives the same value")
    if math.isfinite(low) and math.isfinite(high):
        return Interval(estimate, low, high, level, name)
    low, high = np.quantile(resampled, [0.5 - 0.5 * level, 0.5 + 0.5 * level])
    return Interval(estimate, float(low), float(high), level, "percentile bootstrap", f"{method} is undefined here")


@dataclass(frozen=True, eq=False)
class Band:
    """A curve with an interval at each of its points, all of shape (points,)."""

    estimate: Floats
    low: Floats
    high: Floats
    level: float
    method: str


def mean_band(
    curves: ArrayLike | Mapping[str, ArrayLike],
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    n_resamples: int = N_RESAMPLES,
) -> Band:
    """Mean learning curve with pointwise percentile bootstrap intervals over whole runs (paper, figure of MinAtar).

    A point at which a run has no value (NaN) has none either: the mean of the other runs there would be one of other
    runs than at the neighbouring points, and a curve through both would move without any run doing so. One run per
    game gives a NaN band.

    :param curves: Shape (runs, points), or that for each game: then the mean over games of their means, stratified.
        Leave out runs that have failed.
    :raises ValueError: Curves of the wrong shape, of no run, infinite, or of different lengths over games.
    """
    check_level(level)
    check_count("n_resamples", n_resamples)
    check_generator(rng)
    games = curves if isinstance(curves, Mapping) else {"": curves}
    checked = [run_curves(f"curves[{name!r}]" if name else "curves", array) for name, array in games.items()]
    if len({array.shape[1] for array in checked}) != 1:
        raise ValueError(f"curves have {[array.shape[1] for array in checked]} points; give every game the same.")
    estimate = np.mean([_weighted_means(np.ones((1, len(array))), array)[0] for array in checked], axis=0)
    method = "percentile bootstrap, pointwise"
    if min(map(len, checked)) < 2:
        empty = np.full_like(estimate, np.nan)
        return Band(estimate, empty, empty, level, method)
    resampled = np.zeros((n_resamples, len(estimate)))
    for array in checked:
        runs = len(array)
        counts = rng.multinomial(runs, np.full(runs, 1.0 / runs), size=n_resamples).astype(np.float64)
        resampled += _weighted_means(counts, array) / len(checked)
    low, high = np.full((2, len(estimate)), np.nan)
    known = np.isfinite(estimate)
    tails = [0.5 - 0.5 * level, 0.5 + 0.5 * level]
    if known.any():  # numpy has no quantiles of no points
        # A resample of known points is known itself, so that the slow quantiles that leave NaN out are not needed.
        low[known], high[known] = np.quantile(resampled[:, known], tails, axis=0)
    return Band(estimate, low, high, level, method)


def _weighted_means(weights: Floats, curves: Floats) -> Floats:
    """Means of the curves (runs, points) under each row of weights (rows, runs); NaN where a run has none."""
    return (weights @ curves) / weights.sum(axis=1, keepdims=True)
