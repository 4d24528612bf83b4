"""What SBEED's constructor and loading accept, and what they refuse with a remedy."""

from __future__ import annotations

import warnings

import pytest
from small_envs import RewardEnv
from small_models import make
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import NStepReplayBuffer

from sb3_robust_be import SBEED


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"temperature": 0.0}, ValueError, "temperature must be positive and finite and is 0.0"),
        ({"temperature": -1.0}, ValueError, "temperature must not be negative and is -1.0"),
        ({"temperature": float("inf")}, ValueError, "temperature must be positive and finite and is inf"),
        ({"temperature": float("nan")}, ValueError, "temperature must not be negative and is nan"),
        ({"temperature": "0.1"}, TypeError, "temperature must be a number and is the string '0.1'"),
        ({"temperature": lambda _: 0.1}, TypeError, "temperature must be a number"),
        ({"eta": -0.1}, ValueError, "eta must not be negative and is -0.1. Pass a number from 0 to 1"),
        ({"eta": 1.1}, ValueError, "eta must be from 0 to 1 and is 1.1"),
        ({"eta": "1"}, TypeError, "eta must be a number and is the string '1'"),
        ({"behaviour": "boltzmann"}, ValueError, "behaviour must be one of 'greedy', 'softmax' and is 'boltzmann'"),
        ({"n_steps": 3}, ValueError, "n_steps=3 does not work with SBEED.*Use n_steps=1"),
        ({"h_regularization": -1.0}, ValueError, "h_regularization must not be negative"),
    ],
)
def test_bad_arguments(kwargs, error, message, tmp_path):
    with pytest.raises(error, match=message):
        make(SBEED, **kwargs)
    model = make(SBEED)
    model.save(tmp_path / "model")
    with pytest.raises(error, match=message):
        SBEED.load(tmp_path / "model", **kwargs)


@pytest.mark.parametrize("edge", [{"eta": 0}, {"eta": 1}, {"temperature": 1}, {"temperature": 1e-6}])
def test_edges_are_fine(edge):
    assert make(SBEED, **edge).learn(20)._n_updates == 10


def test_a_target_network_is_no_surprise_here():
    """Unlike with the other algorithms: it is the paper's, and DQN's argument does what a DQN user expects."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make(SBEED, target_update_interval=5).learn(20)
    assert model.q_net_target is not model.q_net
    with pytest.warns(UserWarning, match=r"tau=0\.5 is ignored.*target_update_interval") as caught:
        make(SBEED, tau=0.5)
    assert caught[0].filename.endswith("small_models.py")


def test_longer_returns_are_refused_wherever_they_come_from(tmp_path):
    refused = pytest.raises(ValueError, match=r"n_steps=3 does not work with SBEED.*n_steps=1 \(also when loading\)")
    with refused:
        make(SBEED, replay_buffer_class=NStepReplayBuffer, replay_buffer_kwargs={"n_steps": 3})
    make(DQN, RewardEnv(), n_steps=3).save(tmp_path / "dqn")
    with pytest.warns(UserWarning, match="saved by SB3's DQN"), refused:
        SBEED.load(tmp_path / "dqn")
    with pytest.warns(UserWarning, match="saved by SB3's DQN"):
        model = SBEED.load(tmp_path / "dqn", env=RewardEnv(), n_steps=1)
    assert not isinstance(model.replay_buffer, NStepReplayBuffer)
    assert model.learn(20)._n_updates == 10
