"""What is kept of agents on Cliff World."""

from __future__ import annotations

import numpy as np
import pytest
from made_rows import made_rows

from sb3_robust_be.envs.cliff_world import N_STATES, coordinates, observation_table
from sb3_robust_be.experiments.cliff_world.learned_tables import TRAIN, reaches_goal
from sb3_robust_be.experiments.cliff_world.mechanism import SMOOTH_CLIP, UNCORRECTED
from sb3_robust_be.experiments.cliff_world.trace import GROUPS, tables
from sb3_robust_be.experiments.control.training import control_spec
from sb3_robust_be.experiments.declared import load_declared
from sb3_robust_be.experiments.declared.cliff_maps import CONTENDERS, CliffPreset
from sb3_robust_be.experiments.experiment import Results, distinct_specs
from sb3_robust_be.experiments.population_units import make_units
from sb3_robust_be.experiments.run_functions import run_units
from sb3_robust_be.population import Population
from sb3_robust_be.report import label
from sb3_robust_be.report.sentences import by_sentence

UP, RIGHT, DOWN, LEFT = range(4)
EXPERIMENT = load_declared("cliff-maps")


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


@pytest.mark.filterwarnings("ignore:.*have failed:UserWarning")
def test_where_all_diverge_the_trace_ends(tmp_path):
    """Training ends then, here before the first point."""
    arguments = {"policy_kwargs": {"net_arch": [8]}, "learning_starts": 5, "train_freq": 1, "learning_rate": 1e30}
    env = "RobustBE/CliffWorld-v0"
    specs = [control_spec("qrc", env, 400, s, arguments, function=TRAIN) | {"trace": 4} for s in (0, 1)]
    assert run_units([specs], tmp_path, executor="serial", progress=False) == (2, 0, 0)
    results = Results(tmp_path)
    assert all(5 < result["diverged_at"] < 50 for result in map(results.result, specs))
    assert [results.arrays(spec, "trace")["step"].tolist() for spec in specs] == [[], []]


def test_the_experiment_keeps_tables_and_traces_and_draws_them(tmp_path):
    preset = CliffPreset(seeds=2, steps=200, trace_points=5, compile=False)
    specs = distinct_specs(EXPERIMENT.plan(preset, []))
    units = make_units(specs, 1)
    assert sorted(map(len, units)) == [2, 2, 2, 2, 4]  # populations, QRC-Huber's with and without its correction in one
    run_units(units, tmp_path, executor="serial", progress=False)
    results = Results(tmp_path)
    q = results.arrays(specs[0], "tables")["q"]
    trace = results.arrays(specs[0], "trace")
    assert q.shape == (20, 4)
    assert trace["step"].tolist() == [40, 80, 120, 160, 200]
    assert trace["ratio"].shape == (5, len(GROUPS))
    assert trace["start_value"][-1] == q[0].max() != trace["start_value"][0]
    np.testing.assert_allclose(trace["share"].sum(axis=1), 1.0, rtol=1e-5)
    uncorrected = next(spec for spec in specs if spec["arguments"].get("huber_threshold") == 0.0)
    assert results.arrays(uncorrected, "trace")["ratio"][-1].tolist() == [0.0, 0.0, 0.0]
    analysis = EXPERIMENT.analyse(preset, EXPERIMENT.collect(preset, results))
    assert [plot.name for plot in analysis.plots] == ["cliff-world", "mechanism", "distributions"]
    assert [row["algorithm"] for row in analysis.tables[0].rows] == [label(name) for name in CONTENDERS]
    assert len(analysis.verdicts) == 17


CORRECTED = {"qrc", "qrc_huber", SMOOTH_CLIP, "qlc"}


def made_cliff_rows(preset, finals, traces=()):
    """Of seeds whose greedy policies reach the goal, with returns of our own by contender.

    None: has failed; −∞: has diverged; NaN: has ended no episode.
    """

    def rule(run):
        name, seed = run.names["contender"], run.names["seed"]
        final = finals.get(name, (-1.0, -2.0, -3.0) * 9)[seed]
        if final is None:
            return None
        if final == -np.inf:
            return {"final": final, "diverged_at": 9}
        q = policy(lambda x, y: DOWN if x == 4 else UP if y == 0 else RIGHT) + seed
        trace = {f"trace, {part}": x for part, x in made_trace(seed, **dict(traces).get(name, {})).items()}
        h = np.full((N_STATES, 4), 2.0)
        return {"final": final, "diverged_at": None, "reaches_goal": reaches_goal(q), "q": q, "h": h, **trace}

    rows = made_rows(EXPERIMENT.plan, preset, rule)
    # As they come back from a file, where lists are flat.
    return [{name: x.ravel() if isinstance(x, np.ndarray) else x for name, x in row.items()} for row in rows]


def analysed(preset, *made):
    return EXPERIMENT.analyse(preset, made_cliff_rows(preset, *made))


def made_trace(seed, **means):
    """Eight points: these means in the first quarter of them, twice that in the last, and three times in between."""
    shape = np.array([1, 1, 3, 3, 3, 3, 2, 2])
    groups = dict.fromkeys(("share", "td_error", "h", "clipped", "ratio", "push"), (0.1, 0.1, 0.1))
    trace = {name: shape[:, None] * np.array(means.get(name, of)) * (1 + 0.01 * seed) for name, of in groups.items()}
    start = means.get("start_value", -5.0) * shape + 0.01 * seed
    return {"step": np.arange(1, 9), **trace, "start_value": start, "start_stays": np.zeros(8)}


@pytest.mark.parametrize(
    ("finals", "solved", "shown"),
    [
        ({"qrc": (-3.0, None, -1.0)}, 2, [1.0 + 2, 1.0 + 1]),  # the median of −3 and −1 is the upper one's: seed 2
        ({"qrc": (-np.inf, -5.0, -np.inf)}, 1, [1.0 + 1, 1.0 + 1]),
        ({"qrc": (-2.5, -2.0, np.nan)}, 3, [1.0 + 0, 1.0 + 1]),  # the lowest return for none
        ({"qrc": (None, None, None)}, 0, [1.0 + 1]),
        (dict.fromkeys(CONTENDERS, (None, None, None)), 0, []),
    ],
)
def test_failed_and_diverged_seeds_miss_the_goal(finals, solved, shown):
    analysis = analysed(CliffPreset(seeds=3, steps=200), finals)
    rows = {row["algorithm"]: row for row in analysis.tables[0].rows}
    assert rows["QRC"]["greedy policy reaches the goal"] == f"{solved} of 3"
    assert rows["QRC"]["share of |h| > 1"] == (1.0 if solved else None)
    others = 0 if "dqn" in finals else 3
    assert rows["DQN"]["greedy policy reaches the goal"] == f"{others} of 3"
    verdict = analysis.verdicts[0]
    assert verdict.estimate == pytest.approx((others - solved) / 3)
    assert verdict.seeds == (3, 3)
    *maps, distributions = [plot for plot in analysis.plots if plot.name != "mechanism"]
    largest: dict[str, float] = {}
    for row in (row for plot in maps for row in plot.data):
        largest[row["algorithm"]] = max(row["q"], largest.get(row["algorithm"], row["q"]))
    assert list(largest.values()) == shown
    assert distributions.name == "distributions"
    # It takes two runs of each to speak of the mechanism.
    assert ("mechanism" in [plot.name for plot in analysis.plots]) == (solved >= 2)
    assert any("QRC has fewer" in note or "QRC, " in note for note in analysis.notes) == (solved < 2)


AS_FOUND = {
    "qrc": {"push": (2.0, 0.1, 0.1), "start_value": 200.0},
    "qrc_huber": {
        "clipped": (0.9, 0.1, 0.1),
        "ratio": (0.01, 0.3, 0.1),
        "share": (0.1, 0.4, 0.5),
        "push": (0.05, 0.2, 0.1),
        "start_value": 4.0,
    },
}
AS_FOUND[SMOOTH_CLIP] = AS_FOUND["qrc_huber"]
AS_NOT_FOUND = {
    "qrc": {"push": (0.02, 0.1, 0.1), "start_value": -200.0},
    "qrc_huber": {
        "clipped": (0.1, 0.1, 0.1),
        "ratio": (0.3, 0.01, 0.1),
        "share": (0.1, 0.05, 0.0),
        "push": (0.3, 0.1, 0.1),
        "start_value": -40.0,
    },
}
AS_NOT_FOUND[SMOOTH_CLIP] = AS_NOT_FOUND["qrc_huber"]


@pytest.mark.parametrize(("traces", "outcome"), [(AS_FOUND, "holds"), (AS_NOT_FOUND, "does not hold")])
def test_what_is_said_of_the_mechanism_follows_from_the_traces(traces, outcome):
    lowest, low, high = (mean - 0.1 * np.arange(9) for mean in (-90.0, -40.0, -10.0))
    finals = {"qrc": lowest, "qrc_huber": low, UNCORRECTED: high, SMOOTH_CLIP: low}
    if traces is AS_NOT_FOUND:
        finals = dict(zip(finals, (high, low, lowest, low), strict=True))
    analysis = analysed(CliffPreset(seeds=9, steps=200), finals, traces)
    order, skewed, emphasis, suffers, ours = by_sentence(analysis.verdicts)
    assert [str(one.outcome) for group in (skewed, emphasis, suffers) for one in group.verdicts] == [outcome] * 10
    *without, failing = ours.verdicts
    assert (ours.sentence, [str(one.outcome) for one in without]) == ("", [outcome] * 4)
    # All greedy policies reach the goal.
    assert order.verdicts[0].estimate == failing.estimate == 0.0
    if traces is AS_FOUND:
        # The mean of seeds 0 to 8 is 1.04 times seed 0.
        assert (
            "clipped in 94% of the replayed falls, where its correction is 1.04% of the TD error" in analysis.notes[0]
        )
        assert "at blocked moves it is 31%, and 62% in the last quarter" in analysis.notes[0]
        assert "QRC: 400; QRC-Huber: 8.04; QRC-Huber, smooth clip: 8.04" in analysis.notes[1]


def test_the_mechanisms_figure_shows_the_traces():
    analysis = analysed(CliffPreset(seeds=3, steps=200), {}, AS_FOUND)
    plot = next(plot for plot in analysis.plots if plot.name == "mechanism")
    rows = {(row["panel"], row["algorithm"], row["step"]): row["mean"] for row in plot.data}
    assert rows["Falls: |γz| / |δ|", "qrc_huber", 1.0] == pytest.approx(0.0101)
    assert rows["Blocked moves: |γz| / |δ|", "qrc_huber", 8.0] == pytest.approx(0.606)
    assert rows["Falls: h clipped", "qrc_huber", 1.0] == pytest.approx(0.909)
    assert rows["Blocked moves: share", "qrc_huber", 3.0] == pytest.approx(1.212)
    above = [rows["Runs whose start is above 0", name, 3.0] for name in CONTENDERS]
    assert above == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    drawn = {panel: {name for p, name, _ in rows if p == panel} for panel, _, _ in rows}
    without_h = {panel for panel, names in drawn.items() if names == CORRECTED}
    assert len(drawn) == 6
    assert len(without_h) == 4
    assert all(names == set(CONTENDERS) for panel, names in drawn.items() if panel not in without_h)
    scales = [axis.get_yscale() for axis in plot.figure.axes]
    assert scales.count("log") == 1
    assert all(note in plot.alt for note in analysis.notes[:2])
