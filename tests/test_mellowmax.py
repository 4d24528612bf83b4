"""The mellowmax, its policy and SBEED's coefficients: bounds, limits, gradients and extreme numbers."""

import numpy as np
import pytest
import torch as th
from scipy.special import logsumexp, softmax

from sb3_robust_be.updates import mellowmax, mellowmax_policy, sbeed_coefficients

TEMPERATURES = pytest.mark.parametrize("temperature", [1e-6, 1e-3, 0.3, 1.0, 7.0, 1e3])
SCALES = pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 1e3, 1e6])
KINDS = pytest.mark.parametrize("kind", [np.asarray, th.as_tensor], ids=["numpy", "torch"])


def some_values(scale=1.0, dtype=np.float64):
    values = scale * np.random.default_rng(0).normal(size=(40, 5)).clip(-1, 1)
    values[0] = scale  # all equal
    values[1, 1:] = -scale  # one far above the others
    values[2, :3] = scale  # a tie of the maximum
    return values.astype(dtype)


@KINDS
@pytest.mark.parametrize("temperature", [0.3, 1.0, 7.0])
def test_equals_scipys_definition(kind, temperature):
    q = some_values()
    expected = temperature * (logsumexp(q / temperature, axis=-1, keepdims=True) - np.log(5))
    # The expected value is λ times a difference of terms of size log 5, each to the last digit of its library.
    np.testing.assert_allclose(mellowmax(kind(q), temperature), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(mellowmax_policy(kind(q), temperature), softmax(q / temperature, axis=-1), rtol=1e-12)


def test_values_by_hand():
    # λ = 2, q = 2·(log 1, log 3): the mean of 1 and 3 is 2.
    q = np.array([[0.0, 2 * np.log(3)]])
    np.testing.assert_allclose(mellowmax(q, 2.0), [[2 * np.log(2)]])
    np.testing.assert_allclose(mellowmax_policy(q, 2.0), [[0.25, 0.75]])


@pytest.mark.parametrize("k", [-300.0, 2.5])
@TEMPERATURES
def test_shifting_the_values_shifts_the_mellowmax(temperature, k):
    q = some_values()
    np.testing.assert_allclose(mellowmax(q + k, temperature), mellowmax(q, temperature) + k, rtol=1e-13, atol=1e-13)
    # What moves in q's last digit is divided by λ in the policy.
    np.testing.assert_allclose(
        mellowmax_policy(q + k, temperature), mellowmax_policy(q, temperature), atol=1e-12 / temperature
    )


@TEMPERATURES
def test_scaling_values_and_temperature_scales_the_mellowmax(temperature):
    q = some_values()
    np.testing.assert_allclose(mellowmax(8.0 * q, 8.0 * temperature), 8.0 * mellowmax(q, temperature), rtol=1e-13)


@TEMPERATURES
def test_policy_is_the_exponential_of_the_advantage(temperature):
    """λ·log(n·π(a|s)) = q(s,a) − V(s), wherever π is not zero to the last digit."""
    q = some_values()
    policy, advantage = mellowmax_policy(q, temperature), q - mellowmax(q, temperature)
    np.testing.assert_allclose(policy, np.exp(advantage / temperature) / 5, rtol=1e-9, atol=1e-300)
    shown = policy > 1e-300
    np.testing.assert_allclose(temperature * np.log(5 * policy[shown]), advantage[shown], rtol=1e-9, atol=1e-12)


def test_limits_are_the_maximum_and_the_mean():
    q = some_values()
    largest, mean = q.max(-1, keepdims=True), q.mean(-1, keepdims=True)
    for temperature in (1e-2, 1e-6):
        gap = largest - mellowmax(q, temperature)
        assert (gap >= 0).all()
        assert (gap <= temperature * np.log(5) * (1 + 1e-9)).all()
        assert gap[1] > 0.99 * temperature * np.log(5), "attained by one value far above the others"
    for temperature in (1e2, 1e6):
        # The second cumulant: V = mean + var / 2λ + …
        expected = mean + q.var(-1, keepdims=True) / (2 * temperature)
        np.testing.assert_allclose(mellowmax(q, temperature), expected, rtol=0, atol=1 / temperature**2)
    np.testing.assert_allclose(mellowmax_policy(q, 1e9), 0.2, atol=1e-8)
    np.testing.assert_allclose(mellowmax_policy(q, 1e-9)[2], [1 / 3] * 3 + [0, 0])


@KINDS
@SCALES
@TEMPERATURES
def test_single_precision_is_safe(kind, scale, temperature):
    """No overflow, the order mean ≤ V ≤ max, and a policy, for every λ and |q| in use."""
    q = some_values(scale, np.float32)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        value, policy = mellowmax(kind(q), temperature), mellowmax_policy(kind(q), temperature)
    value, policy = np.asarray(value), np.asarray(policy)
    assert value.dtype == policy.dtype == np.float32
    assert value.shape == (40, 1)
    digit = 1e-6 * scale
    assert (value <= q.max(-1, keepdims=True)).all()
    assert (value >= q.mean(-1, keepdims=True) - digit).all()
    exact = mellowmax(q.astype(np.float64), temperature)
    np.testing.assert_allclose(value, exact, rtol=1e-6, atol=digit)
    assert (policy >= 0).all()
    np.testing.assert_allclose(policy.sum(-1), 1.0, rtol=1e-6)


@SCALES
@TEMPERATURES
def test_gradient_is_the_policy(temperature, scale):
    for dtype, tolerance in ((np.float32, 2e-6), (np.float64, 1e-14)):
        q = th.as_tensor(some_values(scale, dtype)).requires_grad_()
        mellowmax(q, temperature).sum().backward()
        th.testing.assert_close(q.grad, mellowmax_policy(q, temperature).detach(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("temperature", [0.05, 0.3, 7.0])
def test_gradient_by_finite_differences(temperature):
    q = th.as_tensor(some_values()).requires_grad_()
    assert th.autograd.gradcheck(lambda x: mellowmax(x, temperature), (q,), eps=1e-7, atol=1e-6)


def test_vmap_equals_loop_with_a_temperature_per_agent():
    q = th.randn(6, 7, 3, dtype=th.float64, generator=th.Generator().manual_seed(0))
    temperatures = th.logspace(-3, 3, 6, dtype=th.float64)
    for function in (mellowmax, mellowmax_policy, th.func.grad(lambda x, t: mellowmax(x, t).sum())):
        together = th.func.vmap(function)(q, temperatures)
        th.testing.assert_close(together, th.stack([function(*one) for one in zip(q, temperatures, strict=True)]))


@KINDS
def test_coefficients_by_hand(kind):
    td_error, h, discount = kind([[2.0], [-1.0]]), kind([[0.5], [3.0]]), kind([[0.9], [0.0]])
    a, b, c = sbeed_coefficients(td_error, h, discount, eta=0.25)
    np.testing.assert_allclose(a, [[0.75 * 2 + 0.25 * 0.5], [-0.75 + 0.25 * 3]])
    np.testing.assert_allclose(b, [[-0.9 * 1.625], [0.0]])
    np.testing.assert_allclose(c, [[1.5], [-4.0]])


@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0])
def test_coefficients_are_the_losses_derivatives(eta):
    """Of ½δ² − ½η(δ − h)² by q(s,a) and V(s'), and of ½(δ − h)² by h, at a fixed h and δ."""
    generator = th.Generator().manual_seed(0)
    q, next_value, h, reward = (th.randn(9, 1, dtype=th.float64, generator=generator) for _ in range(4))
    discount = 0.9 * (th.arange(9).reshape(9, 1) % 3 > 0)
    q, next_value, h = (x.requires_grad_() for x in (q, next_value, h))
    td_error = reward + discount * next_value - q
    loss = 0.5 * td_error**2 - 0.5 * eta * (td_error - h.detach()) ** 2 + 0.5 * (td_error.detach() - h) ** 2
    loss.sum().backward()
    found = sbeed_coefficients(td_error.detach(), h.detach(), discount, eta=eta)
    for coefficient, x in zip(found, (q, next_value, h), strict=True):
        th.testing.assert_close(coefficient, -x.grad)


def test_coefficients_vmap_equals_loop_with_an_eta_per_agent():
    td_error, h, discount = th.randn(3, 6, 4, 1, dtype=th.float64, generator=th.Generator().manual_seed(0))
    etas = th.linspace(0, 1, 6, dtype=th.float64)

    def one(td_error, h, discount, eta):
        return th.stack(sbeed_coefficients(td_error, h, discount, eta=eta))

    together = th.func.vmap(one)(td_error, h, discount, etas)
    th.testing.assert_close(together, th.stack([one(*x) for x in zip(td_error, h, discount, etas, strict=True)]))
