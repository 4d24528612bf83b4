"""SBEED's update is the gradient of its loss, and in its limits that of the algorithms it touches."""

from __future__ import annotations

import math

import pytest
import torch as th
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from two_heads import GAMMA, N_ACTIONS, assert_close, gradients, gradients_of, make_batch, make_model

from sb3_robust_be import GQ, QRC, SBEED

ETAS = pytest.mark.parametrize("eta", [0.0, 0.3, 1.0])
TARGETS = pytest.mark.parametrize("target", [None, 10], ids=["no_target", "target"])
TEMPERATURE = 0.7


def make(eta=0.3, target=None, **kwargs):
    model = make_model(SBEED, eta=eta, **{"temperature": TEMPERATURE, "target_update_interval": target, **kwargs})
    if target:
        for parameter in model.q_net_target.parameters():
            parameter.data += 0.1
    return model


def written_losses(model, batch, eta):
    """L_q and L_h as the equations have them, by torch's own logsumexp, for autograd."""
    q_all, h_all = model.q_net.q_and_h(batch.observations)
    q, h = q_all.gather(1, batch.actions), h_all.gather(1, batch.actions)
    next_q = model.q_net_target(batch.next_observations)
    if model.q_net_target is not model.q_net:
        next_q = next_q.detach()
    soft = th.logsumexp(next_q / TEMPERATURE, dim=1, keepdim=True) - math.log(N_ACTIONS)
    delta = batch.rewards + GAMMA * (1 - batch.dones) * TEMPERATURE * soft - q
    value_loss = 0.5 * (delta**2).mean() - 0.5 * eta * ((delta - h.detach()) ** 2).mean()
    return value_loss, 0.5 * ((delta.detach() - h) ** 2).mean()


@TARGETS
@ETAS
def test_update_is_the_gradient_of_the_written_losses(eta, target):
    model, batch = make(eta, target), make_batch()
    expected = gradients_of(model, sum(written_losses(model, batch, eta)))
    found = gradients(model, batch)
    assert all(g.abs().max() > 0 for g in found.values())
    assert_close(found, expected)


@ETAS
def test_a_target_network_takes_the_gradient_of_the_next_state_away(eta):
    """At θ̄ = θ the TD errors are the same, and only ∇V(s') differs."""
    batch = make_batch()
    plain, frozen = make(eta), make_model(SBEED, eta=eta, temperature=TEMPERATURE, target_update_interval=10)
    terms = [model.batch_loss(batch, model.update_settings()) for model in (plain, frozen)]
    th.testing.assert_close(terms[0].td_error, terms[1].td_error)
    assert terms[0].correction.any()
    assert not terms[1].correction.any()
    found = [gradients(model, batch)["q_net.0.weight"] for model in (plain, frozen)]
    assert not th.allclose(*found)
    assert all(parameter.grad is None for parameter in frozen.q_net_target.parameters())


def test_eta_one_without_temperature_is_greedy_gq():
    batch = make_batch()
    cold = make(eta=1.0, temperature=1e-12)
    # V = max q − λ·log n where one action is far ahead of the others.
    found, expected = gradients(cold, batch), gradients(make_model(GQ), batch)
    for name, gradient in found.items():
        th.testing.assert_close(gradient, expected[name], rtol=1e-8, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.filterwarnings("ignore:QRC now bootstraps from a target network")
@ETAS
def test_h_zero_scales_the_target_networks_semi_gradient(eta):
    """With a target network and h = 0 the values follow (1 − η)δ: DQN on half the squared TD error."""
    batch = make_batch()
    model = make(eta, target=10, temperature=1e-12)
    dqn = make_model(QRC, target_update_interval=10)
    dqn.q_net_target.load_state_dict(model.q_net_target.state_dict())
    for network in (model.q_net, dqn.q_net):
        for parameter in network.h_net.parameters():
            parameter.data.zero_()
    found, semi = gradients(model, batch), gradients(dqn, batch)
    for name, gradient in found.items():
        scale = 1.0 if name.startswith("h_net") else 1.0 - eta
        th.testing.assert_close(gradient, scale * semi[name], rtol=1e-8, atol=1e-10)


@TARGETS
def test_eta_interpolates(target):
    batch = make_batch()
    none, some, full = (gradients(make(eta, target), batch) for eta in (0.0, 0.3, 1.0))
    assert_close(some, {name: 0.7 * none[name] + 0.3 * full[name] for name in some})
    assert not th.allclose(none["q_net.0.weight"], full["q_net.0.weight"])


def test_eta_one_with_h_zero_leaves_the_values_alone():
    model = make(1.0)
    for parameter in model.q_net.h_net.parameters():
        parameter.data.zero_()
    found = gradients(model, make_batch())
    assert all(not g.any() for name, g in found.items() if not name.startswith("h_net"))
    assert found["h_net.weight"].any()


@TARGETS
@ETAS
def test_terminated_rows_do_not_see_the_next_state(eta, target):
    model, batch = make(eta, target), make_batch()
    ended = batch._replace(dones=th.ones_like(batch.dones))
    assert not model.batch_loss(ended, model.update_settings()).correction.any()
    elsewhere = ended._replace(next_observations=ended.next_observations + 5.0)
    assert_close(gradients(model, ended), gradients(model, elsewhere))
    assert (gradients(model, batch)["h_net.weight"] != gradients(model, ended)["h_net.weight"]).any()


@TARGETS
def test_heads_do_not_train_each_other(target):
    model, batch = make(target=target), make_batch()
    value_loss, h_loss = written_losses(model, batch, 0.3)
    found = gradients(model, batch)
    for name, gradient in gradients_of(model, h_loss).items():
        if name.startswith("h_net"):
            th.testing.assert_close(found[name], gradient)
        else:
            assert not gradient.any()
    assert all(not g.any() for name, g in gradients_of(model, value_loss).items() if name.startswith("h_net"))


@TARGETS
@pytest.mark.parametrize("batch_size", [8, 4, 7])
def test_batches_as_wide_as_the_network_are_the_mean_of_their_rows(batch_size, target):
    # Hidden width 8 and 4 actions: a (B,1)×(B,) broadcast would not show elsewhere, but be wrong here.
    model, batch = make(target=target), make_batch(batch_size)
    rows = [
        gradients(model, ReplayBufferSamples(*(x[i : i + 1] for x in batch if x is not None)))
        for i in range(batch_size)
    ]
    assert_close(gradients(model, batch), {name: sum(r[name] for r in rows) / batch_size for name in rows[0]})
    terms = model.batch_loss(batch, model.update_settings())
    assert all(x.shape == (batch_size, 1) for x in terms[1:5])
    assert terms.action_values.shape == (batch_size, N_ACTIONS)


@pytest.mark.parametrize("temperature", [1e-6, 1e3])
@pytest.mark.parametrize("size", [1.0, 1e6])
@TARGETS
def test_extreme_values_give_finite_gradients_in_single_precision(temperature, size, target):
    single = {"features_extractor_class": FlattenExtractor}
    model = make(temperature=temperature, target=target, policy_kwargs=single)
    model.policy.float()
    with th.no_grad():
        model.q_net.q_net[-1].bias.copy_(size * th.tensor([1.0, -1.0, 0.5, 1.0]))
    batch = make_batch()
    batch = batch._replace(rewards=batch.rewards.float(), dones=batch.dones.float())
    assert all(th.isfinite(gradient).all() for gradient in gradients(model, batch).values())
