"""Makes an experiment's report page from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sb3_robust_be import report as pages
from sb3_robust_be.experiments.experiment import Experiment, Results, Run, name_of, without_rows
from sb3_robust_be.experiments.find import collected, find, folder, results_in
from sb3_robust_be.experiments.page_summary import page_summary
from sb3_robust_be.experiments.publish import load
from sb3_robust_be.experiments.rows import Row, Rows
from sb3_robust_be.report import Report

PAPER = "Patterson, Liao & White, Robust Losses for Learning Value Functions (TPAMI 2023)"
"""What the declared experiments reproduce"""


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
    page = make_report(found, scale, rows, f"sb3-robust-be experiment run {found.name} --scale {scale}")
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


def make_report(experiment: Experiment, scale: str, rows: Rows, command: str) -> Report:
    """
    :param experiment: Of the rows.
    :param scale: Of its presets.
    :param rows: Of all its runs.
    :param command: That makes the runs.
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
        notes=[*analysis.notes, *_dates(rows)],
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


def _dates(rows: Rows) -> list[str]:
    dates = sorted({row["date"] for row in rows if "date" in row})
    if not dates:
        return []
    return [
        f"The runs were made on {dates[0]}."
        if len(dates) == 1
        else f"The runs were made from {dates[0]} to {dates[-1]}."
    ]
