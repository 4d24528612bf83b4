"""Action values without what modules add to their functions, which is most of the cost of acting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch as th
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import nn
from torch.nn import functional
from torch.nn.modules.module import _has_any_global_hook

from sb3_robust_be.qrc.extractors import MinAtarCNN
from sb3_robust_be.qrc.networks import QRCNetwork


def is_plain(network: QRCNetwork) -> bool:
    """Whether :func:`plain_values` can stand for a network's ``forward``.

    That is looked at anew before each use, which costs little, since anybody may put a hook on a module, or another
    module in its place.

    :param network: Any.
    :return: Whether it is layers in a row behind ``FlattenExtractor`` or :class:`MinAtarCNN`, and what is around these
        layers is as this package and SB3 have made it.
    """
    if type(network) is not QRCNetwork or not network.takes_numbers or "extract_features" in network.__dict__:
        return False
    extractor, layers = network._modules["features_extractor"], network._modules["q_net"]
    around = [network, extractor, layers]
    if type(extractor) is MinAtarCNN:
        around += [extractor._modules["cnn"], extractor._modules["linear"]]
    elif type(extractor) is not FlattenExtractor:
        return False
    if not all(type(x) is nn.Sequential for x in around[2:]):
        return False
    return all(map(_calls_forward, around)) and not _has_any_global_hook()


def _calls_forward(module: nn.Module | None) -> bool:
    """Whether calling a module does what its class's ``forward`` does, and nothing else."""
    assert module is not None
    return not (module._forward_pre_hooks or module._forward_hooks or "forward" in module.__dict__)


def plain_values(network: QRCNetwork, observations: th.Tensor) -> th.Tensor:
    """Compute what ``network(observations)`` gives, bit for bit, in less than half of the time for a batch of one.

    It calls what the usual layers' ``forward`` would call, and the others themselves. Parameters are looked up each
    time, so that new ones are always followed.

    :param network: One for which :func:`is_plain` holds, in evaluation mode.
    :param observations: A batch of numbers of any dtype, batch first.
    :return: ``q(s,·)``, shape (batch, actions).
    """
    x = observations.float()
    extractor = network._modules["features_extractor"]
    if isinstance(extractor, MinAtarCNN):
        x = extractor.channels_first(x)
        x = _apply(extractor.cnn, x)
        x = _apply(extractor.linear, x)
    elif x.ndim != 2:
        x = x.flatten(1)
    return _apply(network.q_net, x)


def _apply(layers: Iterable[Any], x: th.Tensor) -> th.Tensor:
    for layer in layers:
        kind, parameters = type(layer) if _calls_forward(layer) else None, layer._parameters
        if kind is nn.Linear:
            x = functional.linear(x, parameters["weight"], parameters["bias"])
        elif kind is nn.ReLU:
            x = th.relu(x)
        elif kind is nn.LayerNorm:
            x = functional.layer_norm(x, layer.normalized_shape, parameters["weight"], parameters["bias"], layer.eps)
        elif kind is nn.Conv2d and layer.padding_mode == "zeros":
            weight, bias = parameters["weight"], parameters["bias"]
            x = functional.conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)
        elif kind is nn.Flatten:
            x = x.flatten(layer.start_dim, layer.end_dim)
        else:
            x = layer(x)
    return x
