"""A file of SB3's DQN is a starting point: its values and steps, with h at zero and a fresh optimiser."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from small_envs import RewardEnv, SpaceEnv, images, vector_and_code
from small_models import (
    BatchNormExtractor,
    assert_learned,
    assert_same,
    every_algorithm,
    every_family_algorithm,
    make,
    parameters,
    q_values,
    saved_data,
)
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import NatureCNN
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

from sb3_robust_be import QLC, QRC, SBEED, LayerNormExtractor, MinAtarCNN
from sb3_robust_be.qrc import CnnPolicy, MlpPolicy, MultiInputPolicy, QRCPolicy

# Any warning is an error here, but for the one that every warm start gives.
pytestmark = pytest.mark.filterwarnings("error::UserWarning", "ignore:.*was saved by SB3's DQN:UserWarning")


class SmallNature(NatureCNN):
    """A user's own variant of NatureCNN."""


VECTOR = spaces.Box(-1.0, 1.0, (4,), np.float32)
DICT_WITH_IMAGE = spaces.Dict({"picture": images(36, 36, 1), "vector": VECTOR})
PLACES = {
    "mlp": ("MlpPolicy", VECTOR, {}),
    "mlp_kwargs": ("MlpPolicy", VECTOR, {"net_arch": [8, 8], "activation_fn": nn.Tanh}),
    "mlp_sgd": ("MlpPolicy", VECTOR, {"optimizer_class": th.optim.SGD, "optimizer_kwargs": {"momentum": 0.9}}),
    "batch_norm": ("MlpPolicy", VECTOR, {"features_extractor_class": BatchNormExtractor}),
    "nature_cnn": ("CnnPolicy", images(36, 36, 2), {}),
    "nature_cnn_layers": ("CnnPolicy", images(40, 36, 2), {"net_arch": [7]}),
    "nature_cnn_subclass": ("CnnPolicy", images(36, 36, 2), {"features_extractor_class": SmallNature}),
    "minatar_cnn": ("CnnPolicy", images(10, 10, 4, bool), {"features_extractor_class": MinAtarCNN, "net_arch": []}),
    "minatar_cnn_layers": ("CnnPolicy", images(10, 10, 4, bool), {"features_extractor_class": MinAtarCNN}),
    "dict": ("MultiInputPolicy", vector_and_code(), {}),
    "dict_image": ("MultiInputPolicy", DICT_WITH_IMAGE, {}),
}
warm_start_warning = r"saved by SB3's DQN.*h at zero.*fresh optimizer.*target_update_interval, max_grad_norm, tau"


def trained_dqn(space=VECTOR, policy="MlpPolicy", steps=16, n_envs=1, **kwargs):
    env = make_vec_env(lambda: SpaceEnv(space, n_actions=3), n_envs)
    return make(DQN, env, policy, **{"buffer_size": 60, "target_update_interval": 5, **kwargs}).learn(steps)


def observations(space, n=6):
    space.seed(1)
    sampled = [space.sample() for _ in range(n)]
    if isinstance(space, spaces.Dict):
        return {key: np.stack([s[key] for s in sampled]) for key in space}
    return np.stack(sampled)


def assert_warm(model, dqn, space=None):
    """Values are DQN's, the secondary head and the optimiser are new."""
    space = dqn.observation_space if space is None else space
    th.testing.assert_close(q_values(model, observations(space)), q_values(dqn, observations(space)), rtol=0, atol=0)
    values = {k: v for k, v in parameters(dqn).items() if not k.startswith("q_net_target.")}
    assert_same({name: parameters(model)[name] for name in values}, values)
    assert not any(value.any() for value in model.q_net.h_net.parameters())
    assert model.policy.optimizer.state_dict()["state"] == {}
    n_values = len(list(dqn.q_net.parameters()))
    assert [len(group["params"]) for group in model.policy.optimizer.param_groups] == [n_values, 2]


@pytest.mark.parametrize("place", PLACES)
@every_algorithm
def test_warm_start(algorithm, place, tmp_path):
    policy, space, policy_kwargs = PLACES[place]
    dqn = trained_dqn(space, policy, policy_kwargs=policy_kwargs)
    dqn.save(tmp_path / "dqn")
    with pytest.warns(UserWarning, match=warm_start_warning) as caught:
        model = algorithm.load(tmp_path / "dqn", env=dqn.get_env())
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert_warm(model, dqn)
    assert type(model) is algorithm
    assert type(model.policy) is algorithm.policy_aliases[policy]
    before = parameters(model)
    model.learn(10, reset_num_timesteps=False)
    assert model.num_timesteps == 26
    assert_learned(model, before)


NETWORK = (
    "network stays without layer normalisation, which QLC has by default and trained weights cannot be given (for it, "
    "train a new QLC, or begin with a DQN that has LayerNormExtractor)"
)
RATE = "learning rate stays DQN's"
QLCS = "(for QLC's, load(..., learning_rate=LinearSchedule(start=0.001953125, end=0.0001220703125, end_fraction=1.0)))"
NORMED = {"features_extractor_class": LayerNormExtractor, "net_arch": []}


@pytest.mark.parametrize(
    ("algorithm", "dqns", "given", "said"),
    [
        (QLC, {"learning_rate": 1e-4}, {}, f" The {NETWORK}, and the {RATE}, 0.0001 {QLCS}."),
        (QLC, {"policy_kwargs": NORMED}, {}, f" The {RATE}, 0.001 {QLCS}."),
        (QLC, {"learning_rate": lambda _: 1e-3}, {}, f" The {NETWORK}, and the {RATE} {QLCS}."),
        (QLC, {"learning_rate": LinearSchedule(2**-9, 2**-13, 1.0)}, {}, f" The {NETWORK}."),
        (QLC, {}, {"learning_rate": 0.25}, f" The {NETWORK}."),
        (QLC, {"policy_kwargs": NORMED}, {"learning_rate": 0.25}, ""),
        (QRC, {"learning_rate": 1e-4}, {}, f" The {RATE}, 0.0001 (for QRC's, load(..., learning_rate=0.001))."),
        (QRC, {"learning_rate": 1e-3}, {}, ""),
        (SBEED, {"learning_rate": 1e-4}, {}, ""),
    ],
)
def test_what_stays_dqns_is_said(algorithm, dqns, given, said, tmp_path):
    """Where a new model would have another network or another learning rate."""
    trained_dqn(**dqns).save(tmp_path / "dqn")
    with pytest.warns(UserWarning, match=warm_start_warning) as caught:
        algorithm.load(tmp_path / "dqn", **given)
    (message,) = [str(warning.message) for warning in caught]
    assert message.endswith(f"tau are back at {algorithm.__name__}'s defaults.{said}")


def test_a_policy_of_ones_own_brings_its_own_network(tmp_path):
    trained_dqn(policy=UsersPolicy).save(tmp_path / "dqn")
    with pytest.warns(UserWarning, match="The learning rate stays") as caught:
        QLC.load(tmp_path / "dqn", custom_objects={"policy_class": UsersTwoHeadedPolicy})
    assert "layer normalisation" not in str(caught[0].message)


@every_algorithm
def test_arguments_of_a_warm_start(algorithm, tmp_path):
    """DQN's arguments are kept but for what makes it DQN; the algorithm's own are at their defaults."""
    kept = {"learning_rate": 0.02, "gamma": 0.9, "batch_size": 7, "exploration_final_eps": 0.2, "learning_starts": 12}
    dqn = trained_dqn(tau=0.5, max_grad_norm=3.0, **kept)
    dqn.save(tmp_path / "dqn")
    model, plain = algorithm.load(tmp_path / "dqn", env=dqn.get_env()), make(algorithm)
    assert {name: getattr(model, name) for name in kept} == kept
    assert (model.num_timesteps, model._n_updates, model.exploration_rate) == (16, 4, dqn.exploration_rate)
    assert (model.target_update_interval, model.max_grad_norm, model.tau) == (None, None, 1.0)
    assert model.q_net_target is model.q_net
    for name in set(plain.__dict__) - set(dqn.__dict__):
        if not name.startswith("_"):
            assert getattr(model, name) == getattr(plain, name), name
    assert [g["weight_decay"] for g in model.policy.optimizer.param_groups] == [0, plain.h_regularization]


@every_algorithm
def test_warm_start_with_changed_arguments(algorithm, tmp_path):
    dqn = trained_dqn()
    dqn.save(tmp_path / "dqn")
    changes = {"target_update_interval": 20, "max_grad_norm": 2.0, "tau": 0.5, "learning_rate": 0.5}
    changes |= {"h_regularization": 3.0}
    model = algorithm.load(tmp_path / "dqn", env=dqn.get_env(), **changes)
    assert {name: getattr(model, name) for name in changes} == changes
    assert model.q_net_target is not model.q_net
    assert_same(dict(model.q_net.state_dict()), dict(model.q_net_target.state_dict()) | dict(model.q_net.state_dict()))
    assert_warm(model, dqn)
    model.learn(12)
    assert model.policy.optimizer.param_groups[1]["weight_decay"] == 3.0
    assert model.policy.optimizer.param_groups[0]["lr"] == 0.5


@every_algorithm
def test_warm_start_of_many_environments(algorithm, tmp_path):
    dqn = trained_dqn(n_envs=4, steps=40)
    dqn.save(tmp_path / "dqn")
    dqn.save_replay_buffer(tmp_path / "buffer")
    model = algorithm.load(tmp_path / "dqn", env=dqn.get_env())
    model.load_replay_buffer(tmp_path / "buffer")
    assert model.replay_buffer.pos == 10
    assert_warm(model, dqn)
    model.learn(20, reset_num_timesteps=False)
    assert model.num_timesteps == 60


@every_family_algorithm
def test_warm_start_of_n_steps(algorithm, tmp_path):
    dqn = trained_dqn(n_steps=3, gamma=0.9, replay_buffer_kwargs={"handle_timeout_termination": False})
    dqn.save(tmp_path / "dqn")
    assert saved_data(tmp_path / "dqn")["replay_buffer_class"] is NStepReplayBuffer
    model = algorithm.load(tmp_path / "dqn", env=dqn.get_env(), gamma=0.5)
    assert_warm(model, dqn)
    assert isinstance(model.replay_buffer, NStepReplayBuffer)
    assert (model.n_steps, model.replay_buffer.n_steps, model.replay_buffer.gamma) == (3, 3, 0.5)
    assert not model.replay_buffer.handle_timeout_termination
    model.learn(12)
    model.save(tmp_path / "ours")
    assert algorithm.load(tmp_path / "ours", gamma=0.25).replay_buffer.gamma == 0.25


@every_algorithm
def test_warm_start_of_n_steps_into_one(algorithm, tmp_path):
    dqn = trained_dqn(n_steps=3)
    dqn.save(tmp_path / "dqn")
    model = algorithm.load(tmp_path / "dqn", env=dqn.get_env(), n_steps=1)
    assert type(model.replay_buffer) is ReplayBuffer
    assert_warm(model, dqn)
    model.learn(12)


@every_family_algorithm
def test_warm_start_into_n_steps(algorithm, tmp_path):
    dqn = trained_dqn()
    dqn.save(tmp_path / "dqn")
    model = algorithm.load(tmp_path / "dqn", env=dqn.get_env(), n_steps=3)
    assert isinstance(model.replay_buffer, NStepReplayBuffer)
    assert model.replay_buffer.n_steps == 3


@every_algorithm
def test_warm_start_without_an_environment(algorithm, tmp_path):
    dqn = trained_dqn()
    dqn.save(tmp_path / "dqn")
    stream = io.BytesIO()
    dqn.save(stream)
    stream.seek(0)
    for source in (tmp_path / "dqn", str(tmp_path / "dqn.zip"), stream):
        model = algorithm.load(source)
        batch = observations(VECTOR)
        np.testing.assert_array_equal(
            model.predict(batch, deterministic=True)[0], dqn.predict(batch, deterministic=True)[0]
        )


@every_algorithm
def test_a_warm_start_saves_as_its_own(algorithm, tmp_path):
    dqn = trained_dqn()
    dqn.save(tmp_path / "dqn")
    model = algorithm.load(tmp_path / "dqn", env=dqn.get_env()).learn(20)
    model.save(tmp_path / "ours")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = algorithm.load(tmp_path / "ours", env=dqn.get_env())
    assert_same(dict(again.policy.state_dict()), dict(model.policy.state_dict()))
    assert again.q_net.h_net.weight.any()


@every_algorithm
def test_exploration_goes_on_where_dqn_was(algorithm, tmp_path):
    dqn = trained_dqn(steps=30)
    assert dqn.exploration_rate == 0.05
    dqn.save(tmp_path / "dqn")
    model = algorithm.load(tmp_path / "dqn", env=dqn.get_env())
    rates = []
    model.learn(20, callback=lambda *_: rates.append(model.exploration_rate) or True, reset_num_timesteps=False)
    assert max(rates) == 0.05


class UsersPolicy(DQNPolicy):
    """A user's own policy, of which there is no two-headed version."""


class UsersTwoHeadedPolicy(QRCPolicy):
    """There is now."""


@every_algorithm
def test_a_custom_policy_is_refused_with_the_remedy(algorithm, tmp_path):
    dqn = trained_dqn(policy=UsersPolicy)
    dqn.save(tmp_path / "dqn")
    with pytest.raises(ValueError, match=r"UsersPolicy, which has no secondary head.*custom_objects=.*QRCPolicy"):
        algorithm.load(tmp_path / "dqn", env=dqn.get_env())
    model = algorithm.load(tmp_path / "dqn", custom_objects={"policy_class": UsersTwoHeadedPolicy})
    assert type(model.policy) is UsersTwoHeadedPolicy
    assert_warm(model, dqn)


@pytest.mark.parametrize("policy_class", [MlpPolicy, CnnPolicy, MultiInputPolicy])
def test_our_policies_are_not_dqns(policy_class):
    """SB3's own DQN keeps its policies: nothing of ours leaks into its aliases."""
    assert policy_class not in DQN.policy_aliases.values()


@every_algorithm
def test_set_parameters_from_dqn(algorithm, tmp_path):
    """On a model that has learned already: whatever it had, it is as a warm start afterwards."""
    dqn = trained_dqn()
    dqn.save(tmp_path / "dqn")
    plain = {"layer_norm": False}
    model = make(algorithm, dqn.get_env(), seed=5, h_regularization=2.0, policy_kwargs=plain).learn(30)
    assert model.q_net.h_net.weight.any()
    assert model.policy.optimizer.state_dict()["state"]
    for source in (str(tmp_path / "dqn"), dqn.get_parameters()):
        model.set_parameters(source)
        assert_warm(model, dqn)
        assert model.policy.optimizer.param_groups[1]["weight_decay"] == 2.0
        before = parameters(model)
        model.learn(20)
        assert_learned(model, before)


@every_algorithm
def test_set_parameters_from_dqn_with_a_target_network(algorithm):
    dqn = trained_dqn(target_update_interval=10**6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(algorithm, dqn.get_env(), target_update_interval=50, policy_kwargs={"layer_norm": False})
    model.set_parameters(dqn.get_parameters())
    assert_warm(model, dqn)
    for name, value in dqn.q_net_target.state_dict().items():
        assert th.equal(model.q_net_target.state_dict()[name], value)
    assert not any(value.any() for value in model.q_net_target.h_net.parameters())


@every_algorithm
def test_set_parameters_from_a_dqn_of_another_shape(algorithm):
    dqn = trained_dqn(policy_kwargs={"net_arch": [9]})
    model = make(algorithm, dqn.get_env(), policy_kwargs={"layer_norm": False})
    with pytest.raises(RuntimeError, match="size mismatch"):
        model.set_parameters(dqn.get_parameters())


@every_algorithm
def test_warm_start_checks_the_environments_spaces(algorithm, tmp_path):
    dqn = trained_dqn()
    dqn.save(tmp_path / "dqn")
    with pytest.raises(ValueError, match="Observation spaces do not match"):
        algorithm.load(tmp_path / "dqn", env=RewardEnv())
