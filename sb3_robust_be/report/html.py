"""One self-contained page per experiment: verdicts, figures, tables, failures, and how it was made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sb3_robust_be.evaluation import Outcome, Verdict
from sb3_robust_be.report import page
from sb3_robust_be.report.environment import hardware, versions
from sb3_robust_be.report.plot import Plot
from sb3_robust_be.report.svg import inline
from sb3_robust_be.report.tables import Table, verdict_table
from sb3_robust_be.system import store_error, write_atomically

VERDICTS = "verdicts"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Report:
    """The contents of an experiment's page: verdicts, figures, tables and how they were made.

    :param title: The page's heading.
    :param name: Of its files: letters, digits, ``.``, ``_`` and ``-``.
    :param verdicts: One per claim.
    :param plots: In the order of the page.
    :param tables: Likewise.
    :param failures: ``(run, first line of its error)``.
    :param command: Exactly what made it.
    :param versions: By package; this installation's unless given.
    :param hardware: By part; this machine's unless given. Add the GPU here, where there is one.
    :param notes: Paragraphs, such as what a scale left out.
    """

    title: str
    name: str
    verdicts: Sequence[Verdict] = ()
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()
    failures: Sequence[tuple[str, str]] = ()
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=versions)
    hardware: Mapping[str, str] = field(default_factory=hardware)
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        parts = [self.name, *(plot.name for plot in self.plots), *(table.name for table in self.tables)]
        for part in parts:
            if _NAME.fullmatch(part) is None:
                raise ValueError(f"name is {part!r}; give letters, digits, '.', '_' and '-', such as 'step-sizes'.")
        taken = parts[1:] + ([VERDICTS] if self.verdicts else [])
        if repeated := sorted({part for part in taken if taken.count(part) > 1}):
            raise ValueError(f"{repeated[0]!r} names two figures or tables of {self.name}; give each its own name.")

    def counts(self) -> dict[str, int]:
        """How many claims have each outcome."""
        return {str(outcome): sum(verdict.outcome is outcome for verdict in self.verdicts) for outcome in Outcome}


def write(report: Report, folder: str | Path) -> Path:
    """Write ``folder/NAME.html`` and, in ``folder/NAME/``, each figure as SVG, PNG and CSV and each table as markdown,
    LaTeX and CSV. Every file is complete or absent, and the page comes last.

    :param folder: Made if it does not exist.
    :raises StoreError: If it cannot be written.
    :return: The page's path.
    """
    root = Path(folder)
    beside = root / report.name
    _make(beside)
    drawings = {}
    for plot in report.plots:
        drawings[plot.name] = plot.svg()
        for ending, data in (("svg", drawings[plot.name]), ("png", plot.png()), ("csv", plot.csv())):
            write_atomically(beside / f"{plot.name}.{ending}", data)
    for table in (*([verdict_table(report.verdicts, VERDICTS)] if report.verdicts else []), *report.tables):
        texts = (("md", table.markdown().encode()), ("tex", table.latex().encode()), ("csv", table.csv()))
        for ending, data in texts:
            write_atomically(beside / f"{table.name}.{ending}", data)
    path = root / f"{report.name}.html"
    write_atomically(path, _page(report, drawings).encode())
    return path


def write_index(folder: str | Path, reports: Sequence[Report]) -> Path:
    """Write ``folder/index.html``, which lists the reports with the outcomes of their claims and links to their pages.

    :return: Its path.
    """
    root = Path(folder)
    _make(root)
    header = ["experiment", *map(str, Outcome), "failed runs"]
    lines = [
        [page.link(f"{report.name}.html", report.title), *map(str, report.counts().values()), str(len(report.failures))]
        for report in reports
    ]
    body = page.table(header, lines, [False] + [True] * (len(header) - 1), escaped=True)
    sections = [("experiments", "Experiments", body)]
    sections += [
        (f"of-{report.name}", report.title, page.verdicts(report.verdicts)) for report in reports if report.verdicts
    ]
    path = root / "index.html"
    write_atomically(path, page.document("Reports", sections).encode())
    return path


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error(error, folder) from error


def _page(report: Report, drawings: Mapping[str, bytes]) -> str:
    beside = report.name
    sections = [
        ("verdicts", "Verdicts", page.verdicts(report.verdicts)),
        ("notes", "Notes", "".join(f"<p>{page.text(note)}</p>\n" for note in report.notes)),
        (
            "figures",
            "Figures",
            "".join(
                page.figure(
                    f"figure-{plot.name}",
                    inline(drawings[plot.name], f"svg-{plot.name}", plot.alt),
                    plot.caption,
                    beside,
                    plot.name,
                )
                for plot in report.plots
            ),
        ),
        ("tables", "Tables", "".join(_table(table, beside) for table in report.tables)),
        ("failures", f"Failed runs ({len(report.failures)})", page.failures(report.failures)),
        ("made", "How it was made", page.made(report.command, report.versions, report.hardware)),
    ]
    return page.document(report.title, [section for section in sections if section[2]])


def _table(table: Table, beside: str) -> str:
    body = page.table(table.header(), table.cells(), table.numeric())
    return page.captioned_table(f"table-{table.name}", body, table.caption, beside, table.name)
