"""The runs of an experiment, round after round, until its plan has nothing left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sb3_robust_be.experiments.declared import load_declared, names
from sb3_robust_be.experiments.environments import check_environments
from sb3_robust_be.experiments.experiment import (
    Experiment,
    Results,
    distinct_specs,
    name_of,
    of_runs,
    rows_of_same_runs,
    without_rows,
)
from sb3_robust_be.experiments.find import find, folder, keep_known, keep_shared, results_in
from sb3_robust_be.experiments.options import RETRY, Execution, execute, start_fresh
from sb3_robust_be.experiments.publish import load, published
from sb3_robust_be.experiments.rows import RUN_SPEC, Row, Rows
from sb3_robust_be.runner.store import status

_SHOWN_FAILURES = 20
_FRESH = "fresh"
"""A file in the folder of an experiment that takes no runs from others"""


class Ran(NamedTuple):
    """What has become of an experiment's runs."""

    rows: list[Row]
    """Of all that have ended, in this call or before; of those that are planned when none is left"""
    failed: int
    """How many of this call's rounds have failed"""
    left: int
    """How many other shards have left, without which there is no next round; 0: all are done"""


def run(
    experiment: str | Experiment,
    scale: str = "laptop",
    out: str | Path = "experiments",
    *,
    source: str | Path | None = None,
    **execution: Any,
) -> Ran:
    """Make the runs of an experiment that are not done: ``sb3-robust-be experiment run`` from Python.

    :param experiment: Itself, its name, or the path of a Python or YAML file.
    :param scale: Of its presets.
    :param out: The folder of all experiments.
    :param source: A folder of published tables, whose runs need not be made: those of the experiment, and those of
        others at this scale that are the same.
    :param execution: Of :class:`~sb3_robust_be.experiments.options.Execution`, such as ``jobs=4``.
    :return: The rows, from which :func:`~sb3_robust_be.experiments.report` makes a page.
    """
    found = experiment if isinstance(experiment, Experiment) else find(experiment)
    where, how = folder(out, found, scale), Execution(**execution)
    preset = found.preset(scale)
    start_fresh(how, where)
    elsewhere: list[Row] = []
    if source is not None:
        elsewhere = [] if how.fresh else _rows_of_others(found, scale, Path(source))
        # Where others have some, an experiment of which nothing is published yet can begin with these.
        if not elsewhere or (found.name, scale) in published(Path(source)):
            given = load(Path(source), found.name, scale)
            keep_known(where, given)
            elsewhere += given
            if nameless := sum(RUN_SPEC not in row for row in given):
                print(
                    f"{nameless} of {len(given)} rows in {source} do not say with which arguments they were made, as "
                    "older tables do not: they are taken by their names and settings alone, and where a name has come "
                    "to mean something else, under today's."
                )
    if how.fresh:
        # Also for the commands that go on after an interruption.
        where.mkdir(parents=True, exist_ok=True)
        (where / _FRESH).touch()
    if (where / _FRESH).exists():
        return make_runs(found, preset, results_in(where), how)
    # Those of other scales are other runs, and folders that were set aside have a date behind their scale.
    others = sorted(where.parent.glob(f"*-{scale}"))
    return make_runs(found, preset, results_in(where), how, others=others, elsewhere=elsewhere)


def _rows_of_others(experiment: Experiment, scale: str, source: Path) -> list[Row]:
    """The published rows of other declared experiments whose runs have the same columns."""
    there = [name for name, size in published(source) if size == scale and name in names() and name != experiment.name]
    return [
        row for name in there if load_declared(name).measure is experiment.measure for row in load(source, name, scale)
    ]


def make_runs(
    experiment: Experiment,
    preset: Any,
    results: Results,
    how: Execution,
    named: Callable[[Row], str] = name_of,
    before_round: Callable[[list[Row]], None] = lambda names: None,
    others: Sequence[Path] = (),
    elsewhere: Rows = (),
) -> Ran:
    """
    :param experiment: Whose runs.
    :param preset: Its size.
    :param results: Of the runs so far, and where they lie.
    :param how: They are executed.
    :param named: What a failed run is called.
    :param before_round: Called with the names of a round's runs.
    :param others: Folders of other experiments, whose finished runs are copied where they are the same.
    :param elsewhere: Rows of other experiments or contenders, which are taken where their runs are the same.
    :return: After as many rounds as there are; each one may depend on what those before it have found.
    """
    rows, failed, checked = list(results.known), 0, False
    # From the rows of finished rounds alone: shards then agree on what they share, whenever they are started.
    while True:
        planned, fitting = experiment.planned(preset, rows)
        if left_out := len(rows) - len(fitting):
            print(
                f"{left_out} rows that were known are left out: the runs of their names have other arguments now, and "
                "are made again."
            )
        rows = fitting
        if not (runs := without_rows(planned, rows)):
            own = of_runs(planned, rows)
            if left_out := len(rows) - len(own):
                print(f"{left_out} rows that were known are left out: their runs are not planned any more.")
            return Ran(own, failed, 0)
        if same := rows_of_same_runs(runs, elsewhere, experiment.name):
            print(f"{len(same)} rows are those of other experiments or contenders, whose runs are the same.")
            keep_shared(results.out, same)
            rows += same
            continue
        specs = distinct_specs(runs)
        if not checked:
            experiment.check(preset)
            checked = True
        check_environments(specs)
        before_round([run.names for run in runs])
        execute(specs, results.out, how, others)
        found = experiment.rows_of(runs, results)
        failed += _say_failures(found, named)
        rows += found
        counts = status(results.out, specs)
        if left := counts.running + counts.left:
            return Ran(rows, failed, left)


def _say_failures(rows: Rows, named: Callable[[Row], str]) -> int:
    """Print why runs have failed, each by its own name.

    :return: How many.
    """
    failed = [f"{named(row)}: {row['failed']}" for row in rows if "failed" in row]
    diverged = [
        f"{named(row)}: diverged at environment step {row['diverged_at']}, where its values became infinite or NaN"
        for row in rows
        if row.get("diverged_at") is not None
    ]
    told = [*failed, *diverged]
    for line in told[:_SHOWN_FAILURES]:
        print(line)
    if (more := len(told) - _SHOWN_FAILURES) > 0:
        print(f"{more} more runs have failed or diverged.")
    if failed:
        print(RETRY)
    return len(failed)
