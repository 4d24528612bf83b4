"""Figures of every kind with small made-up data, and what the tests read off them."""

import csv
import io

import numpy as np
from matplotlib.text import Text

from sb3_robust_be import registry, report
from sb3_robust_be.evaluation import Interval
from sb3_robust_be.report import style
from sb3_robust_be.report.plot import to_csv


def rng(seed=0):
    return np.random.default_rng(seed)


def bimodal(runs=30):
    """Half the runs near −950, half near −250."""
    half = runs // 2
    return np.concatenate([rng(1).normal(-950.0, 40.0, half), rng(2).normal(-250.0, 60.0, runs - half)])


def scores():
    """Two domains: one without a failure, one where QRC loses 7 of 30 runs and all runs of QRC-Huber agree."""
    failing = rng(3).normal(-5000.0, 1500.0, 30)
    failing[:4], failing[4:7] = np.nan, -np.inf
    return {
        "Mountain Car": {"dqn": bimodal(), "qrc": rng(4).normal(-300.0, 60.0, 30), "qrc_huber": rng(5).normal(size=30)},
        "Cliff World": {"dqn": -rng(6).gamma(2.0, 150.0, 30), "qrc": failing, "qrc_huber": np.full(30, -40.0)},
    }


def distributions(panels=None, **options):
    return report.distributions("scores", panels or scores(), measure="return", rng=rng(), **options)


def curves():
    t = np.linspace(0.0, 1.0, 12)
    made = {
        domain: {name: (1.0 - np.exp(-3.0 * t)) + rng(i).normal(0.0, 0.1, (6, 12)) for i, name in enumerate(names)}
        for domain, names in (("Acrobot", ("dqn", "qrc")), ("Cart-pole", ("dqn", "qrc", "my own")))
    }
    made["Acrobot"]["dqn"][0, 8:] = np.nan
    made["Acrobot"]["dqn"][1, 9] = np.inf
    return made


def learning_curves(**options):
    steps = {"Acrobot": np.arange(1, 13) * 1_000, "Cart-pole": np.arange(1, 13) * 250_000}
    return report.learning_curves("learning", curves(), steps, measure="return", rng=rng(), **options)


def settings():
    """An error that is least at 2⁻⁴, and diverges in some runs at 2⁻¹."""
    made = {}
    for i, name in enumerate(("tdc", "tdc-huber", "td")):
        made[name] = {2.0**e: np.exp(abs(e + 4) / 2 + rng(10 * i - e).normal(0.0, 0.1, 10)) for e in range(-9, 0)}
    made["td"][0.5][:6] = np.inf
    made["tdc"][0.5][:] = np.nan
    return {"SmallChain": made, "Baird": {name: dict(of) for name, of in made.items()}}


def sensitivity(**options):
    labels = {"parameter": "step size α", "measure": "MSVE"}
    given = {"log": True, "higher_is_better": False, **options}
    return report.sensitivity("sensitivity", settings(), rng=rng(), **labels, **given)


def profiles():
    made = {
        name: {game: rng(7 * i + j).beta(2.0 + i, 3.0, 12) for j, game in enumerate(("Asterix", "Breakout"))}
        for i, name in enumerate(("dqn", "qrc", "qrc_huber"))
    }
    return report.profiles("profiles", made, rng=rng())


def bars(**options):
    made = {
        "MSVE": {
            "HardAlias-1": {"MSBE, all": 12.5, "MSBE, V": 3.0, "MHBE": 1.02},
            "Outlier": {"MSBE, all": np.nan, "MSBE, V": np.inf, "MHBE": Interval(2.0, 1.5, 2.75, 0.95, "made up")},
        }
    }
    return report.bars("bars", made, measure="error over the least", **{"log": True, **options})


def lines(**options):
    x = np.linspace(-1.0, 1.0, 41)
    made = {"Bellman": {"MSBE": (x - 0.25) ** 2, "MHBE, τ = 1": np.abs(x - 0.25)}, "values": {"MSVE": (x + 0.5) ** 2}}
    return report.lines("lines", made, x, x_label="weight θ", measure="objective", **options)


def tables(names):
    return {name: rng(i).normal(-10.0, 200.0, (20, 4)) for i, name in enumerate(names)}


def grid_map(names=("qrc", "qrc_huber", "optimal"), with_h=("qrc", "qrc_huber")):
    return report.grid_map("cliff-world", tables(names), {name: tables(with_h)[name] / 50.0 for name in with_h})


MADE = {
    "distributions": distributions,
    "errors": lambda: distributions(
        {"a long title: MSVE of everything": {"my own, a variant with κ = ∞": np.array([1.0, np.inf]), "dqn": [2.0]}},
        higher_is_better=False,
    ),
    "eight": lambda: distributions(
        {"Acrobot": {name: rng(len(name)).normal(0.0, 1.0, 8) for name in EVERY}},
    ),
    "long words": lambda: report.bars(
        "words",
        {LONG: {f"{LONG} {i}": {"dqn": 1.0 + i, LONG: 2.0} for i in range(6)}},
        measure="error relative to that of the best representable value function",
    ),
    "long titles": lambda: report.learning_curves(
        "titles",
        {f"{LONG} {i}": {"dqn": rng().normal(size=(3, 5)), LONG: rng(1).normal(size=(3, 5))} for i in range(3)},
        range(5),
        measure="return per step of the ε-greedy behaviour",
        rng=rng(),
    ),
    "learning_curves": lambda: learning_curves(show_runs=True),
    "sensitivity": sensitivity,
    "profiles": profiles,
    "bars": bars,
    "lines": lines,
    "grid_map": grid_map,
    "grid_map of one": lambda: grid_map(["qrc"], ["qrc"]),
}
LONG = "an environment of my own with its wrapper"
EVERY = registry.names()


def drawn(axis, label):
    """The lines of an axes with a label, in order."""
    return [line for line in axis.get_lines() if line.get_label() == label]


def points(axis, label):
    """All points of the lines with a label, shape (points, 2)."""
    return np.concatenate([np.zeros((0, 2)), *(line.get_xydata() for line in drawn(axis, label))])


def written_rows(plot):
    """The rows of the CSV, before it rounds them."""
    return list(csv.DictReader(io.StringIO(to_csv(plot.data).decode())))


def drawn_texts(figure):
    """Every text that is drawn, with its rectangle in units of 1/100 inch."""
    with style.settings():
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # found once, as when it is written
        beyond = {text for axis in figure.axes for text in _labels_beyond_the_limits(axis)}
        texts = [artist for artist in figure.findobj(Text) if artist.get_visible() and artist.get_text().strip()]
        return [(text, text.get_window_extent()) for text in texts if text not in beyond]


def _labels_beyond_the_limits(axes):
    """matplotlib keeps labels for ticks outside the limits, and does not draw them."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        room = 1e-9 * max(abs(low), abs(high))
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low - room <= tick.get_loc() <= high + room or not axis.get_visible():
                yield from (tick.label1, tick.label2)
