"""Publish what a report reads of an experiment's runs, once it is certain that the same report comes of it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sb3_robust_be.experiments.experiment import Experiment
from sb3_robust_be.experiments.published import REBUILT, PublishedResults, to_json, write
from sb3_robust_be.experiments.recording import RecordingResults
from sb3_robust_be.experiments.reporting import Made, make_report
from sb3_robust_be.experiments.specs import dumps, loads
from sb3_robust_be.report import Plot, Report
from sb3_robust_be.report.plot import Row
from sb3_robust_be.report.tables import evidence

DIGITS: tuple[int | None, ...] = (4, 6, 9, None)
"""Significant digits of arrays, as few as give the same verdicts, tables and figures"""
# Of what a figure shows: a hundredth of a number, or a thousandth of the largest of its kind, are not seen.
_RELATIVE, _OF_LARGEST = 0.01, 0.001


def publish(experiment: Experiment, scale: str, out: Path, folder: Path, made: Made, date: str | None = None) -> Path:
    """Write what the report reads of the runs, and no more.

    :param experiment: All of whose runs have ended.
    :param scale: Of its presets.
    :param out: The folder of its runs.
    :param folder: Of published files.
    :param made: How the runs were made.
    :param date: ``YYYY-MM-DD``; ``None``: today's.
    :return: The file.
    :raises ValueError: If the report cannot be made from it.
    """
    results = RecordingResults(out)
    wanted = make_report(experiment, scale, results, made)
    date = date or datetime.date.today().isoformat()
    for digits in DIGITS:
        content = to_json(wanted, scale, results, made, date, digits)
        # As it comes back from the file.
        rebuilt = PublishedResults(loads(dumps(content, "published")))
        found = make_report(experiment, scale, rebuilt, rebuilt.made)
        if shown(found) == shown(wanted) and same_figures(found, wanted):
            return write(content, folder)
    raise ValueError(
        f"The report of {experiment.name} differs each time it is made from the same runs; seed its random numbers."
    )


def shown(report: Report) -> list[Any]:
    """All that a report says in words and tables, as it is printed; but for how its runs were made."""
    verdicts = [str(verdict) for verdict in report.verdicts]
    tables = [[table.name, table.caption, table.header(), table.cells()] for table in report.tables]
    notes = [note for note in report.notes if not note.startswith(REBUILT)]
    words = [plot.alt for plot in report.plots]
    return [verdicts, evidence(report.verdicts), tables, list(report.failures), notes, words]


def same_figures(report: Report, other: Report) -> bool:
    """Whether the figures look the same: the same marks and words, and numbers that differ by less than can be seen."""
    return len(report.plots) == len(other.plots) and all(map(_look_the_same, report.plots, other.plots))


def _look_the_same(one: Plot, other: Plot) -> bool:
    if (one.name, one.caption, _marks(one.data)) != (other.name, other.caption, _marks(other.data)):
        return False
    columns, others = _columns(one.data), _columns(other.data)
    return columns.keys() == others.keys() and all(_close(columns[key], others[key]) for key in columns)


def _is_float(value: Any) -> bool:
    return isinstance(value, (float, np.floating))


def _marks(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [{key: None if _is_float(value) else value for key, value in row.items()} for row in rows]


def _columns(rows: Sequence[Row]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        for key, value in row.items():
            if _is_float(value):
                found.setdefault(key, []).append(float(value))
    return found


def _close(x: Sequence[float], y: Sequence[float]) -> bool:
    finite = [abs(value) for value in y if np.isfinite(value)]
    return len(x) == len(y) and np.allclose(
        x, y, rtol=_RELATIVE, atol=_OF_LARGEST * max(finite, default=0.0), equal_nan=True
    )
