"""Checks of arrays that describe a problem, each with an error that names the argument, its value and a remedy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
PROBABILITY_TOLERANCE = 1e-8


def finite(name: str, given: ArrayLike) -> Floats:
    array = np.array(given, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinity; give finite numbers.")
    return array


def check_distribution(name: str, probabilities: Floats) -> None:
    if probabilities.min() < 0.0:
        index = np.unravel_index(probabilities.argmin(), probabilities.shape)
        raise ValueError(
            f"{name}{[int(i) for i in index]} is {probabilities[index]:g}; give probabilities of at least 0."
        )
    sums = probabilities.sum(axis=-1)
    if np.abs(sums - 1.0).max() > PROBABILITY_TOLERANCE:
        worst = np.unravel_index(np.abs(sums - 1.0).argmax(), sums.shape)
        where = f"{name}{[int(i) for i in worst]}" if worst else name
        raise ValueError(f"{where} sums to {sums[worst]:.10g}; give probabilities that sum to 1.")


def check_column_rank(X: Floats) -> None:
    rank = int(np.linalg.matrix_rank(X))
    if rank < X.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns but rank {rank}, so minimisers are not unique; drop dependent columns "
            "or pass allow_dependent_features=True."
        )
