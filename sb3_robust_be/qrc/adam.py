"""Clipping and Adam as functions of tensors, for one agent or for many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import torch as th
from torch.optim import optimizer as optimizer_module

Number = TypeVar("Number", float, th.Tensor)

ADAM_STATE = ("step", "exp_avg", "exp_avg_sq")
"""Names of what torch's Adam keeps of a parameter."""

# As torch's clip_grad_norm_.
_NORM_EPS = 1e-6


def total_norm(gradients: Sequence[th.Tensor]) -> th.Tensor:
    """As ``torch.nn.utils.get_total_norm``, which cannot be traced.

    :param gradients: Of any shapes.
    :return: Their norm as one vector, a 0-d tensor.
    """
    if not gradients:
        return th.zeros(())
    return th.linalg.vector_norm(th.stack([th.linalg.vector_norm(x) for x in gradients]))


def clipping_factor(norm: th.Tensor, bound: th.Tensor) -> th.Tensor:
    """What ``torch.nn.utils.clip_grad_norm_`` multiplies a gradient by.

    :param norm: Of the gradient.
    :param bound: Its largest norm, of the same shape.
    :return: From 0 to 1, of the same shape.
    """
    return (bound / (norm + _NORM_EPS)).clip(max=1.0)


class AdamSettings(NamedTuple):
    """Numbers of ``torch.optim.Adam`` that stay as they are while it learns."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    @classmethod
    def of(cls, group: dict[str, Any]) -> AdamSettings:
        """Read the settings of a group of parameters.

        :param group: One of the ``param_groups`` of an optimiser for which :func:`is_plain_adam` is true.
        :return: Its settings.
        """
        return AdamSettings(group["betas"][0], group["betas"][1], group["eps"])

    def scales(self, step: Number) -> tuple[Number, Number]:
        """The bias corrections of update ``step`` (from 1 on), on learning rate and on ε.

        ``α m̂/(√v̂ + ε) = α s m/(√v + ε √(1 − β₂ᵗ))`` with ``s = √(1 − β₂ᵗ)/(1 − β₁ᵗ)``.

        :param step: t, a number or a tensor in double precision: ``1 − β₂ᵗ`` starts at 0.001.
        :return: ``s`` and ``ε √(1 − β₂ᵗ)``.
        """
        root = (1 - self.beta2**step) ** 0.5
        return root / (1 - self.beta1**step), self.eps * root


def is_plain_adam(optimizer: th.optim.Optimizer) -> bool:
    """Whether an optimiser's step is that of Adam, with a weight decay of either kind or none, and nothing else.

    :param optimizer: Any.
    :return: Whether it is torch's Adam or AdamW itself, without amsgrad, maximize, hooks, and another
        ``step`` put in its place.
    """
    if type(optimizer) not in (th.optim.Adam, th.optim.AdamW) or "step" in vars(optimizer):
        return False
    hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    every = optimizer_module._global_optimizer_pre_hooks or optimizer_module._global_optimizer_post_hooks
    return (
        not hooks and not every and not any(group["amsgrad"] or group["maximize"] for group in optimizer.param_groups)
    )


def fused_step(optimizer: th.optim.Optimizer) -> bool:
    """Make the step of torch's fused Adam by its kernel alone, which for a small network takes half of the time.

    :param optimizer: Any, of parameters that have their gradients.
    :return: Whether it was made, with the numbers that ``optimizer.step()`` gives bit for bit. It was not where Adam is
        not fused, where :func:`is_plain_adam` is false, and where ``step`` has yet to make the state of a parameter.
    """
    fused = (group.get("fused") and not group["capturable"] for group in optimizer.param_groups)
    if not is_plain_adam(optimizer) or not all(fused):
        return False
    groups = [group for group in optimizer.param_groups if any(p.grad is not None for p in group["params"])]
    moved = [[p for p in group["params"] if p.grad is not None] for group in groups]
    states = [[optimizer.state.get(p, {}) for p in parameters] for parameters in moved]
    if not all(map(all, states)) or len({p.dtype for parameters in moved for p in parameters}) != 1:
        return False
    steps = [[state["step"] for state in own] for own in states]
    with th.no_grad():
        th._foreach_add_([step for own in steps for step in own], 1)
        for group, parameters, own, own_steps in zip(groups, moved, states, steps, strict=True):
            kernel = th._fused_adamw_ if group["decoupled_weight_decay"] else th._fused_adam_
            kernel(
                parameters,
                [p.grad for p in parameters],
                [state["exp_avg"] for state in own],
                [state["exp_avg_sq"] for state in own],
                [],
                own_steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )
    return True


def adam_direction(
    gradient: th.Tensor, mean: th.Tensor, square: th.Tensor, settings: AdamSettings, eps: th.Tensor
) -> th.Tensor:
    """``m/(√v + ε)`` after taking in a gradient: torch's Adam but for the learning rate and ``s``.

    :param gradient: Of any shape; in populations (members, parameters).
    :param mean: First moments, of the same shape, changed in place.
    :param square: Second moments, of the same shape, changed in place.
    :param settings: Shared by all elements.
    :param eps: The second of :meth:`AdamSettings.scales`, a 0-d tensor.
    :return: The direction, of the same shape.
    """
    mean.lerp_(gradient, 1 - settings.beta1)
    square.mul_(settings.beta2).addcmul_(gradient, gradient, value=1 - settings.beta2)
    return square.sqrt().add_(eps).reciprocal_().mul_(mean)


def adam_step(
    parameters: Sequence[th.Tensor],
    gradients: Sequence[th.Tensor],
    states: Sequence[dict[str, th.Tensor]],
    settings: AdamSettings,
    rate: th.Tensor,
    decay: th.Tensor,
    decoupled: bool,
) -> None:
    """Make torch's step of one group of parameters, in place.

    :param parameters: θ.
    :param gradients: One for each, of the same shape.
    :param states: :data:`ADAM_STATE` of each, changed in place.
    :param settings: Of the group.
    :param rate: α, a 0-d tensor.
    :param decay: The weight decay, a 0-d tensor.
    :param decoupled: Whether the decay is taken off the parameters (AdamW) in place of being in the gradients.
    """
    if not parameters:
        return
    factors: list[th.Tensor] = []
    for state in states:
        state["step"].add_(1)
        # In single precision 1 − 0.999ᵗ would begin with an error of 6e-5.
        scale, eps = settings.scales(state["step"].double())
        factors += [scale * rate, eps]
    # As one tensor, or compiled code would compute the powers anew for every few elements.
    remaining = iter(th.stack(factors).to(rate).unbind())
    for parameter, gradient, state in zip(parameters, gradients, states, strict=True):
        if decoupled:
            parameter.mul_(1 - rate * decay)
        else:
            gradient = gradient + decay * parameter
        scaled_rate, eps = next(remaining), next(remaining)
        direction = adam_direction(gradient, state["exp_avg"], state["exp_avg_sq"], settings, eps)
        parameter.sub_(scaled_rate * direction)
