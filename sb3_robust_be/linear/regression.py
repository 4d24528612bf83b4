"""Exact weighted regression under the squared, Huber and absolute losses: ``min_c Σ d loss(y − M c)``.

Every fixed point and every projected objective of this package is one of these. Each result carries a certificate
of its optimality and the margin by which it is unique.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    """Least absolute deviations as a linear program (HiGHS), then polished on the rows it fits exactly."""
    from scipy.optimize import linprog

    n, k = M.shape
    # Rows times √d halve the spread of scales between rows and costs; the solver's tolerances are absolute.
    root = np.sqrt(d)
    rows, targets = root[:, None] * M, root * y
    weight, size = float(root.max()), float(np.abs(targets).max()) or 1.0
    result = linprog(
        np.r_[np.zeros(k), root / weight, root / weight],
        A_eq=np.hstack([rows, np.eye(n), -np.eye(n)]),
        b_eq=targets / size,
        bounds=[(None, None)] * k + [(0.0, None)] * (2 * n),
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if not result.success:
        raise RuntimeError(f"the linear program of an absolute regression failed: {result.message}")
    c = _polish(rows, targets, root, size * result.x[:k], size)
    residual = y - M @ c
    value = float(d @ np.abs(residual))
    multipliers = weight * result.eqlin.marginals
    dual = np.divide(multipliers, root, out=np.zeros(n), where=root > 0)
    infeasible = max(float(np.abs(rows.T @ multipliers).max(initial=0.0)), float((np.abs(multipliers) - root).max()))
    certificate = abs(value - float(multipliers @ targets)) + max(infeasible, 0.0)
    return Fit(c, residual, value, certificate, dual.clip(-1.0, 1.0))


def _polish(rows: Floats, targets: Floats, root: Floats, c: Floats, size: float) -> Floats:
    """Solve for the coefficients from the rows with zero residual, to full precision, if that does not cost value."""
    residual = targets - rows @ c
    zero = np.abs(residual) <= 1e-8 * size
    if not zero.any():
        return c
    refined = c + np.linalg.lstsq(rows[zero], residual[zero], rcond=None)[0]
    worse = root @ np.abs(targets - rows @ refined) > root @ np.abs(residual) + 1e-15 * size
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


def absolute_margin(M: Floats, residual: Floats, d: Floats, leading: int, zero: float = 1e-9) -> float:
    """Least one-sided slope of ``Σ d |y − M c|`` away from a minimum, over directions ``p`` with ``max |p_j| = 1``.

    ``p`` is measured on the first ``leading`` coefficients, the others following them. Zero: not unique.
    """
    from scipy.optimize import linprog

    k = M.shape[1]
    # As in `absolute`, rows times √d are better scaled; a kink is a row whose residual is zero in rounding.
    root = np.sqrt(d)
    rows, size = root[:, None] * M, root * np.abs(residual)
    kinked = size <= zero * max(1.0, float(size.max()))
    kinks, m = rows[kinked], int(kinked.sum())
    slope = -(root * np.sign(residual))[~kinked] @ rows[~kinked]
    cost = np.r_[slope, root[kinked]]
    limits = np.block([[kinks, -np.eye(m)], [-kinks, -np.eye(m)]])
    least = np.inf
    for j in range(leading):
        for side in (-1.0, 1.0):
            bounds = [(-1.0, 1.0)] * leading + [(None, None)] * (k - leading) + [(0.0, None)] * m
            bounds[j] = (side, side)
            result = linprog(cost, A_ub=limits, b_ub=np.zeros(2 * m), bounds=bounds, method="highs")
            # Status 3, unbounded, can only be rounding at a minimum: treat it as no margin.
            least = min(least, float(result.fun) if result.status == 0 else 0.0)
    return max(least, 0.0)
