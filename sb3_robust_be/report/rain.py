"""The panels of a figure of distributions: half-violins with runs as rain, failed runs, distribution functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from sb3_robust_be.evaluation import Interval, ecdf_band
from sb3_robust_be.report.panels import Floats, linear_ticks, stacked, wrapped
from sb3_robust_be.report.style import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Inches per algorithm.
ROW = 0.42
LEGEND_COLUMNS = 2
_DOT = 3.4  # points
_SCORE_WIDTH = 4.6  # inches, about
_CROSSES_PER_LINE = 10
#: The bands of more algorithms would hide each other, those of fewer runs everything.
_MAX_BANDS, _LEAST_RUNS = 3, 10
_MOST_RUNS = 500
_VIOLIN_POINTS = 100


def rain(
    axis: Axes,
    entries: Mapping[str, Floats],
    intervals: Mapping[str, Interval | None],
    look: Mapping[str, Look],
    limits: tuple[float, float],
) -> None:
    """Draw per algorithm, from above: the half-violin, the mean with its interval, and every run as a dot."""
    linear_ticks(axis.xaxis, *limits)
    axis.set(xlim=limits, ylim=(len(entries) - 0.5, -0.5))
    axis.tick_params(left=False)
    axis.grid(False, axis="y")
    dot_width = _DOT / (72.0 * _SCORE_WIDTH) * (limits[1] - limits[0])
    step = _DOT / (72.0 * ROW)
    for row, (key, values) in enumerate(entries.items()):
        finite, colour = values[np.isfinite(values)], look[key].colour
        if finite.size == 0:
            continue
        _violin(axis, finite, row - 0.1, look[key])
        offsets = stacked(finite, dot_width, 0.27, step)
        axis.plot(
            finite,
            row + 0.15 + offsets,
            linestyle="none",
            marker="o",
            markersize=_DOT,
            color=colour,
            markeredgecolor="white",
            markeredgewidth=0.3,
            clip_on=False,
            label=f"_runs:{key}",
        )
        mean = intervals[key]
        if mean is None:
            continue
        axis.plot([mean.low, mean.high], [row, row], color="#222222", linewidth=2.2, solid_capstyle="butt", zorder=3)
        axis.plot(
            [mean.estimate],
            [row],
            marker="d",
            markersize=6,
            color="white",
            markeredgecolor="#222222",
            markeredgewidth=1.2,
            zorder=4,
            label=f"_mean:{key}",
        )


def _violin(axis: Axes, finite: Floats, base: float, look: Look) -> None:
    low, high = finite.min(), finite.max()
    height = 0.36
    if finite.size < 2:
        return
    if not np.std(finite) > 1e-9 * np.abs(finite).max():
        axis.plot([low, low], [base, base - height], color=look.colour, label="_violin:line")
        return
    at = np.linspace(low, high, _VIOLIN_POINTS)
    height_at = density(finite, at)
    top = base - height * height_at / height_at.max()
    outline = np.concatenate(([low], at, [high])), np.concatenate(([base], top, [base]))
    axis.fill(*outline, color=look.colour, alpha=0.35, linewidth=0.0)
    axis.plot(at, top, color=look.colour, linewidth=1.2, linestyle=look.line, label="_violin:half")


def density(values: Floats, at: Floats) -> Floats:
    """Gaussian kernel estimate with the bandwidth that best predicts each run from the others.

    Likelihood cross-validation (Silverman, 1986, section 3.4.4) from a third of Scott's bandwidth up to it. Scott's own
    is made for one mode: on a sample with two it is so wide that the gap between them disappears.

    :param values: Shape (runs,), not all equal.
    :param at: Where, shape (points,).
    """
    ordered = np.sort(values)
    # Quantiles stand for more runs than the distances between all of them have room for.
    if len(ordered) > _MOST_RUNS:
        ordered = np.quantile(ordered, np.linspace(0.0, 1.0, _MOST_RUNS))
    spread, runs = ordered.std(ddof=1), len(ordered)
    squares = np.square((ordered[:, None] - ordered) / spread)
    np.fill_diagonal(squares, np.inf)  # a run does not predict itself
    scott = runs**-0.2
    factors = scott * np.geomspace(1.0 / 3.0, 1.0, 20)
    with np.errstate(divide="ignore"):
        scores = [np.log(np.exp(-0.5 * squares / f**2).mean(axis=1) / f).mean() for f in factors]
    best = factors[int(np.argmax(scores))] if np.isfinite(max(scores)) else scott
    return scipy.stats.gaussian_kde(values, bw_method=best)(at)


def failures(axis: Axes, entries: Mapping[str, Floats], look: Mapping[str, Look]) -> None:
    """A cross per failed run, and how many there are of how many."""
    axis.set(xlim=(-0.02, 1.02), xticks=[], xlabel="failed")
    axis.tick_params(left=False)
    axis.grid(False)
    axis.set_facecolor("#f4f4f4")
    axis.spines[:].set_visible(False)
    for row, (key, values) in enumerate(entries.items()):
        count = int((~np.isfinite(values)).sum())
        if count == 0:
            continue
        line, place = np.divmod(np.arange(count), _CROSSES_PER_LINE)
        lines = math.ceil(count / _CROSSES_PER_LINE)
        axis.plot(
            # A line that is not full is centred.
            (place + 0.5) / _CROSSES_PER_LINE
            + 0.5 * (1.0 - np.minimum(1.0, (count - _CROSSES_PER_LINE * line) / _CROSSES_PER_LINE)),
            row + 0.1 + line * min(0.13, 0.32 / max(1, lines - 1)),
            linestyle="none",
            marker="x",
            markersize=4 if lines < 4 else 2.8,
            markeredgewidth=1.1 if lines < 4 else 0.9,
            color=look[key].colour,
            label=f"_failed:{key}",
        )
        axis.text(0.5, row - 0.1, f"{count} of {len(values)}", ha="center", va="center", fontsize=8)


def ecdf(
    axis: Axes,
    entries: Mapping[str, Floats],
    look: Mapping[str, Look],
    limits: tuple[float, float],
    higher_is_better: bool,
    level: float,
) -> None:
    """The share of all seeds at or below each value, with a band where it is of use, and a legend above."""
    from matplotlib.lines import Line2D

    axis.set(xlim=limits, ylim=(0.0, 1.0), ylabel=wrapped("share of seeds at or below", ROW * len(entries)))
    parts: list[dict[str, Any]] = [{"color": look[key].colour, "linestyle": look[key].line} for key in entries]
    handles = [Line2D([], [], **part) for part in parts]
    axis.legend(
        handles,
        [look[key].label for key in entries],
        # Long labels grow to the left, where there is room above the other panel.
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=LEGEND_COLUMNS,
        fontsize=7.5,
        handlelength=1.8,
        columnspacing=1.0,
        labelspacing=0.25,
    )
    worst = -math.inf if higher_is_better else math.inf
    for key, values in entries.items():
        ranked = np.where(np.isfinite(values), values, worst)
        at = np.concatenate(([limits[0]], np.unique(ranked[np.isfinite(ranked)]), [limits[1]]))
        band = ecdf_band(ranked, at, level)
        axis.step(
            at,
            band.estimate,
            where="post",
            color=look[key].colour,
            linestyle=look[key].line,
            label=f"_ecdf:{key}",
            clip_on=False,  # the ends of the axis cut a line in half
        )
        if len(entries) <= _MAX_BANDS and len(values) >= _LEAST_RUNS:
            axis.fill_between(at, band.low, band.high, step="post", color=look[key].colour, alpha=0.12, linewidth=0.0)
