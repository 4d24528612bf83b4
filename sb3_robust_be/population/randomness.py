"""Uniform random numbers for every member, from a generator of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Numbers are drawn for so many steps at once: a generator per member costs more than what it draws.
BLOCK = 64


class Uniforms:
    """
    ``width`` uniform numbers per member and step, a function of the member's seed and of the step alone.

    No member's numbers depend on the others, and there is no state to save: block k of the member with seed s comes
    from ``default_rng([s, k])``. Members of equal seeds see equal numbers, whatever else sets them apart.

    :param seeds: One per member, not negative.
    :param width: Numbers per step.
    """

    def __init__(self, seeds: Sequence[int], width: int) -> None:
        self._distinct, member = np.unique(np.asarray(seeds), return_inverse=True)
        # A slice is a view, where an array of indices copies.
        in_order = np.array_equal(member, np.arange(len(self._distinct)))
        self._member: slice | np.ndarray = slice(None) if in_order else member
        self._width = width
        self._block = -1
        self._numbers = np.empty((0, 0, 0))

    def at(self, step: int) -> np.ndarray:
        """Draw the numbers of one step.

        :param step: From 0 on.
        :return: Numbers in [0, 1), shape (members, width), which are not to be changed.
        """
        block, row = divmod(step, BLOCK)
        if block != self._block:
            drawn = [np.random.default_rng([int(s), block]).random((BLOCK, self._width)) for s in self._distinct]
            self._block, self._numbers = block, np.stack(drawn, axis=1)
            self._numbers.flags.writeable = False
        return self._numbers[row, self._member]
