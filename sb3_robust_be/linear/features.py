"""Feature matrices of the paper's problems (appendix "Experimental Details")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def dependent_features() -> Floats:
    """Five states described by three dependent features (Sutton et al., 2009), rows of unit length, ``(5, 3)``."""
    rows = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 1], [0, 0, 1]], dtype=np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def baird_features() -> Floats:
    """Baird's star: row ``i < 6`` is ``e₀ + 2 e_{i+1}``, row 6 is ``2 e₀ + e₇``, ``(7, 8)``, rank 7."""
    X = np.zeros((7, 8))
    X[:6, 0] = 1.0
    X[np.arange(6), np.arange(6) + 1] = 2.0
    X[6, 0], X[6, 7] = 2.0, 1.0
    return X


def random_relu_features(n_states: int, hidden: Sequence[int], seed: int = 0, max_draws: int = 100_000) -> Floats:
    """Last layer of a frozen random ReLU network on one-hot states, redrawn until it has full column rank.

    He-normal weights and zero biases.
    Paper: the initialisation is not given / Ours: He-normal with redraws, because torch's default leaves full rank
    in only 1-28 % of draws and many features that are zero everywhere.

    :param hidden: Layer widths; the last is the number of features.
    :param seed: Seeds one generator, from which all redraws come.
    :raises ValueError: If no draw of ``max_draws`` has full column rank.
    """
    if hidden[-1] > n_states:
        raise ValueError(f"hidden ends with {hidden[-1]} features for {n_states} states; give at most {n_states}.")
    rng = np.random.default_rng(seed)
    for _ in range(max_draws):
        out = np.eye(n_states)
        for width in hidden:
            out = np.maximum(out @ rng.normal(scale=np.sqrt(2.0 / out.shape[1]), size=(out.shape[1], width)), 0.0)
        if np.linalg.matrix_rank(out) == hidden[-1]:
            return out
    raise ValueError(f"hidden is {tuple(hidden)}: none of {max_draws} draws has full column rank; widen the layers.")


def widened_basis(X: ArrayLike, extra: int = 5, seed: int = 0) -> Floats:
    """``X`` and ``extra`` random linear combinations of its columns passed through a ReLU, ``(N, D + extra)``.

    The paper's class for ``h`` between the features of ``v`` and all functions (section 4.3).
    """
    X = np.asarray(X, dtype=np.float64)
    mixed = X @ np.random.default_rng(seed).normal(size=(X.shape[1], extra))
    return np.hstack([X, np.maximum(mixed, 0.0)])
