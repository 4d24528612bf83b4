"""From the values of a batch to the loss whose gradient is the update of :mod:`sb3_robust_be.updates`."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch as th

from sb3_robust_be.updates import coefficients


class LossTerms(NamedTuple):
    """A loss and the detached quantities of its batch, each of shape (batch, 1) but for the loss."""

    loss: th.Tensor
    """Scalar whose negative gradient is the update. Its value means nothing."""
    td_error: th.Tensor
    """``δ``"""
    h: th.Tensor
    """``h(s,a)``"""
    correction: th.Tensor
    """``γz``, what the update puts on ``−∇max q(s',·)``"""
    q: th.Tensor
    """``q(s,a)``"""


def qrc_loss(
    q: th.Tensor, h: th.Tensor, next_value: th.Tensor, rewards: th.Tensor, discount: th.Tensor, **settings: Any
) -> LossTerms:
    """``−mean[ sg(a)·q(s,a) + sg(b)·max q(s',·) + sg(c)·h(s,a) ]``, with a, b, c of :func:`updates.coefficients`.

    Its gradient is that of ``L_q + L_h`` (paper, section 6): for gradient corrections
    ``L_q = mean[½(sg(T) − q)² + sg(z)·discount·max q(s',·)]``, for saddlepoints ``mean[sg(z)·(discount·max q(s',·) − q)]``,
    and ``L_h = mean[½(sg(δ) − h)²]``.

    :param q: ``q(s,a)``, shape (batch, 1).
    :param h: ``h(s,a)`` on detached features, shape (batch, 1).
    :param next_value: ``max q(s',·)``, shape (batch, 1).
    :param rewards: r (n-step returns' reward part), shape (batch, 1).
    :param discount: ``γ·(1 − terminated)``, shape (batch, 1).
    :param settings: Keyword arguments of :func:`updates.coefficients`.
    :return: The loss and what the diagnostics need.
    """
    q_value, h_value = q.detach(), h.detach()
    td_error = rewards + discount * next_value.detach() - q_value
    a, b, c = coefficients(td_error, h_value, discount, **settings)
    loss = -(a * q + b * next_value + c * h).mean()
    return LossTerms(loss, td_error, h_value, -b, q_value)
