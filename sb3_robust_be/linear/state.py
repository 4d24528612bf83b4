"""The weights of many runs at once, and the numpy form of the loop that advances them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be.linear.methods import Algorithm, Weights
from sb3_robust_be.linear.problems import Problem
from sb3_robust_be.linear.stepsizes import LANES, MOMENTS, increment

Floats = NDArray[np.float64]


class Runs:
    """One algorithm on a block of the grid and several trajectories.

    The state is laid out for the compiled loop, whose unit-stride axis is the grid: per seed, rows of ``LANES``
    numbers, namely ``D`` rows of ``θ``, ``D`` of ``θ_h``, then the optimizer's moments, ``2 D`` rows for each.

    :param alpha: Step sizes ``(cells,)``, at most ``LANES``.
    :param alpha_h: Step sizes of ``θ_h``, ``(cells,)``.
    :param taken: Indices into the problem's transitions ``(seeds, steps)``.
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        optimizer: str,
        alpha: Floats,
        alpha_h: Floats,
        taken: NDArray[np.int32],
        compiled: bool,
    ) -> None:
        self.algorithm, self.optimizer, self.taken, self.done = algorithm, optimizer, taken, 0
        self.cells, self.D = len(alpha), problem.n_features
        rows = 2 * self.D * (1 + MOMENTS[optimizer])
        self.state = np.zeros((len(taken), rows, LANES))
        self.state[:, : self.D] = problem.theta0[:, None]
        self.alpha, self.alpha_h = np.zeros(LANES), np.zeros(LANES)
        self.alpha[: self.cells], self.alpha_h[: self.cells] = alpha, alpha_h
        table = problem.transitions
        self.x, self.x_next, self.reward = table.x, table.x_next, table.reward
        self.slope = table.discount[:, None] * table.x_next - table.x
        self.weights = algorithm.weights(table.ratio, table.discount)
        self.advance: Callable[[int], None] = self._compiled() if compiled else self._advance_numpy

    @property
    def theta(self) -> Floats:
        """``(seeds, D, cells)``, a view."""
        return self.state[:, : self.D, : self.cells]

    @property
    def theta_h(self) -> Floats:
        """``(seeds, D, cells)``, a view."""
        return self.state[:, self.D : 2 * self.D, : self.cells]

    def stop(self, gone: NDArray[np.bool_]) -> None:
        """Give up the runs of the mask ``(seeds, cells)``: their weights become NaN and stay so."""
        self.state[:, :, : self.cells].transpose(0, 2, 1)[gone] = np.nan

    def _compiled(self) -> Callable[[int], None]:
        from sb3_robust_be.linear.kernels import Shape, sweep_kernel

        kernel = sweep_kernel(Shape.of(self.D, self.algorithm, self.optimizer))
        zeros = np.zeros_like(self.reward)
        columns = np.stack([zeros if w is None else w for w in self.weights], axis=1)
        flat = self.state.reshape(len(self.taken), -1)
        tau = 1.0 if self.algorithm.threshold is None else self.algorithm.threshold
        taken = np.ascontiguousarray(self.taken)
        width = -(-self.cells // 4) * 4  # whole vectors; the lanes beyond the cells have step size zero

        def advance(steps: int) -> None:
            features, end = (self.x, self.x_next, self.slope), self.done + steps
            kernel(flat, self.alpha, self.alpha_h, taken, features, self.reward, columns, tau, width, self.done, end)
            self.done = end

        return advance

    def _advance_numpy(self, steps: int) -> None:
        theta, theta_h = self.theta, self.theta_h
        alpha, alpha_h = self.alpha[: self.cells], self.alpha_h[: self.cells]
        moments = self.state[:, 2 * self.D :, : self.cells].reshape(len(self.taken), -1, 2, self.D, self.cells)
        both = [[moments[:, m, part] for m in range(moments.shape[1])] for part in (0, 1)]
        with np.errstate(over="ignore", invalid="ignore"):
            for k in self.taken[:, self.done : self.done + steps].T:
                self.done += 1
                value, h = self._directions(k, theta, theta_h)
                theta += increment(self.optimizer, value, alpha, both[0], self.done)
                if h is not None:
                    theta_h += increment(self.optimizer, h, alpha_h, both[1], self.done)

    def _directions(self, k: NDArray[np.int32], theta: Floats, theta_h: Floats) -> tuple[Floats, Floats | None]:
        """Update directions of every seed's transition ``k``, each ``(seeds, D, cells)``."""
        x, x_next = self.x[k][:, :, None], self.x_next[k][:, :, None]
        td_error = self.reward[k][:, None] + (self.slope[k][:, None, :] @ theta)[:, 0]
        estimate = (self.x[k][:, None, :] @ theta_h)[:, 0]
        weights = Weights(*(None if w is None else w[k][:, None] for w in self.weights))
        d = self.algorithm.directions(weights, td_error, estimate)
        return _spread(d.value, x, d.next_value, x_next), self._h_direction(d, x, x_next, theta_h)

    @staticmethod
    def _h_direction(d: Any, x: Floats, x_next: Floats, theta_h: Floats) -> Floats | None:
        if d.h is None:
            return None
        h = _spread(d.h, x, d.next_h, x_next)
        return h if d.decay is None else h - d.decay[:, None, :] * theta_h


def _spread(on_x: Floats, x: Floats, on_next: Floats | None, x_next: Floats) -> Floats:
    value = on_x[:, None, :] * x
    return value if on_next is None else value + on_next[:, None, :] * x_next
