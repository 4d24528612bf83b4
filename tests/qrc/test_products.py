"""Convolutions as matrix products, and matrix products in bfloat16, in the updates that are compiled."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from small_envs import SpaceEnv, images
from small_models import make
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from sb3_robust_be import QRC, SBEED, Population
from sb3_robust_be.qrc.compiled import CompiledUpdate
from sb3_robust_be.qrc.products import convert_products, unfold_convolutions

aten = th.ops.aten
CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)


def targets(graph, wanted):
    return [node.target for node in graph.graph.nodes if node.target in wanted]


def two_layers(stride=1, padding=0, dilation=1, groups=1):
    """Sum of squares behind two convolutions, of which the second one's input needs a gradient."""

    def loss(first, bias, second, x):
        hidden = functional.conv2d(x, first, bias, stride, padding, dilation, groups).relu()
        y = functional.conv2d(hidden, second)
        return y.square().sum() + hidden.mean()

    return th.func.grad(loss, argnums=(0, 1, 2))


def tensors(n=3, channels=4, size=(9, 11), kernel=(3, 2), groups=1, biased=True):
    generator = th.Generator().manual_seed(0)

    def draw(*shape):
        return th.randn(*shape, dtype=th.float64, generator=generator)

    bias = draw(6) if biased else None
    return [draw(6, channels // groups, *kernel), bias, draw(2, 6, 1, 1), draw(n, channels, *size)]


@pytest.mark.parametrize(
    ("options", "made"),
    [
        ({}, {}),
        ({}, {"n": 1, "channels": 1}),
        ({}, {"kernel": (1, 1)}),
        ({}, {"kernel": (9, 11)}),
        ({"stride": 2}, {}),
        ({"stride": (3, 1)}, {"kernel": (2, 4)}),
    ],
)
def test_a_convolution_and_its_gradient_as_products(options, made):
    function, inputs = two_layers(**options), tensors(**made)
    graph = make_fx(function)(*inputs)
    assert len(targets(graph, CONVOLUTIONS)) == 4
    unfold_convolutions(graph)
    assert len(targets(graph, CONVOLUTIONS)) == 2, "the second one's input needs a gradient"
    assert len(targets(graph, (aten.unfold.default,))) == 2, "the patches are shared"
    for found, expected in zip(graph(*inputs), function(*inputs), strict=True):
        assert found.stride() == expected.stride()
        th.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "made"),
    [
        ({"padding": 1}, {}),
        ({"dilation": 2}, {}),
        ({"groups": 2}, {"groups": 2}),
        ({}, {"n": 64, "channels": 4, "size": (40, 40)}),
    ],
    ids=["padding", "dilation", "groups", "large images"],
)
def test_other_convolutions_stay(options, made):
    function, inputs = two_layers(**options), tensors(**made)
    graph = make_fx(function)(*inputs)
    unfold_convolutions(graph)
    assert len(targets(graph, CONVOLUTIONS)) == 4
    for found, expected in zip(graph(*inputs), function(*inputs), strict=True):
        th.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_a_convolution_with_other_weights_stays():
    """As that of a target network, which has no gradient."""

    def loss(kernel, other, x):
        return (functional.conv2d(x, kernel) * functional.conv2d(x, other)).sum()

    function = th.func.grad(loss)
    kernel, _, _, x = tensors(biased=False)
    graph = make_fx(function)(kernel, 2 * kernel, x)
    unfold_convolutions(graph)
    assert targets(graph, CONVOLUTIONS) == [aten.convolution.default]
    th.testing.assert_close(graph(kernel, 2 * kernel, x), function(kernel, 2 * kernel, x), rtol=1e-12, atol=1e-12)


def rounded(x):
    return x.bfloat16().double()


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("members", [(), (3,)], ids=["matrices", "members"])
def test_large_products_are_those_of_rounded_numbers(members, biased):
    left, right = th.randn(*members, 64, 1024), th.randn(*members, 1024, 8)
    bias = th.randn(*members, 64, 8) if biased else None
    if biased:
        plain = th.baddbmm if members else th.addmm
        graph = make_fx(lambda b, x, y: plain(b, x, y))(bias, left, right)
        convert_products(graph)
        found = graph(bias, left, right)
    else:
        graph = make_fx(th.matmul if not members else th.bmm)(left, right)
        convert_products(graph)
        found = graph(left, right)
    exact = rounded(left) @ rounded(right)
    # Half of the last of 8 bits.
    assert found.dtype == th.float32
    error = (found.double() - (exact + bias.double() if biased else exact)).abs()
    assert (error <= 2.0**-8 * exact.abs() + 1e-4).all()
    assert not th.equal(found, left @ right + bias if biased else left @ right)


@pytest.mark.parametrize(("rows", "dtype"), [(63, th.float32), (64, th.float64)], ids=["small", "double"])
def test_other_products_stay(rows, dtype):
    left, right = th.randn(rows, 1024, dtype=dtype), th.randn(1024, 8, dtype=dtype)
    for members in ((), (50,)):
        x, y = left.expand(*members, -1, -1), right.expand(*members, -1, -1)
        graph = make_fx(th.bmm if members else th.mm)(x, y)
        convert_products(graph)
        assert th.equal(graph(x, y), x @ y)


@pytest.fixture
def quick_backend(monkeypatch):
    """Traced and differentiated as for the real compiler, then run without code generation."""
    monkeypatch.setattr(CompiledUpdate, "backend", staticmethod(lambda graph, inputs: graph))


MINATAR = images(10, 10, 4, bool)


def learned(compile, cls=QRC, **kwargs):
    model = make(cls, SpaceEnv(MINATAR), "CnnPolicy", compile=compile, buffer_size=200, learning_starts=16, **kwargs)
    return model.learn(60)


@pytest.mark.parametrize("cls", [QRC, SBEED])
def test_one_agent_with_bfloat16(cls, quick_backend, tmp_path):
    exact, model = (learned(compile, cls) for compile in (True, "bfloat16"))
    assert model._compiled.works
    differences = []
    for (name, x), y in zip(model.policy.state_dict().items(), exact.policy.state_dict().values(), strict=True):
        assert x.dtype == th.float32, name
        differences.append((x - y).abs().max().item())
    assert 0.0 < max(differences) < 0.1
    model.save(tmp_path / "model")
    loaded = cls.load(tmp_path / "model", env=SpaceEnv(MINATAR))
    assert loaded.compile == "bfloat16"
    assert loaded._compiled._bfloat16
    loaded.learn(20, reset_num_timesteps=False)
    assert cls.load(tmp_path / "model", compile=True).compile is True


def test_images_in_a_compiled_update_equal_the_eager_ones(quick_backend):
    eager, compiled = (learned(compile) for compile in (False, True))
    for x, y in zip(eager.policy.state_dict().values(), compiled.policy.state_dict().values(), strict=True):
        th.testing.assert_close(x, y, rtol=0, atol=1e-5)


def test_generated_code_of_images():
    """Of torch's compiler, which need not read the changed graph as it is interpreted."""
    eager, *generated = (learned(compile, learning_rate=1e-4) for compile in (False, True, "bfloat16"))
    for model, most in zip(generated, (1e-5, 1e-2), strict=True):
        assert model._compiled.works
        assert model._compiled._graphs
        for x, y in zip(eager.policy.state_dict().values(), model.policy.state_dict().values(), strict=True):
            th.testing.assert_close(x, y, rtol=0, atol=most)


def test_a_population_with_bfloat16(monkeypatch):
    monkeypatch.setattr("sb3_robust_be.population.graphs.generate_code", lambda graph, inputs: graph)

    def rows(compile):
        population = Population(
            QRC, "CnnPolicy", SpaceEnv, range(2), env_kwargs={"observation_space": MINATAR}, compile=compile,
            buffer_size=200, learning_starts=16, batch_size=16, verbose=0,
        )  # fmt: skip
        population.learn(60)
        assert population.constructor_arguments()["compile"] == compile
        return [np.concatenate([p.detach().numpy().ravel() for p in agent.policy.parameters()]) for agent in population]

    for low, exact in zip(rows("bfloat16"), rows(True), strict=True):
        assert low.dtype == np.float32
        assert 0.0 < np.abs(low - exact).max() < 0.1


@pytest.mark.parametrize("wrong", ["float16", "True", 1, None])
def test_other_values_of_compile(wrong):
    with pytest.raises(TypeError, match="compile must be True, False or 'bfloat16' and is"):
        make(QRC, SpaceEnv(MINATAR), "CnnPolicy", compile=wrong)
    with pytest.raises(TypeError, match="compile must be True, False or 'bfloat16' and is"):
        Population(QRC, "MlpPolicy", "CartPole-v1", [0], compile=wrong)
