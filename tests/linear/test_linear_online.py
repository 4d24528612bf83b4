"""Online algorithms: single updates by hand, agreement with ``updates.coefficients``, and means by enumeration."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_mdps import problems, properties, random_problem, seeds, taus, theta_of

from sb3_robust_be.linear import (
    ALGORITHMS,
    METHODS,
    Algorithm,
    LinearTD,
    algorithm,
    expected_update,
    get,
    solve,
    update_variance,
)
from sb3_robust_be.linear.stepsizes import OPTIMIZERS, increment
from sb3_robust_be.linear.trajectories import sample_trajectories
from sb3_robust_be.updates import H_TARGETS, LIMITS, ROBUST_LOSSES, coefficients, project

X, X_NEXT, GAMMA = np.array([1.0, 2.0]), np.array([3.0, -1.0]), 0.5
THETA, THETA_H, REWARD = np.array([0.5, 1.0]), np.array([2.0, 0.25]), 4.0
# v = 2.5, v' = 0.5, δ = 4 + 0.25 − 2.5 = 1.75, ĥ = 2.5.
DELTA, H = 1.75, 2.5


def one_update(chosen, rho=1.0, **options):
    """Displacements of ``θ`` and ``θ_h`` by one update with unit step sizes."""
    learner = LinearTD(2, chosen, alpha=1.0, theta0=THETA, **options)
    learner.theta_h_ = THETA_H.copy()
    learner.fit_one(X, REWARD, X_NEXT, GAMMA, rho)
    return learner.theta_ - THETA, learner.theta_h_ - THETA_H


HAND = {
    # ρ = 2: θ's direction, θ_h's direction.
    "td": (2 * DELTA * X, 0 * X),
    "residual_gradient": (2 * DELTA * (X - GAMMA * X_NEXT), 0 * X),
    "gtd": (2 * H * (X - GAMMA * X_NEXT), 2 * DELTA * X - THETA_H),
    "gtd2": (H * (X - 2 * GAMMA * X_NEXT), (2 * DELTA - H) * X),
    "gtd2-huber": (1.0 * (X - 2 * GAMMA * X_NEXT), (2 * DELTA - H) * X),
    "gtd2-l1": (1.0 * (X - 2 * GAMMA * X_NEXT), (2 * DELTA - H) * X),
    "tdc": (2 * (DELTA * X - GAMMA * H * X_NEXT), (2 * DELTA - H) * X),
    "tdc-huber": (2 * (DELTA * X - GAMMA * 1.0 * X_NEXT), (2 * DELTA - H) * X),
    "tdc-l1": (2 * (DELTA * X - GAMMA * 1.0 * X_NEXT), (2 * DELTA - H) * X),
    "tdrc": (2 * (DELTA * X - GAMMA * H * X_NEXT), (2 * DELTA - H) * X - THETA_H),
    "tdrc-huber": (2 * (DELTA * X - GAMMA * 1.0 * X_NEXT), (2 * DELTA - H) * X - THETA_H),
    "tdrc-l1": (2 * (DELTA * X - GAMMA * 1.0 * X_NEXT), (2 * DELTA - H) * X - THETA_H),
    "htd": (2 * DELTA * X + H * (X - GAMMA * X_NEXT), 2 * DELTA * X - H * (X - GAMMA * X_NEXT)),
    # |ĥ| = 2.5 is limited to |δ| = 1.75.
    "qlc": (2 * (DELTA * X - GAMMA * DELTA * X_NEXT), (2 * DELTA - H) * X),
    "qlc-same-sign": (2 * (DELTA * X - GAMMA * DELTA * X_NEXT), (2 * DELTA - H) * X),
    "qlc-one-sided": (2 * (DELTA * X - GAMMA * DELTA * X_NEXT), (2 * DELTA - H) * X),
}


def test_every_named_algorithm_has_a_hand_calculation():
    assert set(HAND) == set(ALGORITHMS)
    assert {chosen.method for chosen in ALGORITHMS.values()} == set(METHODS)


@pytest.mark.parametrize("name", HAND)
def test_updates_by_hand(name):
    value, h = one_update(name, rho=2.0)
    np.testing.assert_allclose(value, HAND[name][0], rtol=1e-14)
    np.testing.assert_allclose(h, HAND[name][1], rtol=1e-14)


@pytest.mark.parametrize(
    ("h", "reward", "magnitude", "same_sign", "one_sided"),
    [
        (3.0, 0.5, 0.5, 0.5, 0.5),  # too large: cut to δ
        (-3.0, 0.5, -0.5, 0.0, 0.0),  # against δ: cut to −|δ|, or gone
        (0.2, 0.5, 0.2, 0.2, 0.2),  # within
        (3.0, -0.5, 0.5, 0.0, 0.0),
        (-0.2, -0.5, -0.2, -0.2, 0.0),  # falling values are not corrected one-sidedly
        (1.0, 0.0, 0.0, 0.0, 0.0),  # no error, no correction
    ],
)
def test_qlc_by_hand(h, reward, magnitude, same_sign, one_sided):
    """From ``θ = 0``, so that δ is the reward: ``θ += δ x − γ z x'``."""
    for limit, z in (("magnitude", magnitude), ("same_sign", same_sign), ("one_sided", one_sided)):
        learner = LinearTD(2, Algorithm("tdc", limit=limit), alpha=1.0)
        learner.theta_h_ = np.array([h, 0.0])
        learner.fit_one([1.0, 0.0], reward, [0.0, 1.0], 0.8)
        np.testing.assert_allclose(learner.theta_, [reward, -0.8 * z], atol=1e-15)
        np.testing.assert_allclose(learner.theta_h_, [reward, 0.0], atol=1e-15)  # h += (δ − ĥ) x


@properties
@given(seed=seeds, reward=st.floats(-3, 3), scale=st.floats(0.01, 100.0))
def test_qlc_interpolates_td_and_residual_gradient_free_of_scale(seed, reward, scale):
    """With ``w = z/δ`` in [−1, 1] the update is ``δ (x − γ w x')``; rewards, values and h in other units keep ``w``."""
    rng = np.random.default_rng(seed)
    x, x_next, theta, theta_h = rng.normal(size=(4, 3))

    def displacement(name, c):
        learner = LinearTD(3, name, alpha=1.0, theta0=c * theta)
        learner.theta_h_ = c * theta_h
        return learner.fit_one(x, c * reward, x_next, 0.9).theta_ - c * theta

    td_error = reward + 0.9 * x_next @ theta - x @ theta
    for name, least in (("qlc", -1.0), ("qlc-same-sign", 0.0), ("qlc-one-sided", 0.0)):
        w = np.clip(x @ theta_h / td_error, least, 1.0)
        if name == "qlc-one-sided" and td_error < 0:
            w = 0.0
        np.testing.assert_allclose(displacement(name, 1.0), td_error * (x - 0.9 * w * x_next), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(
            displacement(name, scale), scale * displacement(name, 1.0), rtol=1e-7, atol=1e-8 * scale
        )


@pytest.mark.parametrize("h_target", H_TARGETS)
@pytest.mark.parametrize("limit", [None, *LIMITS])
@pytest.mark.parametrize("projection", ROBUST_LOSSES)
@pytest.mark.parametrize(("method", "gradient_correction"), [("tdc", True), ("gtd2", False)])
def test_linear_updates_are_the_shared_definition(method, gradient_correction, projection, limit, h_target):
    """On-policy, θ moves along ``a x + b x'`` and θ_h along ``c x`` of :func:`updates.coefficients`."""
    tau = 0.7 if ROBUST_LOSSES[projection].thresholded else None
    chosen = Algorithm(method, projection, tau, limit, h_target)
    rng = np.random.default_rng(0)
    # Both sides of every kink: |h| below and above τ and |δ|, equal and opposite signs.
    sides = set()
    for theta, theta_h, x, x_next in rng.normal(size=(60, 4, 2)):
        learner = LinearTD(2, chosen, alpha=1.0, theta0=theta)
        learner.theta_h_ = theta_h.copy()
        learner.fit_one(x, 0.3, x_next, 0.9)
        delta, h = 0.3 + 0.9 * theta @ x_next - theta @ x, theta_h @ x
        options = {"projection": projection, "threshold": tau, "limit": limit, "h_target": h_target}
        a, b, c = coefficients(delta, h, 0.9, gradient_correction=gradient_correction, **options)
        np.testing.assert_allclose(learner.theta_ - theta, a * x + b * x_next, atol=1e-13)
        np.testing.assert_allclose(learner.theta_h_ - theta_h, c * x, atol=1e-13)
        sides.add((abs(h) > 0.7, abs(h) > abs(delta), h * delta > 0, abs(delta) > 0.7))
    assert len(sides) >= 10


@properties
@given(problem=problems(), seed=seeds, tau=taus)
def test_expected_updates_in_closed_form(problem, seed, tau):
    theta, theta_h = theta_of(problem, seed), theta_of(problem, seed + 1)
    X, D, A = problem.X, problem.d, problem.A
    successor = problem.gamma * problem.P @ X
    behaviour = np.einsum("sa,sat->st", problem.b, problem.K[:, :, : problem.n_states])
    A_b = X - problem.gamma * behaviour @ X
    delta, h = problem.bellman_error(theta), X @ theta_h
    td = X.T @ (D * delta)
    for projection in ROBUST_LOSSES:
        threshold = tau if ROBUST_LOSSES[projection].thresholded else None
        z = project(h, delta, projection, threshold)
        for method, beta in (("gtd2", 0.0), ("tdc", 0.0), ("tdrc", 1.0)):
            value, h_update = expected_update(problem, Algorithm(method, projection, threshold), theta, theta_h)
            expected = A.T @ (D * z) if method == "gtd2" else td - successor.T @ (D * z)
            np.testing.assert_allclose(value, expected, atol=1e-10)
            np.testing.assert_allclose(h_update, X.T @ (D * (delta - h)) - beta * theta_h, atol=1e-10)
    closed = {
        "td": (td, 0.0 * theta),
        "gtd": (A.T @ (D * h), td - theta_h),
        "htd": (td + (A - A_b).T @ (D * h), td - A_b.T @ (D * h)),
    }
    for name, (value, h_update) in closed.items():
        mean = expected_update(problem, name, theta, theta_h)
        np.testing.assert_allclose(mean[0], value, atol=1e-10)
        np.testing.assert_allclose(mean[1], h_update, atol=1e-10)


@properties
@given(problem=problems(on_policy=True), seed=seeds)
def test_htd_is_td_on_policy(problem, seed):
    theta, theta_h = theta_of(problem, seed), theta_of(problem, seed + 1)
    hybrid, td = (expected_update(problem, name, theta, theta_h)[0] for name in ("htd", "td"))
    np.testing.assert_allclose(hybrid, td, atol=1e-12)


@pytest.mark.parametrize("method", [name for name, entry in METHODS.items() if entry.placements])
def test_placements_of_the_ratio_share_their_mean_only(method):
    problem = get("SmallChain")
    theta, theta_h = theta_of(problem, 0), theta_of(problem, 1)
    paper, whole = Algorithm(method), Algorithm(method, importance="whole")
    for one, other in zip(
        expected_update(problem, paper, theta, theta_h), expected_update(problem, whole, theta, theta_h), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-13)
    value, h = one_update(paper, rho=2.0)
    other_value, other_h = one_update(whole, rho=2.0)
    assert not np.allclose(h, other_h)
    if method == "gtd2":
        np.testing.assert_allclose(other_value, 2.0 * H * (X - GAMMA * X_NEXT))
        assert not np.allclose(value, other_value)
    if method != "gtd":
        np.testing.assert_allclose(other_h, 2.0 * (DELTA - H) * X - (THETA_H if method == "tdrc" else 0.0))


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if "l1" not in name])
def test_mean_dynamics_reach_the_fixed_point(name):
    """Following the means: the TD solution, and the minimum of the MSTDE for the residual gradient."""
    problem = random_problem(5, 2, 2, 1, 0.9)
    target = solve(problem, "mstde" if name == "residual_gradient" else "td").theta
    theta, theta_h = target + 3.0, np.zeros(1)
    for _ in range(1200):
        value, h = expected_update(problem, name, theta, theta_h)
        theta, theta_h = theta + 0.5 * value, theta_h + 0.5 * h
    np.testing.assert_allclose(theta, target, atol=1e-6)


def test_step_size_rules_by_hand():
    g = np.array([2.0, -4.0])
    np.testing.assert_allclose(increment("sgd", g, 0.1, [], 1), 0.1 * g)
    square = [np.zeros(2)]
    np.testing.assert_allclose(increment("rmsprop", g, 0.1, square, 1), 0.1 * g / (0.1 * np.abs(g) + 1e-8))
    np.testing.assert_allclose(square[0], 0.01 * g**2)
    moments = [np.zeros(2), np.zeros(2)]
    np.testing.assert_allclose(increment("adam", g, 0.1, moments, 1), 0.1 * np.sign(g), rtol=1e-7)
    second = increment("adam", np.zeros(2), 0.1, moments, 2)
    mean, square_mean = 0.9 * 0.1 * g / (1 - 0.9**2), 0.999 * 0.001 * g**2 / (1 - 0.999**2)
    np.testing.assert_allclose(second, 0.1 * mean / (np.sqrt(square_mean) + 1e-8))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_step_sizes_reach_both_weights(optimizer):
    small, large = (
        LinearTD(2, "tdc", alpha=alpha, eta=eta, optimizer=optimizer).fit_one(X, REWARD, X_NEXT, GAMMA)
        for alpha, eta in ((0.1, 1.0), (0.2, 3.0))
    )
    np.testing.assert_allclose(large.theta_, 2.0 * small.theta_, rtol=1e-12)
    np.testing.assert_allclose(large.theta_h_, 6.0 * small.theta_h_, rtol=1e-12)


def test_eta_zero_leaves_td():
    problem = get("SmallChain")
    table, runs = problem.transitions, []
    for name in ("td", "tdc"):
        learner = LinearTD(2, name, alpha=0.1, eta=0.0)
        for k in sample_trajectories(problem, 200, [0])[0]:
            learner.fit_one(table.x[k], table.reward[k], table.x_next[k], table.discount[k], table.ratio[k])
        runs.append(learner.theta_)
    np.testing.assert_array_equal(*runs)
    assert learner.updates_ == 200
    np.testing.assert_allclose(learner.predict(problem.X), problem.X @ runs[0])


def drive(name, alpha, steps):
    problem = get("Baird")
    table, learner = problem.transitions, LinearTD(8, name, alpha=alpha, theta0=problem.theta0)
    for k in sample_trajectories(problem, steps, [0])[0]:
        learner.fit_one(table.x[k], table.reward[k], table.x_next[k], table.discount[k], table.ratio[k])
    return learner


def test_td_diverges_on_baird_quietly_and_tdc_does_not():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        td = drive("td", 0.1, 3000)
        tdc = drive("tdc", 0.01, 3000)
    assert td.diverged_at_ is not None
    assert td.updates_ == td.diverged_at_ < 3000  # it stopped there
    assert np.isfinite(td.theta_).all()
    assert tdc.diverged_at_ is None
    assert np.abs(tdc.theta_).max() < 20.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Algorithm("tdd"), "method is 'tdd'; give one of td"),
        (lambda: Algorithm("tdc", "hubert", 1.0), "projection is 'hubert'; give one of squared"),
        (lambda: Algorithm("tdc", "huber"), "threshold is None; huber needs"),
        (lambda: Algorithm("tdc", "huber", -1.0), "threshold is -1.0; huber needs"),
        (lambda: Algorithm("tdc", threshold=1.0), "threshold is 1.0, but squared has none"),
        (lambda: Algorithm("td", "absolute"), "method is 'td', which has no robust form; give one of gtd2"),
        (lambda: Algorithm("gtd", limit="magnitude"), "method is 'gtd', which has no robust form"),
        (lambda: Algorithm("tdc", limit="half"), "limit is 'half'; give one of None, magnitude"),
        (lambda: Algorithm("tdc", h_target="value"), "h_target is 'value'; give"),
        (lambda: Algorithm("td", importance="whole"), "importance is 'whole'; td has one placement"),
        (lambda: Algorithm("tdc", beta=1.0), "beta is 1.0 for tdc; give"),
        (lambda: Algorithm("tdrc", beta=-1.0), "beta is -1.0 for tdrc; give"),
        (lambda: algorithm("tcd"), "name is 'tcd'; give one of td"),
        (lambda: LinearTD(2, alpha=0.0), "alpha is 0.0, eta 1.0; give"),
        (lambda: LinearTD(2, optimizer="lbfgs"), "optimizer is 'lbfgs'; give one of sgd"),
        (lambda: LinearTD(2, theta0=[1.0]), r"theta0 has shape \(1,\); give \(2,\)"),
        (lambda: LinearTD(2).fit_one([1.0], 0.0, [1.0], 0.9), r"x has shape \(1,\)"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_settings_of_algorithms_count():
    assert algorithm("tdc-huber", 0.2).threshold == 0.2
    assert algorithm("tdc", 0.2) == ALGORITHMS["tdc"]
    base = one_update("tdrc")
    assert not np.allclose(one_update(Algorithm("tdrc", beta=0.25))[1], base[1])
    np.testing.assert_allclose(one_update(Algorithm("tdrc", beta=0.0))[1], one_update("tdc")[1])
    clipped = Algorithm("tdc", h_target="clipped", threshold=0.5)
    np.testing.assert_allclose(one_update(clipped)[1], (0.5 - H) * X)
    np.testing.assert_allclose(one_update(Algorithm("tdc", h_target="clipped"))[1], (1.0 - H) * X)
    smooth = Algorithm("gtd2", "smooth_huber", 2.0)
    np.testing.assert_allclose(one_update(smooth)[0], 2.0 * np.tanh(H / 2.0) * (X - GAMMA * X_NEXT))


@pytest.mark.parametrize("name", ["td", "gtd2", "gtd2-l1", "tdc", "tdc-huber", "tdrc", "htd"])
def test_the_variance_of_updates_is_that_of_single_steps(name):
    """Steps of a learner that is put back after each, over every transition as often as it is met."""
    problem = get("Baird")
    theta, theta_h = theta_of(problem, 1), theta_of(problem, 2)
    steps, h_steps, table = [], [], problem.transitions
    for k in range(len(table.state)):
        learner = LinearTD(problem.n_features, name, alpha=1.0, theta0=theta)
        learner.theta_h_ = theta_h.copy()
        learner.fit_one(table.x[k], table.reward[k], table.x_next[k], table.discount[k], table.ratio[k])
        steps.append(learner.theta_ - theta)
        h_steps.append(learner.theta_h_ - theta_h)
    weight = problem.d[table.state] * table.probability
    for found, taken in zip(update_variance(problem, name, theta, theta_h), (steps, h_steps), strict=True):
        assert found == pytest.approx(np.trace(np.cov(np.array(taken).T, aweights=weight, ddof=0)), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("function", [expected_update, update_variance])
@pytest.mark.parametrize("name", ["theta", "theta_h"])
def test_weights_of_another_shape_are_an_error(function, name):
    problem = get("HardAlias-2")
    weights = {"theta": np.zeros(1), "theta_h": np.zeros(1), name: np.zeros((1, 1))}
    with pytest.raises(ValueError, match=rf"^{name} has shape \(1, 1\); give \(1,\)"):
        function(problem, "tdc", **weights)
