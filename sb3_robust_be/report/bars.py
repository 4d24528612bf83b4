"""Grouped bars for tables of numbers, such as the relative errors of fixed points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sb3_robust_be.evaluation import Interval
from sb3_robust_be.report.panels import (
    checked_panels,
    legend_patches,
    linear_ticks,
    log_ticks,
    on_ticks,
    padded,
    wrapped,
)
from sb3_robust_be.report.plot import Plot
from sb3_robust_be.report.style import WIDTH, Look, looks, new_figure, settings
from sb3_robust_be.report.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Bar = float | Interval


def bars(
    name: str,
    panels: Mapping[str, Mapping[str, Mapping[str, Bar]]],
    *,
    measure: str,
    caption: str = "",
    log: bool = False,
    baseline: float | None = None,
) -> Plot:
    """Bars by panel, group and series (the paper's figures 2 and 3), each with its number, intervals where there are.

    Series that are variants of one, as ``"MSBE, all"`` and ``"MSBE, V"``, share its hue and get paler one by one. A
    NaN is a dash, an infinity reaches the end of the axis.

    :param name: Of the files.
    :param panels: A number or an interval by panel (such as an error), group (a problem) and series (an objective).
    :param measure: The label of the values' axis; the panel's title stands above it.
    :param log: A logarithmic axis.
    :param baseline: Where bars begin; ``None``: at 1 on a logarithmic axis, for ratios, else at 0.
    :return: Rows ``panel, group, series, value, low, high``.
    """
    start = baseline if baseline is not None else float(log)
    checked = checked_panels(panels, _series)
    look = looks(series for groups in checked.values() for of in groups.values() for series in of)
    rows: list[dict[str, Any]] = []
    with settings():
        figure = new_figure(2.6 * len(checked) + 0.45)
        for axis, (title, groups) in zip(
            figure.subplots(len(checked), 1, squeeze=False)[:, 0], checked.items(), strict=True
        ):
            axis.set_title(wrapped(title, WIDTH - 1.0, 10.0), loc="left")
            axis.set_ylabel(wrapped(measure, 2.0))
            _draw(axis, groups, look, log, start)
            rows += [
                {"panel": title, "group": group, "series": series, "value": mean, "low": low, "high": high}
                for group, of in groups.items()
                for series, (mean, low, high) in of.items()
            ]
        legend_patches(figure, {one.label: shade(one) for one in look.values()})
    alt = "; ".join(
        f"{row['panel']}, {row['group']}, {look[row['series']].label}: {number(row['value'])}" for row in rows
    )
    return Plot(name, figure, rows, caption, f"{measure}. {alt}.")


def shade(look: Look) -> str:
    """The colour of a series: paler for each further variant of its base."""
    share = (1.0, 0.6, 0.3)[min(look.variant, 2)]
    parts = [int(look.colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - share * (255 - part)):02X}" for part in parts)


def _series(where: str, of: Mapping[str, Bar]) -> dict[str, tuple[float, float, float]]:
    if not isinstance(of, Mapping) or not of:
        raise ValueError(f"{where} is {of!r}; give numbers by series.")
    return {
        str(series): (bar.estimate, bar.low, bar.high)
        if isinstance(bar, Interval)
        else (float(bar), math.nan, math.nan)
        for series, bar in of.items()
    }


def _draw(
    axis: Axes, groups: Mapping[str, Mapping[str, Any]], look: Mapping[str, Look], log: bool, start: float
) -> None:
    present = [series for series in look if any(series in of for of in groups.values())]
    width = min(0.84 / len(present), 0.75 * len(groups) / (WIDTH - 0.8))  # at most 0.75 inches
    values = [part for of in groups.values() for bar in of.values() for part in bar]
    low, high = padded([*values, start], share=0.16, log=log)
    if min((value for value in values if math.isfinite(value)), default=start) >= start:
        low = start  # nothing goes down from the baseline
    bottom, high = on_ticks(low, high, log)
    low = low if low == start else bottom
    axis.set(yscale="log" if log else "linear", ylim=(low, high), xlim=(-0.5, len(groups) - 0.5))
    if log:
        log_ticks(axis.yaxis, low, high)
    else:
        linear_ticks(axis.yaxis, low, high)
    axis.axhline(start, color="#444444", linewidth=0.8)
    axis.set_xticks(range(len(groups)), [wrapped(group, (WIDTH - 0.8) / len(groups), 8.5) for group in groups])
    axis.tick_params(axis="x", length=0)
    axis.grid(False, axis="x")
    upright = width * (WIDTH - 0.8) / len(groups) < 0.42
    for group, of in enumerate(groups.values()):
        for series, (mean, lower, upper) in of.items():
            x = group + (present.index(series) - 0.5 * (len(present) - 1)) * width
            shown = _end(mean, start, low, high, log)
            _bar(axis, x, start, shown, 0.92 * width, series, look[series])
            ends = [end for end in (lower, upper) if math.isfinite(end)]
            _interval(axis, x, ends, series)
            top = max([shown, *ends]) if shown >= start else min([shown, *ends])
            axis.annotate(
                number(mean, 3),
                (x, top),
                xytext=(0, 2 if shown >= start else -2),
                textcoords="offset points",
                ha="center",
                va="bottom" if shown >= start else "top",
                fontsize=7.5,
                rotation=90 if upright else 0,
            )


def _bar(axis: Axes, x: float, start: float, end: float, width: float, series: str, look: Look) -> None:
    axis.bar(
        x,
        end - start,
        width,
        bottom=start,
        color=shade(look),
        edgecolor=look.colour,
        linewidth=0.6,
        label=f"_bar:{series}",
    )


def _interval(axis: Axes, x: float, ends: list[float], series: str) -> None:
    at = [x] * len(ends)
    # The white below keeps the interval visible on a dark bar.
    axis.plot(at, ends, color="white", linewidth=3.2, solid_capstyle="butt")
    axis.plot(at, ends, color="#222222", linewidth=1.4, solid_capstyle="butt", label=f"_interval:{series}")


def _end(value: float, start: float, low: float, high: float, log: bool) -> float:
    """The end of a bar: within the axis for an infinite value, at the bar's start for a missing one."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return start
    share = 0.9 if value > 0.0 else 0.1
    return low * (high / low) ** share if log else low + share * (high - low)
