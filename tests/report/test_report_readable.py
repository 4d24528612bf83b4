"""All that a figure says can be read; its files; bad data; ticks and other small parts."""

import dataclasses
import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure
from report_figures import MADE, distributions, drawn_texts, lines, rng, sensitivity, tables, written_rows

from sb3_robust_be import report
from sb3_robust_be.report.panels import log_label, on_ticks, padded, stacked, step_label


@pytest.mark.parametrize("name", MADE)
def test_every_text_is_inside_the_figure_and_none_covers_another(made, name):
    figure = made[name].figure
    texts = drawn_texts(figure)
    assert texts
    assert figure.get_size_inches()[0] == 9.0
    for text, box in texts:
        assert min(box.x0, box.y0) >= 0, text
        assert box.x1 <= figure.bbox.width, text
        assert box.y1 <= figure.bbox.height, text
        assert text.get_fontsize() >= 6.5, text
    for (one, a), (other, b) in combinations(texts, 2):
        wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert min(wide, high) <= 1.0, f"{one} covers {other}"


@pytest.mark.parametrize("name", ["distributions", "long titles", "grid_map of one"])
def test_the_files_of_a_figure(made, name):
    plot = made[name]
    svg = plot.svg()
    root = ET.fromstring(svg)
    assert root.tag.endswith("svg")
    # Text stays text, so it can be searched and read aloud.
    written = {" ".join(element.itertext()).strip() for element in root.iter() if element.tag.endswith("text")}
    assert {line for text, _ in drawn_texts(plot.figure) for line in text.get_text().split("\n")} <= written
    assert len(written_rows(plot)) == len(plot.data) > 0
    assert plot.alt


def test_the_same_figure_gives_the_same_file():
    assert lines().svg() == lines().svg()


def test_a_shortened_curve_runs_through_its_points():
    """Coordinates as distances, cut to tenths of a point, and groups left out: nothing moves by more than a tenth."""
    at = np.arange(600.0)
    # Up and down at each step, so that matplotlib leaves no point out.
    values = np.where(at % 2 == 0.0, 1.0, -1.0) * (1.0 + rng().random(600))
    plot = report.lines("l", {"p": {"dqn": values}}, at, x_label="x", measure="m", minima=False)
    root = ET.fromstring(plot.svg())
    [curve] = [element.get("d") for element in root.iter() if len(element.get("d", "")) > 3_000]
    points = [(command, *map(float, rest.split())) for command, rest in re.findall(r"([Ml])([^Ml]+)", curve)]
    assert [command for command, *_ in points].count("M") == 1
    drawn = np.cumsum([numbers for _, *numbers in points], axis=0)
    axis = plot.figure.axes[0]
    expected = axis.transData.transform(np.column_stack([at, values])) * 72.0 / plot.figure.dpi
    expected[:, 1] = 72.0 * plot.figure.get_size_inches()[1] - expected[:, 1]
    np.testing.assert_allclose(drawn, expected, rtol=0.0, atol=0.1001)
    assert all(element.attrib for element in root.iter() if element.tag.endswith("}g"))


def test_points_on_a_straight_line_are_left_out_of_curves_and_areas():
    # A level, a bump and a level again, filled down to its base, in points.
    at = np.linspace(0.0, 200.0, 201)
    values = 50.0 + 40.0 * np.exp(-np.square((at - 60.0) / 9.0))
    outline = np.column_stack([np.r_[0.0, at, 200.0], np.r_[0.0, values, 0.0]])
    figure = Figure(figsize=(200.0 / 72.0, 100.0 / 72.0))
    axis = figure.add_axes((0.0, 0.0, 1.0, 1.0), xlim=(0.0, 200.0), ylim=(0.0, 100.0))
    axis.fill(*outline.T, color="#a33c00", linewidth=0.0)
    root = ET.fromstring(report.Plot("p", figure, [{"a": 1}]).svg())
    [area] = [element.get("d") for element in root.iter() if "#a33c00" in element.get("style", "")]
    points = [list(map(float, rest.split())) for _, rest in re.findall(r"([Ml])([^Mlz]+)", area.removesuffix("z"))]
    drawn = np.cumsum(points, axis=0)
    drawn = np.vstack([drawn, drawn[:1]])  # "z"
    drawn[:, 1] = 100.0 - drawn[:, 1]
    assert 10 < len(drawn) < 60
    assert area.endswith("z")
    for points, curve in ((outline, drawn), (drawn, outline)):
        assert max(_distance(point, curve) for point in points) < 0.21


def _distance(point, curve):
    """From a point to the nearest of the lines of a curve."""
    start, along = curve[:-1], np.diff(curve, axis=0)
    squares = np.square(along).sum(axis=1)
    share = np.clip(((point - start) * along).sum(axis=1) / np.where(squares > 0.0, squares, 1.0), 0.0, 1.0)
    return np.hypot(*(start + share[:, None] * along - point).T).min()


def test_names_and_styles_of_an_svg_are_short_and_lead_to_its_parts():
    root = ET.fromstring(distributions({"p": {"dqn": [1.0, 2.0, 4.0], "qrc": [0.0, 1.0, 5.0]}}).svg())
    named = [element.get("id") for element in root.iter() if "id" in element.attrib]
    assert named == [f"p{i}" for i in range(len(named))]
    link = "{http://www.w3.org/1999/xlink}href"
    used = [element.get(link)[1:] for element in root.iter() if element.tag.endswith("}use")]
    clipped = [element.get("clip-path")[5:-1] for element in root.iter() if "clip-path" in element.attrib]
    assert set(used) | set(clipped) == set(named)
    classes = {element.get("class") for element in root.iter() if "class" in element.attrib}
    sheets = "".join(element.text for element in root.iter() if element.tag.endswith("}style"))
    assert classes == set(re.findall(r"\.(s\d+){[^{}]+}", sheets)) != set()
    assert not any(
        " " in element.get("style", "").replace("DejaVu Sans", "") for element in root.iter() if element is not root
    )


@pytest.mark.parametrize(
    "label",
    [
        'run id="x',
        'run id="x"',
        'net style="a: b"',
        'x style="fill: #aabbcc',
        '"#',
        "url(#p0",
        '<g id="q">',
        "#aabbcc; b",
    ],
)
def test_labels_that_look_like_svg_are_drawn_as_they_are(label):
    root = ET.fromstring(distributions({"p": {label: [1.0, 2.0], "qrc": [0.0, 1.0]}}).svg())
    texts = {element.text for element in root.iter() if element.tag.endswith("}text")}
    assert label in texts
    named = {element.get("id") for element in root.iter() if "id" in element.attrib}
    link = "{http://www.w3.org/1999/xlink}href"
    assert {element.get(link)[1:] for element in root.iter() if link in element.attrib} <= named


def test_a_long_outline_stays_closed():
    figure = Figure()
    turn = np.linspace(0.0, 2.0 * np.pi, 200)
    figure.add_axes((0.0, 0.0, 1.0, 1.0)).fill(np.cos(turn), np.sin(turn), color="#a33c00", linewidth=12.0)
    root = ET.fromstring(report.Plot("p", figure, [{"a": 1}]).svg())
    [outline] = [element.get("d") for element in root.iter() if "#a33c00" in element.get("style", "")]
    assert outline.count("M") == outline.count("z") == 1
    assert outline.strip().endswith("z")


def test_a_figure_is_drawn_once_per_file(monkeypatch):
    drawn = []
    draw = Figure.draw
    monkeypatch.setattr(Figure, "draw", lambda figure, renderer: (drawn.append(renderer), draw(figure, renderer)))
    plot = lines()
    plot.svg()
    assert len(drawn) == 1
    plot.png()
    assert len(drawn) == 2


OPTIONS = {"measure": "m", "rng": rng()}
SWEEP = {"parameter": "a", **OPTIONS}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: distributions({"p": {}}), "panels['p'] is {}"),
        (lambda: distributions({"p": {"dqn": [[1.0]]}}), "panels['p']['dqn'] has shape (1, 1)"),
        (lambda: distributions({"p": {"dqn": []}}), "panels['p']['dqn'] has shape (0,)"),
        (lambda: report.learning_curves("l", {}, [0], **OPTIONS), "panels is empty"),
        (lambda: report.learning_curves("l", {"p": {"dqn": [[1.0]]}}, {}, **OPTIONS), "steps has no entry for 'p'"),
        (lambda: report.learning_curves("l", {"p": {"dqn": [[1.0]]}}, [1, 2], **OPTIONS), "1 points for 2 steps"),
        (lambda: report.learning_curves("l", {"p": {"dqn": [1.0]}}, [1], **OPTIONS), "shape (1,); give one curve per"),
        (lambda: report.profiles("p", {}, rng=rng()), "scores is empty"),
        (lambda: report.lines("l", {"p": {"q": [1.0]}}, [0.0, 1.0], x_label="x", measure="y"), "x of shape (2,)"),
        (lambda: sensitivity(chosen={"Baird": {"td": 7.0}}), "chosen is 7 for panels['Baird']['td']"),
        (lambda: report.sensitivity("s", {"p": {"td": {-1.0: [1.0]}}}, **SWEEP), "has the value -1.0"),
        (lambda: report.sensitivity("s", {"p": {"td": {1.0: [-1.0]}}}, log=True, **SWEEP), "give positive values"),
        (lambda: report.sensitivity("s", {"p": {"td": {}}}, **SWEEP), "give the runs by value"),
        (lambda: report.bars("b", {"p": {"g": {}}}, measure="m"), "give numbers by series"),
        (lambda: report.grid_map("g", {"qrc": np.zeros((4, 20))}, {}), "q['qrc'] has shape (4, 20)"),
        (lambda: report.grid_map("g", {}, {}), "q is empty"),
        (lambda: report.grid_map("g", tables(["qrc"]), tables(["dqn"])), "h names 'dqn'"),
        (lambda: report.grid_map("g", {"qrc": np.full((20, 4), np.nan)}, {}), "not finite everywhere"),
    ],
)
def test_bad_data_is_named(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_ticks():
    assert [step_label(step) for step in (0, 500, 20_000, 1_500_000)] == ["0", "500", "20k", "1.5M"]
    assert [log_label(value) for value in (0.001, 1.0, 5_000.0, 1e4, 2e-5)] == ["0.001", "1", "5000", "10⁴", "2·10⁻⁵"]
    assert padded([1.0, 3.0, np.nan, np.inf], 0.5) == (0.0, 4.0)
    assert padded([5.0]) == (4.75, 5.25)
    assert padded([np.nan]) == (0.0, 1.0)
    assert padded([-1.0, 0.0], log=True) == (0.1, 1.0)
    assert padded([1.0, 3.0], 0.0) == (1.0, 3.0)
    assert padded([1.0, 3.0], 0.0, log=True) == pytest.approx((1.0, 3.0))
    assert padded([1.0, 100.0, -1.0], 0.5, log=True) == pytest.approx((0.1, 1000.0))


@pytest.mark.parametrize(
    ("ends", "log", "expected"),
    [
        ((-497.0, -98.0), False, (-500.0, 0.0)),
        ((0.0, 1.0), False, (0.0, 1.0)),
        ((178.0, 500.0), False, (100.0, 500.0)),
        ((-1100.0, 110.0), False, (-1500.0, 500.0)),
        ((1.0, 20.0), True, (1.0, 20.0)),
        ((0.011, 0.09), True, (0.01, 0.1)),
        ((0.3, 5000.0), True, (0.1, 10_000.0)),
        ((1.1, 1.9), True, (1.0, 2.0)),
        ((0.9, 4.4), True, (0.5, 5.0)),
    ],
)
def test_axes_begin_and_end_on_a_tick(ends, log, expected):
    assert on_ticks(*ends, log=log) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["distributions", "learning_curves", "sensitivity", "bars", "lines"])
def test_the_vertical_axes_of_values_end_on_ticks(made, name):
    for axis in made[name].figure.axes:
        if axis.get_xlabel() == "failed" or not axis.get_yticks().size or axis.get_facecolor()[0] < 1.0:
            continue
        value_axis = axis.xaxis if name == "distributions" else axis.yaxis
        ticks = value_axis.get_majorticklocs()
        for end in value_axis.get_view_interval():
            assert np.isclose(ticks, end, atol=1e-9 * np.abs(ticks).max()).any()


def test_dots_of_one_place_are_stacked():
    values = np.array([1.0, 5.0, 1.01, 1.02, 9.0])
    offsets = stacked(values, bin_width=0.5, room=1.0, step=0.1)
    assert offsets.tolist() == [0.0, 0.0, 0.1, 0.2, 0.0]
    crowded = np.sort(stacked(np.zeros(50), bin_width=0.5, room=1.0, step=0.1))
    assert crowded[-1] == pytest.approx(1.0)
    assert all(a < b for a, b in pairwise(crowded)), "squeezed, not on top of each other"


def test_a_plot_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        lines().name = "other"
