"""Rows from a rule instead of runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sb3_robust_be.experiments.experiment import Plan, Run, without_rows
from sb3_robust_be.experiments.rows import Row


def made_rows(plan: Plan, preset: Any, rule: Callable[[Run], Row | None]) -> list[Row]:
    """The rows of all runs of a plan, stage after stage.

    :param plan: Of an experiment.
    :param preset: Its size.
    :param rule: From a run to what is measured of it; ``None`` for one that fails.
    """
    rows: list[Row] = []
    while missing := without_rows(plan(preset, rows), rows):
        rows += [{**run.names, **(rule(run) or {"failed": "no luck"})} for run in missing]
    return rows
