"""A report as GitHub Markdown, for READMEs and issues: verdicts and tables, without the figures."""

from __future__ import annotations

from sb3_robust_be.report.html import Report
from sb3_robust_be.report.plot import printable
from sb3_robust_be.report.tables import evidence, markdown_text


def markdown(report: Report) -> str:
    """A list item per verdict, the tables with their captions, how many runs failed, and the command.

    :param report: What an experiment found.
    """
    sections = [f"### {markdown_text(report.title)}"]
    lines = zip(report.verdicts, evidence(report.verdicts), strict=True)
    items = [f"- {markdown_text(one.claim)}: **{one.outcome}** ({markdown_text(line)})" for one, line in lines]
    if items:
        sections.append("\n".join(items))
    for table in report.tables:
        sections += [*([markdown_text(table.caption)] if table.caption else []), table.markdown().rstrip()]
    if report.failures:
        sections.append(f"Failed runs: {len(report.failures)}.")
    if report.command:
        # Indented, a command may hold any sign, backticks included.
        sections.append(f"    {printable(' '.join(report.command.split()))}")
    return "\n\n".join(sections) + "\n"
