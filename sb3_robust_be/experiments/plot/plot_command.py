"""The command: reads logs, prints the table and writes the figures."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sb3_robust_be import report
from sb3_robust_be.experiments.options import exit_code
from sb3_robust_be.experiments.plot import plot_figures
from sb3_robust_be.experiments.plot.labelled_runs import LOGS, Labelled, labelled_runs, split_label
from sb3_robust_be.experiments.plot.measured_runs import (
    EP_REW_MEAN,
    Measured,
    by_environment,
    check_measure,
    in_words,
    measured,
)
from sb3_robust_be.experiments.plot.run_measures import EPISODES
from sb3_robust_be.report import Report
from sb3_robust_be.system import store_error, write_atomically

PROGRAM = "sb3-robust-be plot"
RETURN = "return"
MADE_OF = "plot.json"
"""Says of which logs the plot in a folder was made"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Learning curves, distributions and diagnostics of runs that you have made, with `train` or with "
        "any script that uses Stable-Baselines3, and a table of them. The exit code is 1 if something could not be "
        "read; the rest is drawn.",
    )
    parser.add_argument(
        "logs",
        nargs="+",
        metavar="[LABEL=]LOGS",
        help=f"a folder, a file or a pattern such as dqn='logs/dqn/*'; below a folder each run is found that has "
        f"{LOGS}. Without a label a run is called by its algorithm, or else by the folder",
    )
    parser.add_argument("--steps", type=int, metavar="N", help="take nothing after step N (default: see the output)")
    parser.add_argument(
        "--measure",
        default=RETURN,
        help=f"{RETURN}: of the episodes in Monitor files, else {EP_REW_MEAN}; or any other entry of SB3's log, as "
        "eval/mean_reward (default: %(default)s)",
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="of the figures (default: plots/LABELS)")
    return parser


def main(argv: list[str]) -> int:
    """
    :param argv: The command's arguments.
    :return: The exit code: 1 if something could not be read, 2 if nothing could.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    if args.steps is not None and args.steps < 1:
        parser.error(f"--steps is {args.steps}; give at least 1 step.")
    return exit_code(PROGRAM, lambda: _plot(args, f"{PROGRAM} {shlex.join(argv)}"))


def _plot(args: argparse.Namespace, command: str) -> int:
    logs = labelled_runs(args.logs)
    for problem in logs.problems:
        print(f"{PROGRAM}: {problem}", file=sys.stderr)
    if not logs.runs:
        raise ValueError(f"no run was found. Name folders that have {LOGS}, or some below them.")
    measure = EPISODES if args.measure == RETURN else args.measure
    check_measure(logs.runs, measure)
    runs = by_environment(logs.runs)
    panels = {env: measured(own, measure, args.steps) for env, own in runs.items()}
    drawn = {env: panel for env, panel in panels.items() if panel.curves}
    tabled = {env: panel for env, panel in drawn.items() if panel.finals}
    if not tabled:
        ends = max(panel.steps for panel in drawn.values())
        raise ValueError(
            f"no log has anything in the last quarter of its steps; the longest ends at step {ends}. Give a smaller "
            "--steps, or logs with more than one record."
        )
    made_of = _made_of(args)
    folder = _folder(args.out, logs, made_of)
    table = plot_figures.table(tabled, measure)
    notes = [*_about_environments(runs), *logs.notes, *_notes(panels), *_about_seeds(tabled)]
    print(f"\n{table.caption}, {_where(tabled)}:\n\n{table.text()}")
    print("".join(f"\n{note}" for note in notes))
    of_diagnostics = plot_figures.diagnostics(runs, args.steps)
    page = Report(
        title=f"{in_words(measure)}: {', '.join(logs.runs)}",
        name="plot",
        plots=[
            plot_figures.curves("learning-curves", drawn, measure),
            plot_figures.distributions(tabled, measure),
            *([of_diagnostics] if of_diagnostics else []),
        ],
        tables=[table],
        failures=[("could not be read", problem) for problem in logs.problems],
        command=command,
        notes=notes,
    )
    _claim(folder, made_of)
    path = report.write(page, folder)
    print(f"\nPage: {path}\nFigures as PNG, SVG and CSV: {folder / page.name}")
    return int(bool(logs.problems))


def _where(panels: Mapping[str, Measured]) -> str:
    return "; ".join(f"{env} before step {panel.until}" for env, panel in panels.items())


def _about_environments(runs: Mapping[str, Any]) -> list[str]:
    if len(runs) == 1:
        return []
    return [
        f"Warning: the runs are of several environments, {', '.join(runs)}. They are drawn apart, and none is averaged."
    ]


def _notes(panels: Mapping[str, Measured]) -> list[str]:
    return [f"{env}: {note}" if len(panels) > 1 else note for env, panel in panels.items() for note in panel.notes]


def _about_seeds(panels: Mapping[str, Measured]) -> list[str]:
    single = dict.fromkeys(label for panel in panels.values() for label, own in panel.finals.items() if len(own) == 1)
    return [f"One seed has no interval: {', '.join(single)}."] if single else []


def _made_of(args: argparse.Namespace) -> bytes:
    """What tells a plot from another: the logs by their whole paths, and the arguments."""
    sources = [[label, str(Path(pattern).absolute())] for label, pattern in map(split_label, args.logs)]
    return json.dumps({"logs": sources, "measure": args.measure, "steps": args.steps}, indent=1).encode()


def _folder(out: Path | None, logs: Labelled, made_of: bytes) -> Path:
    """Where the figures go: a folder that has nothing but an earlier plot of the same logs.

    :raises ValueError: If the folder that was given has something else.
    """
    if out is None:
        name = re.sub(r"[^\w.+-]+", "-", "-".join(logs.runs))[:60].strip("-.") or "logs"
        return next(path for path in _numbered(Path("plots") / name) if _is_free(path, made_of))
    if not _is_free(out, made_of):
        raise ValueError(
            f"--out {out} has something else than a plot of the same logs with the same arguments; give another folder."
        )
    return out


def _claim(folder: Path, made_of: bytes) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error(error, folder) from error
    write_atomically(folder / MADE_OF, made_of)


def _numbered(path: Path) -> Iterable[Path]:
    yield path
    number = 2
    while True:
        yield path.with_name(f"{path.name}-{number}")
        number += 1


def _is_free(folder: Path, made_of: bytes) -> bool:
    if not folder.exists():
        return True
    marker = folder / MADE_OF
    return folder.is_dir() and (not any(folder.iterdir()) or (marker.is_file() and marker.read_bytes() == made_of))
