"""A features extractor for images as small as MinAtar's, for these algorithms and for SB3's own."""

from __future__ import annotations

import torch as th
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN
from torch import nn

from sb3_robust_be.images import NATURE_CNN_MIN_SIDE, is_small, read_shape
from sb3_robust_be.messages import warn

KERNEL_SIZE = 3


class MinAtarCNN(BaseFeaturesExtractor):
    """The MinAtar network: a 3×3 convolution with 16 channels, ReLU, then 128 ReLU units.

    Takes (batch, height, width, channels) and (batch, channels, height, width) alike, bool or number, of any size from
    3×3 on. Source: Young & Tian (2019), used by the paper's appendix "Nonlinear Control".

    :param observation_space: A 3-dimensional ``Box``.
    :param features_dim: Units of the fully connected layer.
    :param n_channels: Channels of the convolution.
    :param channels_last: Where the channels are. ``None``: beside two equal sides, which are height and width, or else
        at the smallest side; last where all three are equal, as in Seaquest's 10×10×10. A warning is given where that
        is a guess, but for cubes of bool, which are MinAtar's.
    :raises ValueError: For another kind of space, or an image smaller than the kernel.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        features_dim: int = 128,
        n_channels: int = 16,
        channels_last: bool | None = None,
    ) -> None:
        if not isinstance(observation_space, spaces.Box) or len(observation_space.shape) != 3:
            raise ValueError(
                f"MinAtarCNN needs images, that is a Box with 3 dimensions, and got {observation_space}. "
                "Use MlpPolicy for vectors and MultiInputPolicy for dictionaries."
            )
        super().__init__(observation_space, features_dim)
        first, middle, last = observation_space.shape
        reading = read_shape(observation_space.shape)
        self.channels_last = reading.channels_last if channels_last is None else channels_last
        channels, height, width = (last, first, middle) if self.channels_last else (first, middle, last)
        if min(height, width) < KERNEL_SIZE:
            raise ValueError(
                f"MinAtarCNN needs images of at least {KERNEL_SIZE}×{KERNEL_SIZE} and got {height}×{width} with "
                f"{channels} channels from the shape {observation_space.shape}. If that is the wrong reading of the "
                "shape, set channels_last in features_extractor_kwargs; otherwise use MlpPolicy."
            )
        of_minatar = first == middle == last and observation_space.dtype == bool
        if channels_last is None and not reading.certain and not of_minatar:
            warn(
                f"Images of the shape {observation_space.shape} are ambiguous and are read as {height}×{width} with "
                f"{channels} channels {'last' if self.channels_last else 'first'}. Say where the channels are with "
                "policy_kwargs=dict(features_extractor_kwargs=dict(channels_last=...)), True or False."
            )
        self.cnn = nn.Sequential(nn.Conv2d(channels, n_channels, KERNEL_SIZE), nn.ReLU(), nn.Flatten())
        n_flatten = n_channels * (height - KERNEL_SIZE + 1) * (width - KERNEL_SIZE + 1)
        self.linear = nn.Sequential(nn.Linear(n_flatten, features_dim), nn.ReLU())

    def forward(self, observations: th.Tensor) -> th.Tensor:
        """Compute the features of a batch of images.

        :param observations: Images, batch first, as floats.
        :return: Features, shape (batch, features_dim).
        """
        return self.linear(self.cnn(self.channels_first(observations)))

    def channels_first(self, observations: th.Tensor) -> th.Tensor:
        """Give images the order that the convolution takes.

        :param observations: Images, batch first.
        :return: The same, shape (batch, channels, height, width).
        """
        # Contiguous here, or Flatten would copy the larger activations instead.
        return observations.permute(0, 3, 1, 2).contiguous() if self.channels_last else observations


def extractor_for(observation_space: spaces.Space) -> type[BaseFeaturesExtractor]:
    """Choose a features extractor by the size of the images.

    :param observation_space: Of images.
    :return: :class:`MinAtarCNN` for those that are too small for ``NatureCNN``.
    """
    shape = observation_space.shape or ()
    if len(shape) != 3 or is_small(shape):
        return MinAtarCNN
    warn_if_ambiguous(shape)
    return NatureCNN


def warn_if_ambiguous(shape: tuple[int, ...]) -> None:
    """Warn of images for ``NatureCNN`` whose shape does not tell which axis the channels are.

    :param shape: Of an image, as the network sees it.
    """
    if min(shape) >= NATURE_CNN_MIN_SIDE and not read_shape(shape).certain:
        warn(
            f"Images of the shape {shape} are ambiguous and are read as {shape[1]}×{shape[2]} with {shape[0]} channels "
            "first. If they are not, let the environment put them there, wrapped in VecTransposeImage(env, skip=True)."
        )
