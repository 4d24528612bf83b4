"""Objectives: values against sums written out, gradients against finite differences, projections against a general
quadratic-programming solver."""

import numpy as np
import pytest
from hypothesis import given, settings
from random_mdps import problems, properties, random_problem, seeds, taus, theta_of
from scipy.linalg import orth
from scipy.optimize import minimize

from sb3_robust_be import linear
from sb3_robust_be.linear import OBJECTIVES, clipped_projection, get, signed_projection, solve, tdrc_surface
from sb3_robust_be.linear.features import widened_basis
from sb3_robust_be.linear.projected import basis_matrix, complement, mapbe, mhpbe, mspbe, project


def settings_of(name, tau=0.3, basis=None):
    entry = OBJECTIVES[name]
    return ({"tau": tau} if entry.takes_tau else {}) | ({"basis": basis} if entry.takes_basis else {})


def test_values_by_hand():
    """HardAlias-2 at θ = 1: values (1, 2) against (1, 0), Bellman errors 1 + 0.99·2 − 1 = 1.98 and 0.99²·2 − 2."""
    problem = get("HardAlias-2")
    d0, d1 = 1.0 / 101.0, 100.0 / 101.0
    e0, e1 = 1.98, 2.0 * 0.99**2 - 2.0
    assert linear.msve(problem, [1.0]) == pytest.approx(d1 * 4.0)
    assert linear.mave(problem, [1.0]) == pytest.approx(d1 * 2.0)
    assert linear.msbe(problem, [1.0]) == pytest.approx(d0 * e0**2 + d1 * e1**2)
    assert linear.mabe(problem, [1.0]) == pytest.approx(d0 * e0 - d1 * e1)
    # τ = 0.5 clips the first error only.
    assert linear.mhbe(problem, [1.0], 0.5) == pytest.approx(d0 * (2.0 * 0.5 * e0 - 0.25) + d1 * e1**2)
    # The chain pays its expected reward, so only the ending is random: δ is −2, or 2γ − 2, from state 1.
    ending, staying = (0.0 - 2.0) ** 2, (0.99 * 2.0 - 2.0) ** 2
    assert linear.mstde(problem, [1.0]) == pytest.approx(d0 * e0**2 + d1 * (0.01 * ending + 0.99 * staying))
    # One feature: Πδ is x times a number.
    scale = (d0 * e0 + 2.0 * d1 * e1) / (d0 + 4.0 * d1)
    assert linear.mspbe(problem, [1.0]) == pytest.approx((d0 + 4.0 * d1) * scale**2)
    # |h| ≤ 1 binds at the second state, h = ∓(½, 1): the absolute error projected.
    assert linear.mapbe(problem, [1.0]) == pytest.approx(abs(0.5 * d0 * e0 + d1 * e1))
    moment = d0 * e0 + 2.0 * d1 * e1
    assert tdrc_surface(problem, [1.0], beta=1.0) == pytest.approx(moment**2 / (d0 + 4.0 * d1 + 1.0))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_batches_are_single_points(name):
    problem = get("SmallChain")
    batch = np.random.default_rng(0).normal(size=(2, 3, problem.n_features))
    entry = OBJECTIVES[name]
    values = entry.value(problem, batch, **settings_of(name))
    gradients = entry.gradient(problem, batch, **settings_of(name))
    assert values.shape == (2, 3)
    assert gradients.shape == batch.shape
    for index in np.ndindex(2, 3):
        assert values[index] == pytest.approx(entry.value(problem, batch[index], **settings_of(name)), rel=1e-9)
        np.testing.assert_allclose(
            gradients[index], entry.gradient(problem, batch[index], **settings_of(name)), atol=1e-9
        )


@pytest.mark.parametrize("basis", ["features", "wide", "all"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_are_finite_differences(name, basis):
    """At points without a kink nearby, on both sides of τ: the errors there lie within and beyond it."""
    entry = OBJECTIVES[name]
    if not entry.takes_basis and basis != "features":
        basis = "features"
    for seed in range(4):
        problem = random_problem(seed, 5, 2, 2, 0.9)
        chosen = {"features": None, "wide": widened_basis(problem.X, 2, seed), "all": "all"}[basis]
        options = settings_of(name, 0.3, chosen)
        theta = theta_of(problem, seed)
        numeric = [
            (entry.value(problem, theta + h, **options) - entry.value(problem, theta - h, **options)) / 2e-6
            for h in 1e-6 * np.eye(problem.n_features)
        ]
        np.testing.assert_allclose(entry.gradient(problem, theta, **options), numeric, atol=2e-6)
        if entry.takes_tau:
            sizes = np.abs(problem.bellman_error(theta))
            assert sizes.min() < 0.3 < sizes.max() or seed > 0


def test_gradient_points_hit_both_sides_of_the_threshold():
    sizes = [np.abs(p.bellman_error(theta_of(p, s))) for s in range(4) for p in [random_problem(s, 5, 2, 2, 0.9)]]
    assert min(map(np.min, sizes)) < 0.3 < max(map(np.max, sizes))


def box_maximum(problem, theta, tau, basis, squared=True):
    """``max_w Σ d (2δh − h²)`` (or ``Σ d δ h``) over ``h = Hw``, ``|h| ≤ τ``, by scipy's SLSQP."""
    H, d, delta = basis_matrix(problem, basis), problem.d, problem.bellman_error(theta)
    H = orth(H)

    def loss(w):
        h = H @ w
        return -(d @ (2.0 * delta * h - h * h)) if squared else -(d @ (delta * h))

    def slope(w):
        h = H @ w
        return -H.T @ (d * (2.0 * delta - 2.0 * h if squared else delta))

    walls = {"type": "ineq", "fun": lambda w: np.r_[tau - H @ w, tau + H @ w], "jac": lambda w: np.vstack([-H, H])}
    found = minimize(
        loss,
        np.zeros(H.shape[1]),
        jac=slope,
        constraints=[walls],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return -found.fun


@settings(properties, max_examples=30)
@given(problem=problems(min_states=3), seed=seeds, tau=taus)
def test_projected_values_match_a_general_solver(problem, seed, tau):
    theta = theta_of(problem, seed)
    for basis in (None, widened_basis(problem.X, 1, seed % 100)):
        expected = box_maximum(problem, theta, tau, basis)
        assert mhpbe(problem, theta, tau, basis) == pytest.approx(expected, rel=1e-5, abs=1e-6)
        expected = box_maximum(problem, theta, 1.0, basis, squared=False)
        assert mapbe(problem, theta, basis) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@properties
@given(problem=problems(), seed=seeds, tau=taus)
def test_orders_and_limits_of_the_projected_errors(problem, seed, tau):
    theta = theta_of(problem, seed)
    wide = widened_basis(problem.X, 2, seed % 100)
    assert mhpbe(problem, theta, tau) <= mhpbe(problem, theta, tau, wide) * (1 + 1e-9) + 1e-12
    assert mhpbe(problem, theta, tau, wide) <= linear.mhbe(problem, theta, tau) * (1 + 1e-9) + 1e-12
    assert mhpbe(problem, theta, tau) <= mspbe(problem, theta) * (1 + 1e-9) + 1e-12
    large = 1.0 + np.abs(project(problem, problem.bellman_error(theta))).max()
    for value in (mhpbe(problem, theta, large), clipped_projection(problem, theta, large)):
        assert value == pytest.approx(mspbe(problem, theta), rel=1e-7, abs=1e-10)
    assert tdrc_surface(problem, theta, 0.0) == pytest.approx(mspbe(problem, theta), rel=1e-6, abs=1e-9)
    assert tdrc_surface(problem, theta, 1.0) <= mspbe(problem, theta)


def test_clipped_projection_is_another_thing_than_the_constrained_one():
    problem, theta = get("HardAlias-1"), np.array([1.0, 2.0, 3.0, 4.0])
    assert clipped_projection(problem, theta, 1.0) > 1.1 * mhpbe(problem, theta, 1.0)
    signs = np.sign(project(problem, problem.bellman_error(theta)))
    assert signed_projection(problem, theta) == pytest.approx(problem.d @ (signs * problem.bellman_error(theta)))


def test_complement_is_orthogonal_and_completes():
    for name in ("HardAlias-1", "Outlier", "BigChain"):
        problem = get(name)
        E = complement(problem)
        np.testing.assert_allclose((problem.X.T * problem.d) @ E, 0.0, atol=1e-7)
        visited = problem.d > 1e-12 * problem.d.max()
        assert E.shape[1] == visited.sum() - np.linalg.matrix_rank(
            problem.X[visited] * np.sqrt(problem.d[visited, None])
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: linear.mhbe(p, [0.0], 0.0), "tau is 0.0; give a positive"),
        (lambda p: linear.mspbe(p, [0.0], "some"), "basis is 'some'; give None"),
        (lambda p: linear.mspbe(p, [0.0], np.ones((3, 1))), r"basis has shape \(3, 1\); give one row"),
        (lambda p: tdrc_surface(p, [0.0], -1.0), "beta is -1.0; give"),
        (lambda p: solve(p, "mhbe"), "tau is None; give a positive"),
        (lambda p: solve(p, "msbe", tau=1.0), "tau is 1.0, but msbe has no threshold"),
        (lambda p: solve(p, "msbe", basis="all"), "basis is given, but msbe is not a projected"),
        (lambda p: solve(p, "mse"), "objective is 'mse'; give 'td' or one of msve"),
        (lambda p: solve(p, "msbe", method="newton"), "method is 'newton'; give"),
        (lambda p: solve(p, "msbe", tolerance=1.0), r"\['tolerance'\] are options of method='iterative'"),
        (lambda p: solve(p, "td", tau=1.0), "objective 'td' is a linear system"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call(get("HardAlias-2"))
