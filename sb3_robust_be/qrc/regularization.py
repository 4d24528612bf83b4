"""The secondary head's regulariser relative to the size of the features that it sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch as th

HRegularizationScale = Literal["absolute", "features"]

H_REGULARIZATION_SCALES: tuple[str, ...] = ("absolute", "features")
FEATURE_NORM_RATE = 0.01
"""Least weight of a new batch in the running mean of the features' squared norm: it looks back some 100 updates"""


def feature_norm_rate(n_updates: int) -> float:
    """The weight of a batch in the running mean of the features' squared norm.

    :param n_updates: From 1: how many batches have been seen, this one included.
    :return: ``1/n`` at first, so that the mean is that of all, then :data:`FEATURE_NORM_RATE`.
    """
    return max(1.0 / n_updates, FEATURE_NORM_RATE)


@th.no_grad()
def add_relative_decay(parameters: Iterable[th.nn.Parameter], beta: float, feature_norm: th.Tensor) -> None:
    """Add ``β·n·θ`` to the gradient of each parameter that has one.

    :param parameters: θ, the secondary head's.
    :param beta: β.
    :param feature_norm: n, the running mean of ``‖φ(s)‖² + 1``; a 0-d tensor.
    """
    factor = beta * feature_norm
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.addcmul_(parameter, factor)
