"""The compiled inner loop of a sweep (numba).

The unit-stride axis is the grid of step sizes, so each arithmetic instruction serves several runs; the loops over
features have a constant length and unroll. A kernel is therefore built for a feature count and an algorithm, and the
terms that an algorithm does not have are not there. Indices are unsigned: numba's handling of negative ones would
keep the loop from vectorising.

The state's layout is described at :class:`~sb3_robust_be.linear.state.Runs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from sb3_robust_be.linear import stepsizes
from sb3_robust_be.linear.methods import Algorithm
from sb3_robust_be.linear.stepsizes import LANES

_jit: Callable[..., Any] = numba.njit(nogil=True, error_model="numpy", fastmath={"contract"})


@cache
def projection_kernel(projection: str, limit: str | None) -> Callable[[float, float, float], float]:
    """``(ĥ, δ, τ) -> z``: :func:`sb3_robust_be.updates.project` for numbers, restated because numba cannot call it."""
    huber, absolute, smooth, positive = (
        projection == name for name in ("huber", "absolute", "smooth_huber", "one_sided")
    )
    magnitude, same_sign, one_sided = (limit == name for name in ("magnitude", "same_sign", "one_sided"))

    @_jit
    def kernel(h: float, td_error: float, tau: float) -> float:
        z = h
        if huber:
            z = min(max(h, -tau), tau)
        if absolute:
            z = (1.0 if h > 0.0 else 0.0) - (1.0 if h < 0.0 else 0.0)
        if smooth:
            z = tau * math.tanh(h / tau)
        if positive:
            z = max(h, 0.0)
        if magnitude:
            z = min(max(z, -abs(td_error)), abs(td_error))
        if same_sign:
            z = min(max(z, min(td_error, 0.0)), max(td_error, 0.0))
        if one_sided:
            z = min(max(z, 0.0), max(td_error, 0.0))
        return z

    return kernel


class Shape(NamedTuple):
    """What a kernel is compiled for: all of an algorithm but its numbers."""

    n_features: int
    terms: tuple[bool, ...]
    projection: str
    limit: str | None
    clipped_target: bool
    optimizer: str

    @classmethod
    def of(cls, n_features: int, algorithm: Algorithm, optimizer: str) -> Shape:
        terms = tuple(w is not None for w in algorithm.weights(1.0, 1.0))
        clipped = algorithm.h_target == "clipped"
        return cls(n_features, terms, algorithm.projection, algorithm.limit, clipped, optimizer)


@cache
def direction_kernel(shape: Shape) -> Callable[..., tuple[float, float, float, float]]:
    """``(w, δ, ĥ, τ) ->`` coefficients of ``x`` and ``x'`` for ``θ``, then for ``θ_h``, but for its decay.

    :meth:`Algorithm.directions <sb3_robust_be.linear.methods.Algorithm.directions>` for numbers.
    """
    value_error, value_h, next_error, next_h, target, estimate, next_estimate, _ = shape.terms
    clipped = shape.clipped_target
    project = projection_kernel(shape.projection, shape.limit)

    @_jit
    def kernel(w: Any, td_error: float, h: float, tau: float) -> tuple[float, float, float, float]:
        a, b, c, e = 0.0, 0.0, 0.0, 0.0
        z = project(h, td_error, tau)
        y = min(max(td_error, -tau), tau) if clipped else td_error
        if value_error:
            a += w[0] * td_error
        if value_h:
            a += w[1] * z
        if next_error:
            b += w[2] * td_error
        if next_h:
            b += w[3] * z
        if target:
            c += w[4] * y
        if estimate:
            c -= w[5] * h
        if next_estimate:
            e += w[6] * h
        return a, b, c, e

    return kernel


@cache
def moment_kernel(n_features: int, adam: bool) -> Callable[..., float]:
    """Updates a weight's moments in ``row`` and returns its RMSprop or Adam direction."""
    square_decay = stepsizes.ADAM_BETA2 if adam else stepsizes.RMSPROP_DECAY
    mean_decay, epsilon = stepsizes.ADAM_BETA1, stepsizes.EPSILON
    to_square, to_mean = np.uint64(2 * n_features * LANES), np.uint64(4 * n_features * LANES)

    @_jit
    def kernel(row: Any, at: int, direction: float, square_scale: float, mean_scale: float) -> float:
        square = square_decay * row[at + to_square] + (1.0 - square_decay) * direction * direction
        row[at + to_square] = square
        if adam:
            direction = mean_decay * row[at + to_mean] + (1.0 - mean_decay) * direction
            row[at + to_mean] = direction
        return direction * mean_scale / (math.sqrt(square * square_scale) + epsilon)

    return kernel


@cache
def bias_kernel(adam: bool) -> Callable[[int], tuple[float, float]]:
    """Adam's corrections of the mean square and of the mean at update ``n``, from 1; ones for RMSprop."""
    square_decay, mean_decay = stepsizes.ADAM_BETA2, stepsizes.ADAM_BETA1

    @_jit
    def kernel(n: int) -> tuple[float, float]:
        if adam:
            return 1.0 / (1.0 - square_decay**n), 1.0 / (1.0 - mean_decay**n)
        return 1.0, 1.0

    return kernel


@cache
def step_kernel(shape: Shape, moves_next: bool, has_decay: bool) -> Callable[..., None]:
    """Adds to the weight at ``at`` of ``row`` the step along ``a x + b x' − decay · weight``."""
    plain = shape.optimizer == "sgd"
    moments = moment_kernel(shape.n_features, shape.optimizer == "adam")

    @_jit
    def kernel(
        row: Any, at: int, a: float, x: float, b: float, x_next: float, decay: float, rate: float, scales: Any
    ) -> None:
        old = row[at]
        if plain:
            # The caller has multiplied a and b by the rate, once for all features.
            new = old + a * x
            if moves_next:
                new += b * x_next
            if has_decay:
                new -= rate * decay * old
            row[at] = new
        else:
            direction = a * x
            if moves_next:
                direction += b * x_next
            if has_decay:
                direction -= decay * old
            row[at] = old + rate * moments(row, at, direction, scales[0], scales[1])

    return kernel


@cache
def sweep_kernel(shape: Shape) -> Callable[..., None]:
    """The loop over seeds and time.

    The kernel's arguments: the state ``(seeds, rows * LANES)``, changed in place; the step sizes ``α`` and ``α_h`` per
    lane; the transitions taken ``(seeds, steps)``; per transition ``x``, ``x'``, ``γx' − x`` ``(T, D)``, the reward
    and the columns of :class:`~sb3_robust_be.linear.methods.Weights` ``(T, 8)``; the threshold; the number of
    lanes in use; the first step and the one after the last. (Not a slice of the steps: numba would compile once for
    contiguous arrays and once for others.)
    """
    _, _, next_error, next_h, has_h, _, next_estimate, has_decay = shape.terms
    plain = shape.optimizer == "sgd"
    D, lanes = np.uint64(shape.n_features), np.uint64(LANES)
    directions, bias_scales = direction_kernel(shape), bias_kernel(shape.optimizer == "adam")
    step, h_step = step_kernel(shape, next_error or next_h, False), step_kernel(shape, next_estimate, has_decay)

    @_jit
    def kernel(
        state: Any, alpha: Any, alpha_h: Any, taken: Any, features: Any, rewards: Any, weights: Any, tau: float,
        width: int, begin: int, end: int,
    ) -> None:  # fmt: skip
        x_of, next_of, slope_of = features
        for i in range(taken.shape[0]):
            row = state[i]
            for t in range(begin, end):
                k = taken[i, t]
                x, x_next, slope, reward, w = x_of[k], next_of[k], slope_of[k], rewards[k], weights[k]
                scales = bias_scales(t + 1)
                for g in range(np.uint64(width)):
                    td_error, h = reward, 0.0
                    for j in range(D):
                        td_error += slope[j] * row[j * lanes + g]
                        if has_h:
                            h += x[j] * row[(D + j) * lanes + g]
                    a, b, c, e = directions(w, td_error, h, tau)
                    if plain:
                        a, b, c, e = alpha[g] * a, alpha[g] * b, alpha_h[g] * c, alpha_h[g] * e
                    for j in range(D):
                        step(row, j * lanes + g, a, x[j], b, x_next[j], 0.0, alpha[g], scales)
                        if has_h:
                            h_step(row, (D + j) * lanes + g, c, x[j], e, x_next[j], w[7], alpha_h[g], scales)

    return kernel
