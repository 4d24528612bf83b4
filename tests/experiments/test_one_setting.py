"""One setting for all environments: what is run, how the setting is chosen, and what is made of constructed results."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
import yaml
from made_rows import made_rows

from sb3_robust_be import report
from sb3_robust_be.evaluation import Outcome, brunner_munzel
from sb3_robust_be.experiments.control import yardstick
from sb3_robust_be.experiments.control.contenders import falling
from sb3_robust_be.experiments.control.preset import FIRST_SELECTION_SEED, Contender, merged, plan, settings_of
from sb3_robust_be.experiments.control.training import make_agent
from sb3_robust_be.experiments.control.yardstick import SCALE_OF, Scale
from sb3_robust_be.experiments.control.zoo_values import ZOO_VALUES
from sb3_robust_be.experiments.declared import one_setting
from sb3_robust_be.experiments.declared.one_setting import CANDIDATES, EXPERIMENT, GAMES, HELD_OUT, PRESETS
from sb3_robust_be.experiments.experiment import REPORTED, SELECTION
from sb3_robust_be.experiments.rows import key_of
from sb3_robust_be.experiments.setting_text import setting_text
from sb3_robust_be.runner.specs import dumps

HOLDS, FAILS, OPEN = Outcome.HOLDS, Outcome.DOES_NOT_HOLD, Outcome.NOT_RESOLVED
LAPTOP, LONG, PAPER = PRESETS["laptop"], PRESETS["long"], PRESETS["paper"]
CANDIDATE = "qlc, one-sided, layer norm"
SMALL = replace(
    LAPTOP,
    chosen_on=("acrobot", "cart-pole", "mountain-car"),
    held_out=("mountain-car-200",),
    contenders=one_setting.contenders((0.1, 0.2), (0.1,), (64,), (CANDIDATE, "dqn", "dqn, squared loss, target")),
    seeds=6,
    zoo=("dqn",),
    best_of_each=True,
    selection_seeds=2,
    seeds_of={},
)


def runs(mean, spread=1.0, n=30, seed=0):
    return mean + spread * np.random.default_rng(seed).normal(size=n)


def outcomes(verdicts):
    found = {verdict.claim: verdict.outcome for verdict in verdicts}
    assert len(found) == len(verdicts)
    return found


# --- arguments from several places ---


def test_later_arguments_stand_in_place_of_earlier_ones_and_networks_are_added_to():
    first = {"gamma": 0.9, "policy_kwargs": {"net_arch": [8], "head_init": "torch"}}
    assert merged(first, {"policy_kwargs": {"layer_norm": True}}, {"gamma": 0.5}) == {
        "gamma": 0.5,
        "policy_kwargs": {"net_arch": [8], "head_init": "torch", "layer_norm": True},
    }
    assert merged(first, {"policy_kwargs": {"net_arch": [4]}}, {"policy_kwargs": None})["policy_kwargs"] == {
        "net_arch": [4],
        "head_init": "torch",
    }
    assert first["policy_kwargs"] == {"net_arch": [8], "head_init": "torch"}


def test_layer_normalisation_is_added_to_the_network_of_each_domain():
    part = PAPER.one_for_all()
    normed = next(one for one in part.contenders if one.label == "dqn, squared loss, layer norm")
    networks = {
        key: part.runs(REPORTED, key, normed, {"learning_rate": 0.1}, [0])[0].spec["arguments"]["policy_kwargs"]
        for key in ("acrobot", "lunar-lander", "breakout")
    }
    assert networks["acrobot"] == {"net_arch": [32, 32], "layer_norm": True}
    assert networks["lunar-lander"] == {"net_arch": [128, 128], "layer_norm": True}
    assert networks["breakout"].keys() == {"net_arch", "features_extractor_class", "layer_norm"}


# --- what is run ---


@pytest.mark.parametrize("scale", PRESETS)
def test_runs_can_be_told_apart(scale):
    preset = PRESETS[scale]
    planned = one_setting._plan(preset, made_rows(one_setting._plan, preset, lambda run: {"final": 1.0}))
    assert len({key_of(run.names, run.names) for run in planned}) == len(planned)
    assert len({dumps(run.spec, "spec") for run in planned}) == len(planned)
    assert set(preset.chosen_on) == {run.names["domain"] for run in planned if run.names["stage"] == SELECTION}
    assert {*preset.chosen_on, *preset.held_out} == {run.names["domain"] for run in planned}


def test_laptops_size():
    part = LAPTOP.one_for_all()
    assert {one.label: len(settings_of(one.grid)) for one in part.contenders} == {
        "qlc, one-sided, layer norm": 6,
        "qrc, scaled, layer norm": 6,
        "qlc, one-sided, target, layer norm": 6,
        "qlc, one-sided, target": 6,
        "qlc, target, layer norm": 6,
        "dqn": 6,
        "dqn, squared loss, target": 6,
        "dqn, squared loss, target, layer norm": 6,
        "dqn, squared loss, layer norm": 6,
    }
    sizes = {key: (part.steps_of(key), len(part.reported_seeds(key))) for key in part.domains}
    assert sizes == {
        **dict.fromkeys(("acrobot", "cart-pole", "mountain-car", "mountain-car-200", "puddle-world"), (40000, 30)),
        "cliff-world": (20_000, 30),
        "lunar-lander": (100_000, 10),
    }
    assert {len(part.selecting_seeds(key)) for key in LAPTOP.chosen_on} == {5}
    assert {len(part.selecting_seeds(key)) for key in LAPTOP.held_out} == {0}
    assert len(LAPTOP.held_out) == 3
    assert set(LAPTOP.held_out) < set(HELD_OUT) == set(PAPER.held_out)
    assert SCALE_OF.keys() == {*PAPER.chosen_on, *PAPER.held_out} >= sizes.keys()


def test_the_long_scale_adds_games_and_rl_zoo3s_values():
    """To the laptop's runs, which it shares."""
    part, shorter = LONG.one_for_all(), LAPTOP.one_for_all()
    assert part.contenders == shorter.contenders
    assert {(part.steps_of(key), len(part.reported_seeds(key))) for key in GAMES} == {(130_000, 5)}
    for key in shorter.domains:
        assert part.steps_of(key) == shorter.steps_of(key)
        assert part.reported_seeds(key) == shorter.reported_seeds(key)
        assert part.selecting_seeds(key) == shorter.selecting_seeds(key)
    assert {len(zoo.reported_seeds(key)) for zoo in LONG.of_zoo() for key in zoo.domains} == {10}
    assert {one.algorithm for zoo in LONG.of_zoo() for one in zoo.contenders} == {"dqn", "qrdqn"}


def test_papers_size():
    """Nine step sizes for each; the DQN with SB3's loss has each with three refreshes."""
    sizes = {one.label: len(settings_of(one.grid)) for one in PAPER.one_for_all().contenders}
    assert sizes.pop("dqn") == 9 * 3
    assert set(sizes.values()) == {9}
    assert len(PAPER.held_out) == 6


def test_gradients_are_clipped_with_rl_zoo3s_values_only():
    part = PAPER.one_for_all()
    (own,) = (one for one in part.contenders if one.label == "dqn")
    (run,) = part.runs(REPORTED, "acrobot", own, settings_of(own.grid)[0], [0])
    assert (run.spec["arguments"]["max_grad_norm"], run.spec["arguments"]["huber_threshold"]) == (np.inf, 1.0)
    zoo = PAPER.of_zoo()[0]
    (run,) = zoo.runs(REPORTED, "acrobot", zoo.contenders[0], {}, [0])
    assert run.spec["arguments"]["max_grad_norm"] == 10.0


def test_games_explore_as_in_the_runs_that_they_are_compared_with():
    part = PAPER.one_for_all()
    (run,) = part.runs(REPORTED, "freeway", part.contenders[0], {"learning_rate": 0.1}, [0])
    arguments = run.spec["arguments"]
    assert run.spec["policy"] == "CnnPolicy"
    assert arguments["exploration_fraction"] * run.spec["steps"] == pytest.approx(100_000)
    assert (arguments["exploration_initial_eps"], arguments["learning_starts"]) == (1.0, 5_000)


@pytest.mark.filterwarnings("ignore:This member was trained with huber_threshold=inf")
def test_contenders_can_be_trained():
    """In every environment, with a step size that falls."""
    for part in (PAPER.one_for_all(), *replace(PAPER, zoo=("dqn",)).of_zoo()):
        for contender in part.contenders:
            setting = settings_of(contender.grid)[-1]
            for key in part.domains:
                (run,) = part.runs(REPORTED, key, contender, setting, [0])
                make_agent({**run.spec, "compile": False})


def test_zoo_values_are_rl_zoo3s():
    pytest.importorskip("rl_zoo3")
    envs = {
        "acrobot": "Acrobot-v1",
        "cart-pole": "CartPole-v1",
        "lunar-lander": "LunarLander-v3",
        "mountain-car-200": "MountainCar-v0",
    }
    for algorithm, by_key in ZOO_VALUES.items():
        theirs = yaml.safe_load((files("rl_zoo3") / "hyperparams" / f"{algorithm}.yml").read_text())
        assert {envs[key] for key in by_key} == theirs.keys() - {"default", "atari"}
        for key, ours in by_key.items():
            expected = dict(theirs[envs[key]])
            del expected["n_timesteps"], expected["policy"]
            expected["policy_kwargs"] = eval(expected["policy_kwargs"])  # "dict(net_arch=[256, 256])"
            if isinstance(expected["learning_rate"], str):
                expected["learning_rate"] = {"$linear": [float(expected["learning_rate"].removeprefix("lin_")), 0.0]}
            assert ours.items() >= expected.items()
            assert ours.keys() - expected.keys() == {"exploration_initial_eps", "max_grad_norm"}


def test_zoo_runs_where_it_has_values():
    parts = PRESETS["paper"].of_zoo()
    found = {(part.domains, one.label) for part in parts for one in part.contenders}
    keys = ("acrobot", "cart-pole", "lunar-lander", "mountain-car-200")
    assert found == {((key,), f"{name}, rl_zoo3's values") for key in keys for name in ("dqn", "qrdqn")}
    (run,) = parts[0].runs(REPORTED, "acrobot", parts[0].contenders[0], {}, [0])
    assert run.spec["arguments"]["policy_kwargs"] == {"net_arch": [256, 256]}
    assert (run.spec["arguments"]["batch_size"], run.spec["steps"]) == (128, 100_000)
    assert not LAPTOP.of_zoo()


# --- the choice ---


def rule(run):
    """0.2 is better on two of three domains; on Cart-pole 0.1 is, by far."""
    rate = run.spec["arguments"]["learning_rate"]
    sign = -100.0 if run.names["domain"] == "cart-pole" else 1.0
    return {"final": sign * rate + 1e-3 * run.names["seed"], "auc": 0.0, "diverged_at": None}


def test_one_setting_is_chosen_by_ranks_and_taken_by_the_held_out():
    rows = made_rows(one_setting._plan, SMALL, rule)
    reported = [row for row in rows if row["stage"] == REPORTED and row["contender"] == CANDIDATE]
    rates = {
        key: {row["setting"]["learning_rate"] for row in reported if row["domain"] == key}
        for key in (*SMALL.chosen_on, *SMALL.held_out)
    }
    # On Cart-pole the setting for all and the best there.
    assert rates == {"acrobot": {0.2}, "cart-pole": {0.1, 0.2}, "mountain-car": {0.2}, "mountain-car-200": {0.2}}
    assert len(reported) == 6 * 5, "the best setting is the one for all on two domains, and run once"
    assert {row["seed"] for row in rows if row["stage"] == SELECTION} == {FIRST_SELECTION_SEED, 10_001}


def test_parts_without_a_choice_do_not_wait():
    first = one_setting._plan(SMALL, [])
    assert {run.names["contender"] for run in first if run.names["stage"] == REPORTED} == {
        "dqn, rl_zoo3's values",
        "dqn",
    }
    stages = Counter(run.names["stage"] for run in plan(SMALL.one_for_all(), []))
    assert stages["selection"] == 2 * 2 * 3 * 2, "two contenders choose from two settings"
    assert stages[REPORTED] == 4 * 6, "DQN has one setting"


# --- verdicts ---

SCALES = {"A": Scale(0.0, 100.0), "B": Scale(-10.0, 10.0)}


@pytest.mark.parametrize(
    ("a", "b", "outcome"), [(0.0, 0.0, HOLDS), (-4.0, 0.0, HOLDS), (-5.0, 0.0, OPEN), (0.0, -2.0, FAILS)]
)
def test_level_with_the_best_baseline(a, b, outcome):
    """The tolerance is 5 on A and 0.5 on B; x is far above one of the baselines everywhere."""
    finals = {
        "A": {"x": runs(a, 0.5), "y": runs(0.0, 0.5, seed=1), "z": runs(-50.0)},
        "B": {"x": runs(b, 0.1), "y": runs(-9.0, 0.1), "z": runs(0.0, 0.1, seed=1)},
    }
    verdicts = yardstick.level_with_baselines("x", ["y", "z"], finals, SCALES)
    assert [verdict.claim for verdict in verdicts] == [
        "x is level with the best baseline on every environment",
        "A: x is level with the best baseline",
        "B: x is level with the best baseline",
    ]
    assert verdicts[0].outcome is outcome


def test_lost_runs_are_not_level():
    lost = np.where(np.arange(30) < 4, np.nan, runs(0.0))
    finals = {"A": {"x": lost, "y": runs(-90.0)}}
    assert yardstick.level_with_baselines("x", ["y"], finals, SCALES)[0].outcome is OPEN


def test_level_with_rl_zoo3_where_it_has_an_entry():
    finals = {"A": {"x": runs(0.0), "dqn, zoo": runs(1.0)}, "B": {"x": runs(-10.0)}}
    (verdict,) = yardstick.level_with_zoo("x", ["dqn, zoo", "qrdqn, zoo"], finals, SCALES)
    assert (verdict.claim, verdict.outcome) == ("x is level with DQN, zoo wherever rl_zoo3 has an entry", HOLDS)
    finals["A"]["dqn, zoo"] = runs(9.0)
    assert yardstick.level_with_zoo("x", ["dqn, zoo"], finals, SCALES)[0].outcome is FAILS


@pytest.mark.parametrize(("mean", "outcome"), [(3.0, HOLDS), (-3.0, FAILS), (0.0, OPEN)])
def test_above_every_baseline_on_average(mean, outcome):
    finals = {
        name: {"x": runs(mean, seed=i), "y": runs(0.0, seed=10 + i), "z": runs(-0.1, seed=20 + i), "other": runs(99.0)}
        for i, name in enumerate("AB")
    }
    found = yardstick.averages(finals, ["x", "y", "z"])
    assert found.estimates.keys() == {"x", "y", "z"}
    verdicts = yardstick.above_on_average("x", ["y", "z"], found, "everywhere")
    assert verdicts[0].claim == "x is above every baseline on average, everywhere"
    assert {verdict.outcome for verdict in verdicts} == {outcome}
    assert [verdict.test for verdict in verdicts[1:]] == ["stratified bootstrap"] * 2, "not corrected yet"


def test_a_run_without_a_return_counts_as_the_lowest():
    finals = {"A": {"x": np.array([5.0, np.nan]), "y": np.array([1.0, 2.0])}}
    # NaN becomes 1, the lowest: the pool is 1, 1, 2, 5.
    assert yardstick.averages(finals, ["x", "y"]).estimates["x"] == pytest.approx((7 / 8 + 1 / 4) / 2)


# --- tables ---


def test_failed_seeds_by_hand():
    finals = {
        "A": {"dqn": np.array([9.0, 10.0, np.nan, 50.0]), "qlc": np.full(4, np.nan)},
        "B": {"dqn": np.array([-9.5, -8.9, 0.0, -1.0]), "qlc": np.zeros(4)},
    }
    settings = {(name, label): "s" for name in finals for label in ("dqn", "qlc")}
    rows = yardstick.returns_by_environment("t", "c", finals, settings, SCALES).rows
    # Below 10 of 0 … 100, and below −9 of −10 … 0.
    assert [(row["domain"], row["algorithm"], row["failed"], row["seeds"]) for row in rows] == [
        ("A", "DQN", 2, 4),
        ("A", "QLC", 4, 4),
        ("B", "DQN", 1, 4),
        ("B", "QLC", 0, 4),
    ]
    assert rows[0]["mean"].estimate == pytest.approx((9 + 10 + 9 + 50) / 4)
    assert (rows[1]["mean"], rows[2]["worst decile"]) == (None, -9.5)


def test_improvement_has_a_column_per_baseline():
    finals = {"A": {"x": runs(1.0), "y": runs(0.0, seed=1), "z": runs(9.0)}, "B": {"x": runs(0.0), "y": runs(0.0)}}
    first, second = yardstick.improvements(["x"], ["y", "z"], finals).rows
    expected = brunner_munzel(finals["A"]["x"], finals["A"]["y"]).interval
    assert (first["over y"], first["over z"].estimate) == (expected, 0.0)
    assert first["over z"].high > 0.0, "unseen runs may be above"
    assert (second["over y"].estimate, second["over z"]) == (0.5, None)


def test_settings_in_words():
    setting = {"learning_rate": falling(-9), "target_update_interval": None}
    assert setting_text(setting) == "learning_rate=2^-9 → 2^-13, target_update_interval=none"


def test_leads_without_each_environment_are_above_the_best_baseline_of_the_others():
    """Each contender is on top of another once or twice: with three of them the scores are 1/6, 1/2 and 5/6."""
    low, middle, high = (value + 0.01 * np.arange(5) for value in (0.0, 1.0, 2.0))
    runs = {
        "a": {"ours": high, "first": middle, "second": low},
        "b": {"ours": middle, "first": high, "second": low},
        "c": {"ours": middle, "first": low, "second": high},
    }
    averages = {"all": yardstick.averages(runs, ["ours", "first", "second"])}
    table = yardstick.leads_without_each("ours", ["first", "second"], averages)
    found = {row["without"]: (row["all"].estimate, row["best baseline, all"]) for row in table.rows}
    first, second = report.label("first"), report.label("second")
    assert found["none"] == (pytest.approx(11 / 18 - 1 / 2), first)
    assert found["a"][0] == pytest.approx(0.0), "all three are at 1/2"
    assert found["b"] == (pytest.approx(2 / 3 - 1 / 2), second)
    assert found["c"] == (pytest.approx(2 / 3 - 2 / 3), first)


def test_the_analysis_reads_all_parts():
    jitter = np.random.default_rng(0).normal(size=6)

    def final(run):
        scale = SCALE_OF[run.names["domain"]]
        good = {CANDIDATE: 0.8, "dqn": 0.5}.get(run.names["contender"], 0.6)
        noise = 0.01 * jitter[run.names["seed"] % 6]
        return {"final": scale.poor + scale.width * (good + noise), "auc": 0.0, "diverged_at": None}

    analysis = EXPERIMENT.analyse(SMALL, made_rows(one_setting._plan, SMALL, final))
    found, name = outcomes(analysis.verdicts), report.label(CANDIDATE)
    assert set(found.values()) == {HOLDS}
    assert f"{name} is above every baseline on average, held-out environments" in found
    assert f"{name} is level with DQN, rl_zoo3's values wherever rl_zoo3 has an entry" in found
    tables = {table.name: table.rows for table in analysis.tables}
    # Three contenders on four environments, and rl_zoo3's values on three of them.
    assert len(tables["returns"]) == 3 * 4 + 3
    assert len(tables["best-per-environment"]) == 3 * 3
    assert tables["averages"][0]["algorithm"] == name
    assert tables["averages"][0]["all environments"].estimate == pytest.approx(5 / 6), "above two of three"
    between = {(row["algorithm"], row["and"]): row["all environments"].estimate for row in tables["averages-between"]}
    assert len(between) == 3
    assert between[name, "DQN"] == pytest.approx(5 / 6 - 1 / 6)
    without = {row["without"]: row for row in tables["averages-without-each"]}
    assert len(without) == 1 + 4
    # The second of three is at ½; one held-out environment alone has no others.
    leads = [row["all environments"].estimate for row in without.values()]
    assert leads == pytest.approx([5 / 6 - 1 / 2] * 5)
    assert "held-out environments" not in without["none"]
    assert [plot.name for plot in analysis.plots] == ["distributions", "averages-plot"]
    assert LAPTOP.note in analysis.notes


def test_more_candidates_are_judged_as_they_are_named(monkeypatch):
    monkeypatch.setattr(one_setting, "CANDIDATES", (*CANDIDATES, Contender("qrc", "qrc", {})))
    more = replace(SMALL, contenders=one_setting.contenders((0.1,), (0.1,), (64,), ("qrc", "dqn")))
    assert (more.candidates, more.baselines) == (["qrc"], ["dqn"])
