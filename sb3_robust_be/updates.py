"""The one definition of the update shared by every algorithm of the family.

An update moves the value weights along ``a·∇q(s,a) + b·∇max q(s',·)`` and the secondary weights along ``c·∇h(s,a)``;
:func:`coefficients` gives ``(a, b, c)``. All functions take numpy arrays and torch tensors alike, element by element,
and are safe under ``torch.func.vmap``; this module imports numpy only.

Source: Patterson, Liao & White, "Robust Losses for Learning Value Functions" (TPAMI 2023), sections 4, 5 and 7.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

Array = Any  # numpy.ndarray or torch.Tensor; the two share no useful base class
Threshold = Any  # a float or a 0-d array of the same kind as the data, so that a vmap can give each agent its own
Limit = Literal["magnitude", "same_sign", "one_sided"]
HTarget = Literal["td_error", "clipped"]

LIMITS: tuple[str, ...] = ("magnitude", "same_sign", "one_sided")
H_TARGETS: tuple[str, ...] = ("td_error", "clipped")


def _namespace(x: Array) -> Any:
    """numpy for arrays and plain numbers, torch for tensors (looked up, not imported: a tensor implies it is there)."""
    return np if isinstance(x, (np.ndarray, np.generic, int, float)) else sys.modules["torch"]


@dataclass(frozen=True)
class RobustLoss:
    """A loss on the Bellman error, with all that its estimation needs.

    ``loss`` is convex with ``loss(0) = 0``, ``derivative`` is its (sub)gradient, and
    ``conjugate(g) = max_x g·x − loss(x)`` its Fenchel conjugate (infinite where the maximum is unbounded).
    ``project`` maps the least-squares estimate ``h ≈ E[δ|s,a]`` to the maximiser of the paper's dual form: half the
    derivative, or the derivative itself for the absolute loss, whose dual form has no quadratic term.

    :param name: The name used by the ``projection`` argument of every algorithm.
    :param loss: ``(x, threshold) -> loss``.
    :param derivative: ``(x, threshold) -> d loss / dx``.
    :param conjugate: ``(g, threshold) -> conjugate``.
    :param project: ``(h, threshold) -> z``.
    :param bounds: ``(threshold) -> (lowest, highest)``, the interval of ``h`` that the dual form admits.
    :param thresholded: Whether ``threshold`` has a meaning.
    """

    name: str
    loss: Callable[[Array, Threshold], Array]
    derivative: Callable[[Array, Threshold], Array]
    conjugate: Callable[[Array, Threshold], Array]
    project: Callable[[Array, Threshold], Array]
    bounds: Callable[[Threshold], tuple[Threshold, Threshold]]
    thresholded: bool


def _infinite_outside(value: Array, inside: Array) -> Array:
    return _namespace(value).where(inside, value, math.inf)


def huber(x: Array, threshold: Threshold) -> Array:
    """The paper's ``p_τ(x)``: ``x²`` for ``|x| ≤ τ``, else ``2τ|x| − τ²`` (section 3)."""
    clipped = x.clip(-threshold, threshold)
    return clipped * (2.0 * x - clipped)


def huber_derivative(x: Array, threshold: Threshold) -> Array:
    """``p_τ'(x) = 2·clip(x, −τ, τ)``."""
    return 2.0 * x.clip(-threshold, threshold)


def huber_conjugate(g: Array, threshold: Threshold) -> Array:
    """``p_τ*(g) = g²/4`` for ``|g| ≤ 2τ``, else infinite; with ``g = 2h``, ``p_τ(x) = max_{|h|≤τ} 2xh − h²``."""
    return _infinite_outside(0.25 * g * g, abs(g) <= 2.0 * threshold)


def _log_cosh(u: Array) -> Array:
    """``log cosh u`` without overflow."""
    xp, size = _namespace(u), abs(u)
    return size + xp.log1p(xp.exp(-2.0 * size)) - math.log(2.0)


def _smooth_huber_conjugate(g: Array, threshold: Threshold) -> Array:
    """Conjugate of ``2τ² log cosh(x/τ)``: a binary entropy, finite for ``|g| ≤ 2τ``."""
    xp = _namespace(g)
    u = (g / (2.0 * threshold)).clip(-1.0, 1.0)
    # At u = ±1 one term is 0·log 0 = 0; shifting its argument to 1 keeps the logarithm finite.
    plus, minus = 1.0 + u, 1.0 - u
    entropy = plus * xp.log(plus + (plus <= 0)) + minus * xp.log(minus + (minus <= 0))
    return _infinite_outside(threshold * threshold * entropy, abs(g) <= 2.0 * threshold)


def _project_smooth_huber(h: Array, threshold: Threshold) -> Array:
    return threshold * _namespace(h).tanh(h / threshold)


def _sign(x: Array, _: Threshold) -> Array:
    return _namespace(x).sign(x)


ROBUST_LOSSES: dict[str, RobustLoss] = {
    entry.name: entry
    for entry in (
        RobustLoss(
            "squared",
            loss=lambda x, _: x * x,
            derivative=lambda x, _: 2.0 * x,
            conjugate=lambda g, _: 0.25 * g * g,
            project=lambda h, _: h,
            bounds=lambda _: (-math.inf, math.inf),
            thresholded=False,
        ),
        RobustLoss(
            "huber",
            loss=huber,
            derivative=huber_derivative,
            conjugate=huber_conjugate,
            project=lambda h, threshold: h.clip(-threshold, threshold),
            bounds=lambda threshold: (-threshold, threshold),
            thresholded=True,
        ),
        RobustLoss(
            "absolute",
            loss=lambda x, _: abs(x),
            derivative=_sign,
            conjugate=lambda g, _: _infinite_outside(0.0 * g, abs(g) <= 1.0),
            project=_sign,
            bounds=lambda _: (-1.0, 1.0),
            thresholded=False,
        ),
        RobustLoss(
            # The paper's smooth stand-in for the clip (section 5): z = τ·tanh(h/τ).
            "smooth_huber",
            loss=lambda x, threshold: 2.0 * threshold * threshold * _log_cosh(x / threshold),
            derivative=lambda x, threshold: 2.0 * _project_smooth_huber(x, threshold),
            conjugate=_smooth_huber_conjugate,
            project=_project_smooth_huber,
            bounds=lambda threshold: (-threshold, threshold),
            thresholded=True,
        ),
        RobustLoss(
            # Ours: the square of errors above 0 alone. As |h| ≤ τ in max 2hx − h² gives Huber's, h ≥ 0 gives this.
            # In corrections alone: a saddlepoint on it has no reason to lower values that are too high.
            "one_sided",
            loss=lambda x, _: x.clip(min=0.0) ** 2,
            derivative=lambda x, _: 2.0 * x.clip(min=0.0),
            conjugate=lambda g, _: _infinite_outside(0.25 * g * g, g >= 0.0),
            project=lambda h, _: h.clip(min=0.0),
            bounds=lambda _: (0.0, math.inf),
            thresholded=False,
        ),
    )
}


def project(
    h: Array,
    td_error: Array,
    projection: str = "squared",
    threshold: Threshold | None = None,
    limit: str | None = None,
) -> Array:
    """``z = project(h, δ)``: the secondary estimate as it enters the correction.

    :param h: Raw secondary estimate ``h(s,a)``, any shape.
    :param td_error: TD error ``δ`` of the same sample and shape; only looked at by ``limit``.
    :param projection: A key of :data:`ROBUST_LOSSES`.
    :param threshold: The paper's ``τ`` (``huber_threshold`` of the algorithms), in units of reward.
        ``None`` leaves ``h`` unclipped.
    :param limit: ``None``; ``"magnitude"``, ``|z| ≤ |δ|``; ``"same_sign"``, ``z`` between 0 and ``δ``; or
        ``"one_sided"``, ``0 ≤ z ≤ max(δ, 0)``, so that no correction acts where the value is to fall.
        Ours (QLC, limited corrections), not in the paper. Applied after the projection.
    :return: ``z``, shape of ``h``.
    """
    entry = ROBUST_LOSSES[projection]
    z = h if entry.thresholded and threshold is None else entry.project(h, threshold)
    return z if limit is None else _limit(z, td_error, limit)


def _limit(z: Array, td_error: Array, limit: str) -> Array:
    if limit == "magnitude":
        size = abs(td_error)
        return z.clip(-size, size)
    if limit == "one_sided":
        return z.clip(min=0.0).clip(max=td_error.clip(min=0.0))
    return z.clip(td_error.clip(max=0.0), td_error.clip(min=0.0))


def is_clipped(
    h: Array,
    td_error: Array,
    projection: str = "squared",
    threshold: Threshold | None = None,
    limit: str | None = None,
) -> Array:
    """Where :func:`project` changes ``h`` because it lies outside its admissible set; a diagnostic.

    :param h: See :func:`project`, as for the other parameters.
    :return: Booleans, shape of ``h``.
    """
    entry = ROBUST_LOSSES[projection]
    lowest, highest = (-math.inf, math.inf) if entry.thresholded and threshold is None else entry.bounds(threshold)
    outside = (h < lowest) | (h > highest)
    return outside if limit is None else outside | (_limit(h, td_error, limit) != h)


class Coefficients(NamedTuple):
    """Directions of one update: ``a·∇q(s,a) + b·∇max q(s',·)`` for the values, ``c·∇h(s,a)`` for h's weights."""

    value: Array
    next_value: Array
    h: Array


def coefficients(
    td_error: Array,
    h: Array,
    discount: Array,
    *,
    projection: str = "squared",
    threshold: Threshold | None = None,
    limit: str | None = None,
    h_target: str = "td_error",
    gradient_correction: bool = True,
    correction_weight: Threshold = 1.0,
    td_error_threshold: Threshold | None = None,
) -> Coefficients:
    """Turn TD errors and secondary estimates into update directions (paper, equations of sections 5 and 7).

    With ``z = project(h, δ)``::

        a = δ  (gradient correction: TDC, QRC)   or   a = z  (saddlepoint: GTD2, GQ)
        b = −discount · w · z
        c = δ − h

    Nothing here differentiates: callers hand in values, not graphs.

    :param td_error: ``δ = r + discount · max q(s',·) − q(s,a)``, any shape.
    :param h: Raw secondary estimate ``h(s,a)``, shape of ``td_error``. ``c`` always uses it unprojected.
    :param discount: ``γ · (1 − terminated)`` (``γⁿ`` for n-step returns), broadcastable to ``td_error``.
    :param projection: See :func:`project`.
    :param threshold: See :func:`project`.
    :param limit: See :func:`project`.
    :param h_target: ``"td_error"``: h regresses δ; ``"clipped"``: h regresses ``clip(δ, −τ, τ)`` (``τ = 1`` when no
        threshold is given). Ours, a variant of QLC that keeps one outlier from moving h everywhere.
    :param gradient_correction: ``True`` for TDC-like updates, ``False`` for the saddlepoint updates.
    :param correction_weight: ``w``; 1 is the paper's, 0 leaves semi-gradient Q-learning. Ours, for ablations.
    :param td_error_threshold: ``None``: ``a = δ``, of the squared loss (the paper's). A number κ: ``clip(δ, −κ, κ)``,
        of the Huber loss, 1 being the loss of SB3's DQN. Gradient corrections only; ``b`` and ``c`` take δ as it is.
    :return: ``(a, b, c)``, each of the shape of ``td_error``.
    """
    z = project(h, td_error, projection, threshold, limit)
    target = td_error
    if h_target == "clipped":
        bound = 1.0 if threshold is None else threshold
        target = td_error.clip(-bound, bound)
    error = td_error if td_error_threshold is None else td_error.clip(-td_error_threshold, td_error_threshold)
    return Coefficients(error if gradient_correction else z, discount * -correction_weight * z, target - h)


def semi_gradient_coefficients(
    td_error: Array, h: Array, discount: Array, *, threshold: Threshold = math.inf
) -> Coefficients:
    """DQN's update, semi-gradient Q-learning on the Huber loss: ``a = p_κ'(δ)/2 = clip(δ, −κ, κ)`` and ``b = c = 0``.

    :param td_error: ``δ``, any shape, whose target may come from another network.
    :param h: Not used: there is no secondary estimate.
    :param discount: Not used.
    :param threshold: κ; infinity gives the squared loss ``½δ²``.
    :return: ``(a, b, c)``, each of the shape of ``td_error``.
    """
    return Coefficients(0.5 * huber_derivative(td_error, threshold), 0.0 * td_error, 0.0 * td_error)


def _below_largest(q: Array, temperature: Threshold) -> tuple[Array, Array]:
    """``max q``, as a constant, and ``(q − max q)/λ``, whose exponential cannot overflow."""
    largest = _namespace(q).amax(q, axis=-1, keepdims=True)
    largest = largest if isinstance(largest, np.ndarray) else largest.detach()
    return largest, (q - largest) / temperature


def _known_legal(legal: Array) -> Array:
    """The mask, and every action where it allows none."""
    return legal | ~legal.any(-1)[..., None]


def legal_values(q: Array, legal: Array | None) -> Array:
    """Action values among which no illegal action is the largest, nor has a share in a softmax: −∞ in its place.

    Its maximum is that over the legal actions, and the gradient goes to one of them.

    :param q: Action values, shape (..., actions).
    :param legal: Booleans, shape of ``q``; ``None``: every action is legal. A state that allows none, a terminal one,
        keeps its values: they are finite, and multiplied by a discount of 0.
    :return: Shape of ``q``.
    """
    if legal is None:
        return q
    return _namespace(q).where(_known_legal(legal), q, -math.inf)


def mellowmax(q: Array, temperature: Threshold, legal: Array | None = None) -> Array:
    """The soft maximum ``V = λ·log mean_a exp(q_a/λ)``, between ``mean q`` (``λ → ∞``) and ``max q`` (``λ → 0``).

    Its gradient is :func:`mellowmax_policy`. Source: Asadi & Littman (2017), with ``ω = 1/λ``; paper, section 8.1.

    :param q: Action values, shape (..., actions).
    :param temperature: ``λ > 0``, in units of q.
    :param legal: See :func:`legal_values`; the mean is over the legal actions.
    :return: V, shape (..., 1).
    """
    largest, exponents = _below_largest(legal_values(q, legal), temperature)
    # expm1 and log1p keep the digits of V when λ is far above the values' differences.
    xp = _namespace(q)
    mean = xp.expm1(exponents)
    if legal is None:
        mean = mean.mean(-1, keepdims=True)
    else:
        counted = _known_legal(legal)
        share = xp.where(counted, xp.ones_like(q), 0.0).mean(-1, keepdims=True)
        mean = xp.where(counted, mean, 0.0).mean(-1, keepdims=True) / share
    return largest + temperature * xp.log1p(mean)


def mellowmax_policy(q: Array, temperature: Threshold) -> Array:
    """``π = softmax(q/λ)``, so that ``λ·log(n·π_a) = q_a − V``; parameters as of :func:`mellowmax`, shape of ``q``."""
    weights = _namespace(q).exp(_below_largest(q, temperature)[1])
    return weights / weights.sum(-1, keepdims=True)


def sbeed_coefficients(td_error: Array, h: Array, discount: Array, *, eta: Threshold) -> Coefficients:
    """SBEED's update with the dual ``ρ = V + h`` and the mellowmax policy, whose residual is a TD error.

    ``L = ½ mean[δ²] − ½η mean[(δ − sg(h))²]`` has the gradient ``mean[z ∇δ]`` with ``z = (1 − η)·δ + η·h``, hence
    ``a = z``, ``b = −discount·z`` (on ``∇V(s')``) and ``c = δ − h``. Source: Dai et al. (2018); paper, section 8.1.

    :param td_error: ``δ = r + discount · V(s') − q(s,a)``, any shape.
    :param h: Estimate of ``E[δ|s,a]``, shape of ``td_error``.
    :param discount: ``γ · (1 − terminated)``, broadcastable to ``td_error``.
    :param eta: ``η ∈ [0, 1]``: 1 is Greedy GQ on mellowmax, 0 the mean squared TD error.
    :return: ``(a, b, c)``, each of the shape of ``td_error``.
    """
    z = (1.0 - eta) * td_error + eta * h
    return Coefficients(z, -discount * z, td_error - h)
