"""The speed of populations against the number of their members, as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sb3_robust_be.benchmark.log_curves import draw_curves
from sb3_robust_be.qrc.products import CompileMode

MODES: dict[CompileMode, str] = {False: "eager", True: "compiled", "bfloat16": "bfloat16"}
"""Names of the values of ``compile``"""
MEMBERS = (1, 3, 10, 30, 100, 300, 1000)
"""How many members the curve is drawn for"""


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """
    :param rows: Of :func:`~sb3_robust_be.benchmark.population_benchmark.measure`.
    :param path: Where to write the figure, which ends on ``.svg`` or ``.png``.
    """
    curves: dict[str, dict[int, float]] = {}
    for row in rows:
        name = f"{row['network']}, {MODES[row['compiled']]}"
        curves.setdefault(name, {})[row["members"]] = row["agent_steps_per_s"]
    draw_curves(path, rows[0]["env"], curves, x_label="members of the population", measure="agent-steps per second")
