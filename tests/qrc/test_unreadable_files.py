"""A file with a class that is gone: the error names what cannot be read, and SB3's remedy serves."""

from __future__ import annotations

import contextlib
import sys
import types

import pytest
from small_envs import SpaceEnv, images, vector_and_code
from small_models import assert_same, every_algorithm, make, parameters
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_robust_be.qrc import MlpPolicy

# Any warning is an error here, but for the one that every warm start gives.
pytestmark = pytest.mark.filterwarnings("error::UserWarning", "ignore:.*was saved by SB3's DQN:UserWarning")
PLACES = {
    "mlp": ("MlpPolicy", "CartPole-v1"),
    "nature_cnn": ("CnnPolicy", SpaceEnv(images(36, 36, 2))),
    "dict": ("MultiInputPolicy", SpaceEnv(vector_and_code())),
}


def trained_dqn(place="mlp"):
    policy, env = PLACES[place]
    return make(DQN, env, policy, buffer_size=60).learn(16)


def assert_warm(model, dqn):
    """Values are DQN's."""
    values = {k: v for k, v in parameters(dqn).items() if not k.startswith("q_net_target.")}
    assert_same({name: parameters(model)[name] for name in values}, values)


def unreadable(path, name, module, monkeypatch):
    """Save a model's attribute with a class of a module, which then disappears or no longer has the class."""
    home = types.ModuleType("gone_policies")
    home.Gone = type("Gone", (DQNPolicy,), {"__module__": "gone_policies"})
    monkeypatch.setitem(sys.modules, "gone_policies", home)

    def save(model):
        setattr(model, name, home.Gone)
        model.save(path)
        if module:
            monkeypatch.delitem(sys.modules, "gone_policies")
        else:
            del home.Gone

    return save


def sb3_says_so(module):
    """It warns of a class that is gone, and raises for a module."""
    return (
        contextlib.nullcontext() if module else pytest.warns(UserWarning, match="Could not deserialize object policy")
    )


@pytest.mark.parametrize(("place", "module"), [("mlp", True), ("mlp", False), ("nature_cnn", True), ("dict", False)])
@every_algorithm
def test_a_policy_class_that_cannot_be_read(algorithm, place, module, tmp_path, monkeypatch):
    """SB3's remedy serves, and the error names it."""
    dqn = trained_dqn(place)
    policy_class = type(dqn.policy)
    unreadable(tmp_path / "dqn", "policy_class", module, monkeypatch)(dqn)
    expected = r"dqn.*policy_class.*cannot be read.*custom_objects=\{'policy_class': DQNPolicy"
    with sb3_says_so(module), pytest.raises(ValueError, match=expected):
        algorithm.load(tmp_path / "dqn")
    model = algorithm.load(tmp_path / "dqn", dqn.get_env(), custom_objects={"policy_class": policy_class})
    assert type(model.policy) is algorithm.policy_aliases[PLACES[place][0]]
    assert_warm(model, dqn)


@pytest.mark.parametrize("module", [True, False])
@every_algorithm
def test_our_own_file_whose_policy_class_cannot_be_read(algorithm, module, tmp_path, monkeypatch):
    model = make(algorithm).learn(15)
    unreadable(tmp_path / "ours", "policy_class", module, monkeypatch)(model)
    with sb3_says_so(module), pytest.raises(ValueError, match=r"ours.*policy_class.*cannot be read"):
        algorithm.load(tmp_path / "ours")
    for policy_class in (DQNPolicy, MlpPolicy):
        loaded = algorithm.load(tmp_path / "ours", custom_objects={"policy_class": policy_class})
        assert type(loaded.policy) is MlpPolicy
        assert_same(parameters(loaded), parameters(model))


@every_algorithm
def test_policy_kwargs_that_cannot_be_read(algorithm, tmp_path, monkeypatch):
    """SB3 warns and goes on without them: with DQN's network, not with what a new model here would have."""
    dqn = DQN("MlpPolicy", "CartPole-v1", buffer_size=60)
    unreadable(tmp_path / "dqn", "policy_kwargs", False, monkeypatch)(dqn)
    with pytest.warns(UserWarning, match="Could not deserialize object policy_kwargs"):
        model = algorithm.load(tmp_path / "dqn")
    assert model.policy_kwargs == {}
    assert_warm(model, dqn)


@every_algorithm
def test_another_attribute_that_cannot_be_read(algorithm, tmp_path, monkeypatch):
    dqn = trained_dqn()
    unreadable(tmp_path / "dqn", "replay_buffer_class", True, monkeypatch)(dqn)
    with pytest.raises(ValueError, match=r"holds replay_buffer_class,.*\(No module named 'gone_policies'\).*Install"):
        algorithm.load(tmp_path / "dqn")
    assert_warm(algorithm.load(tmp_path / "dqn", custom_objects={"replay_buffer_class": ReplayBuffer}), dqn)
