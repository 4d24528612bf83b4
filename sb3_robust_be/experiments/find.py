"""Finds the experiment that a command names, its folder, and how many of its runs are done."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
from pathlib import Path

from sb3_robust_be.experiments.declared import load_declared, names
from sb3_robust_be.experiments.experiment import REPORTED, RUN_NAMES, Experiment, Results, Run, without_rows
from sb3_robust_be.experiments.publish import find_table
from sb3_robust_be.experiments.rows import RUN_SPEC, Row, Rows, key_of, read_rows, write_rows
from sb3_robust_be.runner.specs import Spec, dumps
from sb3_robust_be.runner.store import Counts, status

ALL = "all"
_KNOWN = "known"
_SHARED = "shared"
"""Rows that other experiments have of the same runs"""


def find(name: str) -> Experiment:
    """
    :param name: Of a declared experiment, or the path of a Python or YAML file.
    """
    path = Path(name)
    return load_experiment(path) if path.suffix in (".py", ".yml", ".yaml") else load_declared(name)


def load_experiment(path: Path) -> Experiment:
    """Load a user's own experiment from a file.

    :param path: A Python file that defines ``EXPERIMENT``, or a YAML file (see
        :func:`~sb3_robust_be.experiments.control.yaml_file.from_yaml`).
    :raises ValueError: If the file does not describe one.
    """
    if path.suffix in (".yml", ".yaml"):
        from sb3_robust_be.experiments.control.yaml_file import from_yaml

        return from_yaml(path)
    module_spec = importlib.util.spec_from_file_location(path.stem, path)
    if module_spec is None or module_spec.loader is None:
        raise ValueError(f"{path} is no Python or YAML file; give one that ends in .py, .yml or .yaml.")
    module = importlib.util.module_from_spec(module_spec)
    # Dataclasses look their module up.
    sys.modules[path.stem] = module
    module_spec.loader.exec_module(module)
    found = getattr(module, "EXPERIMENT", None)
    if not isinstance(found, Experiment):
        raise ValueError(f"{path} defines no EXPERIMENT of type Experiment; see sb3_robust_be.experiments.experiment.")
    return found


def find_all(name: str) -> list[Experiment]:
    """
    :param name: As for :func:`find`, or ``"all"``: all that are declared.
    """
    return [load_declared(one) for one in names()] if name == ALL else [find(name)]


def folder(out: str | Path, experiment: Experiment, scale: str) -> Path:
    """The folder of an experiment's runs.

    :param out: Of all experiments.
    """
    return Path(out) / f"{experiment.name}-{scale}"


def results_in(out: Path) -> Results:
    """What has been found in a folder of runs: by the runs there, or by others whose rows were given to it."""
    known = _rows_in(out, _KNOWN)
    # What was shared may have been published since as the experiment's own, but is in no older table: its rows have no
    # run_spec, and its names may have come to mean something else.
    named = {key_of(row, RUN_NAMES) for row in known if RUN_SPEC in row}
    return Results(out, [*known, *(row for row in _rows_in(out, _SHARED) if key_of(row, RUN_NAMES) not in named)])


def _rows_in(out: Path, name: str) -> list[Row]:
    while (table := find_table(out / name)) is not None:
        with contextlib.suppress(FileNotFoundError):  # another shard has just written it with the other ending
            return read_rows(table)
    return []


def keep_known(out: Path, rows: Rows) -> None:
    """Go on in a folder from the rows of runs that were made elsewhere. Those that failed there are made again here.

    :param out: The folder of an experiment's runs.
    :param rows: Of a published table.
    :raises ValueError: If the folder goes on from rows already that are not among these.
    """
    done = [row for row in rows if "failed" not in row]
    given = {_without_run_spec(row) for row in done}
    lost = [row for row in _rows_in(out, _KNOWN) if _without_run_spec(row) not in given]
    if lost:
        raise ValueError(f"{out} goes on from {len(lost)} rows that are not in the table given; give another --out.")
    out.mkdir(parents=True, exist_ok=True)
    write_rows(out / _KNOWN, done)


def keep_shared(out: Path, rows: Rows) -> None:
    """Go on in a folder from rows that other experiments have of the same runs.

    :param out: The folder of an experiment's runs.
    :param rows: Under the names of its own runs, beside those that it goes on from already.
    """
    out.mkdir(parents=True, exist_ok=True)
    # Of each run once: several shards may find them.
    named = {key_of(row, RUN_NAMES) for row in rows}
    before = [row for row in _rows_in(out, _SHARED) if key_of(row, RUN_NAMES) not in named]
    write_rows(out / _SHARED, [*before, *rows])


def _without_run_spec(row: Row) -> str:
    """A row as text. Older tables do not say with which spec; the same one published again does."""
    return dumps({name: value for name, value in row.items() if name != RUN_SPEC}, "row")


def command_line(verb: str, args: argparse.Namespace, experiment: Experiment) -> str:
    """The command line that runs, reports or publishes the experiment."""
    name = args.name if args.name != ALL else experiment.name
    return f"sb3-robust-be experiment {verb} {name} --scale {args.scale} --out {args.out}"


def ended(out: Path, specs: list[Spec]) -> bool:
    """Whether every run is done or has failed."""
    counts = status(out, specs)
    return counts.running + counts.left == 0


def collected(experiment: Experiment, scale: str, results: Results) -> tuple[list[Row], list[Run]]:
    """
    :param experiment: Any.
    :param scale: Of its presets.
    :param results: Of its runs so far.
    :return: The rows of the runs that have ended, and those of the runs known by now that have not.
    """
    return experiment.collect_with_missing(experiment.preset(scale), results)


def stage_of(run: Run) -> str:
    """``"selection"`` or ``"reported"``; a run that does not say is reported."""
    return str(run.names.get("stage", REPORTED))


def stage_counts(experiment: Experiment, scale: str, results: Results) -> dict[str, Counts]:
    """Count the runs that are known by now, by stage. Contenders that share a run have one each."""
    preset = experiment.preset(scale)
    rows = experiment.collect(preset, results)
    runs = experiment.plan(preset, rows)
    missing = without_rows(runs, rows)
    unfinished = without_rows(runs, [row for row in rows if "failed" not in row])
    found = {}
    for stage in dict.fromkeys(map(stage_of, runs)):
        total, open_runs, without_result = (
            [run for run in of if stage_of(run) == stage] for of in (runs, missing, unfinished)
        )
        running = status(results.out, [run.spec for run in open_runs]).running
        found[stage] = Counts(
            done=len(total) - len(without_result),
            failed=len(without_result) - len(open_runs),
            running=running,
            left=len(open_runs) - running,
        )
    return found
