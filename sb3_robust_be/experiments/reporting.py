"""Makes an experiment's report page from its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sb3_robust_be import report as pages
from sb3_robust_be.experiments.experiment import REPORTED, Experiment, Results, Run, name_of, without_rows
from sb3_robust_be.experiments.find import collected, find, folder, results_in
from sb3_robust_be.experiments.page_summary import page_summary
from sb3_robust_be.experiments.publish import load, published
from sb3_robust_be.experiments.rows import Row, Rows
from sb3_robust_be.report import Report

PAPER = "Patterson, Liao & White, Robust Losses for Learning Value Functions (TPAMI 2023)"
"""What the declared experiments reproduce"""
CONTROL = "control"
"""The experiment whose returns others are read beside, on the same environments"""


def report(
    experiment: str | Experiment,
    scale: str = "laptop",
    out: str | Path = "experiments",
    *,
    source: str | Path | None = None,
    png: bool = False,
) -> Path:
    """Write the page of an experiment: ``sb3-robust-be experiment report`` from Python.

    :param experiment: Itself, its name, or the path of a Python or YAML file.
    :param scale: Of its presets.
    :param out: The folder of all experiments; the page goes into a folder of reports there.
    :param source: A folder of published tables to make it from; ``None``: from the runs in ``out``.
    :param png: Whether the figures are written as PNG, too.
    :return: The page's path.
    :raises ValueError: If runs are missing.
    """
    found = experiment if isinstance(experiment, Experiment) else find(experiment)
    rows, missing = rows_of_all_runs(found, scale, out, source)
    if missing:
        raise ValueError(f"{runs_left(found, scale, missing, out, source)}; run it first.")
    run = f"sb3-robust-be experiment run {found.name} --scale {scale}"
    page = make_report(found, scale, rows, run, control_rows(found.name, scale, source))
    return pages.write(page, report_folder(out, scale, source), png)


def _results(experiment: Experiment, scale: str, out: str | Path, source: str | Path | None) -> Results:
    if source is None:
        return results_in(folder(out, experiment, scale))
    return Results(source, load(Path(source), experiment.name, scale))


def rows_of_all_runs(
    experiment: Experiment, scale: str, out: str | Path, source: str | Path | None
) -> tuple[list[Row], list[Run]]:
    """
    :param experiment: Any.
    :param scale: Of its presets.
    :param out: The folder of all experiments.
    :param source: A folder of published tables; ``None``: the runs in ``out``.
    :return: The rows, and the runs that have none.
    """
    return collected(experiment, scale, _results(experiment, scale, out, source))


def runs_left(
    experiment: Experiment, scale: str, missing: Sequence[Run], out: str | Path, source: str | Path | None
) -> str:
    """
    :param experiment: Any.
    :param scale: Of its presets.
    :param missing: Its runs that have no row, as :func:`rows_of_all_runs` finds them.
    :param out: As there.
    :param source: As there.
    :return: How many they are, and of how many there are rows that were made with other arguments.
    """
    said = f"{experiment.name} has at least {len(missing)} runs left at scale {scale}"
    known = _results(experiment, scale, out, source).known
    others = len(missing) - len(without_rows(missing, known))
    return f"{said}, {others} of which are known with other arguments than they have now" if others else said


def report_folder(out: str | Path, scale: str, source: str | Path | None) -> Path:
    """
    :param out: The folder of all experiments.
    :param scale: Of their presets.
    :param source: A folder of published tables; ``None``: the runs in ``out``.
    :return: Where the pages go.
    """
    return Path(out) / f"reports-{scale}{'' if source is None else '-published'}"


def control_rows(name: str, scale: str, source: str | Path | None) -> list[Row]:
    """
    :param name: Of an experiment.
    :param scale: Of its runs.
    :param source: A folder of published tables; ``None``: no rows.
    :return: The rows of ``control`` at the same scale; none for ``control`` itself, or where it has no table.
    """
    if source is None or name == CONTROL or (CONTROL, scale) not in published(Path(source)):
        return []
    return load(Path(source), CONTROL, scale)


def make_report(experiment: Experiment, scale: str, rows: Rows, command: str, control: Rows = ()) -> Report:
    """
    :param experiment: Of the rows.
    :param scale: Of its presets.
    :param rows: Of all its runs.
    :param command: That makes the runs.
    :param control: As :func:`hardware_notes` takes them.
    :return: What its page shows.
    """
    analysis = experiment.analyse(experiment.preset(scale), rows)
    readings = [
        f"{r.question} {' / '.join(r.readings)}. Here: {r.default}, {r.why}"
        for r in experiment.readings
        if not r.scales or scale in r.scales
    ]
    return Report(
        title=f"{experiment.summary} ({experiment.figure})",
        name=experiment.name,
        verdicts=analysis.verdicts,
        plots=analysis.plots,
        tables=analysis.tables,
        failures=[(name_of(row), row["failed"]) for row in rows if "failed" in row],
        command=command,
        versions=_facts(rows, "versions"),
        hardware=_facts(rows, "hardware"),
        notes=[*analysis.notes, *hardware_notes(rows, control), *_dates(rows)],
        summary=page_summary(rows, analysis.verdicts),
        pictures=analysis.pictures,
        claims=experiment.claims,
        readings=readings,
    )


def _facts(rows: Rows, column: str) -> dict[str, str]:
    """``name: value; …`` of all rows as a mapping; several values where runs were made with several."""
    found: dict[str, list[str]] = {}
    for text in dict.fromkeys(row.get(column, "") for row in rows):
        for fact in filter(None, text.split("; ")):
            name, _, value = fact.partition(": ")
            if value not in found.setdefault(name, []):
                found[name].append(value)
    return {name: " / ".join(values) for name, values in found.items()}


def hardware_notes(rows: Rows, control: Rows = ()) -> list[str]:
    """Which runs were made on which hardware, where they differ in it from one another or from those of ``control``.

    Rounding differs between processors, so that runs of equal seeds go apart, and their returns differ by chance.

    :param rows: Of an experiment.
    :param control: Rows of the experiment ``control``, which its returns are read beside.
    :return: A note for each of the two: on all runs of the experiment, and on the reported ones of both on the
        environments that both have. None where all that say it were made on the same hardware.
    """
    found = []
    machines = _machines(rows)
    if len(machines) > 1:
        parts = [f"On {_machine(one)}: {_runs_on(rows, one)}." for one in machines]
        found.append(f"Not all of these runs were made on the same hardware. {' '.join(parts)}")
    reported = [[row for row in of if row.get("stage", REPORTED) == REPORTED] for of in (rows, control)]
    both = {row.get("domain") for row in reported[0]} & {row.get("domain") for row in reported[1]}
    here, there = (_machines([row for row in of if row.get("domain") in both]) for of in reported)
    if here and there and set(here) != set(there):
        texts = [" and on ".join(map(_machine, of)) for of in (there, here)]
        found.append(
            f"The reported runs of `{CONTROL}` at this scale, on the same environments, were not all made on the same "
            f"hardware as these: they on {texts[0]}, these on {texts[1]}. With equal seeds the runs need not be equal."
        )
    return found


def _machines(rows: Rows) -> list[str]:
    """The hardware of rows that say it, in the order in which it first appears."""
    return list(dict.fromkeys(row["hardware"] for row in rows if row.get("hardware")))


def _machine(hardware: str) -> str:
    """``name: value; …`` as ``name value, …``."""
    return ", ".join(" ".join(fact.split(": ", 1)) for fact in hardware.split("; "))


def _runs_on(rows: Rows, machine: str) -> str:
    """Which runs were made on a machine: by stage, and where they are not all of that stage, which of it."""
    parts = []
    for stage in dict.fromkeys(row.get("stage", "") for row in rows):
        of_stage = [row for row in rows if row.get("stage", "") == stage]
        own = [row for row in of_stage if row.get("hardware") == machine]
        runs = f"{stage} runs".strip()
        if len(own) == len(of_stage):
            parts.append(f"all {runs}")
        elif own:
            parts.append(f"of the {runs} {_shares(of_stage, own)}")
    return "; ".join(parts)


def _shares(rows: Rows, some: Rows) -> str:
    """What some rows are of all: whole environments or contenders, if these tell them apart, or how many of each."""
    for column in ("domain", "contender"):
        names = [list(dict.fromkeys(str(row.get(column, "")) for row in of)) for of in (rows, some)]
        total, there = (Counter(str(row.get(column, "")) for row in of) for of in (rows, some))
        if len(names[0]) > 1 and all(there[name] == total[name] for name in names[1]):
            return f"those of {', '.join(map(pages.label, names[1]))}"
    return ", ".join(f"{there[name]} of {total[name]} of {pages.label(name)}" for name in names[1])


def _dates(rows: Rows) -> list[str]:
    dates = sorted({row["date"] for row in rows if "date" in row})
    if not dates:
        return []
    return [
        f"The runs were made on {dates[0]}."
        if len(dates) == 1
        else f"The runs were made from {dates[0]} to {dates[-1]}."
    ]
