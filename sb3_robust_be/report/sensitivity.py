"""Sensitivity to a parameter: every run at every setting, means with intervals, the best setting marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sb3_robust_be.evaluation import Interval, mean_intervals
from sb3_robust_be.report.panels import Floats, checked_panels, legend, mean_interval, names, runs, wrapped
from sb3_robust_be.report.plot import Plot
from sb3_robust_be.report.sensitivity_panels import (
    Cell,
    Cells,
    draw,
    off_scale,
    spread,
    too_many_for_dots,
    value_labels,
)
from sb3_robust_be.report.style import WIDTH, Look, looks, new_figure, settings
from sb3_robust_be.report.tables import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sensitivity(
    name: str,
    panels: Mapping[str, Mapping[str, Mapping[float, ArrayLike]]],
    *,
    parameter: str,
    measure: str,
    rng: np.random.Generator,
    caption: str = "",
    higher_is_better: bool = True,
    log: bool = False,
    worst: float | Mapping[str, float] | None = None,
    chosen: Mapping[str, Mapping[str, float]] | None = None,
    level: float = 0.95,
    same_runs: bool = False,
) -> Plot:
    """Performance over a parameter on a log₂ axis (the paper's figure of prediction and its ablations).

    A column per setting has every run as a dot; where an algorithm has more than
    :data:`~sb3_robust_be.report.sensitivity_panels.MOST_DOTS` runs at a setting, a band shows the middle 80 % of them.
    Runs that are not finite have failed, and those worse than ``worst`` are off the scale: crosses, or bars of their
    share, in the strip below, one line per algorithm. They are not part of the means, and a setting with fewer of them
    is better than one with more, whatever the means.

    :param name: Of the files.
    :param panels: Shape (runs,) by panel, algorithm and value of the parameter: positive, or 0 or ∞, which stand
        beside the axis' ends.
    :param parameter: The label of the horizontal axis.
    :param measure: The label of the vertical axis, with its unit.
    :param rng: For the bootstrap.
    :param higher_is_better: Which way "best" and "worse" go.
    :param log: A logarithmic vertical axis; values must be positive.
    :param worst: Limit of the scale, such as the error before learning, or that by panel.
    :param chosen: The setting to mark by panel and algorithm, as chosen on selection seeds; ``None``: the best here.
    :param same_runs: Whether the runs of an algorithm are the same ones at all values, in the same order, such as seeds
        that go through a whole grid: they are then resampled together, which is quicker.
    :return: Rows ``panel, algorithm, parameter, kind, run, value, low, high, off_scale, best``. Those of kind ``"run"``
        are one per dot; of kind ``"spread"`` one per setting of a band, with the number of runs that are off the scale.
    """
    checked = checked_panels(panels, _settings)
    look = looks(names(checked))
    cells: dict[str, dict[str, dict[float, Cell]]] = {}
    for title, entries in checked.items():
        limit = worst.get(title) if isinstance(worst, Mapping) else worst
        marked = (chosen or {}).get(title, {})
        cells[title] = {
            key: _evaluated(
                f"panels[{title!r}][{key!r}]",
                by_value,
                limit,
                marked.get(key),
                higher_is_better,
                log,
                _together if same_runs else _one_by_one,
                rng,
                level,
            )
            for key, by_value in entries.items()
        }
    some_off = any(not cell.shown.all() for of in cells.values() for by in of.values() for cell in by.values())
    with settings():
        figure = _figure(cells, look, parameter, measure, log, some_off)
    many = {title: too_many_for_dots(entries) for title, entries in cells.items()}
    rows = [
        row
        for title, entries in cells.items()
        for key, of in entries.items()
        for row in _rows(title, key, of, many[title])
    ]
    text = f"{_of_runs(many.values())}; markers and bars: their means with {100 * level:g} % intervals; ring: the "
    text += "best setting." if chosen is None else "setting chosen on selection seeds."
    if some_off:
        below = "share of runs" if all(many.values()) else "runs"
        text += f" Below: {below} that failed or are off the scale, left out of the means."
    alt = f"{measure} over {parameter}. Marked: {'; '.join(_marked(cells, look))}."
    return Plot(name, figure, rows, f"{caption} {text}".strip(), alt)


def _of_runs(many: Collection[bool]) -> str:
    bands = "pale bands: the middle 80 % of the runs"
    if all(many):
        return bands.capitalize()
    return f"Dots: the runs, or, where they are many, {bands}" if any(many) else "Dots: the runs"


def _figure(
    cells: Mapping[str, Cells], look: Mapping[str, Look], parameter: str, measure: str, log: bool, some_off: bool
) -> Figure:
    """A panel per title, each with a strip below it if any run is off the scale."""
    n_rows = math.ceil(len(cells) / 3)
    n_columns = math.ceil(len(cells) / n_rows)
    strip = 0.2 + 0.09 * len(look) if some_off else 0.0
    figure = new_figure((2.9 + strip) * n_rows + 0.45)
    grid = figure.add_gridspec(n_rows, n_columns)
    for i, (title, entries) in enumerate(cells.items()):
        place = grid[divmod(i, n_columns)]
        inner = place.subgridspec(2, 1, height_ratios=[2.4, strip]) if some_off else [place]
        axis = lowest = figure.add_subplot(inner[0])
        # A logarithmic axis has no common factor above it, for which matplotlib would look before it places a title.
        place_of_title = 1.0 if log else None
        axis.set_title(wrapped(title, (WIDTH - 1.0) / n_columns, 10.0), loc="left", y=place_of_title)
        draw(axis, entries, look, log)
        axis.set_ylabel(wrapped(measure, 2.0))
        if some_off:
            lowest = figure.add_subplot(inner[1], sharex=axis)
            off_scale(lowest, entries, look)
            axis.tick_params(labelbottom=False)
        lowest.set_xlabel(parameter)
    legend(figure, look.values())
    return figure


def _marked(cells: Mapping[str, Cells], look: Mapping[str, Look]) -> list[str]:
    """The best setting of each algorithm in words."""
    return [
        f"{title}: {look[key].label} {value_labels(of)[value]} ({number(cell.mean.estimate) if cell.mean else '–'})"
        for title, entries in cells.items()
        for key, of in entries.items()
        for value, cell in of.items()
        if cell.best
    ]


def _settings(where: str, by_value: Mapping[float, ArrayLike]) -> dict[float, Floats]:
    if not isinstance(by_value, Mapping) or not by_value:
        raise ValueError(f"{where} is {by_value!r}; give the runs by value of the parameter.")
    for value in by_value:
        if not float(value) >= 0.0:
            raise ValueError(f"{where} has the value {value!r}; give positive values, 0 or infinity.")
    ordered = sorted(by_value, key=float)
    return {float(value): runs(f"{where}[{value!r}]", by_value[value]) for value in ordered}


def _one_by_one(runs: Sequence[Floats], rng: np.random.Generator, level: float) -> list[Interval | None]:
    return [mean_interval(own, rng, level) for own in runs]


def _together(runs: Sequence[Floats], rng: np.random.Generator, level: float) -> list[Interval | None]:
    """Of the same runs, but for settings at which some of them are off the scale."""
    most = max(map(len, runs))
    whole = [own for own in runs if len(own) == most > 0]
    together = iter(mean_intervals(np.stack(whole), rng=rng, level=level)) if whole else iter(())
    return [next(together) if len(own) == most > 0 else mean_interval(own, rng, level) for own in runs]


Means = Callable[[Sequence[Floats], np.random.Generator, float], list[Interval | None]]


def _evaluated(
    where: str,
    by_value: Mapping[float, Floats],
    worst: float | None,
    marked: float | None,
    higher_is_better: bool,
    log: bool,
    means_of: Means,
    rng: np.random.Generator,
    level: float,
) -> dict[float, Cell]:
    """Each setting's cell; the best has the fewest runs off the scale, then the best mean."""
    sign = 1.0 if higher_is_better else -1.0
    seen: dict[float, Floats] = {}
    for value, values in by_value.items():
        shown = np.isfinite(values)
        if worst is not None:
            shown &= sign * values >= sign * worst
        if log and not (values[shown] > 0.0).all():
            raise ValueError(f"{where}[{value:g}] has {values[shown].min():g} on a log axis; give positive values.")
        seen[value] = shown
    means = means_of([values[seen[value]] for value, values in by_value.items()], rng, level)
    found = {
        value: Cell(values, seen[value], mean, False)
        for (value, values), mean in zip(by_value.items(), means, strict=True)
    }
    if marked is None:
        marked = max(
            found,
            key=lambda value: (
                found[value].shown.mean(),
                sign * (cell.estimate if (cell := found[value].mean) else 0.0),
            ),
        )
    elif marked not in found:
        raise ValueError(f"chosen is {marked:g} for {where}; give one of {', '.join(f'{value:g}' for value in found)}.")
    return {value: cell._replace(best=value == marked) for value, cell in found.items()}


def _rows(title: str, key: str, of: Mapping[float, Cell], many: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for value, cell in of.items():
        common = {"panel": title, "algorithm": key, "parameter": value}
        if many:
            low, high = spread(cell)
            off = int((~cell.shown).sum())
            rows.append({**common, "kind": "spread", "low": low, "high": high, "off_scale": off, "best": cell.best})
        else:
            for i, (result, on) in enumerate(zip(cell.values.tolist(), cell.shown.tolist(), strict=True)):
                rows.append(
                    {**common, "kind": "run", "run": i, "value": result, "off_scale": not on, "best": cell.best}
                )
        if cell.mean is not None:
            ends = {"low": cell.mean.low, "high": cell.mean.high, "best": cell.best}
            rows.append({**common, "kind": "mean", "value": cell.mean.estimate, **ends})
    return rows
