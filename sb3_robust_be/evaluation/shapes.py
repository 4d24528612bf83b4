"""Claims about the shape of a distribution over seeds: narrow or wide, one mode or several (paper, section 8.1)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from sb3_robust_be.evaluation.attainable import attainable_p
from sb3_robust_be.evaluation.bootstrap import bootstrap_samples
from sb3_robust_be.evaluation.comparisons import Comparison
from sb3_robust_be.evaluation.hartigan import dip, dip_null
from sb3_robust_be.evaluation.intervals import Interval, worst_decile_mean
from sb3_robust_be.evaluation.profiles import dkw_width
from sb3_robust_be.evaluation.sample_checks import (
    N_RESAMPLES,
    Floats,
    check_choice,
    check_level,
    sample,
)
from sb3_robust_be.evaluation.verdicts import Outcome, Verdict, decide

SPREADS: tuple[str, ...] = ("iqr", "std")


def spread_ratio(
    x: ArrayLike,
    y: ArrayLike,
    *,
    rng: np.random.Generator,
    measure: str = "iqr",
    level: float = 0.95,
    n_resamples: int = N_RESAMPLES,
) -> Interval:
    """``spread(x)/spread(y)`` of independent samples, with a bootstrap interval.

    The bootstrap is of the share ``s = spread(x)/(spread(x) + spread(y))``, ½ if neither varies, which has no division
    by zero, turned back by ``s/(1 − s)``. It is BCa for the standard deviation, and percentile for the interquartile
    range, whose jackknife is inconsistent; that covers too often with few runs. One run in a sample gives NaN.

    Of standard deviations a nominal 95 % interval is too short where runs are skewed: in simulated experiments with ten
    (thirty) runs each it covers in 0.92 (0.93) if both samples are normal, 0.87 (0.89) if both are exponential, and
    0.71 (0.73) if one is normal and one log-normal. So a verdict asks for a test besides.

    :param measure: ``"iqr"``, interquartile range, blind to a few outliers, or ``"std"``.
    """
    check_choice("measure", measure, SPREADS)
    samples = [sample("x", x), sample("y", y)]
    if min(map(len, samples)) < 2:
        check_level(level)
        return Interval(math.nan, math.nan, math.nan, level, "bootstrap", "one run has no spread")
    method = "percentile" if measure == "iqr" else "BCa"
    part = bootstrap_samples(samples, _SHARES[measure], rng=rng, level=level, method=method, n_resamples=n_resamples)
    return replace(part, estimate=_ratio(part.estimate), low=_ratio(part.low), high=_ratio(part.high))


def narrower(
    claim: str,
    x: ArrayLike,
    y: ArrayLike,
    *,
    rng: np.random.Generator,
    measure: str = "iqr",
    level: float = 0.95,
    n_resamples: int = N_RESAMPLES,
) -> Verdict:
    """The claim "x varies less over seeds than y": :func:`spread_ratio` is below 1.

    The test is Mood's (1954) rank test of scale on deviations from the samples' medians for the interquartile range,
    which like it is robust to outliers, and Brown and Forsythe's (1974) for the standard deviation.
    """
    interval = spread_ratio(x, y, rng=rng, measure=measure, level=level, n_resamples=n_resamples)
    first, second = (values - np.median(values) for values in (sample("x", x), sample("y", y)))
    seeds, statistic, p_value = (len(first), len(second)), math.nan, math.nan
    if not (first.any() or second.any()):
        statistic, p_value = 0.0, 1.0
    elif min(seeds) > 1:
        test = scipy.stats.mood if measure == "iqr" else scipy.stats.levene  # the latter centres by the median
        statistic, p_value = map(float, test(first, second))
    name = "Mood's rank test of scale" if measure == "iqr" else "Brown–Forsythe"
    quantity = f"ratio of {'interquartile ranges' if measure == 'iqr' else 'standard deviations'}"
    found = Comparison(name, interval.estimate, interval, statistic, p_value, seeds, quantity)
    return decide(claim, found, 1.0, "below", attainable_p(*seeds))


def _iqr_share(x: Floats, y: Floats, axis: int) -> Any:
    low, high = np.quantile(x, [0.25, 0.75], axis=axis)
    y_low, y_high = np.quantile(y, [0.25, 0.75], axis=axis)
    return _part(high - low, y_high - y_low)


def _std_share(x: Floats, y: Floats, axis: int) -> Any:
    return _part(np.std(x, axis=axis, ddof=1), np.std(y, axis=axis, ddof=1))


def _part(of_x: Any, of_y: Any) -> Any:
    total = np.asarray(of_x + of_y)
    return np.divide(of_x, total, out=np.full(total.shape, 0.5), where=total > 0.0)


_SHARES = {"iqr": _iqr_share, "std": _std_share}


def _ratio(share: float) -> float:
    return math.inf if share == 1.0 else share / (1.0 - share)


def bimodal(
    claim: str,
    values: ArrayLike,
    *,
    rng: np.random.Generator,
    negligible: float = 0.05,
    level: float = 0.95,
    n_resamples: int = 2_000,
) -> Verdict:
    """The claim "the distribution over seeds has more than one mode", by Hartigan's dip.

    The lower end of the interval is the dip less the ``level`` quantile of a uniform sample's dip: above 0 where the
    test rejects a single mode. The upper end adds the Dvoretzky–Kiefer–Wolfowitz width, since two distributions'
    dips differ by no more than the distributions. The claim does not hold if the dip is below ``negligible`` even so,
    which takes many seeds (about 740 at the defaults): few cannot show that a second mode is absent.

    :param values: Shape (runs,), finite.
    :param negligible: Half the mass that a second mode may hold, in (0, ¼).
    """
    check_level(level)
    if not 0.0 < negligible < 0.25:
        raise ValueError(f"negligible is {negligible}; give a dip between 0 and 0.25.")
    runs = sample("values", values)
    observed = dip(runs)
    null = dip_null(len(runs), rng=rng, n_resamples=n_resamples)
    width = dkw_width(len(runs), level)
    low, high = max(0.0, observed - float(np.quantile(null, level))), min(0.25, observed + width)
    interval = Interval(observed, low, high, level, "dip's null quantile below, DKW above")
    seeds = (len(runs),)
    if high < negligible:
        p_value = min(1.0, 2.0 * math.exp(-2.0 * len(runs) * (negligible - observed) ** 2))
        small = Comparison("DKW bound of the dip", observed, interval, observed, p_value, seeds, "dip")
        return decide(claim, small, negligible)
    p_value = float(np.count_nonzero(null >= observed) + 1) / (n_resamples + 1)
    return decide(claim, Comparison("Hartigan's dip", observed, interval, observed, p_value, seeds, "dip"), 0.0)


def approximately_normal(claim: str, values: ArrayLike, *, rng: np.random.Generator, level: float = 0.95) -> Verdict:
    """The claim "the distribution over seeds is approximately normal", by Shapiro and Wilk's (1965) test.

    A test can reject a normal distribution and cannot show one: the claim does not hold, or it is not resolved.

    :param values: Shape (runs,), finite, at least three.
    :param rng: Not used; verdicts on shapes all take one.
    """
    check_level(level)
    runs = sample("values", values)
    statistic, p_value = math.nan, math.nan
    if len(runs) > 2 and np.ptp(runs) > 0.0:
        statistic, p_value = map(float, scipy.stats.shapiro(runs))
    rejected = p_value <= 1.0 - level
    return Verdict(
        claim,
        Outcome.DOES_NOT_HOLD if rejected else Outcome.NOT_RESOLVED,
        statistic,
        Interval(statistic, math.nan, math.nan, level, "none: a test alone"),
        "Shapiro–Wilk",
        statistic,
        p_value,
        (len(runs),),
        "" if rejected else "no test shows that a distribution is normal",
        "W",
    )


def longer_tailed(claim: str, x: np.ndarray, y: np.ndarray, *, rng: np.random.Generator) -> Verdict:
    """The claim "x's worst decile lies further below its median than y's", in units of the return.

    The interval of the difference is a percentile bootstrap; the test exchanges the runs' deviations from their
    sample's median.

    :param x: Shape (runs,), finite.
    :param y: Shape (other runs,), finite.
    :param rng: For both.
    """

    def difference(a: np.ndarray, b: np.ndarray, axis: int = -1) -> Any:
        return _tail(a, axis) - _tail(b, axis)

    interval = bootstrap_samples([x, y], difference, rng=rng, method="percentile")
    p_value = math.nan
    if min(len(x), len(y)) > 1:
        centred = (x - np.median(x), y - np.median(y))
        p_value = float(scipy.stats.permutation_test(centred, difference, n_resamples=1_999, rng=rng).pvalue)
    seeds, test, estimate = (len(x), len(y)), "permutation of deviations", interval.estimate
    found = Comparison(test, estimate, interval, estimate, p_value, seeds, "difference of median − worst decile")
    return decide(claim, found, 0.0, attainable=attainable_p(*seeds))


def _tail(runs: np.ndarray, axis: int) -> Any:
    return np.median(runs, axis=axis) - worst_decile_mean(runs, axis=axis)
