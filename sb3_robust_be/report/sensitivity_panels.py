"""The panels of a sensitivity figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sb3_robust_be.evaluation import Interval
from sb3_robust_be.report.panels import MAX_VECTOR_DOTS, Floats, linear_ticks, log_ticks, on_ticks, padded, power
from sb3_robust_be.report.style import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
_MOST_LABELS = 8
MOST_DOTS = 30
"""Runs at a setting that are drawn as dots; more are a band"""
SPREAD = (0.1, 0.9)
"""Quantiles of the runs at the edges of a band"""


class Cell(NamedTuple):
    """The runs at one setting: which are drawn as dots, which as crosses, and the mean of the dots."""

    values: Floats
    shown: Any
    mean: Interval | None
    best: bool


Cells = Mapping[str, Mapping[float, Cell]]


def too_many_for_dots(entries: Cells) -> bool:
    """Whether an algorithm of a panel has more runs at a setting than are drawn as dots."""
    return max(len(cell.values) for of in entries.values() for cell in of.values()) > MOST_DOTS


def spread(cell: Cell) -> tuple[float, float]:
    """The edges of the band of a setting; NaN where no run is on the scale."""
    shown = cell.values[cell.shown]
    if not shown.size:
        return math.nan, math.nan
    low, high = np.quantile(shown, SPREAD)
    return float(low), float(high)


def places(values: Sequence[float]) -> dict[float, float]:
    """Positions on a log₂ axis; 0 and ∞ are one step beyond the ends."""
    ordered = sorted(set(values))
    proper = {value: math.log2(value) for value in ordered if 0.0 < value < math.inf}
    at = sorted(proper.values()) or [0.0]
    step = min(np.diff(at), default=1.0)
    beyond = {0.0: at[0] - step, math.inf: at[-1] + step}
    return {value: proper[value] if value in proper else float(beyond[value]) for value in ordered}


def value_labels(values: Iterable[float]) -> dict[float, str]:
    """``2⁻⁷`` if all are powers of two and some is small or large, else plain."""
    shown = list(values)
    proper = [value for value in shown if 0.0 < value < math.inf]
    powers = all(math.frexp(value)[0] == 0.5 for value in proper)
    if not powers or all(0.1 <= value <= 2048 for value in proper):
        return {value: "∞" if math.isinf(value) else f"{value:g}" for value in shown}
    return {
        value: power(2, math.frexp(value)[1] - 1) if value in proper else value_labels([value])[value]
        for value in shown
    }


def draw(axis: Axes, entries: Cells, look: Mapping[str, Look], log: bool) -> None:
    """A column per setting: every run as a dot, or a band over the columns where there are many, and the means."""
    at = places([value for of in entries.values() for value in of])
    positions = sorted(at.values())
    step = min(np.diff(positions), default=1.0)
    many = too_many_for_dots(entries)
    limits = on_ticks(*padded(_heights(entries, many), 0.0, log), log)
    axis.set(
        yscale="log" if log else "linear", ylim=limits, xlim=(positions[0] - 0.5 * step, positions[-1] + 0.5 * step)
    )
    if log:
        log_ticks(axis.yaxis, *limits)
    else:
        linear_ticks(axis.yaxis, *limits)
    for position in positions[::2]:
        axis.axvspan(position - 0.5 * step, position + 0.5 * step, color="#ececec", linewidth=0.0, zorder=0)
    axis.grid(False, axis="x")
    every = math.ceil(len(at) / _MOST_LABELS)
    labels = value_labels(at)
    axis.set_xticks([at[value] for value in list(at)[::every]], list(labels.values())[::every])
    total = sum(len(cell.values) for of in entries.values() for cell in of.values())
    # Bands of all algorithms lie behind one another, dots side by side.
    shifts = np.zeros(len(entries)) if many else _shifts(len(entries), step)
    for (key, of), shift in zip(entries.items(), shifts, strict=True):
        if many:
            low, high = np.array([spread(cell) for cell in of.values()]).T
            x = np.array([at[value] for value in of])
            axis.fill_between(x, low, high, color=look[key].colour, alpha=0.2, linewidth=0.0, label=f"_spread:{key}")
        else:
            _runs(axis, {at[v] + shift: c for v, c in of.items()}, len(entries), step, look[key].colour, key, total)
        _means(axis, {at[v] + shift: c for v, c in of.items()}, look[key], key)


def _heights(entries: Cells, many: bool) -> list[float]:
    """All that is drawn as dots, or as bands and means."""
    cells = [cell for of in entries.values() for cell in of.values()]
    if not many:
        return [value for cell in cells for value in cell.values[cell.shown].tolist()]
    return [value for cell in cells for value in (*spread(cell), cell.mean.estimate if cell.mean else math.nan)]


def _runs(axis: Axes, of: Mapping[float, Cell], n: int, step: float, colour: str, key: str, total: int) -> None:
    x, y = [np.concatenate(part) for part in zip(*(_dots(place, c, n, step) for place, c in of.items()), strict=True)]
    axis.plot(
        x,
        y,
        linestyle="none",
        marker="o",
        markersize=2.4,
        markeredgewidth=0.0,
        color=colour,
        alpha=0.35,
        rasterized=total > MAX_VECTOR_DOTS,
        label=f"_runs:{key}",
    )


def _shifts(n: int, step: float) -> Floats:
    """Horizontal offsets of the algorithms around a setting's position."""
    return (np.arange(n) - 0.5 * (n - 1)) * 0.75 * step / n


def _dots(x: float, cell: Cell, n: int, step: float) -> tuple[Floats, Floats]:
    """The runs of one setting, spread a little sideways by a fixed sequence so that equal ones stay apart."""
    values = cell.values[cell.shown]
    spread = (np.arange(len(values)) * _GOLDEN) % 1.0 - 0.5
    return x + spread * 0.55 * step / n, values


def _means(axis: Axes, of: Mapping[float, Cell], look: Look, key: str) -> None:
    known = {x: cell.mean for x, cell in of.items() if cell.mean is not None}
    x, y = list(known), [mean.estimate for mean in known.values()]
    # One line with gaps in place of one for each interval.
    ends = np.array([(mean.low, mean.high, math.nan) for mean in known.values()]).ravel()
    axis.plot(np.repeat(x, 3), ends, color=look.colour, linewidth=1.6, solid_capstyle="butt")
    axis.plot(
        x,
        y,
        color=look.colour,
        linestyle=look.line,
        linewidth=1.1,
        marker=look.marker,
        markersize=6,
        markeredgecolor="white",
        markeredgewidth=0.5,
        label=f"_mean:{key}",
    )
    ring = [(place, cell.mean.estimate) for place, cell in of.items() if cell.best and cell.mean is not None]
    axis.plot(
        *zip(*ring, strict=True) if ring else ([], []),
        linestyle="none",
        marker="o",
        markersize=11,
        markerfacecolor="none",
        markeredgecolor=look.colour,
        markeredgewidth=1.5,
        zorder=4,
        label=f"_best:{key}",
    )


def off_scale(axis: Axes, entries: Cells, look: Mapping[str, Look]) -> None:
    """One line per algorithm: a cross per run at its setting, or the share of them as a bar where there are many."""
    at = places([value for of in entries.values() for value in of])
    step = min(np.diff(sorted(at.values())), default=1.0)
    axis.set(ylim=(len(entries) - 0.4, -0.6), yticks=[], facecolor="#f4f4f4")
    axis.set_ylabel("failed", rotation=0, ha="right", va="center")
    axis.grid(False)
    axis.spines[:].set_visible(False)
    many = too_many_for_dots(entries)
    for row, (key, of) in enumerate(entries.items()):
        if many:
            shares = np.array([1.0 - cell.shown.mean() for cell in of.values()])
            # Half a column further, so that the first and the last are as wide as the others; the axis runs downwards.
            x_all = np.array([at[value] for value in of])
            x_all = np.concatenate(([x_all[0] - 0.5 * step], x_all, [x_all[-1] + 0.5 * step]))
            top = row + 0.4 - 0.8 * np.concatenate((shares[:1], shares, shares[-1:]))
            colour = look[key].colour
            axis.fill_between(x_all, row + 0.4, top, step="mid", color=colour, linewidth=0.0, label=f"_failed:{key}")
            continue
        x: list[float] = []
        for value, cell in of.items():
            count = int((~cell.shown).sum())
            x += [at[value] + 0.7 * step * ((i + 0.5) / len(cell.values) - 0.5) for i in range(count)]
        axis.plot(
            x,
            [row] * len(x),
            linestyle="none",
            marker="x",
            markersize=3.2,
            color=look[key].colour,
            label=f"_failed:{key}",
            rasterized=len(x) > MAX_VECTOR_DOTS // 10,
        )
