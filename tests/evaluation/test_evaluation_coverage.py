"""Each interval covers its parameter as often as it says: 95 % within 92 to 98 % of simulated experiments."""

import itertools

import numpy as np
import pytest
import scipy.stats

from sb3_robust_be import evaluation as ev
from sb3_robust_be.evaluation.shapes import SPREADS

FEW = {"n_resamples": 399}
WORST_OF_NORMAL = -scipy.stats.norm.pdf(scipy.stats.norm.ppf(0.1)) / 0.1
IQM_OF_EXPONENTIAL = 1.0 - 0.5 * np.log(27 / 16)  # ∫ −ln(1−u) du over the middle half, times 2


def normal(rng, runs, mean=0.0, deviation=1.0):
    return mean + deviation * rng.normal(size=runs)


def games_and_labels(rng):
    """Three games of different size, level and spread, and a statistic of which the truth is known."""
    sizes = (30, 50, 70)
    values = [normal(rng, n, 10.0 * g, 1.0 + g) for g, n in enumerate(sizes)]
    return np.concatenate(values), np.repeat(np.arange(3), sizes)


def stratified(rng):
    values, labels = games_and_labels(rng)
    return ev.bootstrap_interval(values, rng=rng, groups=labels, **FEW), (50 * 10 + 70 * 20) / 150


def bootstrap(draw, statistic, truth, method):
    return lambda rng: (ev.bootstrap_interval(draw(rng), statistic, rng=rng, method=method, **FEW), truth)


def improvement(rng):
    """Two games, P = Φ(0.7/√2) in one and ½ in the other."""
    x = {"a": normal(rng, 40, 0.7), "b": normal(rng, 30)}
    y = {"a": normal(rng, 30), "b": normal(rng, 40)}
    interval = ev.probability_of_improvement(x, y, rng=rng, n_resamples=199)
    return interval, 0.5 * (scipy.stats.norm.cdf(0.7 / np.sqrt(2)) + 0.5)


def improvement_of(rng, x, y, truth):
    return ev.brunner_munzel(x, y).interval, truth


def narrow_against_bimodal(rng, runs):
    """Half of y's runs are above all of x, half below."""
    modes = np.where(rng.uniform(size=runs) < 0.5, -9.0, 9.0)
    return improvement_of(rng, normal(rng, runs), modes + 0.01 * normal(rng, runs), 0.5)


def pairs(rng):
    """Pairs that share a domain's level, with the mean difference 0.4."""
    level = 100.0 * rng.normal(size=12)
    return level + normal(rng, 12, 0.4), level


def spread_ratio(measure, rng):
    return ev.spread_ratio(normal(rng, 100, 5.0), normal(rng, 120, 0.0, 2.0), rng=rng, measure=measure, **FEW), 0.5


def failures(method, rng):
    fraction = rng.uniform(0.05, 0.6)
    return ev.failed_fraction(rng.uniform(size=30) < fraction, method=method), fraction


def failure_difference(rng):
    p, q = rng.uniform(0.05, 0.9, size=2)
    return ev.failed_difference(rng.uniform(size=30) < p, rng.uniform(size=40) < q).interval, p - q


def suite(rng):
    """As many runs per game as Table 1 has, skewed, of different levels."""
    games = {str(g): g + rng.beta(2.0, 1.0 + g, size=30) for g in range(5)}
    return ev.suite_mean(games, rng=rng, **FEW), np.mean([g + 2.0 / (3.0 + g) for g in range(5)])


INTERVALS = {
    "t": lambda rng: (ev.t_interval(normal(rng, 8)), 0.0),
    "mean, percentile": bootstrap(lambda rng: normal(rng, 100), np.mean, 0.0, "percentile"),
    "mean, BCa": bootstrap(lambda rng: rng.exponential(size=100), np.mean, 1.0, "BCa"),
    "median, percentile": bootstrap(lambda rng: rng.exponential(size=101), np.median, np.log(2.0), "percentile"),
    "IQM, BCa": bootstrap(lambda rng: rng.exponential(size=60), ev.iqm, IQM_OF_EXPONENTIAL, "BCa"),
    "worst decile, BCa": bootstrap(lambda rng: normal(rng, 200), ev.worst_decile_mean, WORST_OF_NORMAL, "BCa"),
    "stratified": stratified,
    "suite mean": suite,
    "Welch": lambda rng: (ev.welch_t(normal(rng, 7, 3.0, 0.2), normal(rng, 12, 1.0, 2.0)).interval, 2.0),
    "paired t": lambda rng: (ev.paired_t(*pairs(rng)).interval, 0.4),
    "bootstrap t": lambda rng: (ev.bootstrap_t(*pairs(rng), rng=rng, **FEW).interval, 0.4),
    "signed rank": lambda rng: (ev.signed_rank(*pairs(rng)).interval, 0.4),
    "improvement": improvement,
    "Brunner–Munzel": lambda rng: improvement_of(
        rng, normal(rng, 30, 0.7), normal(rng, 30), scipy.stats.norm.cdf(0.7 / np.sqrt(2))
    ),
    "Brunner–Munzel, two modes": lambda rng: narrow_against_bimodal(rng, 30),
    "Wilson": lambda rng: failures("wilson", rng),
    "Newcombe": failure_difference,
    "std ratio": lambda rng: spread_ratio("std", rng),
}
# Cover at least as often as they say.
CONSERVATIVE = {
    "iqr ratio": lambda rng: spread_ratio("iqr", rng),
    "Clopper–Pearson": lambda rng: failures("exact", rng),
    "range of means": lambda rng: (
        ev.insensitive("", {str(k): normal(rng, 10, 0.5 * k) for k in range(3)}, 1.0).interval,
        1.0,
    ),
    "equal means": lambda rng: (ev.insensitive("", {str(k): normal(rng, 10) for k in range(3)}, 1.0).interval, 0.0),
}


def coverage(draw, experiments, seed=1):
    rng = np.random.default_rng(seed)
    drawn = [draw(rng) for _ in range(experiments)]
    return np.mean([interval.low <= truth <= interval.high for interval, truth in drawn])


@pytest.mark.parametrize("name", INTERVALS)
def test_coverage(name):
    assert 0.92 <= coverage(INTERVALS[name], 400) <= 0.98


@pytest.mark.parametrize("name", CONSERVATIVE)
def test_conservative_coverage(name):
    assert coverage(CONSERVATIVE[name], 80) >= 0.94


def a_tenth_fails(rng, runs):
    return normal(rng, runs) - 10.0 * (rng.uniform(size=runs) < 0.1)


def skewed_ratio(draw, deviation):
    return lambda rng: (
        ev.spread_ratio(normal(rng, 10), draw(rng, 10), rng=rng, measure="std", **FEW),
        1.0 / deviation,
    )


# Too short: as often as their docstrings say, which tables of few skewed runs have to live with.
SHORT = {
    "Welch, a tenth of five fails": (
        lambda rng: (ev.welch_t(a_tenth_fails(rng, 5), normal(rng, 5)).interval, -1.0),
        0.84,
    ),
    "Welch, a tenth of ten fails": (
        lambda rng: (ev.welch_t(a_tenth_fails(rng, 10), normal(rng, 10)).interval, -1.0),
        0.80,
    ),
    "std ratio, log-normal": (
        skewed_ratio(lambda rng, n: rng.lognormal(size=n), np.sqrt(np.e * (np.e - 1.0))),
        0.71,
    ),
}


@pytest.mark.parametrize("name", SHORT)
def test_what_does_not_cover_is_said(name):
    draw, said = SHORT[name]
    assert coverage(draw, 1200) == pytest.approx(said, abs=0.05)


@pytest.mark.parametrize("runs", [5, 10])
def test_welch_covers_where_both_samples_have_the_same_shape(runs):
    for draw in (a_tenth_fails, lambda rng, n: rng.lognormal(size=n)):
        found = coverage(lambda rng, own=draw: (ev.welch_t(own(rng, runs), own(rng, runs)).interval, 0.0), 400)
        assert found >= 0.94


@pytest.mark.parametrize("level", [0.5, 0.8])
def test_other_levels(level):
    def draw(rng):
        return ev.bootstrap_interval(normal(rng, 100), rng=rng, level=level, **FEW), 0.0

    assert coverage(draw, 400) == pytest.approx(level, abs=0.06)


def test_band_covers_at_each_point():
    rng = np.random.default_rng(0)
    truth = np.array([0.0, 1.0, 5.0])
    inside = []
    for _ in range(600):
        games = {"a": normal(rng, (30, 3)) + truth, "b": rng.exponential(size=(40, 3)) - 1.0 + truth}
        band = ev.mean_band(games, rng=rng, n_resamples=400)
        inside.append((band.low <= truth) & (truth <= band.high))
    covered = np.mean(inside, axis=0)
    assert covered.min() >= 0.92
    assert covered.max() <= 0.98


def test_ecdf_band_covers_everywhere_at_once():
    """DKW is a bound, nearly reached by continuous distributions."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(1000):
        values = rng.uniform(size=50)
        # The furthest departures lie at the runs and just before them.
        at = np.sort(np.concatenate((values, np.nextafter(values, 0.0))))
        band = ev.ecdf_band(values, at)
        inside.append(np.all((band.low <= at) & (at <= band.high)))
    assert 0.94 <= np.mean(inside) <= 0.98


def wrong(verdicts):
    return np.mean([verdict.outcome is not ev.Outcome.NOT_RESOLVED for verdict in verdicts])


@pytest.mark.parametrize(
    ("method", "runs"), [("welch", 25), ("paired", 25), ("signed-rank", 25), ("rank", 25), ("bootstrap-t", 150)]
)
def test_equal_algorithms_are_seldom_told_apart(method, runs):
    """Skewed ones: at most 1 verdict in 20, but for chance in 300 experiments."""
    rng = np.random.default_rng(1)
    samples = [rng.exponential(size=(2, runs)) for _ in range(300)]
    options = {"method": method, "rng": rng, "n_resamples": 199}
    assert wrong(ev.greater("", x, y, **options) for x, y in samples) <= 0.08


def test_a_probability_of_one_half_is_seldom_called_another():
    """A narrow sample in the middle of a bimodal one, at n = 30: Mann and Whitney's test is wrong twice as often."""
    rng = np.random.default_rng(0)
    ours, alike = [], []
    for _ in range(600):
        x, y = normal(rng, 30), np.where(rng.uniform(size=30) < 0.5, -9.0, 9.0) + 0.01 * normal(rng, 30)
        ours.append(ev.brunner_munzel(x, y).p_value <= 0.05)
        alike.append(scipy.stats.mannwhitneyu(x, y).pvalue <= 0.05)
    assert np.mean(ours) <= 0.06
    assert np.mean(alike) >= 0.08


@pytest.mark.parametrize("measure", SPREADS)
def test_equal_spreads_are_seldom_told_apart(measure):
    rng = np.random.default_rng(0)
    samples = [(normal(rng, 25), normal(rng, 25, 3.0)) for _ in range(200)]
    options = {"measure": measure, "rng": rng, "n_resamples": 199}
    assert wrong(ev.narrower("", x, y, **options) for x, y in samples) <= 0.09


def test_one_mode_is_seldom_called_two():
    rng = np.random.default_rng(0)
    nulls = {n: ev.dip_null(n, rng=rng, n_resamples=500) for n in (15, 40)}
    for n, draw in itertools.product(nulls, (rng.uniform, rng.normal, rng.exponential)):
        p_values = [np.mean(nulls[n] >= ev.dip(draw(size=n))) for _ in range(150)]
        assert np.mean(np.array(p_values) <= 0.05) <= 0.10
