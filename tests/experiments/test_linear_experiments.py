"""The exact linear experiments: their runs, and the numbers in them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_rows import made_rows

from sb3_robust_be.evaluation import Outcome
from sb3_robust_be.experiments.declared import fixed_points_of_objectives as fixed_points
from sb3_robust_be.experiments.declared import load_declared
from sb3_robust_be.experiments.experiment import Results, distinct_specs
from sb3_robust_be.experiments.linear.exact_runs import Target, solve_spec, surface_spec
from sb3_robust_be.experiments.linear.prediction_problems import Case, build, uniform_relu_features
from sb3_robust_be.experiments.rows import key_of
from sb3_robust_be.experiments.run_functions import RUN_FUNCTIONS, run_units
from sb3_robust_be.linear import OBJECTIVES, get
from sb3_robust_be.runner import load_arrays, load_results, run_id
from sb3_robust_be.runner.specs import dumps, loads
from sb3_robust_be.runner.units import load_target

ROOT = Path(__file__).parents[2]
REFERENCE = json.loads((ROOT / "tests/linear/data/linear_reference.json").read_text(encoding="utf-8"))
NAMES = ("objectives", "fixed-points", "projected-fixed-points", "projected-losses", "prediction")
SERIAL = {"executor": "serial", "progress": False}
HOLDS, FAILS = Outcome.HOLDS, Outcome.DOES_NOT_HOLD


def run(out, specs):
    done = run_units([[spec] for spec in specs], out, **SERIAL)
    assert done == (len(specs), 0, 0)
    return load_results(out, specs)


@pytest.mark.parametrize(("name", "scale"), [(name, scale) for name in NAMES for scale in load_declared(name).presets])
def test_runs_are_valid_and_stable(name, scale):
    experiment = load_declared(name)
    runs = experiment.plan(experiment.preset(scale), [])
    specs = [run.spec for run in runs]
    ids = [run_id(spec) for spec in specs]
    assert len(set(ids)) == len(ids) == len({key_of(run.names, run.names) for run in runs}) > 0
    assert [run_id(loads(dumps(spec, "spec"))) for spec in specs] == ids
    assert runs == experiment.plan(experiment.preset(scale), [])
    assert all(callable(load_target(RUN_FUNCTIONS[spec["function"]], "function")) for spec in specs)


def test_they_load_neither_torch_nor_sb3():
    code = f"""
import sys
from sb3_robust_be.experiments.declared import (load_declared)
for name in {NAMES!r}:
    load_declared(name)
assert not {{"torch", "stable_baselines3"}} & set(sys.modules), sorted(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


# All that is exact, whatever the size; of the others nothing is known before.
EXACT = {
    "objectives": {
        "τ = 1: the MHBE's minimum is nearer to the MSVE's than the MSBE's is (ratio of distances)": FAILS,
        "τ = 0.03: the MHBE's minimum is nearer to the MSVE's than the MSBE's is (ratio of distances)": HOLDS,
        "The MABE's minimum is nearer to the MSVE's than the MSBE's is (ratio of distances)": HOLDS,
    },
    "fixed-points": {
        "HardAlias-1: the MSVE of the minimum of the MSBE is above that of the MHBE, τ = 1 (ratio)": HOLDS,
        "HardAlias-2: the MSVE of the minimum of the MSBE is above that of the MHBE, τ = 1 (ratio)": FAILS,
        "HardAlias-2: the MSVE of the MSBE is about 20 times that of the MHBE, τ = 0.03: at least 15 (ratio)": HOLDS,
        "BigChain: the MSVE of the minimum of the MHBE, τ = 1 is above that of the MSBE (ratio)": FAILS,
    },
    "projected-losses": {
        "τ = 1: MSPBE and MHPBE have the same minimum (distance)": HOLDS,
        "τ = 0.03: far out the MHPBE is flatter than the MSPBE (ratio of curvatures at the ends)": HOLDS,
        "τ = 1: TDRC's surface is less sharp than the MSPBE around the fixed point (ratio of curvatures)": HOLDS,
        "τ = 1: the maximum over the clipped class is the norm of the projection (largest gap ÷ maximum)": FAILS,
    },
}


@pytest.mark.parametrize("name", EXACT)
def test_verdicts_from_runs(name, tmp_path):
    experiment = load_declared(name)
    preset, results = experiment.preset("smoke"), Results(tmp_path)
    run(tmp_path, distinct_specs(experiment.plan(preset, [])))
    analysis = experiment.analyse(preset, experiment.collect(preset, results))
    found = {verdict.claim: verdict.outcome for verdict in analysis.verdicts}
    assert len(found) == len(analysis.verdicts)
    assert {claim: found[claim] for claim in EXACT[name]} == EXACT[name]
    assert analysis.plots
    assert all(table.rows for table in analysis.tables)


@pytest.mark.parametrize("name", NAMES)
def test_an_analysis_without_finished_runs_is_empty_not_wrong(name):
    experiment = load_declared(name)
    preset = experiment.preset("smoke")
    for rows in ([], made_rows(experiment.plan, preset, lambda run: None)):
        analysis = experiment.analyse(preset, rows)
        assert not analysis.plots
        assert analysis.notes


def test_solutions_are_the_recorded_ones(tmp_path):
    """HardAlias-1 5.78, 5.47, 3.93 times the least MSVE; HardAlias-2 20.4 at τ = 0.03."""
    walk, pair = results = run(
        tmp_path,
        [
            next(
                run.spec for run in fixed_points.plan(fixed_points.PRESETS["smoke"], []) if run.names["domain"] == case
            )
            for case in ("HardAlias-1", "HardAlias-2")
        ],
    )
    recorded = REFERENCE["HardAlias-1"]["values_at_minimisers"]
    for label, key in (("msbe", "MSBE"), (fixed_points.HUBER, "MHBE_tau1"), ("mabe", "MABE")):
        for metric in ("msve", "mave"):
            assert walk["points"][label][metric] == pytest.approx(recorded[key][metric.upper()], rel=1e-8)
    ratios = [walk["points"][label]["msve_relative"] for label in ("msbe", fixed_points.HUBER, "mabe")]
    np.testing.assert_allclose(ratios, [5.78, 5.47, 3.93], atol=0.005)
    squared, small = (pair["points"][label]["msve"] for label in ("msbe", fixed_points.HUBER_SMALL))
    assert squared / small == pytest.approx(20.4, abs=0.05)
    assert all(point["converged"] and point["unique"] for result in results for point in result["points"].values())
    # |δ| ≤ τ at the MSBE's minimum is what makes it the MHBE's.
    assert walk["points"]["msbe"]["largest_error"] > 1.0 > pair["points"]["msbe"]["largest_error"]


def test_classes_of_h(tmp_path):
    targets = [Target(str(basis), "mspbe", basis=basis) for basis in ("all", "wide", None)]
    specs = [
        solve_spec(Case("", "BigChain"), [*targets, Target("td", "td"), Target("msbe", "msbe")], i) for i in (0, 1)
    ]
    first, second = ({k: v["theta"] for k, v in result["points"].items()} for result in run(tmp_path, specs))
    np.testing.assert_allclose(first["all"], first["msbe"], rtol=1e-8)
    np.testing.assert_allclose(first["None"], first["td"], rtol=1e-8)
    assert np.abs(np.subtract(first["wide"], second["wide"])).max() > 1e-3  # other five features
    assert np.abs(np.subtract(first["wide"], first["all"])).max() > 1e-3
    assert first["all"] == second["all"]


def test_surfaces(tmp_path):
    """Values over θ; beyond the clip the norm form of the MHPBE is τ² Σ d (x/2)², with h = (τ/2, τ) on HardAlias-2."""
    targets = [
        Target("msve", "msve"),
        Target("huber", "mhbe", 0.3),
        Target("norm", "mhpbe-norm", 0.3),
        Target("tdrc", "tdrc"),
    ]
    spec = surface_spec(Case("", "HardAlias-2"), targets, half_width=40.0, points=9, centre="td")
    (result,) = run(tmp_path, [spec])
    assert result["centre"] == pytest.approx(0.1432664756, rel=1e-8)
    arrays, problem = load_arrays(tmp_path, spec, "surfaces"), get("HardAlias-2")
    np.testing.assert_allclose(arrays["theta"], result["centre"] + np.arange(-40.0, 41.0, 10.0))
    for i, theta in enumerate(arrays["theta"]):
        msve, huber, norm, tdrc = arrays["values"][:, i]
        assert msve == pytest.approx(OBJECTIVES["msve"].value(problem, [theta]))
        assert huber == pytest.approx(OBJECTIVES["mhbe"].value(problem, [theta], tau=0.3))
        moment = (problem.d * problem.bellman_error([theta])) @ problem.X[:, 0]
        assert tdrc == pytest.approx(moment**2 / (problem.d @ problem.X[:, 0] ** 2 + 1.0), abs=1e-15)
        if i != 4:
            assert norm == pytest.approx(0.3**2 * (problem.d @ [0.25, 1.0]), rel=1e-9)


def test_surfaces_need_a_single_weight(tmp_path):
    spec = surface_spec(Case("", "SmallChain"), [Target("msve", "msve")], half_width=1.0, points=3)
    assert run_units([[spec]], tmp_path, **SERIAL) == (0, 1, 0)
    failure = Results(tmp_path).failure(spec)
    assert "has 2 weights; give one with a single weight" in failure["error"]


def test_cases_draw_features_where_they_are_random():
    chain = Case("a", "SmallChain")
    assert chain.draw(3).as_json() == {"problem": "SmallChain", "options": {"seed": 3}, "initialisation": "he"}
    np.testing.assert_array_equal(build(**chain.draw(3).as_json()).X, get("SmallChain", seed=3).X)
    assert Case("b", "HardAlias-1").draw(3) == Case("b", "HardAlias-1")
    left = Case("c", "Outlier", {"p_left": 0.5}).draw(2)
    assert build(**left.as_json()).pi[0, 0] == 0.5


def test_uniform_initialisation():
    X = uniform_relu_features(50, (10, 5), seed=4)
    assert X.shape == (50, 5)
    assert np.linalg.matrix_rank(X) == 5
    assert X.min() == 0.0
    np.testing.assert_array_equal(X, uniform_relu_features(50, (10, 5), seed=4))
    assert not np.array_equal(X, uniform_relu_features(50, (10, 5), seed=5))
    outlier = build("Outlier", {"seed": 4}, "uniform")
    np.testing.assert_array_equal(outlier.X, X)
    np.testing.assert_array_equal(outlier.v_pi, get("Outlier").v_pi)
    # One layer of 400 units on one state: rectified sums of two uniform numbers in ±1, half of them zero.
    values = np.concatenate([uniform_relu_features(1, (1,), seed)[0] for seed in range(400)])
    assert 0.0 < values.min() < 0.1  # redrawn until not zero
    assert 1.5 < values.max() <= 2.0
    assert values.mean() == pytest.approx(2.0 / 3.0, abs=0.08)


def test_mistakes_in_a_problem(monkeypatch):
    with pytest.raises(ValueError, match="initialisation is 'zero'; give one of he, uniform"):
        build("Outlier", {}, "zero")
    with pytest.raises(ValueError, match="initialisation is 'uniform' for SmallChain; only Outlier has it"):
        build("SmallChain", {}, "uniform")
    monkeypatch.setattr("sb3_robust_be.experiments.linear.prediction_problems._MAX_DRAWS", 3)
    with pytest.raises(ValueError, match=r"hidden is \(4,\): none of 3 draws has full column rank"):
        uniform_relu_features(3, (4,), 0)
    with pytest.raises(ValueError, match="draws is 1; give at least 2"):
        fixed_points.DrawsPreset(1)
