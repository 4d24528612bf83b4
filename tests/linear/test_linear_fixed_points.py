"""Solvers against each other: exact, the paper's iterative one, and scipy's general optimisers."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from random_mdps import problems, properties, random_problem, seeds, taus
from scipy.optimize import minimize

from sb3_robust_be.linear import OBJECTIVES, PROBLEMS, Problem, get, mabe, mave, mhbe, regression, solve
from sb3_robust_be.linear.features import widened_basis
from sb3_robust_be.linear.iterative import adam_minimise
from sb3_robust_be.linear.projected import mapbe, mhpbe, mhpbe_gradient

SMOOTH = [("msve", {}), ("msbe", {}), ("mstde", {}), ("mspbe", {}), ("mhbe", {"tau": 1.0}), ("mhbe", {"tau": 0.1})]
SMOOTH_IDS = ["-".join([name, *map(str, options.values())]) for name, options in SMOOTH]


def value_of(problem, name, options):
    return lambda theta: float(OBJECTIVES[name].value(problem, theta, **options))


@pytest.mark.parametrize(("name", "options"), SMOOTH, ids=SMOOTH_IDS)
@pytest.mark.parametrize("problem_name", PROBLEMS)
def test_iterative_agrees_with_exact(problem_name, name, options):
    problem = get(problem_name)
    exact = solve(problem, name, **options)
    found = solve(problem, name, method="iterative", **options)
    assert found.converged
    assert found.certificate < 1e-7
    assert found.value == pytest.approx(exact.value, abs=1e-5)
    assert found.value >= exact.value - 1e-12
    assert np.isnan(found.margin)


@pytest.mark.parametrize("problem_name", ["HardAlias-1", "HardAlias-2", "SmallChain"])
def test_iterative_never_meets_its_stop_test_on_the_mabe(problem_name):
    problem = get(problem_name)
    found = solve(problem, "mabe", method="iterative", max_iterations=5000)
    assert not found.converged
    assert found.iterations == 5000
    assert found.certificate > 1e-3
    exact = solve(problem, "mabe").value
    assert exact < found.value < exact + 0.01


@pytest.mark.parametrize(("name", "options"), SMOOTH, ids=SMOOTH_IDS)
def test_scipy_finds_no_better_smooth_minimum(name, options):
    for problem in (get("HardAlias-1"), get("SmallChain"), random_problem(1, 5, 2, 3, 0.95)):
        exact = solve(problem, name, **options)
        gradient = partial(OBJECTIVES[name].gradient, problem, **options)
        start = np.ones(problem.n_features)
        found = minimize(value_of(problem, name, options), start, jac=gradient, method="BFGS", options={"gtol": 1e-9})
        assert exact.value == pytest.approx(found.fun, rel=1e-6, abs=1e-9)
        assert exact.value == pytest.approx(value_of(problem, name, options)(exact.theta), rel=1e-9, abs=1e-12)


def epigraph_minimum(design, targets, d):
    """``min Σ d t`` over ``|targets − design θ| ≤ t`` by SLSQP, which knows nothing of linear programs."""
    n, k = design.shape
    signs = np.vstack([np.hstack([design, np.eye(n)]), np.hstack([-design, np.eye(n)])])
    walls = {"type": "ineq", "fun": lambda z: signs @ z - np.r_[targets, -targets], "jac": lambda z: signs}
    cost = np.r_[np.zeros(k), d]
    start = np.r_[np.zeros(k), np.abs(targets)]
    return minimize(lambda z: cost @ z, start, jac=lambda z: cost, constraints=[walls], method="SLSQP").fun


@properties
@given(problem=problems())
def test_absolute_minima_match_a_general_solver(problem):
    bellman, value = solve(problem, "mabe"), solve(problem, "mave")
    assert bellman.value == pytest.approx(epigraph_minimum(problem.A, problem.r, problem.d), rel=1e-5, abs=1e-6)
    assert value.value == pytest.approx(epigraph_minimum(problem.X, problem.v_pi, problem.d), rel=1e-5, abs=1e-6)
    for point, function in ((bellman, mabe), (value, mave)):
        assert function(problem, point.theta) == pytest.approx(point.value, rel=1e-9, abs=1e-12)
        assert point.certificate < 1e-10


@properties
@given(problem=problems(), tau=taus, seed=seeds)
def test_huber_minimum_is_stationary_and_least(problem, tau, seed):
    point = solve(problem, "mhbe", tau=tau)
    assert point.certificate < 1e-10
    assert mhbe(problem, point.theta, tau) == pytest.approx(point.value, rel=1e-9, abs=1e-12)
    for shift in np.random.default_rng(seed).normal(size=(20, problem.n_features)):
        assert mhbe(problem, point.theta + 0.1 * shift, tau) >= point.value - 1e-12


@pytest.mark.parametrize("basis", ["features", "wide", "all"])
@pytest.mark.parametrize("problem_name", ["HardAlias-1", "HardAlias-2", "SmallChain", "BigChain"])
def test_projected_minima(problem_name, basis):
    """Minimised by one regression; checked as functions of θ by their own gradients and by descent."""
    problem = get(problem_name)
    chosen = {"features": None, "wide": widened_basis(problem.X, 2, 3), "all": "all"}[basis]
    for tau in (1.0, 0.05):
        point = solve(problem, "mhpbe", tau=tau, basis=chosen)
        assert mhpbe(problem, point.theta, tau, chosen) == pytest.approx(point.value, abs=1e-10)
        assert np.abs(mhpbe_gradient(problem, point.theta, tau, chosen)).max() < 1e-8
    absolute = solve(problem, "mapbe", basis=chosen)
    assert mapbe(problem, absolute.theta, chosen) == pytest.approx(absolute.value, abs=1e-10)
    rng = np.random.default_rng(0)
    for shift in 0.1 * rng.normal(size=(5, problem.n_features)):
        assert mapbe(problem, absolute.theta + shift, chosen) >= absolute.value - 1e-10
    if basis == "all":
        assert absolute.value == pytest.approx(solve(problem, "mabe").value, rel=1e-9)
    if basis == "features":
        np.testing.assert_allclose(absolute.theta, solve(problem, "td").theta, rtol=1e-5, atol=1e-6)


def test_certificates_tell_a_minimum_from_another_point():
    problem = get("HardAlias-1")
    M, y, d = problem.A, problem.r, problem.d
    fit = regression.huber(M, y, d, 0.1)
    assert fit.certificate < 1e-13
    assert np.abs(OBJECTIVES["mhbe"].gradient(problem, fit.coefficients + 0.01, tau=0.1)).max() > 1e-4
    fit = regression.absolute(M, y, d)
    assert fit.certificate < 1e-12
    # Weak duality: the certificate's dual bound lies below the value of any other weights.
    assert (d * fit.dual) @ y == pytest.approx(fit.value, rel=1e-12)
    assert mabe(problem, fit.coefficients + 0.01) > fit.value
    np.testing.assert_allclose(M.T @ (d * fit.dual), 0.0, atol=1e-12)
    assert np.abs(fit.dual).max() <= 1.0


def test_margins_tell_unique_minima():
    for name in ("msve", "mave", "msbe", "mabe"):
        assert not solve(get("Baird"), name).unique
        assert solve(get("HardAlias-1"), name).unique
    # |θ − 1| + |θ + 1| is least anywhere between −1 and 1, and p_τ is linear there for a small τ.
    flat = Problem.from_chain(np.zeros((2, 2)), [1.0, -1.0], 0.9, [[1.0], [1.0]], d=[0.5, 0.5])
    for name, options, unique in (("mabe", {}, False), ("mhbe", {"tau": 0.1}, False), ("mhbe", {"tau": 3.0}, True)):
        assert solve(flat, name, **options).unique is unique
    twice = Problem.from_chain(np.zeros((4, 4)), [1.0, 1.0, -1.0, -1.0], 0.9, np.ones((4, 1)))
    assert not solve(twice, "mabe").unique  # two kinks of one weight
    tilted = Problem.from_chain(np.zeros((2, 2)), [1.0, -1.0], 0.9, [[1.0], [1.0]], d=[0.6, 0.4])
    point = solve(tilted, "mabe")
    assert point.theta[0] == pytest.approx(1.0)
    assert point.margin == pytest.approx(0.2)  # the slope 0.6 − 0.4 towards the lighter state
    assert solve(tilted, "msbe").margin == pytest.approx(1.0)  # Σ d x²


@properties
@given(problem=problems(max_features=2), seed=seeds)
def test_absolute_margin_is_the_least_slope(problem, seed):
    point = solve(problem, "mabe")
    rng = np.random.default_rng(seed)
    for direction in rng.normal(size=(30, problem.n_features)):
        direction /= np.abs(direction).max()
        slope = (mabe(problem, point.theta + 1e-7 * direction) - point.value) / 1e-7
        assert slope >= point.margin - 1e-6


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("states", "rewarded"), [(6, 6), (6, 1), (30, 0), (30, 2), (30, 30)])
def test_the_least_slope_is_met(states, rewarded, seed):
    """Where few states are rewarded, more states than there are features have no error, each with its own kink."""
    rng = np.random.default_rng(seed)
    P, X, d = rng.dirichlet(np.ones(states), size=states), rng.normal(size=(states, 2)), rng.dirichlet(np.ones(states))
    problem = Problem.from_chain(P, np.arange(states) < rewarded, 0.9, X, d=d)
    point = solve(problem, "mabe")
    # With two features the least slope is along some state's kink, where the error of that state stays zero.
    kinks = np.c_[-problem.A[:, 1], problem.A[:, 0]] / np.abs(problem.A).max(axis=1, keepdims=True)
    directions = np.concatenate([kinks, -kinks, 2.0 * rng.random((200, 2)) - 1.0])
    directions /= np.abs(directions).max(axis=1, keepdims=True)
    slopes = (mabe(problem, point.theta + 1e-7 * directions) - point.value) / 1e-7
    assert point.margin == pytest.approx(min(slopes), rel=1e-5)
    assert point.unique


def test_many_states():
    """Tables of values at every state, dense transitions: what grows with a program for each state takes minutes."""
    rng = np.random.default_rng(0)
    problem = Problem.from_chain(rng.dirichlet(np.ones(301), size=300)[:, :300], rng.normal(size=300), 0.99)
    for name in ("mabe", "mave", "mapbe"):
        point = solve(problem, name)
        np.testing.assert_allclose(point.theta, problem.v_pi, rtol=1e-9)
        assert point.unique
        assert point.certificate < 1e-12


def test_unvisited_states_leave_tabular_minimisers_open():
    P = [[0.5, 0.5, 0.0], [0.5, 0.0, 0.0], [0.0, 1.0, 0.0]]
    for d, unique in (([0.5, 0.5, 0.0], False), ([0.5, 0.4, 0.1], True)):
        problem = Problem.from_chain(P, [1.0, 2.0, 3.0], 0.9, d=d)
        for name in ("msbe", "mabe", "mave"):
            point = solve(problem, name)
            assert point.unique is unique, name
            assert point.value == pytest.approx(0.0, abs=1e-12)
            np.testing.assert_allclose(point.theta[:2], problem.v_pi[:2], rtol=1e-10)


def test_progress_of_what_takes_long():
    seen = []
    problem = Problem.from_chain(np.zeros((9, 9)), np.eye(9)[0], 0.9, np.eye(3)[np.arange(9) // 3])
    solve(problem, "mabe", progress=seen.append)
    assert seen == pytest.approx([1 / 3, 2 / 3, 1.0])
    seen.clear()
    solve(problem, "mabe", method="iterative", max_iterations=1000, progress=seen.append)
    assert seen == pytest.approx(np.arange(1, 11) / 10)


def test_td_without_a_solution():
    """Two states of one feature whose errors cancel in ``XᵀDA = 0`` but not in ``XᵀDr``."""
    P, X = [[0.0, 1.0], [0.0, 0.0]], [[1.0], [2.0]]
    # XᵀDA = d₀ (1 − 2γ) + 4 d₁ = 0 at γ = 0.9 for d₀ = 5/6, d₁ = 1/6.
    problem = Problem.from_chain(P, [1.0, 0.0], 0.9, X, d=[5.0 / 6.0, 1.0 / 6.0])
    with pytest.raises(ValueError, match="TD fixed point does not exist"):
        solve(problem, "td")
    assert solve(problem, "mspbe").value > 0.01


def test_iterative_options_change_the_descent():
    problem = get("HardAlias-2")
    plain = solve(problem, "msbe", method="iterative")
    for options in ({"average": 0.5}, {"beta1": 0.9}, {"beta2": 0.99}, {"tolerance": 1e-3}, {"max_iterations": 10}):
        other = solve(problem, "msbe", method="iterative", **options)
        assert (other.iterations, other.theta[0]) != (plain.iterations, plain.theta[0])
    first = adam_minimise(lambda theta: np.array([2.0]), [1.0], max_iterations=1)
    assert first.theta[0] == pytest.approx(0.9 * 1.0 + 0.1 * 0.0)  # one unit step, averaged
