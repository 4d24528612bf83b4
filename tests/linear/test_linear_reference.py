"""Every number of data/linear_reference.json, which was computed apart from this package."""

import numpy as np
import pytest
from random_mdps import REFERENCE, parse_objective, reference_problem

from sb3_robust_be.linear import OBJECTIVES, clipped_projection, expected_update, get, mhbe, solve
from sb3_robust_be.linear.projected import mhpbe_maximiser

POINTS = [(name, i) for name, entry in REFERENCE.items() for i in range(len(entry["points"]))]
MINIMA = [(name, label) for name, entry in REFERENCE.items() for label in entry["minimisers"]]

#: Keys of an entry, and of a point, that some test below reads: nothing in the file may go unread.
ENTRY_KEYS = {"minimisers", "uniqueness_margin", "values_at_minimisers", "points", "closed_forms"}
DATA_KEYS = {"P", "gamma", "r", "X", "d", "v_pi", "pi", "b", "theta0"}
POINT_KEYS = {"theta", "theta_h", "delta", "expected_updates_tau1", "expected_dh", "expected_dh_TDRC_beta1"}


def value(problem, label, theta):
    name, tau = parse_objective(label)
    entry = OBJECTIVES[name]
    return entry.value(problem, theta, **entry.settings(tau, None))


@pytest.mark.parametrize("name", REFERENCE)
def test_problem_data(name):
    problem, entry = reference_problem(name), REFERENCE[name]
    assert set(entry) <= ENTRY_KEYS | DATA_KEYS
    for key in DATA_KEYS:
        np.testing.assert_allclose(getattr(problem, key), entry[key], rtol=1e-12, atol=1e-14, err_msg=key)


@pytest.mark.parametrize(("name", "label"), MINIMA)
def test_minimisers(name, label):
    problem, entry = reference_problem(name), REFERENCE[name]
    objective, tau = parse_objective(label)
    point = solve(problem, objective, tau=tau)
    np.testing.assert_allclose(point.theta, entry["minimisers"][label], rtol=1e-10, atol=1e-12)
    assert point.converged
    assert point.certificate < 1e-12
    assert point.unique
    if label in entry["uniqueness_margin"]:
        assert point.margin == pytest.approx(entry["uniqueness_margin"][label], rel=1e-9)
    for other, expected in entry["values_at_minimisers"][label].items():
        assert value(problem, other, entry["minimisers"][label]) == pytest.approx(expected, rel=1e-11, abs=1e-14)


@pytest.mark.parametrize(("name", "i"), POINTS)
def test_objectives_at_points(name, i):
    problem, point = reference_problem(name), REFERENCE[name]["points"][i]
    theta = np.array(point["theta"])
    np.testing.assert_allclose(problem.bellman_error(theta), point["delta"], rtol=1e-12, atol=1e-13)
    for label in set(point) - POINT_KEYS:
        kind, tau = label.partition("_tau")[0], parse_objective(label)[1]
        if kind == "MHPBE_max":
            actual = value(problem, f"MHPBE_tau{tau}", theta)
        elif kind == "MHPBE_normsq":
            actual = mhpbe_maximiser(problem, theta, tau) ** 2 @ problem.d
        elif kind == "clip_proj_value":
            actual = clipped_projection(problem, theta, tau)
        else:
            actual = value(problem, label, theta)
        assert actual == pytest.approx(point[label], rel=1e-9, abs=1e-13), label


@pytest.mark.parametrize(("name", "i"), POINTS)
def test_expected_updates_at_points(name, i):
    problem, point = reference_problem(name), REFERENCE[name]["points"][i]
    theta, theta_h = point["theta"], point["theta_h"]
    for label, expected in point["expected_updates_tau1"].items():
        algorithm = label.lower().replace("-sq", "")
        value_update, h_update = expected_update(problem, algorithm, theta, theta_h)
        np.testing.assert_allclose(value_update, expected["dtheta"], rtol=1e-11, atol=1e-13, err_msg=label)
        if algorithm != "td":
            np.testing.assert_allclose(h_update, point["expected_dh"], rtol=1e-11, atol=1e-13)
    regularised = expected_update(problem, "tdrc", theta, theta_h)[1]
    np.testing.assert_allclose(regularised, point["expected_dh_TDRC_beta1"], rtol=1e-11, atol=1e-13)


def closed_forms(gamma, epsilon):
    k, c = 2.0 * gamma - 1.0, 1.0 - gamma * (1.0 - epsilon)
    return {
        "c": c,
        "MSVE": epsilon / (4.0 + epsilon),
        "MAVE": 0.0,
        "MABE": 0.0,
        "MSBE": -epsilon * k / (epsilon * k**2 + 4.0 * c**2),
        "TD": epsilon / (4.0 * c - epsilon * k),
        "tau_star": 1.0 / (1.0 + epsilon * k**2 / (4.0 * c**2)),
        "MHBE_slope": -epsilon * k / (4.0 * c**2),
    }


def test_recorded_closed_forms():
    recorded = REFERENCE["HardAlias-2_gamma0.99_eps0.01"]["closed_forms"]
    ours = closed_forms(0.99, 0.01)
    assert set(recorded) == set(ours)
    for key, expected in recorded.items():
        assert ours[key] == pytest.approx(expected, rel=1e-12, abs=1e-15), key


@pytest.mark.parametrize("epsilon", [0.003, 0.01, 0.05])
@pytest.mark.parametrize("gamma", [0.9, 0.99])
def test_closed_forms_of_hard_alias_2(gamma, epsilon):
    problem, form = get("HardAlias-2", gamma=gamma, epsilon=epsilon), closed_forms(gamma, epsilon)
    for label in ("MSVE", "MAVE", "MABE", "MSBE", "TD"):
        assert solve(problem, label.lower()).theta[0] == pytest.approx(form[label], rel=1e-9, abs=1e-13), label
    above, below = 1.001 * form["tau_star"], 0.999 * form["tau_star"]
    assert solve(problem, "mhbe", tau=above).theta[0] == pytest.approx(form["MSBE"], rel=1e-9)
    for tau in (below, 0.3 * below):
        assert solve(problem, "mhbe", tau=tau).theta[0] == pytest.approx(tau * form["MHBE_slope"], rel=1e-9)


def test_published_figures_of_hard_alias():
    """The factors between objectives that the design records: 20.4 at τ = 0.03, none at τ = 1."""
    problem = get("HardAlias-2")
    squared, huber = solve(problem, "msbe").theta, solve(problem, "mhbe", tau=0.03).theta
    value_error = OBJECTIVES["msve"].value
    assert value_error(problem, squared) / value_error(problem, huber) == pytest.approx(20.4, abs=0.05)
    np.testing.assert_allclose(solve(problem, "mhbe", tau=1.0).theta, squared, rtol=1e-12)
    assert mhbe(problem, squared, 1.0) == pytest.approx(OBJECTIVES["msbe"].value(problem, squared), rel=1e-12)

    walk = get("HardAlias-1")
    best = solve(walk, "msve").value
    ratios = [
        value_error(walk, solve(walk, *args, **kwargs).theta) / best
        for args, kwargs in ((("msbe",), {}), (("mhbe",), {"tau": 1.0}), (("mabe",), {}))
    ]
    np.testing.assert_allclose(ratios, [5.78, 5.47, 3.93], atol=0.005)
