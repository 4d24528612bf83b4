"""HTML of the parts of a report page. All data is escaped here, and nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from sb3_robust_be.evaluation import Outcome, Verdict
from sb3_robust_be.report.plot import printable
from sb3_robust_be.report.sentences import Group, counted
from sb3_robust_be.report.tables import evidence

#: A browser that follows it loads nothing and runs nothing, whatever slipped through.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --soft: #f3f4f6; --line: #d4d7dc; --link: #0b57a4;
  --edge: #00000055;  --good: #00694d; --bad: #a33c00; --open: #5c5c5c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e7e7; --paper: #16181c; --soft: #22252b; --line: #3c4149;
  --edge: #ffffff66;  --link: #8cc2ff; --good: #4fd3a8; --bad: #ff9b66; --open: #b4b4b4; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem; font: 1rem/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); overflow-wrap: anywhere; }
h1 { line-height: 1.2; } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
a { color: var(--link); }
nav ul { margin: 0; padding-left: 1.2rem; } nav { background: var(--soft); padding: .7rem 1rem; border-radius: .4rem; }
figure { margin: 1.5rem 0 2.5rem; } figcaption { margin-top: .5rem; }
.drawing { background: #ffffff; border: 1px solid var(--line); border-radius: .4rem; padding: .4rem; }
.drawing svg { display: block; width: 100%; height: auto; }
/* Smaller than this, its words cannot be read. */
@media screen and (max-width: 45rem) { .drawing { overflow-x: auto; } .drawing svg { min-width: 42rem; }
  .drawing + .hint { display: block; } }
.files { font-size: .9em; }
/* Shadows at the sides to which a table can be scrolled; the covers of the first two layers move with it. */
.scroll { overflow-x: auto; scrollbar-width: thin; background:
  linear-gradient(to right, var(--paper) 40%, transparent) 0 0 / 2.5rem 100% no-repeat local,
  linear-gradient(to left, var(--paper) 40%, transparent) 100% 0 / 2.5rem 100% no-repeat local,
  linear-gradient(to right, var(--edge), transparent) 0 0 / 1rem 100% no-repeat scroll,
  linear-gradient(to left, var(--edge), transparent) 100% 0 / 1rem 100% no-repeat scroll; }
.hint { display: none; font-size: .9em; margin: .2rem 0; } .wide + .hint { display: block; }
@media (max-width: 60rem) { .middling + .hint { display: block; } }
@media (max-width: 30rem) { .narrow + .hint { display: block; } }
details { margin: .6rem 0; } summary { cursor: pointer; padding: .2rem 0; color: var(--link); }
blockquote { margin: 2rem 0 .4rem; padding: 0; font-style: italic; font-size: 1.05em; }
.tally { margin: 0 0 .4rem; font-size: .92em; }
table { border-collapse: collapse; font-size: .92em; } caption { text-align: left; padding-bottom: .4rem; }
th, td { padding: .3rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { border-bottom: 2px solid var(--line); } .number { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: var(--soft); padding: .7rem 1rem; border-radius: .4rem; white-space: pre-wrap; }
code, .line { font-family: ui-monospace, monospace; }
th, td { overflow-wrap: normal; }
.verdict { border-left: .35rem solid var(--open); padding: .2rem 0 .2rem .9rem; margin: .8rem 0; }
.verdict p { margin: .1rem 0; } .verdict p + p { font-size: .9em; line-height: 1.4; }
.verdict .outcome { font-weight: 700; color: var(--open); }
.holds { border-color: var(--good); } .holds .outcome { color: var(--good); }
.fails { border-color: var(--bad); } .fails .outcome { color: var(--bad); }
@page { margin: 15mm; }
@media print { :root { color-scheme: light; --ink: #000; --paper: #fff; --soft: #f3f4f6; --line: #bbb; --link: #000;
  --edge: transparent;  --good: #00694d; --bad: #a33c00; --open: #444; } body { max-width: none; padding: 0; }
  figure, .verdict, tr { break-inside: avoid; } h2, h3 { break-after: avoid; } .scroll { overflow: visible; }
  .hint { display: none !important; }
  details::details-content { content-visibility: visible; block-size: auto; } }
"""
_CLASSES = {Outcome.HOLDS: "holds", Outcome.DOES_NOT_HOLD: "fails", Outcome.NOT_RESOLVED: "open"}
#: More failed runs than this are folded away.
_FAILURES_SHOWN = 20
#: More combined claims than these, shared out among a page's sentences, are folded away, too, but never the first ones.
_COMBINED_SHOWN, _FIRST_SHOWN = 20, 3
#: And more comparisons of a sentence without a combined claim.
_COMPARISONS_SHOWN = 6
#: More characters than these do not fit into a line of a table in a full window, in half of one, and on a telephone.
_WIDTHS = {"wide": 110, "middling": 55, "narrow": 42}
_TAG, _WORD = re.compile(r"<[^>]*>"), re.compile(r"[\s-]")


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


def paragraphs(texts: Sequence[str]) -> str:
    return "".join(f"<p>{text(one)}</p>\n" for one in texts)


def lines(texts: Sequence[str]) -> str:
    """A list."""
    items = "".join(f"<li>{text(one)}</li>\n" for one in texts)
    return f"<ul>\n{items}</ul>\n" if items else ""


def folded(summary: str, html: str) -> str:
    """HTML that shows when its summary is clicked."""
    return f"<details>\n<summary>{text(summary)}</summary>\n{html}</details>\n"


def verdicts(groups: Sequence[Group], claims: Sequence[str] = ()) -> str:
    """The verdicts by sentence: the sentence, how many hold, the combined claims, and its single comparisons folded.

    Of many verdicts the first are shown and the others folded.

    :param claims: In words, above verdicts that name no sentence of the paper, if none does.
    """
    named = any(group.sentence for group in groups)
    parts = []
    for group in groups:
        if group.sentence:
            parts.append(f"<blockquote>“{text(group.sentence)}”</blockquote>\n")
        elif named:
            parts.append("<h3>Claims of ours, beside the paper's</h3>\n")
        else:
            parts.append(lines(claims))
        parts.append(f'<p class="tally">{text(counted(group.verdicts))}.</p>\n')
        found, single = group.combined(), group.single()
        shown = max(_FIRST_SHOWN, _COMBINED_SHOWN // len(groups)) if single else _COMPARISONS_SHOWN
        parts.append(_verdicts(found[:shown]))
        for what, rest in (("further verdict", found[shown:]), ("single comparison", single)):
            if rest:
                plural = "" if len(rest) == 1 else "s"
                parts.append(folded(f"{len(rest)} {what}{plural}: {counted(rest)}", _verdicts(rest)))
    return "".join(parts)


def _verdicts(found: Sequence[Verdict]) -> str:
    """A block per claim: the outcome in words, then the evidence."""
    return "".join(
        f'<div class="verdict {_CLASSES[verdict.outcome]}">\n'
        f'<p>{text(verdict.claim)}: <span class="outcome">{text(verdict.outcome)}</span></p>\n'
        f"<p>{text(line)}</p>\n</div>\n"
        for verdict, line in zip(found, evidence(found), strict=True)
    )


def figure(key: str, drawing: str, caption: str, folder: str, name: str, endings: Sequence[str]) -> str:
    """A drawing, which is HTML, with its caption and links to its files."""
    files = _files(folder, name, endings)
    return (
        f'<figure id="{text(key)}">\n<div class="drawing">{drawing}</div>\n'
        '<p class="hint">The figure is wider than the window: scroll it sideways.</p>\n'
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
    return (
        f'<div class="scroll {_width(header, lines)}"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody>\n</table></div>\n"
        '<p class="hint">The table is wider than the page: scroll it sideways.</p>\n'
    )


def _width(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """In which windows a table has to be scrolled, by the longest words of its columns, which no line breaks."""
    columns = zip(header, *lines, strict=True)
    total = sum(max(len(word) for cell in column for word in _WORD.split(_TAG.sub("", cell))) + 2 for column in columns)
    return next((name for name, most in _WIDTHS.items() if total > most), "small")


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
    return html if len(found) <= _FAILURES_SHOWN else folded(f"Show all {len(found)}", html)


def made(command: str, versions: Mapping[str, str], hardware: Mapping[str, str]) -> str:
    html = "".join(
        table([heading, ""], [[key, value] for key, value in parts.items()], [False, False])
        for heading, parts in (("version", versions), ("hardware", hardware))
        if parts
    )
    shown = f"<pre>{text(command)}</pre>\n" if command else ""
    return shown + (folded("Versions and hardware", html) if html else "")


def _files(folder: str, name: str, endings: Sequence[str]) -> str:
    links = ", ".join(link(f"{folder}/{name}.{ending}", ending.upper()) for ending in endings)
    return f'<span class="files">Files: {links}.</span>'
