"""β relative to the features' squared norm: what the fixed point is, and that nothing of it is lost on the way."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from small_models import make, reloaded
from two_heads import make_batch, make_model

from sb3_robust_be import GQ, QLC, QRC, QRCHuber
from sb3_robust_be.qrc.regularization import FEATURE_NORM_RATE, feature_norm_rate

SCALED = {"h_regularization_scale": "features"}


def test_the_running_mean_is_that_of_all_batches_at_first():
    x, mean = np.random.default_rng(0).normal(size=90), 0.0
    for n, value in enumerate(x, 1):
        mean += feature_norm_rate(n) * (value - mean)
    assert mean == pytest.approx(x.mean())
    assert feature_norm_rate(10_000) == FEATURE_NORM_RATE


def ratio_of_h_to_td_error(factor: float, beta: float, scale: str, batch_size: int = 1) -> float:
    """``Σhδ/Σδ²`` where the secondary head has learned from one batch alone, of features times ``factor``."""
    model = make_model(
        QRC, net_arch=(), h_regularization=beta, h_regularization_scale=scale, correction_weight=0.0, learning_rate=1e-2
    )
    batch = make_batch(batch_size)
    batch = batch._replace(observations=factor * batch.observations, dones=th.ones_like(batch.dones))
    if batch_size > 1:
        # One state and action with many outcomes: h is to be their mean.
        batch = batch._replace(
            observations=batch.observations[:1].expand(batch_size, -1), actions=batch.actions[:1].expand(batch_size, 1)
        )
    # The values stay as they are, so that δ is the same at every update.
    model.policy.optimizer.param_groups[0]["lr"] = 0.0
    h_group = model.policy.optimizer.param_groups[1]
    for i in range(6000):
        h_group["lr"] = 1e-2 * 0.999**i
        terms = model._compute_gradients(batch, model.update_settings())
        if scale == "features":
            model._regularize(terms.feature_norm)
        model.policy.optimizer.step()
    return float((terms.h * terms.td_error).sum() / (terms.td_error**2).sum())


@pytest.mark.parametrize("factor", [0.1, 1.0, 10.0])
def test_beta_one_halves_the_estimate_whatever_the_size_of_the_features(factor):
    """Of one state: ``(δ − h)(‖φ‖² + 1) = β(‖φ‖² + 1) h``, so that ``h = δ/(1 + β)``."""
    assert ratio_of_h_to_td_error(factor, 1.0, "features") == pytest.approx(0.5, abs=2e-3)
    assert ratio_of_h_to_td_error(factor, 3.0, "features") == pytest.approx(0.25, abs=2e-3)


def test_an_absolute_beta_depends_on_the_size_of_the_features():
    """``(δ − h)(‖φ‖² + 1) = β h``: what ten times the features leave of β = 1."""
    norm = float(make_batch(1).observations.square().sum())
    for factor in (1.0, 10.0):
        share = (factor**2 * norm + 1) / (factor**2 * norm + 2)
        assert ratio_of_h_to_td_error(factor, 1.0, "absolute") == pytest.approx(share, abs=2e-3)
    assert share > 0.98


def test_the_gradient_by_hand():
    model, plain = (make_model(QRC, h_regularization=2.0, h_regularization_scale=s) for s in ("features", "absolute"))
    batches = [make_batch(seed=i) for i in range(3)]
    norms = []
    for batch in batches:
        terms = model._compute_gradients(batch, model.update_settings())
        plain._compute_gradients(batch, plain.update_settings())
        with th.no_grad():
            norms.append(model.q_net.hidden_features(batch.observations).square().sum(dim=1).mean() + 1)
        th.testing.assert_close(terms.feature_norm, norms[-1])
        model._regularize(terms.feature_norm)
    expected = th.stack(norms).mean()
    th.testing.assert_close(model._feature_norm.double(), expected, rtol=1e-6, atol=0)
    for (name, own), other in zip(model.q_net.named_parameters(), plain.q_net.parameters(), strict=True):
        decay = 2.0 * expected * own.data if "h_net" in name else 0.0
        th.testing.assert_close(own.grad, other.grad + decay, rtol=1e-6, atol=1e-9)
    assert model.policy.optimizer.param_groups[1]["weight_decay"] == 0.0
    assert plain.policy.optimizer.param_groups[1]["weight_decay"] == 2.0


@pytest.mark.parametrize("algorithm", [QRC, QRCHuber, QLC])
def test_saved_in_the_middle_it_goes_on_bit_for_bit(algorithm, tmp_path):
    model = make(algorithm, **SCALED).learn(60)
    assert model._feature_norm > 1
    loaded = reloaded(model, tmp_path / "model")
    assert (loaded._feature_norm, loaded._feature_norm_updates) == (model._feature_norm, 50)
    batches = [model.replay_buffer.sample(8) for _ in range(5)]
    for one in (model, loaded):
        one._setup_learn(1, reset_num_timesteps=False)
        for batch in batches:
            one._regularize(one._compute_gradients(batch, one.update_settings()).feature_norm)
            one.policy.optimizer.step()
    for own, other in zip(model.q_net.parameters(), loaded.q_net.parameters(), strict=True):
        assert th.equal(own, other)


def test_a_file_without_it_can_be_given_it_and_the_other_way_round(tmp_path):
    for before, after in (("absolute", "features"), ("features", "absolute")):
        make(QRC, h_regularization_scale=before).learn(30).save(tmp_path / before)
        model = QRC.load(tmp_path / before, env=gym.make("CartPole-v1"), h_regularization_scale=after)
        assert model.policy.optimizer.param_groups[1]["weight_decay"] == (1.0 if after == "absolute" else 0.0)
        model.learn(30)
    # What the mean was before it went out of use is neither kept nor counted.
    model.save(tmp_path / "again")
    model = QRC.load(tmp_path / "again", env=gym.make("CartPole-v1"), **SCALED)
    assert (float(model._feature_norm), int(model._feature_norm_updates)) == (0.0, 0)
    model.learn(12)
    assert model._feature_norm > 1


def test_parameters_of_another_model_have_other_features():
    model = make(QRC, **SCALED).learn(30)
    assert int(model._feature_norm_updates) == 20
    model.set_parameters(make(QRC, **SCALED).get_parameters())
    assert (float(model._feature_norm), int(model._feature_norm_updates)) == (0.0, 0)


def test_what_is_left_of_h_in_a_network_is_the_share_of_each_direction():
    """Of whatever features: ``Σ_i pλ_i/(pλ_i + βn)`` along the eigenvectors of their second moment."""
    model = make_model(QRC, h_regularization=0.5, correction_weight=0.0, **SCALED)
    batch = make_batch(64)
    batch = batch._replace(actions=th.zeros_like(batch.actions))
    model.policy.optimizer.param_groups[0]["lr"] = 0.0
    h_group = model.policy.optimizer.param_groups[1]
    for i in range(8000):
        h_group["lr"] = 3e-3 * 0.999**i
        terms = model._compute_gradients(batch, model.update_settings())
        model._regularize(terms.feature_norm)
        model.policy.optimizer.step()
    with th.no_grad():
        seen = model.q_net.hidden_features(batch.observations)
    seen = th.cat([seen, th.ones(len(seen), 1)], dim=1)
    moment, n = seen.T @ seen / len(seen), seen.square().sum(dim=1).mean()
    weights = th.linalg.solve(moment + 0.5 * n * th.eye(len(moment)), seen.T @ terms.td_error / len(seen))
    th.testing.assert_close(terms.h, seen @ weights, rtol=0.01, atol=0.01)
    assert 0 < float((terms.h * terms.td_error).sum() / (terms.td_error**2).sum()) < 0.5


def test_it_needs_no_optimizer_with_weight_decay():
    class NoDecay(th.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.data.add_(p.grad, alpha=-group["lr"])

    make(QRC, policy_kwargs={"optimizer_class": NoDecay}, **SCALED).learn(30)


@pytest.mark.parametrize("one_sided", [{"limit": "one_sided"}, {"projection": "one_sided", "huber_threshold": None}])
def test_one_sided_saddlepoints_are_warned_of(one_sided):
    with pytest.warns(UserWarning, match="GQ follows z alone"):
        make(GQ, **one_sided)


def test_what_it_cannot_be_combined_with():
    with pytest.raises(ValueError, match=r"h_regularization_scale='features'.*h_decoupled_weight_decay=True"):
        make(QRC, h_decoupled_weight_decay=True, **SCALED)
    with pytest.raises(ValueError, match=r"td_error_threshold=1\.0 has no meaning for GQ"):
        make(GQ, td_error_threshold=1.0)
    for value in (0, -1.0):
        with pytest.raises(ValueError, match="td_error_threshold"):
            make(QRC, td_error_threshold=value)
    with pytest.raises(ValueError, match="correction_weight"):
        make(QRC, correction_weight=-1.0)
