"""The secondary head's regulariser relative to the size of the features that it sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

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


class RelativeDecay(NamedTuple):
    """What of the regulariser's gradient ``β·n·θ`` is known before a batch."""

    feature_norm: th.Tensor
    """n, the running mean of ``‖φ(s)‖² + 1`` over the batches before, a 0-d tensor"""
    rate: float | th.Tensor
    """The batch's weight in it"""
    beta: float | th.Tensor
    """β"""

    @th.no_grad()
    def add(
        self, batch_norm: th.Tensor, gradients: Iterable[th.Tensor | None], parameters: Iterable[th.Tensor]
    ) -> None:
        """Take the batch into n, in place, and add ``β·n·θ`` to the gradient of each parameter that has one.

        :param batch_norm: The batch's mean of ``‖φ(s)‖² + 1``, a 0-d tensor.
        :param gradients: One for each parameter, changed in place.
        :param parameters: θ, the secondary head's.
        """
        self.feature_norm.lerp_(batch_norm.to(self.feature_norm), self.rate)
        factor = self.beta * self.feature_norm
        for gradient, parameter in zip(gradients, parameters, strict=True):
            if gradient is not None:
                gradient.addcmul_(parameter, factor)
