"""The one definition: values by hand, derivatives, conjugates, limits, and numpy ≡ torch ≡ vmap."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch as th

from sb3_robust_be.updates import (
    LIMITS,
    ROBUST_LOSSES,
    coefficients,
    is_clipped,
    project,
    semi_gradient_coefficients,
)

TAU = 2.0
# Both sides of every kink (0 and ±τ), the kinks themselves, and far out.
POINTS = np.array([-50.0, -2.5, -2.0, -1.5, -0.5, 0.0, 0.25, 1.0, 2.0, 3.0, 50.0])
EVERY_LOSS = pytest.mark.parametrize("loss", ROBUST_LOSSES.values(), ids=ROBUST_LOSSES)
EVERY_SETTING = pytest.mark.parametrize(
    "settings",
    [
        {
            "projection": projection,
            "threshold": threshold,
            "limit": limit,
            "h_target": h_target,
            "gradient_correction": gc,
        }
        for projection, limit, h_target, gc in itertools.product(
            ROBUST_LOSSES, (None, *LIMITS), ("td_error", "clipped"), (True, False)
        )
        for threshold in ((0.7, None) if projection != "smooth_huber" else (0.7,))
    ],
    ids=lambda s: "-".join(str(v) for v in s.values()),
)


def test_points_lie_on_both_sides_of_every_kink():
    for kink in (-TAU, 0.0, TAU):
        assert (POINTS < kink).any()
        assert (POINTS == kink).any()
        assert (POINTS > kink).any()


@pytest.mark.parametrize(
    ("name", "x", "loss", "derivative", "z"),
    [
        ("squared", -3.0, 9.0, -6.0, -3.0),
        ("squared", 0.5, 0.25, 1.0, 0.5),
        ("huber", 1.5, 2.25, 3.0, 1.5),  # inside: x²
        ("huber", 2.0, 4.0, 4.0, 2.0),  # at τ = 2
        ("huber", 3.0, 8.0, 4.0, 2.0),  # outside: 2·2·3 − 4
        ("huber", -5.0, 16.0, -4.0, -2.0),  # 2·2·5 − 4
        ("absolute", -3.0, 3.0, -1.0, -1.0),
        ("absolute", 0.0, 0.0, 0.0, 0.0),
        ("absolute", 0.01, 0.01, 1.0, 1.0),
        ("one_sided", -3.0, 0.0, 0.0, 0.0),
        ("one_sided", 0.0, 0.0, 0.0, 0.0),
        ("one_sided", 3.0, 9.0, 6.0, 3.0),
        # 2·4·log cosh(1/2), 4·tanh(1/2), 2·tanh(1/2)
        ("smooth_huber", 1.0, 0.960916055, 1.848468629, 0.924234315),
    ],
)
def test_values_by_hand(name, x, loss, derivative, z):
    entry = ROBUST_LOSSES[name]
    assert entry.loss(np.float64(x), TAU) == pytest.approx(loss, rel=1e-8)
    assert entry.derivative(np.float64(x), TAU) == pytest.approx(derivative, rel=1e-8)
    assert entry.project(np.float64(x), TAU) == pytest.approx(z, rel=1e-8)


@EVERY_LOSS
def test_derivative_is_the_slope_of_the_loss(loss):
    step = 1e-6
    for kink in (-TAU, 0.0, TAU):
        # On both sides of a kink the slope is taken on that side alone.
        for x in (kink - 10 * step, kink + 10 * step, kink - 0.3, kink + 0.3):
            slope = (loss.loss(np.float64(x + step), TAU) - loss.loss(np.float64(x - step), TAU)) / (2 * step)
            assert loss.derivative(np.float64(x), TAU) == pytest.approx(slope, abs=1e-5)


@EVERY_LOSS
def test_loss_is_convex_even_and_zero_at_zero(loss):
    values, mirrored = loss.loss(POINTS, TAU), loss.loss(-POINTS, TAU)
    assert loss.loss(np.float64(0.0), TAU) == 0.0
    if loss.name == "one_sided":
        # Its two halves are the squared loss.
        np.testing.assert_allclose(values + mirrored, POINTS**2)
    else:
        np.testing.assert_allclose(values, mirrored)
    assert (np.diff(loss.derivative(POINTS, TAU)) >= 0).all()


@EVERY_LOSS
def test_projection_is_the_maximiser_of_the_dual_form(loss):
    # max over the admissible h of 2xh − h² (of xh for the absolute loss) is the loss, at h = project(x).
    h = np.linspace(*np.clip(loss.bounds(TAU), -60.0, 60.0), 240_001)
    for x in POINTS:
        if loss.name == "absolute":
            dual = x * h
        elif loss.name == "smooth_huber":
            dual = 2 * x * h - loss.conjugate(2 * h, TAU)
        else:
            dual = 2 * x * h - h * h
        assert dual.max() == pytest.approx(loss.loss(np.float64(x), TAU), rel=1e-6, abs=1e-6)
        if x != 0:
            assert h[dual.argmax()] == pytest.approx(loss.project(np.float64(x), TAU), abs=1e-3)


@EVERY_LOSS
def test_conjugate_obeys_fenchel_young_with_equality_at_the_derivative(loss):
    slopes = np.linspace(-1.5, 1.5, 31) * min(2 * loss.bounds(TAU)[1], 10.0)
    for x in POINTS:
        value = loss.loss(np.float64(x), TAU)
        assert (value + loss.conjugate(slopes, TAU) >= slopes * x - 1e-9).all()
        # The far points of smooth_huber have a derivative of 2τ to the last bit; rounding beyond it is infinite.
        g = loss.derivative(np.float64(x), TAU)
        assert value + loss.conjugate(g, TAU) == pytest.approx(g * x, rel=1e-9, abs=1e-9)


@EVERY_LOSS
def test_conjugate_is_infinite_exactly_outside_the_slopes_of_the_loss(loss):
    steepest = {"huber": 2 * TAU, "absolute": 1.0, "smooth_huber": 2 * TAU}.get(loss.name, np.inf)
    for factor, finite in ((0.999, True), (1.0, True), (1.001, steepest == np.inf)):
        g = np.float64(factor * min(steepest, 100.0))
        assert np.isfinite(loss.conjugate(g, TAU)) == finite
        assert np.isfinite(loss.conjugate(-g, TAU)) == (finite and loss.name != "one_sided")
    assert loss.conjugate(np.float64(0.0), TAU) == 0.0


@EVERY_LOSS
def test_biconjugate_is_the_loss(loss):
    steepest = 1.0 if loss.name == "absolute" else min(2 * loss.bounds(TAU)[1], 110.0)
    slopes = np.linspace(-1, 1, 400_001) * steepest
    for x in POINTS:
        biconjugate = (slopes * x - loss.conjugate(slopes, TAU)).max()
        assert biconjugate == pytest.approx(loss.loss(np.float64(x), TAU), rel=1e-6, abs=1e-6)


def test_huber_meets_squared_and_absolute_in_its_limits():
    huber = ROBUST_LOSSES["huber"]
    np.testing.assert_allclose(huber.loss(POINTS, 1e9), POINTS**2)
    np.testing.assert_allclose(huber.loss(POINTS, 1e-9) / 2e-9, abs(POINTS), atol=1e-8)


@pytest.mark.parametrize(
    ("h", "td_error", "limit", "z"),
    [
        (3.0, 2.0, "magnitude", 2.0),
        (3.0, -2.0, "magnitude", 2.0),
        (-3.0, 2.0, "magnitude", -2.0),
        (1.5, -2.0, "magnitude", 1.5),
        (1.5, 0.0, "magnitude", 0.0),
        (3.0, 2.0, "same_sign", 2.0),
        (1.0, 2.0, "same_sign", 1.0),
        (3.0, -2.0, "same_sign", 0.0),
        (-3.0, -2.0, "same_sign", -2.0),
        (-1.0, 2.0, "same_sign", 0.0),
        (3.0, 2.0, "one_sided", 2.0),
        (1.0, 2.0, "one_sided", 1.0),
        (2.0, 2.0, "one_sided", 2.0),
        (-1.0, 2.0, "one_sided", 0.0),
        (1.0, -2.0, "one_sided", 0.0),
        (-1.0, -2.0, "one_sided", 0.0),
        (1.0, 0.0, "one_sided", 0.0),
    ],
)
def test_limit_by_hand(h, td_error, limit, z):
    h, td_error = np.float64(h), np.float64(td_error)
    assert project(h, td_error, "huber", None, limit) == z
    assert is_clipped(h, td_error, "huber", None, limit) == (z != h)
    # On top of a threshold the tighter of the two bounds holds.
    assert project(h, td_error, "huber", 1.25, limit) == np.clip(z, -1.25, 1.25)


@pytest.mark.parametrize("limit", LIMITS)
def test_limited_weight_lies_between_semi_gradient_and_residual_gradient(limit):
    rng = np.random.default_rng(0)
    h, td_error = rng.normal(size=(2, 1000)) * 3
    w = project(h, td_error, "huber", None, limit) / td_error
    assert (abs(w) <= 1 + 1e-12).all()
    assert (abs(w) == 1).any()
    assert ((0 < abs(w)) & (abs(w) < 1)).any()
    assert (w >= 0).all() == (limit != "magnitude")
    # One-sided: errors below 0 are not corrected at all.
    assert (w[td_error < 0] == 0).all() == (limit == "one_sided")
    # The weight has no unit: rewards scaled by c scale δ and h by c.
    np.testing.assert_allclose(project(7 * h, 7 * td_error, "huber", None, limit) / (7 * td_error), w)


def test_limit_changes_nothing_where_h_is_within_the_td_error():
    rng = np.random.default_rng(1)
    h, td_error = rng.normal(size=(2, 1000))
    within = abs(h) <= abs(td_error)
    assert 0 < within.sum() < 1000
    z = project(h, td_error, "huber", None, "magnitude")
    np.testing.assert_array_equal(z[within], h[within])
    assert (z[~within] != h[~within]).all()


def test_is_clipped_by_hand():
    h = np.array([-3.0, -0.5, 0.5, 3.0])
    td_error = np.array([-4.0, -0.1, 4.0, 4.0])
    assert not is_clipped(h, td_error, "squared").any()
    assert not is_clipped(h, td_error, "huber", None).any()
    assert is_clipped(h, td_error, "huber", 1.0).tolist() == [True, False, False, True]
    assert is_clipped(h, td_error, "smooth_huber", 1.0).tolist() == [True, False, False, True]
    assert is_clipped(h, td_error, "absolute").tolist() == [True, False, False, True]
    assert is_clipped(h, td_error, "huber", None, "magnitude").tolist() == [False, True, False, False]
    assert is_clipped(h, td_error, "huber", 1.0, "magnitude").tolist() == [True, True, False, True]
    assert is_clipped(h, td_error, "one_sided").tolist() == [True, True, False, False]
    assert is_clipped(h, td_error, "squared", None, "one_sided").tolist() == [True, True, False, False]


def test_coefficients_by_hand():
    td_error, h = np.array([2.0, -0.5, 3.0]), np.array([1.5, -0.25, 3.5])
    discount = np.array([0.9, 0.9, 0.0])  # the last row terminated
    a, b, c = coefficients(td_error, h, discount, projection="huber", threshold=1.0)
    np.testing.assert_allclose(a, td_error)
    np.testing.assert_allclose(b, [-0.9, 0.225, 0.0])
    np.testing.assert_allclose(c, [0.5, -0.25, -0.5])  # δ − h, neither of them clipped
    a, _, _ = coefficients(td_error, h, discount, projection="huber", threshold=1.0, gradient_correction=False)
    np.testing.assert_allclose(a, [1.0, -0.25, 1.0])


def test_correction_weight_and_td_error_threshold_by_hand():
    td_error, h, discount = np.array([2.0, -0.5, -3.0]), np.array([1.5, -0.25, 3.5]), np.full(3, 0.9)
    a, b, c = coefficients(td_error, h, discount, correction_weight=0.5)
    np.testing.assert_allclose(a, td_error)
    np.testing.assert_allclose(b, [-0.675, 0.1125, -1.575])
    np.testing.assert_allclose(c, td_error - h)
    # The weight 0 leaves semi-gradient Q-learning, with either loss.
    for threshold in (None, 1.0):
        own = coefficients(td_error, h, discount, correction_weight=0.0, td_error_threshold=threshold)
        dqn = semi_gradient_coefficients(td_error, h, discount, threshold=np.inf if threshold is None else threshold)
        np.testing.assert_array_equal(own.value, dqn.value)
        assert not own.next_value.any()
    a, b, c = coefficients(td_error, h, discount, td_error_threshold=1.0)
    np.testing.assert_allclose(a, [1.0, -0.5, -1.0])
    np.testing.assert_allclose(b, -0.9 * h)
    np.testing.assert_allclose(c, td_error - h)


@pytest.mark.parametrize("limit", [None, *LIMITS])
@pytest.mark.parametrize("projection", [name for name in ROBUST_LOSSES if name != "absolute"])
def test_no_correction_where_the_expected_error_is_zero(projection, limit):
    """Gradient corrections of every projection and limit have the fixed points of the squared loss.

    Where E[δ|s,a] = 0, h = 0 is where h rests, and nothing moves; a little beside it, some corrections act.
    """
    td_error = np.array([3.0, -1.0, -1.0, -1.0])  # mean 0, as of one state and action
    options = {"projection": projection, "threshold": 1.0, "limit": limit}
    a, b, c = coefficients(td_error, np.full(4, td_error.mean()), np.full(4, 0.9), **options)
    assert (a.mean(), c.mean()) == (0.0, 0.0)
    assert not b.any()
    a, b, c = coefficients(td_error, np.full(4, 0.5), np.full(4, 0.9), **options)
    assert c.mean() == -0.5
    assert b[0] < 0
    assert b[1:].any() != (limit in ("same_sign", "one_sided"))


def test_h_target_clips_the_target_alone():
    td_error, h, discount = np.array([5.0, 0.5]), np.array([0.25, 0.25]), np.array([1.0, 1.0])
    a, b, c = coefficients(td_error, h, discount, h_target="clipped")
    np.testing.assert_allclose(a, td_error)
    np.testing.assert_allclose(b, [-0.25, -0.25])
    np.testing.assert_allclose(c, [0.75, 0.25])  # ±1 without a threshold
    _, _, c = coefficients(td_error, h, discount, projection="huber", threshold=3.0, h_target="clipped")
    np.testing.assert_allclose(c, [2.75, 0.25])


@EVERY_SETTING
def test_torch_equals_numpy(settings):
    rng = np.random.default_rng(2)
    td_error, h = rng.normal(size=(2, 200)) * 2
    td_error[:3] = h[:3] = 0.0
    discount = rng.choice([0.0, 0.99], size=200)
    with_numpy = coefficients(td_error, h, discount, **settings)
    with_torch = coefficients(*map(th.from_numpy, (td_error, h, discount)), **settings)
    for x, y in zip(with_numpy, with_torch, strict=True):
        assert y.dtype == th.float64
        np.testing.assert_allclose(y.numpy(), x, atol=1e-15)


@EVERY_LOSS
def test_torch_equals_numpy_for_losses_and_conjugates(loss):
    x = np.concatenate([POINTS, [-4.0, 4.0, 1e4, -1e4]])
    for function in (loss.loss, loss.derivative, loss.conjugate, loss.project):
        # Exponentials and logarithms come from two libraries, and log cosh is a difference of terms of size 1.
        tolerance = 1e-14 if loss.name == "smooth_huber" else 0.0
        expected = function(x, TAU)
        np.testing.assert_allclose(function(th.from_numpy(x), TAU).numpy(), expected, rtol=tolerance, atol=tolerance)


@EVERY_SETTING
def test_vmap_equals_loop_with_a_threshold_per_agent(settings):
    generator = th.Generator().manual_seed(3)
    td_error, h = 2 * th.randn(2, 5, 40, 1, generator=generator, dtype=th.float64)
    discount = th.full_like(h, 0.99)
    thresholds = th.tensor([0.1, 0.5, 1.0, 2.0, 10.0], dtype=th.float64)
    settings = dict(settings)
    has_threshold = settings.pop("threshold") is not None

    def one(td_error, h, discount, threshold):
        return tuple(coefficients(td_error, h, discount, threshold=threshold if has_threshold else None, **settings))

    together = th.func.vmap(one)(td_error, h, discount, thresholds)
    for i in range(5):
        for x, y in zip(one(td_error[i], h[i], discount[i], thresholds[i].item()), together, strict=True):
            th.testing.assert_close(y[i], x)


def test_tensors_of_one_precision_stay_there():
    h = th.tensor([-2.0, 0.0, 2.0])
    for name in ROBUST_LOSSES:
        assert all(x.dtype == th.float32 for x in coefficients(h, h, h, projection=name, threshold=1.0))
