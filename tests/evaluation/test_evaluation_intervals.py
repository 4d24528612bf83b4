"""Summaries and bootstrap intervals, against scipy and hand computation; what degenerate samples give."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from sb3_robust_be.evaluation import (
    Interval,
    bootstrap,
    bootstrap_interval,
    bootstrap_means,
    bootstrap_samples,
    iqm,
    mean_band,
    mean_error,
    t_interval,
    worst_decile_mean,
)
from sb3_robust_be.evaluation.bootstrap import METHODS
from sb3_robust_be.evaluation.sample_checks import generator_argument


def rng(seed=0):
    return np.random.default_rng(seed)


def ends(interval):
    return np.array([interval.low, interval.high])


@pytest.mark.parametrize("runs", [2, 3, 30])
def test_mean_error_is_scipys(runs):
    values = rng().normal(size=(4, runs))
    mean, error = mean_error(values)
    np.testing.assert_allclose(mean, values.mean(axis=1))
    np.testing.assert_allclose(error, scipy.stats.sem(values, axis=1))
    np.testing.assert_allclose(mean_error(values.T, axis=0), (mean, error))
    mean, error = mean_error([[1.0, np.nan], [3.0, 5.0]], axis=0)
    np.testing.assert_array_equal(mean, [2.0, np.nan])
    np.testing.assert_array_equal(error, [1.0, np.nan])


def test_mean_error_of_one_run():
    mean, error = mean_error([3.0])
    assert mean == 3.0
    assert np.isnan(error)


def test_iqm_by_hand():
    assert iqm([100.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -50.0]) == pytest.approx(3.5)
    assert iqm([1.0, 2.0, 6.0]) == 3.0
    np.testing.assert_allclose(iqm([[0.0, 0.0], [2.0, 4.0], [4.0, 8.0], [90.0, 9.0]], axis=0), [3.0, 6.0])


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_iqm_by_sorting(values, random):
    cut = len(values) // 4
    expected = np.mean(sorted(values)[cut : len(values) - cut])
    random.shuffle(values)
    assert iqm(values) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("runs", "worst"), [(1, 1), (9, 1), (19, 1), (20, 2), (100, 10)])
def test_worst_decile_by_hand(runs, worst):
    values = rng().permutation(np.arange(float(runs)))
    assert worst_decile_mean(values) == pytest.approx((worst - 1) / 2)
    np.testing.assert_allclose(worst_decile_mean(np.stack([values, -values], axis=1), axis=0)[0], (worst - 1) / 2)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_t_interval_is_scipys(level):
    values = rng().exponential(size=12)
    expected = scipy.stats.ttest_1samp(values, 0.0).confidence_interval(level)
    np.testing.assert_allclose(ends(t_interval(values, level)), expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("statistic", [np.mean, np.median, iqm, worst_decile_mean])
def test_bootstrap_is_scipys(method, statistic):
    values = rng().normal(size=41)
    found = bootstrap_interval(values, statistic, rng=rng(1), method=method, n_resamples=500, level=0.9)
    generator = generator_argument(scipy.stats.bootstrap, rng(1))
    options = {"n_resamples": 500, "method": method, "confidence_level": 0.9, "vectorized": True, **generator}
    expected = scipy.stats.bootstrap((values,), statistic, **options)
    np.testing.assert_array_equal(ends(found), expected.confidence_interval)
    assert found.estimate == statistic(values)
    assert (found.level, found.method, found.note) == (0.9, f"{method} bootstrap", "")


def test_percentile_interval_by_enumeration():
    """The means of all 27 resamples of three values; many random ones have the same quantiles."""
    values = np.array([0.0, 1.0, 5.0])
    every = np.mean(np.stack(np.meshgrid(values, values, values), axis=-1).reshape(-1, 3), axis=1)
    found = bootstrap_interval(values, rng=rng(), method="percentile", level=0.5)
    np.testing.assert_allclose(ends(found), np.quantile(every, [0.25, 0.75], method="inverted_cdf"))


def test_bca_corrects_skew_upwards():
    values = rng(3).exponential(size=30)
    bca, percentile = (bootstrap_interval(values, rng=rng(), method=method) for method in METHODS)
    assert bca.low > percentile.low
    assert bca.high > percentile.high


def test_stratified_resampling_stays_within_games():
    """Games far apart: the spread between them is no part of a stratified interval."""
    values = np.concatenate((rng().normal(size=20), 1000.0 + rng(1).normal(size=30)))
    groups = np.repeat(["pong", "breakout"], [20, 30])
    order = rng(2).permutation(50)
    plain = bootstrap_interval(values, rng=rng(), n_resamples=2000)
    stratified = bootstrap_interval(values[order], rng=rng(), groups=groups[order], n_resamples=2000)
    assert np.ptp(ends(plain)) > 200.0
    weights = np.array([20, 30]) / 50
    errors = [values[groups == game].std() / np.sqrt(n) for game, n in (("pong", 20), ("breakout", 30))]
    expected = 2 * 1.96 * np.sqrt(np.sum((weights * errors) ** 2))
    assert np.ptp(ends(stratified)) == pytest.approx(expected, rel=0.1)
    assert stratified.estimate == pytest.approx(plain.estimate)


def test_one_group_is_no_stratification():
    values = rng().normal(size=15)
    plain = bootstrap_interval(values, iqm, rng=rng(), n_resamples=99)
    assert bootstrap_interval(values, iqm, rng=rng(), groups=["a"] * 15, n_resamples=99) == plain


@pytest.mark.parametrize("method", METHODS)
def test_degenerate_samples(method):
    one = bootstrap_interval([3.0], rng=rng(), method=method)
    assert one.estimate == 3.0
    assert np.isnan(ends(one)).all()
    assert "one run" in one.note
    lonely_game = bootstrap_interval([1.0, 2.0, 3.0], rng=rng(), groups=[0, 0, 1], method=method)
    assert np.isnan(ends(lonely_game)).all()
    constant = bootstrap_interval([0.1] * 7, rng=rng(), method=method)
    assert (constant.low, constant.estimate, constant.high) == (constant.estimate,) * 3
    assert "same value" in constant.note


def test_bca_falls_back_where_it_is_undefined():
    """The median of these does not change when any one run is left out, so there is nothing to accelerate by."""
    values = [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0]
    found = bootstrap_interval(values, np.median, rng=rng(), n_resamples=999)
    assert (found.method, found.note) == ("percentile bootstrap", "BCa is undefined here")
    percentile = bootstrap_interval(values, np.median, rng=rng(), n_resamples=999, method="percentile")
    np.testing.assert_array_equal(ends(found), ends(percentile))
    assert found.low < found.high


def test_t_interval_degenerate():
    assert np.isnan(ends(t_interval([3.0]))).all()
    equal = t_interval([0.1] * 3)
    assert (equal.estimate, equal.note) == (0.1, "all runs are equal")
    assert np.isnan(ends(equal)).all()


def test_interval_sides():
    interval = Interval(1.0, 0.5, 2.0, 0.95, "any")
    assert interval.above(0.4)
    assert not interval.above(0.5)
    assert interval.below(2.1)
    assert not interval.below(2.0)
    assert str(interval) == "1 [0.5, 2]"
    assert str(t_interval([500.0] * 4)) == "500 (all runs are equal)"
    unknown = Interval(1.0, np.nan, np.nan, 0.95, "any")
    assert not unknown.above(-9.0)
    assert not unknown.below(9.0)


def test_band_of_one_game_is_the_bootstrap_of_each_point():
    curves = rng().normal(size=(25, 3)) * [1.0, 2.0, 0.0] + [0.0, 5.0, 7.0]
    band = mean_band(curves, rng=rng(), n_resamples=4000)
    np.testing.assert_allclose(band.estimate, curves.mean(axis=0))
    for point in range(2):
        expected = bootstrap_interval(curves[:, point], rng=rng(1), method="percentile", n_resamples=4000)
        np.testing.assert_allclose(ends(expected), [band.low[point], band.high[point]], atol=0.08)
    np.testing.assert_allclose([band.low[2], band.high[2]], 7.0)


def test_band_weighs_games_equally_and_has_no_mean_of_some_runs():
    games = {"a": [[1.0, 0.0, np.nan], [3.0, np.nan, np.nan]], "b": np.full((5, 3), 10.0)}
    band = mean_band(games, rng=rng(), n_resamples=500)
    np.testing.assert_array_equal(band.estimate, [6.0, np.nan, np.nan])
    np.testing.assert_array_equal(band.low, [5.5, np.nan, np.nan])
    np.testing.assert_array_equal(band.high, [6.5, np.nan, np.nan])
    assert np.isnan(mean_band([[1.0, 2.0]], rng=rng()).low).all()
    nothing = mean_band(np.full((4, 3), np.nan), rng=rng())
    assert np.isnan([nothing.estimate, nothing.low, nothing.high]).all()
    assert nothing.low.shape == (3,)


def test_bootstrap_samples_of_two():
    """A statistic of two samples, as scipy gives it."""
    x, y = rng().normal(size=20), rng(1).normal(size=15)

    def difference(a, b, axis):
        return a.mean(axis=axis) - b.mean(axis=axis)

    found = bootstrap_samples([x, y], difference, rng=rng(2), n_resamples=300)
    options = {"n_resamples": 300, "vectorized": True, **generator_argument(scipy.stats.bootstrap, rng(2))}
    expected = scipy.stats.bootstrap((x, y), difference, **options)
    np.testing.assert_array_equal(ends(found), expected.confidence_interval)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"values": []}, ValueError, "values is empty"),
        ({"values": [[1.0]]}, ValueError, r"values has shape \(1, 1\)"),
        ({"values": [1.0, np.nan]}, ValueError, r"values\[1\] is nan; .*failed\(\)"),
        ({"values": [-np.inf, 1.0]}, ValueError, r"values\[0\] is -inf"),
        ({"level": 1.0}, ValueError, "level is 1.0"),
        ({"level": 95}, ValueError, "level is 95"),
        ({"method": "bca"}, ValueError, "method is 'bca'; give one of BCa, percentile"),
        ({"n_resamples": 0}, ValueError, "n_resamples is 0"),
        ({"groups": ["a"]}, ValueError, r"groups has shape \(1,\) for values \(2,\)"),
        ({"rng": 0}, TypeError, "rng is 0; give a generator"),
        ({"rng": np.random.RandomState(0)}, TypeError, "rng is RandomState"),
    ],
)
def test_bad_bootstrap_input(options, error, message):
    with pytest.raises(error, match=message):
        bootstrap_interval(**{"values": [1.0, 2.0], "rng": rng(), **options})


def test_other_bad_input():
    with pytest.raises(ValueError, match="level is 0"):
        t_interval([1.0, 2.0], 0.0)
    with pytest.raises(ValueError, match=r"values has shape \(0,\)"):
        mean_error([])
    with pytest.raises(ValueError, match=r"curves\['b'\] has shape \(2,\)"):
        mean_band({"a": [[1.0]], "b": [1.0, 2.0]}, rng=rng())
    with pytest.raises(ValueError, match=r"\[1, 2\] points"):
        mean_band({"a": [[1.0]], "b": [[1.0, 2.0]]}, rng=rng())
    with pytest.raises(ValueError, match="holds an infinity"):
        mean_band([[1.0, np.inf]], rng=rng())


def test_importing_loads_no_part_of_scipy_that_takes_long():
    code = "import sys, sb3_robust_be.evaluation; sys.exit('scipy.stats' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=60).returncode == 0


@pytest.mark.parametrize("draw", ["normal", "few values"])
def test_means_of_the_same_runs_are_those_of_scipy_to_the_last_digit(draw):
    """Equal sums are ties, which move an interval: rounding must not break them otherwise than scipy's."""
    numbers = np.random.default_rng(7)
    values = numbers.normal(size=(5, 40)) if draw == "normal" else numbers.choice([-199.7, -123.4, -80.1], (5, 40))
    found = bootstrap_means(values, rng=rng(5), n_resamples=700)
    options = generator_argument(scipy.stats.bootstrap, rng(5))
    low, high = scipy.stats.bootstrap(
        [values], np.mean, axis=-1, vectorized=True, n_resamples=700, **options
    ).confidence_interval
    assert [(one.estimate, one.low, one.high) for one in found] == list(
        zip(values.mean(axis=1).tolist(), low.tolist(), high.tolist(), strict=True)
    )


def test_the_size_of_a_batch_changes_no_interval_of_one_sample(monkeypatch):
    values = np.random.default_rng(8).gamma(2.0, size=35)
    whole = bootstrap_interval(values, rng=rng(5), n_resamples=999)
    monkeypatch.setattr(bootstrap, "BATCH_NUMBERS", 35 * 7)
    assert bootstrap_interval(values, rng=rng(5), n_resamples=999) == whole


def test_means_of_the_same_runs_have_the_intervals_of_each_alone():
    """The resamples are those that a first call draws, for every row."""
    values = np.random.default_rng(3).gamma(2.0, size=(4, 30))
    values[2] = 7.0
    found = bootstrap_means(values, rng=rng(5), n_resamples=500)
    for row, together in zip(values, found, strict=True):
        alone = bootstrap_interval(row, rng=rng(5), n_resamples=500)
        # But for the order in which numpy sums along one axis of two.
        assert [together.estimate, together.low, together.high] == pytest.approx(
            [alone.estimate, alone.low, alone.high], rel=1e-12
        )
        assert (together.level, together.method, together.note) == (alone.level, alone.method, alone.note)
    assert found[2].note == "every resample gives the same value"
    (single,) = bootstrap_means([[4.0]], rng=rng(5))
    assert (single.estimate, np.isnan(single.low), single.note) == (4.0, True, "one run has no spread to resample")
    with pytest.raises(ValueError, match=r"values has shape \(3,\); give finite numbers of shape \(quantities, runs\)"):
        bootstrap_means([1.0, 2.0, 3.0], rng=rng(5))
