"""Performance profiles and scaled returns: by hand, by brute force, and the identities of mid-ranks."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_robust_be import evaluation as ev

RETURNS = st.lists(st.integers(-3, 3).map(float) | st.just(-np.inf), min_size=1, max_size=6)
POOLS = st.lists(st.tuples(RETURNS, RETURNS), min_size=1, max_size=4).map(
    lambda algorithms: {f"algorithm {k}": {"a": a, "b": b} for k, (a, b) in enumerate(algorithms)}
)
HAND = {"x": {"pong": [0.0, 2.0]}, "y": {"pong": [1.0, 2.0, 3.0, 4.0]}}


def rng(seed=0):
    return np.random.default_rng(seed)


def test_by_hand():
    """At 2: half of x below and half a run tied of two, a quarter of y below and one tied of four."""
    profile = ev.PerformanceProfile(HAND)
    assert profile.score("pong", 2.0) == pytest.approx(0.5 * ((1 + 0.5) / 2 + (1 + 0.5) / 4))
    strict = ev.PerformanceProfile(HAND, ties="strict")
    assert strict.score("pong", 2.0) == pytest.approx(0.5 * (1 / 2 + 1 / 4))
    np.testing.assert_allclose(profile.score("pong", [[-1.0, 9.0], [0.0, np.nan]]), [[0.0, 1.0], [0.125, np.nan]])
    assert profile.games == ("pong",)


def brute_force(reference, game, x, tie):
    return np.mean([np.mean([(r < x) + tie * (r == x) for r in games[game]]) for games in reference.values()])


@pytest.mark.parametrize(("ties", "tie"), [("mid-rank", 0.5), ("strict", 0.0)])
@settings(max_examples=30)
@given(runs=POOLS, reference=POOLS)
def test_agrees_with_counting(ties, tie, runs, reference):
    scores = ev.scaled_returns(runs, reference=reference, ties=ties)
    for name, games in runs.items():
        for game, returns in games.items():
            expected = [brute_force(reference, game, x, tie) for x in returns]
            np.testing.assert_allclose(scores[name][game], expected, atol=1e-12)


@settings(max_examples=50)
@given(POOLS)
def test_the_pool_averages_one_half(runs):
    """Exactly, game by game, however many runs and ties there are; strict ties can only lose."""
    scores, strict = ev.scaled_returns(runs), ev.scaled_returns(runs, ties="strict")
    for game in ("a", "b"):
        assert np.mean([np.mean(scores[name][game]) for name in runs]) == pytest.approx(0.5, abs=1e-12)
        assert np.mean([np.mean(strict[name][game]) for name in runs]) < 0.5


@settings(max_examples=50)
@given(POOLS, st.floats(0.1, 10.0), st.floats(-100.0, 100.0))
def test_scores_depend_on_order_alone(runs, factor, shift):
    moved = {
        name: {game: factor * np.array(returns) + shift * (game == "a") for game, returns in games.items()}
        for name, games in runs.items()
    }
    scores, expected = ev.scaled_returns(moved), ev.scaled_returns(runs)
    for name in runs:
        np.testing.assert_array_equal(scores[name]["a"], expected[name]["a"])
        np.testing.assert_array_equal(scores[name]["b"], expected[name]["b"])


def test_a_wider_pool_moves_the_average():
    """As in the paper, whose three averages have a mean of 0.453."""
    runs = {name: {"g": rng(k).normal(size=30)} for k, name in enumerate(["QRC", "DQN"])}
    better = {**runs, "tuned": {"g": rng(9).normal(2.0, 1.0, 30)}}
    scores = ev.scaled_returns(runs, reference=better)
    assert np.mean([scores[name]["g"].mean() for name in runs]) < 0.45


def test_suite_mean_weighs_games_equally():
    games = {"a": [0.0, 0.5, 1.0], "b": [0.9] * 10}
    found = ev.suite_mean(games, rng=rng())
    assert found.estimate == pytest.approx(0.7)
    assert 0.45 <= found.low < 0.65
    assert 0.75 < found.high <= 0.95


def test_suite_mean_of_equal_games_is_the_stratified_bootstrap():
    scores = rng().uniform(size=(5, 30))
    games = dict(zip("abcde", scores, strict=True))
    expected = ev.bootstrap_interval(scores.ravel(), rng=rng(1), groups=np.repeat(list("abcde"), 30))
    found = ev.suite_mean(games, rng=rng(1))
    np.testing.assert_allclose([found.estimate, found.low, found.high], [0.5, 0.5, 0.5], atol=0.1)
    np.testing.assert_allclose([found.low, found.high], [expected.low, expected.high], atol=1e-12)


def test_score_distribution_by_hand():
    games = {"a": [0.1, 0.3], "b": [0.2, 0.4, 0.6, 0.8]}
    band = ev.score_distribution(games, [0.0, 0.3, 0.9], rng=rng(), n_resamples=500)
    np.testing.assert_allclose(band.estimate, [1.0, (0.0 + 0.75) / 2, 0.0])
    np.testing.assert_array_equal(band.low[[0, 2]], band.high[[0, 2]])
    assert band.low[1] < band.estimate[1] < band.high[1]


def test_score_distribution_falls_and_integrates_to_the_mean():
    """∫₀¹ P(score > t) dt is the mean score."""
    games = {"a": rng().uniform(size=40), "b": rng(1).beta(2.0, 3.0, size=25)}
    at = np.linspace(0.0, 1.0, 2001)
    band = ev.score_distribution(games, at, rng=rng(), n_resamples=50)
    assert np.all(np.diff(band.estimate) <= 0.0)
    mean = np.mean([scores.mean() for scores in games.values()])
    assert band.estimate.mean() == pytest.approx(mean, abs=1e-3)


def test_ecdf_is_scipys():
    values = rng().integers(0, 10, size=30).astype(float)
    at = np.linspace(-1.0, 11.0, 25)
    band = ev.ecdf_band(values, at, 0.9)
    np.testing.assert_allclose(band.estimate, scipy.stats.ecdf(values).cdf.evaluate(at))
    width = np.sqrt(np.log(20.0) / 60.0)
    np.testing.assert_allclose(band.low, np.maximum(band.estimate - width, 0.0))
    np.testing.assert_allclose(band.high, np.minimum(band.estimate + width, 1.0))
    assert ev.ecdf_band([-np.inf, 1.0], [0.0]).estimate == 0.5


def test_rliable_format():
    runs = {"x": {"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]}, "y": {"b": [8.0], "a": [7.0]}}
    arrays = ev.to_rliable(runs)
    np.testing.assert_array_equal(arrays["x"], [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]])
    np.testing.assert_array_equal(arrays["y"], [[7.0, 8.0]])


def test_the_papers_comparison_end_to_end():
    """Returns of three algorithms, each a little better than the next, on games of very different scales."""
    better = {"QRC-Huber": 0.8, "QRC": 0.4, "DQN": 0.0}
    runs = {
        name: {f"game {g}": 10.0**g * (rng(10 * k + g).normal(size=30) + shift) for g in range(5)}
        for k, (name, shift) in enumerate(better.items())
    }
    scores = ev.scaled_returns(runs)
    table = {name: ev.suite_mean(games, rng=rng(), n_resamples=999) for name, games in scores.items()}
    assert table["QRC-Huber"].estimate > table["QRC"].estimate > table["DQN"].estimate
    assert np.mean([row.estimate for row in table.values()]) == pytest.approx(0.5)
    pairs = ev.to_rliable(scores)
    verdict = ev.greater("QRC-Huber is above QRC", pairs["QRC-Huber"], pairs["QRC"], method="paired")
    assert verdict.outcome is ev.Outcome.HOLDS
    assert verdict.estimate == pytest.approx(table["QRC-Huber"].estimate - table["QRC"].estimate)
    assert verdict.seeds == (150,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ev.PerformanceProfile({}), "reference names no algorithm"),
        (lambda: ev.PerformanceProfile(HAND, ties="mean"), "ties is 'mean'; give one of mid-rank, strict"),
        (lambda: ev.PerformanceProfile(HAND).score("breakout", [1.0]), "game is 'breakout'; give one of pong"),
        (lambda: ev.scaled_returns({"x": {"pong": [np.nan]}}), r"runs\['x'\]\['pong'\]\[0\] is nan"),
        (lambda: ev.scaled_returns({"x": {"a": [1.0]}, "y": {"b": [1.0]}}), r"runs\['y'\] has the games \['b'\]"),
        (lambda: ev.scaled_returns(HAND, reference={"x": {"a": [1.0]}}), "game is 'pong'; give one of a"),
        (lambda: ev.suite_mean({"a": []}, rng=rng()), r"games\['a'\] is empty"),
        (lambda: ev.score_distribution({"a": [1.0]}, [], rng=rng()), "thresholds is empty"),
        (lambda: ev.ecdf_band([1.0], [0.0], level=1.0), "level is 1.0"),
        (lambda: ev.to_rliable({"x": {"a": [1.0], "b": [1.0, 2.0]}}), r"runs\['x'\] has \{'a': 1, 'b': 2\} runs"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
