"""Performance distributions over seeds: half-violins, every run, means with intervals, distribution functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sb3_robust_be.evaluation import Interval
from sb3_robust_be.report.panels import Floats, checked_panels, mean_interval, names, on_ticks, padded, runs, wrapped
from sb3_robust_be.report.plot import Plot
from sb3_robust_be.report.rain import LEGEND_COLUMNS, ROW, ecdf, failures, rain
from sb3_robust_be.report.style import Look, looks, new_figure, settings
from sb3_robust_be.report.tables import interval as interval_text


def distributions(
    name: str,
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    measure: str,
    rng: np.random.Generator,
    caption: str = "",
    higher_is_better: bool = True,
    level: float = 0.95,
) -> Plot:
    """How the runs of each algorithm are distributed (the paper's figures of control), one row per panel.

    Left: a half-violin (Gaussian kernels, see :func:`~sb3_robust_be.report.rain.density`, cut at the extreme runs; a
    line where all runs agree), every run as a dot, and the mean with its interval. Runs that are not
    finite have failed: they are crosses at the bad end, counted, and not part of the violin; where there are any no
    mean is drawn, since that of the others would reward an algorithm for failing. Right: the share
    of *all* seeds at or below a value, a failed one being worse than every other; with up to three algorithms, of ten
    or more runs, a simultaneous band (:func:`~sb3_robust_be.evaluation.ecdf_band`).

    :param name: Of the files.
    :param panels: Shape (runs,) by panel, such as a domain, and algorithm; NaN or infinite for a failed run.
    :param measure: The label of the values' axis, with their unit.
    :param rng: For the bootstrap.
    :param caption: Put in front of how to read the figure.
    :param higher_is_better: At which end failed runs stand.
    :return: Rows ``panel, algorithm, kind, run, value, low, high``: one of kind ``"run"`` per run, and one
        ``"mean"`` where no run failed.
    """
    checked = checked_panels(panels, runs)
    look = looks(names(checked))
    rows: list[dict[str, Any]] = []
    some_failed = any(not np.isfinite(values).all() for entries in checked.values() for values in entries.values())
    with settings():
        # Above the panels there is room for the legend of the distribution functions.
        heights = [
            max(1.9, ROW * len(entries) + 0.75) + 0.17 * math.ceil(len(entries) / LEGEND_COLUMNS)
            for entries in checked.values()
        ]
        figure = new_figure(sum(heights))
        widths = [0.8, 4.4, 3.0] if higher_is_better else [4.4, 0.8, 3.0]
        grid = figure.add_gridspec(len(checked), 3, height_ratios=heights, width_ratios=widths)
        for i, (title, entries) in enumerate(checked.items()):
            columns = (1, 0) if higher_is_better else (0, 1)
            # Without a failed run the scores take the room of the crosses.
            cells = grid[i, columns[0]] if some_failed else grid[i, :2]
            axis = figure.add_subplot(cells)
            intervals = {
                key: mean_interval(values, rng, level) if np.isfinite(values).all() else None
                for key, values in entries.items()
            }
            shown = [value for values in entries.values() for value in values.tolist()]
            shown += [end for own in intervals.values() if own for end in (own.low, own.high)]
            limits = on_ticks(*padded(shown, share=0.0))
            rain(axis, entries, intervals, look, limits)
            axis.set_xlabel(wrapped(measure, 3.4))
            first = axis
            if some_failed:
                strip = figure.add_subplot(grid[i, columns[1]], sharey=axis)
                failures(strip, entries, look)
                first = strip if higher_is_better else axis
                (axis if higher_is_better else strip).tick_params(labelleft=False)
            first.set_yticks(range(len(entries)), [wrapped(look[key].label, 1.7) for key in entries])
            first.set_title(wrapped(title, 5.0, 10.0), loc="left")
            right = figure.add_subplot(grid[i, 2], sharex=axis)
            right.set_xlabel(wrapped(measure, 2.6))
            ecdf(right, entries, look, limits, higher_is_better, level)
            rows += _rows(title, entries, intervals)
    return Plot(name, figure, rows, _caption(caption, level, some_failed), _alt(measure, rows, look))


def _rows(title: str, entries: Mapping[str, Floats], intervals: Mapping[str, Interval | None]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for key, values in entries.items():
        common = {"panel": title, "algorithm": key}
        rows += [{**common, "kind": "run", "run": i, "value": float(value)} for i, value in enumerate(values)]
        mean = intervals[key]
        if mean is not None:
            ends = {"low": mean.low, "high": mean.high}
            rows.append({**common, "kind": "mean", "run": "", "value": mean.estimate, **ends})
    return rows


def _caption(caption: str, level: float, some_failed: bool) -> str:
    text = (
        "Half-violins and dots: the runs; diamond and bar: their mean with its "
        f"{100 * level:g} % interval; right: the share of seeds at or below a value."
    )
    if some_failed:
        text += (
            " Crosses: failed runs, left out of violins, and worse than all others on the right; no mean where any "
            "failed."
        )
    return f"{caption} {text}".strip()


def _alt(measure: str, rows: list[dict[str, Any]], look: Mapping[str, Look]) -> str:
    means = [
        f"{row['panel']}: {look[row['algorithm']].label} "
        + interval_text(Interval(row["value"], row["low"], row["high"], 0.95, ""))
        for row in rows
        if row["kind"] == "mean"
    ]
    return f"Distributions of {measure} over runs. Means with intervals: {'; '.join(means) or 'none'}."
