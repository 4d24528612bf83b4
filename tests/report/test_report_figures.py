"""Curves, sensitivities, bars and maps show what was given."""

import math

import numpy as np
import pytest
from matplotlib.colors import to_hex
from report_figures import (
    bars,
    curves,
    drawn,
    learning_curves,
    lines,
    points,
    rng,
    sensitivity,
    settings,
    tables,
    written_rows,
)

from sb3_robust_be import report
from sb3_robust_be.envs.cliff_world import CLIFF, GOAL
from sb3_robust_be.evaluation import mean_curve, mean_interval
from sb3_robust_be.evaluation.means import MANY
from sb3_robust_be.report.learning import BAND_RESAMPLES
from sb3_robust_be.report.sensitivity_panels import places, value_labels


def test_learning_curves_show_the_bands_and_every_run(made):
    plot = made["learning_curves"]
    generator = rng()
    for axis, (panel, entries) in zip(plot.figure.axes, curves().items(), strict=True):
        assert (axis.get_title(loc="left"), axis.get_ylabel()) == (panel, "return")
        assert axis.get_xlabel() == "environment steps"
        for key, values in entries.items():
            values = np.where(np.isfinite(values), values, np.nan)
            band = mean_curve(values, rng=generator, n_resamples=BAND_RESAMPLES)
            rows = [row for row in written_rows(plot) if (row["panel"], row["algorithm"]) == (panel, key)]
            for column, expected in (("mean", band.estimate), ("low", band.low), ("high", band.high)):
                np.testing.assert_array_equal([float(row[column]) for row in rows], expected)
            assert [int(row["runs"]) for row in rows] == np.isfinite(values).sum(axis=0).tolist()
            [line] = drawn(axis, f"_mean:{key}")
            np.testing.assert_array_equal(line.get_ydata(), band.estimate[np.isfinite(values).all(axis=0)])
            assert len(drawn(axis, f"_runs:{key}")) == len(values)
    assert "A line is drawn where every run has a value." in plot.caption
    assert not drawn(learning_curves().figure.axes[0], "_runs:dqn")


def test_fractions_have_six_digits_in_a_figures_csv():
    values = {
        "mean": np.float64(-459.92640000000006),
        "low": 1 / 3,
        "x": 200.0,
        "large": 1234567.0,
        "tiny": 1.23456789e-9,
    }
    values |= {"lost": math.nan, "runs": 1234567, "algorithm": "dqn", "none": None}
    plot = report.Plot("p", learning_curves().figure, [values, {"mean": -math.inf}])
    assert plot.csv().decode().splitlines()[1:] == [
        "-459.926,0.333333,200.0,1234567.0,1.23457e-09,nan,1234567,dqn,",
        "-inf,,,,,,,,",
    ]


@pytest.mark.parametrize(
    ("runs", "lost", "words"),
    [
        ((MANY - 1, 5), 0, "by Student's t corrected for skewness."),
        ((MANY, 2 * MANY), 0, "by a percentile bootstrap."),
        ((5, MANY), 0, "for fewer than 30 runs by Student's t corrected for skewness, else by a percentile bootstrap."),
        # What counts are the runs that are not left out.
        ((MANY, MANY), 1, "by Student's t corrected for skewness."),
        ((3, MANY), 3, "for fewer than 30 runs by Student's t corrected for skewness, else by a percentile bootstrap."),
    ],
)
def test_the_caption_says_how_the_bands_were_made(runs, lost, words):
    panels = {f"p{i}": {"dqn": rng(i).normal(size=(n, 2))} for i, n in enumerate(runs)}
    if lost == 1:
        for own in panels.values():
            own["dqn"][0] = np.nan
    elif lost:
        panels["p0"]["qrc"] = np.full((lost, 2), np.nan)
    plot = report.learning_curves("l", panels, [0, 1], measure="m", rng=rng())
    assert plot.caption.startswith(f"Lines: means over runs; bands: pointwise 95 % intervals, {words}")
    for row in plot.data:
        values = panels[row["panel"]][row["algorithm"]][:, int(row["step"])]
        if np.isfinite(values).sum() in (MANY - 1, 5):
            expected = mean_interval(values[np.isfinite(values)], rng=rng())
            assert (row["mean"], row["low"], row["high"]) == (expected.estimate, expected.low, expected.high)


def test_a_panel_is_as_high_as_what_the_runs_did():
    """The interval of two runs is 6 times as wide as they are apart; that of thirty is within them."""
    two, thirty = np.array([[0.0, 0.0], [10.0, 10.0]]), rng().uniform(0.0, 10.0, (MANY, 2))
    for values, cut_off in ((two, True), (thirty, False)):
        plot = report.learning_curves("l", {"p": {"dqn": values}}, [0, 1], measure="m", rng=rng())
        [axis] = plot.figure.axes
        low, high = axis.get_ylim()
        assert 0.0 <= low < high <= 10.0
        assert ("Bands that a panel cuts off are wider than the runs are apart." in plot.caption) is cut_off
        assert all(row["low"] <= low if cut_off else low <= row["low"] for row in plot.data)
    # The band itself is whole.
    assert report.learning_curves("l", {"p": {"dqn": two}}, [0, 1], measure="m", rng=rng()).data[0]["low"] < -50.0


def test_few_equal_runs_have_a_line_and_no_band():
    plot = report.learning_curves("l", {"p": {"dqn": np.ones((4, 2))}}, [0, 1], measure="m", rng=rng())
    assert [(row["mean"], np.isnan(row["low"]), np.isnan(row["high"])) for row in plot.data] == [(1.0, True, True)] * 2
    [line] = drawn(plot.figure.axes[0], "_mean:dqn")
    assert line.get_ydata().tolist() == [1.0, 1.0]
    assert b"</svg>" in plot.svg()


def test_many_curves_are_bands():
    values = np.arange(31.0)[:, None] * np.array([1.0, 2.0])
    plot = report.learning_curves("l", {"p": {"dqn": values}}, [0, 1], measure="m", rng=rng(), show_runs=True)
    [axis] = plot.figure.axes
    assert not drawn(axis, "_runs:dqn")
    [band] = [one for one in axis.collections if one.get_label() == "_spread:dqn"]
    assert {tuple(corner) for corner in band.get_paths()[0].vertices} == {
        (0.0, 3.0),
        (0.0, 27.0),
        (1.0, 6.0),
        (1.0, 54.0),
    }
    assert plot.caption.endswith("Pale bands: the middle 80 % of the runs.")
    few = report.learning_curves("l", {"p": {"dqn": values[:30]}}, [0, 1], measure="m", rng=rng(), show_runs=True)
    assert len(drawn(few.figure.axes[0], "_runs:dqn")) == 30
    assert few.caption.endswith("Thin lines: the runs.")


def test_a_mean_is_over_the_same_runs_everywhere():
    """A low run among high ones, whose episode alone ends last: the mean must not fall to it; a failed one is none."""
    values = np.full((4, 6), 100.0)
    values[0], values[1:3, 4:], values[3] = 1.0, np.nan, np.nan
    values[1, 2] = np.nan
    plot = report.learning_curves("l", {"p": {"dqn": values}}, range(6), measure="return", rng=rng())
    means = [row["mean"] for row in plot.data]
    np.testing.assert_array_equal(means, [67.0, 67.0, np.nan, 67.0, np.nan, np.nan])
    assert [row["runs"] for row in plot.data] == [3, 3, 2, 3, 1, 1]
    [line] = drawn(plot.figure.axes[0], "_mean:dqn")
    assert line.get_xdata().tolist() == [0.0, 1.0, 3.0]
    assert plot.alt.endswith("At the end: p: DQN 67.")
    assert plot.caption.endswith(
        "where every run has a value. Left out, as they have no value at all: 1 of 4 of DQN (p) runs."
    )


NONE, SOME = np.full(6, np.nan), np.arange(1.0, 7.0)


@pytest.mark.parametrize("dqn", [SOME, NONE], ids=["one algorithm", "all algorithms"])
def test_figures_of_algorithms_whose_runs_all_failed(dqn):
    runs = {"dqn": dqn, "qrc": NONE}
    options = {"measure": "return", "rng": rng()}
    plots = [report.distributions("d", {"p": runs}, **options)]
    for log in (False, True):
        settings = {key: {1.0: values, 2.0: values} for key, values in runs.items()}
        plots.append(report.sensitivity("s", {"p": settings}, parameter="α", log=log, **options))
    for plot in plots:
        crosses = {key: sum(len(points(axis, f"_failed:{key}")) for axis in plot.figure.axes) for key in runs}
        failed = {
            key: sum(row["kind"] == "run" and np.isnan(row["value"]) for row in rows_of(plot, key)) for key in runs
        }
        assert crosses == failed
        assert crosses["qrc"] >= 6
    learning = {key: np.tile(values, (3, 1)) for key, values in runs.items()}
    learning["sbeed"] = np.array([SOME, NONE])
    plot = report.learning_curves("l", {"p": learning}, range(6), show_runs=True, **options)
    dqn_left_out = "3 of 3 of DQN (p), " if dqn is NONE else ""
    expected = f"no value at all: {dqn_left_out}3 of 3 of QRC (p), 1 of 2 of SBEED (p) runs."
    assert plot.caption.endswith(expected)
    assert all(np.isnan(row["mean"]) and row["runs"] == 0 for row in rows_of(plot, "qrc"))
    made = {key: float(values[0]) for key, values in runs.items()}
    plots += [plot, report.bars("b", {"p": {"g": made}}, measure="error", log=True)]
    plots.append(report.lines("o", {"p": runs}, range(6), x_label="θ", measure="objective"))
    for plot in plots:
        assert b"</svg>" in plot.svg()


def rows_of(plot, key):
    return [row for row in plot.data if row["algorithm"] == key]


def test_profiles_fall_from_one_to_zero(made):
    plot = made["profiles"]
    [axis] = plot.figure.axes
    for key in ("dqn", "qrc", "qrc_huber"):
        fractions = points(axis, f"_mean:{key}")[:, 1]
        assert fractions[[0, -1]].tolist() == [1.0, 0.0]
        assert (np.diff(fractions) <= 0.0).all()
        rows = [row for row in plot.data if row["algorithm"] == key]
        np.testing.assert_array_equal([row["fraction"] for row in rows], fractions)
        assert all(row["low"] <= row["fraction"] <= row["high"] for row in rows)


def test_minima_are_marked():
    plot = lines()
    bellman, values = plot.figure.axes
    assert points(bellman, "_minimum:MSBE")[0] == pytest.approx([0.25, 0.0])
    assert points(values, "_minimum:MSVE")[0] == pytest.approx([-0.5, 0.0])
    assert [row["x"] for row in plot.data if row["minimum"]] == pytest.approx([0.25, 0.25, -0.5])
    assert "MSVE at −0.5" in plot.alt
    # Equal curves are told apart by their line styles.
    assert len({drawn(bellman, f"_curve:{key}")[0].get_linestyle() for key in ("MSBE", "MHBE, τ = 1")}) == 2
    plain = lines(minima=False)
    assert not any(row["minimum"] for row in plain.data)
    assert not drawn(plain.figure.axes[0], "_minimum:MSBE")
    assert lines(log=True).figure.axes[0].get_yscale() == "log"


# Sensitivity.


def test_every_run_of_a_sweep_is_a_dot_or_a_cross(made):
    plot = made["sensitivity"]
    for axis, strip, entries in zip(plot.figure.axes[::2], plot.figure.axes[1::2], settings().values(), strict=True):
        for key, of in entries.items():
            values = np.concatenate(list(of.values()))
            np.testing.assert_array_equal(
                np.sort(points(axis, f"_runs:{key}")[:, 1]), np.sort(values[np.isfinite(values)])
            )
            assert len(points(strip, f"_failed:{key}")) == (~np.isfinite(values)).sum()
        crosses = points(strip, "_failed:td")[:, 0]
        assert ((crosses > -1.5) & (crosses < -0.5)).all(), "at the setting that failed, 2⁻¹"
        assert len({*crosses}) == 6
    found = {(row["panel"], row["algorithm"], row["parameter"]) for row in plot.data if row["best"]}
    assert found == {(panel, key, 2.0**-4) for panel in settings() for key in settings()[panel]}


def test_many_runs_at_a_setting_are_a_band(made):
    values = np.arange(101.0)
    values[90:] = np.nan
    options = {"parameter": "α", "measure": "error", "rng": rng()}
    plot = report.sensitivity("s", {"p": {"td": {1.0: values, 2.0: 2.0 * values, 4.0: [np.nan] * 31}}}, **options)
    main, strip = plot.figure.axes
    assert not len(points(main, "_runs:td"))
    [band] = [one for one in main.collections if one.get_label() == "_spread:td"]
    corners = band.get_paths()[0].vertices
    # The tenths of 0 … 89, at the settings 2⁰ and 2¹: 8.9 and 80.1.
    assert {(round(x), round(y, 6)) for x, y in corners} == {(0, 8.9), (0, 80.1), (1, 17.8), (1, 160.2)}
    [shares] = strip.collections
    tops = {(round(x, 6), round((0.4 - y) / 0.8, 6)) for x, y in shares.get_paths()[0].vertices}
    assert {(-0.5, round(11 / 101, 6)), (1.5, round(11 / 101, 6)), (1.5, 1.0), (2.5, 1.0)} <= tops
    rows = [row for row in plot.data if row["kind"] == "spread"]
    assert [(row["parameter"], row["off_scale"]) for row in rows] == [(1.0, 11), (2.0, 11), (4.0, 31)]
    assert [row["low"] for row in rows[:2]] == pytest.approx([8.9, 17.8])
    assert not any(row["kind"] == "run" for row in plot.data)
    assert plot.caption.startswith("Pale bands: the middle 80 % of the runs;")
    assert "share of runs that failed" in plot.caption
    assert made["sensitivity"].caption.startswith("Dots: the runs;")


def test_every_setting_has_a_column(made):
    main = made["sensitivity"].figure.axes[0]
    columns = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in main.patches]
    assert columns == [(e - 0.5, e + 0.5) for e in range(-9, 0, 2)], "every second one is shaded"
    for key in ("tdc", "tdc-huber", "td"):
        offsets = points(main, f"_runs:{key}")[:, 0]
        assert (np.abs(offsets - np.round(offsets)) < 0.5).all()
    assert main.get_xlim() == (-9.5, -0.5)


def test_runs_off_the_scale_are_crosses_and_cost_the_mark():
    plot = sensitivity(worst={"SmallChain": 3.0})
    limited, free = plot.figure.axes[0], plot.figure.axes[2]
    assert points(limited, "_runs:td")[:, 1].max() <= 3.0 < points(free, "_runs:td")[:, 1].max()
    off = [
        row for row in plot.data if row.get("off_scale") and row["panel"] == "SmallChain" and row["algorithm"] == "tdc"
    ]
    assert len(off) == len(points(plot.figure.axes[1], "_failed:tdc")) > 10
    returns = {"p": {"dqn": {1.0: [10.0, np.nan], 2.0: [5.0, 5.0], 4.0: [6.0, 6.0]}}}
    options = {"parameter": "refresh", "measure": "return", "rng": rng()}
    best = report.sensitivity("s", returns, **options)
    assert {row["parameter"] for row in best.data if row["best"]} == {4.0}, "no failed run comes before a higher mean"
    marked = report.sensitivity("s", returns, chosen={"p": {"dqn": 2.0}}, **options)
    assert {row["parameter"] for row in marked.data if row["best"]} == {2.0}
    assert points(marked.figure.axes[0], "_best:dqn")[0, 1] == 5.0
    assert ["selection seeds" in plot.caption for plot in (marked, best)] == [True, False]


def test_places_and_labels_of_settings():
    assert places([0.0, 0.5, 1.0, 2.0, math.inf]) == {0.0: -2.0, 0.5: -1.0, 1.0: 0.0, 2.0: 1.0, math.inf: 2.0}
    assert places([0.0, math.inf]) == {0.0: -1.0, math.inf: 1.0}
    assert list(value_labels([2.0**-16, 2.0**-4, 1.0, math.inf]).values()) == ["2⁻¹⁶", "2⁻⁴", "2⁰", "∞"]
    assert list(value_labels([0.0, 0.25, 64.0, 500.0]).values()) == ["0", "0.25", "64", "500"]


def test_many_dots_become_a_bitmap_and_the_text_stays():
    def svg(settings):
        panels = {"p": {"td": {2.0**i: rng(i).normal(size=30) for i in range(settings)}}}
        return report.sensitivity("s", panels, parameter="α", measure="MSVE", rng=rng()).svg()

    few, many = svg(2), svg(40)
    assert b"<image" not in few
    assert b"<image" in many
    assert b">MSVE<" in many
    assert len(many) < 300_000


@pytest.mark.parametrize("low", [0.0123, 0.9, 1.0, 2.1, 6.0])
@pytest.mark.parametrize("factor", [1.3, 2.0, 3.2, 4.95, 5.05, 20.0, 400.0])
def test_a_logarithmic_axis_has_several_labels(low, factor):
    plot = report.lines("l", {"p": {"a": [low, factor * low]}}, [0.0, 1.0], x_label="x", measure="y", log=True)
    plot.figure.draw_without_rendering()
    [axis] = plot.figure.axes
    bottom, top = axis.get_ylim()
    inside = [tick.label1.get_text() for tick in axis.yaxis.get_major_ticks() if bottom <= tick.get_loc() <= top]
    assert 2 <= len(set(inside)) == len(inside) <= 9
    assert all(inside)


# Bars and maps.


def test_bars_stand_at_their_numbers():
    plot = bars()
    [axis] = plot.figure.axes
    heights = {}
    for container in axis.containers:
        [bar] = container
        heights.setdefault(container.get_label(), []).append(bar.get_y() + bar.get_height())
    assert heights["_bar:MHBE"] == pytest.approx([1.02, 2.0])
    assert heights["_bar:MSBE, all"] == pytest.approx([12.5, 1.0]), "nothing for a missing number"
    assert heights["_bar:MSBE, V"][0] == pytest.approx(3.0)
    assert 12.5 < heights["_bar:MSBE, V"][1] < axis.get_ylim()[1], "an infinity is higher than all"
    assert [text.get_text() for text in axis.texts] == ["12.5", "3", "1.02", "–", "∞", "2"]
    assert points(axis, "_interval:MHBE")[:, 1].tolist() == [1.5, 2.75]
    colours = [to_hex(container[0].get_facecolor()).upper() for container in axis.containers[:3]]
    assert colours == ["#0072B2", "#66AAD1", "#D55E00"], "the second variant is paler"
    assert [row["value"] for row in plot.data][:3] == [12.5, 3.0, 1.02]
    assert bars(log=False).figure.axes[0].get_ylim()[0] == 0.0
    assert bars(log=False, baseline=-1.0).figure.axes[0].get_ylim()[0] == -1.0


def test_maps_show_values_and_greedy_actions(made):
    plot = made["grid_map"]
    q = tables(["qrc", "qrc_huber", "optimal"])
    shown = [state for state in range(20) if state not in CLIFF and state != GOAL]
    maps = [axis for axis in plot.figure.axes if "max q" in axis.get_title()]
    for axis, key in zip(maps, q, strict=True):
        assert axis.get_title().startswith(report.label(key))
        values = [text.get_text() for text in axis.texts if text.get_label() == "_value"]
        assert values == [report.tables.number(q[key][state].max(), 3) for state in shown]
        arrows = [text for text in axis.texts if getattr(text, "arrow_patch", None) is not None]
        moves = [np.sign(np.subtract(arrow.xy, arrow.get_position()).round(9)).tolist() for arrow in arrows]
        towards = {0: [0, 1], 1: [1, 0], 2: [0, -1], 3: [-1, 0]}
        assert moves == [towards[int(q[key][state].argmax())] for state in shown]
    rows = [row for row in written_rows(plot) if row["algorithm"] == "qrc"]
    np.testing.assert_array_equal(np.reshape([float(row["q"]) for row in rows], (20, 4)), q["qrc"])
    assert [row["action"] for row in rows[:4]] == ["up", "right", "down", "left"]
    assert sum(row["greedy"] == "True" for row in rows) == 20


@pytest.mark.parametrize(
    ("n_labels", "rows"),
    [(3, ["012"]), (6, ["012", "345"]), (7, ["0123", "456"])],
)
def test_legends_are_read_row_by_row(n_labels, rows):
    """Five labels of this length fit into a row; two rows are about equally long."""
    names = [f"number {i}, wide" for i in range(n_labels)]
    plots = [
        report.bars("bars", {"p": {"g": dict.fromkeys(names, 1.0)}}, measure="m"),
        report.learning_curves("curves", {"p": dict.fromkeys(names, np.zeros((2, 2)))}, [0, 1], measure="m", rng=rng()),
    ]
    for plot in plots:
        plot.png()
        [legend] = plot.figure.legends
        by_height: dict[float, list[tuple[float, str]]] = {}
        for text in legend.get_texts():
            box = text.get_window_extent()
            by_height.setdefault(-round(box.y0), []).append((box.x0, text.get_text().split()[1].rstrip(",")))
        assert ["".join(label for _, label in sorted(by_height[y])) for y in sorted(by_height)] == rows
