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


def largest_rise(curves: ArrayLike) -> Floats:
    """How far each run's learning curve rises, at most, above its first value.

    ``max_t y_t − y_first``.

    :param curves: Shape (runs, points); NaN where a curve has no value.
    :return: Shape (runs,), in units of the return; 0 for a curve that is never above its first value, NaN for one
        without any value.
    """
    values = np.asarray(curves, dtype=np.float64)
    known = ~np.isnan(values)
    highest: Floats = np.where(known, values, -np.inf).max(axis=1)
    return np.where(known.any(axis=1), highest - _first(values)[:, 0], np.nan)


def _first(values: Floats) -> Floats:
    """The first value of each curve, shape (runs, 1); NaN for a curve without any."""
    return np.take_along_axis(values, (~np.isnan(values)).argmax(axis=1)[:, None], axis=1)


def share_of_rise_lost(curves: ArrayLike, more_than: float) -> Floats:
    """Which share of what it has risen by each run's learning curve loses again, at most.

    The :func:`largest_fall` of what is at or above the first value, over :func:`largest_rise`: a curve that is lower
    has lost its whole rise and no more. In contrast to the fall alone it does not call a run stable that has learned
    little and so has little to lose; and a run that has learned nothing, which has no such share, can be left out by
    ``more_than``.

    :param curves: Shape (runs, points); NaN where a curve has no value.
    :param more_than: How far a curve has to rise, in units of the return, at least 0.
    :return: Shape (runs,): 0 for a curve that never falls, 1 for one that loses all that it had reached. NaN for a
        curve that rises by no more than that, or has no value.
    :raises ValueError: For a negative rise.
    """
    if not more_than >= 0.0:
        raise ValueError(f"more_than is {more_than}; give a rise of 0 or more, in units of the curves.")
    rise = largest_rise(curves)
    values = np.asarray(curves, dtype=np.float64)
    lost = largest_fall(np.maximum(values, _first(values)))
    return np.divide(lost, rise, out=np.full(rise.shape, np.nan), where=rise > more_than)


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
