"""HTML of the parts of a report page. All data is escaped here, and nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from sb3_robust_be.evaluation import Outcome, Verdict
from sb3_robust_be.report.plot import printable
from sb3_robust_be.report.tables import evidence

#: A browser that follows it loads nothing and runs nothing, whatever slipped through.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --soft: #f3f4f6; --line: #d4d7dc; --link: #0b57a4;
  --good: #00694d; --bad: #a33c00; --open: #5c5c5c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e7e7; --paper: #16181c; --soft: #22252b; --line: #3c4149;
  --link: #8cc2ff; --good: #4fd3a8; --bad: #ff9b66; --open: #b4b4b4; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem; font: 1rem/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); overflow-wrap: anywhere; }
h1 { line-height: 1.2; } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
a { color: var(--link); }
nav ul { margin: 0; padding-left: 1.2rem; } nav { background: var(--soft); padding: .7rem 1rem; border-radius: .4rem; }
figure { margin: 1.5rem 0 2.5rem; } figcaption { margin-top: .5rem; }
.drawing { background: #ffffff; border: 1px solid var(--line); border-radius: .4rem; padding: .4rem; }
.drawing svg { display: block; width: 100%; height: auto; }
.files { font-size: .9em; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92em; } caption { text-align: left; padding-bottom: .4rem; }
th, td { padding: .3rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { border-bottom: 2px solid var(--line); } .number { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: var(--soft); padding: .7rem 1rem; border-radius: .4rem; white-space: pre-wrap; }
code, .line { font-family: ui-monospace, monospace; }
th, td { overflow-wrap: normal; }
.verdict { border-left: .35rem solid var(--open); padding: .2rem 0 .2rem .9rem; margin: .9rem 0; }
.verdict p { margin: .1rem 0; } .verdict .outcome { font-weight: 700; color: var(--open); }
.holds { border-color: var(--good); } .holds .outcome { color: var(--good); }
.fails { border-color: var(--bad); } .fails .outcome { color: var(--bad); }
@page { margin: 15mm; }
@media print { :root { color-scheme: light; --ink: #000; --paper: #fff; --soft: #f3f4f6; --line: #bbb; --link: #000;
  --good: #00694d; --bad: #a33c00; --open: #444; } body { max-width: none; padding: 0; }
  figure, .verdict, tr { break-inside: avoid; } h2, h3 { break-after: avoid; } .scroll { overflow: visible; } }
"""
_CLASSES = {Outcome.HOLDS: "holds", Outcome.DOES_NOT_HOLD: "fails", Outcome.NOT_RESOLVED: "open"}
#: More failed runs than this are folded away.
_FAILURES_SHOWN = 20


def text(value: str) -> str:
    """``value`` as text or within quotes."""
    return escape(printable(value), quote=True)


def link(target: str, words: str) -> str:
    return f'<a href="{text(target)}">{text(words)}</a>'


def document(title: str, sections: Sequence[tuple[str, str, str]]) -> str:
    """A complete HTML document.

    :param sections: ``(id, heading, HTML)``, all in the table of contents.
    """
    contents = "".join(f"<li>{link('#' + key, heading)}</li>\n" for key, heading, _ in sections)
    body = "".join(
        f'<section id="{key}">\n<h2>{text(heading)}</h2>\n{html}</section>\n' for key, heading, html in sections
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<header>
<h1>{text(title)}</h1>
<nav aria-label="Contents">
<ul>
{contents}</ul>
</nav>
</header>
<main>
{body}</main>
</body>
</html>
"""


def verdicts(found: Sequence[Verdict]) -> str:
    """A block per claim: the outcome in words, then the evidence."""
    return "".join(
        f'<div class="verdict {_CLASSES[verdict.outcome]}">\n'
        f'<p>{text(verdict.claim)}: <span class="outcome">{text(verdict.outcome)}</span></p>\n'
        f"<p>{text(line)}</p>\n</div>\n"
        for verdict, line in zip(found, evidence(found), strict=True)
    )


def figure(key: str, drawing: str, caption: str, folder: str, name: str) -> str:
    """A drawing, which is HTML, with its caption and links to its files."""
    files = _files(folder, name, ("csv", "svg", "png"))
    return (
        f'<figure id="{text(key)}">\n<div class="drawing">{drawing}</div>\n'
        f"<figcaption>{text(caption)} {files}</figcaption>\n</figure>\n"
    )


def table(header: Sequence[str], lines: Sequence[Sequence[str]], right: Sequence[bool], escaped: bool = False) -> str:
    """An HTML table.

    :param right: Columns of numbers.
    :param escaped: Whether the lines are HTML already.
    """
    classes = [' class="number"' if flag else "" for flag in right]
    head = "".join(f'<th scope="col"{style}>{text(name)}</th>' for name, style in zip(header, classes, strict=True))
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{style}>{cell if escaped else text(cell)}</td>" for cell, style in zip(line, classes, strict=True)
        )
        + "</tr>\n"
        for line in lines
    )
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n'


def captioned_table(key: str, html: str, caption: str, folder: str, name: str) -> str:
    files = _files(folder, name, ("csv", "md", "tex"))
    return f'<figure id="{text(key)}">\n<figcaption>{text(caption)} {files}</figcaption>\n{html}</figure>\n'


def failures(found: Sequence[tuple[str, str]]) -> str:
    if not found:
        return ""
    html = "".join(
        f'<li><code>{text(run)}</code>: <span class="line">{text(line)}</span></li>\n' for run, line in found
    )
    html = f"<ul>\n{html}</ul>\n"
    if len(found) <= _FAILURES_SHOWN:
        return html
    return f"<details>\n<summary>Show all {len(found)}</summary>\n{html}</details>\n"


def made(command: str, versions: Mapping[str, str], hardware: Mapping[str, str]) -> str:
    html = f"<pre>{text(command)}</pre>\n" if command else ""
    for heading, parts in (("version", versions), ("hardware", hardware)):
        if parts:
            html += table([heading, ""], [[key, value] for key, value in parts.items()], [False, False])
    return html


def _files(folder: str, name: str, endings: Sequence[str]) -> str:
    links = ", ".join(link(f"{folder}/{name}.{ending}", ending.upper()) for ending in endings)
    return f'<span class="files">Files: {links}.</span>'
