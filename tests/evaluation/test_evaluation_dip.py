"""The dip, against a linear program for its definition and against known values."""

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_robust_be.evaluation import dip, dip_null


def closest_unimodal(values):
    """``min_G max |F − G|`` by one linear program per mode, over G's values at the data and its atom at the mode."""
    x, counts = np.unique(values, return_counts=True)
    after = np.cumsum(counts) / len(values)
    before = after - counts / len(values)
    return min(_distance(x, before, after, mode) for mode in range(len(x)))


def _distance(x, before, after, mode):
    points = len(x)
    unit = np.eye(points + 2)
    left = unit[:points]
    atom, distance = unit[points], unit[points + 1]
    right = [left[i] + atom * (i == mode) for i in range(points)]
    slopes = [(left[i + 1] - right[i]) / (x[i + 1] - x[i]) for i in range(points - 1)]
    rows, bounds = [-slope for slope in slopes], [0.0] * len(slopes)
    for g, f in [*zip(left, before, strict=True), *zip(right, after, strict=True)]:
        rows += [g - distance, -g - distance]
        bounds += [f, -f]
    for i in range(points - 2):  # convex before the mode, concave after
        if i + 1 < mode:
            rows.append(slopes[i] - slopes[i + 1])
        if i >= mode:
            rows.append(slopes[i + 1] - slopes[i])
    bounds += [0.0] * (len(rows) - len(bounds))
    limits = [(None, None)] * points + [(0.0, None)] * 2
    return scipy.optimize.linprog(distance, A_ub=np.array(rows), b_ub=bounds, bounds=limits).fun


@pytest.mark.parametrize("seed", range(12))
def test_is_the_distance_to_the_closest_unimodal_distribution(seed):
    rng = np.random.default_rng(seed)
    runs = int(rng.integers(2, 12))
    values = (
        rng.normal(size=runs),
        rng.integers(0, 6, size=runs).astype(float),
        np.concatenate((rng.normal(size=runs), rng.normal(4.0, 0.1, size=runs))),
    )
    for sample in values:
        assert dip(sample) == pytest.approx(closest_unimodal(sample), abs=1e-7)


def test_known_values():
    assert dip([5.0]) == 0.0
    assert dip([5.0] * 9) == 0.0  # an atom at the mode
    assert dip(np.arange(20.0)) == pytest.approx(1 / 40)  # the least for different values
    two = np.concatenate((np.linspace(0.0, 1e-6, 50), np.linspace(1.0, 1.0 + 1e-6, 50)))
    assert dip(two) == pytest.approx(0.25, abs=1e-3)
    # Half the mass of the smaller cluster.
    assert dip(np.concatenate((two[:50], two[50:70]))) == pytest.approx(0.5 * 20 / 70, abs=0.01)


@settings(max_examples=50)
@given(
    st.lists(st.integers(-50, 50), min_size=2, max_size=30),
    st.sampled_from([-4.0, 0.25, 2.0]),
    st.randoms(use_true_random=False),
)
def test_scale_order_and_sign_do_not_matter(values, factor, random):
    expected = dip(values)
    random.shuffle(values)
    assert dip(factor * np.array(values) + 7.0) == pytest.approx(expected, abs=1e-12)


def test_the_null_is_that_of_uniform_samples():
    null = dip_null(30, rng=np.random.default_rng(0), n_resamples=500)
    samples = np.random.default_rng(0).uniform(size=(500, 30))
    np.testing.assert_array_equal(null, np.sort([dip(values) for values in samples]))
    # The uniform has the largest dips of the unimodal distributions.
    peaked = np.sort([dip(values) for values in np.random.default_rng(1).normal(size=(500, 30))])
    assert np.all(np.quantile(peaked, [0.25, 0.5, 0.75, 0.95]) < np.quantile(null, [0.25, 0.5, 0.75, 0.95]))


def test_bad_input():
    with pytest.raises(ValueError, match=r"values\[0\] is nan"):
        dip([np.nan])
    with pytest.raises(ValueError, match="runs is 0"):
        dip_null(0, rng=np.random.default_rng(0))
    with pytest.raises(TypeError, match="rng is None"):
        dip_null(5, rng=None)
