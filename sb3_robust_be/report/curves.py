"""Performance profiles, and objectives over a weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sb3_robust_be.evaluation import score_distribution
from sb3_robust_be.report.panels import (
    Floats,
    axes_grid,
    checked_panels,
    legend,
    linear_ticks,
    log_ticks,
    on_ticks,
    padded,
)
from sb3_robust_be.report.plot import Plot
from sb3_robust_be.report.style import LINES, Look, looks, settings
from sb3_robust_be.report.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PROFILE_POINTS = 101


def profiles(
    name: str,
    scores: Mapping[str, Mapping[str, ArrayLike]],
    *,
    rng: np.random.Generator,
    measure: str = "scaled return",
    caption: str = "",
    level: float = 0.95,
) -> Plot:
    """Performance profiles: the fraction of runs that score above each threshold, averaged over games.

    :param name: Of the files.
    :param scores: Shape (runs,) by algorithm and game, as of :func:`~sb3_robust_be.evaluation.scaled_returns`.
    :param measure: What is scored.
    :param rng: For the stratified bootstrap.
    :return: Rows ``algorithm, threshold, fraction, low, high``.
    """
    if not scores:
        raise ValueError("scores is empty; give at least one algorithm's, by game.")
    look = looks(scores)
    every = np.concatenate([np.ravel(values) for games in scores.values() for values in games.values()])
    finite = every[np.isfinite(every)]
    ends = (min(0.0, float(finite.min(initial=0.0))), max(1.0, float(finite.max(initial=1.0))))
    at = np.linspace(*ends, _PROFILE_POINTS)
    rows: list[dict[str, Any]] = []
    with settings():
        figure, (axis,) = axes_grid([""], 3.2, "fraction of runs above τ")
        for key, games in scores.items():
            band = score_distribution(games, at, rng=rng, level=level)
            axis.fill_between(at, band.low, band.high, color=look[key].colour, alpha=0.2, linewidth=0.0, step="post")
            axis.step(
                at, band.estimate, where="post", color=look[key].colour, linestyle=look[key].line, label=f"_mean:{key}"
            )
            rows += [
                {"algorithm": key, "threshold": t, "fraction": f, "low": low, "high": high}
                for t, f, low, high in zip(at, band.estimate, band.low, band.high, strict=True)
            ]
        limits = on_ticks(*ends)
        linear_ticks(axis.xaxis, *limits)
        axis.set(xlim=limits, ylim=(0.0, 1.0), xlabel=f"{measure} τ")
        legend(figure, look.values(), marker=False)
    text = f"Higher is better everywhere; bands: pointwise {100 * level:g} % bootstrap intervals, stratified by game."
    halves = [
        f"{look[key].label} {number(np.mean([np.mean(np.asarray(values) > 0.5) for values in games.values()]), 2)}"
        for key, games in scores.items()
    ]
    alt = f"Performance profiles of {measure}. Fraction of runs above 0.5: {'; '.join(halves)}."
    return Plot(name, figure, rows, f"{caption} {text}".strip(), alt)


def lines(
    name: str,
    panels: Mapping[str, Mapping[str, ArrayLike]],
    x: ArrayLike,
    *,
    x_label: str,
    measure: str,
    caption: str = "",
    minima: bool = True,
    log: bool = False,
) -> Plot:
    """Curves without runs, such as objectives over a weight (the paper's figures 1 and 4), minima marked.

    :param name: Of the files.
    :param panels: Shape (points,) by panel and objective; not finite where there is no value.
    :param x: Where the points are, shape (points,).
    :param x_label: Of the horizontal axis.
    :param measure: Of the vertical axis.
    :param minima: Mark the least value of each curve with its marker and a dotted line.
    :param log: A logarithmic vertical axis.
    :return: Rows ``panel, curve, x, value, minimum``; ``minimum`` is true for the least value of a curve.
    """
    at = np.asarray(x, dtype=np.float64)
    checked = checked_panels(panels, lambda where, values: _line(where, values, at))
    look: dict[str, Look] = {}
    for entries in checked.values():
        # Curves that coincide show by their line styles, so those go by the order here and not by the name.
        look |= {key: replace(one, line=LINES[i % 4]) for i, (key, one) in enumerate(looks(entries).items())}
    rows: list[dict[str, Any]] = []
    found: list[str] = []
    with settings():
        figure, axes = axes_grid(list(checked), 3.0, measure)
        for axis, (title, entries) in zip(axes, checked.items(), strict=True):
            limits = on_ticks(*padded((v for values in entries.values() for v in values), 0.0, log), log)
            axis.set(yscale="log" if log else "linear", ylim=limits, xlim=(at.min(), at.max()))
            if log:
                log_ticks(axis.yaxis, *limits)
            else:
                linear_ticks(axis.yaxis, *limits)
            axis.set_xlabel(x_label)
            for i, (key, values) in enumerate(entries.items()):
                axis.plot(at, values, color=look[key].colour, linestyle=look[key].line, label=f"_curve:{key}")
                least = int(np.nanargmin(values)) if minima and np.isfinite(values).any() else -1
                if least >= 0:
                    found.append(f"{title}: {look[key].label} at {number(at[least])}")
                    _mark(axis, at[least], values[least], look[key], key, i, len(entries))
                rows += [
                    {"panel": title, "curve": key, "x": float(a), "value": float(v), "minimum": j == least}
                    for j, (a, v) in enumerate(zip(at, values, strict=True))
                ]
        legend(figure, look.values(), marker=minima)
    text = "Markers and dotted lines: minima." if minima else ""
    alt = f"{measure} over {x_label}. Minima: {'; '.join(found) or 'not marked'}."
    return Plot(name, figure, rows, f"{caption} {text}".strip(), alt)


def _mark(axis: Axes, x: float, y: float, look: Look, key: str, index: int, n: int) -> None:
    """A minimum; of those in the same place each dotted line shows its own dots, and later markers are smaller."""
    axis.axvline(x, color=look.colour, linewidth=1.2, linestyle=(2.0 * index, (2.0, 2.0 * max(1, n - 1))))
    axis.plot(
        [x],
        [y],
        marker=look.marker,
        markersize=max(4.0, 10.0 - 2.0 * index),
        color=look.colour,
        markeredgecolor="white",
        markeredgewidth=0.6,
        clip_on=False,
        zorder=4,
        label=f"_minimum:{key}",
    )


def _line(where: str, values: ArrayLike, at: Floats) -> Floats:
    array = np.array(values, dtype=np.float64)
    if array.shape != at.shape or array.ndim != 1 or array.size == 0:
        raise ValueError(f"{where} has shape {array.shape} for x of shape {at.shape}; give one value per point of x.")
    array[~np.isfinite(array)] = np.nan
    return array
