"""Value errors of objectives' minimisers over draws of the features: columns, figures and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be import report
from sb3_robust_be.evaluation.paired_errors import geometric_mean
from sb3_robust_be.experiments.linear.prediction_problems import Case
from sb3_robust_be.experiments.rows import Rows

METRICS = {"msve": "MSVE", "mave": "MAVE"}


#: By case, metric and objective: the errors relative to the least, shape (draws,).
Relative = Mapping[str, Mapping[str, Mapping[str, NDArray[np.float64]]]]


@dataclass(frozen=True)
class DrawsPreset:
    """The size of a comparison of fixed points."""

    draws: int
    """Random feature matrices per problem that has them"""

    def __post_init__(self) -> None:
        if self.draws < 2:
            raise ValueError(f"draws is {self.draws}; give at least 2, as one draw says nothing of others.")


#: By case, objective's label and column: what the draws have, in their order.
Columns = Mapping[str, Mapping[str, Mapping[str, NDArray[np.float64]]]]


def columns_of(rows: Rows) -> Columns:
    """
    :param rows: Of runs of :func:`~sb3_robust_be.experiments.linear.exact_runs.solve_spec`.
    :return: What the runs that are done have found.
    """
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in sorted((row for row in rows if "failed" not in row), key=lambda row: int(row["seed"])):
        found.setdefault(row["domain"], {}).setdefault(row["contender"], []).append(row)
    names = (*(f"{metric}_relative" for metric in METRICS), "unique", "largest_error")
    return {
        case: {label: {name: np.array([row[name] for row in own]) for name in names} for label, own in of.items()}
        for case, of in found.items()
    }


def relative_errors(columns: Columns, cases: Sequence[Case]) -> dict[str, dict[str, dict[str, Any]]]:
    """:data:`Relative`, of the runs that are done.

    :param columns: Of :func:`columns_of`.
    :param cases: In the order of figures and tables.
    """
    return {
        case.label: {
            metric: {label: own[f"{metric}_relative"] for label, own in columns[case.label].items()}
            for metric in METRICS
        }
        for case in cases
        if case.label in columns
    }


def error_bars(name: str, relative: Relative, caption: str) -> report.Plot:
    """Bars of the geometric means over draws.

    :param name: Of the figure.
    :param relative: By case, metric and objective.
    """
    panels = {
        title: {case: {label: geometric_mean(x) for label, x in own[metric].items()} for case, own in relative.items()}
        for metric, title in METRICS.items()
    }
    return report.bars(name, panels, measure="error ÷ least representable", log=True, caption=caption)


def error_table(name: str, relative: Relative, columns: Columns) -> report.Table:
    """Geometric means with intervals, and how many of the minimisers are unique.

    :param name: Of the table.
    :param relative: By case, metric and objective.
    :param columns: Of :func:`columns_of`.
    """
    rows = []
    for case, own in relative.items():
        for label in own["msve"]:
            draws = columns[case][label]
            row: dict[str, Any] = {"problem": case, "objective": report.label(label)}
            row |= {title: geometric_mean(own[metric][label]) for metric, title in METRICS.items()}
            row |= {"draws": len(draws["unique"]), "unique": int(draws["unique"].sum())}
            row["largest |δ|"] = float(np.median(draws["largest_error"]))
            rows.append(row)
    caption = "Errors relative to the least representable: geometric mean over draws, 95 % interval; median |δ|."
    return report.Table(name, rows, caption=caption)
