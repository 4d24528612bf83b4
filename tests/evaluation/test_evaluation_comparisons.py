"""Comparisons, corrections and failures, against scipy, brute force and hand computation."""

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_robust_be import evaluation as ev

FEW_VALUES = st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=12)


def rng(seed=0):
    return np.random.default_rng(seed)


def ends(interval):
    return np.array([interval.low, interval.high])


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_welch_is_scipys(level):
    x, y = rng().normal(1.0, 2.0, 9), rng(1).exponential(size=14)
    found = ev.welch_t(x, y, level)
    expected = scipy.stats.ttest_ind(x, y, equal_var=False)
    assert (found.statistic, found.p_value) == (expected.statistic, expected.pvalue)
    assert found.estimate == pytest.approx(x.mean() - y.mean())
    np.testing.assert_allclose(ends(found.interval), expected.confidence_interval(level))
    assert found.seeds == (9, 14)


def test_welch_with_one_constant_sample_is_a_one_sample_t():
    x = rng().normal(size=9)
    found, expected = ev.welch_t(x, [0.5] * 4), ev.t_interval(x - 0.5)
    np.testing.assert_allclose(ends(found.interval), ends(expected))
    assert found.p_value == pytest.approx(scipy.stats.ttest_1samp(x, 0.5).pvalue)


def test_paired_t_is_scipys():
    domains = np.array([0.0, 100.0, -1000.0])
    x, y = (rng(k).normal(size=(6, 3)) + domains for k in range(2))
    found = ev.paired_t(x, y)
    expected = scipy.stats.ttest_rel(x.ravel(), y.ravel())
    assert (found.statistic, found.p_value) == pytest.approx((expected.statistic, expected.pvalue))
    np.testing.assert_allclose(ends(found.interval), expected.confidence_interval())
    assert found.seeds == (18,)


@pytest.mark.parametrize("test", [ev.welch_t, ev.paired_t])
def test_t_tests_of_constant_or_single_runs(test):
    same, apart = test([2.0] * 3, [2.0] * 3), test([2.0] * 3, [5.0] * 3)
    assert same.p_value == 1.0
    # Of the 20 ways to share out six runs two are as extreme; of the 8 signs of three differences two.
    assert apart.p_value == pytest.approx(2 / 20 if test is ev.welch_t else 2 / 8)
    np.testing.assert_array_equal(ends(apart.interval), [-3.0, -3.0])
    assert "no spread" in apart.interval.note
    single = test([2.0], [5.0])
    assert single.estimate == -3.0
    assert np.isnan([single.p_value, single.statistic, *ends(single.interval)]).all()


def test_bootstrap_t_of_normal_pairs_is_students():
    x, y = rng().normal(0.3, 1.0, 60), np.zeros(60)
    found, student = ev.bootstrap_t(x, y, rng=rng()), ev.paired_t(x, y)
    assert found.statistic == pytest.approx(student.statistic)
    np.testing.assert_allclose(ends(found.interval), ends(student.interval), atol=0.04)
    assert found.p_value == pytest.approx(student.p_value, abs=0.02)


def test_bootstrap_t_allows_for_skew():
    """Few of these differences are large and all of them positive: more may lie above the mean than below."""
    x = rng().lognormal(sigma=1.5, size=40)
    found, student = ev.bootstrap_t(x, np.zeros(40), rng=rng()), ev.paired_t(x, np.zeros(40))
    assert found.interval.high - found.estimate > 1.3 * (student.interval.high - student.estimate)
    assert found.interval.low > student.interval.low
    mirrored = ev.bootstrap_t(-x, np.zeros(40), rng=rng())
    np.testing.assert_allclose(ends(mirrored.interval), -ends(found.interval)[::-1], rtol=1e-3)


def test_bootstrap_t_never_gives_less_than_its_resamples_allow():
    found = ev.bootstrap_t(100.0 + rng().normal(size=20), np.zeros(20), rng=rng(), n_resamples=99)
    assert found.p_value == pytest.approx(2 / 100)


def test_bootstrap_t_without_spread():
    assert ev.bootstrap_t([1.0] * 4, [0.0] * 4, rng=rng()).p_value == 2.0**-3
    assert np.isnan(ev.bootstrap_t([1.0], [0.0], rng=rng()).p_value)
    two = ev.bootstrap_t([1.0, 3.0], [0.0, 0.0], rng=rng())
    np.testing.assert_array_equal(ends(two.interval), [-np.inf, np.inf])  # half the resamples have no spread
    assert two.p_value > 0.4


def test_signed_rank_by_hand():
    """Six pairs of one sign: the least p, and the 95 % interval is the whole range of the Walsh averages."""
    differences = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    found = ev.signed_rank(differences, np.zeros(6))
    assert found.p_value == pytest.approx(2 / 2**6)
    np.testing.assert_array_equal(ends(found.interval), [1.0, 32.0])
    walsh = [(a + b) / 2 for a, b in itertools.combinations_with_replacement(differences, 2)]
    assert found.estimate == np.median(walsh)
    assert found.p_value == scipy.stats.wilcoxon(differences).pvalue
    five = ev.signed_rank(differences[:5], np.zeros(5))
    np.testing.assert_array_equal(ends(five.interval), [-np.inf, np.inf])
    assert "too few" in five.interval.note
    assert ev.signed_rank([1.0, 2.0], [1.0, 2.0]).p_value == 1.0


@settings(max_examples=30)
@given(st.lists(st.integers(-40, 40), min_size=6, max_size=10, unique_by=abs).filter(lambda d: 0 not in d))
def test_signed_rank_interval_inverts_the_test(differences):
    """A shift inside the interval is not rejected by the exact test, one outside is."""
    d = np.array(differences) + 0.003 * np.arange(len(differences)) ** 2
    interval = ev.signed_rank(d, np.zeros(len(d))).interval
    for end, inwards in ((interval.low, 1e-4), (interval.high, -1e-4)):
        inside = scipy.stats.wilcoxon(d - end - inwards, method="exact").pvalue
        outside = scipy.stats.wilcoxon(d - end + inwards, method="exact").pvalue
        assert outside <= 0.05 < inside


@settings(max_examples=30)
@given(FEW_VALUES, FEW_VALUES)
def test_improvement_counts_pairs(x, y):
    found = ev.probability_of_improvement(x, y, rng=rng(), n_resamples=5)
    wins = [(a > b) + 0.5 * (a == b) for a in x for b in y]
    assert found.estimate == pytest.approx(np.mean(wins))
    assert found.estimate == pytest.approx(scipy.stats.mannwhitneyu(x, y).statistic / len(wins))
    swapped = ev.probability_of_improvement(y, x, rng=rng(), n_resamples=5)
    assert found.estimate + swapped.estimate == pytest.approx(1.0)
    moved = ev.probability_of_improvement(np.exp(x), np.exp(y), rng=rng(), n_resamples=5)
    assert moved == found


def test_improvement_averages_games_and_resamples_within_them():
    x = {"a": [1.0, 2.0], "b": [5.0, 0.0]}
    y = {"b": [2.0, 2.0, 2.0], "a": [-9.0, -np.inf]}
    found = ev.probability_of_improvement(x, y, rng=rng())
    assert found.estimate == pytest.approx((1.0 + 0.5) / 2)
    np.testing.assert_allclose(ends(found), [0.5, 1.0])  # only game b varies, over 0, ½ and 1
    bca = ev.probability_of_improvement(x, y, rng=rng(), method="BCa")
    assert bca.method == "BCa bootstrap"


def test_brunner_munzel_is_scipys():
    x, y = rng().normal(0.5, 1.0, 12), np.append(rng(1).normal(size=9), -np.inf)
    found = ev.brunner_munzel(x, y)
    expected = scipy.stats.brunnermunzel(x, y)
    # Positive where x is above: scipy's is where y is.
    assert (found.statistic, found.p_value) == (-expected.statistic, expected.pvalue)
    assert found.statistic > 0.0
    assert found.estimate == ev.probability_of_improvement(x, y, rng=rng(), n_resamples=5).estimate
    assert found.seeds == (12, 10)
    far = ev.brunner_munzel(np.append(np.arange(8.0), 8.5), np.append(np.arange(8.0) + 8.0, 30.0))
    assert (
        scipy.stats.brunnermunzel(np.append(np.arange(8.0), 8.5), np.append(np.arange(8.0) + 8.0, 30.0)).pvalue < 1e-6
    )
    assert far.p_value == pytest.approx(2 / 48620), "of the C(18, 9) ways to share out the runs"


def test_the_interval_of_brunner_munzel_by_hand():
    """x beats 2, 3, 3, 3 of y's three runs, y ½ … : shares 2/3, 1, 1, 1 and 0, 0, 1/4."""
    x, y = [2.0, 4.0, 5.0, 6.0], [0.0, 1.0, 3.0]
    found = ev.brunner_munzel(x, y)
    assert found.estimate == pytest.approx(11 / 12)
    of_x, of_y = np.var([2 / 3, 1, 1, 1], ddof=1) / 4, np.var([0, 0, 1 / 4], ddof=1) / 3
    degrees = (of_x + of_y) ** 2 / (of_x**2 / 3 + of_y**2 / 2)
    half = scipy.stats.t.ppf(0.975, degrees) * np.sqrt(of_x + of_y) / (11 / 12 * 1 / 12)
    logits = np.log(11) + np.array([-half, half])
    np.testing.assert_allclose(ends(found.interval), 1 / (1 + np.exp(-logits)))
    # The statistic is the estimate less ½ over the root of the same variance.
    assert found.statistic == pytest.approx((11 / 12 - 1 / 2) / np.sqrt(of_x + of_y))


def test_brunner_munzel_without_variance():
    """All above all: every pair says so, and two of the 252 ways to share out the runs are as extreme."""
    apart = ev.brunner_munzel(np.arange(5.0) + 9.0, np.arange(5.0))
    assert (apart.estimate, apart.p_value) == (1.0, pytest.approx(2 / 252))
    np.testing.assert_allclose(ends(apart.interval), ends(ev.failed_fraction([True] * 5)))
    assert "all of one sample" in apart.interval.note
    below = ev.brunner_munzel(np.arange(5.0), np.arange(7.0) + 9.0)
    assert below.estimate == 0.0
    np.testing.assert_allclose(ends(below.interval), ends(ev.failed_fraction([False] * 5)))
    alike = ev.brunner_munzel([1.0, 1.0], [1.0, 1.0, 1.0])
    assert (alike.estimate, alike.p_value) == (0.5, 1.0)
    assert np.isnan(ends(alike.interval)).all()
    single = ev.brunner_munzel([1.0], [0.0, 2.0])
    assert single.estimate == 0.5
    assert np.isnan([single.p_value, *ends(single.interval)]).all()


def test_runs_are_aligned_by_key():
    x = {("Acrobot", 0): 1.0, ("Acrobot", 1): 2.0, ("Cart-pole", 0): 3.0}
    y = {("Cart-pole", 0): 30.0, ("Acrobot", 1): 20.0, ("Acrobot", 0): 10.0}
    first, second = ev.align_runs(x, y)
    np.testing.assert_array_equal(10.0 * first, second)
    with pytest.raises(ValueError, match=r"only y has \('Acrobot', 0\)"):
        ev.align_runs({}, {("Acrobot", 0): 1.0})


def test_holm_by_hand():
    np.testing.assert_allclose(ev.holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_array_equal(ev.holm([0.7, 0.9]), [1.0, 1.0])


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6))
def test_holm_is_the_closed_bonferroni_test(p_values):
    """The adjusted p of a hypothesis is the largest Bonferroni p of any set of hypotheses with it."""
    indices = range(len(p_values))
    sets = [s for size in indices for s in itertools.combinations(indices, size + 1)]
    bonferroni = {s: min(1.0, len(s) * min(p_values[i] for i in s)) for s in sets}
    expected = [max(p for s, p in bonferroni.items() if i in s) for i in indices]
    np.testing.assert_allclose(ev.holm(p_values), expected)


def test_what_failed_means():
    values = [-120.0, np.nan, -np.inf, np.inf, -100.0, 5.0]
    np.testing.assert_array_equal(ev.failed(values), [0, 1, 1, 1, 0, 0])
    np.testing.assert_array_equal(ev.failed(values, below=-100.0), [1, 1, 1, 1, 0, 0])
    marked = np.array([0, 0, 0, 0, 0, 1], dtype=bool)
    np.testing.assert_array_equal(ev.failed(values, below=-100.0, marked=marked), [1, 1, 1, 1, 0, 1])


@pytest.mark.parametrize(("method", "name"), [("wilson", "Wilson score"), ("exact", "Clopper–Pearson")])
@pytest.mark.parametrize(("count", "runs"), [(0, 1), (3, 20), (20, 20)])
def test_failed_fraction_is_scipys(method, name, count, runs):
    found = ev.failed_fraction(np.arange(runs) < count, 0.9, method)
    expected = scipy.stats.binomtest(count, runs).proportion_ci(0.9, method=method)
    np.testing.assert_array_equal(ends(found), expected)
    assert (found.estimate, found.method) == (count / runs, name)


def test_wilson_by_its_formula():
    found = ev.failed_fraction([True] * 3 + [False] * 17)
    z, p, n = scipy.stats.norm.ppf(0.975), 0.15, 20
    half = z * np.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)
    np.testing.assert_allclose(ends(found), (p + z**2 / (2 * n) + np.array([-half, half])) / (1 + z**2 / n))


def test_newcombe_by_his_example():
    """56/70 against 48/80: 0.2 with [0.0524, 0.3339], Newcombe (1998), table II."""
    x, y = np.arange(70) < 56, np.arange(80) < 48
    found = ev.failed_difference(x, y)
    np.testing.assert_allclose([found.estimate, *ends(found.interval)], [0.2, 0.0524, 0.3339], atol=5e-5)
    assert found.p_value == scipy.stats.fisher_exact([[56, 14], [48, 32]]).pvalue
    swapped = ev.failed_difference(y, x)
    np.testing.assert_allclose(ends(swapped.interval), -ends(found.interval)[::-1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ev.welch_t([], [1.0]), "x is empty"),
        (lambda: ev.welch_t([1.0], [np.nan]), r"y\[0\] is nan"),
        (lambda: ev.welch_t([1.0, 2.0], [1.0], level=1.5), "level is 1.5"),
        (lambda: ev.paired_t([1.0, 2.0], [1.0]), r"x has shape \(2,\) and y \(1,\).*align_runs"),
        (lambda: ev.signed_rank([1.0], [-np.inf]), r"y\[0\] is -inf"),
        (lambda: ev.bootstrap_t([1.0, 2.0], [1.0, 3.0], rng=rng(), n_resamples=1.5), "n_resamples is 1.5"),
        (lambda: ev.probability_of_improvement({"a": [1.0]}, {"b": [1.0]}, rng=rng()), r"x has the games \['a'\]"),
        (lambda: ev.probability_of_improvement({}, {}, rng=rng()), "x names no game"),
        (lambda: ev.probability_of_improvement({"a": []}, {"a": [1.0]}, rng=rng()), r"x\['a'\] is empty"),
        (lambda: ev.brunner_munzel([np.nan], [1.0]), r"x\[0\] is nan; give an infinity"),
        (lambda: ev.holm([0.5, 1.5]), "p_values range from 0.5 to 1.5"),
        (lambda: ev.holm([np.nan]), r"p_values\[0\] is nan"),
        (lambda: ev.failed([]), r"values has shape \(0,\)"),
        (lambda: ev.failed([1.0], below=np.nan), "below is nan"),
        (lambda: ev.failed([1.0, 2.0], marked=[True]), r"marked has shape \(1,\); give one boolean per run, of 2"),
        (lambda: ev.failed_fraction([0, 1]), "failures holds int64; give booleans"),
        (lambda: ev.failed_fraction([True], method="wald"), "method is 'wald'; give one of wilson, exact"),
        (lambda: ev.failed_difference([True], []), r"y has shape \(0,\)"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
