"""The algorithms by name; each is :class:`RobustQLearning` with its own defaults."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, ParamSpec

from sb3_robust_be.qrc.base import RobustQLearning

P = ParamSpec("P")


def _with_defaults(init: Callable[P, None], **defaults: Any) -> Callable[P, None]:
    """A constructor that differs from ``init`` in the defaults of keyword-only arguments, in its signature as well."""

    @functools.wraps(init)
    def constructor(*args: P.args, **kwargs: P.kwargs) -> None:
        init(*args, **{**defaults, **kwargs})

    signature = inspect.signature(init)
    parameters = [p.replace(default=defaults.get(p.name, p.default)) for p in signature.parameters.values()]
    constructor.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return constructor


class QRC(RobustQLearning):
    """Q-learning with Regularized Corrections: the squared projected Bellman error by gradient corrections.

    ``δ = r + γ max q(s',·) − q(s,a)``; ``θ += α (δ ∇q − γ h ∇max q(s',·))``; ``θ_h += α (δ − h) ∇h − αβ θ_h``.
    Source: Ghiassian et al. (2020); paper, section 7. Arguments: :class:`RobustQLearning`.
    """

    algorithm_name: ClassVar[str] = "qrc"


class QRCHuber(RobustQLearning):
    """QRC on the mean Huber projected Bellman error: :class:`QRC` with ``clip(h, −κ, κ)`` in the correction.

    Paper, section 7, where κ (``huber_threshold``) is τ = 1. Arguments: :class:`RobustQLearning`.
    """

    algorithm_name: ClassVar[str] = "qrc_huber"
    __init__ = _with_defaults(RobustQLearning.__init__, projection="huber", huber_threshold=1.0)


class QLC(RobustQLearning):
    """Q-learning with Limited Corrections (ours): :class:`QRC` with ``z = clip(h, −|δ|, |δ|)`` in the correction.

    With ``w = z/δ`` the update is ``α δ (∇q − γ w ∇max q(s',·))``, between semi-gradient Q-learning (w = 0) and the
    residual gradient (w = 1): Baird's residual algorithm (1995) with the weight learned per transition. There is no
    threshold to tune, and rewards scaled by c give the same w. Arguments: :class:`RobustQLearning`.
    """

    algorithm_name: ClassVar[str] = "qlc"
    __init__ = _with_defaults(RobustQLearning.__init__, projection="huber", limit="magnitude")


class GQ(RobustQLearning):
    """Greedy GQ in saddlepoint form, the squared counterpart of GTD2 for control, without regularisation.

    ``θ += α h (∇q − γ ∇max q(s',·))``; ``θ_h += α (δ − h) ∇h``.
    Paper, section 5 and appendix "Additional Results". Arguments: :class:`RobustQLearning`.
    """

    algorithm_name: ClassVar[str] = "gq"
    gradient_correction: ClassVar[bool] = False
    __init__ = _with_defaults(RobustQLearning.__init__, h_regularization=0.0)


class GQHuber(RobustQLearning):
    """:class:`GQ` on the mean Huber projected Bellman error: ``clip(h, −κ, κ)`` in place of h.

    Paper, section 5 and appendix "Additional Results". Arguments: :class:`RobustQLearning`.
    """

    algorithm_name: ClassVar[str] = "gq_huber"
    gradient_correction: ClassVar[bool] = False
    __init__ = _with_defaults(RobustQLearning.__init__, projection="huber", huber_threshold=1.0, h_regularization=0.0)
