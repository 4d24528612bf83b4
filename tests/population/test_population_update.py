"""One update of a member is the update of a single agent with the same parameters on the same batch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch as th
from populations import EVERY_ALGORITHM, double_precision, make
from small_models import FAMILY
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from sb3_robust_be.population.replay import nested

# What its class could be given that changes the update, each a list so that members differ within one population.
OWN_SETTINGS: dict[str, dict[str, Any]] = {
    "dqn": {"gamma": [0.9, 0.99]},
    "qrc": {
        "h_regularization": [0.0, 1.0],
        "h_learning_rate_ratio": [0.5, 2.0],
        "correction_weight": [0.5, 1.0],
        "td_error_threshold": [0.1, 1.0],
    },
    "qrc_huber": {"huber_threshold": [0.2, 1.0], "projection": ["huber", "smooth_huber"]},
    "qlc": {
        "limit": ["magnitude", "same_sign", "one_sided"],
        "h_target": ["td_error", "clipped"],
        "h_regularization_scale": ["absolute", "features"],
    },
    "gq": {"h_regularization": [0.0, 0.5]},
    "gq_huber": {"huber_threshold": [0.2, 1.0]},
    "sbeed": {"temperature": [0.1, 1], "eta": [0.0, 0.3]},
}
# SB3's DQN has no loss but its own: that of a threshold is tested below.
SHARED = {"learning_rate": [1e-3, 1e-2], "max_grad_norm": [0.05, 10.0]}


class DoubleFlatten(FlattenExtractor):
    """SB3 makes every observation float32; from here on the network is float64."""

    def forward(self, observations: th.Tensor) -> th.Tensor:
        return super().forward(observations).double()


def make_double(algorithm: str, seeds: Any = (3,), **kwargs: Any):
    with double_precision(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = {"net_arch": [16], "features_extractor_class": DoubleFlatten, **kwargs.pop("policy_kwargs", {})}
        return make(algorithm, seeds=seeds, policy_kwargs=network, **kwargs)


def single_update(model: Any, batch: dict[str, th.Tensor]) -> dict[str, th.Tensor]:
    """The parameters after ``train(1)`` on this batch."""
    samples = model.replay_buffer.sample(1)._replace(**nested(batch), discounts=None)
    model.replay_buffer.sample = lambda *_, **__: samples
    model.train(gradient_steps=1, batch_size=8)
    return {name: p.detach().clone() for name, p in model.policy.named_parameters()}


@pytest.mark.parametrize("target_update_interval", [None, 7])
@pytest.mark.parametrize("algorithm", EVERY_ALGORITHM)
def test_an_update_is_the_single_agents(algorithm, target_update_interval):
    check_update(
        make_double(algorithm, target_update_interval=target_update_interval, **SHARED, **OWN_SETTINGS[algorithm])
    )


@pytest.mark.parametrize("target_update_interval", [None, 7])
@pytest.mark.parametrize("algorithm", ["dqn", "qlc", "sbeed"])
def test_an_update_with_layer_normalisation(algorithm, target_update_interval):
    network = {"net_arch": [16, 8], "layer_norm": True}
    settings = {"target_update_interval": target_update_interval, **SHARED, **OWN_SETTINGS[algorithm]}
    population = make_double(algorithm, policy_kwargs=network, **settings)
    sizes = [layer.out_features for layer in population[0].q_net.modules() if isinstance(layer, th.nn.Linear)]
    assert sizes[:3] == [16, 8, 2]
    assert sum(isinstance(layer, th.nn.LayerNorm) for layer in population[0].q_net.modules()) == 2
    check_update(population)


@pytest.mark.parametrize("algorithm", FAMILY, ids=lambda cls: cls.algorithm_name)
def test_an_update_with_what_the_paper_leaves_open(algorithm):
    choices = {"h_averaging": ["batch", "action", "broadcast"], "h_decoupled_weight_decay": [True, False]}
    decay = {"h_regularization": [0.5, 2.0], "h_learning_rate_ratio": 0.5, "learning_rate": 1e-2}
    check_update(make_double(algorithm.algorithm_name, **choices, **decay))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dqn", "qlc"])
def test_compiled_with_layer_normalisation(algorithm):
    network = {"net_arch": [16], "layer_norm": True}
    eager, compiled = (make(algorithm, [0, 1], compile=bool(c), policy_kwargs=network).learn(40) for c in (0, 1))
    for name, x in eager._trainer.learners[0].state().items():
        th.testing.assert_close(compiled._trainer.learners[0].state()[name], x, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_compiled_with_what_the_paper_leaves_open():
    """In place within one graph, the head is read, decayed and moved."""
    choices = {
        "h_averaging": "action",
        "h_decoupled_weight_decay": True,
        "h_regularization": 2.0,
        "learning_rate": 0.01,
    }
    eager, compiled = (
        make("qrc_huber", [0, 1], compile=bool(c), max_grad_norm=0.05, **choices).learn(40) for c in (0, 1)
    )
    for name, x in eager._trainer.learners[0].state().items():
        th.testing.assert_close(compiled._trainer.learners[0].state()[name], x, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("layer_norm", [False, True])
def test_compiled_with_convolutions(layer_norm):
    network = {"features_extractor_kwargs": {"features_dim": 16}, "layer_norm": layer_norm}
    images = {"policy_kwargs": network, "policy": "CnnPolicy"}
    eager, compiled = (make("qrc_huber", [0, 1], "MinAtar/Breakout-v1", compile=bool(c), **images) for c in (0, 1))
    start = eager._trainer.learners[0].rows.clone()
    states = [population.learn(40)._trainer.learners[0].state() for population in (eager, compiled)]
    for name, x in states[0].items():
        th.testing.assert_close(states[1][name], x, rtol=1e-5, atol=1e-5)
    assert (states[0]["rows"] - start).abs().max() > 1e-3


def check_update(population: Any) -> None:
    """One update of each member against one of its single agent's."""
    population.learn(32)
    trainer = population._trainer
    assert not population.failed.any()
    with double_precision(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        singles = [population[i] for i in range(len(population))]
        for model in singles:
            model._setup_learn(1, reset_num_timesteps=False)
    uniforms = np.random.default_rng(0).random((len(population), 8))
    batch = trainer.replay.sample(uniforms)
    before = [learner.rows.clone() for learner in trainer.learners]
    for members, learner in zip(trainer.groups, trainer.learners, strict=True):
        learner.update({name: x[members] for name, x in batch.items()}, 0.5)
    for i, model in enumerate(singles):
        with double_precision():
            expected = single_update(model, {name: x[i] for name, x in batch.items()})
        learner, row = trainer.learner_of(i)
        for name, value in learner.layout.split(learner.rows).items():
            th.testing.assert_close(value[row], expected[name], rtol=1e-6, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
    for old, learner in zip(before, trainer.learners, strict=True):
        assert (old != learner.rows).any(dim=1).all()


def test_members_with_a_target_differ_from_their_target():
    """Else the test above would not see which of the two bootstraps."""
    population = make_double("qrc_huber", target_update_interval=7)
    population.learn(32)
    (learner,) = population._trainer.learners
    assert (learner.rows != learner.target_rows).any(dim=1).all()


@pytest.mark.parametrize("threshold", [0.01, 0.5, None])
def test_dqns_threshold(threshold):
    """Against autograd's gradient of torch's losses; SB3's DQN has threshold 1 only."""
    population = make_double(
        "dqn", seeds=[0, 1], huber_threshold=threshold, target_update_interval=7, max_grad_norm=None
    )
    population.learn(32)
    trainer = population._trainer
    (learner,) = trainer.learners
    batch = trainer.replay.sample(np.random.default_rng(1).random((len(population), 8)))
    with double_precision(), pytest.warns(UserWarning, match="huber_threshold"):
        model = population[1]
    one = {name: x[1] for name, x in batch.items()}
    next_value = model.q_net_target(one["next_observations"]).max(dim=1, keepdim=True).values
    target = (one["rewards"] + 0.99 * (1 - one["dones"]) * next_value).detach()
    q = model.q_net(one["observations"]).gather(1, one["actions"])
    if threshold is None:
        loss = 0.5 * ((target - q) ** 2).mean()
    else:
        loss = th.nn.functional.huber_loss(q, target, delta=threshold)
        assert 0 < (abs(target - q) > threshold).sum()
    gradients = th.autograd.grad(loss, list(model.q_net.parameters()))
    parts, _ = learner._functions.gradient(
        learner.layout.cut(learner.rows),
        learner.target_rows,
        learner._constants,
        learner._settings_at(1.0).numbers,
        {**batch, "discounts": learner._gamma},
        learner._settings_at(1.0).choices,
        False,
    )
    found = th.cat(parts, dim=1)
    th.testing.assert_close(found[1], th.cat([g.flatten() for g in gradients]), rtol=1e-6, atol=1e-10)


@pytest.mark.filterwarnings("ignore:.*bootstraps from a target network:UserWarning")
@pytest.mark.parametrize("algorithm", EVERY_ALGORITHM)
def test_every_single_agent_has_its_loss_by_the_same_names(algorithm):
    """:class:`SupportsBatchLoss`, of SB3's DQN as well."""
    for target_update_interval in (None, 5):
        (model,) = make(algorithm, [0], target_update_interval=target_update_interval)._models
        batch = ReplayBufferSamples(
            *(th.zeros(3, 4), th.zeros(3, 1, dtype=th.long), th.ones(3, 4), th.zeros(3, 1), th.ones(3, 1))
        )
        terms = model.batch_loss(batch, model.update_settings())
        assert terms.loss.requires_grad
        assert [x.shape for x in terms[1:5]] == [(3, 1)] * 4
        assert model.has_target == (target_update_interval is not None)
        choices = model.loss_choices()
        model.gamma = 0.5
        assert hash(choices) != hash(model.loss_choices()), "a compiled update is of one value of γ"
