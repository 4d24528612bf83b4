"""The speed of populations against the number of their members, as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sb3_robust_be.report.curves import lines

MEMBERS = (1, 3, 10, 30, 100, 300, 1000)
"""How many members the curve is drawn for"""


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """
    :param rows: Of :func:`~sb3_robust_be.benchmark.population_benchmark.measure`.
    :param path: Where to write the figure, which ends on ``.svg`` or ``.png``.
    """
    members = sorted({row["members"] for row in rows})
    curves: dict[str, dict[int, float]] = {}
    for row in rows:
        name = f"{row['network']}, {'compiled' if row['compiled'] else 'eager'}"
        curves.setdefault(name, {})[row["members"]] = row["agent_steps_per_s"]
    found = {name: [own.get(n, float("nan")) for n in members] for name, own in curves.items()}
    plot = lines(
        "members",
        {rows[0]["env"]: found},
        members,
        x_label="members of the population",
        measure="agent-steps per second",
        minima=False,
        log=True,
    )
    (axis,) = plot.figure.axes
    if len(members) > 1:
        axis.set_xscale("log")
    axis.set_xticks(members, [str(n) for n in members])
    axis.minorticks_off()
    for line in axis.lines:
        line.set_marker("o")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(plot.svg() if path.suffix == ".svg" else plot.png())
