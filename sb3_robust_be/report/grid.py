"""Cliff World's grid as seen by an agent: its values, the way it would go, and its secondary estimates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sb3_robust_be.envs.cliff_world import CLIFF, GOAL, HEIGHT, MOVES, N_STATES, START, WIDTH, coordinates
from sb3_robust_be.report.panels import Floats
from sb3_robust_be.report.plot import Plot
from sb3_robust_be.report.style import label, new_figure, settings
from sb3_robust_be.report.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize

ACTIONS: tuple[str, ...] = ("up", "right", "down", "left")
COLOURS = {"q": "viridis", "h": "RdBu_r"}
TITLES = {"q": "max q and greedy action", "h": "h of each action"}
BARS = {"q": "max q(s,·)", "h": "h(s,a)"}
#: Below this a symmetric logarithmic scale of colours is linear: the size of an ordinary return here.
_LINEAR = 10.0


def grid_map(
    name: str,
    q: Mapping[str, ArrayLike],
    h: Mapping[str, ArrayLike],
    *,
    caption: str = "",
) -> Plot:
    """Cliff World by algorithm, two side by side: above ``max_a q(s,a)`` and the greedy action, below ``h``.

    In the maps of ``h`` each cell is cut into four triangles, one per action, on the side to which it leads. The
    colours are the same for all algorithms, linear up to ±10 and logarithmic beyond.

    :param name: Of the files.
    :param q: Action values, shape (20, 4), by algorithm; states and actions as in
        :mod:`~sb3_robust_be.envs.cliff_world`.
    :param h: Likewise the secondary estimates; algorithms without any are left out.
    :return: Rows ``algorithm, state, x, y, action, q, h, greedy``.
    """
    values = {str(key): _table(f"q[{key!r}]", table) for key, table in q.items()}
    if not values:
        raise ValueError("q is empty; give at least one algorithm's action values.")
    if strangers := [key for key in h if key not in values]:
        raise ValueError(f"h names {strangers[0]!r}, which q does not; give both by the same names.")
    estimates = {str(key): _table(f"h[{key!r}]", table) for key, table in h.items()}
    shown = [state for state in range(N_STATES) if state != GOAL and state not in CLIFF]
    with settings():
        layout = _layout(list(values), list(estimates))
        figure = new_figure(3.35 * len(layout))
        grid = figure.add_gridspec(len(layout), 2)
        scales = {
            "q": _scale([table[shown].max(axis=1) for table in values.values()]),
            "h": _scale([table[shown] for table in estimates.values()], symmetric=True),
        }
        for i, line in enumerate(layout):
            drawn: dict[str, list[Axes]] = {}
            for column, (kind, key) in enumerate(line):
                axis = figure.add_subplot(grid[i, column])
                drawn.setdefault(kind, []).append(axis)
                axis.set_title(f"{label(key)}: {TITLES[kind]}")
                _frame(axis)
                if kind == "q":
                    _values(axis, values[key], shown, scales[kind])
                else:
                    _triangles(axis, estimates[key], shown, scales[kind])
            for kind, axes in drawn.items():
                _colour_bar(axes, scales[kind], COLOURS[kind], BARS[kind])
    starts = [
        f"{label(key)}: {number(table[START].max())}, {ACTIONS[table[START].argmax()]}" for key, table in values.items()
    ]
    alt = f"Maps of Cliff World's 20 cells. Value and greedy action at the start: {'; '.join(starts)}."
    return Plot(name, figure, _rows(values, estimates), caption, alt)


def _rows(values: Mapping[str, Floats], estimates: Mapping[str, Floats]) -> list[dict[str, Any]]:
    return [
        {
            "algorithm": key,
            "state": state,
            "x": coordinates(state)[0],
            "y": coordinates(state)[1],
            "action": ACTIONS[a],
            "q": float(table[state, a]),
            "h": float(estimates[key][state, a]) if key in estimates else "",
            "greedy": bool(a == table[state].argmax()),
        }
        for key, table in values.items()
        for state in range(N_STATES)
        for a in range(len(MOVES))
    ]


def _layout(with_values: list[str], with_estimates: list[str]) -> list[list[tuple[str, str]]]:
    """Lines of at most two panels: the values of two algorithms, below them their h; both beside each other for one."""
    if len(with_values) == 1:
        return [[("q", with_values[0]), *(("h", key) for key in with_estimates)]]
    lines = []
    for start in range(0, len(with_values), 2):
        pair = with_values[start : start + 2]
        lines.append([("q", key) for key in pair])
        if estimated := [("h", key) for key in pair if key in with_estimates]:
            lines.append(estimated)
    return lines


def _table(where: str, table: ArrayLike) -> Floats:
    array = np.asarray(table, dtype=np.float64)
    if array.shape != (N_STATES, len(MOVES)):
        raise ValueError(f"{where} has shape {array.shape}; give ({N_STATES}, {len(MOVES)}): states and actions.")
    if not np.isfinite(array).all():
        raise ValueError(f"{where} is not finite everywhere; there is nothing to show of a diverged agent.")
    return array


def _scale(parts: list[Floats], symmetric: bool = False) -> Normalize:
    from matplotlib.colors import SymLogNorm

    every = np.concatenate([np.ravel(part) for part in parts]) if parts else np.zeros(1)
    low, high = float(every.min()), float(every.max())
    if symmetric:
        high = max(abs(low), abs(high), 1.0)
        low = -high
    if low == high:
        low, high = low - 1.0, high + 1.0
    return SymLogNorm(_LINEAR, vmin=low, vmax=high)


def _frame(axis: Axes) -> None:
    """Cells as unit squares around their coordinates, the cliff dark, start and goal lettered."""
    from matplotlib.patches import Rectangle

    axis.set(xlim=(-0.5, WIDTH - 0.5), ylim=(-0.5, HEIGHT - 0.5), aspect="equal", xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    axis.grid(False)
    for state in (*CLIFF, GOAL):
        x, y = coordinates(state)
        colour = "#3a3a3a" if state in CLIFF else "#e8f3e4"
        axis.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white"))
        axis.text(
            x,
            y,
            "cliff" if state in CLIFF else "goal",
            ha="center",
            va="center",
            fontsize=9,
            color="white" if state in CLIFF else "black",
        )


def _ink(rgba: Any) -> str:
    """Black or white, whichever stands out."""
    return "black" if 0.299 * rgba[0] + 0.587 * rgba[1] + 0.114 * rgba[2] > 0.55 else "white"


def _values(axis: Axes, table: Floats, shown: list[int], scale: Normalize) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    for state in shown:
        x, y = coordinates(state)
        best, action = float(table[state].max()), int(table[state].argmax())
        colour = colormaps[COLOURS["q"]](scale(best))
        ink = _ink(colour)
        axis.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white"))
        axis.text(x, y - 0.28, number(best, 3), ha="center", va="center", fontsize=9, color=ink, label="_value")
        dx, dy = MOVES[action]
        axis.annotate(
            "",
            (x + 0.24 * dx, y + 0.14 + 0.24 * dy),
            (x - 0.24 * dx, y + 0.14 - 0.24 * dy),
            arrowprops={
                "arrowstyle": "-|>",
                "color": ink,
                "linewidth": 1.6,
                "mutation_scale": 10,
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )
    x, y = coordinates(START)
    axis.text(
        x - 0.44,
        y + 0.44,
        "start",
        ha="left",
        va="top",
        fontsize=7.5,
        color=_ink(colormaps[COLOURS["q"]](scale(table[START].max()))),
    )


def _triangles(axis: Axes, table: Floats, shown: list[int], scale: Normalize) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Polygon

    for state in shown:
        x, y = coordinates(state)
        for value, (dx, dy) in zip(table[state], MOVES, strict=True):
            colour = colormaps[COLOURS["h"]](scale(value))
            side = [(x + 0.5 * (dx - dy), y + 0.5 * (dy + dx)), (x + 0.5 * (dx + dy), y + 0.5 * (dy - dx))]
            axis.add_patch(Polygon([(x, y), *side], facecolor=colour, edgecolor="#888888", linewidth=0.4))
            axis.text(
                x + 0.31 * dx,
                y + 0.31 * dy,
                number(round(float(value), 2), 2),
                ha="center",
                va="center",
                fontsize=6.5,
                color=_ink(colour),
            )


def _colour_bar(axes: list[Axes], scale: Normalize, colours: str, text: str) -> None:
    from matplotlib.cm import ScalarMappable

    bar = axes[0].figure.colorbar(ScalarMappable(scale, colours), ax=axes, shrink=0.85, label=text)
    sizes = [mantissa * 10.0**exponent for exponent in range(1, 7) for mantissa in (1, 3)]
    low, high = scale.vmin or 0.0, scale.vmax or 0.0
    ticks = [tick for tick in (*(-size for size in sizes), 0.0, *sizes) if low <= tick <= high]
    bar.set_ticks(ticks, labels=[number(tick) for tick in ticks])
    bar.minorticks_off()
