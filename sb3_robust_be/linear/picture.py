"""The objectives of a problem with one weight, as curves and as a figure (the paper's figures 1 and 3)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be.linear import objectives, projected
from sb3_robust_be.linear.problems import Problem

Floats = NDArray[np.float64]


def curves(problem: Problem, theta: Floats, tau: float) -> dict[str, dict[str, Floats]]:
    """Objectives along ``theta`` ``(n,)``: those of the whole error, and those of the projected one.

    :raises ValueError: If the problem has more than one weight.
    """
    if problem.n_features != 1:
        raise ValueError(f"problem {problem.name} has {problem.n_features} weights; give one with a single weight.")
    points = np.asarray(theta, dtype=np.float64)[:, None]
    return {
        "Bellman errors": {
            "MSVE": objectives.msve(problem, points),
            "MSBE": objectives.msbe(problem, points),
            f"MHBE, τ = {tau:g}": objectives.mhbe(problem, points, tau),
            "MABE": objectives.mabe(problem, points),
        },
        "Projected Bellman errors": {
            "MSPBE": projected.mspbe(problem, points),
            f"MHPBE, τ = {tau:g}": projected.mhpbe(problem, points, tau),
            "TDRC, β = 1": projected.tdrc_surface(problem, points),
        },
    }


def plot(problem: Problem, path: str | Path, tau: float, low: float = -1.5, high: float = 1.5) -> Path:
    """Draw :func:`curves` with dotted lines at the minima; the Bellman errors each from 0 to 1 over the range."""
    from matplotlib.figure import Figure

    if not low < high:
        raise ValueError(f"low is {low}, high {high}; give a range.")
    theta = np.linspace(low, high, 601)
    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    panels = curves(problem, theta, tau)
    axes = figure.subplots(1, len(panels))
    for axis, (title, lines), scaled in zip(axes, panels.items(), (True, False), strict=True):
        for (name, value), style in zip(lines.items(), ("-", "--", "-.", ":"), strict=False):
            shown = (value - value.min()) / np.ptp(value) if scaled else value
            (line,) = axis.plot(theta, shown, style, label=name)
            axis.axvline(theta[value.argmin()], color=line.get_color(), linestyle=":", linewidth=1.0)
        axis.set(title=f"{problem.name}: {title}", xlabel="weight θ", xlim=(low, high))
        axis.set_ylabel("objective, scaled to 0 … 1" if scaled else "objective")
        axis.legend(fontsize="small", loc="upper center", edgecolor="none")
        axis.spines[["top", "right"]].set_visible(False)
    target = Path(path)
    figure.savefig(target, dpi=150)
    return target
