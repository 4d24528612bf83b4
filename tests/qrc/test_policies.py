"""The two-headed policies: weights and names as DQN's, the optimiser's groups, extractors, and the mode switch."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from small_envs import SpaceEnv, images, vector_and_code
from small_models import BatchNormExtractor, assert_same, every_algorithm, make, parameters, q_values, reloaded
from stable_baselines3 import DQN
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor, NatureCNN
from torch import nn

from sb3_robust_be import QLC, QRC, MinAtarCNN
from sb3_robust_be.qrc import CnnPolicy, MlpPolicy, MultiInputPolicy, QRCPolicy

pytestmark = pytest.mark.filterwarnings("error::UserWarning")

PLACES = {
    "MlpPolicy": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "CnnPolicy": images(36, 36, 1),
    "MultiInputPolicy": vector_and_code(),
}


def policy_for(policy_class, space, **kwargs):
    return policy_class(space, spaces.Discrete(3), lambda _: 1e-3, **kwargs)


@pytest.mark.parametrize("policy", PLACES)
@every_algorithm
def test_starts_from_dqns_weights(algorithm, policy):
    env = SpaceEnv(PLACES[policy], n_actions=3)
    dqn = make(DQN, env, policy, seed=3, buffer_size=20)
    ours = make(algorithm, env, policy, seed=3, buffer_size=20, policy_kwargs={"layer_norm": False})
    names = {name for name in dqn.policy.state_dict() if not name.startswith("q_net_target.")}
    h_names = {"q_net.h_net.weight", "q_net.h_net.bias"}
    assert ours.policy.state_dict().keys() == names | h_names
    for name in names:
        assert_same(ours.policy.state_dict()[name], dqn.policy.state_dict()[name])
    for name in h_names:
        assert not ours.policy.state_dict()[name].any()
    assert isinstance(ours.policy, algorithm.policy_aliases[policy])


def test_aliases():
    assert (MlpPolicy, QRC.policy_aliases["MlpPolicy"]) == (QRCPolicy, QRCPolicy)
    assert QRC.policy_aliases == {"MlpPolicy": MlpPolicy, "CnnPolicy": CnnPolicy, "MultiInputPolicy": MultiInputPolicy}
    assert not set(QRC.policy_aliases.values()) & set(DQN.policy_aliases.values())


@pytest.mark.parametrize("policy", PLACES)
@every_algorithm
def test_a_policy_given_by_class_is_the_one_given_by_name(algorithm, policy, tmp_path):
    env = SpaceEnv(PLACES[policy], n_actions=3)
    own = algorithm.policy_aliases[policy]
    for kwargs, normalised in (
        ({}, algorithm is QLC),
        ({"policy_kwargs": {"net_arch": [5]}}, algorithm is QLC),
        ({"policy_kwargs": {"layer_norm": False}}, False),
        ({"policy_kwargs": {"layer_norm": True}}, True),
    ):
        by_name, by_class = (algorithm(given, env, buffer_size=20, seed=3, **kwargs) for given in (policy, own))
        assert by_class.policy_kwargs == by_name.policy_kwargs
        assert_same(parameters(by_class), parameters(by_name))
        assert by_class.policy.layer_norm is normalised
        assert_same(parameters(reloaded(by_class, tmp_path / "model", **kwargs)), parameters(by_class))


class UsersPolicy(MlpPolicy):
    """A policy of one's own, whose layers nobody else knows."""


@every_algorithm
def test_a_policy_of_ones_own_is_left_alone(algorithm, tmp_path):
    model = algorithm(UsersPolicy, "CartPole-v1", buffer_size=20)
    assert model.policy_kwargs == {}
    assert not model.policy.layer_norm
    for given in (None, {}):
        assert reloaded(model, tmp_path / "model", policy_kwargs=given).policy_kwargs == {}
    asked = algorithm(UsersPolicy, "CartPole-v1", buffer_size=20, policy_kwargs={"layer_norm": True})
    assert asked.policy.layer_norm


@pytest.mark.parametrize("policy", PLACES)
def test_both_heads_sit_on_the_last_hidden_features(policy):
    model = make(QRC, SpaceEnv(PLACES[policy], n_actions=3), policy, buffer_size=20)
    network = model.q_net
    with th.no_grad():
        for parameter in network.h_net.parameters():
            parameter.normal_()
    env = model.get_env()
    observations = model.policy.obs_to_tensor(env.reset())[0]
    q, h = network.q_and_h(observations)
    th.testing.assert_close(q, network(observations))
    hidden = network.q_net[:-1](network.extract_features(observations, network.features_extractor))
    th.testing.assert_close(h, network.h_net(hidden))
    assert network.h_net.in_features == network.q_net[-1].in_features
    h.sum().backward()
    assert {name for name, p in network.named_parameters() if p.grad is not None} == {"h_net.weight", "h_net.bias"}


@pytest.mark.parametrize("policy", PLACES)
@every_algorithm
def test_optimiser_groups(algorithm, policy):
    model = make(algorithm, SpaceEnv(PLACES[policy]), policy, buffer_size=20)
    values, secondary = model.policy.optimizer.param_groups
    assert {id(p) for p in secondary["params"]} == {id(p) for p in model.q_net.h_net.parameters()}
    everything = [id(p) for p in values["params"] + secondary["params"]]
    assert sorted(everything) == sorted(id(p) for p in model.q_net.parameters())
    assert (values["weight_decay"], secondary["weight_decay"]) == (0, model.h_regularization)
    assert values["fused"]
    assert secondary["fused"]


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({}, {"fused": True, "eps": 1e-8}),
        ({"optimizer_kwargs": {"eps": 1e-5}}, {"fused": True, "eps": 1e-5}),
        ({"optimizer_kwargs": {"fused": False}}, {"fused": False}),
        ({"optimizer_kwargs": {"foreach": True}}, {"fused": None, "foreach": True}),
        ({"optimizer_kwargs": {"capturable": False}}, {"fused": None}),
        ({"optimizer_class": th.optim.AdamW}, {"fused": True}),
        ({"optimizer_class": th.optim.SGD, "optimizer_kwargs": {"momentum": 0.5}}, {"momentum": 0.5, "fused": None}),
        ({"optimizer_class": th.optim.RMSprop, "optimizer_kwargs": {"alpha": 0.95}}, {"alpha": 0.95}),
    ],
)
def test_optimiser_kwargs_are_respected(kwargs, expected):
    model = make(QRC, policy_kwargs=kwargs)
    assert type(model.policy.optimizer) is kwargs.get("optimizer_class", th.optim.Adam)
    for group in model.policy.optimizer.param_groups:
        assert {name: group[name] for name in expected} == expected
    model.learn(14)
    assert kwargs.get("optimizer_kwargs", {}) == model.policy_kwargs.get("optimizer_kwargs", {})


@pytest.mark.parametrize("policy", PLACES)
@every_algorithm
def test_policy_save_load(algorithm, policy, tmp_path):
    env = SpaceEnv(PLACES[policy], n_actions=3)
    model = make(algorithm, env, policy, buffer_size=20).learn(14)
    model.policy.save(tmp_path / "policy")
    loaded = type(model.policy).load(tmp_path / "policy", device="cpu")
    assert_same(dict(loaded.state_dict()), dict(model.policy.state_dict()))
    observation = env.observation_space.sample()
    action = loaded.predict(observation, deterministic=True)[0]
    assert action == model.predict(observation, deterministic=True)[0]
    model.policy.load_from_vector(loaded.parameters_to_vector())
    assert_same(dict(loaded.state_dict()), dict(model.policy.state_dict()))


# Extractors


@pytest.mark.parametrize(
    ("space", "extractor"),
    [
        (images(84, 84, 4), NatureCNN),
        (images(36, 36, 3, channels_last=False), NatureCNN),
        (images(40, 36, 1, channels_last=False), NatureCNN),
        (images(35, 84, 3, channels_last=False), MinAtarCNN),
        (images(10, 10, 4), MinAtarCNN),
        (images(10, 10, 7, bool), MinAtarCNN),
        (images(10, 10, 10, bool), MinAtarCNN),
        (spaces.Box(0.0, 1.0, (10, 10, 4), np.float32), MinAtarCNN),
    ],
)
def test_cnn_policy_chooses_by_size(space, extractor):
    policy = make(QRC, SpaceEnv(space), "CnnPolicy", buffer_size=2).policy
    assert type(policy.q_net.features_extractor) is extractor
    assert len(policy.q_net.q_net) == 1, "no hidden layers on top"


def test_cnn_policy_takes_the_users_choice():
    assert len(policy_for(CnnPolicy, images(10, 10, 4, bool), net_arch=[8]).q_net.q_net) == 3
    small = policy_for(CnnPolicy, images(40, 40, 4, channels_last=False), features_extractor_class=MinAtarCNN)
    assert type(small.q_net.features_extractor) is MinAtarCNN
    flat = policy_for(CnnPolicy, images(5, 5, 1), features_extractor_class=BatchNormExtractor)
    assert flat.net_arch == [64, 64]
    with pytest.raises(ValueError, match=r"MinAtarCNN needs images.*\(4,\).*MlpPolicy"):
        policy_for(CnnPolicy, spaces.Box(-1.0, 1.0, (4,)))


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.float32])
def test_minatar_cnn_reads_either_order(dtype):
    """The same picture with the channels at either end gives the same features."""
    th.manual_seed(0)
    first, last = (images(10, 11, 4, dtype, channels_last=end) for end in (False, True))
    last.seed(0)
    networks = [MinAtarCNN(space) for space in (first, last)]
    networks[1].load_state_dict(networks[0].state_dict())
    assert [n.channels_last for n in networks] == [False, True]
    assert networks[0].cnn[0].weight.shape == (16, 4, 3, 3)
    assert networks[0].linear[0].weight.shape == (128, 16 * 8 * 9)
    picture = th.as_tensor(np.stack([last.sample() for _ in range(5)])).float() / last.high.max()
    features = networks[1](picture)
    assert features.shape == (5, 128)
    th.testing.assert_close(networks[0](picture.permute(0, 3, 1, 2)), features)


def test_minatar_cnn_of_a_cube_is_channels_last_unless_told():
    th.manual_seed(0)
    cube = images(10, 10, 10, bool)
    cube.seed(0)
    last, first = MinAtarCNN(cube), MinAtarCNN(cube, channels_last=False)
    first.load_state_dict(last.state_dict())
    picture = th.as_tensor(np.stack([cube.sample() for _ in range(3)])).float()
    th.testing.assert_close(first(picture.permute(0, 3, 1, 2)), last(picture))
    assert not th.allclose(first(picture), last(picture))


def test_minatar_cnn_arguments():
    network = MinAtarCNN(images(5, 6, 2), features_dim=9, n_channels=3)
    assert network.features_dim == 9
    assert network(th.zeros(2, 5, 6, 2)).shape == (2, 9)
    assert network.cnn[0].weight.shape == (3, 2, 3, 3)
    with pytest.raises(ValueError, match=r"at least 3×3 and got 2×5.*channels_last"):
        MinAtarCNN(images(2, 5, 1))


def test_uint8_images_are_scaled():
    policy = policy_for(CnnPolicy, images(10, 10, 4, channels_last=False))
    seen = []
    policy.q_net.features_extractor.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    policy.predict(np.full((4, 10, 10), 255, np.uint8))
    assert (seen[0] == 1.0).all()


@pytest.mark.parametrize("dtype", [bool, np.uint8])
def test_minatar_cnn_inside_dqn(dtype):
    kwargs = {"features_extractor_class": MinAtarCNN, "net_arch": []}
    env = SpaceEnv(images(10, 10, 6, dtype))
    dqn = make(DQN, env, "CnnPolicy" if dtype is bool else "MlpPolicy", policy_kwargs=kwargs)
    before = dqn.q_net.features_extractor.cnn[0].weight.clone()
    dqn.learn(20)
    assert not th.equal(dqn.q_net.features_extractor.cnn[0].weight, before)
    ours = make(QRC, env, "CnnPolicy", seed=0)
    assert_same(ours.q_net.features_extractor.state_dict().keys(), dqn.q_net.features_extractor.state_dict().keys())


# Training and evaluation mode


class Recorder(BaseFeaturesExtractor):
    """Looks at its mode by itself, as a dropout in functional form does."""

    def __init__(self, observation_space):
        super().__init__(observation_space, 4)
        self.modes = []

    def forward(self, observations):
        self.modes.append((self.training, observations.shape[0]))
        return nn.functional.dropout(observations, 0.5, self.training)


@every_algorithm
def test_modes_reach_whatever_depends_on_them(algorithm):
    model = make(algorithm, policy_kwargs={"features_extractor_class": Recorder}).learn(20)
    modes = model.q_net.features_extractor.modes
    assert set(modes) == {(True, 16), (False, 1)}, "training on 2·8 rows, acting on 1"
    observation = np.ones((200, 4), np.float32)
    assert th.equal(q_values(model, observation), q_values(model, observation))


@pytest.mark.parametrize("activation", [nn.Dropout, nn.RReLU])
def test_modes_reach_activations(activation):
    model = make(QRC, policy_kwargs={"activation_fn": activation})
    for mode in (True, False, True):
        model.policy.set_training_mode(mode)
        assert model.q_net.q_net[1].training is mode
        assert model.policy.training is mode


@pytest.mark.parametrize("policy", PLACES)
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.ELU, nn.GELU, nn.SiLU])
def test_networks_without_modes_are_not_walked(policy, activation, monkeypatch):
    model = make(QRC, SpaceEnv(PLACES[policy]), policy, buffer_size=2, policy_kwargs={"activation_fn": activation})
    walked, train = [], nn.Module.train
    monkeypatch.setattr(nn.Module, "train", lambda self, mode=True: walked.append(self) or train(self, mode))
    for mode in (True, False):
        model.policy.set_training_mode(mode)
        assert model.policy.training is mode
    assert walked == []
    model.q_net.set_training_mode(True)
    assert walked, "the spy sees what walks"


@pytest.mark.parametrize("extractor", [BatchNormExtractor, CombinedExtractor])
def test_modes_reach_extractors(extractor):
    space = vector_and_code() if extractor is CombinedExtractor else spaces.Box(-1.0, 1.0, (3,))
    policy = policy_for(MultiInputPolicy, space, features_extractor_class=extractor, activation_fn=nn.Dropout)
    policy.set_training_mode(False)
    assert not any(module.training for module in policy.q_net.modules())
    policy.set_training_mode(True)
    assert all(module.training for module in policy.q_net.modules())


def test_acting_leaves_no_graph():
    model = make(QRC)
    before = parameters(model)
    action = model.policy(th.zeros(5, 4))
    assert action.shape == (5,)
    assert not action.requires_grad
    assert_same(parameters(model), before)
