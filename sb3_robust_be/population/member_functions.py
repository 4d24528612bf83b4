"""Action values and gradients of all members at once, by ``vmap`` over one agent's functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch as th
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from torch import nn
from torch.func import functional_call, grad, vmap

from sb3_robust_be.population.replay import nested
from sb3_robust_be.population.stacked import Layout
from sb3_robust_be.qrc.losses import LossModule, SupportsBatchLoss
from sb3_robust_be.qrc.maskable import NEXT_ACTION_MASKS, MaskableReplayBufferSamples

Tensors = dict[str, th.Tensor]


def _join(*named: Tensors) -> Tensors:
    """The parameters of a module that holds the policy."""
    return {f"policy.{name}": x for part in named for name, x in part.items()}


def _samples(batch: Tensors) -> ReplayBufferSamples:
    """A member's batch as its loss takes it."""
    kind: Any = MaskableReplayBufferSamples if NEXT_ACTION_MASKS in batch else ReplayBufferSamples
    return kind(**nested(batch))


class _Values(nn.Module):
    """``q(s,·)`` of one member for one observation."""

    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observation: Tensors) -> th.Tensor:
        one = nested({name: x.unsqueeze(0) for name, x in observation.items()})
        return self.policy.q_net(one["observations"]).squeeze(0)  # type: ignore[operator]


class MemberFunctions:
    """
    Values and gradients of all members, from the algorithm's own network and loss.

    Tensors of all members have the members first; what is called ``rows`` has the shape (members, parameters).

    :param model: A single agent, whose policy and ``batch_loss`` are used with other parameters.
    :param layout: Of its policy's parameters.
    """

    def __init__(self, model: SupportsBatchLoss, layout: Layout) -> None:
        self._loss, self._q, self._layout = LossModule(model), _Values(model.policy), layout

    def values(self, rows: th.Tensor, constants: Tensors, observations: Tensors) -> th.Tensor:
        """Compute the action values of all members.

        :param rows: Parameters.
        :param constants: What of the networks is not trained, by name.
        :param observations: One per member, by name.
        :return: ``q(s,·)``, shape (members, actions).
        """

        def one(online: Tensors, constants: Tensors, observation: Tensors) -> Any:
            return functional_call(self._q, _join(online, constants), (observation,))

        return vmap(one)(self._layout.split(rows), constants, observations)

    def gradient(
        self,
        parts: Sequence[th.Tensor],
        target: th.Tensor | None,
        constants: Tensors,
        settings: Tensors,
        batch: Tensors,
        choices: dict[str, Any],
        moves_target: bool,
    ) -> tuple[list[th.Tensor], th.Tensor | None]:
        """Compute the gradients of all members' losses.

        :param parts: Parameters, as of :meth:`Layout.cut`.
        :param target: Rows of those of the target networks, if there are any.
        :param constants: What of the networks is not trained, by name.
        :param settings: Numbers of the algorithm's settings by name, shape (members,).
        :param batch: By name, shape (members, batch, …).
        :param choices: The algorithm's other settings.
        :param moves_target: See :meth:`moves_target`.
        :return: Of the loss, in the same parts; and ``feature_norm`` of :class:`LossTerms`, shape (members,),
            where the loss gives it.
        """

        def loss(online: Tensors, frozen: Tensors, constants: Tensors, settings: Tensors, batch: Tensors) -> Any:
            own = (_samples(batch), {**choices, **settings})
            return functional_call(self._loss, _join(online, frozen, constants), own)

        online = self._layout.named(parts)
        frozen = {} if target is None else self._layout.split(target, target=True)
        gradients = grad(loss, argnums=(0, 1) if moves_target else (0,), has_aux=True)
        found, terms = vmap(gradients)(online, frozen, constants, settings, batch)
        total = found[0]
        if moves_target:
            # The correction's gradient is taken at the target's parameters and moves the online ones.
            total = {name: x + y for (name, x), y in zip(total.items(), found[1].values(), strict=True)}
        return self._layout.join(total), terms.get("feature_norm")

    def moves_target(self, settings: Tensors, batch: Tensors, choices: dict[str, Any]) -> bool:
        """Find out whether the update also follows a gradient at the target network.

        :param settings: As of :meth:`gradient`, as for the other parameters.
        :return: Whether the loss has a gradient at the target network's parameters.
        """
        one = _samples({name: x[0].cpu() for name, x in batch.items()})
        numbers = {name: x[0].cpu() for name, x in settings.items()}
        parameters = list(self._loss.policy.q_net_target.parameters())  # type: ignore[union-attr]
        with th.enable_grad():
            loss, _ = self._loss(one, {**choices, **numbers})
            found = th.autograd.grad(loss, parameters, allow_unused=True)
        return any(x is not None for x in found)
