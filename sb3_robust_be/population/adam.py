"""Adam for many agents at once, each with its own learning rate and regularisation."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch as th


class AdamSettings(NamedTuple):
    """Numbers of ``torch.optim.Adam`` that all members share."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    @classmethod
    def of(cls, optimizer: th.optim.Optimizer) -> AdamSettings:
        """Read the settings of an optimiser.

        :param optimizer: A member's.
        :return: Its settings.
        :raises ValueError: If it is not plain Adam.
        """
        kind = type(optimizer)
        group: dict[str, Any] = optimizer.param_groups[0]
        if kind is not th.optim.Adam or group["amsgrad"] or group["maximize"] or group["weight_decay"]:
            raise ValueError(
                f"policy_kwargs['optimizer_class'] is {kind.__name__} with {optimizer.defaults}, and a Population has "
                "plain Adam (no amsgrad, maximize or weight_decay) only. Leave optimizer_class out, or train single "
                "agents."
            )
        return AdamSettings(group["betas"][0], group["betas"][1], group["eps"])

    def scales(self, step: int) -> tuple[float, float]:
        """The bias corrections of update ``step`` (from 1 on), on learning rate and on ε.

        ``α m̂/(√v̂ + ε) = α s m/(√v + ε √(1 − β₂ᵗ))`` with ``s = √(1 − β₂ᵗ)/(1 − β₁ᵗ)``.
        """
        root = math.sqrt(1 - self.beta2**step)
        return root / (1 - self.beta1**step), self.eps * root


def adam_direction(
    gradient: th.Tensor, mean: th.Tensor, square: th.Tensor, settings: AdamSettings, eps: th.Tensor
) -> th.Tensor:
    """``m/(√v + ε)`` after taking in a gradient: torch's Adam but for the learning rate and ``s``.

    :param gradient: Of shape (members, parameters).
    :param mean: First moments, of the same shape, changed in place.
    :param square: Second moments, of the same shape, changed in place.
    :param settings: Shared by the members.
    :param eps: The second of :meth:`AdamSettings.scales`, a 0-d tensor.
    :return: The direction, of the same shape.
    """
    mean.lerp_(gradient, 1 - settings.beta1)
    square.mul_(settings.beta2).addcmul_(gradient, gradient, value=1 - settings.beta2)
    return square.sqrt().add_(eps).reciprocal_().mul_(mean)
