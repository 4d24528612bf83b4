"""The maximum, the soft maximum and its policy over the legal actions alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch as th

from sb3_robust_be.updates import legal_values, mellowmax, mellowmax_policy

KINDS = pytest.mark.parametrize("kind", [np.asarray, th.as_tensor], ids=["numpy", "torch"])
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
TEMPERATURES = pytest.mark.parametrize("temperature", [1e-6, 0.1, 1.0, 30.0, 1e6])


def some_values(dtype=np.float64, rows=40, n=5, seed=0):
    generator = np.random.default_rng(seed)
    q = generator.normal(size=(rows, n)).astype(dtype)
    legal = generator.random((rows, n)) < 0.5
    legal[np.arange(rows), generator.integers(n, size=rows)] = True
    return q, legal


@KINDS
def test_by_hand(kind):
    """λ = 2 and legal values of 2·(log 1, log 3), whose exponentials' mean is 2; an illegal one would be far larger."""
    q = kind(np.array([[0.0, 900.0, 2 * np.log(3)]]))
    legal = kind(np.array([[True, False, True]]))
    np.testing.assert_array_equal(legal_values(q, legal), [[0.0, -math.inf, 2 * np.log(3)]])
    np.testing.assert_allclose(mellowmax(q, 2.0, legal), [[2 * np.log(2)]])
    np.testing.assert_allclose(mellowmax_policy(legal_values(q, legal), 2.0), [[0.25, 0.0, 0.75]])


@KINDS
@DTYPES
@TEMPERATURES
def test_equal_those_of_the_legal_values_by_themselves(kind, dtype, temperature):
    q, legal = some_values(dtype)
    masked = legal_values(kind(q), kind(legal))
    value, policy = mellowmax(kind(q), temperature, kind(legal)), mellowmax_policy(masked, temperature)
    assert np.asarray(value).dtype == np.asarray(policy).dtype == np.asarray(masked).dtype == dtype
    digit = 3e-6 if dtype is np.float32 else 1e-13
    for i in range(len(q)):
        own = q[i, legal[i]][None]
        assert float(masked[i].max()) == own.max()
        np.testing.assert_allclose(np.asarray(value)[i], mellowmax(own, temperature)[0], rtol=digit, atol=digit)
        np.testing.assert_allclose(
            np.asarray(policy)[i, legal[i]], mellowmax_policy(own, temperature)[0], rtol=10 * digit, atol=digit
        )
        assert (np.asarray(policy)[i, ~legal[i]] == 0).all()


@KINDS
@DTYPES
@TEMPERATURES
def test_all_legal_is_bit_for_bit_unmasked(kind, dtype, temperature):
    q = kind(some_values(dtype)[0])
    everything = kind(np.ones(q.shape, bool))
    assert legal_values(q, None) is q
    np.testing.assert_array_equal(legal_values(q, everything), q)
    np.testing.assert_array_equal(mellowmax(q, temperature, everything), mellowmax(q, temperature))


@KINDS
def test_a_state_without_legal_actions_has_a_finite_value(kind):
    q, legal = some_values()
    legal[7] = False
    np.testing.assert_array_equal(legal_values(kind(q), kind(legal))[7], q[7])
    value = np.asarray(mellowmax(kind(q), 0.3, kind(legal)))
    assert np.isfinite(value).all()
    np.testing.assert_array_equal(value[7], mellowmax(q, 0.3)[7])


@pytest.mark.parametrize("everything_illegal", [False, True])
def test_gradients_go_to_legal_actions_and_are_finite(everything_illegal):
    values, mask = some_values()
    if everything_illegal:
        mask[3] = False
    q, legal = th.as_tensor(values).requires_grad_(), th.as_tensor(mask)
    masked = legal_values(q, legal)
    masked.max(dim=1).values.sum().backward()
    expected = np.zeros_like(values)
    for i in range(len(values)):
        allowed = np.flatnonzero(mask[i]) if mask[i].any() else np.arange(5)
        expected[i, allowed[values[i, allowed].argmax()]] = 1.0
    np.testing.assert_array_equal(q.grad, expected)
    q.grad = None
    mellowmax(q, 0.3, legal).sum().backward()
    np.testing.assert_allclose(q.grad, mellowmax_policy(masked, 0.3).detach(), rtol=1e-12, atol=1e-15)
    assert (q.grad[~legal & legal.any(1, keepdim=True)] == 0).all()


@pytest.mark.parametrize("temperature", [0.3, 7.0])
def test_gradient_by_finite_differences(temperature):
    values, mask = some_values(rows=6)
    q, legal = th.as_tensor(values).requires_grad_(), th.as_tensor(mask)
    assert th.autograd.gradcheck(lambda x: mellowmax(x, temperature, legal), (q,), eps=1e-7, atol=1e-6)


def test_vmap_equals_loop():
    pairs = [some_values(seed=seed) for seed in range(4)]
    q, legal = (th.as_tensor(np.stack(part)) for part in zip(*pairs, strict=True))
    temperatures = th.tensor([0.01, 0.3, 1.0, 50.0], dtype=th.float64)
    for function in (mellowmax, th.func.grad(lambda x, t, m: mellowmax(x, t, m).sum())):
        together = th.func.vmap(function)(q, temperatures, legal)
        separate = [function(*one) for one in zip(q, temperatures, legal, strict=True)]
        th.testing.assert_close(together, th.stack(separate))
