"""The paper's measure, against hand computation and the naive mean over an array of every step."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sb3_robust_be.evaluation import (
    area_under_curve,
    binned_curve,
    final_performance,
    per_step_returns,
    with_unfinished,
)

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


# --- the episode in which a run stops ---


@pytest.mark.parametrize(
    ("lengths", "left", "counts"),
    [
        ([], 100, True),
        ([70], 30, True),  # nothing ended in the last 25 steps
        ([60, 15], 25, True),  # the one of 15 steps ended before the 75th step was over, not in the last 25
        ([60, 16], 24, True),
        ([76], 24, False),  # of its 76 steps one is in the last quarter
        ([50, 30, 10], 10, False),
        ([50, 30, 9], 11, False),  # that of 30 steps ended after 80
        ([75, 3, 8], 14, True),
        ([60, 20], 20, False),  # as long is not longer
    ],
)
def test_the_unfinished_episode_counts_if_it_is_the_longest(lengths, left, counts):
    returns = [-2.0 * n for n in lengths]
    found = with_unfinished(lengths, returns, 100, left, -7.0)
    assert found.unfinished is counts
    assert found.lengths.tolist() == [*lengths, *[left] * counts]
    assert found.returns.tolist() == [*returns, *[-7.0] * counts]


def test_what_ends_with_an_episode_has_no_unfinished_one():
    found = with_unfinished([4, 6], [1.0, 2.0], 10, 0, np.nan)
    assert (found.lengths.tolist(), found.unfinished) == ([4, 6], False)


def test_the_longest_of_another_window():
    """Of the whole run the first one is the longest."""
    arguments = [50, 30], [1.0, 1.0], 100, 20, 5.0
    assert not with_unfinished(*arguments).unfinished
    assert with_unfinished(*arguments, fraction=0.1).unfinished
    assert not with_unfinished([75], [1.0], 100, 25, 5.0, fraction=1.0).unfinished
    with pytest.raises(ValueError, match="fraction is 0"):
        with_unfinished(*arguments, fraction=0)
    with pytest.raises(ValueError, match="last 101 steps, more than total_steps, 100"):
        with_unfinished([50, 30], [1.0, 1.0], 100, 21, 5.0)
    with pytest.raises(ValueError, match=r"returns\[2\] is nan"):
        with_unfinished([50, 30], [1.0, 1.0], 100, 20, np.nan)


@given(st.lists(st.integers(1, 30), max_size=12), st.integers(1, 60), st.integers(0, 60), st.sampled_from([1.0, -2.0]))
def test_it_moves_the_mean_towards_that_of_the_finished_episode(lengths, left, rest, reward):
    """Where every step pays the same; of a longer episode than those of the window, and never past it."""
    total = sum(lengths) + left
    returns = [reward * n for n in lengths]
    found = with_unfinished(lengths, returns, total, left, reward * left)
    without = final_performance(lengths, returns, total)
    ours = final_performance(found.lengths, found.returns, total)
    truth = final_performance([*lengths, left], [*returns, reward * (left + rest)], total)
    if not found.unfinished:
        assert ours == without
    elif np.isnan(without):
        assert min(truth, 0.0) <= ours <= max(truth, 0.0)
    else:
        assert min(without, truth) - 1e-9 <= ours <= max(without, truth) + 1e-9


def test_counting_it_always_would_not():
    """Episodes of 500 steps, as Cart-pole's best: 90 steps more are no worse an agent."""
    lengths, left = [500] * 5, 90
    found = with_unfinished(lengths, lengths, 2590, left, left)
    assert final_performance(found.lengths, found.returns, 2590) == 500.0
    assert final_performance([*lengths, left], [*lengths, left], 2590) < 450.0


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
