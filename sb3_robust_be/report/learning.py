"""Learning curves: means over runs with bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sb3_robust_be.evaluation import Band, mean_curve
from sb3_robust_be.evaluation.means import MANY
from sb3_robust_be.report.panels import (
    Floats,
    axes_grid,
    checked_panels,
    legend,
    linear_ticks,
    names,
    on_ticks,
    padded,
    step_ticks,
)
from sb3_robust_be.report.plot import Plot
from sb3_robust_be.report.style import Look, looks, settings
from sb3_robust_be.report.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST_LINES = 30
"""Runs of a panel that are drawn as lines of their own"""
BAND_RESAMPLES = 2_000
"""Of a band, whose edges then lie within some hundredths of its width of what many more would give"""


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
    n_resamples: int = BAND_RESAMPLES,
) -> Plot:
    """Mean learning curves with pointwise intervals over runs, one panel per domain.

    The intervals are those of :func:`~sb3_robust_be.evaluation.mean_curve`, which cover for few runs as well.

    Runs without any value have failed and are left out. The mean is drawn at the points where each of the others has a
    value, and nowhere else: a mean over those that happen to have one moves when the runs change and not what they do,
    and would end in the average of a few.

    :param name: Of the files.
    :param panels: Shape (runs, points) by panel and algorithm; not finite where a run has no value.
    :param steps: Where the points are, shape (points,), or that for each panel.
    :param measure: The label of the values' axis, with their unit.
    :param rng: For the bootstrap.
    :param show_runs: Also show the runs, wherever they have a value: each as a thin line, or, where a panel has more
        than :data:`MOST_LINES`, the band between the tenth and the ninetieth percentile of each algorithm.
    :param level: Of the intervals.
    :param n_resamples: Of the bootstrap.
    :return: Rows ``panel, algorithm, step, mean, low, high, runs``, the last being how many have a value there; the
        mean is NaN where some of those that are not left out have none, and ``low`` and ``high`` are where few runs
        are all equal, which says nothing of their spread.
    """
    checked = checked_panels(panels, _curves)
    look = looks(names(checked))
    rows: list[dict[str, Any]] = []
    cut_off = False
    with settings():
        figure, axes = axes_grid(list(checked), 2.6, measure)
        for axis, (title, entries) in zip(axes, checked.items(), strict=True):
            at = _points(title, steps)
            bands = []
            for key, curves in entries.items():
                if curves.shape[1] != len(at):
                    raise ValueError(
                        f"panels[{title!r}][{key!r}] has {curves.shape[1]} points for {len(at)} steps; give as many."
                    )
                left = curves[_has_values(curves)]
                # Without any run, those that have failed give a band of NaN.
                band = mean_curve(left if len(left) else curves, rng=rng, level=level, n_resamples=n_resamples)
                if show_runs and sum(map(len, entries.values())) <= MOST_LINES:
                    axis.plot(at, curves.T, color=look[key].colour, linewidth=0.5, alpha=0.3, label=f"_runs:{key}")
                elif show_runs:
                    _spread(axis, at, curves, look[key], key)
                _draw(axis, at, band, left, look[key], key)
                bands.append(band)
                rows += _rows(title, key, at, band, np.isfinite(curves).sum(axis=0))
            across = on_ticks(*padded([0.0, *at], 0.0))
            up = on_ticks(*padded(axis.dataLim.intervaly, 0.0))
            cut_off |= any((band.low < up[0]).any() or (band.high > up[1]).any() for band in bands)
            axis.set(xlabel=x_label, xlim=across, ylim=up)
            step_ticks(axis.xaxis, *across)
            linear_ticks(axis.yaxis, *up)
        legend(figure, look.values(), marker=False)
    text = _caption(checked, look, level, show_runs, cut_off)
    return Plot(name, figure, rows, f"{caption} {text}".strip(), _alt(measure, rows, look))


def _spread(axis: Axes, at: Floats, curves: Floats, look: Look, key: str) -> None:
    """The middle four fifths of the runs at each point where any has a value."""
    known = np.isfinite(curves).any(axis=0)
    if known.any():
        low, high = np.nanquantile(curves[:, known], (0.1, 0.9), axis=0)
        axis.fill_between(at[known], low, high, color=look.colour, alpha=0.12, linewidth=0.0, label=f"_spread:{key}")


def _has_values(curves: Floats) -> np.ndarray:
    """Which runs have not failed, shape (runs,)."""
    return np.asarray(np.isfinite(curves).any(axis=1))


def _draw(axis: Axes, at: Floats, band: Band, runs: Floats, look: Look, key: str) -> None:
    """The mean with its band, from one point that has it to the next."""
    known = np.isfinite(band.estimate)
    reached = axis.dataLim.frozen()
    axis.fill_between(at[known], band.low[known], band.high[known], color=look.colour, alpha=0.2, linewidth=0.0)
    # The band of two or three runs may be many times as wide as they are apart: what they did has to be seen beside it.
    axis.dataLim.set(reached)
    if known.any():
        inside = np.clip((band.low[known], band.high[known]), runs[:, known].min(axis=0), runs[:, known].max(axis=0))
        axis.update_datalim(np.column_stack((np.tile(at[known], 2), inside.ravel())))
    axis.plot(at[known], band.estimate[known], color=look.colour, linestyle=look.line, label=f"_mean:{key}")


def _alt(measure: str, rows: Sequence[Mapping[str, Any]], look: Mapping[str, Look]) -> str:
    last = {(row["panel"], row["algorithm"]): row["mean"] for row in rows if np.isfinite(row["mean"])}
    keys = dict.fromkeys((row["panel"], row["algorithm"]) for row in rows)
    ends = [f"{panel}: {look[key].label} {number(last.get((panel, key), np.nan))}" for panel, key in keys]
    return f"Learning curves of {measure}. At the end: {'; '.join(ends)}."


def _rows(title: str, key: str, at: Floats, band: Band, present: np.ndarray) -> list[dict[str, Any]]:
    columns = map(np.ndarray.tolist, (at, band.estimate, band.low, band.high, present))
    return [
        {"panel": title, "algorithm": key, "step": step, "mean": mean, "low": low, "high": high, "runs": runs}
        for step, mean, low, high, runs in zip(*columns, strict=True)
    ]


def _caption(
    checked: Mapping[str, Mapping[str, Floats]],
    look: Mapping[str, Look],
    level: float,
    show_runs: bool,
    cut_off: bool,
) -> str:
    text = f"Lines: means over runs; bands: pointwise {100 * level:g} % intervals, {_method(checked)}."
    if cut_off:
        text += " Bands that a panel cuts off are wider than the runs are apart."
    if show_runs:
        text += " " + _of_runs(checked)
    every = [(title, key, curves) for title, entries in checked.items() for key, curves in entries.items()]
    if any(not np.isfinite(curves[_has_values(curves)]).all() for _, _, curves in every):
        text += " A line is drawn where every run has a value."
    left_out = [
        f"{count} of {len(curves)} of {look[key].label} ({title})"
        for title, key, curves in every
        if (count := int((~_has_values(curves)).sum()))
    ]
    if left_out:
        text += f" Left out, as they have no value at all: {', '.join(left_out)} runs."
    return text


def _method(checked: Mapping[str, Mapping[str, Floats]]) -> str:
    """How the intervals were made, which depends on the number of runs that are not left out."""
    runs = [int(_has_values(curves).sum()) for entries in checked.values() for curves in entries.values()]
    few, many = "by Student's t corrected for skewness", "by a percentile bootstrap"
    there = {n >= MANY for n in runs if n}
    if there == {True, False}:
        return f"for fewer than {MANY} runs {few}, else {many}"
    return many if there == {True} else few


def _of_runs(checked: Mapping[str, Mapping[str, Floats]]) -> str:
    many = [sum(map(len, entries.values())) > MOST_LINES for entries in checked.values()]
    bands = "pale bands: the middle 80 % of the runs"
    if all(many):
        return f"{bands.capitalize()}."
    return f"Thin lines: the runs; where they are many, {bands}." if any(many) else "Thin lines: the runs."


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
