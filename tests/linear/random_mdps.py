"""Random MDPs and weights for property tests, and the problems of the recorded reference numbers."""

import json
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from sb3_robust_be.linear import Problem, get

REFERENCE = json.loads((Path(__file__).parent / "data" / "linear_reference.json").read_text(encoding="utf-8"))

# Examples are drawn from a fixed seed, so that a run is repeatable.
properties = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def random_problem(seed: int, n: int, actions: int, features: int, gamma: float, on_policy: bool = False) -> Problem:
    rng = np.random.default_rng(seed)
    K = rng.dirichlet(np.full(n + 1, 0.7), size=(n, actions))
    R = rng.normal(size=(n, actions, n + 1)) * 2.0
    pi = rng.dirichlet(np.ones(actions), size=n)
    b = pi if on_policy else 0.5 * rng.dirichlet(np.ones(actions), size=n) + 0.5 / actions
    X = rng.normal(size=(n, min(features, n)))
    mu0 = rng.dirichlet(np.ones(n))
    return Problem.from_mdp(K, R, gamma, pi, X, b=b, mu0=mu0)


def problems(on_policy: bool = False, max_features: int = 3, min_states: int = 2) -> st.SearchStrategy[Problem]:
    return st.builds(
        random_problem,
        seed=st.integers(0, 2**32 - 1),
        n=st.integers(min_states, 5),
        actions=st.integers(1, 3),
        features=st.integers(1, max_features),
        gamma=st.floats(0.0, 0.99),
        on_policy=st.just(on_policy),
    )


def theta_of(problem: Problem, seed: int, scale: float = 2.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=problem.n_features) * scale


seeds = st.integers(0, 2**32 - 1)
taus = st.floats(0.02, 5.0)


def reference_problem(name: str) -> Problem:
    """The problem of an entry of the reference file, built by this package."""
    if name == "SmallChain_fixedX":
        chain = get("SmallChain")
        return Problem.from_mdp(chain.K, chain.R, chain.gamma, chain.pi, REFERENCE[name]["X"], b=chain.b, mu0=chain.mu0)
    if name == "HardAlias-2_gamma0.99_eps0.01":
        return get("HardAlias-2", gamma=0.99, epsilon=0.01)
    return get(name)


def parse_objective(label: str) -> tuple[str, float | None]:
    """``"MHBE_tau0.1"`` → ``("mhbe", 0.1)``."""
    name, _, tau = label.partition("_tau")
    return name.lower(), float(tau) if tau else None


def finite_difference(function, theta, step=1e-6):
    return np.array(
        [(function(theta + step * e) - function(theta - step * e)) / (2.0 * step) for e in np.eye(len(theta))]
    )
