"""Learning curves: means over runs with bands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sb3_robust_be.evaluation import Band, mean_band
from sb3_robust_be.report.panels import Floats, axes_grid, checked_panels, legend, names, step_ticks
from sb3_robust_be.report.plot import Plot
from sb3_robust_be.report.style import Look, looks, settings
from sb3_robust_be.report.tables import number


def learning_curves(
    name: str,
    panels: Mapping[str, Mapping[str, ArrayLike]],
    steps: ArrayLike | Mapping[str, ArrayLike],
    *,
    measure: str,
    rng: np.random.Generator,
    x_label: str = "environment steps",
    caption: str = "",
    show_runs: bool = False,
    level: float = 0.95,
) -> Plot:
    """Mean learning curves with pointwise percentile bootstrap intervals over runs, one panel per domain.

    :param name: Of the files.
    :param panels: Shape (runs, points) by panel and algorithm; not finite where a run has no value, which is left out.
    :param steps: Where the points are, shape (points,), or that for each panel.
    :param measure: The label of the values' axis, with their unit.
    :param rng: For the bootstrap.
    :param show_runs: Also draw every run, thinly.
    :return: Rows ``panel, algorithm, step, mean, low, high, runs``, the last being how many have a value there.
    """
    checked = checked_panels(panels, _curves)
    look = looks(names(checked))
    rows: list[dict[str, Any]] = []
    with settings():
        figure, axes = axes_grid(list(checked), 2.6, measure)
        for axis, (title, entries) in zip(axes, checked.items(), strict=True):
            at = _points(title, steps)
            for key, curves in entries.items():
                if curves.shape[1] != len(at):
                    raise ValueError(
                        f"panels[{title!r}][{key!r}] has {curves.shape[1]} points for {len(at)} steps; give as many."
                    )
                band = mean_band(curves, rng=rng, level=level)
                if show_runs:
                    axis.plot(at, curves.T, color=look[key].colour, linewidth=0.5, alpha=0.3, label=f"_runs:{key}")
                axis.fill_between(at, band.low, band.high, color=look[key].colour, alpha=0.2, linewidth=0.0)
                axis.plot(at, band.estimate, color=look[key].colour, linestyle=look[key].line, label=f"_mean:{key}")
                rows += _rows(title, key, at, band, np.isfinite(curves).sum(axis=0))
            axis.set(xlabel=x_label, xlim=(min(0.0, at.min()), at.max()))
            step_ticks(axis.xaxis)
        legend(figure, look.values(), marker=False)
    text = _caption(checked, look, level)
    ends = [
        f"{row['panel']}: {look[row['algorithm']].label} {number(row['mean'])}"
        for row, following in zip(rows, [*rows[1:], {}], strict=True)
        if (row["panel"], row["algorithm"]) != (following.get("panel"), following.get("algorithm"))
    ]
    return Plot(
        name, figure, rows, f"{caption} {text}".strip(), f"Learning curves of {measure}. At the end: {'; '.join(ends)}."
    )


def _rows(title: str, key: str, at: Floats, band: Band, present: np.ndarray) -> list[dict[str, Any]]:
    columns = map(np.ndarray.tolist, (at, band.estimate, band.low, band.high, present))
    return [
        {"panel": title, "algorithm": key, "step": step, "mean": mean, "low": low, "high": high, "runs": runs}
        for step, mean, low, high, runs in zip(*columns, strict=True)
    ]


def _caption(checked: Mapping[str, Mapping[str, Floats]], look: Mapping[str, Look], level: float) -> str:
    text = f"Lines: means over runs; bands: pointwise {100 * level:g} % bootstrap intervals."
    if any(not np.isfinite(curves).all() for entries in checked.values() for curves in entries.values()):
        text += " A point averages over the runs that have a value there."
    left_out = [
        f"{count} of {len(curves)} of {look[key].label} ({title})"
        for title, entries in checked.items()
        for key, curves in entries.items()
        if (count := int(np.isnan(curves).all(axis=1).sum()))
    ]
    if left_out:
        text += f" Left out, as they have no value at all: {', '.join(left_out)} runs."
    return text


def _curves(where: str, values: ArrayLike) -> Floats:
    array = np.array(values, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{where} has shape {array.shape}; give one curve per run, shape (runs, points).")
    array[~np.isfinite(array)] = np.nan
    return array


def _points(title: str, steps: ArrayLike | Mapping[str, ArrayLike]) -> Floats:
    if isinstance(steps, Mapping):
        if title not in steps:
            raise ValueError(f"steps has no entry for {title!r}; give one per panel.")
        steps = steps[title]
    return np.asarray(steps, dtype=np.float64)
