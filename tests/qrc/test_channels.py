"""Where an image's channels are: by what stacked them, by equal sides, as SB3, or with a warning."""

from __future__ import annotations

import re

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from small_envs import SpaceEnv, images
from small_models import assert_learned, assert_same_parameters, every_algorithm, make, parameters, q_values
from stable_baselines3 import DQN
from stable_baselines3.common.torch_layers import NatureCNN
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnvWrapper,
    VecExtractDictObs,
    VecFrameStack,
    VecTransposeImage,
)

import sb3_robust_be  # noqa: F401 (registers the environments)
from sb3_robust_be import QRC, MinAtarCNN

pytestmark = pytest.mark.filterwarnings("error::UserWarning")


class ChannelsFirst(VecEnvWrapper):
    """Images transposed by hand."""

    def __init__(self, venv):
        space = venv.observation_space
        space = spaces.Box(space.low.transpose(2, 0, 1), space.high.transpose(2, 0, 1), dtype=space.dtype)
        super().__init__(venv, space)

    def reset(self):
        return self.venv.reset().transpose(0, 3, 1, 2)

    def step_wait(self):
        observations, rewards, dones, infos = self.venv.step_wait()
        for info in infos:
            if "terminal_observation" in info:
                info["terminal_observation"] = info["terminal_observation"].transpose(2, 0, 1)
        return observations.transpose(0, 3, 1, 2), rewards, dones, infos


def breakout(n_stack=4):
    return VecFrameStack(DummyVecEnv([lambda: gym.make("MinAtar/Breakout-v1")]), n_stack)


def stacked(space, n_stack, **kwargs):
    space.seed(0)
    return VecFrameStack(DummyVecEnv([lambda: SpaceEnv(space)]), n_stack, **kwargs)


def convolution(model):
    """Channels and the shape of the images that the first convolution sees."""
    seen = []
    first = model.q_net.features_extractor.cnn[0]
    hook = first.register_forward_pre_hook(lambda _, args: seen.append(tuple(args[0].shape[1:])))
    model.predict(model.get_env().reset(), deterministic=True)
    hook.remove()
    return seen[-1]


@every_algorithm
def test_stacked_frames_learn_as_if_transposed_by_hand(algorithm):
    """MinAtar's, which SB3 takes for no image, stacked to more channels than height."""
    by_itself, by_hand = (
        make(algorithm, env, "CnnPolicy", seed=None) for env in (breakout(), ChannelsFirst(breakout()))
    )
    assert (by_itself.observation_space.shape, by_hand.observation_space.shape) == ((10, 10, 16), (16, 10, 10))
    by_hand.set_parameters(by_itself.get_parameters())
    before = parameters(by_itself)
    for model in (by_itself, by_hand):
        assert convolution(model) == (16, 10, 10)
        model.set_random_seed(0)
        model.learn(40)
    assert_learned(by_itself, before)
    assert_same_parameters(by_itself, by_hand)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.float32])
@pytest.mark.parametrize("channels_last", [True, False])
def test_two_equal_sides_are_height_and_width(dtype, channels_last):
    env = SpaceEnv(images(10, 10, 16, dtype, channels_last=channels_last))
    model = make(QRC, env, "CnnPolicy").learn(15)
    assert convolution(model) == (16, 10, 10)
    # As the environment itself gives it, of which one is the other's picture.
    picture = env.observation_space.sample()
    assert model.predict(picture, deterministic=True)[0].shape == ()
    other = make(QRC, SpaceEnv(images(10, 10, 16, dtype, channels_last=not channels_last)), "CnnPolicy")
    other.set_parameters(model.get_parameters())
    turned = picture.transpose(2, 0, 1) if channels_last else picture.transpose(1, 2, 0)
    th.testing.assert_close(q_values(model, picture), q_values(other, turned))


@pytest.mark.parametrize("dtype", [bool, np.uint8])
@pytest.mark.parametrize(("frame", "order"), [((8, 12, 5), "last"), ((5, 8, 12), "first")])
def test_what_was_stacked_is_the_channels(dtype, frame, order, tmp_path):
    """Twenty channels of 8×12, which the shape (8, 12, 20) does not tell."""
    space = spaces.Box(0, 1 if dtype is bool else 255, frame, dtype)
    model = make(QRC, stacked(space, 4, channels_order=order), "CnnPolicy").learn(15)
    assert convolution(model) == (20, 8, 12)
    observation = model.get_env().reset()
    model.save(tmp_path / "model")
    # The file says it: an environment is not needed.
    loaded = QRC.load(tmp_path / "model")
    assert_same_parameters(loaded, model)
    th.testing.assert_close(q_values(loaded, observation), q_values(model, observation))
    assert QRC.load(tmp_path / "model", env=stacked(space, 4, channels_order=order)).learn(15)._n_updates > 0


def test_transposed_after_stacking():
    """(12, 20, 8) of two frames: SB3 transposes it by itself, and the stack says that it is right."""
    model = make(QRC, stacked(images(12, 20, 4), 2), "CnnPolicy")
    assert isinstance(model.get_env(), VecTransposeImage)
    assert convolution(model) == (8, 12, 20)


def test_what_the_user_says_goes_first():
    kwargs = {"features_extractor_kwargs": {"channels_last": False}}
    model = make(QRC, stacked(images(8, 12, 5, bool), 4), "CnnPolicy", policy_kwargs=kwargs)
    assert convolution(model) == (8, 12, 20)
    assert model.policy_kwargs["features_extractor_kwargs"] == {"channels_last": False}
    said = VecTransposeImage(DummyVecEnv([lambda: SpaceEnv(images(12, 20, 8, channels_last=False))]), skip=True)
    assert convolution(make(QRC, said, "CnnPolicy")) == (8, 12, 20)


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (images(8, 12, 20, bool), r"12×20 with 8 channels first.*channels_last"),
        (images(20, 12, 8, bool), r"20×12 with 8 channels last.*channels_last"),
        (images(10, 7, 10, bool), r"10×7 with 10 channels last.*channels_last"),
        (images(9, 6, 7, np.float32), r"9×6 with 7 channels last.*channels_last"),
        (images(10, 10, 10), r"10×10 with 10 channels last.*channels_last"),
        (images(40, 50, 60), r"50×60 with 40 channels first.*VecTransposeImage\(env, skip=True\)"),
    ],
    ids=lambda x: str(x.shape) if isinstance(x, spaces.Box) else "",
)
def test_ambiguous_shapes_warn(space, text):
    with pytest.warns(UserWarning, match="ambiguous") as found:
        model = make(QRC, SpaceEnv(space), "CnnPolicy", buffer_size=20)
    assert len(found) == 1, "one sentence, once"
    assert re.search(rf"{re.escape(str(space.shape))} are ambiguous.*{text}", str(found[0].message))
    assert model.learn(12)._n_updates > 0


def test_ambiguous_shapes_in_a_dict_warn():
    def in_a_dict(shape):
        return SpaceEnv(spaces.Dict({"camera": spaces.Box(0, 255, shape, np.uint8), "speed": spaces.Box(-1, 1, (2,))}))

    with pytest.warns(
        UserWarning, match=r"Images of the shape \(40, 48, 60\) are ambiguous.*40 channels first"
    ) as found:
        make(QRC, in_a_dict((40, 48, 60)), "MultiInputPolicy", buffer_size=2)
    assert len(found) == 1
    for shape in ((84, 84, 4), (3, 40, 48)):
        make(QRC, in_a_dict(shape), "MultiInputPolicy", buffer_size=2)


@pytest.mark.parametrize(
    "shape", [(10, 10, 4), (4, 10, 10), (10, 10, 16), (16, 10, 10), (3, 36, 40), (40, 36, 1), (10, 11, 4)]
)
def test_shapes_that_tell(shape):
    """No warning, which this file makes an error."""
    make(QRC, SpaceEnv(spaces.Box(0, 255, shape, np.uint8)), "CnnPolicy", buffer_size=2)
    MinAtarCNN(spaces.Box(0, 1, shape, bool))


def test_large_images_of_few_channels_for_their_size():
    """Twelve channels, or 100 of which none is higher than twelve pixels, and NatureCNN takes no such picture."""
    make(QRC, SpaceEnv(images(84, 100, 12, channels_last=False)), "CnnPolicy", buffer_size=2)


@pytest.mark.parametrize("game", ["Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders"])
def test_minatar_is_not_ambiguous(game):
    model = make(QRC, f"MinAtar/{game}-v1", "CnnPolicy", buffer_size=20)
    height, width, channels = model.observation_space.shape
    assert convolution(model) == (channels, height, width)


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("in_dict", [False, True])
def test_larger_images_reach_sb3s_network_channel_first(channels_last, in_dict):
    """Forty channels of 36×36, in which SB3's rule looks for the channels at the wrong end."""
    space = images(36, 36, 40, channels_last=channels_last)
    env = SpaceEnv(spaces.Dict({"picture": space, "code": spaces.Discrete(2)}) if in_dict else space)
    model = make(QRC, env, "MultiInputPolicy" if in_dict else "CnnPolicy", buffer_size=20)
    found = model.q_net.features_extractor
    network = found.extractors["picture"] if in_dict else found
    assert type(network) is NatureCNN
    assert network.cnn[0].in_channels == 40
    model.learn(12)
    # What the environment itself gives is as good as what its wrapper gives.
    raw = env.observation_space.sample()
    picture = raw["picture"] if in_dict else raw
    turned = picture.transpose(2, 0, 1) if channels_last else picture
    th.testing.assert_close(q_values(model, raw), q_values(model, {**raw, "picture": turned} if in_dict else turned))


@pytest.mark.parametrize(
    ("space", "order"), [(images(10, 10, 4, bool, channels_last=False), "first"), (images(10, 10, 16), "last")]
)
def test_frames_stacked_beside_each_other_warn(space, order):
    with pytest.warns(UserWarning, match=rf"VecFrameStack.*channels are {order}.*channels_order='{order}'"):
        make(QRC, stacked(space, 2), "MlpPolicy", buffer_size=20)
    make(QRC, stacked(space, 2, channels_order=order), "CnnPolicy", buffer_size=20)


def test_stacks_of_anything_else():
    """Vectors, and wrappers that change the shape after stacking, say nothing of channels."""
    make(QRC, stacked(spaces.Box(-1.0, 1.0, (3,), np.float32), 4)).learn(15)
    stack = stacked(spaces.Dict({"a": images(10, 10, 4), "b": spaces.Box(0, 1, (2,), np.float32)}), 2)
    assert convolution(make(QRC, VecExtractDictObs(stack, "a"), "CnnPolicy")) == (8, 10, 10)


def test_minatar_cnn_in_dqn():
    kwargs = {"features_extractor_class": MinAtarCNN, "net_arch": []}
    model = make(DQN, breakout(), "CnnPolicy", policy_kwargs=kwargs).learn(12)
    assert convolution(model) == (16, 10, 10)
