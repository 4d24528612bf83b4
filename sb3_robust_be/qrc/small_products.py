"""Products of small matrices in C++ of our own, which take less time than those of torch's library."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch as th
from torch import fx
from torch.fx.passes.shape_prop import ShapeProp

from sb3_robust_be.messages import first_line, warn

aten = th.ops.aten

SMALL = 2**17
"""Numbers of a matrix, as of 512 × 256 weights, beyond which the library is left to multiply"""
# Columns of the result: whole vector registers, also of the widest.
_COLUMNS = 16
# Numbers that are added up one after the other, so that rounding errors stay small.
_MOST_INNER = 2**10
# Rows of the result from which on it pays to copy a right matrix whose rows are not contiguous.
_MANY_ROWS = 16

_PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default)

Operation = Callable[[th.Tensor, th.Tensor, th.Tensor | None, bool], th.Tensor]


@functools.cache
def operation() -> Operation | None:
    """Compile ``sb3_robust_be::small_products``: some ten seconds, or none if torch has kept it on disk.

    :return: A function of ``left``, shape (members, rows, inner), ``right``, (members, inner, columns), ``bias``,
        (members, 1, columns), or ``None``, and of whether to replace negative numbers by 0, as a ReLU does. It gives
        ``left @ right + bias`` of float32 on a CPU, for multiples of 16 columns. ``None`` on Windows, whose compilers
        lack the types that it is written with, and, with a warning, wherever else it cannot be compiled: the library
        then multiplies.
    """
    if sys.platform == "win32":
        return None
    from torch._inductor.codecache import CppCodeCache

    try:
        # A multiplication and the addition of its result are one instruction only if asked for.
        CppCodeCache.load(Path(__file__).with_suffix(".cpp").read_text("utf-8"), extra_flags=("-ffp-contract=fast",))
    except Exception as error:  # Each platform's missing compiler has an error of its own.
        warn(
            "Products of small matrices take longer than they need, since their C++ code cannot be compiled here "
            f"({first_line(error)}). Install a newer g++ or clang."
        )
        return None
    th.library.register_fake("sb3_robust_be::small_products", _shaped)
    found: Operation = th.ops.sb3_robust_be.small_products.default
    return found


def _shaped(left: th.Tensor, right: th.Tensor, bias: th.Tensor | None, relu: bool) -> th.Tensor:
    return left.new_empty(*left.shape[:2], right.shape[2])


def take_over(graph: fx.GraphModule, inputs: list[th.Tensor], least: int = 0) -> None:
    """Compute the products of small matrices in a graph, with the ReLU that follows, by :func:`operation`.

    The library copies parts of every matrix first, which takes as long as multiplying small ones, and reads them with
    half of the width of some processors' registers.

    :param graph: From ``make_fx``; changed in place.
    :param inputs: Its arguments, which are overwritten with what it makes of them.
    :param least: Numbers that the right matrix of a product has at least.
    """
    ShapeProp(graph).propagate(*inputs)
    for node in [node for node in graph.graph.nodes if node.target in _PRODUCTS]:
        *bias, left, right = node.args
        if node.kwargs or not _pays([_known(x) for x in (*bias, left, right)], least):
            continue
        if (small := operation()) is None:
            return
        users = list(node.users)
        relu = len(users) == 1 and users[0].target is aten.relu.default
        last = users[0] if relu else node
        with graph.graph.inserting_before(node):
            tensors = [_with_members(graph.graph, x) for x in (left, right, *bias)]
            own = graph.graph.call_function(small, (*tensors, *([] if bias else [None]), relu))
            if len(_known(node).shape) == 2:
                own = graph.graph.call_function(aten.squeeze.dim, (own, 0))
        own.meta = last.meta
        last.replace_all_uses_with(own)
        graph.graph.erase_node(last)
        if relu:
            graph.graph.erase_node(node)
    graph.recompile()


def _known(node: Any) -> Any:
    """Shape, strides and kind of the tensor that a node gives."""
    return node.meta["tensor_meta"]


def _with_members(graph: fx.Graph, node: Any) -> fx.Node:
    """A bias of one axis, or a matrix, as that of a population of one."""
    for _ in range(3 - len(_known(node).shape)):
        node = graph.call_function(aten.unsqueeze.default, (node, 0))
    return node


def _pays(known: list[Any], least: int) -> bool:
    *bias, left, right = known
    (inner, columns), numbers = right.shape[-2:], right.shape[-2:].numel()
    if any(x.dtype != th.float32 for x in known) or not least <= numbers <= SMALL:
        return False
    if columns % _COLUMNS or inner > _MOST_INNER:
        return False
    rows = ((columns,), (1, columns)) if len(right.shape) == 2 else ((right.shape[0], 1, columns),)
    if any(tuple(x.shape) not in rows for x in bias):
        return False
    return right.stride[-1] == 1 or left.shape[-2] >= _MANY_ROWS
