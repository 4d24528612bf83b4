"""The paper's iterative search for fixed points (appendix "Finding Fixed-points")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Descent:
    """Where a descent ended.

    :param theta: The averaged iterate, ``(D,)``.
    :param iterations: Steps taken.
    :param converged: Whether the gradient norm fell below the tolerance.
    """

    theta: Floats
    iterations: int
    converged: bool


def adam_minimise(
    gradient: Callable[[Floats], Floats],
    theta0: ArrayLike,
    *,
    beta1: float = 0.99,
    beta2: float = 0.999,
    average: float = 0.9,
    tolerance: float = 1e-7,
    max_iterations: int = 200_000,
    epsilon: float = 1e-8,
    progress: Callable[[float], None] | None = None,
) -> Descent:
    """Adam on exact gradients, step size ``1/√t``, stopped by the gradient norm at an average of the iterates.

    :param gradient: Exact (sub)gradient of the objective.
    :param theta0: Start, ``(D,)``.
    :param average: Decay of the exponential moving average of iterates, which is the result.
    :param tolerance: Euclidean gradient norm at which to stop.
    :param max_iterations: Not in the paper: it never stops for the absolute loss, whose subgradients stay large.
    :param progress: Called with the fraction of ``max_iterations`` now and then.
    """
    theta = np.array(theta0, dtype=np.float64)
    averaged = theta.copy()
    first, second = np.zeros_like(theta), np.zeros_like(theta)
    for t in range(1, max_iterations + 1):
        slope = gradient(theta)
        first = beta1 * first + (1.0 - beta1) * slope
        second = beta2 * second + (1.0 - beta2) * slope * slope
        corrected = first / (1.0 - beta1**t)
        theta = theta - corrected / (np.sqrt(second / (1.0 - beta2**t)) + epsilon) / np.sqrt(t)
        averaged = average * averaged + (1.0 - average) * theta
        if np.linalg.norm(gradient(averaged)) < tolerance:
            return Descent(averaged, t, True)
        if progress is not None and t % 100 == 0:
            progress(t / max_iterations)
    return Descent(averaged, max_iterations, False)
