"""Finds the channel axis of images where SB3 guesses wrong: those with more channels than height or width."""

from __future__ import annotations

import warnings
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.vec_env import (
    VecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecTransposeImage,
    is_vecenv_wrapped,
    unwrap_vec_wrapper,
)

from sb3_robust_be.images import is_small, read_shape
from sb3_robust_be.messages import warn
from sb3_robust_be.qrc.extractors import MinAtarCNN, warn_if_ambiguous
from sb3_robust_be.qrc.policies import CnnPolicy


class VecChannelsFirst(VecTransposeImage):
    """``VecTransposeImage`` for images with any number of channels.

    :param venv: With images that have the channels last.
    """

    @staticmethod
    def transpose_space(observation_space: spaces.Box, key: str = "") -> spaces.Box:
        """The space of the transposed images.

        :param observation_space: Of images with the channels last.
        :param key: In case of a Dict space, the key of the observation space.
        :return: With the channels first.
        """
        height, width, channels = observation_space.shape
        return spaces.Box(0, 255, (channels, height, width), observation_space.dtype)


def _is_box_of_images(space: spaces.Space) -> bool:
    return isinstance(space, spaces.Box) and len(space.shape) == 3


def _frame_stack(env: GymEnv) -> VecFrameStack | None:
    """The frame-stacking wrapper whose images reach the agent in their shape, if there is one."""
    shape = env.observation_space.shape
    while isinstance(env, VecEnvWrapper) and not isinstance(env, VecFrameStack):
        env = env.venv
    found = isinstance(env, VecFrameStack) and _is_box_of_images(env.observation_space)
    return env if found and env.observation_space.shape == shape else None  # type: ignore[return-value]


def _sb3_images(env: GymEnv) -> list[tuple[int, ...]]:
    """Shapes of the observations that SB3 takes for images."""
    space = env.observation_space
    parts = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    return [part.shape or () for part in parts if is_image_space(part)]


def _read(env: GymEnv) -> bool | None:
    """Whether all images have the channels last, by their frame stacking or shape; ``None`` if these do not tell."""
    shapes = _sb3_images(env)
    if any(len(set(shape)) == 1 for shape in shapes):
        return None  # of a cube nobody could see whether it has been transposed
    stack = _frame_stack(env)
    if stack is not None and shapes:
        return not stack.stacked_obs.channels_first
    readings = {read_shape(shape) for shape in shapes}
    reading = readings.pop() if len(readings) == 1 else None
    return reading.channels_last if reading is not None and reading.certain else None


def wrap_env(env: GymEnv, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
    """
    As ``BaseAlgorithm._wrap_env``, but that images are transposed, or not, by what is known of their channels.

    Small ones with the channels last, in which SB3 takes them to be first, stay as they are: :class:`MinAtarCNN` reads
    both.

    :param env: To be wrapped.
    :param verbose: Verbosity level: 0 for no output, 1 for indicating wrappers used
    :param monitor_wrapper: Whether to wrap the env in a ``Monitor`` when possible.
    :return: The wrapped environment.
    """
    _warn_of_stacking(env)
    if isinstance(env, VecEnv) and is_vecenv_wrapped(env, VecTransposeImage):
        # The user has decided.
        return BaseAlgorithm._wrap_env(env, verbose, monitor_wrapper)
    channels_last = _read(env)
    with warnings.catch_warnings():
        if channels_last is False:
            # SB3's, where it is about to transpose in spite of that.
            warnings.filterwarnings("ignore", "Treating image space as channels-last")
        wrapped = BaseAlgorithm._wrap_env(env, verbose, monitor_wrapper)
    transposed = isinstance(wrapped, VecTransposeImage)
    if channels_last is None or channels_last == transposed:
        return wrapped
    if isinstance(wrapped, VecTransposeImage):
        return VecTransposeImage(wrapped.venv, skip=True)
    small = any(is_small(shape, True) for shape in _sb3_images(wrapped))
    return wrapped if small else VecChannelsFirst(wrapped)


def _warn_of_stacking(env: GymEnv) -> None:
    stack = _frame_stack(env)
    if stack is None:
        return
    shape = stack.venv.observation_space.shape or ()
    reading, stacked_last = read_shape(shape), not stack.stacked_obs.channels_first
    if reading.certain and reading.channels_last != stacked_last:
        end = "last" if reading.channels_last else "first"
        warn(
            f"VecFrameStack stacks images of the shape {shape}, whose channels are {end}, along the "
            f"{'last' if stacked_last else 'first'} axis, so that the frames lie side by side in one picture. Pass "
            f"channels_order={end!r} to VecFrameStack."
        )


def _told(env: VecEnv) -> bool | None:
    """Whether images have the channels last where they reach the policy, as far as the wrappers tell."""
    transposition = unwrap_vec_wrapper(env, VecTransposeImage)
    stack = _frame_stack(env)
    if transposition is None or stack is not None:
        return None if stack is None else not stack.stacked_obs.channels_first
    inner = _frame_stack(transposition.venv)
    stacked_last = inner is not None and not inner.stacked_obs.channels_first
    return False if transposition.skip or stacked_last else None


def with_channels(policy_kwargs: dict[str, Any], policy_class: type, env: VecEnv | None) -> dict[str, Any]:
    """Choose the features extractor's arguments for images whose channels SB3 would misread.

    :param policy_kwargs: The user's.
    :param policy_class: For which.
    :param env: Wrapped.
    :return: The same, or with what the wrappers know of the channels and the shape does not say.
    """
    if env is not None and isinstance(env.observation_space, spaces.Dict):
        # What a wrapper has stacked inside a Dict is not looked up: SB3's network reads them by their shape.
        for shape in _sb3_images(env):
            warn_if_ambiguous(shape)
    if env is None or not _is_box_of_images(env.observation_space):
        return policy_kwargs
    shape, channels_last = env.observation_space.shape or (), _told(env)
    features = policy_kwargs.get("features_extractor_class")
    chosen_by_size = features is None and issubclass(policy_class, CnnPolicy)
    extractor_kwargs = policy_kwargs.get("features_extractor_kwargs") or {}
    if (
        channels_last is None
        or (channels_last, True) == read_shape(shape)
        or extractor_kwargs.get("channels_last") is not None
        or not (features is MinAtarCNN or (chosen_by_size and is_small(shape, channels_last)))
    ):
        return policy_kwargs
    told = {**extractor_kwargs, "channels_last": channels_last}
    return {**policy_kwargs, "features_extractor_class": MinAtarCNN, "features_extractor_kwargs": told}
