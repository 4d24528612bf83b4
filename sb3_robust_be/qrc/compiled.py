"""``compile=True``: an update as one compiled graph, with Adam in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import torch as th
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from sb3_robust_be.messages import first_line, warn
from sb3_robust_be.qrc.adam import ADAM_STATE, AdamSettings, adam_step, clipping_factor, is_plain_adam, total_norm
from sb3_robust_be.qrc.losses import LossModule, LossTerms, SupportsBatchLoss
from sb3_robust_be.qrc.policies import H_GROUP, VALUE_GROUP
from sb3_robust_be.qrc.products import convert_products, unfold_convolutions
from sb3_robust_be.qrc.regularization import RelativeDecay
from sb3_robust_be.qrc.small_products import take_over

# Numbers of a product's right matrix. What is won with smaller ones, the calls take.
_LEAST_TAKEN_OVER = 2**14


def generate_code(graph: th.fx.GraphModule, inputs: Sequence[th.Tensor]) -> Callable[..., Any]:
    """
    Compile a traced graph for inputs of these shapes, which takes seconds and a C++ compiler.

    torch keeps the code on disk, by graph and versions, in the folder that the environment variable
    ``TORCHINDUCTOR_CACHE_DIR`` names (one in the folder for temporary files by default): another process that compiles
    the same graph finds it there.

    :param graph: From ``make_fx``.
    :param inputs: Tensors, whose values do not matter.
    :return: The same function.
    :raises Exception: Whatever torch's compiler raises; each platform's missing compiler has an error of its own.
    """
    # Only here, because it takes seconds to import.
    from torch import _inductor

    for node in graph.graph.find_nodes(op="placeholder"):
        # torch 2.8 would take these for the inputs, and they are of another tracing than its own.
        node.meta.pop("val", None)
    # On a CPU what calls the kernels is compiled too: from Python it takes as long as the kernels of a small network.
    patches = {"cpp_wrapper": all(x.is_cpu for x in inputs)}
    # Not `torch.compile`: its checks of every input at every call cost as much as the graph, and shapes are fixed here.
    # Nor `_inductor.compile`, whose graphs torch does not keep on disk.
    code = _inductor.standalone_compile(
        graph, list(inputs), dynamic_shapes="from_example_inputs", options={"config_patches": patches}
    )
    return cast(Callable[..., Any], code)


Compile = Callable[[th.fx.GraphModule, Sequence[th.Tensor]], Callable[..., Any]]


class _Group(NamedTuple):
    """What the code of a step depends on of one of the optimiser's groups of parameters."""

    positions: tuple[int, ...]
    """Of the parameters that are moved, among those by which the loss is differentiated"""
    adam: AdamSettings
    decoupled: bool
    """Whether weight decay is decoupled from the gradient"""


class _Step(NamedTuple):
    """What the optimiser's step adds to a graph: of this its code depends on all but the numbers' values."""

    groups: list[_Group]
    """The values' first, then that of h"""
    clips: bool
    numbers: list[float]
    """Learning rate and weight decay of each group, and the largest norm of a gradient"""
    relative_decay: RelativeDecay | None


@dataclass
class _Graph:
    """A compiled function of tensors: it gives the fields of :class:`LossTerms` that are named, and then others."""

    run: Callable[..., Any]
    fields: list[str]
    numbers: list[float]
    """Those of the last call"""
    as_tensor: th.Tensor
    """The same as the function takes them"""


class CompiledUpdate:
    """
    Computes an update of ``TwoHeadDQN`` by graphs that ``make_fx`` traced and torch compiled.

    With torch's Adam or AdamW one graph is the whole update: loss, gradients, clipping, regularisation, and the
    optimiser's step, in place on the parameters and on the state that the optimiser keeps of them, which its own first
    step has made. With any other optimiser the graph gives the gradients, and the optimiser makes its own step.

    There is one graph per batch size, mode and non-numeric setting, made at first use. Numbers among the settings are
    inputs, so that schedules act. Where nothing can be compiled, one warning is given and the eager update serves; that
    includes Discrete observations, whose one-hot encoding cannot be traced. Dropout draws other masks than eagerly.

    :param model: Whose update to compile.
    :param bfloat16: Whether to compute large matrix products in bfloat16.
    """

    backend: ClassVar[Compile] = staticmethod(generate_code)

    def __init__(self, model: SupportsBatchLoss, bfloat16: bool = False) -> None:
        self._model, self._bfloat16 = model, bfloat16
        self.works = True
        self._forget()

    def _forget(self) -> None:
        self._graphs: dict[Any, _Graph] = {}
        self._built_for: Any = None
        self._states_of: Any = None
        # Of each parameter that the compiled step moves, group by group.
        self._positions: list[tuple[int, ...]] = []
        self._states: list[dict[str, th.Tensor]] = []
        # Whether the next update has to be eager, so that the optimiser's own step makes its state.
        self._state_is_due = False

    def __getstate__(self) -> dict[str, Any]:
        # Copies and pickles of the model compile again: code has no copy.
        return {"_model": self._model, "_bfloat16": self._bfloat16, "works": self.works}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def _find_tensors(self) -> None:
        # At the first update, by when the policy has the device and the precision that it keeps, and again when the
        # policy is another one or what is trained of it has changed.
        if self._built_for is not None and self._built_for == self._trained():
            return
        self._forget()
        self._loss = LossModule(self._model)
        self._every_parameter = list(self._loss.parameters())
        self._built_for = self._trained()
        trained = {name for name, p in self._loss.named_parameters() if p.requires_grad}
        named = {n: p for n, p in self._loss.named_parameters() if n.replace("q_net_target.", "q_net.", 1) in trained}
        self._names, self._parameters = list(named), list(named.values())
        # Inputs, because a function that is differentiated may not change what it captures: batch-norm statistics.
        self._buffers = dict(self._loss.named_buffers())
        # Where each gradient goes: a target's, to the online parameter it is a copy of.
        self._destinations = [self._names.index(name.replace("q_net_target.", "q_net.", 1)) for name in self._names]

    def _trained(self) -> tuple[Any, ...]:
        return (id(self._model.policy), *[p.requires_grad for p in self._every_parameter])

    def _find_states(self, optimizer: th.optim.Optimizer) -> None:
        # At the first update, and again when the optimiser is another one or has replaced its state, as loading does.
        states_of = [optimizer, len(optimizer.param_groups), *map(id, optimizer.state.values())]
        self._state_is_due = False
        if states_of == self._states_of:
            # What has no state after the optimiser's own step has no gradient either.
            return
        self._states_of, self._positions, self._states = states_of, [], []
        positions = {id(p): i for i, p in enumerate(self._parameters)}
        for group in optimizer.param_groups:
            trained = [p for p in group["params"] if id(p) in positions]
            moved = [p for p in trained if optimizer.state.get(p)]
            self._state_is_due |= len(moved) < len(trained)
            self._positions.append(tuple(positions[id(p)] for p in moved))
            self._states += [optimizer.state[p] for p in moved]
        if any(s["step"].device != s["exp_avg"].device or s["step"].is_mps for s in self._states):
            # A graph is of one device, and bias corrections need double precision.
            self._states = []

    def gradients(self, data: ReplayBufferSamples, settings: dict[str, Any]) -> LossTerms | None:
        """Compute the gradient of one batch's loss into the parameters' ``grad``.

        :param data: Transitions.
        :param settings: From ``update_settings``.
        :return: The batch's detached quantities, or ``None`` if nothing was done: nothing can be compiled, or this
            update is one for which a graph does not pay.
        """
        if not self.works or self._state_is_due:
            return None
        self._find_tensors()
        if self._hooked():
            return None
        done = self._run(data, settings, None)
        if done is None:
            return None
        terms, found = done
        for parameter in self._every_parameter:
            parameter.grad = None
        for position, gradient in zip(dict.fromkeys(self._destinations), found, strict=True):
            self._parameters[position].grad = gradient
        return terms

    def step(
        self,
        data: ReplayBufferSamples,
        settings: dict[str, Any],
        optimizer: th.optim.Optimizer,
        max_grad_norm: float | None,
        relative_decay: RelativeDecay | None,
    ) -> tuple[LossTerms, th.Tensor] | None:
        """Make a whole update, after which no parameter has a ``grad``.

        :param data: Transitions.
        :param settings: From ``update_settings``.
        :param optimizer: The policy's, with the learning rates of this update.
        :param max_grad_norm: The largest norm of the gradient of either group; ``None`` for no clipping.
        :param relative_decay: The regulariser of h, if it is not the weight decay of its group.
        :return: The batch's detached quantities and the norm of the values' gradient before clipping, or ``None`` if
            nothing was done: the optimiser has to make its own step, or nothing can be compiled.
        """
        if not self.works or not is_plain_adam(optimizer):
            return None
        self._find_tensors()
        if self._hooked():
            return None
        self._find_states(optimizer)
        if self._state_is_due or not self._states:
            return None
        groups, numbers = [], []
        for positions, group in zip(self._positions, optimizer.param_groups, strict=True):
            groups.append(_Group(positions, AdamSettings.of(group), group["decoupled_weight_decay"]))
            numbers += [group["lr"], group["weight_decay"]]
        numbers.append(math.inf if max_grad_norm is None else max_grad_norm)
        done = self._run(data, settings, _Step(groups, max_grad_norm is not None, numbers, relative_decay))
        if done is None:
            return None
        terms, (norm,) = done
        for parameter in self._every_parameter:
            parameter.grad = None
        return terms, norm

    def _hooked(self) -> bool:
        """Whether a user's function waits for the gradient of a parameter, which a graph would not call."""
        for parameter in self._every_parameter:
            if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
                return True
        return False

    def _run(
        self, data: ReplayBufferSamples, settings: dict[str, Any], step: _Step | None
    ) -> tuple[LossTerms, list[th.Tensor]] | None:
        """The terms of the loss, and the gradients or, after a step, the norm of the values' gradient."""
        data = _with_floats(data)
        names = [name for name, value in settings.items() if isinstance(value, float)]
        constants = [value for value in settings.values() if not isinstance(value, float)]
        numbers = [settings[name] for name in names]
        # Whether the buffer gives discounts, and whether it gives masks.
        given = [x is not None for x in data]
        key = [type(data), *given, self._loss.policy.training]
        key += [*self._model.loss_choices(), *names, *constants]
        batch: list[th.Tensor] = []
        for part in data:
            if part is not None:
                batch += part.values() if isinstance(part, dict) else [part]
        inputs = [*self._parameters, *self._buffers.values(), *batch]
        # Code for tensors of one kind would misread the memory of another's: it looks at nothing itself.
        key += [(x.dtype, x.device, x.shape, x.stride()) for x in (self._parameters[0], *batch)]
        kind = data.rewards.device.type
        key += [th.is_autocast_enabled(kind), th.get_autocast_dtype(kind)]
        if step is not None:
            key += [*step.groups, step.clips, step.relative_decay is None]
            numbers += step.numbers
            inputs += [state[name] for state in self._states for name in ADAM_STATE]
            if step.relative_decay is not None:
                numbers += [step.relative_decay.rate, step.relative_decay.beta]
                inputs.append(step.relative_decay.feature_norm)
        graph = self._graphs.get(tuple(key))
        if graph is not None and graph.numbers == numbers:
            inputs.append(graph.as_tensor)
        else:
            inputs.append(data.rewards.new_tensor(numbers))
        with th.no_grad():
            if graph is None:
                graph = self._graphs[tuple(key)] = self._compile(inputs, data, settings, names, step)
                if not self.works:
                    return None
            graph.numbers, graph.as_tensor = numbers, inputs[-1]
            outputs = graph.run(*inputs)
        n = len(graph.fields)
        return LossTerms(**dict(zip(graph.fields, outputs, strict=False))), outputs[n:]

    def _compile(
        self,
        inputs: list[th.Tensor],
        batch: ReplayBufferSamples,
        settings: dict[str, Any],
        names: list[str],
        step: _Step | None,
    ) -> _Graph:
        fields: list[str] = []
        leaves, layout = tree_flatten(batch)

        def loss(parameters: list[th.Tensor], buffers: list[th.Tensor], data: Any, numbers: dict[str, Any]) -> Any:
            named = dict(zip([*self._buffers, *self._names], [*buffers, *parameters], strict=True))
            return th.func.functional_call(self._loss, named, (data, settings | numbers))

        def update(*tensors: th.Tensor) -> tuple[th.Tensor, ...]:
            remaining = iter(tensors)
            parameters, buffers = ([next(remaining) for _ in known] for known in (self._parameters, self._buffers))
            data = tree_unflatten([None if x is None else next(remaining) for x in leaves], layout)
            *state, values = remaining
            numbers = iter(values.unbind())
            own = {name: next(numbers) for name in names}
            found, terms = th.func.grad(loss, has_aux=True)(parameters, buffers, data, own)
            fields[:] = terms
            gradients: dict[int, th.Tensor] = {}
            for position, gradient in zip(self._destinations, found, strict=True):
                gradients[position] = gradients[position] + gradient if position in gradients else gradient
            if step is None:
                return (*terms.values(), *gradients.values())
            return (*terms.values(), _make_step(step, parameters, gradients, terms, state, list(numbers)))

        # Tracing and trying out change what the update changes.
        copies = [[x.detach().clone() for x in inputs] for _ in range(2)]
        try:
            # torch cannot compile `update` itself: trace first.
            graph = make_fx(update)(*copies[0])
            if all(x.is_cpu for x in inputs):
                unfold_convolutions(graph)
            if self._bfloat16:
                convert_products(graph)
            if all(x.is_cpu for x in inputs):
                take_over(graph, [x.detach().clone() for x in inputs], least=_LEAST_TAKEN_OVER)
            run = type(self).backend(graph, inputs)
            run(*copies[1])
        except Exception as error:
            # Any failure: a fault of the loss itself would come up again in the eager update.
            self.works = False
            warn(
                f"compile=True is ignored, since the update cannot be compiled here ({first_line(error)}). Install a "
                "C++ compiler such as g++ if it is missing; Discrete observations cannot be compiled at all. Otherwise "
                "pass compile=False."
            )
            run = update
        return _Graph(run, fields, [], inputs[-1])


def _with_floats(data: ReplayBufferSamples) -> ReplayBufferSamples:
    """A batch whose truth values are the floats that the network makes of them: compiled code reads them one by one."""
    if isinstance(data.observations, dict) or data.observations.dtype != th.bool:
        return data
    return data._replace(observations=data.observations.float(), next_observations=data.next_observations.float())


def _make_step(
    step: _Step,
    parameters: list[th.Tensor],
    gradients: dict[int, th.Tensor],
    terms: dict[str, th.Tensor],
    state: list[th.Tensor],
    numbers: list[th.Tensor],
) -> th.Tensor:
    """Move the parameters in place.

    :param step: Which, and how.
    :param parameters: All by which the loss is differentiated.
    :param gradients: By position among them.
    :param terms: The fields of :class:`LossTerms`.
    :param state: The optimiser's, three tensors for each parameter, and the running mean of a relative regulariser.
    :param numbers: Those of the step, and the two of a relative regulariser.
    :return: The norm of the values' gradient before clipping.
    """
    norms = [total_norm([gradients[i] for i in group.positions]) for group in step.groups]
    bound = numbers[2 * len(step.groups)]
    if step.clips:
        # Apart, so that the loss of h does not scale the step of q.
        for group, norm in zip(step.groups, norms, strict=True):
            for i in group.positions:
                gradients[i] = gradients[i] * clipping_factor(norm, bound)
    if step.relative_decay is not None:
        decay = RelativeDecay(state[-1], numbers[-2].to(state[-1]), numbers[-1])
        positions = step.groups[H_GROUP].positions
        decay.add(terms["feature_norm"], [gradients[i] for i in positions], [parameters[i] for i in positions])
    remaining = iter(state)
    for group, rate, weight_decay in zip(step.groups, numbers[0::2], numbers[1::2], strict=False):
        adam_step(
            [parameters[i] for i in group.positions],
            [gradients[i] for i in group.positions],
            [{name: next(remaining) for name in ADAM_STATE} for _ in group.positions],
            group.adam,
            rate,
            weight_decay,
            group.decoupled,
        )
    return norms[VALUE_GROUP]
