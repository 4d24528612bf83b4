"""Projected Bellman errors: the secondary estimate ``h`` restricted to a linear class (paper, section 4.3).

The class of ``h`` is the argument ``basis``: ``None`` for the features of ``v``, ``"all"`` for every function of the
state, or a matrix ``(N, k)`` whose columns span it.

Paper: the maximum over a restricted class equals the squared norm of a projection / Ours: the maximum itself. The two
agree for a linear class, but not for one that is also clipped: there the maximum is ``‖δ‖² − ‖δ − Πδ‖²``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_robust_be.linear import regression
from sb3_robust_be.linear.objectives import Value, check_tau
from sb3_robust_be.linear.problems import Problem
from sb3_robust_be.updates import ROBUST_LOSSES

Floats = NDArray[np.float64]
Basis = Any  # None, "all" or an array (N, k)


def basis_matrix(problem: Problem, basis: Basis = None) -> Floats:
    """The columns that span the class of ``h``, ``(N, k)``."""
    if basis is None:
        return problem.X
    if isinstance(basis, str):
        if basis != "all":
            raise ValueError(f"basis is {basis!r}; give None, 'all' or a matrix with {problem.n_states} rows.")
        return np.eye(problem.n_states)
    matrix = np.asarray(basis, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != problem.n_states:
        raise ValueError(f"basis has shape {matrix.shape}; give one row for each of the {problem.n_states} states.")
    return matrix


def complement(problem: Problem, basis: Basis = None) -> Floats:
    """Columns spanning all ``e`` that are D-orthogonal to the class of ``h``, ``(N, m)``."""
    from scipy.linalg import null_space

    # States of hardly any weight are left alone: their rows would be nothing but rounding, magnified.
    visited = problem.d > 1e-12 * problem.d.max()
    root = np.sqrt(problem.d[visited])[:, None]
    null = null_space((root * basis_matrix(problem, basis)[visited]).T)
    columns = np.zeros((problem.n_states, null.shape[1]))
    columns[visited] = null / root
    return columns


def project(problem: Problem, u: ArrayLike, basis: Basis = None) -> Floats:
    """``Π u``: the member of the class nearest to ``u`` (``(..., N)``) in the norm weighted by ``d``."""
    H, root = basis_matrix(problem, basis), np.sqrt(problem.d)
    columns = (root * np.asarray(u)).reshape(-1, problem.n_states).T
    weights = np.linalg.lstsq(root[:, None] * H, columns, rcond=None)[0]
    return np.asarray((H @ weights).T.reshape(np.shape(u)), dtype=np.float64)


def _maximiser(problem: Problem, theta: ArrayLike, loss: str, tau: float | None, basis: Basis) -> Floats:
    """The maximising ``h`` of the dual form: project the derivative of the loss at the residual.

    ``max_{h ∈ H} Σ d (h δ − loss*(h))`` equals ``min_{e ⟂ H} Σ d loss(δ − e)``, a robust regression of ``δ`` on the
    complement of ``H``; ``loss'(δ − e)`` then lies in ``H``.
    """
    deltas = np.atleast_2d(problem.bellman_error(theta))
    E = complement(problem, basis)
    rows = []
    for delta in deltas.reshape(-1, problem.n_states):
        if loss == "absolute":
            rows.append(regression.absolute(E, delta, problem.d).dual)
        else:
            fit = regression.huber(E, delta, problem.d, check_tau(tau))
            rows.append(fit.residual.clip(-check_tau(tau), check_tau(tau)))
    return np.array(rows).reshape((*np.shape(theta)[:-1], problem.n_states))


def mspbe(problem: Problem, theta: ArrayLike, basis: Basis = None) -> Value:
    """Mean squared projected Bellman error ``‖Πδ‖²_D``."""
    return project(problem, problem.bellman_error(theta), basis) ** 2 @ problem.d


def mspbe_gradient(problem: Problem, theta: ArrayLike, basis: Basis = None) -> Floats:
    """``−2 Aᵀ D Πδ``."""
    return -2.0 * (problem.d * project(problem, problem.bellman_error(theta), basis)) @ problem.A


def mhpbe_maximiser(problem: Problem, theta: ArrayLike, tau: float, basis: Basis = None) -> Floats:
    """The ``h`` in the class with ``|h| ≤ τ`` nearest to ``δ``: the constrained projection, ``(..., N)``."""
    return _maximiser(problem, theta, "huber", tau, basis)


def mhpbe(problem: Problem, theta: ArrayLike, tau: float, basis: Basis = None) -> Value:
    """Mean Huber projected Bellman error ``max_{h ∈ H, |h| ≤ τ} Σ d (2 δ h − h²)``."""
    h = mhpbe_maximiser(problem, theta, tau, basis)
    return (h * (2.0 * problem.bellman_error(theta) - h)) @ problem.d


def mhpbe_gradient(problem: Problem, theta: ArrayLike, tau: float, basis: Basis = None) -> Floats:
    """``−2 Aᵀ D h`` at the maximising ``h``."""
    return -2.0 * (problem.d * mhpbe_maximiser(problem, theta, tau, basis)) @ problem.A


def mapbe_maximiser(problem: Problem, theta: ArrayLike, basis: Basis = None) -> Floats:
    """A maximising ``h`` of the MAPBE, ``(..., N)``."""
    return _maximiser(problem, theta, "absolute", None, basis)


def mapbe(problem: Problem, theta: ArrayLike, basis: Basis = None) -> Value:
    """Mean absolute projected Bellman error ``max_{h ∈ H, |h| ≤ 1} Σ d δ h``."""
    return (mapbe_maximiser(problem, theta, basis) * problem.bellman_error(theta)) @ problem.d


def mapbe_gradient(problem: Problem, theta: ArrayLike, basis: Basis = None) -> Floats:
    """``−Aᵀ D h`` at a maximising ``h``: a subgradient."""
    return -(problem.d * mapbe_maximiser(problem, theta, basis)) @ problem.A


def clipped_projection(problem: Problem, theta: ArrayLike, tau: float, basis: Basis = None) -> Value:
    """``Σ d (2 δ z − z²)`` at ``z = clip(Πδ, −τ, τ)``: the ``h`` that the online algorithms use.

    ``z`` need not lie in the class, so this is neither the MHPBE nor below it.
    """
    delta = problem.bellman_error(theta)
    z = ROBUST_LOSSES["huber"].project(project(problem, delta, basis), check_tau(tau))
    return (z * (2.0 * delta - z)) @ problem.d


def signed_projection(problem: Problem, theta: ArrayLike, basis: Basis = None) -> Value:
    """``Σ d δ z`` at ``z = sign(Πδ)``: as :func:`clipped_projection`, for the absolute loss."""
    delta = problem.bellman_error(theta)
    return (ROBUST_LOSSES["absolute"].project(project(problem, delta, basis), None) * delta) @ problem.d


def tdrc_surface(problem: Problem, theta: ArrayLike, beta: float = 1.0) -> Value:
    """``max_w 2 wᵀXᵀDδ − wᵀ(XᵀDX + βI)w``: the MSPBE with the secondary weights regularised by ``β`` (figure 3)."""
    if beta < 0.0:
        raise ValueError(f"beta is {beta}; give a regularisation of at least 0.")
    X, d = problem.X, problem.d
    moment = (d * problem.bellman_error(theta)) @ X
    weights = moment @ np.linalg.pinv(X.T @ (d[:, None] * X) + beta * np.eye(problem.n_features), hermitian=True)
    return (moment * weights).sum(axis=-1)
