"""One self-contained page per experiment: a summary with its pictures, verdicts, further figures, tables, settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sb3_robust_be.evaluation import Verdict
from sb3_robust_be.report import page
from sb3_robust_be.report.environment import hardware, versions
from sb3_robust_be.report.plot import Plot
from sb3_robust_be.report.sentences import by_sentence, counted, counted_sentences
from sb3_robust_be.report.svg import inline
from sb3_robust_be.report.tables import Table, verdict_table
from sb3_robust_be.system import store_error, write_atomically

VERDICTS = "verdicts"
TOP_PICTURES = 3
"""How many figures carry a page, unless it says which"""
LONGEST_OPEN_TABLE = 20
"""Rows; longer tables fold"""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Report:
    """The contents of an experiment's page: a summary, verdicts, figures, tables and how they were made.

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
    :param summary: Lines at the top of the page.
    :param pictures: The names of the figures that stand below them; the first three unless given. The others fold.
    :param claims: What the verdicts are on, in words, for verdicts that name no sentence of the paper.
    :param readings: Paragraphs on what the paper leaves open; they fold.
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
    summary: Sequence[str] = ()
    pictures: Sequence[str] = ()
    claims: Sequence[str] = ()
    readings: Sequence[str] = ()

    def __post_init__(self) -> None:
        parts = [self.name, *(plot.name for plot in self.plots), *(table.name for table in self.tables)]
        for part in parts:
            if _NAME.fullmatch(part) is None:
                raise ValueError(f"name is {part!r}; give letters, digits, '.', '_' and '-', such as 'step-sizes'.")
        taken = parts[1:] + ([VERDICTS] if self.verdicts else [])
        if repeated := sorted({part for part in taken if taken.count(part) > 1}):
            raise ValueError(f"{repeated[0]!r} names two figures or tables of {self.name}; give each its own name.")
        if unknown := [name for name in self.pictures if name not in {plot.name for plot in self.plots}]:
            raise ValueError(f"pictures has {unknown[0]!r}, which is no figure of {self.name}; give a figure's name.")

    def top_plots(self) -> list[Plot]:
        """The figures below the summary."""
        by_name = {plot.name: plot for plot in self.plots}
        return [by_name[name] for name in self.pictures] or list(self.plots[:TOP_PICTURES])


def write(report: Report, folder: str | Path, png: bool = True) -> Path:
    """Write ``folder/NAME.html`` and, in ``folder/NAME/``, each figure as SVG, PNG and CSV and each table as markdown,
    LaTeX and CSV. Every file is complete or absent, and the page comes last.

    :param folder: Made if it does not exist.
    :param png: Whether there are PNGs, which a page links to but does not show; they take as long to draw as the SVGs.
    :raises StoreError: If it cannot be written.
    :return: The page's path.
    """
    root = Path(folder)
    beside = root / report.name
    _make(beside)
    drawings = {}
    for plot in report.plots:
        drawings[plot.name] = plot.svg()
        files = {"svg": drawings[plot.name], "csv": plot.csv()} | ({"png": plot.png()} if png else {})
        for ending, data in files.items():
            write_atomically(beside / f"{plot.name}.{ending}", data)
    for table in (*([verdict_table(report.verdicts, VERDICTS)] if report.verdicts else []), *report.tables):
        texts = (("md", table.markdown().encode()), ("tex", table.latex().encode()), ("csv", table.csv()))
        for ending, data in texts:
            write_atomically(beside / f"{table.name}.{ending}", data)
    path = root / f"{report.name}.html"
    write_atomically(path, _page(report, drawings, png).encode())
    return path


def write_index(
    folder: str | Path, pages: Mapping[Path, Report], title: str = "Reports", introduction: Sequence[str] = ()
) -> Path:
    """Write ``folder/index.html``: a table of the reports, with the outcomes of their claims and links to their pages.

    :param folder: Made if it does not exist.
    :param pages: The reports by the paths of their pages, as :func:`write` gives them, all within ``folder``.
    :param title: The heading.
    :param introduction: Paragraphs above the table.
    :return: Its path.
    """
    root = Path(folder)
    _make(root)
    header = ["experiment", "the paper's sentences", "verdicts", "failed runs", "folder"]
    lines = [
        [
            page.link(path.relative_to(root).as_posix(), report.title),
            page.text(counted_sentences([group for group in by_sentence(report.verdicts) if group.sentence]) or "–"),
            page.text(counted(report.verdicts) or "–"),
            str(len(report.failures)),
            page.text(path.parent.relative_to(root).as_posix()),
        ]
        for path, report in pages.items()
    ]
    body = "".join(f"<p>{page.text(paragraph)}</p>\n" for paragraph in introduction)
    body += page.table(header, lines, [False, False, False, True, False], escaped=True)
    path = root / "index.html"
    write_atomically(path, page.document(title, [("experiments", "Experiments", body)]).encode())
    return path


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error(error, folder) from error


def _page(report: Report, drawings: Mapping[str, bytes], png: bool = True) -> str:
    top = report.top_plots()
    further = [plot for plot in report.plots if plot not in top]
    sections = [
        (
            "summary",
            "Summary",
            page.lines(report.summary) + "".join(_figure(report, plot, drawings, png) for plot in top),
        ),
        ("verdicts", "Verdicts", page.verdicts(by_sentence(report.verdicts), report.claims)),
        (
            "figures",
            "Further figures",
            "".join(page.folded(_first_sentence(plot), _figure(report, plot, drawings, png)) for plot in further),
        ),
        ("tables", "Tables", "".join(_table(table, report.name) for table in report.tables)),
        ("settings", "Settings", page.paragraphs(report.notes) + _readings(report.readings)),
        ("failures", f"Failed runs ({len(report.failures)})", page.failures(report.failures)),
        ("made", "How it was made", page.made(report.command, report.versions, report.hardware)),
    ]
    return page.document(report.title, [section for section in sections if section[2]])


def _figure(report: Report, plot: Plot, drawings: Mapping[str, bytes], png: bool) -> str:
    drawing = inline(drawings[plot.name], f"svg-{plot.name}", plot.alt, f"f{report.plots.index(plot)}")
    endings = ("csv", "svg", "png") if png else ("csv", "svg")
    return page.figure(f"figure-{plot.name}", drawing, plot.caption, report.name, plot.name, endings)


def _first_sentence(plot: Plot) -> str:
    """The name of a folded figure, and how its caption begins."""
    first, _, _ = plot.caption.partition(". ")
    return f"{plot.name}: {first}" if first else plot.name


def _readings(readings: Sequence[str]) -> str:
    if not readings:
        return ""
    return page.folded(f"What the paper leaves open, and what is done here ({len(readings)})", page.lines(readings))


def _table(table: Table, beside: str) -> str:
    body = page.table(table.header(), table.cells(), table.numeric())
    html = page.captioned_table(f"table-{table.name}", body, table.caption, beside, table.name)
    if len(table.rows) <= LONGEST_OPEN_TABLE:
        return html
    return page.folded(f"{table.name}: {table.caption} ({len(table.rows)} rows)", html)
