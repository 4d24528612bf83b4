"""The paper's propositions on projected errors and on the means of the updates, on random MDPs; as in
``test_linear_theory.py``, ``*_as_printed`` shows a printed form failing."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from random_mdps import finite_difference, problems, properties, seeds, taus, theta_of

from sb3_robust_be import linear
from sb3_robust_be.linear import Problem, expected_update, get, mabe, mhbe, mhpbe, msbe, mspbe, solve
from sb3_robust_be.linear.objectives import msbe_gradient
from sb3_robust_be.linear.projected import mapbe, mapbe_maximiser, mhpbe_maximiser, project

# Section 4.3: projected errors.


@properties
@given(problem=problems(), seed=seeds)
def test_squared_projected_error_is_a_maximum(problem, seed):
    """Over a linear class the maximum equals the norm of the projection: ``max 2⟨δ,h⟩ − ‖h‖² = ‖Πδ‖²``."""
    theta, rng = theta_of(problem, seed), np.random.default_rng(seed)
    delta = problem.bellman_error(theta)
    h = project(problem, delta)
    best = problem.d @ (2.0 * delta * h - h * h)
    assert mspbe(problem, theta) == pytest.approx(best, rel=1e-9, abs=1e-10)
    for other in h + rng.normal(size=(20, problem.n_features)) @ problem.X.T:
        assert problem.d @ (2.0 * delta * other - other * other) <= best + 1e-9


@properties
@given(problem=problems(min_states=3), seed=seeds, tau=st.floats(0.02, 1.0))
def test_huber_projected_error_is_a_distance(problem, seed, tau):
    """The maximum is ``‖δ‖² − ‖δ − Πδ‖²`` with the projection onto the clipped class, for random points of it."""
    theta, rng = theta_of(problem, seed), np.random.default_rng(seed)
    delta, h = problem.bellman_error(theta), mhpbe_maximiser(problem, theta, tau)
    assert np.abs(h).max() <= tau * (1.0 + 1e-9)
    np.testing.assert_allclose(project(problem, h), h, atol=1e-7)
    value = mhpbe(problem, theta, tau)
    assert value == pytest.approx(problem.d @ delta**2 - problem.d @ (delta - h) ** 2, rel=1e-9, abs=1e-10)
    for weights in rng.normal(size=(20, problem.n_features)):
        other = problem.X @ weights
        other *= rng.uniform() * tau / np.abs(other).max()
        # The variational inequality of a projection onto a convex set, and so no point of it is nearer.
        assert problem.d @ ((delta - h) * (other - h)) <= 1e-7 * (1.0 + np.abs(delta).max())


def test_huber_projected_error_as_printed():
    """Section 4.3 prints the maximum as ``‖Πδ‖²``: with the clip active it is far more."""
    problem, theta, tau = get("HardAlias-2"), [10.0], 0.03
    h = mhpbe_maximiser(problem, theta, tau)
    norm = problem.d @ h**2
    assert mhpbe(problem, theta, tau) > 20.0 * norm
    assert mhpbe(problem, theta, 1e3) == pytest.approx(problem.d @ mhpbe_maximiser(problem, theta, 1e3) ** 2)


@properties
@given(problem=problems(), seed=seeds, tau=taus)
def test_robust_and_squared_projected_errors_share_their_zero(problem, seed, tau):
    """Theorem 2: with ``h`` as expressive as ``v``, zero MSPBE means zero MHPBE and zero MAPBE, and the reverse."""
    try:
        solution = solve(problem, "td")
    except ValueError:
        assume(False)
    assume(solution.margin > 1e-8)
    for theta, zero in ((solution.theta, True), (solution.theta + theta_of(problem, seed), False)):
        squared = mspbe(problem, theta)
        assert bool(squared < 1e-12) is zero
        assert bool(mhpbe(problem, theta, tau) < 1e-12 * tau) is zero
        assert bool(mapbe(problem, theta) < 1e-9) is zero
    assert mhpbe(problem, solution.theta, tau) >= -1e-12


def test_larger_class_of_h_separates_the_minima():
    problem = get("HardAlias-2")
    for basis, same in ((None, True), ("all", False)):
        squared = solve(problem, "mspbe", basis=basis).theta
        robust = solve(problem, "mhpbe", tau=0.03, basis=basis).theta
        assert np.allclose(squared, robust, atol=1e-9) is same


@properties
@given(problem=problems(), seed=seeds, tau=taus)
def test_projection_onto_all_functions_changes_nothing(problem, seed, tau):
    theta = theta_of(problem, seed)
    # By least squares and by a linear program, whose last digits are those of the matrix routines.
    assert mspbe(problem, theta, "all") == pytest.approx(msbe(problem, theta), rel=1e-11)
    assert mhpbe(problem, theta, tau, "all") == pytest.approx(mhbe(problem, theta, tau), rel=1e-11)
    assert mapbe(problem, theta, "all") == pytest.approx(mabe(problem, theta), rel=1e-10, abs=1e-12)


# Section 5 and appendix C: the updates' means.


def optimal_h(problem, theta):
    """``(XᵀDX)⁻¹XᵀDδ``."""
    X, d = problem.X, problem.d
    return np.linalg.solve(X.T @ (d[:, None] * X), X.T @ (d * problem.bellman_error(theta)))


@properties
@given(problem=problems(), seed=seeds)
def test_extra_term_vanishes_for_the_best_h(problem, seed):
    """GTD2 and TDC then have the same mean, ``−½∇MSPBE``, and ``θ_h`` rests."""
    theta = theta_of(problem, seed)
    h = optimal_h(problem, theta)
    numeric = -0.5 * finite_difference(lambda t: mspbe(problem, t), theta)
    scale = 1.0 + np.abs(numeric).max() + np.abs(h).max()
    for algorithm in ("gtd2", "tdc"):
        value, h_update = expected_update(problem, algorithm, theta, h)
        np.testing.assert_allclose(value, numeric, atol=1e-6 * scale)
        np.testing.assert_allclose(h_update, 0.0, atol=1e-9 * scale)


def test_tdc_is_not_unbiased_for_the_msbe_as_printed():
    """Appendix C says MSBE where MSPBE is meant."""
    problem, theta = get("HardAlias-1"), np.array([1.0, 2.0, 3.0, 4.0])
    value, _ = expected_update(problem, "tdc", theta, optimal_h(problem, theta))
    assert np.abs(value + 0.5 * msbe_gradient(problem, theta)).max() > 0.1
    np.testing.assert_allclose(value, -0.5 * linear.OBJECTIVES["mspbe"].gradient(problem, theta), atol=1e-12)


def tdc_bias(problem, theta, tau):
    """TDC-Huber's mean update less GTD2-Huber's, both at the best ``h``; the robust gradient is the latter's."""
    algorithm = {"projection": "huber", "threshold": tau}
    h = optimal_h(problem, theta)
    corrected = expected_update(problem, linear.Algorithm("tdc", **algorithm), theta, h)[0]
    return corrected - expected_update(problem, linear.Algorithm("gtd2", **algorithm), theta, h)[0]


@properties
@given(problem=problems(), seed=seeds, tau=taus)
def test_bias_of_tdc_huber(problem, seed, tau):
    """``XᵀD(Xh* − z*)``, bounded by the excess of ``h*`` over ``τ``; none where ``h*`` stays within."""
    theta = theta_of(problem, seed)
    estimate = problem.X @ optimal_h(problem, theta)
    bias = tdc_bias(problem, theta, tau)
    scale = 1.0 + np.abs(estimate).max()
    np.testing.assert_allclose(
        bias, problem.X.T @ (problem.d * (estimate - estimate.clip(-tau, tau))), atol=1e-9 * scale
    )
    excess = np.maximum(np.abs(estimate) - tau, 0.0)
    bound = problem.d @ (excess * np.abs(problem.X).max(axis=1))
    assert np.abs(bias).max() <= bound + 1e-9 * scale
    np.testing.assert_allclose(tdc_bias(problem, theta, scale), 0.0, atol=1e-9 * scale)


def test_bound_on_the_bias_of_tdc_huber_as_printed():
    """Appendix C measures the excess of ``δ``, not of ``h*``, over ``τ``. Where ``δ`` is ``τ`` in the states with a
    large ``h*``, the printed bound is zero, and the bias is not.

    Two states of one feature, 1 and 2; δ = (3, 1) gives ``h* = 1`` and estimates (1, 2): with τ = 1 the second is
    clipped, while δ there equals τ.
    """
    problem = Problem.from_chain(np.zeros((2, 2)), [3.0, 1.0], 0.9, [[1.0], [2.0]], d=[0.5, 0.5])
    theta, tau = np.zeros(1), 1.0
    estimate, delta = problem.X @ optimal_h(problem, theta), problem.bellman_error(theta)
    np.testing.assert_allclose(estimate, [1.0, 2.0])
    outside = np.abs(estimate) > tau
    printed = np.sum((problem.d * np.abs(tau * np.sign(estimate) - delta) * np.abs(problem.X).max(axis=1))[outside])
    assert printed == pytest.approx(0.0, abs=1e-12)
    assert np.abs(tdc_bias(problem, theta, tau)).max() == pytest.approx(1.0)


@properties
@given(problem=problems(), tau=taus)
def test_td_fixed_point_is_unmoved_by_robust_corrections(problem, tau):
    """Appendix C: there ``h* = 0``, so every projection leaves zero bias."""
    try:
        theta = solve(problem, "td").theta
    except ValueError:
        assume(False)
    assume(np.abs(theta).max() < 1e4)
    for algorithm in ("tdc", linear.Algorithm("tdc", "huber", tau), "tdc-l1", "tdrc-huber", "gtd2-l1", "qlc"):
        value, h = expected_update(problem, algorithm, theta, np.zeros_like(theta))
        np.testing.assert_allclose(value, 0.0, atol=1e-8)
        np.testing.assert_allclose(h, 0.0, atol=1e-8)


@properties
@given(problem=problems(), seed=seeds, tau=taus)
def test_robust_gradients_given_the_maximiser(problem, seed, tau):
    """Section 5: the gradient is ``Σ d h E[∇δ]`` whatever the loss; GTD2's mean update is that, for the best ``h``."""
    theta = theta_of(problem, seed)
    for value, h, factor in (
        (lambda t: mhpbe(problem, t, tau), mhpbe_maximiser(problem, theta, tau), 2.0),
        (lambda t: mapbe(problem, t), mapbe_maximiser(problem, theta), 1.0),
    ):
        gradient = -factor * (problem.d * h) @ problem.A
        # Convexity: the tangent lies below the function everywhere, which at a kink pins a subgradient.
        for shift in np.random.default_rng(seed).normal(size=(5, problem.n_features)):
            assert value(theta + shift) >= value(theta) + gradient @ shift - 1e-7
