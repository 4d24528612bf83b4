"""Curves of a speed over a size, both on logarithmic axes, as a figure."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from sb3_robust_be.report.curves import lines

ENDINGS = (".svg", ".png")


def figure_path(text: str) -> Path:
    """
    :param text: As a command is given it.
    :return: The path.
    :raises argparse.ArgumentTypeError: If no figure can be written there.
    """
    path = Path(text)
    if path.suffix not in ENDINGS:
        raise argparse.ArgumentTypeError(f"{text} must end on {' or '.join(ENDINGS)}")
    return path


def draw_curves(
    path: Path, panel: str, curves: Mapping[str, Mapping[int, float]], *, x_label: str, measure: str
) -> None:
    """
    :param path: Where to write the figure, as of :func:`figure_path`.
    :param panel: Its title.
    :param curves: The speed at each size, by curve.
    :param x_label: Of the sizes.
    :param measure: Of the speeds.
    """
    sizes = sorted({size for curve in curves.values() for size in curve})
    found = {name: [curve.get(size, float("nan")) for size in sizes] for name, curve in curves.items()}
    plot = lines(path.stem, {panel: found}, sizes, x_label=x_label, measure=measure, minima=False, log=True)
    (axis,) = plot.figure.axes
    if len(sizes) > 1:
        axis.set_xscale("log")
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    for line in axis.lines:
        line.set_marker("o")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(plot.svg() if path.suffix == ".svg" else plot.png())
