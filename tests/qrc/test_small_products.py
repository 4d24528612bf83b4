"""Products of many small matrices in C++: their values, and which products of a graph they take over."""

from __future__ import annotations

import itertools

import pytest
import torch as th
from torch._inductor.codecache import CppCodeCache
from torch.fx.experimental.proxy_tensor import make_fx

from sb3_robust_be.population.graphs import simplify
from sb3_robust_be.qrc import small_products
from sb3_robust_be.qrc.small_products import SMALL, operation, take_over

aten = th.ops.aten
GENERATOR = th.Generator().manual_seed(0)


def whole_numbers(*shape):
    """From −4 to 4: their products and sums are exact."""
    return th.randint(-4, 5, shape, generator=GENERATOR).float()


def turned(x):
    """The same numbers, with the columns contiguous."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


@pytest.fixture(scope="module")
def product():
    found = operation()
    assert found is not None, "these tests need a C++ compiler with vector types, such as g++"
    return found


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 9, 11, 64])
@pytest.mark.parametrize("inner", [1, 3, 4, 6, 32])
@pytest.mark.parametrize("columns", [16, 32, 48])
def test_values(product, rows, inner, columns):
    """Every number of rows and columns that is left over after whole tiles, in every layout."""
    left, right, bias = whole_numbers(3, rows, inner), whole_numbers(3, inner, columns), whole_numbers(3, 1, columns)
    apart = whole_numbers(3, 1, 2 * columns)
    apart[:, :, ::2] = bias
    expected = th.bmm(left, right)
    for a, b in itertools.product((left, turned(left)), (right, turned(right))):
        assert th.equal(product(a, b, None, False), expected)
        assert th.equal(product(a, b, bias, False), expected + bias)
        assert th.equal(product(a, b, apart[:, :, ::2], False), expected + bias)
        assert th.equal(product(a, b, bias, True), (expected + bias).relu())
    shared = left[:1].expand(3, rows, inner)
    assert th.equal(product(shared, right, None, False), th.bmm(shared, right))
    assert th.equal(product(left, right[:1].expand(3, inner, columns), None, False), th.matmul(left, right[0]))


def test_one_product_by_hand(product):
    left = th.tensor([[[1.0, 2.0], [-3.0, 0.0]]])
    right = th.cat([th.tensor([[[1.0, 10.0], [100.0, -1000.0]]]), th.zeros(1, 2, 14)], dim=2)
    bias = th.full((1, 1, 16), 0.5)
    result = product(left, right, bias, False)
    assert result[0, :, :3].tolist() == [[201.5, -1989.5, 0.5], [-2.5, -29.5, 0.5]]
    assert product(left, right, bias, True)[0, :, :3].tolist() == [[201.5, 0.0, 0.5], [0.0, 0.0, 0.5]]


def test_sums_are_rounded_as_others_are(product):
    left, right = (th.randn(4, 32, 32, generator=GENERATOR) for _ in range(2))
    exact = th.bmm(left.double(), right.double())
    th.testing.assert_close(product(left, right, None, False).double(), exact, rtol=1e-5, atol=1e-5)


def test_what_is_not_finite_stays_so(product):
    """A member has diverged when its values are no longer finite: a ReLU must not hide it."""
    left, right = th.ones(3, 9, 4), th.ones(3, 4, 32)
    right[0, 1, 3], right[1, 1, 3], right[2, 1, 3] = th.nan, th.inf, -th.inf
    for relu in (False, True):
        first, second, third = product(left, right, None, relu)
        assert first[:, 3].isnan().all()
        assert (second[:, 3] == th.inf).all()
        assert (third[:, 3] == (0.0 if relu else -th.inf)).all()
        others = th.stack([first, second, third])[:, :, [*range(3), *range(4, 32)]]
        assert (others == 4).all()


def test_a_members_numbers_do_not_depend_on_the_others(product):
    left, right = th.randn(5, 33, 17, generator=GENERATOR), th.randn(5, 17, 48, generator=GENERATOR)
    together = product(left, right, None, False)
    assert th.equal(together[3:4], product(left[3:4], right[3:4], None, False))


def test_other_numbers_of_columns_are_refused(product):
    with pytest.raises(RuntimeError, match="multiple of 16 columns and has 15"):
        product(th.ones(1, 2, 3), th.ones(1, 3, 15), None, False)


def layer(x, w, b):
    return th.baddbmm(b, x, w.transpose(1, 2)).relu()


TAKEN_OVER = {
    "a layer": (layer, [(3, 16, 4), (3, 32, 4), (3, 1, 32)], 1),
    "of few rows, whose right matrix would be copied": (layer, [(3, 15, 4), (3, 32, 4), (3, 1, 32)], 0),
    "of few rows, whose right matrix is not copied": (th.bmm, [(3, 2, 4), (3, 4, 32)], 1),
    "with other numbers of columns": (th.bmm, [(3, 20, 4), (3, 4, 31)], 0),
    "with the largest matrix": (th.bmm, [(1, 20, SMALL // 16), (1, SMALL // 16, 16)], 1),
    "with a larger matrix": (th.bmm, [(1, 20, SMALL // 16 + 1), (1, SMALL // 16 + 1, 16)], 0),
    "that is used twice": (lambda x, w: (y := th.bmm(x, w)).relu() + y, [(3, 20, 4), (3, 4, 32)], 1),
    "of one agent": (lambda x, w, b: th.addmm(b, x, w.t()).relu(), [(20, 4), (32, 4), (32,)], 1),
    "of one agent, without a bias": (th.mm, [(20, 4), (4, 32)], 1),
    "of one agent, with a row as bias": (lambda x, w, b: th.addmm(b, x, w), [(20, 4), (4, 32), (1, 32)], 1),
    "with a column as bias": (lambda x, w, b: th.addmm(b, x, w), [(20, 4), (4, 32), (20, 1)], 0),
    "with a bias for every number": (lambda x, w, b: th.baddbmm(b, x, w), [(3, 20, 4), (3, 4, 32), (3, 20, 32)], 0),
    "scaled": (lambda x, w, b: th.baddbmm(b, x, w, alpha=2), [(3, 20, 4), (3, 4, 32), (3, 1, 32)], 0),
}


@pytest.mark.usefixtures("product")
@pytest.mark.parametrize("name", TAKEN_OVER)
def test_which_products_are_taken_over(name):
    function, shapes, expected = TAKEN_OVER[name]
    inputs = [whole_numbers(*shape) for shape in shapes]
    graph = make_fx(function)(*inputs)
    take_over(graph, [x.clone() for x in inputs])
    targets = [node.target for node in graph.graph.nodes]
    assert targets.count(operation()) == expected
    assert (aten.relu.default in targets) == ("twice" in name or (function is layer and not expected))
    take_over(other := make_fx(function)(*inputs), [x.clone() for x in inputs], least=SMALL + 1)
    assert operation() not in [node.target for node in other.graph.nodes]
    assert th.equal(graph(*inputs), function(*inputs))


@pytest.mark.usefixtures("product")
def test_other_precisions_are_left_alone():
    graph = make_fx(th.bmm)(th.ones(2, 20, 4).double(), th.ones(2, 4, 32).double())
    take_over(graph, [th.ones(2, 20, 4).double(), th.ones(2, 4, 32).double()])
    assert operation() not in [node.target for node in graph.graph.nodes]


def test_without_a_compiler_for_it_the_library_multiplies(monkeypatch):
    def load(*_, **__):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(CppCodeCache, "load", load)
    monkeypatch.setattr(small_products, "operation", operation.__wrapped__)
    inputs = [whole_numbers(3, 20, 4), whole_numbers(3, 4, 32)]
    graph = make_fx(th.bmm)(*inputs)
    take_over(graph, inputs)
    assert aten.bmm.default in [node.target for node in graph.graph.nodes]


@pytest.mark.parametrize(("rows", "size", "written_out"), [(1, 8, True), (2, 8, False), (1, 257, False)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_the_product_of_one_row_is_written_out_for_the_compiler(rows, size, written_out, with_bias):
    """As long as the weights are few: 257 × 257 are more than 256 × 256."""

    def function(x, w, b):
        return th.baddbmm(b, x, w.transpose(1, 2)) if with_bias else th.bmm(x, w.transpose(1, 2))

    inputs = [whole_numbers(3, rows, size), whole_numbers(3, size, size), whole_numbers(3, 1, size)]
    graph = make_fx(function)(*inputs)
    simplify(graph, compiled=True)
    products = {aten.bmm.default, aten.baddbmm.default}
    assert products.isdisjoint(node.target for node in graph.graph.nodes) == written_out
    assert th.equal(graph(*inputs), function(*inputs))
