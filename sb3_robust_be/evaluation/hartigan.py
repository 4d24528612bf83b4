"""Hartigan and Hartigan's (1985) dip: how far a sample is from having a single mode.

The dip of a distribution ``F`` is ``min_G sup_x |F(x) − G(x)|`` over all unimodal ``G`` (convex up to a mode, concave
after it): 0 for a unimodal ``F``, at most ¼, and half the mass of the smaller of two well separated clusters. The
paper speaks of bimodal distributions over seeds (section 8.1) without a test; this one is the usual.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from sb3_robust_be.evaluation.sample_checks import Floats, check_count, check_generator, sample

Indices = list[int]


def dip(values: ArrayLike) -> float:
    """The dip of the empirical distribution; ``1/(2n)`` at least for ``n > 1`` different values.

    Equal values are an atom, which a unimodal distribution may have at its mode only.

    :param values: Shape (runs,), finite.
    """
    runs = sample("values", values)
    x, counts = np.unique(runs, return_counts=True)
    after = np.cumsum(counts).astype(np.float64)
    return _largest_departure(x, after - counts, after) / (2 * len(runs))


def dip_null(runs: int, *, rng: np.random.Generator, n_resamples: int = 2_000) -> Floats:
    """Dips of ``n_resamples`` uniform samples of ``runs`` values, sorted.

    The uniform distribution is the unimodal one with the largest dips, asymptotically: a test against it rejects
    others too rarely.
    """
    check_count("runs", runs)
    check_count("n_resamples", n_resamples)
    samples = check_generator(rng).uniform(size=(n_resamples, runs))
    return _sorted_dips(samples.tobytes(), runs).copy()


@lru_cache(maxsize=4)
def _sorted_dips(samples: bytes, runs: int) -> Floats:
    """Of samples of so many runs, which an experiment's claims on as many seeds share: it takes a second or two."""
    return np.sort([dip(values) for values in np.frombuffer(samples).reshape(-1, runs)])


def _largest_departure(x: Floats, before: Floats, after: Floats) -> float:
    """Twice the dip, in runs: the modal interval shrinks until the hulls inside it are closer than those outside.

    :param x: Distinct values, ascending.
    :param before: Runs below each, ``n·F(x−)``.
    :param after: Runs up to each, ``n·F(x)``.
    """
    low, high, departure = 0, len(x) - 1, 0.0
    while low < high:
        lower = _hull(x, before, low, high, sign=1.0)
        upper = _hull(x, after, low, high, sign=-1.0)
        inside = np.arange(low, high + 1)
        minorant = np.interp(x[inside], x[lower], before[lower])
        majorant = np.interp(x[inside], x[upper], after[upper])
        gaps = majorant - minorant
        at_lower = max(lower, key=lambda i: gaps[i - low])
        at_upper = max(upper, key=lambda i: gaps[i - low])
        if gaps[at_lower - low] >= gaps[at_upper - low]:
            left, right, gap = at_lower, min(i for i in upper if i >= at_lower), gaps[at_lower - low]
        else:
            left, right, gap = max(i for i in lower if i <= at_upper), at_upper, gaps[at_upper - low]
        if gap <= departure:
            break
        # Beyond the modal interval the convex and concave parts are fixed; its own ends may be atoms at the mode.
        below_mode, above_mode = inside < left, inside > right
        convex = (after[inside] - minorant)[below_mode]
        concave = (majorant - before[inside])[above_mode]
        departure = max(departure, convex.max(initial=0.0), concave.max(initial=0.0))
        if (left, right) == (low, high):
            break
        low, high = left, right
    return departure


def _hull(x: Floats, heights: Floats, low: int, high: int, sign: float) -> Indices:
    """Indices of the lower (``sign`` 1) or upper (−1) convex hull of the points ``low … high``."""
    hull: Indices = []
    for k in range(low, high + 1):
        while len(hull) > 1:
            i, j = hull[-2], hull[-1]
            turn = (heights[j] - heights[i]) * (x[k] - x[i]) - (heights[k] - heights[i]) * (x[j] - x[i])
            if sign * turn < 0.0:
                break
            hull.pop()
        hull.append(k)
    return hull
