"""Layer normalisation: what it computes, where it is, and that everything goes on with it; the same for SB3's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import QRDQN
from small_envs import SpaceEnv, images, vector_and_code
from small_models import (
    SMALL,
    assert_learned,
    assert_same,
    assert_same_parameters,
    every_algorithm,
    generators,
    make,
    parameters,
    q_values,
    reloaded,
    restore_generators,
    saved_data,
)
from stable_baselines3 import DQN
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor, NatureCNN
from stable_baselines3.dqn.policies import DQNPolicy
from test_compiled import assert_same as assert_close_parameters
from test_compiled import updated
from torch import nn
from two_heads import make_model

from sb3_robust_be import QLC, QRC, LayerNormExtractor, MinAtarCNN, QRCHuber
from sb3_robust_be.qrc import CnnPolicy, MlpPolicy, MultiInputPolicy
from sb3_robust_be.qrc.compiled import CompiledUpdate
from sb3_robust_be.qrc.layer_norm import baseline_policy_kwargs, insert_layer_norm

pytestmark = pytest.mark.filterwarnings(
    "error::UserWarning", "ignore:.*bootstraps from a target network", "ignore:.*was saved by SB3's DQN"
)

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
MINATAR, NATURE = images(10, 10, 4, bool), images(36, 36, 1, channels_last=False)
DICT = spaces.Dict({"picture": NATURE, "vector": VECTOR})
PLACES = {
    "mlp": ("MlpPolicy", VECTOR, {"net_arch": [16, 8]}),
    "minatar": ("CnnPolicy", MINATAR, {"features_extractor_class": MinAtarCNN, "net_arch": []}),
    "nature": ("CnnPolicy", NATURE, {"net_arch": [7]}),
    "dict": ("MultiInputPolicy", DICT, {"net_arch": [16]}),
    "dict_flat": ("MultiInputPolicy", vector_and_code(), {"net_arch": [16]}),
}
every_place = pytest.mark.parametrize("place", PLACES)


def normalised(algorithm, place="mlp", layer_norm=True, steps=0, **kwargs):
    policy, space, policy_kwargs = PLACES[place]
    policy_kwargs = {**policy_kwargs, **({} if layer_norm is None else {"layer_norm": layer_norm})}
    model = algorithm(
        policy,
        SpaceEnv(space, n_actions=3),
        **{**SMALL, "buffer_size": 60, "policy_kwargs": policy_kwargs, **kwargs},
    )
    return model.learn(steps) if steps else model


def with_extractor(algorithm, place="mlp", steps=0, **kwargs):
    """SB3's, through its public arguments."""
    policy, space, own = PLACES[place]
    inner = {"mlp": FlattenExtractor, "minatar": MinAtarCNN, "nature": NatureCNN}.get(place, CombinedExtractor)
    told = {"features_extractor_class": inner, "net_arch": own["net_arch"]}
    policy_kwargs = {"features_extractor_class": LayerNormExtractor, "features_extractor_kwargs": told, "net_arch": []}
    model = algorithm(
        policy,
        SpaceEnv(space, n_actions=3),
        **{**SMALL, "buffer_size": 60, "policy_kwargs": policy_kwargs, **kwargs},
    )
    return model.learn(steps) if steps else model


def batch_of(model, n=5):
    space = model.observation_space
    space.seed(3)
    sampled = [space.sample() for _ in range(n)]
    return (
        {k: np.stack([s[k] for s in sampled]) for k in space} if isinstance(space, spaces.Dict) else np.stack(sampled)
    )


def randomise(module):
    """Gains, offsets and secondary heads that show whether they are where they belong."""
    generator = th.Generator().manual_seed(7)
    for parameter in module.parameters():
        parameter.data = th.randn(parameter.shape, generator=generator, dtype=parameter.dtype)


# What it computes


def test_two_units_by_hand():
    """Units with 1 and 3 have mean 2 and variance 1, hence ∓1; gains 2 and 4 and offsets 5 and 6 make 3 and 10."""
    network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    insert_layer_norm(network)
    values = {
        **{"0.weight": [[1.0], [3.0]], "0.bias": [0.0, 0.0], "1.weight": [2.0, 4.0], "1.bias": [5.0, 6.0]},
        **{"3.weight": [[1.0, 100.0]], "3.bias": [0.5]},
    }
    network.load_state_dict({name: th.tensor(value) for name, value in values.items()})
    assert network(th.ones(1, 1)).item() == pytest.approx(3 + 100 * 10 + 0.5, rel=1e-4)
    network[1].bias.data[0] = 1.0
    assert network(th.ones(1, 1)).item() == pytest.approx(100 * 10 + 0.5, rel=1e-4), "the activation comes after"


def numpys_norm(x, gain, offset):
    """Of a batch, over everything but the batch."""
    axes = tuple(range(1, x.ndim))
    standard = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    shape = (-1, *[1] * (x.ndim - 2))
    return gain.reshape(shape) * standard + offset.reshape(shape)


def test_both_heads_are_numpys():
    policy = MlpPolicy(VECTOR, spaces.Discrete(3), lambda _: 1e-3, net_arch=[5, 4], layer_norm=True)
    randomise(policy)
    w = {name: value.numpy() for name, value in policy.q_net.state_dict().items()}
    x = observations = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    for i in (0, 3):
        x = x @ w[f"q_net.{i}.weight"].T + w[f"q_net.{i}.bias"]
        x = np.maximum(numpys_norm(x, w[f"q_net.{i + 1}.weight"], w[f"q_net.{i + 1}.bias"]), 0)
    q, h = policy.q_net.q_and_h(th.tensor(observations))
    np.testing.assert_allclose(q.detach(), x @ w["q_net.6.weight"].T + w["q_net.6.bias"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(h.detach(), x @ w["h_net.weight"].T + w["h_net.bias"], rtol=1e-4, atol=1e-5)


def test_a_convolution_is_normalised_over_channels_height_and_width():
    kwargs = {"features_extractor_class": MinAtarCNN, "net_arch": []}
    kwargs["features_extractor_kwargs"] = {"features_dim": 3, "n_channels": 2, "channels_last": False}
    space = spaces.Box(0.0, 1.0, (1, 4, 5), np.float32)
    policy = CnnPolicy(space, spaces.Discrete(2), lambda _: 1e-3, layer_norm=True, **kwargs)
    randomise(policy)
    w = {name: value.numpy() for name, value in policy.q_net.state_dict().items()}
    x = np.random.default_rng(0).random((3, 1, 4, 5)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x[:, 0], (3, 3), (1, 2))
    kernel = w["features_extractor.cnn.0.weight"][:, 0]
    maps = np.einsum("bijkl,ckl->bcij", windows, kernel) + w["features_extractor.cnn.0.bias"].reshape(-1, 1, 1)
    maps = np.maximum(numpys_norm(maps, w["features_extractor.cnn.1.weight"], w["features_extractor.cnn.1.bias"]), 0)
    units = maps.reshape(3, -1) @ w["features_extractor.linear.0.weight"].T + w["features_extractor.linear.0.bias"]
    gains = w["features_extractor.linear.1.weight"], w["features_extractor.linear.1.bias"]
    features = np.maximum(numpys_norm(units, *gains), 0)
    expected = features @ w["q_net.0.weight"].T + w["q_net.0.bias"]
    np.testing.assert_allclose(policy.q_net(th.tensor(x)).detach(), expected, rtol=1e-4, atol=1e-4)


# Where it is

GAINS = {
    "mlp": {"q_net.1": 16, "q_net.4": 8},
    "minatar": {"features_extractor.cnn.1": 16, "features_extractor.linear.1": 128},
    "nature": {
        **{"features_extractor.cnn.1": 32, "features_extractor.cnn.4": 64, "features_extractor.cnn.7": 64},
        **{"features_extractor.linear.1": 512, "q_net.1": 7},
    },
    "dict": {
        **{f"features_extractor.extractors.picture.cnn.{i}": n for i, n in ((1, 32), (4, 64), (7, 64))},
        **{"features_extractor.extractors.picture.linear.1": 256, "q_net.1": 16},
    },
    "dict_flat": {"q_net.1": 16},
}


@every_place
def test_names_and_shapes(place):
    network = normalised(QRC, place).q_net
    norms = {name: m for name, m in network.named_modules() if isinstance(m, (nn.LayerNorm, nn.GroupNorm))}
    assert {name: m.weight.numel() for name, m in norms.items()} == GAINS[place]
    for name, norm in norms.items():
        assert isinstance(norm, nn.GroupNorm) == (".cnn." in name)
        assert norm.weight.ndim == 1
        # Between a layer and its activation.
        parent, _, index = name.rpartition(".")
        sequence = network.get_submodule(parent)
        assert isinstance(sequence[int(index) - 1], (nn.Linear, nn.Conv2d))
        assert isinstance(sequence[int(index) + 1], nn.ReLU)
    assert type(network.q_net[-1]) is type(network.h_net) is nn.Linear


@every_place
def test_all_else_starts_as_it_does_without(place):
    without, network = normalised(QRC, place, False).q_net, normalised(QRC, place).q_net
    norms = {f"{name}.{part}" for name in GAINS[place] for part in ("weight", "bias")}
    rest = [p.data for name, p in network.named_parameters() if name not in norms]
    assert_same(rest, [p.data for p in without.parameters()])
    for name in GAINS[place]:
        norm = network.get_submodule(name)
        assert (norm.weight == 1).all()
        assert not norm.bias.any()


@every_place
@every_algorithm
def test_off_is_what_it_was(algorithm, place):
    """The parts and weights of SB3's own network; with the argument left out or not, bit for bit."""
    left_out = normalised(algorithm, place, None, steps=16)
    given = normalised(algorithm, place, "layer_norm" in algorithm.default_policy_kwargs, steps=16)
    assert_same_parameters(left_out, given)
    dqn = normalised(DQN, place, None)
    fresh = normalised(algorithm, place, False)
    own = [(n, type(m)) for n, m in fresh.q_net.named_modules() if n not in ("", "h_net")]
    assert own == [(n, type(m)) for n, m in dqn.q_net.named_modules() if n]
    assert_same({n: parameters(fresh)[f"q_net.{n}"] for n in dqn.q_net.state_dict()}, dict(dqn.q_net.state_dict()))


class SmallNature(NatureCNN):
    """A user's own."""


def test_a_features_extractor_of_ones_own_is_left_alone():
    kwargs = {"features_extractor_class": SmallNature, "net_arch": [4], "layer_norm": True}
    network = CnnPolicy(NATURE, spaces.Discrete(2), lambda _: 1e-3, **kwargs).q_net
    assert [type(m) for m in network.features_extractor.cnn] == [type(m) for m in NatureCNN(NATURE).cnn]
    assert [type(m) for m in network.q_net] == [nn.Linear, nn.LayerNorm, nn.ReLU, nn.Linear]


@pytest.mark.parametrize("policy_class", [MlpPolicy, CnnPolicy, MultiInputPolicy])
def test_a_wrong_value(policy_class):
    space = {MlpPolicy: VECTOR, CnnPolicy: NATURE, MultiInputPolicy: DICT}[policy_class]
    with pytest.raises(TypeError, match="layer_norm must be True or False and is 'yes'"):
        policy_class(space, spaces.Discrete(2), lambda _: 1e-3, layer_norm="yes")


@every_place
def test_the_mode_does_not_matter(place):
    model = normalised(QRC, place)
    assert not model.q_net.mode_matters()
    assert not with_extractor(QRC, place).q_net.mode_matters()
    before = q_values(model, batch_of(model))
    model.q_net.train()
    with th.no_grad():
        assert th.equal(model.q_net(model.policy.obs_to_tensor(batch_of(model))[0]), before)


# Everything goes on with it


@pytest.mark.parametrize("interval", [None, 5], ids=["no_target", "target"])
@every_place
def test_save_load_and_continue(place, interval, tmp_path):
    model = normalised(QLC, place, target_update_interval=interval)
    before = parameters(model)
    model.learn(16)
    assert_learned(model, before)
    trained = {f"q_net.{name}.{part}" for name in GAINS[place] for part in ("weight", "bias")}
    assert all((parameters(model)[name] != before[name]).any() for name in trained)
    loaded = reloaded(model, tmp_path / "model", force_reset=False)
    assert_same_parameters(loaded, model)
    assert loaded.policy.layer_norm
    model.save_replay_buffer(tmp_path / "buffer")
    loaded.load_replay_buffer(tmp_path / "buffer")
    batch = model.replay_buffer.sample(8)
    for one in (model, loaded):
        one.replay_buffer.sample = lambda *_, **__: batch
        one.train(3)
    assert_same_parameters(loaded, model)


def test_a_run_that_is_continued_is_the_uninterrupted_one(tmp_path):
    model = make(QLC, policy_kwargs={"layer_norm": True}).learn(30)
    states = generators(model)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = QLC.load(tmp_path / "model", env=model.get_env(), force_reset=False)
    loaded.load_replay_buffer(tmp_path / "buffer")
    restore_generators(loaded, states)
    loaded.learn(15, reset_num_timesteps=False)
    assert loaded._n_updates == 35
    # The environment went on with the copy: a second one, from the start.
    whole = make(QLC, policy_kwargs={"layer_norm": True}).learn(30).learn(15, reset_num_timesteps=False)
    assert_same_parameters(loaded, whole)


@every_place
def test_policies_and_networks_are_saved_and_loaded(place, tmp_path):
    model = normalised(QRC, place, steps=14)
    model.policy.save(str(tmp_path / "policy"))
    loaded = type(model.policy).load(str(tmp_path / "policy"), device="cpu")
    assert loaded._get_constructor_parameters()["layer_norm"] is True
    assert_same(dict(loaded.state_dict()), dict(model.policy.state_dict()))
    observation = model.observation_space.sample()
    assert loaded.predict(observation, deterministic=True)[0] == model.predict(observation, deterministic=True)[0]
    model.q_net.save(str(tmp_path / "network"))
    network = type(model.q_net).load(str(tmp_path / "network"), device="cpu")
    assert_same(dict(network.state_dict()), dict(model.q_net.state_dict()))


def test_files_from_before_it_load(tmp_path):
    model = make(QRC).learn(14)
    model.policy.save(str(tmp_path / "policy"))
    saved = th.load(tmp_path / "policy", weights_only=False)
    del saved["data"]["layer_norm"]
    th.save(saved, tmp_path / "policy")
    assert_same(
        dict(MlpPolicy.load(str(tmp_path / "policy"), device="cpu").state_dict()), dict(model.policy.state_dict())
    )
    loaded = reloaded(model, tmp_path / "model")
    assert "layer_norm" not in saved_data(tmp_path / "model")["policy_kwargs"]
    assert_same_parameters(loaded, model)


@pytest.mark.parametrize("interval", [None, 10], ids=["no_target", "target"])
@pytest.mark.parametrize("cls", [QLC, QRCHuber])
def test_traced_equals_eager(cls, interval, monkeypatch):
    monkeypatch.setattr(CompiledUpdate, "backend", staticmethod(lambda graph, inputs: graph))
    kwargs = {"learning_rate": 1e-2, "target_update_interval": interval, "policy_kwargs": {"layer_norm": True}}
    eager, compiled = (make_model(cls, compile=flag, **kwargs) for flag in (False, True))
    assert_close_parameters(updated(eager), updated(compiled))
    assert compiled._compiled.works


@pytest.mark.parametrize("interval", [None, 10], ids=["no_target", "target"])
def test_generated_code_equals_eager(interval):
    kwargs = {"learning_rate": 1e-2, "target_update_interval": interval, "policy_kwargs": {"layer_norm": True}}
    eager, compiled = (make_model(QLC, compile=flag, **kwargs) for flag in (False, True))
    assert_close_parameters(updated(eager), updated(compiled), atol=1e-5)
    assert compiled._compiled.works


@pytest.mark.parametrize("generated", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("place", ["minatar", "nature", "dict"])
def test_compiled_convolutions_equal_eager(place, generated, monkeypatch):
    if not generated:
        monkeypatch.setattr(CompiledUpdate, "backend", staticmethod(lambda graph, inputs: graph))
    eager, compiled = (normalised(QLC, place, compile=flag) for flag in (False, True))
    eager.learn(12)
    batch = eager.replay_buffer.sample(8)
    for model in (eager, compiled):
        randomise(model.policy)
        model._compute_gradients(batch, model.update_settings())
    assert compiled._compiled.works
    for (name, p), other in zip(eager.q_net.named_parameters(), compiled.q_net.parameters(), strict=True):
        scale = float(p.grad.abs().max())
        th.testing.assert_close(other.grad, p.grad, rtol=1e-3, atol=1e-4 * scale, msg=lambda m, n=name: f"{n}: {m}")


# SB3's own


@every_place
@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_sb3s_own_learn_with_the_extractor(algorithm, place, tmp_path):
    model = with_extractor(algorithm, place)
    before = parameters(model)
    model.learn(16)
    after = parameters(model)
    changed = {name for name in after if not th.equal(after[name], before[name])}
    norms = [n for n, m in model.policy.named_modules() if isinstance(m, (nn.LayerNorm, nn.GroupNorm))]
    assert len(norms) == 2 * len(GAINS[place]), "with a target network"
    assert {f"{name}.weight" for name in norms if "_target" not in name} <= changed
    heads = [m for n, m in model.policy.named_modules() if n in ("q_net.q_net", "quantile_net.quantile_net")]
    assert [[type(x) for x in head] for head in heads] == [[nn.Linear]]
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model", env=model.get_env())
    assert_same(dict(loaded.policy.state_dict()), dict(model.policy.state_dict()))
    observation = model.observation_space.sample()
    assert loaded.predict(observation, deterministic=True)[0] == model.predict(observation, deterministic=True)[0]


@every_place
def test_the_extractors_network_is_this_packages(place):
    """Equal seeds give equal values; so do copied parameters, in the order of the layers."""
    ours, dqn = normalised(QRC, place), with_extractor(DQN, place)
    assert_same(q_values(ours, batch_of(ours)), q_values(dqn, batch_of(dqn)))
    randomise(ours.policy)
    values = [p for name, p in ours.q_net.named_parameters() if not name.startswith("h_net.")]
    for parameter, value in zip(dqn.q_net.parameters(), values, strict=True):
        parameter.data.copy_(value)
    assert_same(q_values(ours, batch_of(ours)), q_values(dqn, batch_of(dqn)))


def test_an_extractor_without_hidden_layers():
    extractor = LayerNormExtractor(MINATAR, MinAtarCNN, {"features_dim": 9}, net_arch=[])
    assert extractor.features_dim == 9
    assert len(extractor.hidden) == 0
    assert LayerNormExtractor(VECTOR).features_dim == 64
    assert isinstance(LayerNormExtractor(VECTOR, net_arch=[3], activation_fn=nn.Tanh).hidden[2], nn.Tanh)


@pytest.mark.parametrize("layer_norm", [None, False])
def test_kwargs_of_a_baseline_without(layer_norm):
    kwargs = {"net_arch": [5], "activation_fn": nn.Tanh}
    given = kwargs if layer_norm is None else {**kwargs, "layer_norm": layer_norm}
    assert baseline_policy_kwargs(DQN, "MlpPolicy", given) == kwargs
    assert baseline_policy_kwargs(DQN, "MlpPolicy", None) is None


class OwnPolicy(DQNPolicy):
    """Hands everything on."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


@pytest.mark.parametrize(
    ("policy", "kwargs", "features", "net_arch"),
    [
        ("MlpPolicy", {}, FlattenExtractor, [64, 64]),
        ("MlpPolicy", {"net_arch": (5,)}, FlattenExtractor, [5]),
        (OwnPolicy, {"net_arch": []}, FlattenExtractor, []),
        ("CnnPolicy", {}, NatureCNN, []),
        ("CnnPolicy", {"net_arch": [5]}, NatureCNN, [5]),
        ("CnnPolicy", {"features_extractor_class": MinAtarCNN}, MinAtarCNN, [64, 64]),
        ("MultiInputPolicy", {}, CombinedExtractor, [64, 64]),
    ],
)
@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_kwargs_of_a_baseline_with(algorithm, policy, kwargs, features, net_arch):
    given = {**kwargs, "layer_norm": True, "optimizer_kwargs": {"eps": 1e-4}}
    found = baseline_policy_kwargs(algorithm, policy, given)
    told = {"features_extractor_class": features, "features_extractor_kwargs": {}, "net_arch": net_arch}
    assert found == {
        **{"features_extractor_class": LayerNormExtractor, "features_extractor_kwargs": told, "net_arch": []},
        **{"optimizer_kwargs": {"eps": 1e-4}},
    }
    assert given["layer_norm"], "a copy"


def test_kwargs_that_the_extractor_takes_over():
    kwargs = {"layer_norm": True, "activation_fn": nn.Tanh, "features_extractor_kwargs": {"features_dim": 6}}
    found = baseline_policy_kwargs(DQN, "CnnPolicy", {**kwargs, "normalize_images": False})
    assert found["features_extractor_kwargs"]["activation_fn"] is nn.Tanh
    assert found["features_extractor_kwargs"]["features_extractor_kwargs"] == {
        "features_dim": 6,
        "normalized_image": True,
    }
    space = spaces.Box(0.0, 1.0, (1, 36, 36), np.float32)
    model = DQN("CnnPolicy", SpaceEnv(space), policy_kwargs=found, buffer_size=10)
    assert model.q_net.features_extractor.extractor.features_dim == 6


def test_wrong_kwargs_of_a_baseline():
    with pytest.raises(TypeError, match="layer_norm must be True or False and is 1"):
        baseline_policy_kwargs(DQN, "MlpPolicy", {"layer_norm": 1})
    assert baseline_policy_kwargs(DQN, "NoPolicy", {"layer_norm": True, "net_arch": [3]}) == {"net_arch": [3]}


# From one to the other


@every_place
@every_algorithm
def test_a_dqn_with_the_extractor_is_a_starting_point(algorithm, place, tmp_path):
    dqn = with_extractor(DQN, place, steps=16)
    dqn.save(tmp_path / "dqn")
    model = algorithm.load(tmp_path / "dqn", env=dqn.get_env())
    assert_same(q_values(model, batch_of(model)), q_values(dqn, batch_of(dqn)))
    before = parameters(model)
    assert not any(value.any() for name, value in before.items() if ".h_net." in name)
    model.learn(10, reset_num_timesteps=False)
    assert_learned(model, before)
    other = with_extractor(algorithm, place)
    other.set_parameters(tmp_path / "dqn.zip")
    assert_same(parameters(other), before)


WITHOUT, WITH, EXTRACTOR = (
    "without layer normalisation",
    r"with policy_kwargs=dict\(layer_norm=True\)",
    r"with layer normalisation in its features extractor \(such as LayerNormExtractor\)",
)


@pytest.mark.parametrize("place", ["mlp", "minatar"])
@pytest.mark.parametrize("source", [DQN, QRC])
def test_parameters_of_another_normalisation_are_refused(source, place, tmp_path):
    plain, extractor = normalised(source, place, None), with_extractor(source, place)
    ours = {WITHOUT: normalised(QRC, place, None), WITH: normalised(QRC, place), EXTRACTOR: with_extractor(QRC, place)}
    for given, model in ((WITHOUT, plain), (EXTRACTOR, extractor)):
        model.save(tmp_path / "model")
        for own, other in ours.items():
            if own == given:
                other.set_parameters(tmp_path / "model.zip")
                continue
            message = f"network {given} and do not fit into this model, which has one {own}: make .* policy_kwargs"
            for parameters_ in (tmp_path / "model.zip", model.get_parameters()):
                before = parameters(other)
                with pytest.raises(ValueError, match=message):
                    other.set_parameters(parameters_)
                assert_same(parameters(other), before)
    with pytest.raises(ValueError, match=f"network {WITH} and do not fit into this model, which has one {WITHOUT}"):
        ours[WITHOUT].set_parameters(ours[WITH].get_parameters())


class OwnExtractor(BaseFeaturesExtractor):
    """A user's own, with names as :class:`LayerNormExtractor` and :class:`MinAtarCNN` have them."""

    def __init__(self, observation_space):
        super().__init__(observation_space, 5)
        self.hidden = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.PReLU())
        self.linear = nn.Sequential(nn.Linear(4, 5), nn.GroupNorm(1, 5), nn.ReLU())

    def forward(self, observations):
        return self.linear(self.hidden(observations))


OWN = {"features_extractor_class": OwnExtractor}
PRELU = {"activation_fn": nn.PReLU}
NORM = {"layer_norm": True}


def with_kwargs(algorithm, policy_kwargs):
    return algorithm("MlpPolicy", SpaceEnv(VECTOR, n_actions=3), policy_kwargs={"net_arch": [4], **policy_kwargs})


@pytest.mark.parametrize("kwargs", [OWN, PRELU, {**OWN, **PRELU}])
def test_an_extractor_or_activation_of_ones_own_is_no_layer_norm(kwargs):
    source, plain, normed = (with_kwargs(c, {**kwargs, **n}) for c, n in ((DQN, {}), (QRC, {}), (QRC, NORM)))
    plain.set_parameters(source.get_parameters())
    twin = with_kwargs(QRC, {**kwargs, **NORM})
    twin.set_parameters(normed.get_parameters())
    assert_same(parameters(twin), parameters(normed))
    without = EXTRACTOR if OWN.items() <= kwargs.items() else WITHOUT
    both = WITH + (f" and {EXTRACTOR.removeprefix('with ')}" if without == EXTRACTOR else "")
    for given, model, own in ((without, normed, both), (both, plain, without)):
        other = source if given == without else twin
        with pytest.raises(ValueError, match=f"network {given} and do not fit into this model, which has one {own}:"):
            model.set_parameters(other.get_parameters())


def test_another_activation_is_not_called_layer_normalisation():
    """SB3's error, or torch's, names the parameters."""
    prelu, relu = with_kwargs(QRC, PRELU), with_kwargs(QRC, {})
    for model, other in ((prelu, relu), (relu, prelu)):
        with pytest.raises(RuntimeError, match=r"q_net\.q_net\.1\.weight"):
            model.set_parameters(other.get_parameters())
    own = with_kwargs(DQN, OWN)
    with pytest.raises(
        ValueError, match=f"network {EXTRACTOR} and do not fit into this model, which has one {WITHOUT}"
    ):
        relu.set_parameters(own.get_parameters())


@pytest.mark.parametrize("source", [DQN, QLC])
def test_a_file_without_is_not_loaded_with(source, tmp_path):
    model = make(source, policy_kwargs={} if source is DQN else {"layer_norm": False})
    model.save(tmp_path / "model")
    kwargs = {"net_arch": [16], "layer_norm": True}
    message = r"layer_norm=True, and .*model was saved with layer_norm=False: .* Leave policy_kwargs out of load\(\)"
    with pytest.raises(ValueError, match=message):
        QLC.load(tmp_path / "model", policy_kwargs=kwargs)
    with pytest.raises(ValueError, match=f"network {WITHOUT} and do not fit into this model, which has one {WITH}"):
        QLC.load(tmp_path / "model", custom_objects={"policy_kwargs": kwargs})


def test_a_file_with_is_not_loaded_without(tmp_path):
    make(QLC, policy_kwargs={"layer_norm": True}).save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"layer_norm=False, and .*model was saved with layer_norm=True"):
        QLC.load(tmp_path / "model", policy_kwargs={"net_arch": [16], "layer_norm": False})
    kwargs = {"net_arch": [16], "layer_norm": True}
    assert QLC.load(tmp_path / "model", policy_kwargs=kwargs).policy.layer_norm
