"""Exact weighted regression under the squared, Huber and absolute losses: ``min_c Σ d loss(y − M c)``.

Every fixed point and every projected objective of this package is one of these. Each result carries a certificate
of its optimality and the margin by which it is unique.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Fit:
    """A minimiser of ``Σ d loss(y − M c)``.

    :param coefficients: ``c``, ``(k,)``; of least norm among minimisers for the squared loss.
    :param residual: ``y − M c``, ``(N,)``.
    :param value: The minimum.
    :param certificate: Zero at an exact minimum, in rounding: the largest gradient entry (squared, Huber), or the
        duality gap plus the largest violation of dual feasibility (absolute).
    :param dual: The maximising ``h`` of the dual form, ``(N,)``: half the loss's derivative at the residual, or the
        signs chosen by the linear program for the absolute loss.
    """

    coefficients: Floats
    residual: Floats
    value: float
    certificate: float
    dual: Floats


def squared(M: Floats, y: Floats, d: Floats) -> Fit:
    """Weighted least squares."""
    root = np.sqrt(d)
    c = np.asarray(np.linalg.lstsq(root[:, None] * M, root * y, rcond=None)[0], dtype=np.float64)
    residual = y - M @ c
    gradient = 2.0 * M.T @ (d * residual)
    return Fit(c, residual, float(d @ residual**2), float(np.abs(gradient).max(initial=0.0)), residual)


def huber(M: Floats, y: Floats, d: Floats, tau: float) -> Fit:
    """Huber regression by semismooth Newton steps with exact line search, along a falling threshold.

    For a threshold above every residual this is least squares; halving it from there keeps each start close to the
    next minimiser.
    """
    c = squared(M, y, d).coefficients
    level = float(np.abs(y - M @ c).max(initial=0.0))
    while level > tau:
        level = max(tau, 0.5 * level)
        c = _newton(M, y, d, c, level)
    residual = y - M @ c
    dual = residual.clip(-tau, tau)
    gradient = 2.0 * M.T @ (d * dual)
    value = float(d @ (dual * (2.0 * residual - dual)))
    return Fit(c, residual, value, float(np.abs(gradient).max(initial=0.0)), dual)


def _newton(M: Floats, y: Floats, d: Floats, c: Floats, tau: float, iterations: int = 500) -> Floats:
    """Minimise the Huber loss from ``c``. A failure to converge shows in the caller's certificate."""
    scale = np.abs(M).T @ d * tau + 1e-300
    best, best_gradient = c, np.inf
    for _ in range(iterations):
        residual = y - M @ c
        gradient = M.T @ (d * residual.clip(-tau, tau))
        size = float((np.abs(gradient) / scale).max(initial=0.0))
        if size >= best_gradient and best_gradient < 1e-12:
            break  # what remains is rounding
        if size < best_gradient:
            best, best_gradient = c, size
        if size <= 1e-15:
            break
        inside = np.abs(residual) <= tau
        curvature = M.T @ ((d * inside)[:, None] * M)
        # The least-norm Newton step ignores directions without curvature, along which only the gradient can help.
        values, vectors = np.linalg.eigh(curvature)
        floor = 1e-12 * max(float(np.trace(M.T @ (d[:, None] * M))), 1e-300)
        step = vectors @ ((vectors.T @ gradient) / np.maximum(values, floor))
        length = _line_search(M @ step, residual, d, tau)
        if length <= 0.0 or np.array_equal(c + length * step, c):
            break
        c = c + length * step
    return best


def _line_search(q: Floats, residual: Floats, d: Floats, tau: float) -> float:
    """The ``s ≥ 0`` that minimises ``Σ d p_τ(residual − s q)``, exactly: a root of a piecewise linear slope."""
    moving = q != 0.0
    q, residual, d = q[moving], residual[moving], d[moving]
    if not q.size:
        return 0.0
    breaks = np.concatenate([(residual - tau) / q, (residual + tau) / q])
    breaks = np.unique(np.r_[0.0, breaks[(breaks > 0.0) & np.isfinite(breaks)]])
    slopes = -(d * q) @ (residual[:, None] - breaks * q[:, None]).clip(-tau, tau)
    after = int(np.searchsorted(slopes > 0.0, True))  # slopes never fall along s
    if after == 0:
        return 0.0
    low, slope = breaks[after - 1], slopes[after - 1]
    if after < len(breaks):
        return float(low - slope * (breaks[after] - low) / (slopes[after] - slope))
    return float(low)


def absolute(M: Floats, y: Floats, d: Floats) -> Fit:
    """Least absolute deviations as a linear program, then polished on the rows it fits exactly."""
    from scipy import sparse

    n, k = M.shape
    # Rows times √d halve the spread of scales between rows and costs; the solver's tolerances are absolute.
    root = np.sqrt(d)
    rows, targets = root[:, None] * M, root * y
    weight, size = float(root.max()), float(np.abs(targets).max()) or 1.0
    bounds = np.full((k + 2 * n, 2), np.inf)
    bounds[:k, 0], bounds[k:, 0] = -np.inf, 0.0
    result = _linear_program(
        np.r_[np.zeros(k), root / weight, root / weight],
        sparse.hstack([sparse.csc_array(rows), sparse.eye_array(n), -sparse.eye_array(n)], format="csc"),
        targets / size,
        bounds,
    )
    if not result.success:
        raise RuntimeError(f"the linear program of an absolute regression failed: {result.message}")
    above, below = result.x[k : k + n], result.x[k + n :]
    c = _polish(rows, targets, root, size * result.x[:k], np.maximum(above, below) <= 1e-8)
    residual = y - M @ c
    value = float(d @ np.abs(residual))
    multipliers = weight * result.eqlin.marginals
    dual = np.divide(multipliers, root, out=np.zeros(n), where=root > 0)
    infeasible = max(float(np.abs(rows.T @ multipliers).max(initial=0.0)), float((np.abs(multipliers) - root).max()))
    certificate = abs(value - float(multipliers @ targets)) + max(infeasible, 0.0)
    return Fit(c, residual, value, certificate, dual.clip(-1.0, 1.0))


def _linear_program(cost: Floats, matrix: Any, target: Floats, bounds: Floats) -> Any:
    """``min cost·x`` over ``matrix x = target`` within ``bounds`` (rows of low and high), by HiGHS's dual simplex.

    :return: scipy's ``OptimizeResult``.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csc_array

    matrix = csc_array(matrix)
    # Presolving would eliminate the free coefficients, which fills a dense matrix: minutes at a thousand columns.
    # Without it the simplex gives up (status 4) on a few programs whose rows differ by many orders of magnitude.
    for presolve in (False, True):
        options = {
            "primal_feasibility_tolerance": 1e-10,
            "dual_feasibility_tolerance": 1e-10,
            "presolve": presolve,
        }
        result = linprog(cost, A_eq=matrix, b_eq=target, bounds=bounds, method="highs-ds", options=options)
        if result.status != 4:
            break
    return result


def _polish(rows: Floats, targets: Floats, root: Floats, c: Floats, zero: NDArray[np.bool_]) -> Floats:
    """Solve for the coefficients from the rows with ``zero`` residual, to full precision, if that does not cost value.

    The rows are named by the program's own residuals: those of ``c`` are only as small as its tolerance.
    """
    if not zero.any():
        return c
    residual = targets - rows @ c
    refined = c + np.linalg.lstsq(rows[zero], residual[zero], rcond=None)[0]
    rounding = 1e-15 * float(np.abs(targets).max())
    worse = root @ np.abs(targets - rows @ refined) > root @ np.abs(residual) + rounding
    return c if worse else refined


def smooth_margin(M: Floats, d: Floats, active: NDArray[np.bool_], leading: int) -> float:
    """Least curvature of the minimum in the first ``leading`` coefficients, the others following them.

    Half the smallest eigenvalue of the Hessian ``2 Mᵀ D M`` over the ``active`` rows, after elimination of the other
    columns. Zero: other minimisers are near.
    """
    rows = np.sqrt(d[active])[:, None] * M[active]
    lead, rest = rows[:, :leading], rows[:, leading:]
    if rest.shape[1] and rest.shape[0]:
        lead = lead - rest @ np.linalg.lstsq(rest, lead, rcond=None)[0]
    if lead.shape[0] < leading:
        return 0.0
    smallest = float(np.linalg.svd(lead, compute_uv=False)[-1])
    largest = float(np.linalg.svd(rows, compute_uv=False)[0])
    return 0.0 if smallest <= 1e-10 * largest else smallest**2


def absolute_margin(
    M: Floats,
    residual: Floats,
    d: Floats,
    leading: int,
    zero: float = 1e-9,
    progress: Callable[[float], None] | None = None,
) -> float:
    """Least one-sided slope of ``Σ d |y − M c|`` away from a minimum, over directions ``p`` with ``max |p_j| = 1``.

    ``p`` is measured on the first ``leading`` coefficients, the others following them. Zero: not unique.

    Along ``p`` the slope is ``g·p + Σ w |k·p|``: ``g`` from the rows with a residual, ``k`` and ``w`` directions and
    weights of the rows without one, the kinks.
    """
    from scipy.linalg import pinv

    # In rounding, a kink is a row whose residual is zero, and a row of hardly any weight is none.
    root, lengths = np.sqrt(d), np.linalg.norm(M, axis=1)
    size, weights = root * np.abs(residual), d * lengths
    kinked = size <= zero * max(1.0, float(size.max()))
    slope = -(d * np.sign(residual))[~kinked] @ M[~kinked]
    kinked &= weights > 1e-12 * weights.max()
    kinks, weights = M[kinked] / lengths[kinked, None], weights[kinked]
    if smooth_margin(kinks, np.ones(len(kinks)), np.ones(len(kinks), dtype=bool), leading) == 0.0:
        return 0.0  # a direction without kinks, along which the minimum can only be flat
    inverse, rank = pinv(kinks, rtol=1e-10, return_rank=True)
    if rank == len(kinks):
        # Independent kinks: the slope is least along one that moves a single k·p away from 0.
        slack = weights - np.abs(slope @ inverse)
        slack[slack <= 1e-10 * weights] = 0.0
        reach = np.abs(inverse[:leading]).max(axis=0)
        return float(np.divide(slack, reach, out=np.full(rank, np.inf), where=reach > 1e-10 * reach.max()).min())
    return _degenerate_margin(kinks, weights, slope, leading, progress)


def _degenerate_margin(
    kinks: Floats, weights: Floats, slope: Floats, leading: int, progress: Callable[[float], None] | None
) -> float:
    """:func:`absolute_margin` at more kinks than coefficients, by two linear programs for each leading coefficient.

    The slopes are those of the support function of the subgradients ``{g + Σ v k, |v| ≤ w}``, and so at least ``t``
    where these contain ``t`` times every unit vector, of either sign.
    """
    scale = float(weights.max())
    bounds = np.r_[np.c_[-weights, weights] / scale, [[0.0, np.inf]]]
    cost = np.r_[np.zeros(len(kinks)), -1.0]
    least = np.inf
    for j in range(leading):
        for side in (-1.0, 1.0):
            unit = np.zeros((kinks.shape[1], 1))
            unit[j] = -side
            result = _linear_program(cost, np.hstack([kinks.T, unit]), -slope / scale, bounds)
            # Infeasible can only be rounding at a minimum: treat it as no margin.
            least = min(least, -scale * float(result.fun) if result.status == 0 else 0.0)
        if progress is not None:
            progress((j + 1) / leading)
    return least if least > 1e-9 * scale else 0.0  # the programs' tolerances
