"""Publishing: what is kept of the runs, and reports made from it alone."""

from __future__ import annotations

import gzip
import json
import shutil

import numpy as np
import pytest
from sb3_robust_be.experiments.published import PublishedResults, load, published, to_json, write
from sb3_robust_be.experiments.publishing import publish, same_figures
from sb3_robust_be.experiments.recording import RecordingResults

from sb3_robust_be import report
from sb3_robust_be.evaluation import computed
from sb3_robust_be.experiments import RunWriter
from sb3_robust_be.experiments.experiment import Analysis, Experiment, Results
from sb3_robust_be.experiments.reporting import Made, make_report
from sb3_robust_be.experiments.store import prepare

MADE = Made("the command", {"a package": "1.0"}, {"processor": "theirs"})
DATE = "2026-01-02"


def spec(seed):
    return {"function": "runner_functions:square", "seed": seed}


def make_runs(out, seeds=3, curve=lambda seed: np.linspace(0.0, seed, 5)):
    """The last run has failed."""
    prepare(out)
    for seed in range(seeds):
        writer = RunWriter(out, spec(seed))
        writer.start("x")
        if seed == seeds - 1:
            writer.fail("no luck")
            continue
        writer.write_arrays("curve", curve=curve(seed), unread=np.zeros(1000))
        writer.finish({"final": seed / 3.0, "nested": {"nan": np.nan, "unread": 1}, "unread": list(range(1000))})


def stages(preset, results):
    yield [spec(seed) for seed in range(preset)]


def analyse(preset, results):
    (specs,) = stages(preset, results)
    done = [one for one in results.of(specs) if one is not None]
    curves = [results.arrays(own)["curve"] for own, one in zip(specs, results.of(specs), strict=True) if one]
    rows = [{"final": one["final"], "nan": one["nested"]["nan"], "end": own[-1]} for one, own in zip(done, curves)]  # noqa: B905
    return Analysis(
        verdicts=[computed("The finals are small", sum(one["final"] for one in done), 1.0)],
        tables=[report.Table("finals", rows)],
    )


def experiment(analyse=analyse, seeds=3):
    return Experiment("own", "nowhere", "Own", ("It works.",), {"laptop": seeds}, stages, analyse)


def lean(preset, results):
    """Reads one number of each run."""
    (specs,) = stages(preset, results)
    finals = [one["final"] for one in results.of(specs) if one is not None]
    return Analysis(tables=[report.Table("finals", [{"mean": float(np.mean(finals))}])])


def test_a_report_from_the_summary_alone(tmp_path):
    make_runs(tmp_path / "runs-of-own")
    wanted = make_report(experiment(), "laptop", Results(tmp_path / "runs-of-own"), MADE)
    path = publish(experiment(), "laptop", tmp_path / "runs-of-own", tmp_path / "new" / "folder", MADE, DATE)
    assert path.name == "own-laptop.json"
    shutil.rmtree(tmp_path / "runs-of-own")
    results = load(path.parent, "own", "laptop")
    found = make_report(experiment(), "laptop", results, results.made)
    assert found.verdicts == wanted.verdicts
    assert [(row["claim"], row["outcome"]) for row in results.verdicts] == [("The finals are small", "holds")]
    assert found.tables[0].markdown() == wanted.tables[0].markdown()
    assert found.failures == wanted.failures == [(found.failures[0][0], "no luck")]
    assert (found.command, found.versions, found.hardware) == ("the command", MADE.versions, MADE.hardware)
    assert DATE in found.notes[0]
    assert "published" in found.notes[0]


def test_only_what_is_read_is_kept(tmp_path):
    make_runs(tmp_path)
    path = publish(experiment(lean), "laptop", tmp_path, tmp_path, MADE, DATE)
    content = json.loads(path.read_bytes())
    assert "unread" not in path.read_text()
    assert content["arrays"] == {}
    assert path.stat().st_size < 800
    results = load(tmp_path, "own", "laptop")
    (one,) = results.of([spec(1)])
    assert one["final"] == 1 / 3  # to the last digit
    assert results.of([spec(2)]) == [None]
    none, failure = results.failures([spec(0), spec(2)])
    assert none is None
    assert failure["error"] == "no luck"
    assert "traceback" not in content["failures"]


def test_what_was_not_published_is_an_error(tmp_path):
    make_runs(tmp_path)
    publish(experiment(lean), "laptop", tmp_path, tmp_path, MADE, DATE)
    results = load(tmp_path, "own", "laptop")
    (one,) = results.of([spec(1)])
    with pytest.raises(ValueError, match="'nested' of a run is not published; make the report from the runs"):
        one["nested"]
    with pytest.raises(ValueError, match="'unread' of a run"):
        one.get("unread")
    with pytest.raises(ValueError, match="not all that a run has left"):
        dict(one)
    with pytest.raises(ValueError, match=r"'curve' of run \w+ \(1\) is not published in own-laptop"):
        results.arrays(spec(1))
    with pytest.raises(ValueError, match=r"'curve: mean' of run"):
        results.reduced(spec(1), "curve", "mean", lambda arrays: {})
    with pytest.raises(ValueError, match=r"run \w+ \(9\) is not published.*has changed since"):
        results.of([spec(9)])


@pytest.mark.parametrize(
    ("read", "answer"),
    [
        (lambda one: one.get("absent", 7), 7),
        (lambda one: "absent" in one, False),
        (lambda one: list(one), ["final", "nested", "unread"]),
        (lambda one: dict(one)["final"], 1 / 3),
        (lambda one: {**one}["nested"]["unread"], 1),
        (lambda one: [len(value) for key, value in one.items() if key == "nested"], [2]),
        (lambda one: (one or {"final": 1.0})["final"], 1 / 3),
        (lambda one: one["nested"] is None, False),
        (lambda one: one["nested"].get("absent"), None),
        (lambda one: one["unread"][3], 3),
    ],
)
def test_every_way_of_reading_is_noted(read, answer, tmp_path):
    """What was asked once can be asked again, with the same answer."""
    make_runs(tmp_path)
    noting = RecordingResults(tmp_path)
    (noted,) = noting.of([spec(1)])
    assert read(noted) == answer
    page = make_report(experiment(), "laptop", Results(tmp_path), MADE)
    (again,) = PublishedResults(to_json(page, "laptop", noting, MADE, DATE, None)).of([spec(1)])
    assert read(again) == answer


@pytest.mark.parametrize(("scale_of_difference", "digits"), [(1e-2, 4), (1e-5, 6), (1e-8, 9), (1e-13, None)])
def test_arrays_have_as_many_digits_as_the_report_needs(scale_of_difference, digits, tmp_path):
    make_runs(tmp_path, curve=lambda seed: 1.0 + scale_of_difference * (1.0 + seed / 3.0) * np.ones(5))

    def differences(preset, results):
        (specs,) = stages(preset, results)
        rows = [{"over 1": results.arrays(one)["curve"][0] - 1.0} for one in specs[:2]]
        return Analysis(tables=[report.Table("differences", [{"x": f"{row['over 1']:.1g}"} for row in rows])])

    path = publish(experiment(differences), "laptop", tmp_path, tmp_path, MADE, DATE)
    assert json.loads(path.read_bytes())["digits"] == digits


def figure(rows, caption=""):
    return report.Report("x", "x", plots=[report.Plot("plot", None, rows, caption)])


@pytest.mark.parametrize(
    ("rows", "same"),
    [
        ([{"x": 1.001, "y": np.nan, "mark": True}, {"x": 100.0, "y": np.inf, "mark": False}], True),
        (
            [{"x": 1.09, "y": np.nan, "mark": True}, {"x": 100.0, "y": np.inf, "mark": False}],
            True,
        ),  # a thousandth of 100
        ([{"x": 1.2, "y": np.nan, "mark": True}, {"x": 100.0, "y": np.inf, "mark": False}], False),
        ([{"x": 1.0, "y": np.nan, "mark": False}, {"x": 100.0, "y": np.inf, "mark": True}], False),
        ([{"x": 1.0, "y": np.nan, "mark": True}, {"x": 100.0, "y": 1.0, "mark": False}], False),
        ([{"x": 1.0, "y": np.nan, "mark": True}], False),
        ([{"x": 1.0, "z": np.nan, "mark": True}, {"x": 100.0, "z": np.inf, "mark": False}], False),
    ],
)
def test_figures_that_look_the_same(rows, same):
    one = figure([{"x": 1.0, "y": np.nan, "mark": True}, {"x": 100.0, "y": np.inf, "mark": False}])
    assert same_figures(one, figure(rows)) == same
    assert not same_figures(one, figure(one.plots[0].data, "another caption"))
    assert not same_figures(one, report.Report("x", "x"))


def test_a_figure_needs_its_marks(tmp_path):
    """Where a minimum is drawn, four digits may move it."""
    make_runs(tmp_path, curve=lambda seed: np.array([1.0 + 1e-5, 1.0 + 2e-5, 1.0]))

    def minimum(preset, results):
        curve = results.arrays(spec(1))["curve"]
        rows = [{"value": x, "least": i == int(curve.argmin())} for i, x in enumerate(curve.tolist())]
        return Analysis(plots=[report.Plot("plot", None, rows)])

    path = publish(experiment(minimum), "laptop", tmp_path, tmp_path, MADE, DATE)
    assert json.loads(path.read_bytes())["digits"] == 6


def test_an_analysis_that_is_no_function_of_the_runs_is_refused(tmp_path):
    make_runs(tmp_path)
    calls = iter(range(100))
    with pytest.raises(ValueError, match="differs each time"):
        publish(experiment(lambda p, r: Analysis(verdicts=[computed("n", next(calls), 5.0)])), "laptop", tmp_path,
                tmp_path, MADE, DATE)  # fmt: skip
    assert not list(tmp_path.glob("*.json*"))


def test_reductions_are_kept_in_place_of_arrays(tmp_path):
    make_runs(tmp_path)

    def reduced(preset, results):
        ends = results.reduced(spec(1), "curve", "end", lambda arrays: {"end": arrays["curve"][-2:] / 3.0})
        rough = results.reduced(spec(1), "curve", "rough", lambda arrays: {"end": arrays["curve"] / 3.0}, exact=False)
        return Analysis(verdicts=[computed("end", float(ends["end"][1]), 1.0)], notes=[str(rough["end"].shape)])

    path = publish(experiment(reduced), "laptop", tmp_path, tmp_path, MADE, DATE)
    assert set(json.loads(path.read_bytes())["arrays"]) == {"curve: end", "curve: rough"}
    results = load(tmp_path, "own", "laptop")
    assert results.reduced(spec(1), "curve", "end", dict)["end"].tolist() == [0.75 / 3.0, 1.0 / 3.0]
    assert results.reduced(spec(1), "curve", "rough", dict)["end"][-1] == 0.3333


def test_the_same_content_is_the_same_bytes(tmp_path):
    make_runs(tmp_path)
    for folder in ("a", "b"):
        publish(experiment(), "laptop", tmp_path, tmp_path / folder, MADE, DATE)
    assert (tmp_path / "a" / "own-laptop.json").read_bytes() == (tmp_path / "b" / "own-laptop.json").read_bytes()


def test_a_thousand_curves_are_small_and_then_compressed(tmp_path):
    rng = np.random.default_rng(0)
    noting = RecordingResults(tmp_path)
    prepare(tmp_path)
    for seed in range(20):
        writer = RunWriter(tmp_path, spec(seed))
        writer.start("x")
        writer.write_arrays("curve", curve=rng.normal(-100.0, 50.0, 5_000))
        writer.finish({"final": rng.normal()})
        (one,) = noting.of([spec(seed)])
        assert one["final"] is not None
        assert len(noting.arrays(spec(seed))["curve"]) == 5_000
    (tmp_path / "own-laptop.json").write_text("the last one was small")
    page = make_report(experiment(lambda *_: Analysis(), seeds=20), "laptop", RecordingResults(tmp_path), MADE)
    path = write(to_json(page, "laptop", noting, MADE, DATE, 4), tmp_path)
    assert path.name == "own-laptop.json.gz"
    assert path.stat().st_size < 250_000
    assert not (tmp_path / "own-laptop.json").exists()
    assert gzip.decompress(path.read_bytes()).endswith(b"}\n")
    curves = load(tmp_path, "own", "laptop").arrays(spec(7))["curve"]
    np.testing.assert_allclose(curves, Results(tmp_path).arrays(spec(7))["curve"], rtol=5e-4)
    assert published(tmp_path) == [("own", "laptop")]
