"""CDF-normalised averages: by hand, by the probability of improvement, and by a bootstrap made otherwise."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_robust_be import evaluation as ev

FEW = {"n_resamples": 300}
RETURNS = st.lists(st.integers(-3, 3).map(float) | st.just(-np.inf), min_size=2, max_size=5)
POOLS = st.lists(st.tuples(RETURNS, RETURNS), min_size=1, max_size=4).map(
    lambda contenders: {f"contender {k}": {"a": a, "b": b} for k, (a, b) in enumerate(contenders)}
)


def rng(seed=0):
    return np.random.default_rng(seed)


def averages(runs, seed=0, **arguments):
    return ev.cdf_normalised_averages(runs, rng=rng(seed), **{**FEW, **arguments})


def test_by_hand():
    """On pong the pool is 0, 1, 1, 2: G = ⅛, ½, ½, ⅞; on breakout x has won everywhere: G = ¾ ± ⅛ and ¼ ± ⅛."""
    runs = {"x": {"pong": [0.0, 1.0], "breakout": [8.0, 9.0]}, "y": {"pong": [2.0, 1.0], "breakout": [6.0, 7.0]}}
    found = averages(runs)
    pong, breakout = (1 / 8 + 1 / 2) / 2, (5 / 8 + 7 / 8) / 2
    assert found.estimates["x"] == pytest.approx((pong + breakout) / 2)
    assert found.estimates["y"] == pytest.approx((1 - pong + 1 - breakout) / 2)
    assert found.interval("x").estimate == found.estimates["x"]


def test_without_an_environment():
    """The averages over the others, from the same resamples; those of one environment are its scores."""
    runs = {"x": {"pong": [0.0, 1.0], "breakout": [8.0, 9.0]}, "y": {"pong": [2.0, 1.0], "breakout": [6.0, 7.0]}}
    both = averages(runs)
    pong, breakout = both.without("breakout"), both.without("pong")
    assert (pong.environments, breakout.environments) == (("pong",), ("breakout",))
    assert pong.estimates == {"x": pytest.approx((1 / 8 + 1 / 2) / 2), "y": pytest.approx((7 / 8 + 1 / 2) / 2)}
    assert breakout.seeds == {"x": (2,), "y": (2,)}
    alone = averages({name: {"pong": games["pong"]} for name, games in runs.items()})
    for name, own in both.resampled.items():
        # Pong is resampled first, by the same draws.
        np.testing.assert_array_equal(pong.resampled[name], alone.resampled[name])
        np.testing.assert_allclose((pong.resampled[name] + breakout.resampled[name]) / 2.0, own, atol=1e-15)
    with pytest.raises(ValueError, match="environment is 'pong', the only one"):
        pong.without("pong")
    with pytest.raises(ValueError, match="environment is 'tennis'; give one of pong, breakout"):
        both.without("tennis")


def test_environments_weigh_the_same_however_many_runs_they_have():
    runs = {"x": {"a": [1.0, 2.0], "b": [0.0] * 9}, "y": {"a": [-1.0, 0.0], "b": [1.0] * 9}}
    # On a x has the scores ⅝ and ⅞, on b ¼.
    assert averages(runs).estimates["x"] == pytest.approx((0.75 + 0.25) / 2)


@settings(max_examples=25, deadline=None)
@given(POOLS)
def test_the_contenders_average_one_half_in_every_resample(runs):
    """The pool of each resample is its own; with that of the sample the average would move."""
    found = averages(runs, n_resamples=20)
    assert np.mean(list(found.estimates.values())) == pytest.approx(0.5, abs=1e-12)
    np.testing.assert_allclose(np.mean(list(found.resampled.values()), axis=0), 0.5, atol=1e-12)
    for own in found.resampled.values():
        assert ((own >= 0.0) & (own <= 1.0)).all()


@settings(max_examples=25, deadline=None)
@given(POOLS)
def test_a_score_is_the_mean_probability_of_improvement(runs):
    found = averages(runs, n_resamples=2)
    for name, own in runs.items():
        of = [
            ev.probability_of_improvement(own, other, rng=rng(), n_resamples=1).estimate if other is not own else 0.5
            for other in runs.values()
        ]
        assert found.estimates[name] == pytest.approx(np.mean(of), abs=1e-12)


def test_the_interval_is_that_of_a_bootstrap_that_ranks_each_resample():
    """By scipy, with ranks: with equally many runs G is (mid-rank − ½)/n of the pool."""
    runs = {
        name: {g: rng(10 * k + i).normal(0.4 * k, 1.0, 12) for i, g in enumerate("abc")} for k, name in enumerate("xyz")
    }
    samples = [runs[name][g] for name in "xyz" for g in "abc"]

    def score(*parts, axis):
        of = []
        for i in range(3):
            pool = np.concatenate([parts[i], parts[3 + i], parts[6 + i]], axis=axis)
            ranks = scipy.stats.rankdata(pool, axis=axis)[..., 24:]
            of.append(((ranks - 0.5) / 36).mean(axis=axis))
        return np.mean(of, axis=0)

    expected = ev.bootstrap.bootstrap_samples(samples, score, rng=rng(5), method="percentile")
    found = averages(runs, n_resamples=9_999).interval("z")
    assert found.estimate == pytest.approx(expected.estimate)
    np.testing.assert_allclose([found.low, found.high], [expected.low, expected.high], atol=0.005)


def test_resamples_spread_as_mann_and_whitney_say():
    """Of two contenders with equal distributions the score is ¼ + ½·U/n², with Var U = n²(2n + 1)/12.

    The scores of a fixed pool, of variance 1/12 each, would spread √2 as much.
    """
    n, spreads = 15, []
    for seed in range(60):
        x, y = rng(seed).normal(size=(2, n))
        spreads.append(averages({"x": {"a": x}, "y": {"a": y}}, seed).resampled["x"].std())
    assert np.mean(spreads) == pytest.approx(0.5 * np.sqrt((2 * n + 1) / (12 * n**2)), rel=0.08)


def test_five_runs_on_three_environments_cover_in_about_nine_tenths():
    """Less than the nominal 95 %, as the pages of MinAtar say."""
    means = np.array([[0.0, 0.3, 0.6, 0.9], [0.5, 0.0, 0.2, 1.0], [0.0, 0.0, 0.0, 0.5]])
    truth = scipy.stats.norm.cdf((means[:, :, None] - means[:, None, :]) / np.sqrt(2.0)).mean(axis=(0, 2))
    covered = []
    for seed in range(200):
        draw = rng(seed)
        found = averages({str(k): {g: draw.normal(means[g, k], 1.0, 5) for g in range(3)} for k in range(4)}, seed)
        for k in range(4):
            interval = found.interval(str(k))
            covered.append(interval.low <= truth[k] <= interval.high)
    assert 0.87 <= np.mean(covered) <= 0.93


def test_order_alone_counts():
    runs = {"x": {"a": [1.0, 2.0, 3.0]}, "y": {"a": [2.5, -np.inf, 0.0]}}
    moved = {name: {"a": [np.exp(x) for x in own["a"]]} for name, own in runs.items()}
    assert averages(moved).estimates == averages(runs).estimates
    np.testing.assert_array_equal(averages(moved).resampled["x"], averages(runs).resampled["x"])


# --- verdicts ---


def far(mean, seed, n=8):
    return {g: mean + rng(seed + i).normal(size=n) for i, g in enumerate("abc")}


def test_greater_by_a_margin():
    """x leaves y's runs below it in three of four pairs: averages of ⅝ and ⅜, and so on each of 100 environments."""
    runs = {"x": {str(i): [1.0, 3.0] for i in range(100)}, "y": {str(i): [0.0, 2.0] for i in range(100)}}
    found = averages(runs)
    for margin, outcome in ((0.0, "HOLDS"), (0.1, "HOLDS"), (0.24, "NOT_RESOLVED"), (0.4, "DOES_NOT_HOLD")):
        verdict = found.greater("", "x", "y", margin)
        assert verdict.outcome is ev.Outcome[outcome]
        assert (verdict.estimate, verdict.reference) == (pytest.approx(0.25), margin)
        assert verdict.interval == found.greater("", "x", "y").interval
    assert found.greater("", "y", "x", -0.4).outcome is ev.Outcome.HOLDS
    assert found.greater("", "y", "x", -0.1).outcome is ev.Outcome.DOES_NOT_HOLD


def test_greater_goes_either_way():
    found = averages({"high": far(3.0, 0), "low": far(0.0, 9), "like low": far(0.0, 20)}, n_resamples=999)
    verdict = found.greater("high is above low", "high", "low")
    assert verdict.outcome is ev.Outcome.HOLDS
    assert verdict.estimate == pytest.approx(found.estimates["high"] - found.estimates["low"])
    assert verdict.p_value == pytest.approx(2 / 1000), "no resample says otherwise"
    assert verdict.seeds == (8, 8), "of one environment"
    assert (verdict.quantity, verdict.reference) == ("difference of averages", 0.0)
    assert found.greater("low is above high", "low", "high").outcome is ev.Outcome.DOES_NOT_HOLD
    assert found.greater("low is above its like", "low", "like low").outcome is ev.Outcome.NOT_RESOLVED


def test_equal_runs_are_no_difference():
    found = averages({"x": {"a": [1.0] * 5}, "y": {"a": [1.0] * 5}})
    assert (found.interval("x").low, found.interval("x").high) == (0.5, 0.5)
    verdict = found.greater("x is above y", "x", "y")
    assert (verdict.outcome, verdict.estimate, verdict.p_value) == (ev.Outcome.NOT_RESOLVED, 0.0, 1.0)


def test_few_runs_decide_nothing():
    """Two of each on one environment can be exchanged in six ways; on three environments in 216."""
    few = {"x": {"a": [8.0, 9.0]}, "y": {"a": [1.0, 2.0]}}
    verdict = averages(few).greater("x is above y", "x", "y")
    assert (verdict.outcome, verdict.reason) == (
        ev.Outcome.NOT_RESOLVED,
        "no exact test of 2 + 2 seeds reaches p = 0.05",
    )
    more = {name: dict.fromkeys("abc", own["a"]) for name, own in few.items()}
    assert averages(more).greater("x is above y", "x", "y").outcome is ev.Outcome.HOLDS
    one = averages({"x": {"a": [8.0], "b": [1.0, 2.0]}, "y": {"a": [1.0, 2.0], "b": [1.0, 2.0]}})
    assert np.isnan(one.interval("x").low)
    assert one.greater("x is above y", "x", "y").outcome is ev.Outcome.NOT_RESOLVED


def test_many_runs_on_many_environments_are_judged():
    """100 + 100 on each of ten: more arrangements than a double can count."""
    runs = {
        name: {str(i): mean + rng(100 * k + i).normal(size=100) for i in range(10)}
        for k, (name, mean) in enumerate({"high": 1.0, "low": 0.0}.items())
    }
    verdict = averages(runs).greater("high is above low", "high", "low")
    assert (verdict.outcome, verdict.seeds) == (ev.Outcome.HOLDS, (100, 100))


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda: averages({}), "runs names no algorithm"),
        (lambda: averages({"x": {"a": [1.0, np.nan]}}), r"runs\['x'\]\['a'\]\[1\] is nan"),
        (lambda: averages({"x": {"a": [1.0]}, "y": {"b": [1.0]}}), r"runs\['y'\] has the games \['b'\]"),
        (lambda: averages({"x": {"a": [1.0]}}, level=2.0), "level is 2.0"),
        (lambda: averages({"x": {"a": [1.0]}}, n_resamples=0), "n_resamples is 0"),
        (lambda: averages({"x": {"a": [1.0]}}).interval("z"), "contender is 'z'; give one of x"),
        (lambda: averages({"x": {"a": [1.0]}}).greater("", "x", "z"), "y is 'z'; give one of x"),
        (lambda: averages({"x": {"a": [1.0]}}).greater("", "x", "x", np.inf), "margin is inf; give a finite number"),
    ],
)
def test_mistakes(act, says):
    with pytest.raises(ValueError, match=says):
        act()
