"""What the update must equal: the paper's losses, its limits, its terms, and its linear counterpart."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from two_heads import GAMMA, SpacesOnly, assert_close, forward, gradients, gradients_of, make_batch, make_model

from sb3_robust_be import GQ, QLC, QRC, GQHuber, QRCHuber
from sb3_robust_be.qrc import RobustQLearning
from sb3_robust_be.registry import classes
from sb3_robust_be.updates import LIMITS

ALGORITHMS = classes()

KAPPA = 0.8
# Those that follow this family's losses.
FAMILY = [cls for cls in ALGORITHMS.values() if cls.batch_loss is RobustQLearning.batch_loss]
EVERY_ALGORITHM = pytest.mark.parametrize("cls", FAMILY, ids=lambda c: c.algorithm_name)
SQUASH = {
    "squared": lambda h, delta: h,
    "huber": lambda h, delta: h.clamp(-KAPPA, KAPPA),
    "absolute": lambda h, delta: h.sign(),
    "smooth_huber": lambda h, delta: KAPPA * th.tanh(h / KAPPA),
    "magnitude": lambda h, delta: th.minimum(th.maximum(h, -delta.abs()), delta.abs()),
    "one_sided": lambda h, delta: th.where((h > 0) & (delta > 0), th.minimum(h, delta), 0.0 * h),
    "same_sign": lambda h, delta: th.where(h * delta > 0, h.sign() * th.minimum(h.abs(), delta.abs()), 0.0 * h),
}


def model_for(cls, squash, **kwargs):
    if squash in LIMITS:
        return make_model(cls, projection="squared", huber_threshold=None, limit=squash, **kwargs)
    threshold = KAPPA if "huber" in squash else None
    return make_model(cls, projection=squash, huber_threshold=threshold, limit=None, **kwargs)


def written_losses(v, squash, gradient_correction):
    """L_q and L_h as control's equations write them, for autograd."""
    c = SQUASH[squash](v["h"], v["delta"]).detach()
    if gradient_correction:
        value_loss = (0.5 * (v["T"] - v["q"]) ** 2 + v["discount"] * c * v["b"]).mean()
    else:
        value_loss = (c * (v["discount"] * v["b"] - v["q"])).mean()
    return value_loss, (0.5 * (v["delta"] - v["h"]) ** 2).mean()


@pytest.mark.filterwarnings("ignore:.*bootstraps from a target network")
@pytest.mark.parametrize("target", [None, 10], ids=["no_target", "target"])
@pytest.mark.parametrize("squash", SQUASH)
@pytest.mark.parametrize("cls", [QRC, GQ], ids=lambda c: c.algorithm_name)
def test_update_is_the_gradient_of_the_written_losses(cls, squash, target):
    model = model_for(cls, squash, target_update_interval=target)
    if target:
        for parameter in model.q_net_target.parameters():
            parameter.data += 0.1
    batch = make_batch()
    v = forward(model, batch)
    assert (SQUASH[squash](v["h"], v["delta"]) != v["h"]).any() or squash == "squared"
    value_loss, h_loss = written_losses(v, squash, cls.gradient_correction)
    expected = gradients_of(model, value_loss + h_loss)
    if target:
        # The part of the loss that sees the target's parameters moves the online ones.
        through_target = gradients_of(model, value_loss, of_target=True)
        assert any(g.abs().max() > 0 for g in through_target.values())
        expected = {name: g + through_target[name] for name, g in expected.items()}
    assert_close(gradients(model, batch), expected)


@pytest.mark.parametrize("layer_norm", [None, False], ids=["default", "plain"])
def test_qlc_by_default_corrects_where_a_value_is_to_rise(layer_norm):
    """``z = min(max(h, 0), max(δ, 0))``, by the written loss; in the batch are rows on either side of every kink."""
    model = make_model(QLC, policy_kwargs={} if layer_norm is None else {"layer_norm": layer_norm})
    batch = make_batch(64)
    v = forward(model, batch)
    h, delta = v["h"].detach(), v["delta"]
    for rows in ((h < 0) & (delta > 0), (h > 0) & (delta < 0), (0 < h) & (h < delta), (0 < delta) & (delta < h)):
        assert rows.any()
    z = th.where(h <= 0, 0.0, th.where(delta <= 0, 0.0, th.where(h < delta, h, delta)))
    value_loss = (0.5 * (v["T"] - v["q"]) ** 2 + v["discount"] * z * v["b"]).mean()
    expected = gradients_of(model, value_loss + (0.5 * (v["delta"] - v["h"]) ** 2).mean())
    assert_close(gradients(model, batch), expected)
    th.testing.assert_close(model.batch_loss(batch, model.update_settings()).correction, v["discount"] * z)
    # What a limit on the magnitude would do is another update.
    other = gradients(make_model(QLC, limit="magnitude", policy_kwargs=dict(model.policy_kwargs)), batch)
    assert (other["q_net.0.weight"] != expected["q_net.0.weight"]).any()


@pytest.mark.parametrize("squash", SQUASH)
def test_saddlepoint_and_gradient_correction_differ_by_the_papers_extra_term(squash):
    batch = make_batch()
    qrc, gq = model_for(QRC, squash), model_for(GQ, squash)
    v = forward(qrc, batch)
    c = SQUASH[squash](v["h"], v["delta"]).detach()
    extra = gradients_of(qrc, (0.5 * (v["T"] - v["q"]) ** 2 + c * v["q"]).mean())
    difference = {name: g - gradients(gq, batch)[name] for name, g in gradients(qrc, batch).items()}
    assert_close(difference, extra)


@pytest.mark.parametrize(("huber", "squared"), [(QRCHuber, QRC), (GQHuber, GQ)], ids=["qrc", "gq"])
@pytest.mark.parametrize("kappa", [1e9, float("inf"), None])
def test_huber_without_a_bound_is_the_squared_algorithm(huber, squared, kappa):
    batch = make_batch()
    assert_close(gradients(make_model(huber, huber_threshold=kappa), batch), gradients(make_model(squared), batch))


def semi_gradient(model, batch):
    v = forward(model, batch)
    return gradients_of(model, (0.5 * (v["T"] - v["q"]) ** 2).mean() + (0.5 * (v["delta"] - v["h"]) ** 2).mean())


def test_huber_with_threshold_zero_is_semi_gradient_q_learning():
    batch, model = make_batch(), make_model(QRCHuber, huber_threshold=0.0)
    assert_close(gradients(model, batch), semi_gradient(model, batch))
    assert (gradients(make_model(QRC), batch)["q_net.0.weight"] != gradients(model, batch)["q_net.0.weight"]).any()


@pytest.mark.parametrize("cls", [QRC, QRCHuber, QLC], ids=lambda c: c.algorithm_name)
def test_gradient_corrections_with_h_zero_are_semi_gradient_q_learning(cls):
    batch, model = make_batch(), make_model(cls)
    for parameter in model.q_net.h_net.parameters():
        parameter.data.zero_()
    assert_close(gradients(model, batch), semi_gradient(model, batch))


@pytest.mark.parametrize("cls", [GQ, GQHuber], ids=lambda c: c.algorithm_name)
def test_saddlepoint_with_h_zero_leaves_the_values_alone(cls):
    batch, model = make_batch(), make_model(cls)
    for parameter in model.q_net.h_net.parameters():
        parameter.data.zero_()
    found = gradients(model, batch)
    assert all(not g.any() for name, g in found.items() if not name.startswith("h_net"))
    assert found["h_net.weight"].any()


@EVERY_ALGORITHM
def test_terminated_rows_get_no_correction(cls):
    model, batch = make_model(cls), make_batch()
    ended = batch._replace(dones=th.ones_like(batch.dones))
    terms = model.batch_loss(ended, model.update_settings())
    assert not terms.correction.any()
    # Nor does anything else of s' reach the update.
    elsewhere = ended._replace(next_observations=ended.next_observations + 5.0)
    assert_close(gradients(model, ended), gradients(model, elsewhere))
    assert (gradients(model, batch)["q_net.0.weight"] != gradients(model, ended)["q_net.0.weight"]).any()


@EVERY_ALGORITHM
def test_heads_do_not_train_each_other(cls):
    model, batch = make_model(cls), make_batch()
    v = forward(model, batch)
    squash = {"qrc": "squared", "gq": "squared", "qlc": "one_sided"}.get(cls.algorithm_name, "huber")
    value_loss, h_loss = written_losses(v, squash, cls.gradient_correction)
    assert all(not g.any() for name, g in gradients_of(model, h_loss).items() if not name.startswith("h_net"))
    assert all(not g.any() for name, g in gradients_of(model, value_loss).items() if name.startswith("h_net"))
    # And the same of the update itself: h's gradient is L_h's, whatever the values' loss does.
    found = gradients(model, batch)
    for name, gradient in gradients_of(model, h_loss).items():
        if name.startswith("h_net"):
            th.testing.assert_close(found[name], gradient)


@EVERY_ALGORITHM
@pytest.mark.parametrize("batch_size", [8, 4, 7])
def test_batches_as_wide_as_the_network_are_the_mean_of_their_rows(cls, batch_size):
    # Hidden width 8 and 4 actions: a (B,1)×(B,) broadcast would not show elsewhere, but be wrong here.
    model, batch = make_model(cls), make_batch(batch_size)
    rows = [
        gradients(model, ReplayBufferSamples(*(x[i : i + 1] for x in batch if x is not None)))
        for i in range(batch_size)
    ]
    assert_close(gradients(model, batch), {name: sum(r[name] for r in rows) / batch_size for name in rows[0]})
    terms = model.batch_loss(batch, model.update_settings())
    assert all(x.shape == (batch_size, 1) for x in terms[1:5])


@EVERY_ALGORITHM
def test_n_step_discounts_of_the_buffer_replace_gamma(cls):
    model, batch = make_model(cls), make_batch()
    discounts = th.full_like(batch.rewards, GAMMA**3)
    v = forward(model, batch)
    delta = batch.rewards + discounts * (1 - batch.dones) * v["b"] - v["q"]
    terms = model.batch_loss(batch._replace(discounts=discounts), model.update_settings())
    th.testing.assert_close(terms.td_error, delta.detach())
    th.testing.assert_close(model.batch_loss(batch, model.update_settings()).td_error, v["delta"])


def test_a_tie_of_the_maximum_gives_its_gradient_to_one_action():
    model = make_model(QRC, net_arch=[])
    for parameter in model.q_net.q_net.parameters():
        parameter.data.zero_()
    batch = make_batch(1, seed=3)._replace(dones=th.zeros(1, 1), actions=th.tensor([[3]]))
    moved = gradients(model, batch)["q_net.0.bias"]
    assert (moved[:3] != 0).sum() == 1


class Chain:
    """A chain of one action with stochastic transitions in quarters, so that a batch can hold its exact law."""

    n, beta, alpha = 5, 0.5, 0.1

    def __init__(self):
        rng = np.random.default_rng(4)
        self.features = rng.normal(size=(self.n, 3)).round(2)
        self.successors = rng.integers(0, self.n + 1, size=(self.n, 4))  # n: the episode ends
        self.rewards = rng.normal(size=(self.n, 4)) * 2

    def batch(self):
        states = np.repeat(np.arange(self.n), 4)
        after = self.successors.ravel()
        padded = np.vstack([self.features, np.zeros(3)])
        column = lambda x, dtype: th.as_tensor(np.asarray(x).reshape(-1, 1), dtype=dtype)  # noqa: E731
        return ReplayBufferSamples(
            observations=th.as_tensor(self.features[states], dtype=th.float32),
            actions=column(np.zeros(len(states)), th.int64),
            next_observations=th.as_tensor(padded[after], dtype=th.float32),
            dones=column(after == self.n, th.float64),
            rewards=column(self.rewards.ravel(), th.float64),
        )

    def expected_update(self, theta, theta_h, squash, gradient_correction):
        x = np.hstack([self.features.astype(np.float32), np.ones((self.n, 1))])  # the head's bias is a feature of 1
        x_next = np.zeros((self.n, 4))  # P_γ X
        reward = self.rewards.mean(1)
        for s in range(self.n):
            for end in self.successors[s]:
                x_next[s] += 0.0 if end == self.n else GAMMA * x[end] / 4
        d = np.full(self.n, 1 / self.n)
        delta, h = reward + x_next @ theta - x @ theta, x @ theta_h
        z = squash(h)
        first = delta if gradient_correction else z
        return x.T @ (d * first) - x_next.T @ (d * z), x.T @ (d * (delta - h))


@pytest.mark.parametrize(
    ("cls", "squash"),
    [(QRC, lambda h: h), (QRCHuber, lambda h: np.clip(h, -KAPPA, KAPPA)), (GQ, lambda h: h)]
    + [(GQHuber, lambda h: np.clip(h, -KAPPA, KAPPA))],
    ids=["qrc", "qrc_huber", "gq", "gq_huber"],
)
def test_one_sgd_step_with_linear_features_is_the_expected_update(cls, squash):
    chain = Chain()
    kwargs = {"huber_threshold": KAPPA} if "Huber" in cls.__name__ else {}
    model = make_model(
        cls,
        net_arch=[],
        env=SpacesOnly(3, 1),
        learning_rate=chain.alpha,
        h_learning_rate_ratio=0.5,
        h_regularization=chain.beta,
        policy_kwargs={"optimizer_class": th.optim.SGD},
        **kwargs,
    )
    head, h_head = model.q_net.q_net[0], model.q_net.h_net
    read = lambda layer: np.append(layer.weight.detach().numpy()[0], layer.bias.item())  # noqa: E731
    theta, theta_h = read(head), read(h_head)
    value_update, h_update = chain.expected_update(theta, theta_h, squash, cls.gradient_correction)

    model._logger = _NoLog()
    model._update_learning_rate(model.policy.optimizer)
    model._compute_gradients(chain.batch(), model.update_settings())
    model.policy.optimizer.step()
    np.testing.assert_allclose(read(head), theta + chain.alpha * value_update, rtol=1e-10)
    np.testing.assert_allclose(
        read(h_head), theta_h + 0.5 * chain.alpha * (h_update - chain.beta * theta_h), rtol=1e-10
    )


class _NoLog:
    def record(self, *args, **kwargs):
        pass


def values_on_bairds_star(cls, steps, **kwargs):
    """|q| over the seven states after full-batch updates that always end in the last state, reward 0."""
    features = np.zeros((7, 8), np.float32)
    features[:6, 0], features[6, 0], features[6, 7] = 1, 2, 1
    features[np.arange(6), np.arange(1, 7)] = 2
    model = make_model(
        cls,
        net_arch=[],
        env=SpacesOnly(8, 1),
        learning_rate=0.02,
        policy_kwargs={"optimizer_class": th.optim.SGD},
        **kwargs,
    )
    model.gamma = 0.99
    head = model.q_net.q_net[0]
    head.weight.data = th.tensor([[1.0] * 7 + [10.0]], dtype=th.float64)
    for layer in (head, model.q_net.h_net):
        layer.bias.data.zero_()
        layer.bias.requires_grad_(False)  # the star has no constant feature
    model.q_net.h_net.weight.data.zero_()
    batch = ReplayBufferSamples(
        observations=th.as_tensor(features),
        actions=th.zeros(7, 1, dtype=th.int64),
        next_observations=th.as_tensor(features[[6] * 7]),
        dones=th.zeros(7, 1),
        rewards=th.zeros(7, 1, dtype=th.float64),
    )
    model._logger = _NoLog()
    model._update_learning_rate(model.policy.optimizer)
    for _ in range(steps):
        model._compute_gradients(batch, model.update_settings())
        model.policy.optimizer.step()
    return model.q_net(batch.observations).abs().max().item()


def test_semi_gradient_diverges_on_bairds_star_and_qrc_does_not():
    start = values_on_bairds_star(QRC, 0)
    assert start == pytest.approx(12.0)
    assert values_on_bairds_star(QRCHuber, 3000, huber_threshold=0.0) > 100 * start
    assert values_on_bairds_star(QRC, 3000) < start
    assert values_on_bairds_star(QLC, 3000, limit="magnitude") < start
    # One-sided corrections are none where values are to fall, as those of six of its states are.
    assert values_on_bairds_star(QLC, 3000) > 100 * start
