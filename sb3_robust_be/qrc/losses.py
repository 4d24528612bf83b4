"""The loss of a batch, whose gradient is the update that :mod:`sb3_robust_be.updates` defines."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Literal, NamedTuple, Protocol

import torch as th
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

from sb3_robust_be.updates import Coefficients, coefficients

HAveraging = Literal["batch", "action", "broadcast"]

H_AVERAGINGS: tuple[str, ...] = ("batch", "action", "broadcast")


class LossTerms(NamedTuple):
    """A loss and the detached quantities of its batch, each of shape (batch, 1) unless said otherwise."""

    loss: th.Tensor
    """Scalar whose negative gradient is the update. Its value means nothing."""
    td_error: th.Tensor
    """``δ``"""
    h: th.Tensor
    """``h(s,a)``"""
    correction: th.Tensor
    """``γz``, what the update puts on ``−∇max q(s',·)``, or on minus the gradient of what else bootstraps"""
    q: th.Tensor
    """``q(s,a)``"""
    action_values: th.Tensor | None = None
    """``q(s,·)``, shape (batch, actions), of an algorithm with a stochastic policy"""
    feature_norm: th.Tensor | None = None
    """Mean of ``‖φ(s)‖² + 1``, of the features that h sees and its bias's 1; a 0-d tensor, where β is relative to it"""


class SupportsBatchLoss(Protocol):
    """Protocol of an algorithm whose update is the gradient of one batch's loss.

    The loss is of the policy's present parameters and has no other effect, so that they can be exchanged.
    """

    @property
    def policy(self) -> DQNPolicy:
        """With ``q_net``, and ``q_net_target`` which may be the same network"""

    @property
    def has_target(self) -> bool:
        """Whether the loss bootstraps from a copy of the network"""

    def update_settings(self) -> dict[str, Any]:
        """Settings that :meth:`batch_loss` takes.

        :return: What :meth:`batch_loss` needs to know of the arguments at the current progress, where numbers may come
            from schedules.
        """

    def loss_choices(self) -> tuple[Hashable, ...]:
        """Other arguments that :meth:`batch_loss` depends on.

        :return: What :meth:`batch_loss` takes from the arguments themselves: a compiled update is of one value of each.
        """

    def batch_loss(self, data: ReplayBufferSamples, settings: dict[str, Any]) -> LossTerms:
        """The loss of one batch.

        :param data: Transitions; ``discounts`` replaces γ where the buffer gives it.
        :param settings: From :meth:`update_settings`.
        :return: The loss and the batch's detached quantities.
        """


def action_counts(actions: th.Tensor) -> th.Tensor:
    """For each sample, how many samples of the batch have the same action.

    :param actions: a, shape (batch, 1).
    :return: n(a), shape (batch, 1).
    """
    # Every pair is compared: shapes that depend on the data can be neither stacked nor traced.
    return (actions == actions.mT).sum(dim=1, keepdim=True)


def update_loss(
    rule: Callable[..., Coefficients],
    q: th.Tensor,
    h: th.Tensor,
    next_value: th.Tensor,
    rewards: th.Tensor,
    discount: th.Tensor,
    h_counts: th.Tensor | None = None,
    broadcast: bool = False,
    **settings: Any,
) -> LossTerms:
    """``−mean[ sg(a)·q(s,a) + sg(b)·v(s') + sg(c)·h(s,a) ]``: by descent, the update with the coefficients a, b, c.

    :param rule: ``(td_error, h, discount, **settings) -> (a, b, c)``, of :mod:`sb3_robust_be.updates`.
    :param q: ``q(s,a)``, shape (batch, 1).
    :param h: ``h(s,a)`` on detached features, shape (batch, 1).
    :param next_value: ``v(s')``, what δ bootstraps from, shape (batch, 1).
    :param rewards: r (n-step returns' reward part), shape (batch, 1).
    :param discount: ``γ·(1 − terminated)``, shape (batch, 1).
    :param h_counts: How many samples share each one's mean of ``sg(c)·h``, shape (batch, 1), of which means the sum is
        taken; ``None``: one mean over the batch.
    :param broadcast: Every ``z`` is replaced by the batch's mean of them in b, and h regresses the mean of its targets:
        what shapes (batch, 1) and (batch,) give that are broadcast against each other.
    :param settings: Keyword arguments of ``rule``.
    :return: The loss and what the diagnostics need.
    """
    q_value, h_value = q.detach(), h.detach()
    td_error = rewards + discount * next_value.detach() - q_value
    a, b, c = rule(td_error, h_value, discount, **settings)
    if broadcast:
        weighted_z = -rule(td_error, h_value, th.ones_like(td_error), **settings).next_value
        b = -discount * weighted_z.mean()
        c = (c + h_value).mean() - h_value
    if h_counts is not None:
        c = len(c) * c / h_counts
    loss = -(a * q + b * next_value + c * h).mean()
    return LossTerms(loss, td_error, h_value, -b, q_value)


def qrc_loss(
    q: th.Tensor, h: th.Tensor, next_value: th.Tensor, rewards: th.Tensor, discount: th.Tensor, **settings: Any
) -> LossTerms:
    """``−mean[ sg(a)·q(s,a) + sg(b)·max q(s',·) + sg(c)·h(s,a) ]``, with a, b, c of :func:`updates.coefficients`.

    Its gradient is that of ``L_q + L_h`` (paper, section 7), where for gradient corrections
    ``L_q = mean[½(sg(T) − q)² + sg(z)·discount·max q(s',·)]``, for saddlepoints
    ``L_q = mean[sg(z)·(discount·max q(s',·) − q)]``, and ``L_h = mean[½(sg(δ) − h)²]``.

    :param q: ``q(s,a)``, shape (batch, 1).
    :param h: ``h(s,a)`` on detached features, shape (batch, 1).
    :param next_value: ``max q(s',·)``, shape (batch, 1).
    :param rewards: r (n-step returns' reward part), shape (batch, 1).
    :param discount: ``γ·(1 − terminated)``, shape (batch, 1).
    :param settings: Keyword arguments of :func:`updates.coefficients` and of :func:`update_loss`.
    :return: The loss and what the diagnostics need.
    """
    return update_loss(coefficients, q, h, next_value, rewards, discount, **settings)


class LossModule(nn.Module):
    """A model's loss as a module that holds its policy, so that ``functional_call`` can exchange the parameters.

    :param model: Whose loss.
    """

    def __init__(self, model: SupportsBatchLoss) -> None:
        super().__init__()
        self.policy: nn.Module = getattr(model.policy, "_orig_mod", model.policy)
        self.model = model

    def forward(self, data: ReplayBufferSamples, settings: dict[str, Any]) -> tuple[th.Tensor, dict[str, th.Tensor]]:
        """Compute the loss of one batch.

        :param data: A batch.
        :param settings: Of the model's ``update_settings``.
        :return: The scalar whose gradient is the update, and the fields of :class:`LossTerms` that are there, by name.
        """
        terms = self.model.batch_loss(data, settings)
        # Graphs return tensors only.
        return terms.loss, {name: x for name, x in terms._asdict().items() if x is not None}
