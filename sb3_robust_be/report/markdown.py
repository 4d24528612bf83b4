"""A report as GitHub Markdown, for READMEs and issues: summary, verdicts and tables, without the figures."""

from __future__ import annotations

from sb3_robust_be.report.html import Report
from sb3_robust_be.report.plot import printable
from sb3_robust_be.report.sentences import by_sentence
from sb3_robust_be.report.tables import evidence, markdown_text


def markdown(report: Report) -> str:
    """The summary, the verdicts by sentence, the tables with captions, how many runs failed, and the command.

    :param report: What an experiment found.
    """
    sections = [f"### {markdown_text(report.title)}"]
    if report.summary:
        sections.append("\n".join(f"- {markdown_text(line)}" for line in report.summary))
    for group in by_sentence(report.verdicts):
        if group.sentence:
            sections.append(f"> {markdown_text(group.sentence)}")
        lines = zip(group.verdicts, evidence(group.verdicts), strict=True)
        items = [f"- {markdown_text(one.claim)}: **{one.outcome}** ({markdown_text(line)})" for one, line in lines]
        sections.append("\n".join(items))
    for table in report.tables:
        sections += [*([markdown_text(table.caption)] if table.caption else []), table.markdown().rstrip()]
    if report.failures:
        sections.append(f"Failed runs: {len(report.failures)}.")
    if report.command:
        # Indented, a command may hold any sign, backticks included.
        sections.append(f"    {printable(' '.join(report.command.split()))}")
    return "\n\n".join(sections) + "\n"
