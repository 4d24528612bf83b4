"""The two-headed network: q(s,·) and h(s,·) on the same features."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch as th
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    CombinedExtractor,
    FlattenExtractor,
    NatureCNN,
)
from stable_baselines3.common.type_aliases import PyTorchObs, TensorDict
from stable_baselines3.dqn.policies import QNetwork
from torch import nn

from sb3_robust_be.qrc.extractors import MinAtarCNN
from sb3_robust_be.qrc.layer_norm import LayerNormExtractor, insert_layer_norm
from sb3_robust_be.qrc.observations import from_zero, starts_of

HeadInit = Literal["zero_h", "torch", "zeros"]

HEAD_INITS: tuple[str, ...] = ("zero_h", "torch", "zeros")

# Modules that compute the same in training and evaluation mode. Any other type may ask for its mode.
_MODE_FREE: frozenset[type[nn.Module]] = frozenset(
    {
        *(nn.Linear, nn.Conv2d, nn.Sequential, nn.ModuleDict, nn.ModuleList, nn.Flatten, nn.Identity),
        *(nn.LayerNorm, nn.GroupNorm),
        *(nn.ReLU, nn.Tanh, nn.ELU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Sigmoid),
        *(FlattenExtractor, NatureCNN, CombinedExtractor, MinAtarCNN, LayerNormExtractor),
    }
)


class QRCNetwork(QNetwork):
    """Action values and secondary estimates: two linear heads on the last hidden features (paper, section 7).

    The secondary head has weight and bias, and sees the features detached, so that the network's capacity serves the
    values alone. ``forward`` gives the values only, as SB3's ``QNetwork`` does, and the names of the value parameters
    are DQN's.

    :param args: As ``QNetwork``.
    :param head_init: Where the heads start, see :class:`~sb3_robust_be.qrc.policies.QRCPolicy`.
    :param layer_norm: Whether the hidden layers between the features extractor and the heads are normalised.
    :param kwargs: As ``QNetwork``.
    """

    takes_numbers: bool = False
    """Whether observations reach the features extractor as they are, but for their dtype"""

    def __init__(self, *args: Any, head_init: HeadInit = "zero_h", layer_norm: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.takes_numbers = isinstance(self.observation_space, spaces.Box) and not is_image_space(
            self.observation_space
        )
        self.layer_norm = layer_norm
        if layer_norm:
            insert_layer_norm(self.q_net)
        self._starts = starts_of(self.observation_space)
        q_head = cast(nn.Linear, self.q_net[-1])
        self.h_net = nn.Linear(q_head.in_features, q_head.out_features)
        # Both are drawn in any case, so that equal seeds draw the same from here on.
        for head in {"torch": (), "zero_h": (self.h_net,), "zeros": (self.h_net, q_head)}[head_init]:
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "layer_norm": self.layer_norm}

    def extract_features(self, obs: PyTorchObs, features_extractor: BaseFeaturesExtractor) -> th.Tensor:
        """
        Preprocess the observation if needed and extract features.

        SB3: one-hot encodes integers as if they started at 0 / Ours: from the first number of their space.

        :param obs: Observation
        :param features_extractor: The features extractor to use.
        :return: The extracted features
        """
        return super().extract_features(from_zero(obs, self._starts) if self._starts else obs, features_extractor)

    def hidden_features(self, obs: PyTorchObs) -> th.Tensor:
        """Compute what the two heads see: the last hidden features.

        :param obs: Observations, batch first.
        :return: φ(s), shape (batch, width), through which gradients flow.
        """
        features = self.extract_features(obs, self.features_extractor)
        for layer in list(self.q_net)[:-1]:
            features = layer(features)
        return features

    def q_and_h(self, obs: PyTorchObs) -> tuple[th.Tensor, th.Tensor]:
        """Compute both heads in one forward pass.

        :param obs: Observations, batch first.
        :return: q and h, each of shape (batch, actions).
        """
        features = self.hidden_features(obs)
        return self.q_net[-1](features), self.h_net(features.detach())

    def _predict(self, observation: PyTorchObs, deterministic: bool = True) -> th.Tensor:
        actions = super()._predict(observation, deterministic)
        start = int(self.action_space.start)
        return actions + start if start else actions

    def mode_matters(self) -> bool:
        """Whether any part may compute differently in training and in evaluation mode."""
        return any(type(module) not in _MODE_FREE and not isinstance(module, QRCNetwork) for module in self.modules())


def concatenate(observations: PyTorchObs, next_observations: PyTorchObs) -> PyTorchObs:
    """Concatenate two batches of observations, key by key for Dict observations.

    :param observations: The first half.
    :param next_observations: The second half.
    :return: Both, batch first.
    """
    if isinstance(observations, dict):
        after = cast(TensorDict, next_observations)
        return {key: th.cat((value, after[key])) for key, value in observations.items()}
    return th.cat((observations, cast(th.Tensor, next_observations)))
