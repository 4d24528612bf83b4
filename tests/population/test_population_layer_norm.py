"""Populations with layer normalisation: images and dictionaries, SB3's DQN as a member, saving and loading."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from populations import SMALL, assert_same_member, make, member_state
from small_envs import SpaceEnv, images
from small_models import assert_same_parameters
from stable_baselines3 import DQN
from stable_baselines3.common.torch_layers import CombinedExtractor, NatureCNN
from torch import nn

from sb3_robust_be import LayerNormExtractor, MinAtarCNN, Population
from sb3_robust_be.population.baseline import BaselineDQN
from sb3_robust_be.population.replay import nested
from sb3_robust_be.qrc import MlpPolicy
from sb3_robust_be.registry import classes

pytestmark = pytest.mark.filterwarnings("error::UserWarning", "ignore:.*bootstraps from a target network")

NATURE = images(36, 36, 1, channels_last=False)
DICT = spaces.Dict({"picture": NATURE, "vector": spaces.Box(-1.0, 1.0, (4,), np.float32)})
PLACES: dict[str, tuple[str, Any, dict[str, Any], type]] = {
    "minatar": (
        *("CnnPolicy", images(10, 10, 4, bool), {"net_arch": [], "features_extractor_class": MinAtarCNN}, MinAtarCNN),
    ),
    "nature": ("CnnPolicy", NATURE, {}, NatureCNN),
    "dict": ("MultiInputPolicy", DICT, {"net_arch": [8]}, CombinedExtractor),
}


@pytest.mark.parametrize("algorithm", ["qrc", "qlc"])
def test_a_policy_given_by_class_is_the_one_given_by_name(algorithm, tmp_path):
    by_name, by_class = (make(algorithm, [0, 1], policy=policy).learn(25) for policy in ("MlpPolicy", MlpPolicy))
    by_class.save(tmp_path)
    for population in (by_class, Population.load(tmp_path)):
        assert population[1].policy.layer_norm is (algorithm == "qlc")
        for i in range(2):
            assert_same_member(member_state(population, i), member_state(by_name, i))


@pytest.mark.parametrize("interval", [None, 7])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("algorithm", ["dqn", "qlc"])
def test_the_gradient_of_images_is_the_single_agents(algorithm, place, interval):
    """Autograd's, for parameters of which no gain is 1 any more; single precision is all that images have."""
    policy, space, kwargs, features = PLACES[place]
    kwargs = {**kwargs, "layer_norm": True}
    settings = {**SMALL, "buffer_size": 40, "target_update_interval": interval, "policy_kwargs": kwargs}
    population = Population(algorithm, policy, lambda: SpaceEnv(space), [0, 1], **settings)
    trainer = population._trainer
    (learner,) = trainer.learners
    population.learn(21)
    learner.rows.add_(0.1 * th.randn(learner.rows.shape, generator=th.Generator().manual_seed(0)))
    if learner.target_rows is not None:
        learner.target_rows.add_(0.1 * th.randn(learner.rows.shape, generator=th.Generator().manual_seed(1)))
    batch = trainer.replay.sample(np.random.default_rng(0).random((2, 8)))
    single = population[1].policy
    assert isinstance(getattr(single.q_net.features_extractor, "extractor", single.q_net.features_extractor), features)
    model = with_the_populations_loss(algorithm, policy, space, kwargs, interval)
    model.policy.load_state_dict(single.state_dict())
    found, _ = learner._functions.gradient(
        learner.layout.cut(learner.rows),
        learner.target_rows,
        learner._constants,
        learner._settings_at(1.0).numbers,
        {**learner._encode(batch), "discounts": learner._gamma},
        learner._settings_at(1.0).choices,
        interval is not None and algorithm != "dqn",
    )
    samples = population[1].replay_buffer.sample(1)._replace(**nested({k: x[1] for k, x in batch.items()}))
    model.batch_loss(samples._replace(discounts=None), model.update_settings()).loss.backward()
    online, target = (dict(network.named_parameters()) for network in (model.q_net, model.q_net_target))
    for name, gradient in learner.layout.named(found).items():
        expected = online[name.removeprefix("q_net.")].grad
        moved = target[name.removeprefix("q_net.")].grad if interval is not None else None
        expected = (0 if expected is None else expected) + (0 if moved is None else moved)
        scale = float(th.as_tensor(expected).abs().max())
        th.testing.assert_close(
            *(gradient[1], expected), rtol=1e-3, atol=1e-4 * scale + 1e-9, msg=lambda m, n=name: f"{n}: {m}"
        )


def with_the_populations_loss(algorithm, policy, space, kwargs, interval):
    """A single agent, of SB3's network but the population's loss."""
    cls = BaselineDQN if algorithm == "dqn" else classes()[algorithm]
    return cls(policy, SpaceEnv(space), policy_kwargs=kwargs, target_update_interval=interval, buffer_size=1)


def test_a_member_of_dqn_is_sb3s():
    network = {"layer_norm": True, "net_arch": [32, 32]}
    population = make("dqn", [3, 4], policy_kwargs=network)
    told = {"net_arch": [32, 32], "activation_fn": nn.ReLU}
    single = DQN(
        *("MlpPolicy", "CartPole-v1"),
        **{k: v for k, v in SMALL.items() if k != "policy_kwargs"},
        seed=4,
        policy_kwargs={
            **{"features_extractor_class": LayerNormExtractor, "features_extractor_kwargs": told, "net_arch": []}
        },
    )
    member = population[1]
    assert type(member) is DQN
    assert_same_parameters(member, single)
    member.learn(30)
    assert member._n_updates == 10


@pytest.mark.parametrize("algorithm", ["dqn", "qlc"])
def test_save_and_load(algorithm, tmp_path):
    network = {"layer_norm": True, "net_arch": [8]}
    population = make(algorithm, [0, 1], policy_kwargs=network, target_update_interval=7).learn(25)
    population.save(tmp_path / "population")
    loaded = Population.load(tmp_path / "population")
    assert loaded.arguments["policy_kwargs"] == network
    for own in (population, loaded):
        own.learn(15, reset_num_timesteps=False)
    for i in range(2):
        assert_same_member(member_state(population, i), member_state(loaded, i))
    population[0].save(tmp_path / "model")
    single = type(population[0]).load(tmp_path / "model")
    assert_same_parameters(single, population[0])


def test_a_wrong_value():
    with pytest.raises(TypeError, match="layer_norm must be True or False and is 'no'"):
        make("dqn", policy_kwargs={"layer_norm": "no"})
