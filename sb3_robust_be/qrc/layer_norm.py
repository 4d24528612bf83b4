"""Layer normalisation before every hidden activation, for these algorithms' networks and for SB3's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch as th
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    CombinedExtractor,
    FlattenExtractor,
    NatureCNN,
    create_mlp,
)
from stable_baselines3.common.type_aliases import PyTorchObs
from torch import nn

from sb3_robust_be.qrc.extractors import MinAtarCNN
from sb3_robust_be.qrc.validation import check_flag, constructor_arguments

KNOWN_EXTRACTORS: tuple[type[BaseFeaturesExtractor], ...] = (NatureCNN, MinAtarCNN, CombinedExtractor)
"""Features extractors whose layers are known; what a user's own does with its features, the user knows"""


def insert_layer_norm(sequence: nn.Sequential) -> None:
    """Put a layer normalisation behind each linear layer and convolution of a network, but for one that ends it.

    ``y = g·(x − mean(x)) / √(var(x) + 10⁻⁵) + b``: mean and variance are those of one sample, over its units, or over
    channels, height and width of a convolution; g and b, one per unit or channel, start at 1 and 0. Nothing is drawn,
    so that all weights start where they would without it. What ends a network is its head, which no activation follows.
    Source: Ba et al. (2016), "Layer Normalization".

    :param sequence: A network, whose layers an activation follows; changed in place.
    """
    for i in reversed(range(len(sequence) - 1)):
        layer = sequence[i]
        if isinstance(layer, nn.Linear):
            sequence.insert(i + 1, nn.LayerNorm(layer.out_features))
        elif isinstance(layer, nn.Conv2d):
            # One group: the mean is over all channels. LayerNorm would have a gain for each pixel as well.
            sequence.insert(i + 1, nn.GroupNorm(1, layer.out_channels))


def insert_into_extractor(extractor: BaseFeaturesExtractor) -> None:
    """Put layer normalisations into a features extractor of SB3 or of this package.

    :param extractor: Changed in place if it is a ``NatureCNN``, a :class:`MinAtarCNN` or a ``CombinedExtractor``; any
        other, subclasses of these included, is left as it is.
    """
    if type(extractor) in KNOWN_EXTRACTORS:
        for part in list(extractor.modules()):
            if isinstance(part, nn.Sequential):
                insert_layer_norm(part)


class LayerNormExtractor(BaseFeaturesExtractor):
    """Hidden layers with layer normalisation as a features extractor, for algorithms whose policies have none.

    SB3's DQN and sb3-contrib's QR-DQN take it with ``policy_kwargs=dict(features_extractor_class=LayerNormExtractor,
    features_extractor_kwargs=dict(net_arch=[64, 64]), net_arch=[])``: the head, which is not normalised, is then all
    that the policy adds. The network is that of ``policy_kwargs=dict(layer_norm=True, net_arch=[64, 64])`` here, and
    equal seeds give equal weights.

    :param observation_space: As of ``features_extractor_class``.
    :param features_extractor_class: What the hidden layers see, layers of SB3's and of :class:`MinAtarCNN` normalised.
    :param features_extractor_kwargs: Keyword arguments to pass to it.
    :param net_arch: Units of the hidden layers; may be empty.
    :param activation_fn: Activation function behind each normalised hidden layer.
    """

    def __init__(
        self,
        observation_space: Any,
        features_extractor_class: type[BaseFeaturesExtractor] = FlattenExtractor,
        features_extractor_kwargs: Mapping[str, Any] | None = None,
        net_arch: Sequence[int] = (64, 64),
        activation_fn: type[nn.Module] = nn.ReLU,
    ) -> None:
        extractor = features_extractor_class(observation_space, **(features_extractor_kwargs or {}))
        insert_into_extractor(extractor)
        super().__init__(observation_space, net_arch[-1] if net_arch else extractor.features_dim)
        self.extractor = extractor
        self.hidden = nn.Sequential(*create_mlp(extractor.features_dim, -1, list(net_arch), activation_fn))
        insert_layer_norm(self.hidden)

    def forward(self, observations: PyTorchObs) -> th.Tensor:
        """Compute the features of a batch of observations.

        :param observations: Batch first, by key for Dict observations.
        :return: Features, shape (batch, features_dim).
        """
        return self.hidden(self.extractor(observations))


def baseline_policy_kwargs(
    algorithm: type[BaseAlgorithm], policy: str | type[BasePolicy], policy_kwargs: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Say ``layer_norm`` to an algorithm whose policies do not have it, by :class:`LayerNormExtractor`.

    :param algorithm: SB3's DQN, sb3-contrib's QR-DQN, or a subclass.
    :param policy: Its policy, as for a single agent.
    :param policy_kwargs: Of which ``layer_norm`` may be one.
    :return: The same for the algorithm, of the network that ``layer_norm`` gives a policy of this package.
    :raises TypeError: If ``layer_norm`` is neither ``True`` nor ``False``.
    """
    if policy_kwargs is None or "layer_norm" not in policy_kwargs:
        return policy_kwargs
    kwargs = dict(policy_kwargs)
    layer_norm = kwargs.pop("layer_norm")
    check_flag("layer_norm", layer_norm)
    policy_class = algorithm.policy_aliases.get(policy) if isinstance(policy, str) else policy
    if not layer_norm or policy_class is None:  # an unknown name is left to SB3's error
        return kwargs
    default_class = constructor_arguments(policy_class)["features_extractor_class"].default
    features_class = kwargs.get("features_extractor_class", default_class)
    features_kwargs = dict(kwargs.get("features_extractor_kwargs") or {})
    if not kwargs.get("normalize_images", True) and issubclass(features_class, (NatureCNN, CombinedExtractor)):
        # SB3 tells these by itself, but not when they are inside another.
        features_kwargs["normalized_image"] = True
    net_arch = kwargs.get("net_arch")
    if net_arch is None:
        # SB3's default, which it takes by the class of the extractor as well.
        net_arch = [] if features_class is NatureCNN else [64, 64]
    told = {
        "features_extractor_class": features_class,
        "features_extractor_kwargs": features_kwargs,
        "net_arch": list(net_arch),
        **({"activation_fn": kwargs["activation_fn"]} if "activation_fn" in kwargs else {}),
    }
    return {
        **kwargs,
        "features_extractor_class": LayerNormExtractor,
        "features_extractor_kwargs": told,
        "net_arch": [],
    }
