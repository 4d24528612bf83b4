"""A figure together with the numbers behind it."""

from __future__ import annotations

import csv
import functools
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sb3_robust_be.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
#: What makes up most of an SVG, and can be said in less: indentation, the font of every text, groups that only have a
#: name, long names of parts, styles that many parts have, spaces and doubled digits in them, and, of shapes, decimals
#: and the spaces beside commands. A hundredth of a point is enough for small shapes, a tenth for markers and curves, of
#: which each point is given by its distance from the one before.
_INDENTATION, _FONT = re.compile(r"\n +"), "font-family: 'DejaVu Sans'"
_DRAWN, _SPACES = re.compile(r"<(?:path|use|text) [^>]*>"), re.compile(r" ?\n?([MLCQz]) ?")
_TENTHS, _HUNDREDTHS = re.compile(r"(\.\d)\d+"), re.compile(r"(\.\d\d)\d+")
_WHOLE = re.compile(r"(?<=\d)\.0(?!\d)")
_LONG_PATH, _POINTS, _COMMAND = 400, re.compile(r'(?<= d=")[MLz0-9. \n-]+(?=")'), re.compile(r"([MLz])([^MLz]*)")
_NOT_TURNED = re.compile(r'(<text [^>]*) transform="rotate\(-?0 [^"]*"')
_GROUP_NAME, _GROUP = re.compile(r'<g id="[^"]*"'), re.compile(r"</?g(?: [^>]*)?/?>\n?")
_MARKERS, _STYLE = re.compile(r"<g([^>]*)>\n((?:<use [^>]*/>\n)+)</g>"), re.compile(r' style="[^"]*"')
_IN_STYLE, _COLOUR = re.compile(r"(?<=[:;]) "), re.compile(r"#(.)\1(.)\2(.)\3\b")
_TAG = re.compile(r"<[^>]*>")
_NAMED, _NAME = re.compile(r' id="([^"]+)"'), re.compile(r'((?: id="|"#|url\(#))([^")]+)')
_DIGITS = 6
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, eq=False)
class Plot:
    """A figure with the rows that it shows and its caption.

    :param name: Of its files, without an ending: letters, digits, ``.``, ``_`` and ``-``.
    :param figure: matplotlib's figure, made without pyplot.
    :param data: One dict per number drawn; the CSV's rows.
    :param caption: What it shows and how to read it.
    :param alt: What it shows, for those who do not see it.
    """

    name: str
    figure: Figure
    data: Sequence[Row]
    caption: str = ""
    alt: str = ""

    def png(self) -> bytes:
        """The picture at 150 dots per inch, in 256 colours, which makes it a third as large."""
        from PIL import Image

        buffer = io.BytesIO()
        with style.settings():
            self._lay_out()
            self.figure.savefig(buffer, format="rgba", dpi=style.DPI)
        width = int(self.figure.get_size_inches()[0] * style.DPI)
        size = (width, len(buffer.getvalue()) // (4 * width))
        picture = Image.frombytes("RGBA", size, buffer.getvalue()).convert("RGB")
        buffer = io.BytesIO()
        picture.quantize(256, Image.Quantize.MAXCOVERAGE).save(buffer, format="png", dpi=(style.DPI, style.DPI))
        return buffer.getvalue()

    def svg(self) -> bytes:
        """The drawing, with text as text; the same bytes for the same figure."""
        buffer = io.BytesIO()
        with style.settings():
            self._lay_out()
            self.figure.savefig(buffer, format="svg", dpi=style.DPI, metadata={"Date": None, "Creator": None})
        # matplotlib writes labels' control characters as is.
        return printable(_shortened(buffer.getvalue().decode("utf-8"))).encode("utf-8")

    def csv(self) -> bytes:
        """:attr:`data` in UTF-8, numbers with a fraction in six significant digits, more than are drawn."""
        return to_csv([{key: _rounded(value) for key, value in row.items()} for row in self.data])

    def _lay_out(self) -> None:
        """Find the layout, which takes most of the time: once is enough for all formats."""
        engine = self.figure.get_layout_engine()
        if engine is not None:
            engine.execute(self.figure)
            # With any engine, "none" included, matplotlib draws a figure twice in order to save it.
            self.figure.set_layout_engine(None)


def _shortened(drawing: str) -> str:
    """The same drawing in half as many characters."""
    drawing = _MARKERS.sub(_with_one_style, _INDENTATION.sub("\n", _DRAWN.sub(_shortened_shape, drawing)))
    drawing = _without_plain_groups(_GROUP_NAME.sub("<g", _NOT_TURNED.sub(r"\1", drawing)))
    # Only within tags: a label may look like an attribute.
    named = dict.fromkeys(name for tag in _TAG.findall(drawing) for name in _NAMED.findall(tag))
    names = {name: f"p{i}" for i, name in enumerate(named)}
    drawing = _with_classes(_TAG.sub(lambda tag: _shortened_tag(tag[0], names), drawing))
    return drawing.replace("<svg ", f'<svg style="{_FONT}, sans-serif" ', 1)


def _shortened_tag(tag: str, names: Mapping[str, str]) -> str:
    tag = _STYLE.sub(_shortened_style, tag.replace(f"{_FONT}; ", ""))
    return _NAME.sub(lambda found: found[1] + names.get(found[2], found[2]), tag)


def _with_classes(drawing: str) -> str:
    """Styles that three parts or more have are said once, in matplotlib's own style sheet."""
    styles = Counter(style for tag in _TAG.findall(drawing) for style in _STYLE.findall(tag))
    often = [style for style, parts in styles.most_common() if parts >= 3]
    classes = {style: f"s{i}" for i, style in enumerate(often)}
    drawing = _TAG.sub(lambda tag: _STYLE.sub(lambda found: _as_class(found[0], classes), tag[0]), drawing)
    rules = "".join(f".{name}{{{style.partition('=')[2][1:-1]}}}" for style, name in classes.items())
    return drawing.replace("</style>", f"{rules}</style>", 1)


def _as_class(style: str, classes: Mapping[str, str]) -> str:
    return f' class="{classes[style]}"' if style in classes else style


def _shortened_style(style: re.Match[str]) -> str:
    return _COLOUR.sub(r"#\1\2\3", _IN_STYLE.sub("", style[0]))


def _shortened_shape(shape: re.Match[str]) -> str:
    if shape[0].startswith("<use"):
        return _WHOLE.sub("", _TENTHS.sub(r"\1", shape[0]))
    if len(shape[0]) > _LONG_PATH:
        return _POINTS.sub(_by_distances, _SPACES.sub(r"\1", _TENTHS.sub(r"\1", shape[0])))
    return _SPACES.sub(r"\1", _HUNDREDTHS.sub(r"\1", shape[0]))


def _by_distances(path: re.Match[str]) -> str:
    """Straight lines from point to point, in whole tenths, so that no error adds up.

    Points that lie within half a tenth of the line without them are left out.
    """
    from matplotlib.path import Path

    codes = {"M": Path.MOVETO, "L": Path.LINETO, "z": Path.CLOSEPOLY}
    commands = _COMMAND.findall(path[0])
    points = [[10.0 * float(number) for number in numbers.split()] or [0.0, 0.0] for _, numbers in commands]
    drawn = Path(points, [codes[command] for command, _ in commands])
    drawn.simplify_threshold = 0.5
    closed = any(command == "z" for command, _ in commands)
    parts: list[str] = []
    here = start = (0, 0)
    for point, code in drawn.iter_segments(simplify=True):
        x, y = np.rint(point).astype(int).tolist()
        if code == Path.MOVETO:
            parts.append(f"M{_tenths(x)} {_tenths(y)}")
            start = (x, y)
        elif closed and (x, y) == start != here:
            parts.append("z")  # matplotlib goes back to the first point instead
        elif (x, y) != here or parts[-1].startswith("M"):
            parts.append(f"l{_tenths(x - here[0])} {_tenths(y - here[1])}")
        here = (x, y)
    return "".join(parts)


@functools.cache
def _tenths(number: int) -> str:
    return f"{number / 10:.1f}".removesuffix(".0")


def _without_plain_groups(drawing: str) -> str:
    """Without groups that have neither a style nor a place: what they hold stays where it is."""
    kept: list[bool] = []

    def decide(tag: re.Match[str]) -> str:
        if tag[0].startswith("</"):
            return tag[0] if kept.pop() else ""
        if tag[0].rstrip().endswith("/>"):
            return ""
        kept.append(" " in tag[0])
        return tag[0] if kept[-1] else ""

    return _GROUP.sub(decide, drawing)


def _with_one_style(group: re.Match[str]) -> str:
    """A group of markers with their style, where all have the same."""
    attributes, markers = group[1], group[2]
    styles = set(_STYLE.findall(markers))
    if len(styles) != 1 or "style=" in attributes:
        return group[0]
    return f"<g{attributes}{styles.pop()}>\n{_STYLE.sub('', markers)}</g>"


def printable(text: str) -> str:
    """``text`` with a replacement sign for what neither XML nor UTF-8 can hold, such as a terminal's colour codes."""
    return _UNPRINTABLE.sub("\ufffd", text)


def _rounded(value: object) -> object:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) and not value.is_integer() else value


def to_csv(rows: Sequence[Row]) -> bytes:
    """Rows with the columns of all of them, in the order in which they first occur; absent cells are empty."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    writer.writeheader()
    # A numpy scalar's str is in full precision, like that of a float.
    writer.writerows(rows)
    return printable(buffer.getvalue()).encode("utf-8")
