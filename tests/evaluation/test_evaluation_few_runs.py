"""The interval of a mean over few seeds: by formula, by simulated coverage, and where the runs say nothing."""

import itertools

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from sb3_robust_be import evaluation as ev
from sb3_robust_be.evaluation.means import MANY


def rng(seed=0):
    return np.random.default_rng(seed)


def ends(interval):
    return np.array([interval.low, interval.high])


def two_modes(share):
    """Runs of which a share fails, far below the others."""
    return lambda draw, runs: draw.normal(size=runs) - 10.0 * (draw.uniform(size=runs) < share), -10.0 * share


#: What is drawn and its mean.
SHAPES = {
    "normal": (lambda draw, runs: draw.normal(size=runs), 0.0),
    "heavy-tailed": (lambda draw, runs: draw.standard_t(3, size=runs), 0.0),
    "exponential": (lambda draw, runs: draw.exponential(size=runs), 1.0),
    "log-normal": (lambda draw, runs: draw.lognormal(size=runs), np.exp(0.5)),
    "half fail": two_modes(0.5),
    "0.3 fail": two_modes(0.3),
    "0.1 fail": two_modes(0.1),
}
FLOORS = {"normal": 0.93, "heavy-tailed": 0.90, "exponential": 0.90, "log-normal": 0.86, "half fail": 0.92}
#: With a probability of 0.7ⁿ none of n runs fails, and no method can know of the mode below.
CEILINGS = {"0.3 fail": {5: 1.0 - 0.7**5, 10: 1.0 - 0.7**10, 20: 1.0, 30: 1.0}}


RARE = {5: 0.75, 10: 0.70, 20: 0.84}
"""What is left where a tenth of the runs fails"""


def coverage(interval, shape, runs, experiments, seed=1):
    draw, truth = SHAPES[shape][0], SHAPES[shape][1]
    generator = rng(seed)
    found = [interval(draw(generator, runs), generator) for _ in range(experiments)]
    return np.mean([one.low <= truth <= one.high for one in found])


def floor(shape, runs):
    if shape == "0.1 fail":
        return RARE[runs]
    return CEILINGS[shape][runs] - 0.06 if shape in CEILINGS else FLOORS[shape]


@pytest.mark.parametrize("runs", [5, 10, 20])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_interval_of_a_few_runs_covers(shape, runs):
    found = coverage(lambda values, draw: ev.mean_interval(values, rng=draw), shape, runs, 2000)
    assert found >= floor(shape, runs)


@pytest.mark.parametrize("shape", ["normal", "heavy-tailed", "exponential", "log-normal"])
def test_bca_would_not(shape):
    """At five runs it misses every one of these floors by more than five points."""
    found = coverage(lambda values, draw: ev.bootstrap_interval(values, rng=draw, n_resamples=199), shape, 5, 500)
    assert found < floor(shape, 5) - 0.05


@pytest.mark.parametrize("shape", SHAPES)
def test_many_runs_are_enough_for_bca(shape):
    found = coverage(lambda values, draw: ev.mean_interval(values, rng=draw, n_resamples=499), shape, MANY, 1000)
    assert found >= 0.86


def test_which_method_depends_on_the_number_of_runs_alone():
    values = rng().exponential(size=MANY)
    few, many = (ev.mean_interval(values[:n], rng=rng(1)) for n in (MANY - 1, MANY))
    assert few == ev.skewness_corrected_t(values[: MANY - 1])
    assert many == ev.bootstrap_interval(values, rng=rng(1))


# --- the skewness-corrected t ---


def test_without_skewness_it_is_students():
    values = [-3.0, -1.0, 0.0, 1.0, 3.0]
    np.testing.assert_allclose(ends(ev.skewness_corrected_t(values)), ends(ev.t_interval(values)))
    two = [1.0, 5.0]
    np.testing.assert_allclose(ends(ev.skewness_corrected_t(two, 0.8)), ends(ev.t_interval(two, 0.8)))


@pytest.mark.parametrize("seed", range(4))
def test_the_ends_are_where_halls_transform_has_students_quantiles(seed):
    """By root finding, with scipy's skewness."""
    values = rng(seed).lognormal(size=8)
    n, skewness = len(values), scipy.stats.skew(values)
    found = ev.skewness_corrected_t(values, 0.9)

    def transformed(mean):
        t = (values.mean() - mean) / scipy.stats.sem(values)
        rest = skewness * t**2 / 3 + skewness / 6
        return t + rest / np.sqrt(n) + skewness**2 * t**3 / (27 * n)

    quantile = scipy.stats.t.ppf(0.95, n - 1)
    for end, sign in ((found.low, 1.0), (found.high, -1.0)):
        width = 20.0 * np.ptp(values)
        expected = scipy.optimize.brentq(
            lambda mean, aim=sign * quantile: transformed(mean) - aim, values.mean() - width, values.mean() + width
        )
        assert end == pytest.approx(expected)


def test_it_leans_towards_the_longer_tail():
    values = rng(3).lognormal(size=10)
    found, student = ev.skewness_corrected_t(values), ev.t_interval(values)
    assert found.low > student.low
    assert found.high > student.high
    np.testing.assert_allclose(ends(ev.skewness_corrected_t(-values)), -ends(found)[::-1])
    for factor, shift in itertools.product((1e-150, 1e150), (0.0, 1.0)):
        moved = ev.skewness_corrected_t(factor * (values + shift))
        np.testing.assert_allclose(ends(moved), factor * (ends(found) + shift))


def test_one_run_apart_from_equal_ones_has_an_interval():
    """Where a studentised bootstrap has none: a third of its resamples have no spread."""
    found = ev.skewness_corrected_t([500.0] * 4 + [480.0])
    assert found.low < 496.0 < found.high
    assert np.isfinite(ends(found)).all()


# --- what says nothing ---


@pytest.mark.parametrize("runs", [2, 10, 30])
def test_equal_runs_have_no_interval(runs):
    found = ev.mean_interval([500.0] * runs, rng=rng())
    assert (found.estimate, found.note) == (500.0, "all runs are equal")
    assert np.isnan(ends(found)).all()


def test_a_single_run_has_no_interval():
    found = ev.mean_interval([3.0], rng=rng())
    assert (found.estimate, found.note) == (3.0, "one run has no spread")
    assert np.isnan(ends(found)).all()


@pytest.mark.parametrize("runs", [4, 30])
def test_several_quantities_of_the_same_runs(runs):
    values = rng(3).gamma(2.0, size=(3, runs))
    values[1] = 7.0
    found = ev.mean_intervals(values, rng=rng(5))
    for row, together in zip(values, found, strict=True):
        alone = ev.mean_interval(row, rng=rng(5))
        np.testing.assert_allclose(ends(together), ends(alone), rtol=1e-12)
        assert (together.method, together.note) == (alone.method, alone.note)


# --- learning curves ---


def test_a_curve_of_few_runs_has_the_interval_of_few_runs_at_each_point():
    curves = rng().exponential(size=(MANY - 1, 4)).cumsum(axis=1)
    found = ev.mean_curve(curves, rng=rng())
    for point in range(4):
        own = ev.mean_interval(curves[:, point], rng=rng())
        assert (found.estimate[point], found.low[point], found.high[point]) == (own.estimate, own.low, own.high)
    assert (found.method, found.level) == ("skewness-corrected t, pointwise", 0.95)


def test_a_curve_of_many_runs_has_the_band_of_the_bootstrap():
    curves = rng().normal(size=(MANY, 3))
    found, expected = (make(curves, rng=rng(1), n_resamples=200) for make in (ev.mean_curve, ev.mean_band))
    for name in ("estimate", "low", "high"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.method == expected.method


def test_points_of_a_curve_without_an_interval():
    """Where a run has no value there is no mean, where all are equal no interval."""
    curves = [[1.0, 3.0, np.nan, 5.0], [2.0, 3.0, 4.0, 6.0], [3.0, 3.0, 4.0, 9.0]]
    found = ev.mean_curve(curves, rng=rng())
    np.testing.assert_array_equal(found.estimate, [2.0, 3.0, np.nan, 20.0 / 3.0])
    np.testing.assert_array_equal(np.isnan(found.low), [False, True, True, False])
    np.testing.assert_array_equal(np.isnan(found.high), [False, True, True, False])
    alone = ev.mean_curve([[1.0, 2.0]], rng=rng())
    np.testing.assert_array_equal(alone.estimate, [1.0, 2.0])
    assert np.isnan([alone.low, alone.high]).all()
    assert np.isnan(ev.mean_curve([[np.nan], [np.nan]], rng=rng()).estimate).all()


@pytest.mark.parametrize("shape", ["normal", "exponential", "log-normal"])
def test_a_curve_of_five_runs_covers_where_the_bootstrap_does_not(shape):
    draw, truth = SHAPES[shape]
    generator, covered = rng(2), {}
    for name, make in (("few", ev.mean_curve), ("bootstrap", ev.mean_band)):
        bands = [make(draw(generator, 5 * 4).reshape(5, 4), rng=generator, n_resamples=199) for _ in range(400)]
        covered[name] = np.mean([(band.low <= truth) & (truth <= band.high) for band in bands])
    assert covered["few"] >= FLOORS[shape] - 0.02
    assert covered["bootstrap"] < covered["few"] - 0.02


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ev.mean_interval([], rng=rng()), ValueError, "values is empty"),
        (lambda: ev.mean_interval([1.0, np.nan], rng=rng()), ValueError, r"values\[1\] is nan"),
        (lambda: ev.mean_interval([1.0, 2.0], rng=rng(), level=95), ValueError, "level is 95"),
        (lambda: ev.mean_interval([1.0, 2.0], rng=rng(), n_resamples=0), ValueError, "n_resamples is 0"),
        (lambda: ev.mean_interval([1.0, 2.0], rng=0), TypeError, "rng is 0; give a generator"),
        (lambda: ev.mean_intervals([1.0, 2.0], rng=rng()), ValueError, r"values has shape \(2,\)"),
        (lambda: ev.mean_curve([1.0, 2.0], rng=rng()), ValueError, r"curves has shape \(2,\)"),
        (lambda: ev.mean_curve([[1.0, np.inf]], rng=rng()), ValueError, "curves holds an infinity"),
        (lambda: ev.mean_curve([[1.0, 2.0]], rng=rng(), level=95), ValueError, "level is 95"),
        (lambda: ev.mean_curve([[1.0, 2.0]], rng=rng(), n_resamples=0), ValueError, "n_resamples is 0"),
        (lambda: ev.mean_curve([[1.0, 2.0]], rng=0), TypeError, "rng is 0; give a generator"),
        (lambda: ev.skewness_corrected_t([1.0, np.inf]), ValueError, r"values\[1\] is inf"),
        (lambda: ev.skewness_corrected_t([1.0, 2.0], 0.0), ValueError, "level is 0"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
