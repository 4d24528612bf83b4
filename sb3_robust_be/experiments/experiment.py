"""The class of an experiment: its sizes, the runs of each, and the analysis of their results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sb3_robust_be.evaluation import Verdict
from sb3_robust_be.experiments.rows import RUN_SPEC, Row, Rows, key_of
from sb3_robust_be.report.environment import HARDWARE
from sb3_robust_be.runner.specs import Spec, run_id
from sb3_robust_be.runner.store import load_arrays, load_failures, load_origin, load_results

ScaleName = Literal["smoke", "laptop", "long", "paper"]
SCALES: tuple[ScaleName, ...] = ("smoke", "laptop", "long", "paper")
"""``long``: hours on two cores; in control the paper's number of steps with fewer seeds and settings. Some have no such
size"""

SELECTION, REPORTED = "selection", "reported"
"""The stages of an experiment: runs that choose settings, and those that are reported"""

_DIGEST_DIGITS = 8


class Reading(NamedTuple):
    """A choice that this reproduction makes where the paper contradicts itself or is silent."""

    question: str
    readings: tuple[str, ...]
    default: str
    why: str
    scales: tuple[ScaleName, ...] = ()
    """The sizes that do it so; empty: all"""


class Run(NamedTuple):
    """A run: its spec, and its named columns in the table of results."""

    names: Row
    """Its columns in the table of results, as far as they are known before it is made: ``stage``, ``domain``,
    ``contender``, ``setting``, ``seed``, ``steps``; text, numbers and mappings, by which its rows are found again"""
    spec: Spec
    """What the runner executes"""

    @property
    def digest(self) -> str:
        """Eight digits that tell its spec from others, for :data:`~sb3_robust_be.experiments.rows.RUN_SPEC`.

        Without the seed where that is among the names: alike for all seeds, it adds next to nothing to a table.
        """
        named = "seed" in self.spec and self.names.get("seed") == self.spec["seed"]
        return run_id({**self.spec, "seed": None} if named else self.spec)[:_DIGEST_DIGITS]


class Results:
    """The ended runs in a folder, and rows that are known from elsewhere.

    :param out: The folder.
    :param known: Rows of runs that need not be made, such as those of a published table.
    """

    def __init__(self, out: str | Path, known: Rows = ()) -> None:
        self.out = Path(out)
        self.known = list(known)

    def result(self, spec: Spec) -> dict[str, Any] | None:
        """The result of a run; ``None`` if it is not done."""
        return load_results(self.out, [spec])[0]

    def failure(self, spec: Spec) -> dict[str, Any] | None:
        """The recorded failure of a run; ``None`` if it has not failed."""
        return load_failures(self.out, [spec])[0]

    def arrays(self, spec: Spec, name: str = "curve") -> dict[str, Any]:
        """The arrays of a finished run."""
        return load_arrays(self.out, spec, name)

    def origin(self, spec: Spec) -> dict[str, Any]:
        """Where and when an ended run was made, as far as that is known: ``hardware``, ``versions`` and ``date``."""
        noted, date = load_origin(self.out, spec)
        facts = {name: f"{name}: {value}" for name, value in noted.items()}
        hardware = "; ".join(fact for name, fact in facts.items() if name in HARDWARE)
        versions = "; ".join(fact for name, fact in facts.items() if name not in HARDWARE)
        found = {"hardware": hardware, "versions": versions, "date": date}
        return {column: value for column, value in found.items() if value}


@dataclass
class Analysis:
    """What a report shows of an experiment."""

    verdicts: list[Verdict] = field(default_factory=list)
    plots: list[Any] = field(default_factory=list)
    """Of :class:`~sb3_robust_be.report.Plot`"""
    tables: list[Any] = field(default_factory=list)
    """Of :class:`~sb3_robust_be.report.Table`"""
    notes: list[str] = field(default_factory=list)
    pictures: tuple[str, ...] = ()
    """The names of the figures that carry the page; empty: the first three"""


Plan = Callable[[Any, Rows], list[Run]]
Measure = Callable[[Run, Results], list[Row]]
Analyse = Callable[[Any, Rows], Analysis]


def _nothing_to_check(preset: Any) -> None:
    pass


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments, or a user's own: functions around a table of rows.

    :param name: In commands.
    :param figure: Where the paper has it.
    :param summary: One sentence.
    :param claims: The paper's, in words.
    :param presets: The sizes by name; of any type that ``plan`` and ``analyse`` take.
    :param plan: ``(preset, rows) -> `` all runs that can be known from the rows that there are. Runs that depend on the
        rows of others, such as those at a chosen setting, are left out until these are there.
    :param measure: ``(run, results) -> `` the rows of a run that is done, without the run's own names: mostly one.
    :param analyse: ``(preset, rows) -> `` what the report shows, from the rows alone.
    :param readings: Where the paper leaves a choice.
    :param check: ``(preset) -> None``, called before the first run: raises ``ValueError`` for what could not be run.
    :param partial: Whether ``analyse`` takes the rows of some of the runs as well, so that there can be a report while
        others are still to be made.
    :param names_of_0_1: What contenders of tables of 0.1, whose rows have no ``run_spec``, are called now, if their
        names have come to mean something else.
    """

    name: str
    figure: str
    summary: str
    claims: tuple[str, ...]
    presets: Mapping[str, Any]
    plan: Plan
    measure: Measure
    analyse: Analyse
    readings: tuple[Reading, ...] = ()
    check: Callable[[Any], None] = _nothing_to_check
    partial: bool = False
    names_of_0_1: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # What has been renamed is seen again, and must stay what it is.
        if chain := self.names_of_0_1.keys() & set(self.names_of_0_1.values()):
            raise ValueError(f"names_of_0_1 has {sorted(chain)} as names of 0.1 and as names of today; give others.")

    def preset(self, scale: str) -> Any:
        """
        :param scale: One of the presets' names.
        :raises ValueError: If there is no such preset.
        """
        if scale not in self.presets:
            raise ValueError(f"scale is {scale!r}; {self.name} has {', '.join(self.presets)}.")
        return self.presets[scale]

    def collect(self, preset: Any, results: Results) -> list[Row]:
        """The table of an experiment: a row, or several, for each run that has ended.

        :param preset: The experiment's size.
        :param results: Of its runs, as far as they have been made.
        :return: The known rows, then those of the folder; when all runs have ended, those of the plan's runs alone. A
            run that failed has one row, with its error as ``failed``.
        :raises ValueError: As :meth:`rows_of`.
        """
        return self.collect_with_missing(preset, results)[0]

    def collect_with_missing(self, preset: Any, results: Results) -> tuple[list[Row], list[Run]]:
        """The table of :meth:`collect`, and the runs that are known by now and have not ended.

        :param preset: The experiment's size.
        :param results: Of its runs, as far as they have been made.
        :return: Rows, and runs without one. When all have ended the rows are those of the plan's runs alone: a table
            that was begun with other settings to choose from may have rows of some that are not chosen any more.
        :raises ValueError: As :meth:`rows_of`.
        """
        runs, rows = self.planned(preset, results.known)
        while True:
            missing = without_rows(runs, rows)
            if not missing:
                return of_runs(runs, rows), missing
            new = self.rows_of(missing, results)
            if not new:
                return rows, missing
            runs, rows = self.planned(preset, [*rows, *new])

    def planned(self, preset: Any, rows: Rows) -> tuple[list[Run], list[Row]]:
        """The plan from rows of which some may be of other runs that had the same names.

        :param preset: The experiment's size.
        :param rows: Of the runs so far, or of a table that was made before the experiment was changed.
        :return: All runs that can be known from the rows, and the rows without those that were made with other
            arguments than the run of their names has now.
        """
        fitting = [row if RUN_SPEC in row else self._with_todays_name(row) for row in rows]
        while True:
            runs, before = self.plan(preset, fitting), len(fitting)
            fitting = without_other_runs(runs, fitting)
            if len(fitting) == before:
                return runs, fitting

    def _with_todays_name(self, row: Row) -> Row:
        name = self.names_of_0_1.get(str(row.get("contender")))
        return row if name is None else {**row, "contender": name}

    def rows_of(self, runs: Iterable[Run], results: Results) -> list[Row]:
        """
        :param runs: Of a plan.
        :param results: Of their folder.
        :return: The rows of those that have ended there.
        :raises ValueError: If ``measure`` gives no row of a run, or one of the run's own names.
        """
        return [row for run in runs for row in self._rows_of_run(run, results)]

    def _rows_of_run(self, run: Run, results: Results) -> list[Row]:
        failure = results.failure(run.spec)
        if failure is not None:
            found: list[Row] = [{"failed": failure["error"]}]
        elif results.result(run.spec) is not None:
            found = self.measure(run, results)
        else:
            return []
        if not found:
            raise ValueError(f"{self.name}'s measure gives no row of a run that is done; give at least one.")
        own: Row = {"experiment": self.name, **run.names}
        if clash := [name for row in found for name in row.keys() & {*run.names, RUN_SPEC}]:
            raise ValueError(f"{self.name}'s measure gives {clash[0]!r}, which is among the names of the run already.")
        after = {RUN_SPEC: run.digest, **results.origin(run.spec)}
        return [{**own, **row, **after} for row in found]


def without_rows(runs: Iterable[Run], rows: Rows) -> list[Run]:
    """
    :param runs: Of a plan.
    :param rows: Of a table.
    :return: The runs that are still to be made: no row has all of their names.
    """
    seen: dict[tuple[str, ...], set[tuple[Any, ...]]] = {}
    missing = []
    for run in runs:
        columns = tuple(run.names)
        if columns not in seen:
            seen[columns] = {key_of(row, columns) for row in rows}
        if key_of(run.names, columns) not in seen[columns]:
            missing.append(run)
    return missing


def of_runs(runs: Iterable[Run], rows: Rows) -> list[Row]:
    """
    :param runs: Of a plan.
    :param rows: Of a table.
    :return: The rows that have all the names of one of the runs.
    """
    named: dict[tuple[str, ...], set[tuple[Any, ...]]] = {}
    for run in runs:
        named.setdefault(tuple(run.names), set()).add(key_of(run.names, run.names))
    return [row for row in rows if any(key_of(row, columns) in own for columns, own in named.items())]


_SAME_RUN = ("stage", "domain", "seed", "steps")
"""The names that equal runs have in common, whatever they are called"""
RUN_NAMES = (*_SAME_RUN, "contender", "setting")
"""The names of a run whose rows experiments share"""
_CALLED = ("experiment", "contender", "setting")


def rows_of_same_runs(runs: Iterable[Run], rows: Rows, experiment: str) -> list[Row]:
    """
    :param runs: Without rows of their own.
    :param rows: Of other contenders or experiments, with the same measure. Those of runs that failed, or that do not
        say with which spec they were made, are of no use.
    :param experiment: The name of the runs' own.
    :return: The rows of the same runs, those with the same spec, stage and seed, under the names of these.
    """
    known: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if RUN_SPEC in row and "failed" not in row:
            known.setdefault((row[RUN_SPEC], *key_of(row, _SAME_RUN)), []).append(row)
    found = []
    for run in runs:
        same = known.get((run.digest, *key_of(run.names, _SAME_RUN)), [])
        # Several contenders may have it: the rows of one of them. One whose setting has the same arguments comes first:
        # it has chosen from the same runs, and may have what is reported as well.
        same = sorted(same, key=lambda row: key_of(row, ("setting",)) != key_of(run.names, ("setting",)))
        of_one = [row for row in same if key_of(row, _CALLED) == key_of(same[0], _CALLED)]
        found += [{**row, "experiment": experiment, **run.names} for row in of_one]
    return found


def without_other_runs(runs: Iterable[Run], rows: Rows) -> list[Row]:
    """
    :param runs: Of a plan.
    :param rows: Of a table.
    :return: The rows without those that were made with another spec than every run of their names has. A row that does
        not say with which, as in older tables, is taken by its names.
    """
    if not any(RUN_SPEC in row for row in rows):
        return list(rows)
    named: dict[tuple[str, ...], dict[tuple[Any, ...], list[Run]]] = {}
    for run in runs:
        columns = tuple(run.names)
        named.setdefault(columns, {}).setdefault(key_of(run.names, columns), []).append(run)

    @functools.cache  # A run may have many rows.
    def digests(columns: tuple[str, ...], key: tuple[Any, ...]) -> frozenset[str]:
        return frozenset(run.digest for run in named[columns].get(key, ()))

    def fits(row: Row) -> bool:
        own = frozenset[str]().union(*(digests(columns, key_of(row, columns)) for columns in named))
        return not own or row[RUN_SPEC] in own

    return [row for row in rows if RUN_SPEC not in row or fits(row)]


def distinct_runs(runs: Iterable[Run]) -> list[Run]:
    """
    :param runs: Of several parts of an experiment, which may share some.
    :return: Each once, by its names, in the order in which they first appear.
    """
    return list({key_of(run.names, run.names): run for run in runs}.values())


def name_of(row: Row) -> str:
    """
    :param row: Of a table, or the names of a run.
    :return: Enough to find the run by: its domain, contender, stage and seed.
    """
    seed = f"seed {row['seed']}" if "seed" in row else ""
    return ", ".join(filter(None, [row.get("domain", ""), row.get("contender", ""), row.get("stage", ""), seed]))


def distinct_specs(runs: Iterable[Run]) -> list[Spec]:
    """The specs to execute, each once: contenders may share a run.

    DQN with the threshold ∞ and DQN with the squared loss are an example.
    """
    return list({run_id(run.spec): run.spec for run in runs}.values())
