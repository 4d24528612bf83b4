"""Falls of learning curves, what a blind choice of the step size costs, and normality, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from sb3_robust_be.evaluation import (
    Outcome,
    approximately_normal,
    largest_fall,
    largest_rise,
    share_of_rise_lost,
    step_size_loss,
)

NAN = np.nan
CURVES = [
    [0.0, 1.0, 2.0, 3.0],  # never falls
    [0.0, 5.0, 1.0, 9.0],  # by 4, before it rises again
    [7.0, 5.0, 6.0, -1.0],  # from the first point to the last
    [NAN, 5.0, NAN, 2.0],  # across a gap
    [NAN, NAN, NAN, NAN],
    [NAN, NAN, 3.0, NAN],
    [NAN, 2.0, 4.0, 1.0],  # by more than it had risen
]


def test_largest_fall_by_hand():
    np.testing.assert_array_equal(largest_fall(CURVES), [0.0, 4.0, 8.0, 3.0, NAN, 0.0, 3.0])


def test_largest_rise_by_hand():
    np.testing.assert_array_equal(largest_rise(CURVES), [3.0, 9.0, 0.0, 0.0, NAN, 0.0, 2.0])


def test_share_of_rise_lost_by_hand():
    np.testing.assert_allclose(share_of_rise_lost(CURVES, 0.0), [0.0, 4 / 9, NAN, NAN, NAN, NAN, 1.0])
    (
        np.testing.assert_allclose(share_of_rise_lost(CURVES, 2.0), [0.0, 4 / 9, NAN, NAN, NAN, NAN, NAN]),
        "not more than 2",
    )
    np.testing.assert_allclose(share_of_rise_lost(CURVES, 1.9)[-1], 1.0)
    # What falls before it rises has lost nothing that it had risen by.
    before, after = [0.0, -300.0, 150.0, 150.0], [0.0, -300.0, 150.0, 60.0]
    np.testing.assert_allclose(share_of_rise_lost([before, after], 1.0), [0.0, 0.6])


def test_who_has_learned_nothing_is_not_stable_by_its_share():
    """Two runs that stay low, one that rises a little and loses it, one that rises far and loses a tenth of it."""
    curves = [[-1000.0] * 3, [-1000.0, -990.0, -1000.0], [-1000.0, -700.0, -1000.0], [-1000.0, 0.0, -100.0]]
    assert largest_fall(curves).tolist() == [0.0, 10.0, 300.0, 100.0]
    np.testing.assert_allclose(share_of_rise_lost(curves, 200.0), [NAN, NAN, 1.0, 0.1])


@pytest.mark.parametrize("rise", [-1.0, NAN])
def test_a_rise_is_not_negative(rise):
    with pytest.raises(ValueError, match="give a rise of 0 or more"):
        share_of_rise_lost(CURVES, rise)


def test_step_size_loss_by_hand():
    # Means 2, 5 and −1: the second step size is the best, though not for the second seed.
    finals = [[1.0, 3.0], [9.0, 1.0], [-1.0, -1.0]]
    np.testing.assert_allclose(step_size_loss(finals), [9.0 - 3.0, 1.0 - 1.0])
    np.testing.assert_array_equal(step_size_loss([[4.0, 2.0]]), [0.0, 0.0])


@pytest.mark.parametrize("finals", [[], [[1.0, 2.0], [1.0]]])
def test_step_sizes_need_the_same_seeds(finals):
    with pytest.raises(ValueError, match=r"finals has the shapes .*; give the same seeds for each"):
        step_size_loss(finals)


def test_normality_by_scipys_test():
    rng = np.random.default_rng(0)
    normal, two = rng.normal(size=30), np.concatenate([rng.normal(size=15), 100.0 + rng.normal(size=15)])
    for runs, outcome in ((normal, Outcome.NOT_RESOLVED), (two, Outcome.DOES_NOT_HOLD)):
        found = approximately_normal("a", runs, rng=rng)
        assert found.outcome is outcome
        assert (found.statistic, found.p_value) == pytest.approx(tuple(scipy.stats.shapiro(runs)))
        assert (found.quantity, found.seeds) == ("W", (30,))


@pytest.mark.parametrize("runs", [[1.0, 2.0], [3.0] * 9])
def test_what_has_no_shape_is_not_resolved(runs):
    found = approximately_normal("a", runs, rng=np.random.default_rng(0))
    assert found.outcome is Outcome.NOT_RESOLVED
    assert np.isnan(found.p_value)
