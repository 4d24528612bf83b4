"""Verdicts: holds, does not hold, or not resolved, from evidence that says each of them."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from sb3_robust_be import evaluation as ev
from sb3_robust_be.evaluation import Comparison, Interval, Outcome
from sb3_robust_be.evaluation.attainable import attainable_p, attainable_p_within
from sb3_robust_be.evaluation.claims import COMPARISONS
from sb3_robust_be.evaluation.verdicts import decide

HOLDS, DOES_NOT_HOLD, NOT_RESOLVED = Outcome


def rng(seed=0):
    return np.random.default_rng(seed)


def found(low, high, p_value, level=0.95):
    middle = 0.5 * (low + high)
    return Comparison("a test", middle, Interval(middle, low, high, level, "m"), 1.0, p_value, (9,), "difference")


def part(claim, outcome, p_value):
    return ev.Verdict(claim, outcome, 0.0, Interval(0.0, -1.0, 1.0, 0.95, "m"), "t", 0.0, p_value, (9, 9))


@pytest.mark.parametrize(
    ("low", "high", "p_value", "above", "below"),
    [
        (0.1, 2.0, 0.01, HOLDS, DOES_NOT_HOLD),
        (-2.0, -0.1, 0.01, DOES_NOT_HOLD, HOLDS),
        (-0.1, 2.0, 0.30, NOT_RESOLVED, NOT_RESOLVED),
        (0.0, 2.0, 0.05, NOT_RESOLVED, NOT_RESOLVED),  # the interval includes its end
        (0.1, 2.0, 0.06, NOT_RESOLVED, NOT_RESOLVED),
        (-0.1, 2.0, 0.01, NOT_RESOLVED, NOT_RESOLVED),
        (np.nan, np.nan, np.nan, NOT_RESOLVED, NOT_RESOLVED),
    ],
)
def test_the_interval_must_exclude_the_opposite(low, high, p_value, above, below):
    evidence = found(low, high, p_value)
    assert decide("c", evidence, 0.0).outcome is above
    assert decide("c", evidence, 0.0, side="below").outcome is below
    assert decide("c", evidence, 0.0, attainable=0.2).outcome is NOT_RESOLVED


def test_reasons():
    assert "disagree" in decide("c", found(0.1, 2.0, 0.06), 0.0).reason
    assert "9 seeds reaches p = 0.05" in decide("c", found(0.1, 2.0, 0.01), 0.0, attainable=0.1).reason
    assert decide("c", found(-0.1, 2.0, 0.3), 0.0).reason == ""


def test_attainable_p_is_reached_by_separated_samples():
    for n, m in itertools.product(range(1, 6), repeat=2):
        exact = scipy.stats.mannwhitneyu(np.arange(n), 10.0 + np.arange(m), method="exact").pvalue
        assert attainable_p(n, m) == pytest.approx(exact)
    for n in range(1, 8):
        assert attainable_p(n) == pytest.approx(scipy.stats.wilcoxon(np.arange(1.0, n + 1), method="exact").pvalue)


@pytest.mark.parametrize(
    ("seeds", "level", "enough"),
    [((3, 3), 0.95, False), ((4, 4), 0.95, True), ((3, 4), 0.95, False), ((3, 5), 0.95, True), ((5,), 0.95, False),
     ((6,), 0.95, True), ((3, 3), 0.9, True), ((1, 30), 0.95, False), ((1, 40), 0.95, True), ((4, 4), 0.99, False)],
)  # fmt: skip
def test_enough_seeds_is_where_a_verdict_can_be_resolved(seeds, level, enough):
    """However large a difference is, too few seeds cannot tell it from chance."""
    assert ev.enough_seeds(*seeds, level=level) is enough
    certain = decide("c", found(1.0, 2.0, 0.0, level), 0.0, attainable=attainable_p(*seeds))
    assert (certain.outcome is HOLDS) is enough


@pytest.mark.parametrize("sizes", [[(2, 2)], [(1, 1)], [(4, 4), (4, 4)], [(2, 9), (30, 30)], [(100, 100)] * 4])
def test_attainable_p_within_environments_is_one_of_all_arrangements(sizes):
    arrangements = math.prod(math.comb(n + m, n) for n, m in sizes)
    assert attainable_p_within(sizes) == pytest.approx(min(1.0, 2.0 / arrangements))


def test_attainable_p_of_more_arrangements_than_a_double_can_count():
    """Some 10^590 of them, of which the logarithm is known from exact integers."""
    log10 = math.log10(2) - 10 * math.log10(math.comb(200, 100))
    assert log10 < -585
    assert attainable_p_within([(100, 100)] * 10) == 0.0
    assert attainable_p(1000, 1000) == 0.0
    few = [(100, 100)] * 5
    assert math.log10(attainable_p_within(few)) == pytest.approx(math.log10(2) - 5 * math.log10(math.comb(200, 100)))


def test_a_verdict_reads_as_a_sentence_and_as_a_row():
    x, y = rng().normal(2.0, 1.0, 20), rng(1).normal(0.0, 1.0, 30)
    verdict = ev.greater("QRC-Huber is above DQN", x, y)
    welch = ev.welch_t(x, y)
    sentence = str(verdict)
    assert sentence.startswith(
        f"QRC-Huber is above DQN: holds (difference of means {welch.estimate:.4g}, 95 % interval ["
    )
    assert "Welch's t, statistic" in sentence
    assert sentence.endswith("20 + 30 seeds)")
    row = verdict.as_row()
    assert (row["outcome"], row["seeds"], row["low"]) == ("holds", "20 + 30", welch.interval.low)
    assert (row["p_value"], row["test"], row["level"]) == (welch.p_value, "Welch's t", 0.95)
    assert (row["quantity"], row["reference"]) == ("difference of means", 0.0)
    beside = ev.brunner_munzel(x, y)
    assert (row["improvement"], row["improvement_low"], row["improvement_p"]) == (
        beside.estimate,
        beside.interval.low,
        beside.p_value,
    )
    assert all(isinstance(value, str | float) for value in row.values())
    assert "improvement" not in ev.computed("c", 1.0, 2.0).as_row()


@pytest.mark.parametrize("method", COMPARISONS)
def test_greater_takes_all_three_values(method):
    options = {"method": method, "rng": rng(), "n_resamples": 499}
    x, y = rng(1).normal(size=30), rng(2).normal(size=30)
    assert ev.greater("c", x + 3.0, y, **options).outcome is HOLDS
    assert ev.greater("c", x, y + 3.0, **options).outcome is DOES_NOT_HOLD
    assert ev.greater("c", x, y + (x - y).mean(), **options).outcome is NOT_RESOLVED


@pytest.mark.parametrize("method", COMPARISONS)
def test_few_seeds_never_resolve(method):
    """However far apart: three against three are so by chance in 1 of 10 cases."""
    options = {"method": method, "rng": rng(), "n_resamples": 199}
    for n in (1, 2, 3):
        verdict = ev.greater("c", 100.0 + np.arange(n), np.arange(n), **options)
        assert verdict.outcome is NOT_RESOLVED
        assert "no exact test" in verdict.reason
    assert ev.greater("c", 100.0 + np.arange(7), np.arange(7)[::-1] * 0.9, **options).outcome is HOLDS


@pytest.mark.parametrize("method", ["welch", "paired", "signed-rank", "bootstrap-t"])
def test_margin_moves_the_opposite_not_the_estimate(method):
    x, y = rng().normal(1.0, 1.0, 40), rng(1).normal(0.0, 1.0, 40)
    options = {"method": method, "rng": rng()}
    plain, far, near = (ev.greater("c", x, y, margin=margin, **options) for margin in (0.0, 3.0, -3.0))
    assert (plain.outcome, far.outcome, near.outcome) == (HOLDS, DOES_NOT_HOLD, HOLDS)
    assert far.estimate == pytest.approx(plain.estimate)
    assert far.interval.low == pytest.approx(plain.interval.low, abs=0.05)
    close = ev.greater("c", x, x + 1.0 + 0.1 * y, margin=-3.0, **options)
    assert close.outcome is HOLDS  # "not much lower"
    assert close.estimate < 0.0


def test_greater_than_a_number():
    x = rng().normal(2.0, 1.0, 20)
    verdict = ev.greater("c", x, 1.0)
    expected = scipy.stats.ttest_1samp(x, 1.0)
    assert (verdict.test, verdict.outcome) == ("one-sample t", HOLDS)
    assert (verdict.statistic, verdict.p_value) == pytest.approx((expected.statistic, expected.pvalue))
    assert verdict.estimate == pytest.approx(x.mean() - 1.0)
    assert ev.greater("c", x, 3.0, method="signed-rank").outcome is DOES_NOT_HOLD


QUANTITIES = {
    "welch": "difference of means",
    "paired": "mean difference of pairs",
    "signed-rank": "pseudo-median of differences",
    "bootstrap-t": "mean difference of pairs",
    "rank": "probability of improvement",
}


@pytest.mark.parametrize("method", COMPARISONS)
def test_a_verdict_knows_what_its_number_is(method):
    x, y = rng(1).normal(size=9), rng(2).normal(size=9)
    verdict = ev.greater("c", x, y, method=method, rng=rng(), margin=-0.25)
    assert verdict.quantity == QUANTITIES[method]
    assert verdict.reference == (0.5 if method == "rank" else -0.25)


def test_numbers_of_other_verdicts():
    x, y = rng(1).normal(size=30), rng(2).normal(size=30)
    flags = np.arange(30) < 9
    found = [
        ev.greater("c", x, 0.5),
        ev.fails_more("c", flags, ~flags),
        ev.fails_more("c", flags, 0.2),
        ev.insensitive("c", {"a": x, "b": y}, 2.0),
        ev.narrower("c", x, y, rng=rng(), n_resamples=99),
        ev.narrower("c", x, y, rng=rng(), measure="std", n_resamples=99),
        ev.bimodal("c", x, rng=rng(), n_resamples=99),
        ev.longer_tailed("c", x, y, rng=rng()),
        ev.lower("c", np.exp(x), np.exp(y)),
        ev.lower("c", np.append(np.exp(x), np.inf), np.append(np.exp(y), 1.0)),
        ev.lower_ratio("c", np.exp(x), np.exp(y), 1.5),
        ev.lower_ratio("c", np.exp(x), 2.0 * np.exp(x), 1.5),
    ]
    assert [(verdict.quantity, verdict.reference) for verdict in found] == [
        ("excess over 0.5", 0.0),
        ("difference of fractions", 0.0),
        ("fraction", 0.2),
        ("range of the means", 2.0),
        ("ratio of interquartile ranges", 1.0),
        ("ratio of standard deviations", 1.0),
        ("dip", 0.0),
        ("difference of median − worst decile", 0.0),
        ("mean difference of pairs", 0.0),
        ("share of seeds with the lower error", 0.5),
        ("ratio of errors", 1.5),
        ("ratio of errors", 1.5),
    ]
    together = ev.combined("all", found)
    assert (together.quantity, math.isnan(together.reference)) == ("", True)


def test_the_probability_of_improvement_stands_beside_means_and_decides_nothing():
    """One of y's twenty runs has lost so much that y's mean is unresolved, and x is below all others."""
    y = np.append(rng(1).normal(3.0, 0.1, 19), -200.0)
    x = rng(2).normal(0.0, 0.1, 20)
    verdict = ev.greater("c", x, y)
    assert verdict.outcome is NOT_RESOLVED
    assert verdict.improvement.estimate == pytest.approx(1 / 20)
    assert verdict.improvement.interval.high < 0.5
    assert verdict.improvement == ev.brunner_munzel(x, y)
    assert ev.greater("c", x, y, margin=-9.0).improvement == verdict.improvement
    assert ev.greater("c", x, y, method="paired").improvement is None
    assert ev.greater("c", x, 1.0).improvement is None


def test_equal_runs_are_judged_by_exchanging_them():
    apart = ev.greater("c", [500.0] * 5, [9.0] * 5)
    assert (apart.outcome, apart.test, apart.p_value) == (HOLDS, "exchange of runs", pytest.approx(2 / 252))
    assert "no spread" in apart.reason
    assert ev.greater("c", [500.0] * 3, [9.0] * 3).outcome is NOT_RESOLVED
    pairs = ev.greater("c", [500.0] * 8, [9.0] * 8, method="paired")
    assert (pairs.outcome, pairs.p_value) == (HOLDS, 2.0**-7)


def test_rank_admits_diverged_runs():
    diverged = [-np.inf] * 6 + [0.0, 0.1, 0.2]
    options = {"method": "rank", "rng": rng(), "n_resamples": 199}
    assert ev.greater("c", np.arange(9.0), diverged, **options).outcome is HOLDS
    assert ev.greater("c", np.arange(9.0), np.zeros(9), margin=20.0, **options).outcome is DOES_NOT_HOLD


def test_fails_more():
    many, few = np.arange(40) < 20, np.arange(50) < 2
    verdict = ev.fails_more("c", many, few)
    assert (verdict.outcome, verdict.estimate) == (HOLDS, pytest.approx(0.46))
    assert ev.fails_more("c", few, many).outcome is DOES_NOT_HOLD
    assert ev.fails_more("c", few, few).outcome is NOT_RESOLVED
    assert ev.fails_more("c", [True] * 3, [False] * 3).outcome is NOT_RESOLVED


def test_fails_more_than_a_fraction():
    flags = np.arange(40) < 30
    verdict = ev.fails_more("c", flags, 0.5)
    assert verdict.outcome is HOLDS
    assert verdict.interval == ev.failed_fraction(flags)
    assert verdict.p_value == scipy.stats.binomtest(30, 40, 0.5).pvalue
    assert ev.fails_more("c", flags, 0.9).outcome is DOES_NOT_HOLD
    assert ev.fails_more("c", flags, 0.7).outcome is NOT_RESOLVED


def settings(*means, runs=20, spread=1.0):
    return {f"κ={k}": rng(k).normal(mean, spread, runs) for k, mean in enumerate(means)}


def test_insensitive():
    verdict = ev.insensitive("c", settings(0.0, 0.1, 0.0), 3.0)
    assert verdict.outcome is HOLDS
    assert verdict.seeds == (20, 20, 20)
    assert ev.insensitive("c", settings(0.0, 0.0, 9.0), 3.0).outcome is DOES_NOT_HOLD
    assert ev.insensitive("c", settings(0.0, 3.0), 3.0).outcome is NOT_RESOLVED
    assert ev.insensitive("c", settings(0.0, 0.0, runs=3, spread=1e-9), 3.0).outcome is NOT_RESOLVED
    assert ev.insensitive("c", {"a": [1.0], "b": [1.0]}, 3.0).outcome is NOT_RESOLVED


def test_insensitive_by_its_parts():
    """Two settings: the interval of |difference| at both ends, and TOST's larger p, doubled."""
    runs = settings(0.0, 1.0)
    x, y = runs.values()
    welch = ev.welch_t(x, y).interval
    verdict = ev.insensitive("c", runs, 2.5)
    assert verdict.estimate == pytest.approx(abs(welch.estimate))
    assert (verdict.interval.low, verdict.interval.high) == pytest.approx((-welch.high, -welch.low))
    one_sided = [
        scipy.stats.ttest_ind(x + 2.5, y, equal_var=False, alternative="greater").pvalue,
        scipy.stats.ttest_ind(x - 2.5, y, equal_var=False, alternative="less").pvalue,
    ]
    assert verdict.p_value == pytest.approx(2.0 * max(one_sided))
    refuted = ev.insensitive("c", settings(0.0, 5.0, 0.0), 2.5)
    x, y = (settings(0.0, 5.0, 0.0)[f"κ={k}"] for k in (0, 1))
    below = scipy.stats.ttest_ind(x + 2.5, y, equal_var=False, alternative="less").pvalue
    x = settings(0.0, 5.0, 0.0)["κ=2"]
    below = min(below, scipy.stats.ttest_ind(x + 2.5, y, equal_var=False, alternative="less").pvalue)
    assert refuted.p_value == pytest.approx(3 * 2 * below)
    strict = [ev.welch_t(settings(0.0, 5.0, 0.0)["κ=1"], other, 1 - 0.05 / 3).interval for other in (runs["κ=0"], x)]
    assert refuted.interval.low == pytest.approx(max(interval.low for interval in strict))


def test_computed():
    assert ev.computed("c", 1.0, 2.0).outcome is HOLDS
    assert ev.computed("c", 2.0, 2.0).outcome is DOES_NOT_HOLD
    assert ev.computed("c", 3.0, 2.0, side="above").outcome is HOLDS
    assert str(ev.computed("20 times", 20.4, 10.0, "above")) == "20 times: holds (value 20.4, computed: above 10)"
    ratio = ev.computed("20 times", 20.4, 10.0, "above", "ratio")
    assert (ratio.quantity, ratio.reference) == ("ratio", 10.0)


def test_combined_all_and_some():
    good, unclear, bad = part("a", HOLDS, 0.04), part("b", NOT_RESOLVED, 0.5), part("c", DOES_NOT_HOLD, 0.03)
    assert ev.combined("all", [good] * 5).outcome is HOLDS  # no correction
    assert ev.combined("all", [good, unclear]).outcome is NOT_RESOLVED
    assert ev.combined("all", [good, bad]).outcome is NOT_RESOLVED  # 2 · 0.03
    refuted = ev.combined("all", [good, good, part("c", DOES_NOT_HOLD, 0.01)])
    assert (refuted.outcome, refuted.p_value) == (DOES_NOT_HOLD, pytest.approx(0.03))
    assert refuted.reason == "c: does not hold"
    sure = part("s", HOLDS, 0.02)
    most = ev.combined("most", [sure, sure, bad], at_least=2)
    assert (most.outcome, most.p_value) == (HOLDS, pytest.approx(0.04))  # (3 − 2 + 1) · 0.02
    assert ev.combined("any", [good, bad, bad], at_least=1).outcome is NOT_RESOLVED  # 3 · 0.04
    assert ev.combined("any", [bad, bad], at_least=1).outcome is DOES_NOT_HOLD  # 1 · 0.03
    mixed = ev.combined("mixed", [decide("c", found(0.1, 1.0, 0.01, 0.9), 0.0), ev.computed("b", 1.0, 2.0)])
    assert (mixed.outcome, mixed.interval.level, mixed.seeds) == (HOLDS, 0.9, (9,))
    exact = ev.combined("exact", [ev.computed("a", 1.0, 2.0), ev.computed("b", 1.0, 2.0)])
    assert (exact.outcome, exact.p_value, exact.seeds) == (HOLDS, 0.0, ())
    # Parts that were computed decide it: one of two, two of three, but not all of two.
    tested, wrong = decide("c", found(0.1, 1.0, 0.01, 0.9), 0.0), ev.computed("a", 2.0, 1.0)
    assert ev.combined("both", [tested, wrong]).seeds == ()
    right = ev.computed("a", 1.0, 2.0)
    three = [right, right, tested]
    assert (ev.combined("two", three, 2).seeds, ev.combined("all", three).seeds) == ((), (9,))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ev.greater("c", [1.0], [1.0], method="t"), "method is 't'; give one of welch, paired"),
        (lambda: ev.greater("c", [1.0], [1.0], margin=np.inf), "margin is inf"),
        (lambda: ev.greater("c", [1.0], 1.0, method="rank"), "y is 1.0 for method 'rank'"),
        (lambda: ev.greater("c", [1.0, 2.0], [1.0], method="paired"), r"x has shape \(2,\) and y \(1,\)"),
        (lambda: ev.greater("c", [1.0, np.nan], [1.0]), r"x\[1\] is nan"),
        (lambda: ev.narrower("c", [1.0], [1.0], rng=rng(), measure="mad"), "measure is 'mad'; give one of iqr, std"),
        (lambda: ev.spread_ratio([1.0], [2.0], rng=rng(), level=2), "level is 2"),
        (lambda: ev.bimodal("c", [1.0], rng=rng(), negligible=0.25), "negligible is 0.25"),
        (lambda: ev.bimodal("c", [], rng=rng()), "values is empty"),
        (lambda: ev.fails_more("c", [True], 1.5), "y is 1.5; give a fraction"),
        (lambda: ev.insensitive("c", {"a": [1.0]}, 1.0), "settings has 1 setting"),
        (lambda: ev.insensitive("c", settings(0.0, 1.0), 0.0), "tolerance is 0.0"),
        (lambda: ev.computed("c", np.nan, 1.0), "value is nan"),
        (lambda: ev.combined("c", []), "verdicts is empty"),
        (lambda: ev.combined("c", [part("a", HOLDS, 0.0)], at_least=2), "at_least is 2 for 1 verdicts"),
        (lambda: decide("c", found(0.0, 1.0, 0.1), 0.0, side="over"), "side is 'over'; give one of above, below"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_mixed_levels_and_missing_generators():
    mixed = [decide("c", found(0.1, 1.0, 0.01, level), 0.0) for level in (0.9, 0.95)]
    with pytest.raises(ValueError, match=r"levels \[0.9, 0.95\]"):
        ev.combined("c", mixed)
    with pytest.raises(TypeError, match="rng is None"):
        ev.greater("c", [1.0, 2.0], [3.0, 4.0], method="bootstrap-t")
