"""What ``sb3-robust-be linear`` prints: rich tables where rich is installed, else plain lines."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

from sb3_robust_be.linear.fixed_points import OBJECTIVES, FixedPoint
from sb3_robust_be.linear.problems import Problem
from sb3_robust_be.linear.sweeps import Settings, SweepResult

Row = dict[str, Any]


def plain(value: Any) -> Any:
    """``value`` with JSON's types only: infinities and NaN become ``None``."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def fixed_point_row(problem: Problem, label: str, point: FixedPoint, least_errors: Mapping[str, float]) -> Row:
    """A solution with its value errors, relative to ``least_errors`` where these are not zero."""
    row: Row = {"objective": label, "theta": point.theta, "value": point.value}
    for name, least in least_errors.items():
        error = float(OBJECTIVES[name].value(problem, point.theta))
        row[name] = error
        row[f"{name}_relative"] = error / least if least > 1e-12 else float("nan")
    row |= {"certificate": point.certificate, "margin": point.margin}
    return row | {"iterations": point.iterations, "converged": point.converged}


def show_fixed_points(problem: Problem, rows: Sequence[Row]) -> None:
    header = ["objective", "value", "MSVE", "× best", "MAVE", "× best", "error", "margin", "theta"]
    lines = []
    for row in rows:
        keys = ("msve", "msve_relative", "mave", "mave_relative")
        errors = [_number(row[key], ".3g") for key in keys]
        checks = [f"{row['certificate']:.0e}{'' if row['converged'] else ' !'}", _number(row["margin"], ".2g")]
        theta = " ".join(f"{weight:.4g}" for weight in row["theta"])
        lines.append([row["objective"], f"{row['value']:.3g}", *errors, *checks, theta])
    _print_table(f"{problem.name}: minimisers", header, lines)
    if not all(row["converged"] for row in rows):
        print("!: the solver did not reach its tolerance on the error: gradient or duality gap")


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


def sweep_rows(result: SweepResult, names: Sequence[str]) -> list[Row]:
    """Per algorithm: its best cell, and its sensitivity to ``α`` at the best ``η`` of each ``α``."""
    rows = []
    seeds = result.auc.shape[-1]
    for k, name in enumerate(names):
        a, e = result.best(k)
        mean = result.auc[k].mean(axis=-1)
        cell = result.auc[k, a, e]
        error = float(cell.std(ddof=1) / np.sqrt(seeds)) if seeds > 1 and np.isfinite(cell).all() else float("nan")
        rows.append(
            {
                "algorithm": name,
                "alpha": result.settings.alphas[a],
                "eta": result.settings.etas[e],
                "auc": float(mean[a, e]),
                "auc_standard_error": error,
                "final": float(result.final[k, a, e].mean()),
                "diverged_fraction": float((result.diverged_at[k] > 0).mean()),
                "auc_by_alpha": mean.min(axis=1),
            }
        )
    return rows


def show_sweep(problem: Problem, settings: Settings, rows: Sequence[Row]) -> None:
    metric = settings.metric.upper()
    header = ["algorithm", "alpha", "eta", f"mean {metric}", "± s.e.", f"final {metric}", "diverged"]
    lines = []
    for row in rows:
        numbers = [_number(row[key], ".4g") for key in ("auc", "auc_standard_error", "final")]
        steps = [_power_of_two(row["alpha"]), _power_of_two(row["eta"])]
        lines.append([row["algorithm"], *steps, *numbers, f"{100 * row['diverged_fraction']:.0f} %"])
    cells = f"{len(settings.alphas)} × {len(settings.etas)}"
    title = f"{problem.name}: best of {cells} step sizes, {len(settings.seeds)} seeds, {settings.steps} updates"
    _print_table(title, header, lines)


def _power_of_two(value: float) -> str:
    mantissa, exponent = math.frexp(value)
    return f"2^{exponent - 1}" if mantissa == 0.5 else f"{value:g}"


def _print_table(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    if find_spec("rich") is None:
        print(title)
        widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
        for line in (header, *lines):
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    for name in header:
        table.add_column(name, overflow="fold", no_wrap=name != "theta", min_width=10 if name == "theta" else None)
    for line in lines:
        table.add_row(*line)
    # A pipe or a file has no width of its own.
    Console(width=None if sys.stdout.isatty() else 120).print(table)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float], None]]:
    """A function that shows a fraction from 0 to 1 on stderr: a rich bar on a terminal, or a line for each tenth
    without rich."""
    if find_spec("rich") is None:
        shown = 0

        def show(fraction: float) -> None:
            nonlocal shown
            if int(10 * fraction) > shown:
                shown = int(10 * fraction)
                print(f"{title}: {10 * shown} %", file=sys.stderr, flush=True)

        yield show
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda fraction: bar.update(task, completed=fraction)
