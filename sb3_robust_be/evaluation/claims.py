"""The kinds of claims that the paper makes of means and failures, each judged as a three-valued verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
import scipy
from numpy.typing import ArrayLike

from sb3_robust_be.evaluation.attainable import attainable_p
from sb3_robust_be.evaluation.comparisons import Comparison, brunner_munzel, welch_t
from sb3_robust_be.evaluation.failures import failed_difference, failed_fraction
from sb3_robust_be.evaluation.intervals import Interval
from sb3_robust_be.evaluation.pairs import bootstrap_t, paired_t, signed_rank
from sb3_robust_be.evaluation.sample_checks import N_RESAMPLES, check_choice, check_generator, check_level, strata
from sb3_robust_be.evaluation.verdicts import Verdict, decide

COMPARISONS: tuple[str, ...] = ("welch", "paired", "signed-rank", "bootstrap-t", "rank")


def greater(
    claim: str,
    x: ArrayLike,
    y: ArrayLike | float,
    *,
    method: str = "welch",
    margin: float = 0.0,
    level: float = 0.95,
    rng: np.random.Generator | None = None,
    n_resamples: int = N_RESAMPLES,
) -> Verdict:
    """The claim "x is higher than y", by more than ``margin``.

    :param x: Higher is better; shape (runs,), or for pairs any shape.
    :param y: Likewise, or one number that x's mean is compared with (``"welch"`` is then the one-sample t).
    :param method: ``"welch"``: means of independent seeds; ``"paired"``, ``"signed-rank"``, ``"bootstrap-t"``: pairs
        by (domain, seed); ``"rank"``: the probability of improvement over ½, which admits ``−inf`` for failed runs.
    :param margin: In units of the values; below zero for "not much lower".
    :param rng: Needed by ``"bootstrap-t"``, as is ``n_resamples``.
    :return: Of independent means with the probability of improvement, without the margin, beside it.
    """
    check_choice("method", method, COMPARISONS)
    if not math.isfinite(margin):
        raise ValueError(f"margin is {margin}; give a finite number.")
    constant = np.ndim(y) == 0
    if constant and method == "rank":
        raise ValueError(f"y is {y!r} for method 'rank'; give runs of y, or another method.")
    if constant and method == "welch":
        method = "paired"
    others = np.asarray(y, dtype=np.float64)
    shifted = np.broadcast_to(others + margin, np.shape(x) if constant else np.shape(y))
    if method == "rank":
        found = brunner_munzel(x, shifted, level)
        return decide(claim, found, 0.5, attainable=attainable_p(*found.seeds))
    if method == "bootstrap-t":
        found = bootstrap_t(x, shifted, rng=check_generator(rng), level=level, n_resamples=n_resamples)
    else:
        found = {"welch": welch_t, "paired": paired_t, "signed-rank": signed_rank}[method](x, shifted, level)
    if constant:
        test = "one-sample t" if found.test == "paired t" else found.test
        found = replace(found, test=test, quantity=f"excess over {float(others):g}")
    verdict = decide(claim, _shifted(found, margin), margin, attainable=attainable_p(*found.seeds))
    return replace(verdict, improvement=brunner_munzel(x, others, level)) if method == "welch" else verdict


def _shifted(found: Comparison, by: float) -> Comparison:
    """The same test with the effect in the units before a margin was taken off."""
    old = found.interval
    interval = replace(old, estimate=old.estimate + by, low=old.low + by, high=old.high + by)
    return replace(found, estimate=found.estimate + by, interval=interval)


def fails_more(claim: str, x: ArrayLike, y: ArrayLike | float, level: float = 0.95) -> Verdict:
    """The claim "a larger fraction of x's seeds fails than of y's", or than the fraction ``y``.

    :param x: Booleans (runs,), from :func:`~sb3_robust_be.evaluation.failures.failed`.
    :param y: Booleans (other runs,): Newcombe's interval and Fisher's exact test; or a fraction: Wilson's interval
        and the binomial test.
    """
    if np.ndim(y) > 0:
        found = failed_difference(x, y, level)
        return decide(claim, found, 0.0, attainable=attainable_p(*found.seeds))
    fraction = float(y)  # type: ignore[arg-type]
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"y is {fraction}; give a fraction between 0 and 1, or booleans per run.")
    interval = failed_fraction(x, level)
    flags = np.asarray(x)
    count = int(flags.sum())
    p_value = scipy.stats.binomtest(count, flags.size, fraction).pvalue
    found = Comparison("binomial", interval.estimate, interval, count, float(p_value), (flags.size,), "fraction")
    return decide(claim, found, fraction)


def insensitive(claim: str, settings: Mapping[str, ArrayLike], tolerance: float, level: float = 0.95) -> Verdict:
    """The claim "the mean depends on the setting by at most ``tolerance``": the range of the settings' means.

    Both ends come from Welch's intervals of every pair of settings. The upper end is the largest ``|difference|`` in
    any of them at the level itself (all pairs must be within: no correction); the lower end the largest that some
    pair surely has, at the level divided by the number of pairs (Bonferroni). The test is two one-sided t tests per
    pair (TOST, Schuirmann 1987), the worst pair's p-value doubled to match a two-sided interval; where the lower end
    lies above the tolerance, the surest pair's, times the number of pairs.

    :param settings: Runs (runs,) for each setting, such as each threshold; at least two settings.
    :param tolerance: In units of the values, above 0.
    """
    check_level(level)
    if not (math.isfinite(tolerance) and tolerance > 0.0):
        raise ValueError(f"tolerance is {tolerance}; give a positive number in units of the values.")
    runs = strata("settings", settings)
    if len(runs) < 2:
        raise ValueError(f"settings has {len(runs)} setting; give at least two.")
    pairs = list(combinations(runs.values(), 2))
    strict = 1.0 - (1.0 - level) / len(pairs)
    widest = [welch_t(a, b, level).interval for a, b in pairs]
    surest = [welch_t(a, b, strict).interval for a, b in pairs]
    high = float(np.max([max(abs(interval.low), abs(interval.high)) for interval in widest]))
    low = float(np.max([max(0.0, interval.low, -interval.high) for interval in surest]))
    means = [values.mean() for values in runs.values()]
    interval = Interval(float(max(means) - min(means)), low, high, level, "Welch's t of all pairs")
    if low > tolerance:
        outside = [welch_t(a, b + tolerance, level) for x, y in pairs for a, b in ((x, y), (y, x))]
        decisive = min(outside, key=_doubled_tail)
        test, p_value = "Welch's t, Bonferroni", min(1.0, len(pairs) * _doubled_tail(decisive))
    else:
        inside = [welch_t(a + tolerance, b, level) for x, y in pairs for a, b in ((x, y), (y, x))]
        decisive = max(inside, key=_doubled_tail)
        test, p_value = "Welch's t, TOST", min(1.0, _doubled_tail(decisive))
    seeds = tuple(len(values) for values in runs.values())
    found = Comparison(test, interval.estimate, interval, decisive.statistic, p_value, seeds, "range of the means")
    attainable = max(attainable_p(len(a), len(b)) for a, b in pairs)
    return decide(claim, found, tolerance, "below", attainable)


def _doubled_tail(found: Comparison) -> float:
    """Twice the one-sided p-value of "the effect is above 0"; 2 where a sample has one run only."""
    if math.isnan(found.p_value):
        return 2.0
    return found.p_value if found.statistic > 0.0 else 2.0 - found.p_value
