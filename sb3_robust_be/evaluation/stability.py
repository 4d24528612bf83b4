"""How stable an algorithm is: over the steps of a run, and over the step sizes it may be given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from sb3_robust_be.evaluation.sample_checks import Floats


def largest_fall(curves: ArrayLike) -> Floats:
    """How far each run's learning curve falls, at most, below what it has reached before.

    ``max_t (max_{s≤t} y_s − y_t)``.

    :param curves: Shape (runs, points); NaN where a curve has no value.
    :return: Shape (runs,), in units of the return; 0 for a curve that never falls, NaN for one without any value.
    """
    values = np.asarray(curves, dtype=np.float64)
    reached = np.fmax.accumulate(values, axis=1)
    falls = reached - values
    missing = np.isnan(falls).all(axis=1)
    falls[missing] = 0.0
    return np.where(missing, np.nan, np.nanmax(falls, axis=1))


def step_size_loss(finals: Sequence[ArrayLike]) -> Floats:
    """What a step size taken blindly from a grid costs each seed, against the best step size of the grid.

    ``x_{best,s} − mean_i x_{i,s}`` for seed s, where the best is that of the highest mean over seeds.

    :param finals: For each step size of the grid, final returns of the same seeds, shape (seeds,), finite.
    :return: Shape (seeds,), in units of the return.
    :raises ValueError: Without a step size, or with different numbers of seeds.
    """
    runs = [np.asarray(own, dtype=np.float64) for own in finals]
    if not runs or len({own.shape for own in runs}) > 1:
        shapes = [own.shape for own in runs]
        raise ValueError(f"finals has the shapes {shapes}; give the same seeds for each of one or more step sizes.")
    table = np.stack(runs)
    best = table.mean(axis=1).argmax()
    loss: Floats = table[best] - table.mean(axis=0)
    return loss
