"""Objectives for linear values, exactly, with their (sub)gradients (paper, sections 2-4.2).

An objective takes ``theta`` of shape ``(..., D)`` and returns shape ``(...)``; a gradient has the shape of ``theta``.
The losses are those of :mod:`sb3_robust_be.updates`, in the paper's scaling: ``x²``, ``p_τ(x)`` and ``|x|``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_robust_be.linear.problems import Problem
from sb3_robust_be.updates import ROBUST_LOSSES

Floats = NDArray[np.float64]
Value = Any  # a float for one theta, an array for a batch of them


def check_tau(tau: float | None) -> float:
    """The Huber threshold, or a clear error."""
    if tau is None or not tau > 0.0:
        raise ValueError(f"tau is {tau}; give a positive Huber threshold in units of reward.")
    return float(tau)


def _mean_loss(problem: Problem, error: Floats, loss: str, tau: float | None) -> Value:
    return ROBUST_LOSSES[loss].loss(error, tau) @ problem.d


def _mean_loss_gradient(problem: Problem, error: Floats, design: Floats, loss: str, tau: float | None) -> Floats:
    """Of ``Σ d loss(y − M θ)``: ``−Mᵀ D loss'(error)``."""
    return -(problem.d * ROBUST_LOSSES[loss].derivative(error, tau)) @ design


def msve(problem: Problem, theta: ArrayLike) -> Value:
    """Mean squared value error ``Σ d (v_π − Xθ)²`` (section 2)."""
    return _mean_loss(problem, problem.value_error(theta), "squared", None)


def mave(problem: Problem, theta: ArrayLike) -> Value:
    """Mean absolute value error ``Σ d |v_π − Xθ|`` (section 2)."""
    return _mean_loss(problem, problem.value_error(theta), "absolute", None)


def msbe(problem: Problem, theta: ArrayLike) -> Value:
    """Mean squared Bellman error ``Σ d δ²`` (section 2)."""
    return _mean_loss(problem, problem.bellman_error(theta), "squared", None)


def mabe(problem: Problem, theta: ArrayLike) -> Value:
    """Mean absolute Bellman error ``Σ d |δ|`` (section 3.1)."""
    return _mean_loss(problem, problem.bellman_error(theta), "absolute", None)


def mhbe(problem: Problem, theta: ArrayLike, tau: float) -> Value:
    """Mean Huber Bellman error ``Σ d p_τ(δ)``, ``p_τ(δ) = δ²`` inside ``τ``, ``2τ|δ| − τ²`` outside (section 3.1)."""
    return _mean_loss(problem, problem.bellman_error(theta), "huber", check_tau(tau))


def msve_gradient(problem: Problem, theta: ArrayLike) -> Floats:
    return _mean_loss_gradient(problem, problem.value_error(theta), problem.X, "squared", None)


def mave_gradient(problem: Problem, theta: ArrayLike) -> Floats:
    """A subgradient: 0 is taken for the slope of ``|x|`` at 0."""
    return _mean_loss_gradient(problem, problem.value_error(theta), problem.X, "absolute", None)


def msbe_gradient(problem: Problem, theta: ArrayLike) -> Floats:
    """``−2 Aᵀ D δ``. Paper: the factor 2 is missing (section 4.1) / Ours: with it."""
    return _mean_loss_gradient(problem, problem.bellman_error(theta), problem.A, "squared", None)


def mabe_gradient(problem: Problem, theta: ArrayLike) -> Floats:
    """A subgradient: 0 is taken for the slope of ``|x|`` at 0."""
    return _mean_loss_gradient(problem, problem.bellman_error(theta), problem.A, "absolute", None)


def mhbe_gradient(problem: Problem, theta: ArrayLike, tau: float) -> Floats:
    """``−2 Aᵀ D clip(δ, −τ, τ)``."""
    return _mean_loss_gradient(problem, problem.bellman_error(theta), problem.A, "huber", check_tau(tau))


def _td_errors(problem: Problem, theta: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """TD error, probability under ``d`` and the target policy, and ``γx' − x``, of every transition."""
    table = problem.transitions
    slope = table.discount[:, None] * table.x_next - table.x
    td_error = table.reward + np.asarray(theta, dtype=np.float64) @ slope.T
    return td_error, problem.d[table.state] * table.probability * table.ratio, slope


def mstde(problem: Problem, theta: ArrayLike) -> Value:
    """Mean squared TD error ``Σ d E_π[(R + γ v(S') − v(S))²]``: what reusing one sample minimises (section 4.1)."""
    td_error, weight, _ = _td_errors(problem, theta)
    return td_error**2 @ weight


def mstde_gradient(problem: Problem, theta: ArrayLike) -> Floats:
    td_error, weight, slope = _td_errors(problem, theta)
    return 2.0 * (td_error * weight) @ slope


@dataclass(frozen=True)
class Objective:
    """An entry of :data:`OBJECTIVES`.

    :param name: As on the command line.
    :param value: ``(problem, theta, **settings) -> value``.
    :param gradient: ``(problem, theta, **settings) -> (sub)gradient``.
    :param loss: Key of ``ROBUST_LOSSES``.
    :param takes_tau: Whether ``tau`` is a setting.
    :param takes_basis: Whether ``basis``, the class of ``h``, is a setting.
    """

    name: str
    value: Callable[..., Value]
    gradient: Callable[..., Floats]
    loss: str
    takes_tau: bool = False
    takes_basis: bool = False

    def settings(self, tau: float | None, basis: Any) -> dict[str, Any]:
        """Keyword arguments of ``value`` and ``gradient``; a setting the objective does not have is an error."""
        if tau is not None and not self.takes_tau:
            raise ValueError(f"tau is {tau}, but {self.name} has no threshold; leave it out.")
        if basis is not None and not self.takes_basis:
            raise ValueError(f"basis is given, but {self.name} is not a projected objective; leave it out.")
        chosen: dict[str, Any] = {}
        if self.takes_tau:
            chosen["tau"] = check_tau(tau)
        if self.takes_basis:
            chosen["basis"] = basis
        return chosen
