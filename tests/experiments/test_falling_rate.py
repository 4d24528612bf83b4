"""Runs in several calls of ``learn``, and the experiment on QLC's falling learning rate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from made_rows import made_rows
from run_results import load_finals

from sb3_robust_be.evaluation import Outcome
from sb3_robust_be.experiments.control.contenders import falling
from sb3_robust_be.experiments.control.training import POPULATION, SINGLE, _parts, control_spec
from sb3_robust_be.experiments.declared import falling_rate
from sb3_robust_be.experiments.declared.falling_rate import (
    CONSTANT,
    EXPERIMENT,
    LONG,
    OFTEN,
    PLANNED,
    PRESETS,
    STOPPED,
    TWICE,
    falling_rate_verdicts,
    stopped_return,
)
from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.experiments.run_functions import run_units

STEPS = 140


def spec(function, rate, calls):
    arguments = {
        "policy_kwargs": {"net_arch": [8]},
        "buffer_size": 200,
        "learning_starts": 20,
        "train_freq": 1,
        "batch_size": 8,
        "learning_rate": rate,
    }
    return control_spec("qlc", "CartPole-v1", STEPS, 0, arguments, function=function, learn_calls=calls)


def test_the_parts_of_a_run_are_about_equally_long():
    assert _parts({"steps": 10}) == [10]
    assert _parts({"steps": 10, "learn_calls": 4}) == [2, 3, 2, 3]
    assert "learn_calls" not in spec(POPULATION, 0.1, 1), "as the runs were named before there were any"


@pytest.mark.parametrize("function", [POPULATION, SINGLE])
def test_a_run_in_two_calls_differs_by_its_schedule_alone(function, tmp_path):
    """A constant rate sees no difference; a falling one begins the second half higher than it ended the first."""
    specs = [spec(function, rate, calls) for rate in (2.0**-7, falling(-4)) for calls in (1, 2)]
    assert run_units([[one] for one in specs], tmp_path, executor="serial", progress=False) == (4, 0, 0)
    once, twice, falling_once, falling_twice = (Results(tmp_path).arrays(one)["lengths"].tolist() for one in specs)
    assert once == twice
    assert falling_once != falling_twice
    assert np.isfinite(load_finals(Results(tmp_path), specs)).all()


def test_what_a_run_had_where_it_was_stopped():
    """The last quarter of the first quarter of a hundred points: 19 to 24."""
    row = {"steps": 400, "curve": np.arange(100.0), "diverged_at": None}
    assert stopped_return(row) == 21.5
    assert stopped_return({**row, "curve": np.arange(1.0, 9.0)}) == 2.0
    assert stopped_return({**row, "diverged_at": 101}) == 21.5
    assert math.isnan(stopped_return({**row, "diverged_at": 100}))
    assert math.isnan(stopped_return({"steps": 400, "failed": "no luck"}))


def test_the_runs():
    preset = PRESETS["laptop"]
    runs = EXPERIMENT.plan(preset, [])
    by_label = {run.names["contender"]: run for run in runs if run.names["domain"] == "cliff-world"}
    assert {label: (run.names["steps"], run.spec.get("learn_calls", 1)) for label, run in by_label.items()} == {
        PLANNED: (20_000, 1),
        TWICE: (20_000, 2),
        OFTEN: (20_000, 8),
        CONSTANT: (20_000, 1),
        LONG: (80_000, 1),
    }
    assert {run.names["seed"] for run in runs} == set(range(40_000, 40_020))
    rates = {label: run.spec["arguments"]["learning_rate"] for label, run in by_label.items()}
    assert rates.pop(CONSTANT) == 2.0**-10
    assert all(rate == falling(-9) for rate in rates.values())


@pytest.mark.parametrize(
    ("lower", "outcome"), [(0.0, Outcome.HOLDS), (20.0, Outcome.HOLDS), (30.0, Outcome.DOES_NOT_HOLD)]
)
@pytest.mark.parametrize(("label", "claim"), [(OFTEN, 0), (STOPPED, 1), (LONG, 3)])
def test_level_is_a_twentieth_of_the_scale(lower, outcome, label, claim):
    """Of Cart-pole's 500: 25."""
    spread = np.random.default_rng(0).normal(size=20)
    own = dict.fromkeys((PLANNED, TWICE, OFTEN, CONSTANT, LONG, STOPPED), 400.0 + spread)
    own[label] = own[label] - lower
    found = falling_rate_verdicts({"Cart-pole": own})
    assert found[claim].outcome is outcome
    assert [one.outcome for i, one in enumerate(found[:4]) if i != claim and not (label == STOPPED and i == 2)] == [
        Outcome.HOLDS
    ] * (2 if label == STOPPED else 3)


def test_the_report_has_the_stopped_runs_beside_the_others():
    preset = PRESETS["smoke"]

    def rule(run):
        points = min(100, run.names["steps"])
        return {"final": 1.0 * run.names["seed"], "auc": 0.0, "curve": np.full(points, 7.0), "diverged_at": None}

    analysis = falling_rate._analyse(preset, made_rows(EXPERIMENT.plan, preset, rule))
    rows = [row for row in analysis.tables[0].rows if row["domain"] == "Cart-pole"]
    assert [row["algorithm"] for row in rows] == [PLANNED, TWICE, OFTEN, CONSTANT, LONG, STOPPED]
    assert rows[-1]["mean"].estimate == 7.0
    assert rows[0]["mean"].estimate == 40_000.5
