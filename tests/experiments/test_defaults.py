"""The experiment on every class's defaults: what its runs are given, and how it judges them."""

from __future__ import annotations

import numpy as np
import pytest
from made_rows import made_rows
from stable_baselines3 import DQN as SB3_DQN

from sb3_robust_be import registry
from sb3_robust_be.evaluation import Outcome
from sb3_robust_be.experiments.declared.defaults import (
    CONTENDERS,
    EXPERIMENT,
    SCALES,
    DefaultsPreset,
    defaults_verdicts,
    returns,
)

PRESET = DefaultsPreset(seeds=8, steps=50_000)
HEIGHTS = {"qlc": 3.0, "qrc_huber": 2.0, "dqn": 0.0, "qrc_huber, DQN's learning rate": 1.0}
"""Of the returns, above that of the others, which are lower than DQN's"""


def made(run):
    height = HEIGHTS.get(run.names["contender"], -1.0)
    return {"final": 100.0 * height + run.names["seed"] % 8, "diverged_at": None, "unfinished": False}


def test_runs_have_no_argument_or_dqns_learning_rate():
    found = {run.names["contender"]: run.spec for run in EXPERIMENT.plan(PRESET, [])}
    slow = {"qrc_huber, DQN's learning rate", "qlc, DQN's learning rate"}
    assert set(found) == {"dqn", *registry.names(baselines=False), *slow}
    dqns = SB3_DQN("MlpPolicy", "CartPole-v1", buffer_size=10).learning_rate
    for label, spec in found.items():
        assert spec["arguments"] == ({"learning_rate": dqns} if label in slow else {})
        assert (spec["policy"], spec["steps"]) == ("MlpPolicy", 50_000)


def test_seeds_are_those_of_no_other_experiment():
    runs = EXPERIMENT.plan(PRESET, [])
    assert {run.names["seed"] for run in runs} == set(range(50_000, 50_008))
    assert len(runs) == 2 * 8 * len(CONTENDERS)


def test_returns_are_ordered_by_environment_and_contender():
    rows = made_rows(EXPERIMENT.plan, PRESET, made)
    found = returns(PRESET, [{key: row[key] for key in row if (row["seed"], key) != (50_003, "final")} for row in rows])
    assert list(found) == list(SCALES)
    for own in found.values():
        assert list(own) == [one.label for one in CONTENDERS]
        expected = 300.0 + np.arange(50_000, 50_008) % 8
        expected[3] = np.nan
        np.testing.assert_array_equal(own["qlc"], expected)


@pytest.mark.parametrize(
    ("claim", "outcome"),
    [
        ("QLC is above DQN on every environment", Outcome.HOLDS),
        ("QRC-Huber is above DQN on every environment", Outcome.HOLDS),
        ("QRC is above DQN on every environment", Outcome.DOES_NOT_HOLD),
        ("QRC-Huber is above QRC-Huber, DQN's learning rate on every environment", Outcome.HOLDS),
        ("QLC is above QLC, DQN's learning rate on every environment", Outcome.HOLDS),
    ],
)
def test_verdicts(claim, outcome):
    verdicts = defaults_verdicts(PRESET, returns(PRESET, made_rows(EXPERIMENT.plan, PRESET, made)))
    assert next(verdict for verdict in verdicts if verdict.claim == claim).outcome is outcome
    assert sum("every environment" in verdict.claim for verdict in verdicts) == len(CONTENDERS) - 1
    assert len(verdicts) == 3 * (len(CONTENDERS) - 1)


def test_lost_runs_leave_a_claim_open():
    def lost(run):
        return None if run.names["contender"] == "qlc" and run.names["seed"] % 2 else made(run)

    verdicts = defaults_verdicts(PRESET, returns(PRESET, made_rows(EXPERIMENT.plan, PRESET, lost)))
    found = next(verdict for verdict in verdicts if verdict.claim == "Acrobot-v1: the mean of QLC is above that of DQN")
    assert (found.outcome, found.reason) == (Outcome.NOT_RESOLVED, "4 of 8 and 0 of 8 runs have no return")


def test_the_analysis_says_what_the_settings_are():
    analysis = EXPERIMENT.analyse(PRESET, made_rows(EXPERIMENT.plan, PRESET, made))
    (table,) = analysis.tables
    settings = {(row["domain"], row["algorithm"]): row["setting"] for row in table.rows}
    assert settings["CartPole-v1", "QLC"] == "no argument"
    assert settings["Acrobot-v1", "QLC, DQN's learning rate"] == "learning_rate=0.0001"
    assert {row["seeds"] for row in table.rows} == {8}
