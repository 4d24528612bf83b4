"""What few runs can show at all: the least p-value of a test that exchanges them."""

from __future__ import annotations

import math
from collections.abc import Iterable


def attainable_p(*seeds: int) -> float:
    """The least two-sided p-value that any exact test can give by exchanging runs.

    ``2/C(n+m, n)`` for two samples (all of one above all of the other), ``2^{1−n}`` for ``n`` pairs (all differences
    of one sign). At 95 % it takes 4 + 4 seeds or 6 pairs; below that a t interval rests on normality alone.

    :param seeds: Runs of each of two samples, or the number of pairs.
    """
    if len(seeds) == 1:
        return min(1.0, 2.0 ** (1 - seeds[0]))
    n, m = seeds
    return attainable_p_within([(n, m)])


def enough_seeds(*seeds: int, level: float = 0.95) -> bool:
    """Whether so many runs can resolve anything: whether :func:`attainable_p` is at most ``1 − level``.

    :param seeds: As there.
    :param level: Of the interval that a test has to agree with.
    """
    return attainable_p(*seeds) <= 1.0 - level


def attainable_p_within(sizes: Iterable[tuple[int, int]]) -> float:
    """:func:`attainable_p` of a test that exchanges two samples' runs within each of several environments.

    ``2/Π C(n+m, n)``, a product over the environments; 0 where that is less than a double can be.

    :param sizes: Runs of each of the two samples, by environment.
    """
    # A thousand runs have more arrangements than a double can count.
    arrangements = sum(math.lgamma(n + m + 1) - math.lgamma(n + 1) - math.lgamma(m + 1) for n, m in sizes)
    return min(1.0, math.exp(math.log(2.0) - arrangements))
