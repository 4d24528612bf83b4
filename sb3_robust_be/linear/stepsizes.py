"""Step sizes: plain, RMSprop and Adam, elementwise, with the usual constants."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

OPTIMIZERS: tuple[str, ...] = ("sgd", "rmsprop", "adam")
RMSPROP_DECAY = 0.99
ADAM_BETA1 = 0.9
ADAM_BETA2 = 0.999
EPSILON = 1e-8
MOMENTS: dict[str, int] = {"sgd": 0, "rmsprop": 1, "adam": 2}  # arrays of state per weight
#: Grid cells in one block. The paper's 144 fit; an odd number of cache lines spreads the rows over all cache sets.
LANES = 152


def check_optimizer(name: str) -> str:
    if name not in OPTIMIZERS:
        raise ValueError(f"optimizer is {name!r}; give one of {', '.join(OPTIMIZERS)}.")
    return name


def increment(optimizer: str, direction: Floats, rate: Floats | float, moments: list[Floats], t: int) -> Floats:
    """What to add to the weights; updates ``moments`` in place.

    :param direction: The update direction, any shape.
    :param rate: Step size, broadcastable to ``direction``.
    :param moments: ``MOMENTS[optimizer]`` arrays of the shape of ``direction``, zero at first: the mean square, and
        for Adam then the mean.
    :param t: Number of this update, from 1.
    """
    if optimizer == "sgd":
        return rate * direction
    square = moments[0]
    decay = RMSPROP_DECAY if optimizer == "rmsprop" else ADAM_BETA2
    square *= decay
    square += (1.0 - decay) * direction * direction
    if optimizer == "rmsprop":
        return rate * direction / (np.sqrt(square) + EPSILON)
    mean = moments[1]
    mean *= ADAM_BETA1
    mean += (1.0 - ADAM_BETA1) * direction
    corrected = np.sqrt(square / (1.0 - ADAM_BETA2**t)) + EPSILON
    return rate * (mean / (1.0 - ADAM_BETA1**t)) / corrected
