"""Tables: the same rows as markdown, LaTeX and CSV, with as many digits as the intervals warrant."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sb3_robust_be.evaluation import Interval, Verdict
from sb3_robust_be.report.plot import Row, printable, to_csv

_MISSING = "–"
_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "−": "$-$",
    "–": "--",
    "±": r"$\pm$",
    "×": r"$\times$",
    "∞": r"$\infty$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "ℓ": r"$\ell$",
    "…": r"\dots{}",
    "²": "$^2$",
    **{
        letter: f"$\\{name}$"
        for letter, name in zip(
            "αβγδεζηθκλμνπρστφψω",
            ("alpha", "beta", "gamma", "delta", "varepsilon", "zeta", "eta", "theta", "kappa", "lambda", "mu", "nu")
            + ("pi", "rho", "sigma", "tau", "varphi", "psi", "omega"),
            strict=True,
        )
    },
}


@dataclass(frozen=True)
class Table:
    """A table that can be written as Markdown, LaTeX and CSV.

    :param name: Of its files, without an ending: letters, digits, ``.``, ``_`` and ``-``.
    :param rows: One dict per row. Values: text, numbers, :class:`Interval`, booleans, ``None`` for an empty cell.
    :param caption: What it shows.
    :param headers: Headings by key, and with them which columns to show and in which order; ``None``: every key.
    """

    name: str
    rows: Sequence[Row]
    caption: str = ""
    headers: Mapping[str, str] | None = None

    def header(self) -> list[str]:
        """The headings."""
        return list(self._columns().values())

    def cells(self) -> list[list[str]]:
        """Every row as text, see :func:`cell`."""
        return [[cell(row.get(key)) for key in self._columns()] for row in self.rows]

    def numeric(self) -> list[bool]:
        """Whether each column holds numbers only, so that it is set to the right."""
        return [
            bool(values) and all(isinstance(value, (numbers.Real, Interval)) for value in values)
            for values in ([row[key] for row in self.rows if row.get(key) is not None] for key in self._columns())
        ]

    def markdown(self) -> str:
        """A pipe table."""
        rule = ["---:" if right else "---" for right in self.numeric()]
        lines = [[markdown_text(text) for text in line] for line in (self.header(), *self.cells())]
        return "".join(f"| {' | '.join(line)} |\n" for line in (lines[0], rule, *lines[1:]))

    def text(self) -> str:
        """For a terminal, see :func:`aligned`."""
        return aligned([self.header(), *self.cells()])

    def latex(self) -> str:
        """A ``tabular`` with booktabs' rules; the caption is a comment above it."""
        columns = "".join("r" if right else "l" for right in self.numeric())
        header, *lines = map(_latex_line, (self.header(), *self.cells()))
        comment = [f"% {' '.join(self.caption.split())}"] if self.caption else []
        frame = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", header, r"\midrule", *lines, r"\bottomrule"]
        return "\n".join([*comment, *frame, r"\end{tabular}", ""])

    def csv(self) -> bytes:
        """All keys in full precision; an interval has the columns ``KEY``, ``KEY_low`` and ``KEY_high``."""
        return to_csv([_flat(row) for row in self.rows])

    def _columns(self) -> Mapping[str, str]:
        return self.headers if self.headers is not None else {key: key for row in self.rows for key in row}


def aligned(lines: Sequence[Sequence[str]], left: int = 1) -> str:
    """Lines of cells as columns for a terminal: the first ones to the left, the others to the right.

    :param lines: Of equally many cells each, the header's among them.
    :param left: How many are set to the left.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def verdict_table(verdicts: Sequence[Verdict], name: str = "verdicts") -> Table:
    """The verdicts of an experiment, one row per claim, in the order given; the CSV has every part of them."""
    rows = []
    for verdict in verdicts:
        row = verdict.as_row()
        del row["low"], row["high"]
        row["estimate"] = None if math.isnan(verdict.estimate) else verdict.interval
        row["p_value"] = verdict.p_value if verdict.seeds else None
        rows.append(row | {"number": verdict_number(verdict), "above in": above_in(verdict)})
    headers = {
        "claim": "claim",
        "outcome": "outcome",
        "number": "number",
        "test": "test",
        "p_value": "p",
        "above in": "above in",
        "seeds": "seeds",
        "reason": "reason",
    }
    if all(verdict.improvement is None for verdict in verdicts):
        del headers["above in"]
    return Table(name, rows, "Verdict per claim", headers)


def verdicts_beside(name: str, caption: str, readings: Mapping[str, Sequence[Verdict]]) -> Table:
    """The same claims in several readings, side by side: a row per claim that all of them have.

    :param name: Of the table.
    :param caption: Of the table.
    :param readings: The verdicts by what is read otherwise, which heads the columns.
    """
    found = {words: {(one.sentence, one.claim): one for one in verdicts} for words, verdicts in readings.items()}
    first, *others = found.values()
    rows = []
    for key in first:
        if all(key in other for other in others):
            row: dict[str, Any] = {"claim": key[1]}
            for words, verdicts in found.items():
                verdict = verdicts[key]
                row[words] = str(verdict.outcome)
                if not math.isnan(verdict.estimate):
                    row[f"number, {words}"] = verdict_number(verdict)
                row[f"p, {words}"] = verdict.p_value if verdict.seeds else None
            rows.append(row)
    return Table(name, rows, caption)


def verdict_number(verdict: Verdict) -> str:
    """What the number of a verdict is, the number, and its interval: ``difference of means +12.3 [3.1, 20.9]``.

    :param verdict: Any; of a combination of claims the text is empty.
    :return: With the value that the claim compares it with, such as ½ or a margin, if that is not 0.
    """
    if math.isnan(verdict.estimate):
        return ""
    signed = "difference" in verdict.quantity or verdict.quantity.startswith("excess")
    text = f"{verdict.quantity} {'+' if signed and verdict.estimate > 0.0 else ''}{interval(verdict.interval)}".strip()
    # The test of what was computed exactly has its bound.
    compared = verdict.seeds and verdict.reference and not math.isnan(verdict.reference)
    return f"{text} (against {number(verdict.reference)})" if compared else text


def above_in(verdict: Verdict) -> str:
    """In how many pairs of runs the first is above the second, beside a difference of means; else empty.

    :param verdict: Any.
    :return: A share with its interval and the p-value of its own test.
    """
    beside = verdict.improvement
    if beside is None:
        return ""
    share, low, high = (100.0 * part for part in (beside.estimate, beside.interval.low, beside.interval.high))
    ends = "" if math.isnan(low) else f" [{low:.0f}, {high:.0f}]"
    p_value = "" if math.isnan(beside.p_value) else f", p = {number(beside.p_value)}"
    return f"{share:.0f} % of pairs{ends}{p_value}"


def evidence(verdicts: Sequence[Verdict]) -> list[str]:
    """A line of evidence for each verdict: its number with its interval, test, p-value, seeds and reason."""
    lines = []
    for verdict in verdicts:
        parts = [printable(verdict.test)]
        estimate = verdict_number(verdict)
        if verdict.interval.low < verdict.interval.high:
            estimate += f" ({100 * verdict.interval.level:g} % interval, {verdict.interval.method})"
        if estimate:
            parts.insert(0, estimate)
        if verdict.seeds:
            parts += [f"p = {cell(verdict.p_value)}", f"{' + '.join(map(str, verdict.seeds))} seeds"]
        if verdict.improvement is not None:
            parts.append(f"above in {above_in(verdict)} ({verdict.improvement.test})")
        if verdict.reason:
            parts.append(printable(verdict.reason))
        lines.append("; ".join(parts))
    return lines


def cell(value: Any) -> str:
    """A value as text: an interval as ``mean [low, high]``, a number with four digits, ``None`` as a dash.

    Where the runs say nothing of their spread the words for why stand in place of an interval.
    """
    if value is None or (isinstance(value, str) and not value):
        return _MISSING
    if isinstance(value, Interval):
        unknown = value.note and not value.low < value.high and not math.isnan(value.estimate)
        return f"{interval(value)} ({value.note})" if unknown else interval(value)
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, numbers.Integral):
        return str(int(value)).replace("-", "−")
    if isinstance(value, numbers.Real):
        return number(float(value))
    return printable(str(value))


def number(value: float, digits: int = 4) -> str:
    """``value`` with so many significant digits; powers of ten below 0.001 and from a million on."""
    if math.isnan(value):
        return _MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(float(f"{value:.{digits - 1}e}"))
    if size and not 1e-3 <= size < 1e6:
        text = f"{value:.{min(digits, 3) - 1}e}"
        mantissa, exponent = text.split("e")
        text = f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"
        return text.replace("-", "−")
    whole = math.floor(math.log10(size)) + 1 if size else 1
    return _fixed(value, max(0, digits - max(whole, 1) if size >= 1 or not size else digits - whole), strip=True)


def interval(value: Interval) -> str:
    """``mean [low, high]`` with two significant digits of the interval's width."""
    ends = (value.low, value.high)
    if not all(map(math.isfinite, (value.estimate, *ends))) or not 0 < ends[1] - ends[0]:
        shown = [number(part) for part in (value.estimate, *ends)]
        return shown[0] if all(map(math.isnan, ends)) or ends[0] == ends[1] else f"{shown[0]} [{shown[1]}, {shown[2]}]"
    places = 1 - math.floor(math.log10(ends[1] - ends[0]))
    largest = max(map(abs, (value.estimate, *ends)))
    if not 1e-3 <= largest < 1e6 or places > 6:
        estimate, low, high = (number(part, 3) for part in (value.estimate, *ends))
    else:
        estimate, low, high = (_fixed(part, max(0, places)) for part in (value.estimate, *ends))
    return f"{estimate} [{low}, {high}]"


def _fixed(value: float, places: int, strip: bool = False) -> str:
    text = f"{value:.{places}f}"
    if strip and "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.removeprefix("-") if float(text) == 0.0 else text.replace("-", "−")


def _flat(row: Row) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Interval):
            flat |= {key: value.estimate, f"{key}_low": value.low, f"{key}_high": value.high}
        else:
            flat[key] = value
    return flat


def markdown_text(text: str) -> str:
    """``text`` on one line, with Markdown's signs escaped."""
    return re.sub(r"([\\`*_{}\[\]<>|])", r"\\\1", printable(" ".join(text.split())))


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in " ".join(text.split()))


def _latex_line(cells: Sequence[str]) -> str:
    line = " & ".join(map(_latex, cells)) + r" \\"
    # After a rule or the end of a line these would begin an argument of theirs.
    return "{}" + line if line.startswith(("[", "*")) else line
