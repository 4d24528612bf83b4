"""What the figures share: checks of their data, panels, legends, ticks, and where failed runs are drawn."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_robust_be import evaluation
from sb3_robust_be.evaluation import Interval
from sb3_robust_be.report.style import WIDTH, Look, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
#: From here on dots become a bitmap within the SVG; its text stays text, and the CSV has every one.
MAX_VECTOR_DOTS = 1_000


def checked_panels(panels: Mapping[str, Mapping[str, Any]], read: Callable[[str, Any], Any]) -> dict[str, Any]:
    """``{panel: {algorithm: read(where, value)}}``, neither level empty."""
    if not panels:
        raise ValueError("panels is empty; give at least one, as in {'Cart-pole': {'dqn': values}}.")
    for title, entries in panels.items():
        if not isinstance(entries, Mapping) or not entries:
            raise ValueError(f"panels[{title!r}] is {entries!r}; give values by algorithm, as in {{'dqn': values}}.")
    return {
        str(title): {str(key): read(f"panels[{title!r}][{key!r}]", value) for key, value in entries.items()}
        for title, entries in panels.items()
    }


def runs(where: str, values: ArrayLike) -> Floats:
    """One value per run, shape (runs,); failed runs are not finite."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{where} has shape {array.shape}; give one value per run, shape (runs,).")
    return array


def names(panels: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The names within all panels, in the order in which they first occur."""
    return list(dict.fromkeys(name for entries in panels.values() for name in entries))


def mean_interval(values: Floats, rng: np.random.Generator, level: float) -> Interval | None:
    """Mean of the finite values with its interval; ``None`` if there is none."""
    finite = values[np.isfinite(values)]
    return evaluation.mean_interval(finite, rng=rng, level=level) if finite.size else None


def wrapped(text: str, inches: float, size: float = 9.0) -> str:
    """``text`` in lines of at most so many inches at a font size in points."""
    return textwrap.fill(text, max(8, int(72.0 * inches / (0.6 * size))))


def axes_grid(titles: Sequence[str], height: float, measure: str, columns: int = 3) -> tuple[Figure, list[Axes]]:
    """One axes per title, in rows of at most ``columns``, none alone in a row where it can be helped.

    :param height: Of a row in inches.
    :param measure: The label of the vertical axes.
    """
    n = len(titles)
    n_rows = math.ceil(n / columns)
    n_columns = math.ceil(n / n_rows)
    figure = new_figure(height * (n_rows if n > 1 else 1.3) + 0.45)
    grid = figure.add_gridspec(n_rows, n_columns)
    axes = [figure.add_subplot(grid[divmod(i, n_columns)]) for i in range(n)]
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(wrapped(title, (WIDTH - 1.0) / n_columns, 10.0), loc="left")
        axis.set_ylabel(wrapped(measure, height - 0.6))
    return figure, axes


def legend(figure: Figure, looks: Iterable[Look], marker: bool = True) -> None:
    """Above the panels, in as many columns as fit."""
    from matplotlib.lines import Line2D

    shown = list(looks)
    parts: list[dict[str, Any]] = [
        {"color": look.colour, "linestyle": look.line, "marker": look.marker if marker else ""} for look in shown
    ]
    handles = [Line2D([], [], markersize=5, **part) for part in parts]
    _legend_above(figure, handles, [look.label for look in shown], handlelength=2.8)


def padded(values: Iterable[float], share: float = 0.05, log: bool = False) -> tuple[float, float]:
    """Limits of an axis around the finite ones of ``values``, of which a logarithmic axis takes the positive."""
    array = np.fromiter(values, dtype=np.float64)
    array = array[np.isfinite(array) & ((array > 0.0) | (not log))]
    if array.size == 0:
        return (0.1, 1.0) if log else (0.0, 1.0)
    low, high = float(array.min()), float(array.max())
    if log:
        ends = math.log10(low), math.log10(high)
        margin = max(share * (ends[1] - ends[0]), 0.05) if share or ends[0] == ends[1] else 0.0
        return 10.0 ** (ends[0] - margin), 10.0 ** (ends[1] + margin)
    margin = share * (high - low) if high > low else 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def on_ticks(low: float, high: float, log: bool = False) -> tuple[float, float]:
    """The ticks at or next beyond these limits, so that an axis begins and ends with one.

    :param log: Of a logarithmic axis, with the ticks of :func:`log_ticks`; else of :func:`linear_ticks`.
    """
    if not log or high < 5.0 * low:
        ticks = _evenly_spaced(low, high)
        ends = float(ticks[0]), float(ticks[-1])
        if not log or 0.0 < ends[1] < 5.0 * ends[0]:
            return ends
    ends = _log_ends(low, high, _log_steps(1.0))
    return ends if len(_log_steps(ends[1] / ends[0])) > 1 else _log_ends(low, high, (1.0,))


def linear_ticks(axis: Axis, low: float, high: float) -> None:
    """At most six evenly spaced labels for an axis from ``low`` to ``high``, which are those of :func:`on_ticks`."""
    from matplotlib.ticker import FixedLocator

    axis.set_major_locator(FixedLocator(_evenly_spaced(low, high)))


def _evenly_spaced(low: float, high: float) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten that enclose the limits: the finest with at most five steps."""
    decade = 10.0 ** math.floor(math.log10((high - low) / 5.0))
    for step in (factor * decade for factor in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0, 25.0)):
        first, last = math.floor(low / step + 1e-6), math.ceil(high / step - 1e-6)
        if last - first <= 5:
            break
    return [step * i for i in range(first, last + 1)]


def _log_ends(low: float, high: float, steps: tuple[float, ...]) -> tuple[float, float]:
    """The products of steps and powers of ten around these limits."""
    first, last = (math.floor(math.log10(end)) for end in (low, high))
    ticks = [step * 10.0**exponent for exponent in range(first - 1, last + 2) for step in steps]
    slack = 1.0 + 1e-9
    return max(t for t in ticks if t <= low * slack), min(t for t in ticks if t * slack >= high)


def _log_steps(ratio: float) -> tuple[float, ...]:
    return (1.0, 2.0, 5.0) if math.log10(ratio) < 2.5 else (1.0,)


_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def power(base: int, exponent: int) -> str:
    """``2⁻⁷`` in plain characters, which stay text in an SVG."""
    return f"{base}{str(exponent).translate(_SUPERSCRIPTS)}"


def log_ticks(axis: Axis, low: float, high: float) -> None:
    """Labels for a logarithmic axis from ``low`` to ``high``: also 2 and 5 over less than 2½ decades.

    Over less than a factor of 5, which may have but one of these, they are evenly spaced.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if high < 5.0 * low:
        linear_ticks(axis, low, high)
    else:
        axis.set_major_locator(LogLocator(subs=_log_steps(high / low), numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: log_label(value) if value > 0.0 else ""))
    axis.set_minor_formatter(NullFormatter())


def log_label(value: float) -> str:
    """A tick: plain from 0.001 to 1000, else a power of ten."""
    exponent = math.floor(math.log10(value) + 1e-9)
    if -3 <= exponent <= 3:
        return f"{value:g}"
    mantissa = value / 10.0**exponent
    return power(10, exponent) if abs(mantissa - 1.0) < 1e-6 else f"{mantissa:g}·{power(10, exponent)}"


def step_ticks(axis: Axis, low: float, high: float) -> None:
    """Steps as 20k or 1.5M, for an axis from ``low`` to ``high``."""
    from matplotlib.ticker import FuncFormatter

    linear_ticks(axis, low, high)
    axis.set_major_formatter(FuncFormatter(lambda value, _: step_label(value)))


def step_label(value: float) -> str:
    for unit, sign in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{sign}"
    return f"{value:g}"


def stacked(values: Floats, bin_width: float, room: float, step: float) -> Floats:
    """Offsets ≥ 0 that put dots of the same bin side by side, so that each is seen at its own value.

    :param values: Shape (runs,), finite.
    :param bin_width: A dot's width in the units of ``values``.
    :param room: The largest offset.
    :param step: Between neighbours, less where a bin's dots would not fit into ``room``.
    """
    offsets = np.zeros(len(values))
    bins = np.floor((values - values.min()) / bin_width) if bin_width > 0.0 else np.zeros(len(values))
    for index in np.unique(bins):
        (members,) = np.nonzero(bins == index)
        order = members[np.argsort(values[members], kind="stable")]
        offsets[order] = np.arange(len(order)) * min(step, room / max(1, len(order) - 1))
    return offsets


def legend_patches(figure: Figure, colours: Mapping[str, str]) -> None:
    """Above the panels, a filled square per label."""
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=colour, edgecolor="#444444", linewidth=0.6) for colour in colours.values()]
    _legend_above(figure, handles, list(colours))


def _legend_above(figure: Figure, handles: Sequence[Any], labels: Sequence[str], **style: Any) -> None:
    """In rows that are about equally long, and are read from left to right: matplotlib fills columns."""
    most = max(1, min(len(labels), int((WIDTH - 0.4) / (0.085 * max(map(len, labels)) + 0.65))))
    n_rows = -(-len(labels) // most)
    n_columns = -(-len(labels) // n_rows)
    order = [i for column in range(n_columns) for i in range(column, len(labels), n_columns)]
    figure.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="outside upper center",
        ncols=n_columns,
        **style,
    )
