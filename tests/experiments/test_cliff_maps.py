"""What is kept of agents on Cliff World."""

from __future__ import annotations

import numpy as np
import pytest

from sb3_robust_be.envs.cliff_world import N_STATES, coordinates, observation_table
from sb3_robust_be.experiments import run_units
from sb3_robust_be.experiments.cliff_maps import reaches_goal, tables
from sb3_robust_be.experiments.declared import load_declared
from sb3_robust_be.experiments.declared.cliff_maps import CliffPreset
from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.experiments.grids import make_units
from sb3_robust_be.population import Population

UP, RIGHT, DOWN, LEFT = range(4)


def policy(rule) -> np.ndarray:
    """Values whose greedy action in column x and row y is ``rule(x, y)``."""
    q = np.zeros((N_STATES, 4))
    for state in range(N_STATES):
        q[state, rule(*coordinates(state))] = 1.0
    return q


@pytest.mark.parametrize(
    ("rule", "reached"),
    [
        (lambda x, y: DOWN if x == 4 else UP if y == 0 else RIGHT, True),
        (lambda x, y: DOWN if x == 4 else UP if y < 3 else RIGHT, True),
        (lambda x, y: RIGHT, False),  # into the cliff
        (lambda x, y: DOWN if x == 2 else UP if y == 0 else RIGHT, False),  # into the cliff, later
        (lambda x, y: LEFT, False),  # against the border for ever
        (lambda x, y: DOWN if y == 2 else UP, False),  # to and fro
    ],
)
def test_reaches_goal(rule, reached):
    assert reaches_goal(policy(rule)) == reached


@pytest.mark.parametrize("algorithm", ["qrc", "dqn"])
def test_tables_are_the_networks_values(algorithm):
    population = Population(
        algorithm,
        "MlpPolicy",
        "RobustBE/CliffWorld-v0",
        [0],
        env_kwargs={"observation": "one_hot"},
        policy_kwargs={"net_arch": [8]},
        learning_starts=20,
        verbose=0,
    ).learn(60)
    q, h = tables(population[0], "one_hot")
    assert q.shape == h.shape == (20, 4)
    greedy = population[0].predict(observation_table("one_hot"), deterministic=True)[0]
    np.testing.assert_array_equal(q.argmax(axis=1), greedy)
    assert (abs(h).max() > 0) == (algorithm == "qrc")


def test_the_experiment_keeps_tables_and_draws_them(tmp_path):
    experiment = load_declared("cliff-maps")
    preset = CliffPreset(seeds=2, steps=200, compile=False)
    (specs,) = experiment.stages(preset, Results(tmp_path))
    units = make_units(specs, 1)
    assert sorted(map(len, units)) == [2, 2, 2, 2]  # populations
    run_units(units, tmp_path, executor="serial", progress=False)
    assert Results(tmp_path).arrays(specs[0], "tables")["q"].shape == (20, 4)
    analysis = experiment.analyse(preset, Results(tmp_path))
    assert [plot.name for plot in analysis.plots] == ["cliff-world", "distributions"]
    assert [row["algorithm"] for row in analysis.tables[0].rows] == ["qrc", "qrc_huber", "qlc", "dqn"]
    assert len(analysis.verdicts) == 1


class MadeResults:
    """Of three seeds per algorithm whose greedy policies reach the goal, with returns of our own.

    None: has failed; −∞: has diverged; NaN: has ended no episode.
    """

    def __init__(self, finals):
        self.finals = finals

    def of(self, specs):
        own = [self.finals.get(spec["algorithm"], (-1.0, -2.0, -3.0))[spec["seed"]] for spec in specs]
        return [
            None if final is None else {"final": final, "diverged_at": 9 if final == -np.inf else None} for final in own
        ]

    def arrays(self, spec, name):
        assert self.of([spec]) != [None], "a run that has failed has no arrays"
        q = policy(lambda x, y: DOWN if x == 4 else UP if y == 0 else RIGHT) + spec["seed"]
        return {"q": q, "h": np.full((N_STATES, 4), 2.0)}


@pytest.mark.parametrize(
    ("finals", "solved", "shown"),
    [
        ({"qrc": (-3.0, None, -1.0)}, 2, [1.0 + 2, 1.0 + 1]),  # the median of −3 and −1 is the upper one's: seed 2
        ({"qrc": (-np.inf, -5.0, -np.inf)}, 1, [1.0 + 1, 1.0 + 1]),
        ({"qrc": (-2.5, -2.0, np.nan)}, 3, [1.0 + 0, 1.0 + 1]),  # the lowest return for none
        ({"qrc": (None, None, None)}, 0, [1.0 + 1]),
        (dict.fromkeys(("qrc", "qrc_huber", "qlc", "dqn"), (None, None, None)), 0, []),
    ],
)
def test_failed_and_diverged_seeds_miss_the_goal(finals, solved, shown):
    analysis = load_declared("cliff-maps").analyse(CliffPreset(seeds=3, steps=200), MadeResults(finals))
    rows = {row["algorithm"]: row for row in analysis.tables[0].rows}
    assert rows["qrc"]["greedy policy reaches the goal"] == f"{solved} of 3"
    assert rows["qrc"]["share of |h| > 1"] == (1.0 if solved else None)
    others = 0 if "dqn" in finals else 3
    assert rows["dqn"]["greedy policy reaches the goal"] == f"{others} of 3"
    [verdict] = analysis.verdicts
    assert verdict.estimate == pytest.approx((others - solved) / 3)
    assert verdict.seeds == (3, 3)
    *maps, distributions = analysis.plots
    largest: dict[str, float] = {}
    for row in (row for plot in maps for row in plot.data):
        largest[row["algorithm"]] = max(row["q"], largest.get(row["algorithm"], row["q"]))
    assert list(largest.values()) == shown
    assert distributions.name == "distributions"
