"""The episode in which a run stops: the longest living is the best, and not the worst."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import survival_env
from made_rows import made_rows
from run_results import load_curves, load_finals, load_unfinished
from survival_env import ENDLESS, SurvivalEnv, drawn_lengths

from sb3_robust_be import cli
from sb3_robust_be.evaluation import per_step_returns
from sb3_robust_be.experiments.compare.compare_picture import make_plots
from sb3_robust_be.experiments.compare.comparison import SELECTION_SEEDS
from sb3_robust_be.experiments.control.control_analysis import control_analysis
from sb3_robust_be.experiments.control.preset import Contender, ControlPreset, plan, read
from sb3_robust_be.experiments.control.training import POPULATION, SINGLE, control_spec
from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.experiments.run_functions import run_units
from sb3_robust_be.population import Population
from sb3_robust_be.runner.specs import loads
from sb3_robust_be.runner.store import run_directory

TINY = {"policy_kwargs": {"net_arch": [4]}, "buffer_size": 200, "learning_starts": 10, "batch_size": 4}
SMALL = {**TINY, "learning_rate": 1e-3, "train_freq": 1}


# --- one run, by hand: a hundred steps, of which the last 25 are the last quarter ---

BY_HAND = {
    # Nothing ended in the last quarter: there is only the unfinished episode.
    "alive": ([10, 20, ENDLESS], 70.0, (10 * 10 + 20 * 20 + 70 * 70) / 100, True, 70),
    # A short one did (its last two steps), and was outlived.
    "outlived": ([10] * 7 + [7, ENDLESS], (2 * 7 + 23 * 23) / 25, (700 + 49 + 23 * 23) / 100, True, 23),
    # The unfinished one is not the longest: it says nothing yet.
    "soon": ([80, 5, ENDLESS], (5 * 80 + 5 * 5) / 10, (80 * 80 + 5 * 5) / 85, False, 15),
    # As with a time limit of 30: no unfinished one outlasts those that were cut off.
    "cut off": ([30], (15 * 30) / 15, 30.0, False, 10),
    "nothing left": ([50, 50], 50.0, 50.0, False, 0),
}


@pytest.mark.parametrize(("function", "reward"), [(POPULATION, 1.0), (SINGLE, -1.0)], ids=["population", "single"])
def test_the_measure_by_hand(function, reward, tmp_path):
    device = {"device": "cpu"} if function == SINGLE else {}
    specs = {
        name: control_spec(
            "qlc",
            survival_env.register(),
            100,
            0,
            {**SMALL, **device},
            env_kwargs={"lengths": lengths, "reward": reward},
            function=function,
        )
        for name, (lengths, *_) in BY_HAND.items()
    }
    done = run_units([[spec] for spec in specs.values()], tmp_path, executor="serial", progress=False)
    assert done == (len(specs), 0, 0)
    results = Results(tmp_path)
    for name, spec in specs.items():
        _, final, area, counts, left = BY_HAND[name]
        result = json.loads((run_directory(tmp_path, spec) / "result.json").read_text())
        assert result["final"] == pytest.approx(reward * final), name
        assert result["auc"] == pytest.approx(reward * area), name
        assert result["unfinished"] is counts, name
        assert (result["unfinished_length"], result["unfinished_return"]) == (left, reward * left), name
        assert result["diverged_at"] is None
        arrays = results.arrays(spec)
        assert arrays["lengths"].sum() == 100 - left, "the arrays, as the monitor file, have what has ended"
        with_value = 100 if counts else 100 - left
        assert np.isfinite(arrays["curve"]).tolist() == [True] * with_value + [False] * (100 - with_value)
    every = list(specs.values())
    assert load_unfinished(results, every).tolist() == [row[3] for row in BY_HAND.values()]
    assert np.isfinite(load_finals(results, every)).all()


def test_single_agents_stop_at_their_steps(tmp_path):
    """SB3 goes on to the end of a rollout: 98 steps become 100, in which another episode ends."""
    spec = control_spec(
        "qlc",
        survival_env.register(),
        98,
        0,
        {**SMALL, "train_freq": 4, "device": "cpu"},
        env_kwargs={"lengths": [90, 9, ENDLESS]},
        function=SINGLE,
    )
    assert run_units([[spec]], tmp_path, executor="serial", progress=False).done == 1
    result = Results(tmp_path).result(spec)
    assert (result["episodes"], result["unfinished_length"], result["unfinished_return"]) == (1, 8, 8.0)


def test_a_diverged_run_has_no_return_and_no_curve(tmp_path):
    arguments = [SMALL, {**SMALL, "learning_rate": 1e30}]
    specs = [control_spec("qrc", survival_env.register(), 60, 3, own, env_kwargs={"lengths": [7]}) for own in arguments]
    with pytest.warns(UserWarning, match="1 of 2 members"):
        assert run_units([specs], tmp_path, executor="serial", progress=False).done == 2
    healthy, diverged = map(Results(tmp_path).result, specs)
    assert (healthy["unfinished_length"], healthy["final"]) == (4, 7.0)
    assert (diverged["unfinished"], diverged["unfinished_length"]) == (False, 0)
    assert np.isnan([diverged["final"], diverged["auc"], diverged["unfinished_return"]]).all()
    curves = load_curves(Results(tmp_path), specs)
    assert np.isfinite(Results(tmp_path).arrays(specs[1])["curve"]).any(), "it had finished episodes before"
    assert np.isnan(curves[1]).all(), "a curve that breaks off is none"
    assert np.isfinite(curves[0, :50]).all()


# --- populations ---


def test_a_population_tells_of_its_unfinished_episodes():
    seeds = range(12)
    population = Population("qlc", "MlpPolicy", SurvivalEnv, seeds, verbose=0, **SMALL).learn(80)
    expected = [drawn_lengths(seed, 80) for seed in seeds]
    assert population.unfinished.lengths.tolist() == [left for _, left in expected]
    assert population.unfinished.returns.tolist() == [float(left) for _, left in expected]
    curve = population.curve(80)
    survivors = 0
    for own, (finished, left) in zip(curve, expected, strict=True):
        ends = np.cumsum(finished)
        outlasts = left > max((n for n, end in zip(finished, ends, strict=True) if end > 60), default=0)
        survivors += left > 20
        every = [*finished, left] if outlasts else finished
        np.testing.assert_allclose(own, per_step_returns(every, np.array(every, float), 80))
    assert 3 <= survivors < 12
    population.learn(10, reset_num_timesteps=False)
    assert population.unfinished.lengths.tolist() == [drawn_lengths(seed, 90)[1] for seed in seeds]


def test_it_goes_on_after_loading(tmp_path):
    population = Population("qlc", "MlpPolicy", "CartPole-v1", [1, 2], verbose=0, **SMALL).learn(45)
    population.save(tmp_path)
    again = Population.load(tmp_path)
    for p in (population, again):
        assert [own.lengths.sum() for own in p.returns] == (45 - p.unfinished.lengths).tolist()
    np.testing.assert_array_equal(again.unfinished.returns, population.unfinished.returns)
    np.testing.assert_array_equal(again.curve(9), population.curve(9))
    assert (again.unfinished.lengths > 0).any()


def test_a_failed_member_has_no_unfinished_episode():
    population = Population("qrc", "MlpPolicy", SurvivalEnv, [3], verbose=0, **{**SMALL, "learning_rate": [1e-3, 1e30]})
    with pytest.warns(UserWarning, match="1 of 2 members"):
        population.learn(60)
    assert population.failed.tolist() == [False, True]
    assert population.unfinished.lengths.tolist() == [drawn_lengths(3, 60)[1], 0]
    assert np.isfinite(population.unfinished.returns).tolist() == [True, False]
    assert np.isnan(population.curve(60)[1, population.failed_at[1] :]).all()


# --- compare ---

STEPS, SEEDS = 120, 8


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A comparison in which some seeds survive, and what it printed."""
    out = tmp_path_factory.mktemp("survival")
    arguments = ["--env", survival_env.register(), "--algos", "qlc,dqn", "--learning-rates", "2^-10", "2^-9"]
    arguments += ["--seeds", str(SEEDS), "--steps", str(STEPS), "--net-arch", "4", "--out", str(out)]
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", lambda *words, **_: printed.append(" ".join(map(str, words))))
        assert cli.main(["compare", *arguments, "--executor", "serial", "--quiet"]) == 0
    return out, "\n".join(printed)


def runs_in(out):
    for path in sorted((out / "runs").glob("*")):
        yield loads((path / "spec.json").read_text()), loads((path / "result.json").read_text())


def expected_final(seed):
    """From the lengths alone; and whether it counts the unfinished episode."""
    finished, left = drawn_lengths(seed, STEPS)
    recent = [n for n, end in zip(finished, np.cumsum(finished), strict=True) if end > 0.75 * STEPS]
    counts = left > max(recent, default=0)
    every = np.array([*finished, left] if counts else finished, float)
    return np.nanmean(per_step_returns(every, every, STEPS)[-STEPS // 4 :]), counts


def test_survivors_are_the_best_seeds(compared):
    out, _ = compared
    every = list(runs_in(out))
    assert len(every) == 2 * (SEEDS + 2 * SELECTION_SEEDS)
    for spec, result in every:
        final, counts = expected_final(spec["seed"])
        assert (result["final"], result["unfinished"]) == (pytest.approx(final), counts)
        assert result["diverged_at"] is None
    best = max((result for _, result in every), key=lambda result: result["final"])
    assert best["unfinished"]
    assert best["final"] > 3 * np.median([result["final"] for _, result in every if not result["unfinished"]])


def test_the_table_marks_them(compared):
    _, printed = compared
    counts = sum(expected_final(seed)[1] for seed in range(SEEDS))
    assert 0 < counts < SEEDS
    assert re.search(r"^ +step size .* failed +unfinished +P\(above dqn\)$", printed, re.MULTILINE)
    row = next(line for line in printed.splitlines() if line.startswith("qlc "))
    assert re.search(rf" 0 +{counts} +\d\.\d\d \[", row)
    assert "Unfinished: seeds whose last episode had not ended" in printed
    assert "Failed seeds" not in printed


def test_every_point_of_a_curve_averages_over_every_seed(compared):
    out, printed = compared
    specs = [spec for spec, _ in runs_in(out) if spec["algorithm"] == "qlc" and spec["seed"] < SEEDS]
    assert len(specs) == SEEDS
    results = Results(out)
    curves = load_curves(results, specs)
    _, plot = make_plots("Survival", {"qlc": load_finals(results, specs)}, {"qlc": curves}, STEPS)
    drawn = [row for row in plot.data if np.isfinite(row["mean"])]
    assert {row["runs"] for row in drawn} == {SEEDS}
    assert 0.9 * len(plot.data) <= len(drawn) < len(plot.data), "it ends before the episodes of less than ten steps"
    np.testing.assert_allclose([row["mean"] for row in drawn], curves.mean(axis=0)[: len(drawn)])
    assert "A line is drawn where every run has a value." in plot.caption
    assert "Learning curves: " in printed


# --- reports ---

PRESET = ControlPreset(
    ("cart-pole",),
    (Contender("one", "qrc", {"learning_rate": [0.1]}), Contender("two", "dqn", {"learning_rate": [0.1]})),
    seeds=3,
    selection_seeds=1,
)


def _measured(run):
    of_one = run.names["contender"] == "one"
    row = {"final": 1.0 + run.names["seed"], "auc": 1.0, "curve": np.arange(100.0)}
    return row | {"unfinished": of_one and run.names["seed"] > 0}


def _analysed(rule):
    return control_analysis(read(PRESET, made_rows(plan, PRESET, rule)))


def test_reports_mark_them():
    analysis = _analysed(_measured)
    (table,) = analysis.tables
    assert [(row["algorithm"], row["unfinished"]) for row in table.rows] == [("one", 2), ("two", 0)]
    (note,) = [note for note in analysis.notes if note.startswith("Unfinished")]
    assert note.endswith("2 of 3 of one (Cart-pole).")


def test_results_of_earlier_versions_count_none():
    """They have no such entry."""
    analysis = _analysed(lambda run: {"final": 2.0, "auc": 1.0, "curve": np.arange(100.0)})
    assert [row["unfinished"] for row in analysis.tables[0].rows] == [0, 0]
    assert not any(note.startswith("Unfinished") for note in analysis.notes)
