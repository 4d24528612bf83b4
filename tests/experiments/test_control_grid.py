"""How a control experiment chooses settings on other seeds than it reports, and what the declared ones consist of."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from made_rows import made_rows

from sb3_robust_be.experiments.control import contenders as c
from sb3_robust_be.experiments.control.control_analysis import edge_notes, in_pairs, missing_notes, over_step_sizes
from sb3_robust_be.experiments.control.domains import (
    ALL_DOMAINS,
    CHEAP_DOMAINS,
    DOMAINS,
    HELD_OUT_DOMAINS,
    own_arguments,
    shared_arguments,
)
from sb3_robust_be.experiments.control.preset import (
    FIRST_SELECTION_SEED,
    Contender,
    ControlPreset,
    plan,
    read,
    selection_scores,
    settings_of,
)
from sb3_robust_be.experiments.declared import load_declared
from sb3_robust_be.experiments.experiment import REPORTED, SELECTION
from sb3_robust_be.experiments.rows import key_of
from sb3_robust_be.population import Population
from sb3_robust_be.runner import run_id

PRESET = ControlPreset(
    ("cart-pole", "acrobot"),
    (
        Contender("fast", "qrc", {"learning_rate": [0.1, 0.2]}),
        Contender("fixed", "dqn", {"learning_rate": [0.1]}, {"huber_threshold": 3.0}),
    ),
    seeds=4,
    selection_seeds=2,
    seeds_of={"acrobot": 2},
)


def rows_of(preset, rule):
    """With this final return for each run's spec."""
    return made_rows(plan, preset, lambda run: {"final": rule(run.spec), "diverged_at": None})


def by_rate(spec):
    """0.2 is the better one on Cart-pole, 0.1 on Acrobot; reported seeds would say the opposite."""
    sign = 1.0 if (spec["env"] == "CartPole-v1") == (spec["seed"] >= FIRST_SELECTION_SEED) else -1.0
    return sign * spec["arguments"]["learning_rate"]


def specs_of(preset, rule, stage):
    return [run.spec for run in plan(preset, rows_of(preset, rule)) if run.names["stage"] == stage]


def test_selection_and_reported_seeds_are_disjoint():
    selection, reported = (specs_of(PRESET, by_rate, stage) for stage in (SELECTION, REPORTED))
    assert {spec["seed"] for spec in selection} == {10_000, 10_001}
    assert {spec["seed"] for spec in reported} == {0, 1, 2, 3}
    # Nothing is to choose for the second contender.
    assert {spec["algorithm"] for spec in selection} == {"qrc"}
    assert sum(spec["env"] == "Acrobot-v1" for spec in reported) == 2 * 2


def test_reported_runs_are_known_when_their_contender_has_chosen_on_the_domain():
    everything = plan(PRESET, rows_of(PRESET, by_rate))
    selection = [run for run in everything if run.names["stage"] == SELECTION]
    fixed = [run for run in everything if run.names["contender"] == "fixed"]
    assert plan(PRESET, []) == [*selection, *fixed], "who has nothing to choose need not wait"
    assert everything[: len(selection)] == selection
    rows = rows_of(PRESET, by_rate)[: len(selection)]
    on_cart_pole = [run for run in everything if run.names["domain"] == "cart-pole" and run not in selection]
    waiting = [run for run in everything if run not in plan(PRESET, rows[:-1])]
    assert {(run.names["domain"], run.names["contender"]) for run in waiting} == {("acrobot", "fast")}
    assert set(map(str, on_cart_pole)) <= set(map(str, plan(PRESET, rows[:-1])))
    assert plan(PRESET, rows) == everything
    # A run that failed has ended as well.
    assert len(plan(PRESET, [*rows[:-1], {**selection[-1].names, "failed": "no luck"}])) == len(everything)


def test_what_has_not_been_chosen_yet_is_left_out():
    rows = rows_of(PRESET, by_rate)
    last = [row for row in rows if row["stage"] == SELECTION][-1]
    found = read(PRESET, [row for row in rows if row is not last])
    assert (last["domain"], last["contender"]) == ("acrobot", "fast")
    assert set(found.settings) == set(found.reported) == set(read(PRESET, rows).settings) - {("acrobot", "fast")}
    assert set(found.selection) == {("cart-pole", "fast")}
    assert missing_notes(read(PRESET, rows)) == []
    (left_out,) = missing_notes(found)
    assert "Acrobot" in left_out
    assert "Cart-pole" not in left_out


def test_one_setting_for_all_domains_waits_for_all_of_them():
    shared = replace(PRESET, one_setting=True)
    rows = rows_of(shared, by_rate)
    last = [row for row in rows if row["stage"] == SELECTION][-1]
    found = read(shared, [row for row in rows if row is not last])
    assert {label for _, label in found.settings} == {"fixed"}


# --- step sizes beyond the grid ---

GRID = (2.0**-10, 2.0**-9, 2.0**-8)
WIDE = ControlPreset(
    ("cart-pole",),
    (Contender("one", "dqn", {"learning_rate": GRID, "target_update_interval": (8, 64)}),),
    seeds=1,
    selection_seeds=2,
    further_step_sizes=2,
)


def tried(best, preset=WIDE):
    """The exponents and refreshes that are tried where returns fall with the distance from the best exponent."""

    def final(run):
        arguments = run.spec["arguments"]
        distance = abs(np.log2(arguments["learning_rate"]) - best)
        return {"final": -distance - (0.1 if arguments["target_update_interval"] == 8 else 0.0)}

    rows = made_rows(plan, preset, final)
    found = read(preset, rows)
    settings = [
        (np.log2(s["learning_rate"]), s["target_update_interval"]) for s in found.selection["cart-pole", "one"].settings
    ]
    return settings[6:], np.log2(found.settings["cart-pole", "one"]["learning_rate"]), edge_notes(found)


def test_beyond_the_end_where_the_best_lies_further_step_sizes_are_tried():
    assert tried(-9) == ([], -9, []), "it lies inside"
    # The best is at the end until the next one is worse; with the refresh of the best alone.
    assert tried(-10) == ([(-11, 64)], -10, [])
    assert tried(-11) == ([(-11, 64), (-12, 64)], -11, [])
    assert tried(-8) == ([(-7, 64)], -8, [])
    # No further than two: what is chosen there is at an end, and the report says so.
    further, chosen, (note,) = tried(-14)
    assert (further, chosen) == ([(-11, 64), (-12, 64)], -12)
    assert "DQN" not in note
    assert "one on Cart-pole (learning_rate=2^-12, the smallest)" in note
    assert tried(-14, replace(WIDE, further_step_sizes=0))[:2] == ([], -10)


def test_where_others_are_as_good_as_an_end_further_step_sizes_are_tried_too():
    """Beyond both ends where all are equal; what is chosen is the first of the best, and not at an end."""
    found = read(WIDE, made_rows(plan, WIDE, lambda run: {"final": -1000.0}))
    tried = [
        (np.log2(s["learning_rate"]), s["target_update_interval"]) for s in found.selection["cart-pole", "one"].settings
    ]
    assert tried[6:] == [(-11, 8), (-7, 8), (-12, 8), (-6, 8)]
    assert found.settings["cart-pole", "one"] == {"learning_rate": 2.0**-10, "target_update_interval": 8}
    assert edge_notes(found) == []

    def final(run):
        """Two are best, of which one is the smallest; below it it is better still."""
        exponent = np.log2(run.spec["arguments"]["learning_rate"])
        return {"final": {-11.0: 1.0, -10.0: 0.0, -8.0: 0.0}.get(exponent, -1.0)}

    found = read(WIDE, made_rows(plan, WIDE, final))
    assert found.settings["cart-pole", "one"]["learning_rate"] == 2.0**-11


def test_no_further_step_sizes_of_schedules_or_with_one_setting_for_all():
    falling = Contender("one", "dqn", {"learning_rate": (c.falling(-9), c.falling(-10))})
    for preset in (replace(WIDE, contenders=(falling,)), replace(WIDE, one_setting=True)):
        settings = settings_of(preset.contenders[0].grid)
        finals = {json.dumps(setting): -1.0 * i for i, setting in enumerate(settings)}
        rows = [{**run.names, "final": finals[json.dumps(run.names["setting"])]} for run in plan(preset, [])]
        assert read(preset, rows).selection["cart-pole", "one"].settings == settings


def test_whole_numbers_are_step_sizes_and_schedules_are_none():
    whole = Contender("one", "dqn", {"learning_rate": (0.5, 1)})
    falling = Contender("two", "dqn", {"learning_rate": (c.falling(-9), c.falling(-10))})
    preset = replace(WIDE, contenders=(whole, falling), further_step_sizes=1)
    rows = made_rows(plan, preset, lambda run: {"final": float(run.names["setting"]["learning_rate"] == 1)})
    results = read(preset, rows)
    assert results.selection["cart-pole", "one"].step_sizes == [0.5, 1, 2.0]
    assert results.selection["cart-pole", "two"].step_sizes == []
    assert over_step_sizes(results)["Cart-pole"].keys() == {"one"}


def test_over_step_sizes_other_settings_are_the_best_for_each_or_those_that_were_chosen():
    """64 is best where the step size is, and so chosen; 8 is better by 0.5 at any other."""

    def final(run):
        arguments = run.spec["arguments"]
        distance = abs(np.log2(arguments["learning_rate"]) + 9.0)
        return {"final": -distance + (0.5 if (arguments["target_update_interval"] == 8) == (distance > 0.0) else 0.0)}

    results = read(WIDE, made_rows(plan, WIDE, final))
    assert results.settings["cart-pole", "one"]["target_update_interval"] == 64
    found = [
        {rate: values.mean() for rate, values in over_step_sizes(results, fixed=fixed)["Cart-pole"]["one"].items()}
        for fixed in (False, True)
    ]
    assert found[0] == {2.0**-10: -0.5, 2.0**-9: 0.5, 2.0**-8: -0.5}
    assert found[1] == {2.0**-10: -1.0, 2.0**-9: 0.5, 2.0**-8: -1.0}


def test_the_loss_over_step_sizes_is_over_those_of_the_grid():
    rows = made_rows(plan, WIDE, lambda run: {"final": -np.log2(run.spec["arguments"]["learning_rate"])})
    results = read(WIDE, rows)
    assert set(over_step_sizes(results)["Cart-pole"]["one"]) == {2.0**-12, 2.0**-11, *GRID}
    assert set(over_step_sizes(results, further=False)["Cart-pole"]["one"]) == set(GRID)


def test_the_best_setting_on_the_selection_seeds_is_reported():
    settings = read(PRESET, rows_of(PRESET, by_rate)).settings
    assert settings["cart-pole", "fast"] == {"learning_rate": 0.2}
    assert settings["acrobot", "fast"] == {"learning_rate": 0.1}
    fixed = [spec for spec in specs_of(PRESET, by_rate, REPORTED) if spec["algorithm"] == "dqn"]
    assert {spec["arguments"]["huber_threshold"] for spec in fixed} == {3.0}


def test_what_is_read_is_by_seed():
    found = read(PRESET, made_rows(plan, PRESET, lambda run: {"final": 1.0 * run.names["seed"], "auc": -1.0}))
    assert {name: {label: x.tolist() for label, x in own.items()} for name, own in found.finals.items()} == {
        "Cart-pole": {"fast": [0.0, 1.0, 2.0, 3.0], "fixed": [0.0, 1.0, 2.0, 3.0]},
        "Acrobot": {"fast": [0.0, 1.0], "fixed": [0.0, 1.0]},
    }
    assert found.areas["Acrobot"]["fixed"].tolist() == [-1.0, -1.0]
    assert np.isnan(found.curves["Cart-pole"]["fast"]).all()
    assert found.curves["Cart-pole"]["fast"].shape == (4, 100)


def test_one_setting_for_all_domains_goes_by_ranks():
    shared = ControlPreset(
        **{**PRESET.__dict__, "one_setting": True, "domains": ("cart-pole", "acrobot", "mountain-car")}
    )
    scale = {"CartPole-v1": 1.0, "Acrobot-v1": -100.0, "RobustBE/MountainCar1000-v0": 1.0}
    rows = rows_of(shared, lambda spec: scale[spec["env"]] * spec["arguments"]["learning_rate"])
    settings = read(shared, rows).settings
    # Two of three domains prefer 0.2; by means, Acrobot would decide.
    assert {settings[key, "fast"]["learning_rate"] for key in shared.domains} == {0.2}


def test_domains_may_have_sizes_of_their_own_and_choose_nothing():
    own = replace(PRESET, steps=0.5, steps_by_domain={"acrobot": 0.1}, selection_seeds_of={"acrobot": 0})
    assert (own.steps_of("cart-pole"), own.steps_of("acrobot")) == (50_000, 10_000)
    assert {spec["env"] for spec in specs_of(own, by_rate, SELECTION)} == {"CartPole-v1"}
    settings = read(own, rows_of(own, by_rate)).settings
    assert settings["cart-pole", "fast"] == {"learning_rate": 0.2}
    assert settings["acrobot", "fast"] == {"learning_rate": 0.1}, "the first"


def test_a_diverged_run_spoils_its_setting():
    def rule(spec):
        rate = spec["arguments"]["learning_rate"]
        return np.nan if rate == 0.2 and spec["seed"] == FIRST_SELECTION_SEED else rate

    finals = read(PRESET, rows_of(PRESET, rule)).selection["cart-pole", "fast"].finals
    np.testing.assert_array_equal(finals, [[0.1, 0.1], [np.nan, 0.2]])
    np.testing.assert_allclose(selection_scores(finals), [0.1, 0.15])  # the lowest of all, 0.1, in place of NaN


# --- the declared experiments ---

CONTROL = ("control", "target-networks", "threshold", "saddlepoint", "minatar")


WITHIN_THE_SWEEP = ("squared loss, target", "squared loss, no target", "Huber loss")
WITHIN_ONE_REFRESH = ("squared loss, target", "Huber loss")


@pytest.mark.parametrize(
    ("name", "scale"), [(name, scale) for name in CONTROL for scale in load_declared(name).presets]
)
def test_every_preset_declares_runs_that_can_be_told_apart(name, scale):
    preset = load_declared(name).preset(scale)
    runs = plan(preset, [])
    assert len({key_of(run.names, run.names) for run in runs}) == len(runs) > 0
    # Those that are the same but for their names are made once: a swept threshold has the squared loss at its end.
    by_spec: dict[str, set[str]] = {}
    for run in runs:
        by_spec.setdefault(json.dumps(run.spec, sort_keys=True), set()).add(run.names["contender"])
    shared = {frozenset(names) for names in by_spec.values() if len(names) > 1}
    within = {"laptop": WITHIN_ONE_REFRESH, "long": WITHIN_THE_SWEEP, "paper": WITHIN_THE_SWEEP}
    of_control = within.get(scale, ()) if name == "control" else ()
    assert shared == {frozenset({"dqn", f"dqn, {which}"}) for which in of_control}
    assert len({contender.label for contender in preset.contenders}) == len(preset.contenders)


def test_the_papers_sizes():
    preset = load_declared("control").preset("paper")
    assert (preset.seeds, preset.steps, len(preset.domains)) == (100, 1.0, 5)
    by_label = {c.label: c for c in preset.contenders}
    assert len(settings_of(by_label["qrc_huber"].grid)) == 6
    assert by_label.keys() == {
        *("dqn", "dqn, Huber loss", "dqn, squared loss, target", "dqn, squared loss, no target", "dqn, layer norm"),
        *("qrc", "qrc_huber", "qrc_huber, hard clip", "qlc", "sbeed", "random"),
    }
    assert by_label["qrc_huber"].choices == {"projection": "smooth_huber"}
    assert load_declared("target-networks").preset("paper").seeds == 100
    assert load_declared("minatar").preset("paper").steps_of("breakout") == 5_000_000


@pytest.mark.parametrize("name", ["control", "target-networks", "threshold", "saddlepoint"])
@pytest.mark.parametrize(("scale", "seeds"), [("long", 30), ("paper", 100)])
def test_runs_have_the_papers_steps_and_six_step_sizes_or_nine(name, scale, seeds):
    preset = load_declared(name).preset(scale)
    assert preset.seeds == seeds
    assert all(preset.steps_of(key) == DOMAINS[key].steps for key in preset.domains)
    for key in set(preset.domains) - ({"lunar-lander"} if scale == "long" else set()):
        for contender in preset.contenders_on(key):
            rates = contender.grid.get("learning_rate")
            expected = tuple(2.0**k for k in range(-15, -6)) if key == "cliff-world" else c.RATES
            assert contender.label == "random" if rates is None else rates == expected


def test_other_contenders_on_one_domain():
    fast, slow = (Contender(label, "qrc", {"learning_rate": (0.1, 0.2)}) for label in ("fast", "slow"))
    few = replace(fast, grid={"learning_rate": (0.1,)})
    preset = ControlPreset(("cart-pole", "acrobot"), (fast, slow), 2, 2, contenders_of={"acrobot": (few,)})
    at_once = plan(preset, [])
    selection = [run for run in at_once if run.names["stage"] == SELECTION]
    assert {(run.names["domain"], run.names["contender"]) for run in selection} == {
        ("cart-pole", "fast"),
        ("cart-pole", "slow"),
    }
    assert {(run.names["domain"], run.names["contender"]) for run in at_once[len(selection) :]} == {("acrobot", "fast")}
    rows = [{**run.names, "final": run.names["setting"]["learning_rate"]} for run in selection]
    reported = plan(preset, rows)[len(selection) :]
    found = {(run.names["domain"], run.names["contender"], run.names["setting"]["learning_rate"]) for run in reported}
    assert found == {("cart-pole", "fast", 0.2), ("cart-pole", "slow", 0.2), ("acrobot", "fast", 0.1)}
    assert set(read(preset, rows).settings) == {(domain, label) for domain, label, _ in found}


def test_other_step_sizes_on_one_domain():
    fixed = Contender("fixed", "qrc", {}, {"learning_rate": 0.5})
    swept = Contender("swept", "dqn", {"learning_rate": (0.1, 0.2), "huber_threshold": (1.0, 2.0)})
    few = replace(swept, grid={**swept.grid, "huber_threshold": (1.0,)})
    preset = ControlPreset(("cart-pole", "acrobot"), (fixed, swept), 1, 1, rates_of={"acrobot": (0.3, 0.1, 0.2)})
    assert preset.contenders_on("cart-pole") == (fixed, swept)
    assert preset.contenders_on("acrobot") == (
        fixed,
        replace(swept, grid={**swept.grid, "learning_rate": (0.3, 0.1, 0.2)}),
    )
    assert list(preset.contenders_on("acrobot")[1].grid) == ["learning_rate", "huber_threshold"]
    both = replace(preset, contenders_of={"acrobot": (few,)}).contenders_on("acrobot")
    assert both == (replace(few, grid={"learning_rate": (0.3, 0.1, 0.2), "huber_threshold": (1.0,)}),)


def test_the_random_agent_never_learns():
    population = Population("dqn", "MlpPolicy", "CartPole-v1", range(2), verbose=0, buffer_size=50, **c.RANDOM.choices)
    before = population[0].policy.state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        population.learn(120)
    assert all(bool((before[name] == value).all()) for name, value in population[0].policy.state_dict().items())
    actions = population.returns[0].lengths
    assert len(actions) > 2
    assert max(actions) < 120


def test_the_papers_settings():
    assert shared_arguments(DOMAINS["cart-pole"])["policy_kwargs"] == {"net_arch": [64, 64]}
    assert own_arguments(DOMAINS["mountain-car"], "qrc_huber") == {"huber_threshold": 2.0}
    assert own_arguments(DOMAINS["acrobot"], "gq_huber") == {"huber_threshold": 1.0}
    assert own_arguments(DOMAINS["acrobot"], "dqn")["target_update_interval"] == 64
    assert [DOMAINS[d].steps for d in ("cliff-world", "lunar-lander")] == [50_000, 250_000]


def test_held_out_domains_enter_no_experiment_of_the_paper():
    assert CHEAP_DOMAINS == ("acrobot", "cart-pole", "cliff-world", "mountain-car")
    assert ALL_DOMAINS == ("acrobot", "cart-pole", "cliff-world", "lunar-lander", "mountain-car")
    assert tuple(DOMAINS) == ALL_DOMAINS
    assert not DOMAINS.keys() & HELD_OUT_DOMAINS.keys()
    assert not {domain.name for domain in DOMAINS.values()} & {domain.name for domain in HELD_OUT_DOMAINS.values()}


def test_held_out_domains_are_planned_as_a_presets_own():
    contenders = (Contender("qrc_huber", "qrc_huber", {"learning_rate": [0.1]}),)
    preset = ControlPreset(tuple(HELD_OUT_DOMAINS), contenders, 1, 0, own_domains=HELD_OUT_DOMAINS)
    car, puddle = specs_of(preset, by_rate, REPORTED)
    assert [spec["env"] for spec in (car, puddle)] == ["MountainCar-v0", "RobustBE/PuddleWorld-v0"]
    assert [spec["arguments"]["huber_threshold"] for spec in (car, puddle)] == [2.0, 1.0]
    for spec in (car, puddle):
        assert spec["steps"] == 100_000
        assert spec["arguments"]["buffer_size"] == 4_000
        assert spec["arguments"]["policy_kwargs"] == {"net_arch": [32, 32]}
    assert [gym.spec(spec["env"]).max_episode_steps for spec in (car, puddle)] == [200, 1000]


@pytest.mark.parametrize(
    ("name", "share"), [("saddlepoint", (810, 1215)), ("target-networks", (675, 2025)), ("threshold", (390, 2100))]
)
def test_experiments_share_runs_with_control(name, share):
    """The same spec to the letter, so that a finished run of the one is the other's."""
    own, controls = (
        {run_id(run.spec) for run in plan(load_declared(e).preset("long"), []) if run.names["stage"] == SELECTION}
        for e in (name, "control")
    )
    assert (len(own & controls), len(own)) == share


@pytest.mark.parametrize("scale", ["long", "paper"])
def test_the_thresholds_of_dqn_are_tried_as_control_tries_a_threshold_of_1(scale):
    preset, control = (load_declared(name).preset(scale) for name in ("threshold", "control"))
    key = "mountain-car"
    (fixed,) = (one for one in control.contenders_on(key) if one.label == "dqn, Huber loss")
    dqns = {one.label: one for one in preset.contenders_on(key) if one.algorithm == "dqn"}
    assert list(dqns) == ["dqn, κ = 0.25", "dqn, κ = 0.5", "dqn, κ = 1", "dqn, κ = 2"]
    assert {one.algorithm for domain in {*preset.domains} - {key} for one in preset.contenders_on(domain)} == {
        "qrc_huber"
    }
    for label, one in dqns.items():
        assert settings_of(one.grid) == settings_of(fixed.grid)
        threshold = float(label.rpartition(" ")[2])
        for setting in settings_of(fixed.grid):
            for stage, seed in ((SELECTION, FIRST_SELECTION_SEED), (REPORTED, 0)):
                (run,) = preset.runs(stage, key, one, setting, [seed])
                (other,) = control.runs(stage, key, fixed, setting, [seed])
                arguments = {**other.spec["arguments"], "huber_threshold": threshold}
                assert run.spec == {**other.spec, "arguments": arguments}
                assert run.names == {**other.names, "contender": label}
                assert (run.digest == other.digest) == (threshold == 1.0)


def test_figures_have_curves_of_half_as_many_points():
    nan = math.nan
    curves = np.array([[1.0, 3.0, nan, 4.0, 5.0, nan, nan, nan], [0.0, 0.0, 2.0, 2.0, -1.0, 1.0, math.inf, 7.0]])
    np.testing.assert_array_equal(in_pairs(curves), [[2.0, 4.0, 5.0, nan], [0.0, 2.0, 0.0, 7.0]])
    assert in_pairs(np.arange(3.0)).tolist() == [0.0, 1.0, 2.0]
