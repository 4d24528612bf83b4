"""Distributions over seeds: every run, means, violins, failures and distribution functions."""

import numpy as np
import pytest
import scipy
from report_figures import bimodal, distributions, drawn_texts, points, rng, scores, written_rows

from sb3_robust_be.evaluation import ecdf_band, mean_interval
from sb3_robust_be.report import label
from sb3_robust_be.report.rain import density


def score_axes(plot):
    """(scores, failed, distribution function) of each panel; ``failed`` is None without a failure."""
    axes = plot.figure.axes
    width = 3 if any(axis.get_xlabel() == "failed" for axis in axes) else 2
    return [tuple(axes[i : i + width]) for i in range(0, len(axes), width)]


def test_every_run_is_a_dot_or_a_cross(made):
    plot = made["distributions"]
    for (axis, strip, _), entries in zip(score_axes(plot), scores().values(), strict=True):
        for key, values in entries.items():
            finite = values[np.isfinite(values)]
            dots = points(axis, f"_runs:{key}")
            np.testing.assert_array_equal(np.sort(dots[:, 0]), np.sort(finite))
            assert len(np.unique(dots, axis=0)) == len(finite), "each at a place of its own"
            assert len(points(strip, f"_failed:{key}")) == len(values) - len(finite)
    assert [text.get_text() for _, strip, _ in score_axes(plot) for text in strip.texts] == ["7 of 30"]


def test_means_intervals_and_violins(made):
    plot = made["distributions"]
    kinds = [line.get_label() for axis, *_ in score_axes(plot) for line in axis.get_lines()]
    assert kinds.count("_violin:half") == 5
    assert kinds.count("_violin:line") == 1, "runs that agree have no density"
    generator = rng()
    means = [row for row in plot.data if row["kind"] == "mean"]
    order = [(panel, key) for panel, entries in scores().items() for key in entries]
    order.remove(("Cliff World", "qrc"))  # has failed runs, so that a mean of the others would flatter it
    assert [(row["panel"], row["algorithm"]) for row in means] == order
    for row, (panel, key) in zip(means, order, strict=True):
        values = scores()[panel][key]
        expected = mean_interval(values, rng=generator)
        np.testing.assert_array_equal(
            [row["value"], row["low"], row["high"]], [expected.estimate, expected.low, expected.high]
        )
        [axis] = [axis for axis, *_ in score_axes(plot) if axis.get_title(loc="left") == panel] or [
            axis for axis, strip, _ in score_axes(plot) if strip.get_title(loc="left") == panel
        ]
        assert points(axis, f"_mean:{key}")[0, 0] == row["value"]
    assert not any(len(points(axis, "_mean:qrc")) for axis, *_ in score_axes(plot)[1:])
    assert "no mean where any failed" in plot.caption


def test_distribution_functions_count_failures_as_worst(made):
    [_, (_, _, axis)] = score_axes(made["distributions"])
    values = np.where(np.isfinite(scores()["Cliff World"]["qrc"]), scores()["Cliff World"]["qrc"], -np.inf)
    x, y = points(axis, "_ecdf:qrc").T
    np.testing.assert_array_equal(y, ecdf_band(values, x).estimate)
    assert y[0] == 7 / 30
    assert y[-1] == 1.0
    errors = distributions({"p": {"dqn": [1.0, 2.0, np.nan]}}, higher_is_better=False)
    [(scores_axis, strip, axis)] = score_axes(errors)
    assert points(axis, "_ecdf:dqn")[:, 1].tolist() == [1 / 3, 1 / 3, 2 / 3, 2 / 3]
    # Failures stand at the bad end.
    assert strip.get_position().x0 > scores_axis.get_position().x0
    [(scores_axis, strip, _)] = score_axes(distributions({"p": {"dqn": [1.0, 2.0, np.nan]}}))
    assert strip.get_position().x0 < scores_axis.get_position().x0


def test_the_right_panels_have_a_legend_and_say_what_they_show(made):
    for (*_, axis), entries in zip(score_axes(made["distributions"]), scores().values(), strict=True):
        assert " ".join(axis.get_ylabel().split()) == "share of seeds at or below"
        assert [text.get_text() for text in axis.get_legend().get_texts()] == [label(key) for key in entries]
        colours = [line.get_color() for line in axis.get_legend().get_lines()]
        assert colours == [axis.get_lines()[i].get_color() for i in range(len(entries))]


@pytest.mark.parametrize("values", [[3.0], [np.nan], [np.nan, 2.0], [5.0, 5.0], [1e9, 1e9 + 1.0], [-1e-9, 1e-9]])
def test_small_and_degenerate_samples_are_drawn(values):
    plot = distributions({"p": {"dqn": values, "qrc": [0.0, 1.0]}})
    (axis, *_), finite = score_axes(plot)[0], np.isfinite(values).sum()
    assert len(points(axis, "_runs:dqn")) == finite
    means = sum(row["kind"] == "mean" and row["algorithm"] == "dqn" for row in plot.data)
    assert means == np.isfinite(values).all()
    drawn_texts(plot.figure)


def test_the_rows_recreate_the_runs(made):
    rows = [row for row in written_rows(made["distributions"]) if row["kind"] == "run"]
    for panel, entries in scores().items():
        for key, values in entries.items():
            own = [row for row in rows if (row["panel"], row["algorithm"]) == (panel, key)]
            assert [int(row["run"]) for row in own] == list(range(30))
            np.testing.assert_array_equal([float(row["value"]) for row in own], values)


def test_the_density_shows_two_modes_where_there_are_two():
    values = bimodal()
    at = np.linspace(-1000.0, -200.0, 81)
    estimate = density(values, at)
    middle = estimate[(at > -700.0) & (at < -500.0)].max()
    assert middle < 0.1 * estimate[at < -800.0].max()
    assert middle < 0.1 * estimate[at > -400.0].max()
    # A normal sample keeps one, and the estimate is a density.
    single = rng(8).normal(size=200)
    at = np.linspace(-6.0, 6.0, 1201)
    estimate = density(single, at)
    assert scipy.integrate.trapezoid(estimate, at) == pytest.approx(1.0, abs=1e-3)
    inner = np.abs(at) < 1.5
    assert (np.diff(np.sign(np.diff(estimate[inner]))) < 0).sum() == 1
    assert np.isfinite(density(np.repeat([0.0, 1.0], 600), at)).all()


def test_the_label_of_two_algorithms_stays_beside_its_axis():
    plot = distributions({"CartPole-v1": {"qlc": np.arange(5.0), "dqn": np.arange(5.0)}})
    plot.figure.canvas.draw()
    (*_, right) = plot.figure.axes
    beside, box = right.yaxis.label.get_window_extent(), right.get_window_extent()
    legend = right.get_legend().get_window_extent()
    assert not beside.overlaps(legend)
    assert beside.height <= 1.15 * box.height
