"""The linear temporal-difference methods as weights on one transition (paper, sections 5 and 6, appendix B).

With ``δ = r + γ θᵀx' − θᵀx``, ``ĥ = θ_hᵀx`` and ``z = project(ĥ, δ)`` of :mod:`sb3_robust_be.updates`, a method is::

    θ   += α   [ (value_error δ + value_h z) x + (next_error δ + next_h z) x' ]
    θ_h += α_h [ (target y − estimate ĥ) x + next_estimate ĥ x' − decay θ_h ]

with weights that depend on ``ρ`` and ``γ`` alone, ``y`` being ``δ`` or, for ``h_target="clipped"``, the clipped ``δ``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sb3_robust_be.updates import H_TARGETS, LIMITS, ROBUST_LOSSES, coefficients, project

Array = Any  # a float or numpy.ndarray
IMPORTANCE: tuple[str, ...] = ("paper", "whole")


class Weights(NamedTuple):
    """Weights of one transition, or arrays of them; ``None`` where a method does not have the term."""

    value_error: Array | None = None
    value_h: Array | None = None
    next_error: Array | None = None
    next_h: Array | None = None
    target: Array | None = None
    estimate: Array | None = None
    next_estimate: Array | None = None
    decay: Array | None = None


class Directions(NamedTuple):
    """What one transition adds: ``value x + next_value x'`` to ``θ``, ``h x + next_h x' − decay θ_h`` to ``θ_h``."""

    value: Array
    next_value: Array | None
    h: Array | None
    next_h: Array | None
    decay: Array | None


def _td(rho: Array, gamma: Array, whole: bool, beta: float) -> Weights:
    return Weights(value_error=rho)


def _residual_gradient(rho: Array, gamma: Array, whole: bool, beta: float) -> Weights:
    return Weights(value_error=rho, next_error=-rho * gamma)


def _gtd(rho: Array, gamma: Array, whole: bool, beta: float) -> Weights:
    one = rho if whole else rho**0
    return Weights(value_h=rho, next_h=-rho * gamma, target=rho, decay=one)


def _gtd2(rho: Array, gamma: Array, whole: bool, beta: float) -> Weights:
    one = rho if whole else rho**0
    return Weights(value_h=one, next_h=-rho * gamma, target=rho, estimate=one)


def _tdc(rho: Array, gamma: Array, whole: bool, beta: float) -> Weights:
    one = rho if whole else rho**0
    return Weights(value_error=rho, next_h=-rho * gamma, target=rho, estimate=one)


def _tdrc(rho: Array, gamma: Array, whole: bool, beta: float) -> Weights:
    return _tdc(rho, gamma, whole, beta)._replace(decay=beta * rho**0)


def _htd(rho: Array, gamma: Array, whole: bool, beta: float) -> Weights:
    return Weights(
        value_error=rho,
        value_h=rho - 1.0,
        next_h=-gamma * (rho - 1.0),
        target=rho,
        estimate=rho**0,
        next_estimate=gamma,
    )


@dataclass(frozen=True)
class Method:
    """An entry of :data:`METHODS`.

    :param weights: ``(ρ, γ, whole, β) -> Weights``.
    :param robust: Whether ``z`` estimates the Bellman error, so that a projection or a limit has a meaning.
    :param placements: Whether the methods' authors differ on where ``ρ`` goes.
    """

    weights: Callable[[Array, Array, bool, float], Weights]
    robust: bool = False
    placements: bool = False


METHODS: dict[str, Method] = {
    "td": Method(_td),
    "residual_gradient": Method(_residual_gradient),
    "gtd": Method(_gtd, placements=True),
    "gtd2": Method(_gtd2, robust=True, placements=True),
    "tdc": Method(_tdc, robust=True, placements=True),
    "tdrc": Method(_tdrc, robust=True, placements=True),
    "htd": Method(_htd),
}


@dataclass(frozen=True)
class Algorithm:
    """A method with its settings.

    :param method: A key of :data:`METHODS`.
    :param projection: A key of ``ROBUST_LOSSES``; GTD2, TDC and TDRC only, like ``threshold``, ``limit`` and
        ``h_target``.
    :param threshold: Huber threshold ``τ`` in units of reward; needed by ``huber`` and ``smooth_huber``.
    :param limit: QLC's limit of the correction by the sample's own ``δ`` (ours, not in the paper): ``"magnitude"``,
        ``"same_sign"`` or ``"one_sided"``.
    :param h_target: ``"td_error"``, or ``"clipped"``: ``h`` regresses ``clip(δ, −τ, τ)`` (ours, ``τ = 1`` without a
        threshold).
    :param beta: TDRC's regularisation of ``θ_h``; for that method only. ``None``: 1.
    :param importance: Where ``ρ`` goes. ``"paper"``: as in the paper's appendix B. ``"whole"``: it multiplies
        the whole update of ``θ`` and of ``θ_h`` (but for TDRC's regularisation), as in some public code: the same
        mean, another variance.
    """

    method: str
    projection: str = "squared"
    threshold: float | None = None
    limit: str | None = None
    h_target: str = "td_error"
    beta: float | None = None
    importance: str = "paper"

    def __post_init__(self) -> None:
        for name, known in (
            ("method", METHODS),
            ("projection", ROBUST_LOSSES),
            ("limit", (None, *LIMITS)),
            ("h_target", H_TARGETS),
            ("importance", IMPORTANCE),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}; give one of {', '.join(map(str, known))}.")
        entry = METHODS[self.method]
        if not entry.robust and (self.projection, self.threshold, self.limit, self.h_target) != (
            "squared",
            None,
            None,
            "td_error",
        ):
            robust = ", ".join(name for name, other in METHODS.items() if other.robust)
            raise ValueError(f"method is {self.method!r}, which has no robust form; give one of {robust}.")
        if not entry.placements and self.importance != "paper":
            raise ValueError(f"importance is {self.importance!r}; {self.method} has one placement only: leave it out.")
        if ROBUST_LOSSES[self.projection].thresholded:
            if self.threshold is None or not self.threshold > 0.0:
                raise ValueError(f"threshold is {self.threshold}; {self.projection} needs a positive one.")
        elif self.threshold is not None and self.h_target != "clipped":
            raise ValueError(f"threshold is {self.threshold}, but {self.projection} has none; leave it out.")
        if self.beta is not None and (self.method != "tdrc" or self.beta < 0.0):
            raise ValueError(f"beta is {self.beta} for {self.method}; give at least 0, for tdrc only.")

    def weights(self, rho: Array, gamma: Array) -> Weights:
        """The weights of a transition with ratio ``ρ`` and discount ``γ`` (0 on termination)."""
        beta = 1.0 if self.beta is None else self.beta
        return METHODS[self.method].weights(rho, gamma, self.importance == "whole", beta)

    def directions(self, weights: Weights, td_error: Array, h: Array) -> Directions:
        """The update of one transition, or of many at once: all arguments broadcast."""
        w = weights
        z = project(h, td_error, self.projection, self.threshold, self.limit)
        regressed = None
        if w.target is not None:
            # With h = 0 the third coefficient is the target of h itself.
            y = coefficients(td_error, 0.0 * h, 0.0, threshold=self.threshold, h_target=self.h_target).h
            regressed = w.target * y if w.estimate is None else w.target * y - w.estimate * h
        value = _combine(w.value_error, td_error, w.value_h, z)
        following = _combine(w.next_error, td_error, w.next_h, z)
        return Directions(value, following, regressed, _combine(w.next_estimate, h, None, h), w.decay)


def _combine(first: Array | None, x: Array, second: Array | None, y: Array) -> Array | None:
    if first is None:
        return None if second is None else second * y
    return first * x if second is None else first * x + second * y


def _named() -> dict[str, Algorithm]:
    named = {name: Algorithm(name) for name in METHODS}
    for method in ("gtd2", "tdc", "tdrc"):
        named[f"{method}-huber"] = Algorithm(method, "huber", 1.0)
        named[f"{method}-l1"] = Algorithm(method, "absolute")
    named["qlc"] = Algorithm("tdc", limit="magnitude")
    named["qlc-same-sign"] = Algorithm("tdc", limit="same_sign")
    named["qlc-one-sided"] = Algorithm("tdc", limit="one_sided")
    return named


ALGORITHMS: dict[str, Algorithm] = _named()
PAPER_ALGORITHMS: tuple[str, ...] = ("gtd2", "gtd2-huber", "gtd2-l1", "tdc", "tdc-huber", "tdc-l1")


def algorithm(name: str, threshold: float | None = None) -> Algorithm:
    """An algorithm by name, e.g. ``"tdc-huber"`` (``τ = 1``, the paper's) or ``"qlc"``.

    :param name: A key of :data:`ALGORITHMS`.
    :param threshold: Replaces the Huber threshold; ignored by algorithms without one.
    """
    if name not in ALGORITHMS:
        raise ValueError(f"name is {name!r}; give one of {', '.join(ALGORITHMS)}.")
    found = ALGORITHMS[name]
    return found if threshold is None or found.threshold is None else replace(found, threshold=threshold)
