"""Adam, graphs, uniform numbers and one-hot encodings, each against an independent computation."""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from populations import every_device, make
from stable_baselines3.common.preprocessing import preprocess_obs
from torch import fx, nn
from torch.func import functional_call, grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map

from sb3_robust_be.population.encoding import Encoding
from sb3_robust_be.population.graphs import changed_by, simplify, trace
from sb3_robust_be.population.randomness import BLOCK, Uniforms
from sb3_robust_be.population.stacked import Layout
from sb3_robust_be.qrc.adam import AdamSettings, adam_direction

aten = th.ops.aten

# Adam


@pytest.mark.parametrize("kwargs", [{}, {"betas": (0.8, 0.95), "eps": 1e-3}])
def test_adam_is_torchs(kwargs):
    """Three members with a rate and a weight decay each, gradients of many sizes, 20 steps."""
    generator = th.Generator().manual_seed(0)
    start, settings = th.randn(3, 7, generator=generator, dtype=th.float64), [(0.1, 0.0), (1e-3, 0.5), (0.02, 1.0)]
    singles = [start[i].clone().requires_grad_() for i in range(3)]
    optimizers = [
        th.optim.Adam([x], lr=rate, weight_decay=decay, **kwargs)
        for x, (rate, decay) in zip(singles, settings, strict=True)
    ]
    shared = AdamSettings.of(th.optim.Adam(singles, **kwargs).param_groups[0])
    rows, mean, square = start.clone(), th.zeros_like(start), th.zeros_like(start)
    rates, decays = (rows.new_tensor(column)[:, None] for column in zip(*settings, strict=True))
    for step in range(1, 21):
        gradient = th.randn(3, 7, generator=generator, dtype=th.float64) * 10.0 ** th.arange(-6, 1)
        for single, optimizer, own in zip(singles, optimizers, gradient, strict=True):
            single.grad = own.clone()
            optimizer.step()
        scale, eps = shared.scales(step)
        direction = adam_direction(gradient + decays * rows, mean, square, shared, rows.new_tensor(eps))
        rows -= scale * rates * direction
        th.testing.assert_close(rows, th.stack(singles).detach(), rtol=1e-12, atol=1e-12)
    for i, (single, optimizer) in enumerate(zip(singles, optimizers, strict=True)):
        th.testing.assert_close(mean[i], optimizer.state[single]["exp_avg"], rtol=1e-12, atol=1e-12)
        th.testing.assert_close(square[i], optimizer.state[single]["exp_avg_sq"], rtol=1e-12, atol=1e-12)
    assert (start - rows).abs().min() > 1e-5


# Graphs


NETWORK = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


def gradients(inputs):
    """Of many networks' losses, and a change in place."""

    def loss(parameters, x, y):
        return ((functional_call(NETWORK, parameters, (x,)) - y) ** 2).mean()

    parameters = {name: inputs[name] for name, _ in NETWORK.named_parameters()}
    found = vmap(grad(loss))(parameters, inputs["x"], inputs["y"])
    inputs["0.bias"].sub_(0.1 * found["0.bias"])
    return found


def inputs_from(seed):
    generator = th.Generator().manual_seed(seed)
    parameters = {n: th.randn(4, *p.shape, generator=generator) for n, p in NETWORK.named_parameters()}
    return {
        **parameters,
        "x": th.randn(4, 6, 3, generator=generator),
        "y": th.randn(4, 6, 2, generator=generator),
    }


@every_device
def test_a_graph_is_its_function(device):
    def inputs_at(seed):
        return tree_map(lambda x: x.to(device), inputs_from(seed))

    example = inputs_at(0)
    graph = trace(gradients, example)
    th.testing.assert_close(example, inputs_at(0), rtol=0, atol=0)
    for seed in (0, 1):
        expected, found = inputs_at(seed), inputs_at(seed)
        for _ in range(2):
            th.testing.assert_close(graph(found), gradients(expected), rtol=1e-5, atol=1e-6)
            th.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
            # Data that come to lie elsewhere beside parameters that stay.
            found["x"], expected["x"] = found["x"] + 1, expected["x"] + 1
    assert not th.equal(found["0.bias"], inputs_at(1)["0.bias"]), "changed in place"


def test_what_a_graph_changes_in_place_is_known():
    inputs = [th.ones(2), th.zeros(2), th.ones(2)]
    assert changed_by(lambda x, y, z: z.mul_(x + y.sin_()), inputs) == [1, 2]
    assert [x.tolist() for x in inputs] == [[1, 1], [0, 0], [1, 1]]


def test_graphs_take_tensors_as_they_lie_in_memory():
    example = {"x": th.arange(12.0).reshape(3, 4).T}
    graph = trace(lambda i: i["x"] @ i["x"].T, example)
    th.testing.assert_close(graph({"x": example["x"] + 1}), (example["x"] + 1) @ (example["x"] + 1).T)


def test_functions_that_cannot_be_traced_work_after_one_warning():
    def looks(inputs):
        return inputs["x"] if inputs["x"].sum() > 0 else -inputs["x"]

    with pytest.warns(UserWarning, match=r"cannot be traced and runs several times slower.*data-dependent") as caught:
        run = trace(looks, {"x": th.ones(2)})
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run({"x": -th.ones(2)}).tolist() == [1.0, 1.0]
        assert run({"x": th.ones(2)}).tolist() == [1.0, 1.0]


def traced(function, *inputs):
    return make_fx(function)(*inputs)


def count(graph):
    return sum(node.op == "call_function" for node in graph.graph.nodes)


X, W, B = th.arange(24.0).reshape(2, 3, 4), th.ones(2, 4, 5) / 3, th.full((2, 1, 5), 0.7)
# By name: a function, and how many of its operations are left.
SIMPLIFIED = {
    "expand": (lambda x, w, b: aten.expand.default(x, x.shape).exp(), 1),
    "view": (lambda x, w, b: aten.view.default(x, x.shape).exp(), 1),
    "detach": (lambda x, w, b: aten.detach.default(x).exp(), 1),
    "once": (lambda x, w, b: aten.mul.Scalar(x, 1).exp(), 1),
    "twice_transposed": (lambda x, w, b: x.transpose(1, 2).transpose(2, 1).exp(), 1),
    "bias": (lambda x, w, b: b + th.bmm(x, w), 1),
    "chain": (lambda x, w, b: aten.detach.default(aten.mul.Scalar(aten.view.default(x, x.shape), 1)).exp(), 1),
    "unused": (lambda x, w, b: (x.exp(), x.cos())[0], 1),
    # What must stay as it is:
    "larger": (lambda x, w, b: b.expand(2, 3, 5).exp(), 2),
    "reshaped": (lambda x, w, b: x.view(6, 4).exp(), 2),
    "doubled": (lambda x, w, b: aten.mul.Scalar(x, 2).exp(), 2),
    "transposed": (lambda x, w, b: x.transpose(1, 2).transpose(0, 1).exp(), 3),
    "product_used_twice": (lambda x, w, b: (b + (p := th.bmm(x, w))) * p, 3),
    "scaled_bias": (lambda x, w, b: th.add(b, th.bmm(x, w), alpha=2), 2),
    "number": (lambda x, w, b: 1.5 + th.bmm(x, w), 2),
    "in_place": (lambda x, w, b: x.clone().view(x.shape).add_(1), 2),
    "few_columns": (lambda x, w, b: th.bmm(x, w[:, :, :2]).exp(), 3),
    "as_many_rows_as_columns": (lambda x, w, b: th.bmm(x[:, :, :3], x[:, :, :3]), 3),
}


@pytest.mark.parametrize("name", SIMPLIFIED)
def test_simplifying_changes_no_value(name):
    function, left = SIMPLIFIED[name]
    graph = traced(function, X, W, B)
    before = count(graph)
    simplify(graph)
    th.testing.assert_close(graph(X.clone(), W, B), function(X.clone(), W, B), rtol=1e-6, atol=1e-6)
    assert count(graph) == left <= before


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("rows", "columns", "turned"), [(3, 2, True), (2, 3, False), (20, 15, True), (20, 16, False)])
def test_a_product_has_no_few_columns_where_it_can_have_many(rows, columns, turned, with_bias):
    """15 columns, one less than a vector register holds, are few, unless the rows are fewer still."""
    x, w, b = th.rand(2, rows, 5), th.rand(2, 5, columns), th.rand(2, 1, columns)

    def function(x, w, b):
        return (b + th.bmm(x, w) if with_bias else th.bmm(x, w)).view(2, -1)

    graph = traced(function, x, w, b)
    simplify(graph, compiled=True)
    products = [n for n in graph.graph.nodes if n.target in (aten.bmm.default, aten.baddbmm.default)]
    assert [n.args[-2].target is aten.transpose.int for n in products] == [turned]
    th.testing.assert_close(graph(x, w, b), function(x, w, b))


def test_a_bias_that_members_share_is_not_turned():
    """A user's layer may have one."""
    x, w, b = th.rand(3, 20, 5), th.rand(3, 5, 2), th.rand(2)
    graph = traced(lambda x, w, b: b + th.bmm(x, w), x, w, b)
    simplify(graph, compiled=True)
    th.testing.assert_close(graph(x, w, b), b + th.bmm(x, w))


CONVOLUTIONS = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 2), nn.ReLU(), nn.Flatten())


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("compiled", [False, True])
def test_convolutions_have_the_channels_last(members, compiled):
    """Two layers, so that one has a gradient at its input too."""
    shapes = [p.shape for p in CONVOLUTIONS.parameters()]
    generator = th.Generator().manual_seed(0)
    parameters = [th.randn(members, *shape, generator=generator) for shape in shapes]
    images = th.randn(members, 5, 2, 6, 6, generator=generator)

    def function(images, *tensors):
        def loss(named, x):
            return (functional_call(CONVOLUTIONS, named, (x,)) ** 2).sum()

        named = dict(zip((name for name, _ in CONVOLUTIONS.named_parameters()), tensors, strict=True))
        return vmap(grad(loss))(named, images)

    graph = traced(function, images, *parameters)
    simplify(graph, compiled=compiled)
    given = {aten.convolution.default: [], aten.convolution_backward.default: []}

    class Watch(fx.Interpreter):
        def call_function(self, target, args, kwargs):
            if target in given:
                given[target] += [x for x in args if isinstance(x, th.Tensor)]
            return super().call_function(target, args, kwargs)

    expected = function(images, *parameters)
    th.testing.assert_close(Watch(graph).run(images, *parameters), expected, rtol=1e-4, atol=1e-4)
    assert [len(tensors) for tensors in given.values()] == [4, 6]
    assert all(x.is_contiguous(memory_format=th.channels_last) for tensors in given.values() for x in tensors)
    kernels = {id(x) for x in given[aten.convolution.default]}
    assert kernels < {id(x) for x in given[aten.convolution_backward.default]}, "made once for both"


NORMALISED = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(1, 4), nn.ReLU(), nn.Flatten())


@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_normalised_is_stored_for_the_compiler(compiled):
    """The compiler writes what ``as_strided`` looks at, and computes a copy wherever it is used."""
    generator = th.Generator().manual_seed(0)
    parameters = [th.randn(3, *p.shape, generator=generator) for p in NORMALISED.parameters()]
    images = th.randn(3, 5, 2, 6, 6, generator=generator)

    def function(images, *tensors):
        def loss(named, x):
            return (functional_call(NORMALISED, named, (x,)) ** 3).sum()

        named = dict(zip((name for name, _ in NORMALISED.named_parameters()), tensors, strict=True))
        return vmap(grad(loss))(named, images)

    graph = traced(function, images, *parameters)
    simplify(graph, compiled=compiled)
    (norm,) = [node for node in graph.graph.nodes if node.target is aten.native_group_norm.default]
    sources, stored = [norm], 0
    while sources:
        node = sources.pop()
        if node.target is aten.convolution.default:
            break
        stored += node.target is aten.as_strided.default
        sources += node.all_input_nodes[:1]
    assert stored == (1 if compiled else 0)
    th.testing.assert_close(graph(images, *parameters), function(images, *parameters), rtol=1e-4, atol=1e-4)


def test_what_is_computed_twice_is_computed_once_until_something_changes():
    def function(x, y):
        first, second = x.permute(1, 0).clone() + 1, x.permute(1, 0).clone() + 2
        y.add_(1)
        return first, second, y.permute(1, 0).clone(), y.permute(1, 0).clone()

    graph = traced(function, th.rand(2, 3), th.rand(2, 3))
    simplify(graph)
    copies = [node for node in graph.graph.nodes if node.target is aten.clone.default]
    assert len(copies) == 3
    x, y = th.rand(2, 3), th.rand(2, 3)
    th.testing.assert_close(graph(x, y.clone()), function(x, y.clone()))


@pytest.mark.parametrize(("inner", "written_out"), [(1, True), (4, True), (5, False)])
def test_a_product_over_few_inner_numbers_is_written_out_for_the_compiler(inner, written_out):
    left, right = th.rand(3, 20, inner), th.rand(3, inner, 17)
    for compiled in (False, True):
        graph = traced(th.bmm, left, right)
        simplify(graph, compiled=compiled)
        products = [node for node in graph.graph.nodes if node.target is aten.bmm.default]
        assert (not products) == (compiled and written_out)
        th.testing.assert_close(graph(left, right), th.bmm(left, right))
    graph = traced(lambda x, y: th.bmm(x, y.transpose(1, 2)), left, right.transpose(1, 2).contiguous())
    simplify(graph, compiled=True)
    assert any(node.target is aten.bmm.default for node in graph.graph.nodes), "its columns do not lie together"


def test_the_gradient_of_a_network_becomes_simpler():
    inputs = inputs_from(0)

    def function(*tensors):
        return gradients(dict(zip(inputs, tensors, strict=True)))

    graph = traced(function, *(x.clone() for x in inputs.values()))
    before = count(graph)
    simplify(graph)
    assert count(graph) < 0.8 * before
    th.testing.assert_close(
        graph(*(x.clone() for x in inputs.values())), function(*(x.clone() for x in inputs.values()))
    )


# Where parameters lie


@pytest.mark.parametrize("apart", [False, True])
def test_parts_are_views_of_the_rows_that_named_tensors_are_made_of(apart):
    (model,) = make("qrc", [0])._models
    layout = Layout(model.policy, apart)
    named = {n: p for n, p in model.policy.named_parameters() if n.startswith("q_net.")}
    assert [n for n in layout.names if ".h_net." in n] == layout.names[-2:], "the secondary head comes last"
    assert set(layout.names) == set(named)
    rows = th.arange(2.0 * layout.n_parameters).reshape(2, -1)
    parts = layout.cut(rows)
    assert len(parts) == (len(named) if apart else 2)
    assert [part.secondary for part in layout.parts] == [".h_net." in part.names[0] for part in layout.parts]
    found = layout.named(parts)
    assert list(found) == layout.names
    start = 0
    for name, x in found.items():
        # One after the other, in C order.
        expected = start + th.arange(named[name].numel(), dtype=th.float32)
        assert x.shape == (2, *named[name].shape)
        th.testing.assert_close(x[0].flatten(), expected)
        start += named[name].numel()
    assert list(layout.split(rows, target=True)) == [n.replace("q_net.", "q_net_target.", 1) for n in layout.names]
    th.testing.assert_close(th.cat(layout.join(found), dim=1), rows)
    parts[0].zero_()
    assert (rows[:, layout.parts[0].columns] == 0).all()
    assert (rows[:, layout.parts[1].columns] > 0).all()


# Uniform numbers


def test_numbers_depend_on_seed_and_step_alone():
    alone, among, wider = Uniforms([5], 4), Uniforms([9, 5, 0, 5], 4), Uniforms([5], 6)
    steps = [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 2, 1]
    seen = {step: alone.at(step)[0] for step in steps}
    for step in reversed(steps):
        found = among.at(step)
        assert found.shape == (4, 4)
        np.testing.assert_array_equal(found[1], seen[step])
        np.testing.assert_array_equal(found[1], found[3])
        block, row = divmod(step, BLOCK)
        np.testing.assert_array_equal(seen[step], np.random.default_rng([5, block]).random((BLOCK, 4))[row])
    assert wider.at(0).shape == (1, 6)


@pytest.mark.parametrize("seeds", [[0, 5, 9], [9, 5, 0, 5]])
def test_nobody_changes_the_numbers_of_a_step(seeds):
    """Seeds in order are shown as they are drawn, others in a copy."""
    uniforms = Uniforms(seeds, 4)
    numbers = uniforms.at(3)
    np.testing.assert_array_equal(numbers, [Uniforms([seed], 4).at(3)[0] for seed in seeds])
    with contextlib.suppress(ValueError):
        numbers[:] = 0
    assert uniforms.at(3).all()


def test_numbers_are_uniform_and_none_comes_twice():
    uniforms = Uniforms(range(6), 5)
    numbers = np.stack([uniforms.at(step) for step in range(3 * BLOCK)])
    assert len(np.unique(numbers)) == numbers.size
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert numbers.mean() == pytest.approx(0.5, abs=0.02)
    assert numbers.var() == pytest.approx(1 / 12, abs=0.005)


# One-hot encodings

ENCODED = {
    "discrete": spaces.Discrete(5),
    "multi_discrete": spaces.MultiDiscrete([2, 4, 3]),
    "box": spaces.Box(-1.0, 1.0, (2,), np.float32),
    "truth_values": spaces.Box(0, 1, (3, 3, 2), bool),
    "dict": spaces.Dict({"a": spaces.Discrete(3), "b": spaces.MultiDiscrete([2, 2]), "c": spaces.MultiBinary(2)}),
}


@pytest.mark.parametrize("space", ENCODED.values(), ids=ENCODED)
def test_observations_are_encoded_as_sb3_does(space):
    """For batches of members, of members and transitions, and of next observations alike."""
    space.seed(0)
    samples = [space.sample() for _ in range(6)]
    encoding = Encoding(space)
    parts = {"": space} if not isinstance(space, spaces.Dict) else {f"/{k}": v for k, v in space.items()}
    for suffix, part in parts.items():
        raw = th.as_tensor(np.stack([s[suffix[1:]] if suffix else s for s in samples]))
        expected = preprocess_obs(raw, part)
        names = [f"observations{suffix}", f"next_observations{suffix}"]
        for name in names:
            found = encoding({name: raw, "rewards": raw})
            th.testing.assert_close(found[name].float(), expected, rtol=0, atol=0)
            assert found[name].dtype != th.bool, "which compiled code reads slowly"
            assert found["rewards"] is raw
            batch = encoding({name: raw.unflatten(0, (2, 3))})[name]
            th.testing.assert_close(batch.float(), expected.unflatten(0, (2, 3)), rtol=0, atol=0)
        shown = encoding.space[suffix[1:]] if suffix else encoding.space
        assert shown.shape == expected.shape[1:]


def test_integers_that_start_elsewhere_are_encoded_from_there():
    """value − start, component after component in C order, whatever axes come before."""
    encoding = Encoding(spaces.Discrete(3, start=-1))
    assert encoding.space.shape == (3,)
    found = encoding({"observations": th.tensor([[-1, 1], [0, 0]])})["observations"]
    assert found.tolist() == [[[1, 0, 0], [0, 0, 1]], [[0, 1, 0], [0, 1, 0]]]
    encoding = Encoding(spaces.Dict({"a": spaces.MultiDiscrete([[2, 3], [1, 2]], start=[[5, -1], [0, 1]])}))
    assert encoding.space["a"].shape == (8,)
    values = th.tensor([[[5, 1], [0, 2]], [[6, -1], [0, 1]]])
    expected = [[1, 0, 0, 0, 1, 1, 0, 1], [0, 1, 1, 0, 0, 1, 1, 0]]
    assert encoding({"next_observations/a": values})["next_observations/a"].tolist() == expected
    assert encoding({"observations/a": values[None]})["observations/a"].tolist() == [expected]
