"""How a comparison shows tables and step sizes on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sb3_robust_be.experiments.control.contenders import Rate
from sb3_robust_be.experiments.control.training import LINEAR


def in_columns(rows: Iterable[Sequence[Any]], left: int) -> str:
    """
    :param rows: Of one length, the header first.
    :param left: How many columns begin at the left; the others end at the right.
    :return: Text for a terminal.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def rate_text(rate: Rate | None) -> str:
    """
    :param rate: A step size; ``None``: not known.
    :return: It as people write it.
    """
    if rate is None:
        return "–"
    return " → ".join(f"{x:.3g}" for x in rate[LINEAR]) if isinstance(rate, Mapping) else f"{rate:.4g}"
