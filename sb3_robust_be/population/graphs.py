"""Makes a function of tensors faster: traced once, simplified, and compiled if wanted."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch as th
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from sb3_robust_be.messages import first_line, warn
from sb3_robust_be.qrc.compiled import generate_code
from sb3_robust_be.qrc.products import CompileMode, convert_products, shape_of
from sb3_robust_be.qrc.small_products import take_over

aten = th.ops.aten

Function = Callable[..., Any]

# Columns that a vector register of 512 bits holds. A product with fewer takes as long as one with so many, or longer.
_WIDE = 16
# Inner numbers of a product that takes no longer written out.
_SHORT = 4

# Numbers of the weights that one row is multiplied with number by number: of 1024 × 128 that takes three times as long.
_MOST_IN_A_ROW = 2**16

# What gives the same numbers in another order or form.
_REARRANGING = (
    aten.permute.default,
    aten.transpose.int,
    aten.view.default,
    aten._unsafe_view.default,
    aten.as_strided.default,
    aten.clone.default,
    aten._to_copy.default,
)

_RESHAPING = (aten.expand.default, aten.view.default, aten._unsafe_view.default, aten.detach.default)


def trace(function: Function, example: Mapping[str, th.Tensor], compiled: CompileMode = False) -> Function:
    """Trace a function into a faster one, for inputs of these shapes only.

    ``torch.compile`` cannot take ``vmap(grad(…))``; ``make_fx`` first can. Half of what is left on a CPU is the time
    per operation, so operations without effect are taken out. Operations in place stay in place. On a CUDA device
    the graph's kernels are launched together (see :class:`Captured`).

    :param function: Of tensors by name; gives tensors. It must not look at their values.
    :param example: Its argument. The content is not changed.
    :param compiled: Whether torch's compiler makes one kernel of what it can, which takes 10 to 20 seconds and a C++
        compiler; without one, a warning is given and the graph is run as it is. ``"bfloat16"``: with large matrix
        products in bfloat16.
    :return: The graph, or ``function`` itself where it cannot be traced. It takes the tensors in the same order.
    """
    names = tuple(example)

    def of_tensors(*tensors: th.Tensor) -> Any:
        return function(dict(zip(names, tensors, strict=True)))

    run = _trace(of_tensors, list(example.values()), compiled)

    def of_named(tensors: Mapping[str, th.Tensor]) -> Any:
        with th.no_grad():
            return run(*tensors.values())

    return of_named


def _copy(x: th.Tensor) -> th.Tensor:
    """Copy a tensor with its strides, which compiled code relies on."""
    return th.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)


def _trace(function: Function, inputs: Sequence[th.Tensor], compiled: CompileMode) -> Function:
    with th.no_grad():
        try:
            graph = make_fx(function)(*map(_copy, inputs))
        except Exception as error:
            # Of user-defined networks anything can be raised, and what is wrong with them shows without tracing too.
            _warn("cannot be traced and runs several times slower", error, "Use layers without data-dependent control.")
            return function
        simplify(graph, cpu=not inputs[0].is_cuda, compiled=bool(compiled))
        if compiled == "bfloat16":
            convert_products(graph)
        run = _compile(graph, inputs) if compiled else graph
        if run is None:
            # As eager populations have it: what is simplified for a compiler is not for others.
            return _trace(function, inputs, compiled=False)
        return Captured(run, changed_by(graph, inputs)) if inputs[0].is_cuda else run


def _compile(graph: fx.GraphModule, inputs: Sequence[th.Tensor]) -> Function | None:
    try:
        if all(x.is_cpu for x in inputs):
            take_over(graph, list(map(_copy, inputs)))
        code = generate_code(graph, inputs)
        code(*map(_copy, inputs))
    except Exception as error:
        _warn("cannot be compiled here", error, "Install a C++ compiler such as g++, or pass compile=False.")
        return None
    return code


def changed_by(graph: Function, inputs: Sequence[th.Tensor]) -> list[int]:
    """Find the arguments that a function changes in place.

    :param graph: A function of tensors.
    :param inputs: Its arguments, which stay as they are.
    :return: The positions of those that it changes in place.
    """
    copies = [_copy(x) for x in inputs]
    before = [x._version for x in copies]
    graph(*copies)
    return [i for i, (x, version) in enumerate(zip(copies, before, strict=True)) if x._version != version]


class Captured:
    """A function of CUDA tensors whose kernels are recorded at the first call and launched together from then on.

    One by one, launching the two hundred kernels of an update takes longer than running them. A recording reads and
    writes the addresses of its first call: arguments from elsewhere are copied there, and if one that the function
    changes lies elsewhere, it is recorded anew. What it returns, and the arguments of the call that was recorded, are
    overwritten by the next one.

    :param run: Of tensors whose shapes and strides never change; gives tensors. It must not look at their values.
    :param changed: Positions of the arguments that it changes in place.
    """

    def __init__(self, run: Function, changed: Sequence[int]) -> None:
        self._run, self._changed = run, changed
        self._inputs: Sequence[th.Tensor] = ()
        self._outputs: Any = None
        self._recording: th.cuda.CUDAGraph | None = None

    def __call__(self, *inputs: th.Tensor) -> Any:
        """
        :param inputs: As of ``run``.
        :return: As of ``run``, valid until the next call.
        """
        stale = any(inputs[i].data_ptr() != self._inputs[i].data_ptr() for i in self._changed if self._inputs)
        if self._recording is None or stale:
            self._record(inputs)
        for known, given in zip(self._inputs, inputs, strict=True):
            if known.data_ptr() != given.data_ptr():
                known.copy_(given)
        with th.cuda.device(inputs[0].device):
            self._recording.replay()  # type: ignore[union-attr]
        return self._outputs

    def _record(self, inputs: Sequence[th.Tensor]) -> None:
        with th.cuda.device(inputs[0].device):
            # Libraries set themselves up at their first call, which cannot be recorded.
            stream = th.cuda.Stream()
            stream.wait_stream(th.cuda.current_stream())
            with th.cuda.stream(stream):
                self._run(*(_copy(x) if i in self._changed else x for i, x in enumerate(inputs)))
            th.cuda.current_stream().wait_stream(stream)
            self._inputs, self._recording = inputs, th.cuda.CUDAGraph()
            with th.cuda.graph(self._recording):
                self._outputs = self._run(*inputs)


def _warn(what: str, error: Exception, remedy: str) -> None:
    warn(f"The update of this population {what} ({first_line(error)}). {remedy}")


def simplify(graph: fx.GraphModule, cpu: bool = True, compiled: bool = False) -> None:
    """Take out operations without effect and add biases within the matrix products.

    :param graph: From ``make_fx``, whose nodes know their shapes; changed in place.
    :param cpu: Whether it runs on a CPU, whose convolutions are fastest with the channels last in memory.
    :param compiled: Whether a compiler follows, which makes one loop of neighbouring operations number by number. Then
        there is no product with few columns either.
    """
    for node in list(graph.graph.nodes):
        if node.op == "call_function" and (source := _same_as(node)) is not None:
            node.replace_all_uses_with(source)
            graph.graph.erase_node(node)
    changes: list[tuple[Callable[[fx.Graph, fx.Node], None], tuple[Any, ...]]] = [
        (_fuse_bias, (aten.add.Tensor,)),
    ]
    if compiled and cpu:
        changes.append((_write_out_row, (aten.bmm.default, aten.baddbmm.default)))
        changes.append((_store_normalised, (aten.native_group_norm.default,)))
    if compiled:
        # Not otherwise: turned around, the last digits of a member's products depend on how many members there are.
        changes.append((_transpose_narrow, (aten.bmm.default, aten.baddbmm.default)))
        changes.append((_write_out_short, (aten.bmm.default,)))
    if cpu:
        changes.append((_put_channels_last, (aten.convolution.default, aten.convolution_backward.default)))
    _merge_equal(graph.graph)
    for change, targets in changes:
        for node in list(graph.graph.nodes):
            if node.op == "call_function" and node.target in targets:
                change(graph.graph, node)
    _merge_equal(graph.graph)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _same_as(node: fx.Node) -> fx.Node | None:
    """The node whose value this one repeats."""
    source = node.args[0] if node.args else None
    if not isinstance(source, fx.Node):
        return None
    if node.target in _RESHAPING and shape_of(source) == shape_of(node):
        return source
    if node.target is aten.mul.Scalar and node.args[1] == 1:
        return source
    if node.target is aten.transpose.int and source.target is aten.transpose.int:
        return source.args[0] if set(source.args[1:]) == set(node.args[1:]) else None  # type: ignore[return-value]
    return None


def _write_out_short(graph: fx.Graph, node: fx.Node) -> None:
    """A product over few inner numbers is a sum of few terms, which the compiler joins with what comes next.

    The gradient that comes back from a network's last layer is such a product, over the actions.
    """
    left, right = node.args
    assert isinstance(left, fx.Node)
    assert isinstance(right, fx.Node)
    # The columns of a transposed matrix do not lie next to each other, and would be read one by one.
    if "tensor_meta" not in left.meta or right.target is aten.transpose.int or shape_of(left)[2] > _SHORT:
        return
    total: Any = None
    with graph.inserting_before(node):
        for k in range(shape_of(left)[2]):
            column = graph.call_function(aten.slice.Tensor, (left, 2, k, k + 1))
            row = graph.call_function(aten.slice.Tensor, (right, 1, k, k + 1))
            term = graph.call_function(aten.mul.Tensor, (column, row))
            total = term if total is None else graph.call_function(aten.add.Tensor, (total, term))
    total.meta = node.meta
    node.replace_all_uses_with(total)
    graph.erase_node(node)


def _write_out_row(graph: fx.Graph, node: fx.Node) -> None:
    """The product ``x Wᵀ`` of one row ``x`` as a sum of ``W`` times ``x``, which the compiler joins with what follows.

    The values at one observation are such products, which take 75 µs for 100 networks of 32-32 and 54 µs as sums.
    """
    *bias, row, right = node.args
    assert isinstance(right, fx.Node)
    turned = right.target is aten.transpose.int and {axis % 3 for axis in right.args[1:]} == {1, 2}  # type: ignore
    if not turned or shape_of(node)[1] != 1 or shape_of(right)[1:].numel() > _MOST_IN_A_ROW or node.kwargs:
        return
    with graph.inserting_before(node):
        terms = graph.call_function(aten.mul.Tensor, (right.args[0], row))
        sums = graph.call_function(aten.sum.dim_IntList, (terms, [2]))
        result = graph.call_function(aten.unsqueeze.default, (sums, 1))
        if bias:
            result = graph.call_function(aten.add.Tensor, (result, *bias))
    result.meta = node.meta
    node.replace_all_uses_with(result)
    graph.erase_node(node)


def _store_normalised(graph: fx.Graph, node: fx.Node) -> None:
    """Store what is normalised in the order of its gradient, which otherwise is read and written number by number.

    What comes out of a convolution has the channels last, and the compiler computes the rest of it wherever it is used.
    """
    source = node.args[0]
    while isinstance(source, fx.Node) and source.target in (aten.view.default, aten.permute.default):
        source = source.args[0]
    if not isinstance(source, fx.Node) or source.target is not aten.clone.default:
        return
    if source.kwargs.get("memory_format") is not th.contiguous_format:
        return
    strides = th.empty(shape_of(source), device="meta").stride()
    with graph.inserting_after(source):
        # Of what it looks at as it is, the compiler writes a copy.
        stored = graph.call_function(aten.as_strided.default, (source, list(shape_of(source)), list(strides)))
    stored.meta = source.meta
    source.replace_all_uses_with(stored, delete_user_cb=functools.partial(operator.is_not, stored))


def _merge_equal(graph: fx.Graph) -> None:
    """Compute what is asked for twice once, as what a convolution and its gradient are given."""
    found: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if getattr(node.target, "__name__", "").partition(".")[0].endswith("_"):
            return  # From the first change in place on, equal expressions may have other values.
        if node.target in _REARRANGING:
            first = found.setdefault((node.target, str(node.args), str(node.kwargs)), node)
            if first is not node:
                node.replace_all_uses_with(first)
                graph.erase_node(node)


def _put_channels_last(graph: fx.Graph, node: fx.Node) -> None:
    """Give a convolution of images, or its gradient, tensors with the channels last in memory.

    The kernels of all members are groups of one convolution, which takes 442 µs per member and MinAtar update on one
    core, and 48 µs with the channels last; the gradient of the kernels 318 and 55 µs.
    """
    tensors = [x for x in node.args if isinstance(x, fx.Node)]
    if any(len(shape_of(x)) != 4 for x in tensors):
        return
    with graph.inserting_before(node):
        for x in tensors:
            last = _channels_last(graph, x)
            last.meta = x.meta
            node.replace_input_with(x, last)
    # What comes next may be a view, which relies on the order in memory.
    outputs = [node] if node.target is aten.convolution.default else list(node.users)
    for output in outputs:
        with graph.inserting_after(output):
            result = graph.call_function(aten.clone.default, (output,), {"memory_format": th.contiguous_format})
        result.meta = output.meta
        output.replace_all_uses_with(result, delete_user_cb=functools.partial(operator.is_not, result))


def _channels_last(graph: fx.Graph, images: fx.Node) -> fx.Node:
    """The same images in another order in memory."""
    source = images.args[0]
    joins = images.target in (aten.view.default, aten._unsafe_view.default)
    if (
        not joins
        or not isinstance(source, fx.Node)
        or len(shape_of(source)) != 5
        or shape_of(source)[0] != shape_of(images)[0]
    ):
        return graph.call_function(aten.clone.default, (images,), {"memory_format": th.channels_last})
    # Of (batch, members, channels, height, width). Were the members' channels joined before, the compiler would divide
    # to find them again, number by number; it writes what `as_strided` looks at as it is.
    n, members, channels, height, width = shape_of(source)
    moved = graph.call_function(aten.permute.default, (source, [0, 3, 4, 1, 2]))
    copied = graph.call_function(aten.clone.default, (moved,), {"memory_format": th.contiguous_format})
    size, row = [n, members * channels, height, width], width * members * channels
    strides = [height * row, 1, row, members * channels]
    return graph.call_function(aten.as_strided.default, (copied, size, strides))


def _fuse_bias(graph: fx.Graph, node: fx.Node) -> None:
    """``bias + bmm(x, w)`` is one operation."""
    bias, product = node.args[:2]
    if node.kwargs or not isinstance(bias, fx.Node) or not isinstance(product, fx.Node):
        return
    if product.target is not aten.bmm.default or len(product.users) > 1:
        return
    with graph.inserting_before(node):
        fused = graph.call_function(aten.baddbmm.default, (bias, *product.args))
    fused.meta = node.meta
    node.replace_all_uses_with(fused)
    graph.erase_node(node)
    graph.erase_node(product)


def _transpose_narrow(graph: fx.Graph, node: fx.Node) -> None:
    """``xᵀ = (w'x)ᵀ`` is ``x'w``: of a product with few columns and many rows, a product with many columns.

    The gradient of a network's first layer, and the values of its last one, are such products: 4 observations or 2
    actions wide. For 30 networks of 64-64 that is 127 µs against 23 and 38 µs against 25 on one core.
    """
    rows, columns = shape_of(node)[1:]
    *bias, left, right = node.args
    if columns >= min(rows, _WIDE) or node.kwargs or any(len(shape_of(x)) != 3 for x in bias):
        return
    with graph.inserting_before(node):
        turned = [graph.call_function(aten.transpose.int, (x, -2, -1)) for x in (*bias, right, left)]
        product = graph.call_function(node.target, tuple(turned))  # type: ignore[arg-type]
        turned_back = graph.call_function(aten.transpose.int, (product, 1, 2))
        # What comes next may be a view, which relies on the order in memory.
        result = graph.call_function(aten.clone.default, (turned_back,), {"memory_format": th.contiguous_format})
    result.meta = node.meta
    node.replace_all_uses_with(result)
    graph.erase_node(node)
