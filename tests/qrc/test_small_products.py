"""Products of many small matrices in C++: their values, and which products of a graph they take over."""

from __future__ import annotations

import itertools

import pytest
import torch as th
from torch._inductor.codecache import CppCodeCache
from torch.fx.experimental.proxy_tensor import make_fx

from sb3_robust_be import QRC
from sb3_robust_be.population import Population, graphs
from sb3_robust_be.population.graphs import simplify
from sb3_robust_be.qrc import small_products
from sb3_robust_be.qrc.compiled import CompiledUpdate
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


@pytest.mark.parametrize("members", [1, 9])
def test_threads_change_no_number(product, members):
    left, right = th.randn(members, 64, 256, generator=GENERATOR), th.randn(members, 256, 112, generator=GENERATOR)
    bias = th.randn(members, 1, 112, generator=GENERATOR)
    before = th.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            th.set_num_threads(threads)
            results.append(product(left, turned(right), bias, True))
    finally:
        th.set_num_threads(before)
    assert th.equal(results[0], results[1])
    assert th.equal(results[0], results[2])


@pytest.mark.parametrize(("members", "rows", "inner"), [(0, 8, 4), (2, 0, 4), (2, 8, 0)])
def test_nothing_to_multiply(product, members, rows, inner):
    bias = th.full((members, 1, 32), 2.0)
    result = product(th.ones(members, rows, inner), th.ones(members, inner, 32), bias, False)
    assert result.shape == (members, rows, 32)
    assert (result == 2).all()


@pytest.mark.parametrize(
    ("right", "bias", "message"),
    [
        ((2, 3, 15), None, "multiple of 16 columns and has 15"),
        ((1, 3, 16), None, "do not fit"),
        ((2, 4, 16), None, "do not fit"),
        ((2, 3, 16), (1, 1, 16), "a row for every member"),
    ],
)
def test_what_does_not_fit_is_refused(product, right, bias, message):
    with pytest.raises(RuntimeError, match=message):
        product(th.ones(2, 2, 3), th.ones(*right), None if bias is None else th.ones(*bias), False)


def layer(x, w, b):
    return th.baddbmm(b, x, w.transpose(1, 2)).relu()


TAKEN_OVER = {
    "a layer": (layer, [(3, 16, 4), (3, 32, 4), (3, 1, 32)], 1),
    "of few rows, whose right matrix would be copied": (layer, [(3, 15, 4), (3, 32, 4), (3, 1, 32)], 0),
    "of few rows, whose right matrix is not copied": (th.bmm, [(3, 2, 4), (3, 4, 32)], 1),
    "with other numbers of columns": (th.bmm, [(3, 20, 4), (3, 4, 31)], 0),
    "with the largest matrix": (th.bmm, [(1, 20, SMALL // 256), (1, SMALL // 256, 256)], 1),
    "with a larger matrix": (th.bmm, [(1, 20, SMALL // 256 + 1), (1, SMALL // 256 + 1, 256)], 0),
    "that is used twice": (lambda x, w: (y := th.bmm(x, w)).relu() + y, [(3, 20, 4), (3, 4, 32)], 1),
    "of one agent": (lambda x, w, b: th.addmm(b, x, w.t()).relu(), [(20, 4), (32, 4), (32,)], 1),
    "of one agent, without a bias": (th.mm, [(20, 4), (4, 32)], 1),
    "of one agent, with a row as bias": (lambda x, w, b: th.addmm(b, x, w), [(20, 4), (4, 32), (1, 32)], 1),
    "with a column as bias": (lambda x, w, b: th.addmm(b, x, w), [(20, 4), (4, 32), (20, 1)], 0),
    "with one bias for all members": (lambda x, w, b: th.baddbmm(b, x, w), [(3, 20, 4), (3, 4, 32), (32,)], 0),
    "with one row for all members": (lambda x, w, b: th.baddbmm(b, x, w), [(3, 20, 4), (3, 4, 32), (1, 32)], 0),
    "with one matrix for all members": (lambda x, w, b: th.baddbmm(b, x, w), [(3, 20, 4), (3, 4, 32), (1, 1, 32)], 0),
    "with the longest sums": (th.bmm, [(1, 20, 1024), (1, 1024, 16)], 1),
    "with longer sums": (th.bmm, [(1, 20, 1025), (1, 1025, 16)], 0),
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
    with pytest.warns(UserWarning, match="Products of small matrices take longer .*no compiler"):
        take_over(graph, inputs)
    assert aten.bmm.default in [node.target for node in graph.graph.nodes]


@pytest.mark.usefixtures("product")
@pytest.mark.parametrize(("members", "units", "taken_over"), [(2, 64, True), (None, 256, True), (None, 64, False)])
def test_updates_use_them(members, units, taken_over, monkeypatch):
    """Those of a population, and the large ones of one agent."""
    compiled = []

    def compile_graph(graph, inputs):
        compiled.append([node.target for node in graph.graph.nodes])
        return graph

    monkeypatch.setattr(graphs, "generate_code", compile_graph)
    monkeypatch.setattr(CompiledUpdate, "backend", staticmethod(compile_graph))
    kwargs = {"policy_kwargs": {"net_arch": [units, units]}, "learning_starts": 32, "train_freq": 1, "compile": True}
    if members is None:
        QRC("MlpPolicy", "CartPole-v1", **kwargs).learn(35)
    else:
        Population("qrc", "MlpPolicy", "CartPole-v1", range(members), verbose=0, **kwargs).learn(35)
    assert compiled
    assert any(operation() in targets for targets in compiled) == taken_over


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
