"""The paper's measure, against hand computation and the naive mean over an array of every step."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sb3_robust_be.evaluation import area_under_curve, binned_curve, final_performance, per_step_returns

EPISODES = st.lists(st.tuples(st.integers(1, 30), st.floats(-1000.0, 1000.0)), max_size=12)


def naive_means(lengths, returns, total_steps, edges):
    curve = per_step_returns(lengths, returns, total_steps)
    windows = [curve[a:b] for a, b in pairwise(edges)]
    return np.array([np.nan if np.isnan(w).all() else np.nanmean(w) for w in windows])


def test_each_return_counts_once_per_step():
    curve = per_step_returns([2, 3], [-2.0, 7.0], 7)
    np.testing.assert_array_equal(curve, [-2, -2, 7, 7, 7, np.nan, np.nan])


def test_by_hand():
    lengths, returns = [2, 3, 1], [1.0, -4.0, 10.0]
    np.testing.assert_allclose(binned_curve(lengths, returns, 8, 4), [1.0, -4.0, 3.0, np.nan])
    assert final_performance(lengths, returns, 8, fraction=0.5) == pytest.approx(3.0)  # −4 and 10, two unfinished steps
    assert area_under_curve(lengths, returns, 8) == pytest.approx((2 - 12 + 10) / 6)
    assert area_under_curve(lengths, returns, 6) == pytest.approx(0.0)


def test_a_long_episode_weighs_more_than_a_short_one():
    """The mean per step is not the mean per episode."""
    assert area_under_curve([9, 1], [0.0, 10.0], 10) == pytest.approx(1.0)


def test_nothing_finished_in_the_window_is_nan():
    assert np.isnan(final_performance([70], [1.0], 100))
    assert final_performance([76], [1.0], 100) == 1.0
    assert np.isnan(area_under_curve([], [], 100))
    assert np.isnan(binned_curve([], [], 100, 5)).all()


@given(EPISODES, st.integers(0, 40), st.integers(1, 20), st.floats(0.01, 1.0))
def test_agrees_with_the_array_of_all_steps(episodes, tail, n_points, fraction):
    lengths, returns = [e[0] for e in episodes], [e[1] for e in episodes]
    total = max(sum(lengths) + tail, n_points)
    edges = np.rint(np.linspace(0, total, n_points + 1)).astype(int)
    expected = naive_means(lengths, returns, total, edges)
    np.testing.assert_allclose(binned_curve(lengths, returns, total, n_points), expected, rtol=1e-9, atol=1e-9)
    start = total - max(1, round(fraction * total))
    expected = naive_means(lengths, returns, total, [start, total])[0]
    np.testing.assert_allclose(final_performance(lengths, returns, total, fraction), expected, rtol=1e-9, atol=1e-9)


@given(EPISODES, st.floats(-3.0, 3.0), st.floats(-100.0, 100.0))
def test_means_commute_with_scaling_and_shifting_returns(episodes, factor, shift):
    lengths, returns = [e[0] for e in episodes], np.array([e[1] for e in episodes])
    total = sum(lengths) + 10
    curve = binned_curve(lengths, returns, total, 5)
    moved = binned_curve(lengths, factor * returns + shift, total, 5)
    np.testing.assert_allclose(moved, factor * curve + shift, atol=1e-8)


def test_millions_of_steps_without_loss_of_digits():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 500, size=15_000)
    total = 5_000_000
    curve = binned_curve(lengths, np.full(lengths.size, -1e6 / 3), total, 1_000)
    finished = ~np.isnan(curve)
    assert 600 < finished.sum() < 1_000
    np.testing.assert_array_equal(curve[finished], -1e6 / 3)
    returns = 1e8 + rng.normal(size=lengths.size)
    expected = naive_means(lengths, returns, total, np.linspace(0, total, 101).astype(int))
    np.testing.assert_allclose(binned_curve(lengths, returns, total, 100) - 1e8, expected - 1e8, atol=1e-6)


def test_bins_and_window_agree():
    lengths, returns = np.arange(1, 21), np.arange(20.0)
    curve = binned_curve(lengths, returns, 212, 4)
    assert final_performance(lengths, returns, 212) == pytest.approx(curve[-1])
    assert area_under_curve(lengths, returns, 210) == pytest.approx((lengths * returns).sum() / 210)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [1.0], 9), r"lengths has shape \(2,\) and returns \(1,\)"),
        (([1.5], [1.0], 9), r"lengths\[0\] is 1.5"),
        (([2, 0], [1.0, 1.0], 9), r"lengths\[1\] is 0"),
        (([2, np.nan], [1.0, 1.0], 9), r"lengths\[1\] is nan"),
        (([2, 2], [1.0, np.inf], 9), r"returns\[1\] is inf"),
        (([5, 5], [1.0, 1.0], 9), "last 10 steps, more than total_steps, 9"),
        (([], [], 0), "total_steps is 0"),
        (([], [], 9.0), "total_steps is 9.0"),
    ],
)
@pytest.mark.parametrize("function", [per_step_returns, lambda *a: binned_curve(*a, 1), area_under_curve])
def test_bad_episodes(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)


def test_bad_windows():
    with pytest.raises(ValueError, match="n_points is 9 for 8 steps"):
        binned_curve([1], [1.0], 8, 9)
    with pytest.raises(ValueError, match="n_points is 0"):
        binned_curve([1], [1.0], 8, 0)
    for fraction in (0.0, 1.1, float("nan")):
        with pytest.raises(ValueError, match=f"fraction is {fraction}"):
            final_performance([1], [1.0], 8, fraction)
