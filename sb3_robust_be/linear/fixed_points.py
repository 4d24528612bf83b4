"""Minimisers of the objectives: exact, or by the paper's own iterative procedure.

A projected objective over the class ``H`` is the plain objective after the best correction ``e ⟂_D H``:
``max_{h ∈ H} Σ d (h δ − loss*(h)) = min_{e ⟂ H} Σ d loss(δ − e)``. So one regression on the columns ``[A | E]``
minimises each of them, and its first coefficients are ``θ``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be.linear import objectives, projected, regression
from sb3_robust_be.linear.iterative import adam_minimise
from sb3_robust_be.linear.objectives import Objective
from sb3_robust_be.linear.problems import Problem

Floats = NDArray[np.float64]

OBJECTIVES: dict[str, Objective] = {
    entry.name: entry
    for entry in (
        Objective("msve", objectives.msve, objectives.msve_gradient, "squared"),
        Objective("mave", objectives.mave, objectives.mave_gradient, "absolute"),
        Objective("msbe", objectives.msbe, objectives.msbe_gradient, "squared"),
        Objective("mabe", objectives.mabe, objectives.mabe_gradient, "absolute"),
        Objective("mhbe", objectives.mhbe, objectives.mhbe_gradient, "huber", takes_tau=True),
        Objective("mstde", objectives.mstde, objectives.mstde_gradient, "squared"),
        Objective("mspbe", projected.mspbe, projected.mspbe_gradient, "squared", takes_basis=True),
        Objective("mhpbe", projected.mhpbe, projected.mhpbe_gradient, "huber", takes_tau=True, takes_basis=True),
        Objective("mapbe", projected.mapbe, projected.mapbe_gradient, "absolute", takes_basis=True),
    )
}


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """A minimiser and what vouches for it.

    :param objective: Key of :data:`OBJECTIVES`, or ``"td"``.
    :param theta: ``(D,)``.
    :param value: The objective there.
    :param certificate: Zero at an exact minimum, in rounding: the largest entry of the gradient; for the absolute
        losses, solved as linear programs, the duality gap plus the violation of dual feasibility.
    :param margin: Zero where minimisers are not unique. Squared and Huber: least curvature. Absolute: least one-sided
        slope over directions of unit maximum norm. NaN for the iterative solver, which does not know it.
    :param iterations: 0 for the exact solvers.
    :param converged: Whether the certificate is below the solver's tolerance.
    """

    objective: str
    theta: Floats
    value: float
    certificate: float
    margin: float
    iterations: int
    converged: bool

    @property
    def unique(self) -> bool:
        return self.margin > 0.0


def solve(
    problem: Problem,
    objective: str,
    *,
    tau: float | None = None,
    basis: Any = None,
    method: str = "exact",
    progress: Callable[[float], None] | None = None,
    **iterative_options: Any,
) -> FixedPoint:
    """Minimise an objective.

    Exact solutions take milliseconds at a hundred states and some seconds at a thousand. Longer takes the margin of an
    absolute loss where more states than features have no error (half a minute at a thousand states and a hundred
    features), and whatever is solved by ``method="iterative"``: ``progress`` tells how far they are. ``"mstde"`` needs
    memory for the features of every transition.

    :param objective: A key of :data:`OBJECTIVES`, or ``"td"`` for the fixed point ``XᵀDδ = 0`` itself.
    :param tau: Huber threshold, for ``mhbe`` and ``mhpbe``.
    :param basis: Class of ``h``, for the projected objectives; see :mod:`~sb3_robust_be.linear.projected`.
    :param method: ``"exact"``, or ``"iterative"`` for the paper's procedure
        (:func:`~sb3_robust_be.linear.iterative.adam_minimise`, which takes the further options).
    :param progress: Called with the finished fraction, from 0 to 1, while something long runs.
    :raises ValueError: For an unknown name, a missing threshold or one that has no meaning, or an inexistent TD point.
    """
    if method not in ("exact", "iterative"):
        raise ValueError(f"method is {method!r}; give 'exact' or 'iterative'.")
    if objective != "td" and objective not in OBJECTIVES:
        raise ValueError(f"objective is {objective!r}; give 'td' or one of {', '.join(OBJECTIVES)}.")
    if method == "exact" and iterative_options:
        raise ValueError(f"{sorted(iterative_options)} are options of method='iterative'; leave them out.")
    if objective == "td":
        if method == "iterative" or tau is not None or basis is not None:
            raise ValueError("objective 'td' is a linear system without tau, basis or method; leave them out.")
        return _solve_td(problem)
    entry = OBJECTIVES[objective]
    settings = entry.settings(tau, basis)
    if method == "iterative":
        return _solve_iteratively(problem, entry, settings, {"progress": progress, **iterative_options})
    return _solve_exactly(problem, entry, tau, basis, progress)


def least_value_errors(problem: Problem) -> dict[str, float]:
    """The least MSVE and MAVE that the features allow, as a yardstick for other objectives' minimisers."""
    return {name: solve(problem, name).value for name in ("msve", "mave")}


def _solve_td(problem: Problem) -> FixedPoint:
    weighted = problem.X.T * problem.d
    matrix, target = weighted @ problem.A, weighted @ problem.r
    left, singular, right = np.linalg.svd(matrix)
    # Relative to the sizes that may have cancelled, so that a singular 1 × 1 matrix is seen as such.
    kept = singular > 1e-13 * np.linalg.norm(np.abs(weighted) @ np.abs(problem.A))
    theta = right[kept].T @ ((left.T[kept] @ target) / singular[kept])
    residual = float(np.abs(target - matrix @ theta).max())
    if residual > 1e-8 * max(1.0, float(np.abs(target).max())):
        raise ValueError("the TD fixed point does not exist: XᵀD(I − P_γ)X is singular; solve 'mspbe' instead.")
    margin = float(singular[-1]) ** 2 if kept.all() else 0.0
    value = float(projected.mspbe(problem, theta))
    return FixedPoint("td", theta, value, residual, margin, 0, True)


def _design(problem: Problem, entry: Objective, basis: Any) -> tuple[Floats, Floats, Floats]:
    """``(M, y, weights)`` of the regression that minimises the objective; ``θ`` comes first in its coefficients."""
    if entry.name in ("msve", "mave"):
        return problem.X, problem.v_pi, problem.d
    if entry.name == "mstde":
        table = problem.transitions
        weight = problem.d[table.state] * table.probability * table.ratio
        return table.x - table.discount[:, None] * table.x_next, table.reward, weight
    extra = projected.complement(problem, basis if entry.takes_basis else "all")
    return np.hstack([problem.A, extra]), problem.r, problem.d


def _solve_exactly(
    problem: Problem, entry: Objective, tau: float | None, basis: Any, progress: Callable[[float], None] | None
) -> FixedPoint:
    M, y, d = _design(problem, entry, basis)
    D = problem.n_features
    if entry.loss == "absolute":
        fit = regression.absolute(M, y, d)
        margin = regression.absolute_margin(M, fit.residual, d, D, progress=progress)
    elif entry.loss == "huber":
        threshold = objectives.check_tau(tau)
        fit = regression.huber(M, y, d, threshold)
        margin = regression.smooth_margin(M, d, np.abs(fit.residual) < threshold, D)
    else:
        fit = regression.squared(M, y, d)
        margin = regression.smooth_margin(M, d, np.ones(len(y), dtype=bool), D)
    scale = max(1.0, float(np.abs(y).max()))
    return FixedPoint(
        entry.name, fit.coefficients[:D], fit.value, fit.certificate, margin, 0, fit.certificate <= 1e-8 * scale
    )


def _solve_iteratively(
    problem: Problem, entry: Objective, settings: dict[str, Any], options: dict[str, Any]
) -> FixedPoint:
    gradient = partial(entry.gradient, problem, **settings)
    result = adam_minimise(gradient, problem.theta0, **options)
    value = float(entry.value(problem, result.theta, **settings))
    size = float(np.abs(gradient(result.theta)).max())
    return FixedPoint(entry.name, result.theta, value, size, float("nan"), result.iterations, result.converged)
