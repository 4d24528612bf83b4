"""Online linear prediction: one transition at a time, and the mean of its updates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_robust_be.linear.methods import Algorithm, algorithm
from sb3_robust_be.linear.problems import Problem
from sb3_robust_be.linear.stepsizes import MOMENTS, check_optimizer, increment

Floats = NDArray[np.float64]

#: Weights beyond this are reported as diverged, long before they overflow.
DIVERGENCE_BOUND = 1e12


class LinearTD:
    """Learns ``v(s) = θᵀx(s)`` from a stream of transitions.

    :param n_features: ``D``.
    :param algorithm: A name such as ``"tdc-huber"``, ``"tdrc"`` or ``"qlc"``, or an
        :class:`~sb3_robust_be.linear.methods.Algorithm`.
    :param alpha: Step size of ``θ``.
    :param eta: Ratio ``α_h/α`` of the step sizes.
    :param optimizer: ``"sgd"``, ``"rmsprop"`` or ``"adam"``.
    :param theta0: Initial weights; zeros if ``None``.

    After :meth:`fit_one`, ``theta_`` and ``theta_h_`` hold the weights, ``updates_`` counts, and ``diverged_at_`` is
    the number of the update after which a weight was beyond ``1e12`` or not finite, else ``None``. A diverged learner
    no longer changes.
    """

    def __init__(
        self,
        n_features: int,
        algorithm: str | Algorithm = "tdc",
        *,
        alpha: float = 0.01,
        eta: float = 1.0,
        optimizer: str = "sgd",
        theta0: ArrayLike | None = None,
    ) -> None:
        if not alpha > 0.0 or not eta >= 0.0:
            raise ValueError(f"alpha is {alpha}, eta {eta}; give a positive step size and a ratio of at least 0.")
        self.algorithm = _algorithm(algorithm)
        self.alpha, self.eta, self.optimizer = alpha, eta, check_optimizer(optimizer)
        self.theta_ = np.zeros(n_features) if theta0 is None else np.array(theta0, dtype=np.float64)
        if self.theta_.shape != (n_features,):
            raise ValueError(f"theta0 has shape {self.theta_.shape}; give ({n_features},).")
        self.theta_h_ = np.zeros(n_features)
        self.updates_ = 0
        self.diverged_at_: int | None = None
        self._moments = [np.zeros(n_features) for _ in range(MOMENTS[optimizer])]
        self._h_moments = [np.zeros(n_features) for _ in range(MOMENTS[optimizer])]

    def predict(self, X: ArrayLike) -> Floats:
        """Values of features ``(..., D)``."""
        return np.asarray(X, dtype=np.float64) @ self.theta_

    def fit_one(self, x: ArrayLike, reward: float, x_next: ArrayLike, discount: float, ratio: float = 1.0) -> LinearTD:
        """Learn from one transition.

        :param x: Features of the state ``(D,)``.
        :param reward: ``r``.
        :param x_next: Features of the next state ``(D,)``; anything of that shape on termination.
        :param discount: ``γ``, or 0 on termination.
        :param ratio: Importance ratio ``ρ = π(a|s)/b(a|s)``.
        """
        if self.diverged_at_ is not None:
            return self
        x, x_next = np.asarray(x, dtype=np.float64), np.asarray(x_next, dtype=np.float64)
        if x.shape != self.theta_.shape or x_next.shape != self.theta_.shape:
            raise ValueError(f"x has shape {x.shape}, x_next {x_next.shape}; give {self.theta_.shape} for both.")
        self.updates_ += 1
        td_error = reward + discount * (x_next @ self.theta_) - x @ self.theta_
        value, h = _update(self.algorithm, td_error, self.theta_h_, x, x_next, discount, ratio)
        step = increment(self.optimizer, value, self.alpha, self._moments, self.updates_)
        h_step = increment(self.optimizer, h, self.alpha * self.eta, self._h_moments, self.updates_)
        self.theta_ = self.theta_ + step
        self.theta_h_ = self.theta_h_ + h_step
        if not max(np.abs(self.theta_).max(), np.abs(self.theta_h_).max()) <= DIVERGENCE_BOUND:
            self.diverged_at_ = self.updates_
        return self


def _algorithm(given: str | Algorithm) -> Algorithm:
    return given if isinstance(given, Algorithm) else algorithm(given)


def _update(
    algorithm: Algorithm,
    td_error: Any,
    theta_h: Floats,
    x: Floats,
    x_next: Floats,
    discount: float,
    ratio: float,
) -> tuple[Floats, Floats]:
    """Update directions of both weight vectors for one transition."""
    h = theta_h @ x
    d = algorithm.directions(algorithm.weights(ratio, discount), td_error, h)
    value = d.value * x
    if d.next_value is not None:
        value = value + d.next_value * x_next
    h_update = np.zeros_like(theta_h)
    if d.h is not None:
        h_update = d.h * x
    if d.next_h is not None:
        h_update = h_update + d.next_h * x_next
    if d.decay is not None:
        h_update = h_update - d.decay * theta_h
    return value, h_update


def expected_update(
    problem: Problem, algorithm: str | Algorithm, theta: ArrayLike, theta_h: ArrayLike
) -> tuple[Floats, Floats]:
    """Mean update directions of ``θ`` and ``θ_h`` at fixed weights, over states from ``d`` and the behaviour policy.

    By enumeration of every transition.

    :param theta: ``(D,)``.
    :param theta_h: ``(D,)``.
    :return: Both of shape ``(D,)``, before any step size.
    :raises ValueError: Weights of another shape, or an unknown algorithm.
    """
    probability, value, h = _updates(problem, algorithm, theta, theta_h)
    return probability @ value, probability @ h


def update_variance(
    problem: Problem, algorithm: str | Algorithm, theta: ArrayLike, theta_h: ArrayLike
) -> tuple[float, float]:
    """How much the updates of single transitions differ from their mean at fixed weights: ``E‖u − E u‖²``.

    The trace of the covariance of the update directions ``u``, over states from ``d`` and the behaviour policy, by
    enumeration of every transition.

    :param theta: ``(D,)``.
    :param theta_h: ``(D,)``.
    :return: Of ``θ``'s updates and of ``θ_h``'s, before any step size.
    :raises ValueError: Weights of another shape, or an unknown algorithm.
    """
    probability, *directions = _updates(problem, algorithm, theta, theta_h)
    of_value, of_h = (float(probability @ ((u - probability @ u) ** 2).sum(axis=1)) for u in directions)
    return of_value, of_h


def _updates(
    problem: Problem, algorithm: str | Algorithm, theta: ArrayLike, theta_h: ArrayLike
) -> tuple[Floats, Floats, Floats]:
    """Of every transition its probability, ``(T,)``, and its update directions of both weights, ``(T, D)`` each."""
    chosen, table = _algorithm(algorithm), problem.transitions
    theta, theta_h = np.asarray(theta, dtype=np.float64), np.asarray(theta_h, dtype=np.float64)
    for name, weights in (("theta", theta), ("theta_h", theta_h)):
        if weights.shape != (problem.n_features,):
            raise ValueError(f"{name} has shape {weights.shape}; give ({problem.n_features},).")
    found = []
    for k in range(len(table.state)):
        x, x_next, discount = table.x[k], table.x_next[k], table.discount[k]
        td_error = table.reward[k] + discount * (x_next @ theta) - x @ theta
        found.append(_update(chosen, td_error, theta_h, x, x_next, discount, table.ratio[k]))
    values, hs = zip(*found, strict=True)
    return problem.d[table.state] * table.probability, np.array(values), np.array(hs)
