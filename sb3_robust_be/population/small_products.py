"""Products of the members' small matrices in C++ of our own, which take less time than those of torch's library."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch as th
from torch import fx
from torch.fx.passes.shape_prop import ShapeProp

aten = th.ops.aten

SMALL = 2**16
"""Numbers of a member's matrix, as of 256 × 256 weights; for larger ones the library is as fast."""
# Columns of the result: whole vector registers, also of the widest.
_COLUMNS = 16
# Rows of the result from which on it pays to copy a right matrix whose rows are not contiguous.
_MANY_ROWS = 16

Operation = Callable[[th.Tensor, th.Tensor, th.Tensor | None, bool], th.Tensor]


@functools.cache
def operation() -> Operation | None:
    """Compile ``sb3_robust_be::small_products``: some ten seconds, or none if torch has kept it on disk.

    :return: A function of ``left``, shape (members, rows, inner), ``right``, (members, inner, columns), ``bias``,
        (members, 1, columns), or ``None``, and of whether to replace negative numbers by 0, as a ReLU does. It gives
        ``left @ right + bias`` of float32 on a CPU, for multiples of 16 columns. ``None`` where it cannot be compiled,
        as by a compiler without vector types, such as Microsoft's: the library then computes all products.
    """
    from torch._inductor.codecache import CppCodeCache

    try:
        # A multiplication and the addition of its result are one instruction only if asked for.
        CppCodeCache.load(Path(__file__).with_suffix(".cpp").read_text("utf-8"), extra_flags=("-ffp-contract=fast",))
    except Exception:  # Each platform's missing compiler has an error of its own.
        return None
    th.library.register_fake("sb3_robust_be::small_products", _shaped)
    found: Operation = th.ops.sb3_robust_be.small_products.default
    return found


def _shaped(left: th.Tensor, right: th.Tensor, bias: th.Tensor | None, relu: bool) -> th.Tensor:
    return left.new_empty(*left.shape[:2], right.shape[2])


def take_over(graph: fx.GraphModule, inputs: list[th.Tensor]) -> None:
    """Compute the products of small matrices in a graph, with the ReLU that follows, by :func:`operation`.

    The library copies parts of every matrix first, which takes as long as multiplying small ones, and reads them with
    half of the width of some processors' registers.

    :param graph: From ``make_fx``; changed in place.
    :param inputs: Its arguments, which are overwritten with what it makes of them.
    """
    ShapeProp(graph).propagate(*inputs)
    products = [node for node in graph.graph.nodes if node.target in (aten.bmm.default, aten.baddbmm.default)]
    for node in products:
        *bias, left, right = node.args
        if node.kwargs or not _pays(left.meta["tensor_meta"], right.meta["tensor_meta"]):
            continue
        if (small := operation()) is None:
            return
        users = list(node.users)
        relu = len(users) == 1 and users[0].target is aten.relu.default
        last = users[0] if relu else node
        with graph.graph.inserting_before(node):
            own = graph.graph.call_function(small, (left, right, bias[0] if bias else None, relu))
        own.meta = last.meta
        last.replace_all_uses_with(own)
        graph.graph.erase_node(last)
        if relu:
            graph.graph.erase_node(node)
    graph.recompile()


def _pays(left: Any, right: Any) -> bool:
    if any(x.dtype != th.float32 for x in (left, right)) or right.shape[2] % _COLUMNS:
        return False
    copied = right.stride[2] != 1
    return right.shape[1:].numel() <= SMALL and (not copied or left.shape[1] >= _MANY_ROWS)
