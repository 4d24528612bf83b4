"""``compile=True``: the gradient of an update as one compiled graph, with torch's own optimiser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import torch as th
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from sb3_robust_be.messages import first_line, warn
from sb3_robust_be.qrc.losses import LossModule, LossTerms, SupportsBatchLoss


def generate_code(graph: th.fx.GraphModule, inputs: Sequence[th.Tensor]) -> Callable[..., Any]:
    """
    Compile a traced graph for inputs of these shapes, which takes seconds and a C++ compiler.

    :param graph: From ``make_fx``.
    :param inputs: Tensors, whose values do not matter.
    :return: The same function.
    :raises Exception: Whatever torch's compiler raises; each platform's missing compiler has an error of its own.
    """
    # Only here, because it takes seconds to import.
    from torch import _inductor

    # Not `torch.compile`: its checks of every input at every call cost as much as the graph, and shapes are fixed here.
    return cast(Callable[..., Any], _inductor.compile(graph, list(inputs)))


Compile = Callable[[th.fx.GraphModule, Sequence[th.Tensor]], Callable[..., Any]]


class CompiledGradients:
    """
    Computes what ``TwoHeadDQN._compute_gradients`` does, from graphs that ``make_fx`` traced and torch compiled.

    There is one graph per batch size, mode and non-numeric setting, made at first use. Numbers among the settings are
    inputs, so that schedules act. Where nothing can be compiled, one warning is given and the eager update serves; that
    includes Discrete observations, whose one-hot encoding cannot be traced. Dropout draws other masks than eagerly.

    :param model: Whose update to compile.
    """

    backend: ClassVar[Compile] = staticmethod(generate_code)

    def __init__(self, model: SupportsBatchLoss) -> None:
        self._model = model
        # Each with the fields of LossTerms that the loss gives, found as it is traced.
        self._graphs: dict[Any, tuple[Callable[..., Any], list[str]]] = {}
        self._built_for: Any = None
        self.works = True

    def __getstate__(self) -> dict[str, Any]:
        # Copies and pickles of the model compile again: code has no copy.
        return {"_model": self._model, "_graphs": {}, "_built_for": None, "works": self.works}

    def _find_tensors(self) -> None:
        # At the first update, by when the policy has the device and the precision that it keeps, and again when the
        # policy is another one or what is trained of it has changed.
        if self._built_for is not None and self._built_for == self._trained():
            return
        self._graphs.clear()
        self._loss = LossModule(self._model)
        self._every_parameter = list(self._loss.parameters())
        self._built_for = self._trained()
        trained = {name for name, p in self._loss.named_parameters() if p.requires_grad}
        named = {n: p for n, p in self._loss.named_parameters() if n.replace("q_net_target.", "q_net.", 1) in trained}
        self._names, self._parameters = list(named), list(named.values())
        # Inputs, because a function that is differentiated may not change what it captures: batch-norm statistics.
        self._buffers = dict(self._loss.named_buffers())
        # Where each gradient goes: a target's, to the online parameter it is a copy of.
        self._destinations = [named[name.replace("q_net_target.", "q_net.", 1)] for name in named]

    def _trained(self) -> tuple[Any, ...]:
        return (id(self._model.policy), *(p.requires_grad for p in self._every_parameter))

    def __call__(self, data: ReplayBufferSamples, settings: dict[str, Any]) -> LossTerms | None:
        """Compute the gradient of one batch's loss into the parameters' ``grad``.

        :param data: Transitions.
        :param settings: From ``update_settings``.
        :return: The batch's detached quantities, or ``None`` if nothing could be compiled.
        """
        self._find_tensors()
        numbers = {name: value for name, value in settings.items() if isinstance(value, float)}
        constants = {name: value for name, value in settings.items() if name not in numbers}
        batch, layout = tree_flatten(data)
        inputs = [*self._parameters, *self._buffers.values(), *map(data.rewards.new_tensor, numbers.values())]
        inputs += [x for x in batch if x is not None]
        # Whether the buffer gives discounts, and whether it gives masks.
        given = (type(data), *(x is not None for x in batch))
        choices = (*self._model.loss_choices(), *constants.values())
        key = (len(data.actions), given, self._loss.policy.training, *choices)
        with th.no_grad():
            if key not in self._graphs:
                self._graphs[key] = self._compile(inputs, list(numbers), constants, batch, layout)
            graph, fields = self._graphs[key]
            if not self.works:
                return None
            outputs = graph(*inputs)
        for parameter in self._every_parameter:
            parameter.grad = None
        for destination, gradient in zip(self._destinations, outputs, strict=False):
            destination.grad = gradient if destination.grad is None else destination.grad + gradient
        return LossTerms(**dict(zip(fields, outputs[len(self._destinations) :], strict=True)))

    def _compile(
        self, inputs: list[th.Tensor], numbers: list[str], constants: dict[str, Any], batch: list[Any], layout: TreeSpec
    ) -> tuple[Callable[..., Any], list[str]]:
        fields: list[str] = []

        def loss(parameters: list[th.Tensor], buffers: list[th.Tensor], values: list[th.Tensor], data: Any) -> Any:
            named = dict(zip([*self._buffers, *self._names], [*buffers, *parameters], strict=True))
            settings = constants | dict(zip(numbers, values, strict=True))
            return th.func.functional_call(self._loss, named, (data, settings))

        def gradients(*tensors: th.Tensor) -> tuple[th.Tensor, ...]:
            remaining = iter(tensors)
            parameters, buffers, values = (
                [next(remaining) for _ in names] for names in (self._names, self._buffers, numbers)
            )
            data = tree_unflatten([None if x is None else next(remaining) for x in batch], layout)
            found, terms = th.func.grad(loss, has_aux=True)(parameters, buffers, values, data)
            fields[:] = terms
            return (*found, *terms.values())

        before = [buffer.clone() for buffer in self._buffers.values()]
        try:
            # torch cannot compile `gradients` itself: trace first.
            graph = type(self).backend(make_fx(gradients)(*inputs), inputs)
            graph(*inputs)
        except Exception as error:
            # Any failure: a fault of the loss itself would come up again in the eager update.
            self.works = False
            warn(
                f"compile=True is ignored, since the update cannot be compiled here ({first_line(error)}). Install a "
                "C++ compiler such as g++ if it is missing; Discrete observations cannot be compiled at all. Otherwise "
                "pass compile=False."
            )
            graph = gradients
        # Tracing and trying out have moved the batch-norm statistics.
        for buffer, value in zip(self._buffers.values(), before, strict=True):
            buffer.copy_(value)
        return graph, fields
