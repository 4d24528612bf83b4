"""Guesses from an image's shape which axis holds the channels."""

from __future__ import annotations

from typing import NamedTuple

# The smallest image that NatureCNN's three convolutions leave anything of.
NATURE_CNN_MIN_SIDE = 36
# Grey, colour, colour and depth: so few can only be channels.
MOST_USUAL_CHANNELS = 4


class Reading(NamedTuple):
    """Which axis of an image's shape holds the channels."""

    channels_last: bool
    certain: bool
    """Whether no other reading is sensible"""


def read_shape(shape: tuple[int, ...]) -> Reading:
    """
    Two equal neighbours are height and width. Otherwise, as for Stable-Baselines3, the channels are the smallest side,
    the last one where that is in the middle; a cube has them last, as MinAtar's Seaquest.

    :param shape: Of an image, three sides.
    :return: Where its channels are; certain for two equal neighbours and for up to four channels at one end.
    """
    first, middle, last = shape
    if (first == middle) != (middle == last):
        return Reading(first == middle, True)
    if first == last:
        return Reading(True, False)
    smallest = min(shape)
    return Reading(first != smallest, smallest <= MOST_USUAL_CHANNELS and middle != smallest)


def is_small(shape: tuple[int, ...], channels_last: bool | None = None) -> bool:
    """
    :param shape: Of an image, three sides.
    :param channels_last: Where its channels are; ``None``: as :func:`read_shape`.
    :return: Whether it is too small for ``NatureCNN``.
    """
    last = read_shape(shape).channels_last if channels_last is None else channels_last
    return min(shape[:2] if last else shape[1:]) < NATURE_CNN_MIN_SIDE
