"""What each factor of an experiment does, where every combination of their levels has been run on the same seeds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be.evaluation.intervals import Interval, t_interval

Floats = NDArray[np.float64]


def main_effects(factors: Sequence[str], returns: Mapping[tuple[str, ...], Floats]) -> dict[str, Interval]:
    """What each level adds to the return, averaged over all levels of the other factors.

    Each seed gives one difference, of the mean over all combinations with the level and the mean over those with the
    factor's first level; the interval is Student's over the seeds, which are independent.

    :param factors: Their names.
    :param returns: Of a full factorial, by the level of each factor; shape (seeds,), the seeds in the same order.
    :return: By ``"factor: level"``, for every level but the first of each factor.
    """
    found = {}
    for position, factor in enumerate(factors):
        levels = list(dict.fromkeys(cell[position] for cell in returns))
        means = {x: np.mean([own for cell, own in returns.items() if cell[position] == x], axis=0) for x in levels}
        for level in levels[1:]:
            found[f"{factor}: {level}"] = t_interval(means[level] - means[levels[0]])
    return found


def interactions(factors: Sequence[str], returns: Mapping[tuple[str, ...], Floats]) -> dict[str, Interval]:
    """By how much the effect of one level is larger where another is there: differences of two differences.

    :param factors: Their names.
    :param returns: As of :func:`main_effects`.
    :return: By ``"factor: level × factor: level"``, for every pair of levels that are not the first of their factor.
    """
    found = {}
    for (i, one), (j, other) in itertools.combinations(enumerate(factors), 2):
        first, second = (list(dict.fromkeys(cell[k] for cell in returns)) for k in (i, j))
        means = {
            (x, y): np.mean([own for cell, own in returns.items() if (cell[i], cell[j]) == (x, y)], axis=0)
            for x in first
            for y in second
        }
        for x, y in itertools.product(first[1:], second[1:]):
            difference = means[x, y] - means[first[0], y] - means[x, second[0]] + means[first[0], second[0]]
            found[f"{one}: {x} × {other}: {y}"] = t_interval(difference)
    return found
