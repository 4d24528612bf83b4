"""What the paper leaves open: averaging and decay of the secondary head, and where the two heads start."""

from __future__ import annotations

import re

import pytest
import torch as th
from small_envs import SpaceEnv, images, vector_and_code
from small_models import FAMILY, assert_same, every_algorithm, every_family_algorithm, make, parameters, those_with
from stable_baselines3 import DQN
from stable_baselines3.common.logger import configure
from two_heads import assert_close, forward, gradients, gradients_of, make_batch, make_model

from sb3_robust_be import QRC, MinAtarCNN
from sb3_robust_be.qrc import MlpPolicy
from sb3_robust_be.qrc.losses import action_counts, qrc_loss
from sb3_robust_be.qrc.networks import HEAD_INITS
from sb3_robust_be.updates import project

pytestmark = pytest.mark.filterwarnings("error::UserWarning")
OPTIMISERS = ("SGD", "RMSprop", "Adagrad")

# Averaging


def test_every_action_weighs_the_same_by_hand():
    actions = th.tensor([[0], [2], [0], [0]])
    counts = action_counts(actions)
    assert counts.tolist() == [[3], [1], [3], [3]]
    rewards = th.tensor([[3.0], [5.0], [6.0], [0.0]])
    zeros = th.zeros(4, 1)
    for shared, expected in ((counts, [-1.0, -5.0, -2.0, 0.0]), (None, [-0.75, -1.25, -1.5, 0.0])):
        q, h = (th.zeros(4, 1, requires_grad=True) for _ in range(2))
        qrc_loss(q, h, zeros, rewards, zeros, h_counts=shared).loss.backward()
        assert h.grad.flatten().tolist() == expected
        assert q.grad.flatten().tolist() == [-0.75, -1.25, -1.5, 0.0], "the values' loss is the batch's mean"


@every_family_algorithm
def test_averaging_by_action_is_the_sum_of_the_actions_means(algorithm):
    batch = make_batch()
    plain, model = make_model(algorithm), make_model(algorithm, h_averaging="action")
    counts = th.bincount(batch.actions.flatten())
    assert len(counts.unique()) > 1, "rare and frequent actions"
    v = forward(model, batch)
    errors = 0.5 * (v["delta"] - v["h"]) ** 2
    expected = gradients_of(model, sum(errors[batch.actions == a].mean() for a in batch.actions.unique()))
    found, before = gradients(model, batch), gradients(plain, batch)
    heads = {name for name in found if name.startswith("h_net")}
    assert_close({name: found[name] for name in heads}, expected)
    assert_close({name: found[name] for name in found if name not in heads}, before)
    assert all((found[name] != before[name]).any() for name in heads)
    # One action alone is the whole batch.
    one = batch._replace(actions=th.ones_like(batch.actions))
    assert_close(gradients(model, one), gradients(plain, one))


@every_family_algorithm
def test_broadcast_is_what_shapes_that_do_not_match_give(algorithm):
    """δ without its last axis, against h with it: each product and difference is of every pair of samples."""
    batch = make_batch()
    model = make_model(algorithm, h_averaging="broadcast")
    v = forward(model, batch)
    delta, h = v["delta"].flatten(), v["h"]
    size = len(delta)
    z = project(h.detach(), v["delta"], **model.projection_settings())
    # A saddlepoint's values follow each sample's own z.
    bootstrapped = (v["discount"] * v["b"]).flatten()
    pairs = z * bootstrapped
    errors = (delta - h) ** 2
    assert pairs.shape == errors.shape == (size, size)
    value = (0.5 * (v["T"] - v["q"]) ** 2).mean() if algorithm.gradient_correction else -(z * v["q"]).mean()
    expected = gradients_of(model, value + pairs.mean() + 0.5 * errors.mean())
    found = gradients(model, batch)
    assert_close(found, expected)
    assert any((found[name] != x).any() for name, x in gradients(make_model(algorithm), batch).items())
    # One sample is its own mean.
    one = type(batch)(*(None if x is None else x[:1] for x in batch))
    assert_close(gradients(model, one), gradients(make_model(algorithm), one))


@those_with("h_averaging")
def test_an_unknown_averaging(algorithm):
    with pytest.raises(ValueError, match="h_averaging must be one of 'batch', 'action', 'broadcast' and is 'sample'"):
        make(algorithm, h_averaging="sample")


# Decay


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("decoupled", [True, False])
@those_with("h_decoupled_weight_decay")
def test_decoupled_decay_by_hand(algorithm, decoupled, fused):
    """Adam's first step is α·g/|g|, whatever β adds to the gradient g; decoupled decay takes αηβ of the weight."""
    kwargs = {"h_regularization": 3.0, "h_learning_rate_ratio": 0.5, "learning_rate": 0.1}
    optimizer = {"optimizer_kwargs": {"fused": fused}}
    model = make(algorithm, h_decoupled_weight_decay=decoupled, policy_kwargs=optimizer, **kwargs)
    model.set_logger(configure(None, []))
    values, secondary = model.policy.optimizer.param_groups
    assert (values["weight_decay"], secondary["weight_decay"]) == (0, 3.0)
    model._update_learning_rate(model.policy.optimizer)
    before = [0.5 * th.ones_like(p) for p in secondary["params"]]
    with th.no_grad():
        for parameter in model.policy.parameters():
            parameter.fill_(0.5)
            parameter.grad = th.full_like(parameter, -0.01)
    model.policy.optimizer.step()
    # Inside, 3 · 0.5 outweighs −0.01 and turns the step round.
    left = 0.5 * (1 - 0.05 * 3.0) + 0.05 if decoupled else 0.5 - 0.05
    for parameter, old in zip(secondary["params"], before, strict=True):
        th.testing.assert_close(parameter.detach(), 0 * old + left)
    for parameter in values["params"]:
        th.testing.assert_close(parameter.detach(), th.full_like(parameter, 0.6), msg="the values have no decay")


@pytest.mark.parametrize("optimizer", OPTIMISERS)
@those_with("h_decoupled_weight_decay")
def test_decoupled_decay_needs_an_optimiser_that_has_it(algorithm, optimizer):
    kwargs = {"policy_kwargs": {"optimizer_class": getattr(th.optim, optimizer)}}
    make(algorithm, **kwargs)
    with pytest.raises(ValueError, match=rf"h_decoupled_weight_decay=True needs.*{optimizer} is not\. Use Adam"):
        make(algorithm, h_decoupled_weight_decay=True, **kwargs)


@pytest.mark.parametrize("value", ["yes", 1, None])
@those_with("h_decoupled_weight_decay")
def test_a_switch_of_another_type(algorithm, value):
    expected = re.escape(f"h_decoupled_weight_decay must be True or False and is {value!r}. In YAML")
    with pytest.raises(TypeError, match=expected):
        make(algorithm, h_decoupled_weight_decay=value)


# Heads


@pytest.mark.parametrize("head_init", HEAD_INITS)
@every_algorithm
def test_where_the_heads_start(algorithm, head_init):
    dqn, model = make(DQN, seed=3), make(algorithm, seed=3, policy_kwargs={"head_init": head_init, "layer_norm": False})
    own, dqns = parameters(model), parameters(dqn)
    for kind in ("weight", "bias"):
        assert own[f"q_net.h_net.{kind}"].any() == (head_init == "torch")
        assert own[f"q_net.q_net.2.{kind}"].any() == (head_init != "zeros")
        assert_same(own[f"q_net.q_net.0.{kind}"], dqns[f"q_net.q_net.0.{kind}"])
        # torch's own: uniform in ±1/√16.
        assert 0.1 < own[f"q_net.h_net.{kind}"].abs().max() <= 0.25 or head_init != "torch"
    if head_init != "zeros":
        assert_same(own["q_net.q_net.2.weight"], dqns["q_net.q_net.2.weight"])


def test_the_default_is_h_at_zero_and_draws_the_same():
    models = [make(QRC, policy_kwargs=kwargs) for kwargs in ({}, {"head_init": "zero_h"}, {"head_init": "torch"})]
    assert_same(parameters(models[0]), parameters(models[1]))
    draws = []
    for head_init in HEAD_INITS:
        make(QRC, policy_kwargs={"head_init": head_init})
        draws.append(th.rand(3).tolist())
    assert draws[0] == draws[1] == draws[2]


@pytest.mark.parametrize("policy", ["MlpPolicy", "CnnPolicy", "MultiInputPolicy"])
def test_every_policy_keeps_its_start(policy, tmp_path):
    spaces = {"CnnPolicy": images(10, 10, 4), "MultiInputPolicy": vector_and_code()}
    env = SpaceEnv(spaces[policy]) if policy in spaces else "CartPole-v1"
    model = make(QRC, env, policy, buffer_size=20, policy_kwargs={"head_init": "zeros"})
    assert not parameters(model)["q_net.h_net.weight"].any()
    assert not model.q_net.q_net[-1].weight.any()
    assert isinstance(model.q_net.features_extractor, MinAtarCNN) == (policy == "CnnPolicy")
    model.policy.save(tmp_path / "policy")
    loaded = type(model.policy).load(tmp_path / "policy", device="cpu")
    assert loaded.head_init == "zeros"
    assert not loaded.make_q_net().q_net[-1].weight.any()


def test_an_unknown_start():
    with pytest.raises(ValueError, match="head_init must be one of 'zero_h', 'torch', 'zeros' and is 'ones'"):
        make(QRC, policy_kwargs={"head_init": "ones"})
    with pytest.raises(ValueError, match="head_init"):
        make(QRC, policy=MlpPolicy, policy_kwargs={"head_init": None})


@every_algorithm
def test_dqns_file_starts_h_at_zero_whatever_the_start(algorithm, tmp_path):
    dqn = make(DQN).learn(20)
    dqn.save(tmp_path / "dqn")
    model = make(algorithm, policy_kwargs={"head_init": "torch", "layer_norm": False})
    model.set_parameters(tmp_path / "dqn.zip")
    assert not parameters(model)["q_net.h_net.weight"].any()


# Together


@pytest.mark.parametrize("algorithm", FAMILY, ids=lambda cls: cls.algorithm_name)
def test_every_choice_changes_what_is_learned(algorithm):
    """From equal seeds and, but for the start, equal weights."""
    choices = [
        {},
        {"h_averaging": "action"},
        {"h_averaging": "broadcast"},
        {"h_decoupled_weight_decay": True, "h_regularization": 1.0},
        {"h_regularization": 1.0},
        *({"policy_kwargs": {"head_init": head_init}} for head_init in ("torch", "zeros")),
    ]
    found = [parameters(make(algorithm, **choice).learn(60))["q_net.h_net.weight"] for choice in choices]
    equal = [(i, j) for i in range(len(found)) for j in range(i) if th.equal(found[i], found[j])]
    # β = 1 is the default of the gradient corrections.
    assert equal == ([(4, 0)] if algorithm.gradient_correction else [])
