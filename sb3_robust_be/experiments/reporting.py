"""Makes an experiment's report page from its rows."""

from __future__ import annotations

from sb3_robust_be.experiments.experiment import Experiment, name_of
from sb3_robust_be.experiments.rows import Rows
from sb3_robust_be.report import Report


def make_report(experiment: Experiment, scale: str, rows: Rows, command: str) -> Report:
    """
    :param experiment: Of the rows.
    :param scale: Of its presets.
    :param rows: Of all its runs.
    :param command: That makes the runs.
    :return: What its page shows.
    """
    analysis = experiment.analyse(experiment.preset(scale), rows)
    notes = [f"{r.question} {' / '.join(r.readings)}. Here: {r.default}, {r.why}" for r in experiment.readings]
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
        notes=[*analysis.notes, *_dates(rows), *notes],
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
