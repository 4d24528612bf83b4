"""The look of all figures: a colour and marker per algorithm, matplotlib's settings, and sizes.

The colours (Okabe & Ito, "Color Universal Design", 2008) stay apart for all common kinds of colour blindness; markers
and line styles repeat the distinction without colour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from sb3_robust_be import registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#999999"  # the ninth that R's palette of that name has
#: The colours by the names that the registry of algorithms uses.
COLOURS: dict[str, str] = {
    "black": BLACK,
    "orange": ORANGE,
    "sky": SKY,
    "green": GREEN,
    "yellow": YELLOW,
    "blue": BLUE,
    "vermillion": VERMILLION,
    "purple": PURPLE,
    "grey": GREY,
}
#: What names without a colour of their own get first: those that read best on white.
PALETTE: tuple[str, ...] = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY, YELLOW)
MARKERS: tuple[str, ...] = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
Line: TypeAlias = str | tuple[float, tuple[float, ...]]
"""A line style, as matplotlib takes them: a name, or an offset and the lengths of dashes and gaps"""
#: The last two are a dash and two dots, and long dashes.
LINES: tuple[Line, ...] = ("-", "--", "-.", ":", (0.0, (6.0, 1.5, 1.0, 1.5, 1.0, 1.5)), (0.0, (10.0, 2.5)))

#: Inches; with 9-point text this reads at the 830 pixels of a README.
WIDTH = 9.0
DPI = 150

#: Colour, marker and label of every algorithm and objective by its name in commands. Squared losses are blue, Huber's
#: vermillion, the absolute one purple; semi-gradients black.
_KNOWN: dict[str, tuple[str, str, str]] = {
    **{name: (COLOURS[entry.colour], entry.marker, entry.label) for name, entry in registry.ENTRIES.items()},
    "td": (BLACK, "o", "TD"),
    "gtd": (VERMILLION, "X", "GTD"),
    "gtd2": (ORANGE, "v", "GTD2"),
    "tdc": (BLUE, "s", "TDC"),
    "tdrc": (GREEN, "D", "TDRC"),
    "htd": (SKY, "P", "HTD"),
    "residual_gradient": (GREY, "<", "residual gradient"),
    "msve": (BLACK, "o", "MSVE"),
    "mave": (GREY, "X", "MAVE"),
    "msbe": (BLUE, "s", "MSBE"),
    "mhbe": (VERMILLION, "D", "MHBE"),
    "mabe": (PURPLE, "^", "MABE"),
    "mspbe": (BLUE, "s", "MSPBE"),
    "mhpbe": (VERMILLION, "D", "MHPBE"),
    "mapbe": (PURPLE, "^", "MAPBE"),
}
#: Label, marker and line style of the variants of one algorithm: the markers of QRC's own variants.
_SUFFIXES: dict[str, tuple[str, str, str]] = {
    "huber": ("Huber", "D", "--"),
    "l1": ("ℓ1", "^", "-."),
    "same_sign": ("same sign", "P", ":"),
    "one_sided": ("one-sided", "*", ":"),
    "clipped": ("clipped h", "X", "--"),
}


@dataclass(frozen=True)
class Look:
    """How one algorithm appears in every figure.

    :param colour: ``#RRGGBB``.
    :param marker: matplotlib's code.
    :param line: matplotlib's line style.
    :param label: For people.
    :param variant: 0, or which variant of its base this is: the colour is the base's.
    """

    colour: str
    marker: str
    line: Line
    label: str
    variant: int = 0


def label(name: str) -> str:
    """The name for people: ``"QRC-Huber"`` for ``"qrc_huber"``; an unknown name as it is.

    What follows a known name after a comma or space stays: ``"dqn, refresh 50"`` is ``"DQN, refresh 50"``.
    """
    base, suffix, rest = _split(name)
    if base is None:
        return name
    return _KNOWN[base][2] + (f"-{_SUFFIXES[suffix][0]}" if suffix else "") + rest


def looks(names: Iterable[str]) -> dict[str, Look]:
    """The look of each name, in the order given; a known name has the same look whatever the others are.

    Variants share the colour of their base: ``tdc-huber`` and ``tdc-l1`` that of ``tdc``, with their own marker and
    line style, and so, in turn, what differs after a comma or space, as ``"dqn, refresh 50"``. Unknown names get, in
    alphabetical order, the colours that are left.
    """
    wanted = list(dict.fromkeys(names))
    stems = {name: _stem(name) for name in wanted}
    known = {name: _known(stems[name]) for name in wanted}
    taken = {look.colour for look in known.values() if look}
    free = [colour for colour in PALETTE if colour not in taken] or list(PALETTE)
    strange = sorted({stems[name] for name in wanted if known[name] is None})
    found: dict[str, Look] = {}
    for name in wanted:
        base = known[name]
        if base is None:
            i = strange.index(stems[name])
            base = Look(free[i % len(free)], MARKERS[i % len(MARKERS)], LINES[i // len(free) % len(LINES)], name)
        before = [other for other in found if stems[other] == stems[name]]
        found[name] = _variant(base, len(before), label(name))
    return found


def _variant(base: Look, index: int, name: str) -> Look:
    """The ``index``-th look with the colour of ``base``."""
    if index == 0:
        return replace(base, label=name)
    marker = MARKERS[(MARKERS.index(base.marker) + index) % len(MARKERS)]
    line = LINES[(LINES.index(base.line) + index) % len(LINES)]
    return Look(base.colour, marker, line, name, index)


def _known(stem: str) -> Look | None:
    """The look of a known algorithm or a variant of it."""
    base, suffix, _ = _split(stem)
    if base is None:
        return None
    colour, marker, name = _KNOWN[base]
    if not suffix:
        return Look(colour, marker, "-", name)
    _, marker, line = _SUFFIXES[suffix]
    return Look(colour, marker, line, stem, list(_SUFFIXES).index(suffix) + 1)


def _stem(name: str) -> str:
    """What variants have in common: a known name, or else all up to the first comma."""
    base, _, rest = _split(name)
    return name.removesuffix(rest) if base else name.partition(",")[0].strip()


def _split(name: str) -> tuple[str | None, str, str]:
    """Known base, known suffix and the rest of a name."""
    match = re.match(r"[\w-]+", name)
    if match is None:
        return None, "", ""
    word, rest = match[0].lower().replace("-", "_"), name[match.end() :]
    if word in _KNOWN:
        return word, "", rest
    for suffix in _SUFFIXES:
        base = word.removesuffix(f"_{suffix}")
        if base != word and base in _KNOWN:
            return base, suffix, rest
    return None, "", ""


#: matplotlib's settings while a figure is made and while it is written.
SETTINGS: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],  # matplotlib has it; for every text it looks for each font that is named here
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.0,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 9.0,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.edgecolor": "#444444",
    "xtick.color": "#222222",
    "ytick.color": "#222222",
    "text.color": "#000000",
    "axes.unicode_minus": True,
    "axes.formatter.use_mathtext": False,
    "text.usetex": False,
    "text.parse_math": False,  # labels come from data: a dollar is a dollar
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "sb3-robust-be",
}


@contextmanager
def settings() -> Iterator[None]:
    """matplotlib with :data:`SETTINGS` on its own defaults, whatever the user's configuration says; put back after.

    :raises ImportError: Without matplotlib, with the command that installs it.
    """
    try:
        from matplotlib import style
    except ImportError as error:
        raise ImportError('figures need matplotlib: pip install "sb3-robust-be[report]"') from error
    with style.context([SETTINGS], after_reset=True):
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure, in inches, that lays itself out so that nothing is clipped; inside :func:`settings`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
