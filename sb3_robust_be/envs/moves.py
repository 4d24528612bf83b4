"""The four moves that Cliff World and Puddle World have in common."""

from __future__ import annotations

import operator
from typing import SupportsIndex

DIRECTIONS: tuple[str, ...] = ("up", "right", "down", "left")
"""In the order of the actions"""


def move_index(action: SupportsIndex) -> int:
    """Check an action.

    :param action: An integer of any library.
    :return: Its position in :data:`DIRECTIONS`.
    :raises ValueError: If it is not one of the four.
    """
    index = operator.index(action)
    if not 0 <= index < len(DIRECTIONS):
        choices = [f"{i} ({direction})" for i, direction in enumerate(DIRECTIONS)]
        raise ValueError(f"action={action!r} is invalid: choose {', '.join(choices[:-1])} or {choices[-1]}")
    return index
