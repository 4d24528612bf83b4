"""The factorial of ingredients: effects of made data that are known exactly, what is run when, and what is said."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from made_rows import made_rows

from sb3_robust_be.evaluation import Outcome, interactions, main_effects, t_interval, welch_t
from sb3_robust_be.experiments.control.domains import SCALES
from sb3_robust_be.experiments.control.preset import plan
from sb3_robust_be.experiments.declared import ingredients
from sb3_robust_be.experiments.declared.ingredients import (
    BASELINES,
    BESIDE,
    BEST,
    CELLS,
    CONSTANT,
    CORRECTIONS,
    EXPERIMENT,
    FALLING,
    FALLS,
    FINALISTS,
    FIRST_FALLING_SEED,
    FIRST_SEED,
    LOSSES,
    NORMS,
    ONE_RATE,
    PRESETS,
    TARGETS,
    Cell,
    by_cell,
    finalists,
    ingredient_verdicts,
    lowest_returns,
    ranks,
)
from sb3_robust_be.experiments.experiment import REPORTED, SELECTION, without_rows
from sb3_robust_be.experiments.reporting import make_report
from sb3_robust_be.experiments.rows import key_of
from sb3_robust_be.report import verdict_table

HOLDS, FAILS, OPEN = Outcome.HOLDS, Outcome.DOES_NOT_HOLD, Outcome.NOT_RESOLVED
SEEDS = 8
SMALL = replace(PRESETS["smoke"], seeds=3, selection_seeds=2)
"""Four combinations, of which two have a correction, and SBEED twice, on two domains"""
FACTORIAL = 2 * (4 + 2) * 3
"""Its runs at one step size"""

# What each level adds, by the position in a combination.
ADDED = (
    dict(zip(CORRECTIONS, (0.0, -30.0, 5.0, 10.0, 20.0, 40.0), strict=True)),
    dict(zip(LOSSES, (0.0, 7.0), strict=True)),
    dict(zip(TARGETS, (0.0, -3.0), strict=True)),
    dict(zip(NORMS, (0.0, 100.0), strict=True)),
)


def additive(spread=0.0):
    """Returns by label: the sum of what the levels add, on top of a seed's own luck, which all combinations share."""
    rng = np.random.default_rng(0)
    luck = 1000.0 * rng.normal(size=SEEDS)
    return {
        cell.label: luck
        + sum(added[level] for added, level in zip(ADDED, cell, strict=True))
        + spread * rng.normal(size=SEEDS)
        for cell in CELLS
    }


# --- effects ---


def test_main_effects_of_additive_data_are_what_was_added():
    found = main_effects(Cell._fields, by_cell(CELLS, additive()))
    expected = {
        f"{kind}: {level}": value
        for kind, added in zip(Cell._fields, ADDED, strict=True)
        for level, value in list(added.items())[1:]
    }
    assert found.keys() == expected.keys()
    assert len(expected) == 5 + 1 + 1 + 1
    for name, interval in found.items():
        assert interval.estimate == pytest.approx(expected[name], abs=1e-9)
        # Each seed says the same but for rounding; where there is not even that, there is no interval.
        assert not interval.high - interval.low > 1e-9


def test_additive_data_have_no_interactions():
    found = interactions(Cell._fields, by_cell(CELLS, additive()))
    # Of the correction with three others, and of these among themselves.
    assert len(found) == 3 * 5 + 3
    for interval in found.values():
        assert interval.estimate == pytest.approx(0.0, abs=1e-9)
        assert not interval.high - interval.low > 1e-9


def test_one_planted_interaction():
    """24 more where a one-sided correction meets layer normalisation, on every loss and target."""
    own = additive()
    for cell in CELLS:
        if (cell.correction, cell.norm) == ("one-sided", "LayerNorm"):
            own[cell.label] = own[cell.label] + 24.0
    planted = "correction: one-sided × norm: LayerNorm"
    for name, interval in interactions(Cell._fields, by_cell(CELLS, own)).items():
        assert interval.estimate == pytest.approx(24.0 if name == planted else 0.0, abs=1e-9), name
    found = {name: interval.estimate for name, interval in main_effects(Cell._fields, by_cell(CELLS, own)).items()}
    # The average effect of one has half of it, that of the other a sixth.
    assert found["correction: one-sided"] == pytest.approx(40.0 + 24.0 / 2)
    assert found["norm: LayerNorm"] == pytest.approx(100.0 + 24.0 / 6)
    assert found["loss: squared"] == pytest.approx(7.0)


def test_intervals_are_students_of_one_difference_per_seed():
    own = additive()
    by_seed = np.random.default_rng(1).normal(50.0, 5.0, SEEDS)
    for cell in CELLS:
        if cell.target == "target":
            own[cell.label] = own[cell.label] + by_seed
    found, expected = (
        [interval.estimate, interval.low, interval.high]
        for interval in (main_effects(Cell._fields, by_cell(CELLS, own))["target: target"], t_interval(by_seed - 3.0))
    )
    np.testing.assert_allclose(found, expected)


# --- ranks and finalists ---


def test_ranks_by_hand():
    """On A the means are 3, 2 and 2, on B 1 (the lowest for NaN), 5 and 9."""
    finals = {
        "A": {"x": np.array([4.0, 2.0]), "y": np.array([2.0, 2.0]), "z": np.array([1.0, 3.0])},
        "B": {"x": np.array([1.0, np.nan]), "y": np.array([5.0, 5.0]), "z": np.array([9.0, 9.0])},
    }
    assert ranks(finals) == {"x": (1 + 3) / 2, "y": (2.5 + 2) / 2, "z": (2.5 + 1) / 2}


def test_finalists_are_the_six_best_with_a_correction_and_all_without():
    finals = {"A": additive(), "B": {label: 2.0 * runs for label, runs in additive().items()}}
    chosen = finalists(CELLS, finals)
    # Layer normalisation adds most, then the correction (40, 20), the loss (7) and the target (−3).
    assert [cell.label for cell in chosen[:FINALISTS]] == [
        "one-sided | squared | no target | LayerNorm",
        "one-sided | squared | target | LayerNorm",
        "one-sided | κ = 1 | no target | LayerNorm",
        "one-sided | κ = 1 | target | LayerNorm",
        "QLC | squared | no target | LayerNorm",
        "QLC | squared | target | LayerNorm",
    ]
    assert chosen[FINALISTS:] == BASELINES
    assert len(BASELINES) == 2 * 2 * 2


# --- what is run, and when ---


def final(run):
    """One-sided corrections are best, and each domain likes one step size."""
    rate = run.spec["arguments"]["learning_rate"]
    falls = rate == FALLING
    liked = 2.0**-9 if run.names["domain"] == "cart-pole" else CONSTANT
    good = 10.0 * ("one-sided" in run.names["contender"]) + 5.0 * (falls or rate == liked)
    return {"final": good + 0.1 * (run.names["seed"] % 7), "auc": 0.0, "diverged_at": None}


def stages(runs):
    """Which stages the runs have, with their step sizes."""
    return {(run.names["stage"], str(run.names["setting"]["learning_rate"])) for run in runs}


def test_first_the_factorial_alone():
    runs = EXPERIMENT.plan(SMALL, [])
    assert len(runs) == FACTORIAL
    assert stages(runs) == {(REPORTED, str(CONSTANT))}
    assert {run.names["contender"] for run in runs} == {cell.label for cell in SMALL.cells} | set(BESIDE)
    rows = [{**run.names, **final(run)} for run in runs]
    for few in (rows[:1], rows[:-1], rows[1:]):
        assert EXPERIMENT.plan(SMALL, few) == runs


def test_a_failed_run_has_ended():
    runs = EXPERIMENT.plan(SMALL, [])
    rows = [{**run.names, **final(run)} for run in runs[:-1]] + [{**runs[-1].names, "failed": "no luck"}]
    assert len(EXPERIMENT.plan(SMALL, rows)) > len(runs)


def test_then_falling_step_sizes_and_the_choice_of_three():
    first = EXPERIMENT.plan(SMALL, [])
    rows = [{**run.names, **final(run)} for run in first]
    then = without_rows(EXPERIMENT.plan(SMALL, rows), rows)
    assert stages(then) == {
        (REPORTED, str(FALLING)),
        *((SELECTION, str(2.0**k)) for k in (-11, -10, -9)),
    }
    falling = [run for run in then if run.names["stage"] == REPORTED]
    # Two with a correction are fewer than six: all four combinations, but not SBEED.
    assert {run.names["contender"] for run in falling} == {cell.label for cell in SMALL.cells}
    assert len(falling) == 2 * 4 * 3
    assert len(then) - len(falling) == 2 * 6 * 3 * 2


def test_last_the_best_of_three_is_reported():
    rows = made_rows(EXPERIMENT.plan, SMALL, final)
    planned = EXPERIMENT.plan(SMALL, rows)
    assert len(planned) == len(rows) == len({key_of(run.names, run.names) for run in planned})
    chosen = [row for row in rows if row["stage"] == REPORTED and row["setting"]["learning_rate"] == 2.0**-9]
    # On Cliff World the best one is that of the factorial, whose runs are there.
    assert {row["domain"] for row in chosen} == {"cart-pole"}
    assert len(chosen) == 6 * 3
    assert len(rows) == FACTORIAL + 2 * 4 * 3 + 2 * 6 * 3 * 2 + 6 * 3


def test_without_selection_seeds_nothing_is_chosen():
    rows = made_rows(EXPERIMENT.plan, replace(SMALL, selection_seeds=0), final)
    assert len(rows) == FACTORIAL + 2 * 4 * 3
    assert {row["stage"] for row in rows} == {REPORTED}


@pytest.mark.parametrize("scale", PRESETS)
def test_stages_have_seeds_of_their_own(scale):
    preset = PRESETS[scale]
    domain = preset.domains[0]
    factorial = preset.at_one_step_size(domain).reported_seeds(domain)
    falling = preset.falling(domain, preset.cells).reported_seeds(domain)
    best = preset.at_the_best_step_size(domain)
    assert (factorial[0], falling[0]) == (FIRST_SEED, FIRST_FALLING_SEED) == (20_000, 30_000)
    assert best.reported_seeds(domain) == factorial, "another step size on the same seeds"
    parts = [set(factorial), set(falling), set(best.selecting_seeds(domain))]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 2 * preset.seeds + preset.selection_seeds
    assert set(best.selecting_seeds(domain)) == set(range(10_000, 10_000 + preset.selection_seeds))


def test_every_combination_is_another_run():
    preset = replace(PRESETS["laptop"], seeds=1)
    runs = plan(preset.at_one_step_size("acrobot"), [])
    assert len({str(run.spec) for run in runs}) == len(runs) == len(CELLS) + 2 == 6 * 2 * 2 * 2 + 2
    arguments = {run.names["contender"]: run.spec["arguments"] for run in runs}
    own = arguments["one-sided | squared | target | LayerNorm"]
    assert (own["limit"], own["td_error_threshold"], own["target_update_interval"]) == ("one_sided", np.inf, 64)
    assert own["policy_kwargs"] == {"net_arch": [32, 32], "layer_norm": True}
    own = arguments["none | κ = 1 | no target | plain"]
    assert (own["huber_threshold"], own["target_update_interval"]) == (1.0, None)
    assert own["policy_kwargs"] == {"net_arch": [32, 32], "layer_norm": False}


# --- verdicts ---

CLAIM = "One-sided corrections raise squared Q-learning with layer normalisation"
BETTER, WORSE = (f"{name} | squared | no target | LayerNorm" for name in ("one-sided", "none"))


def verdicts(finals):
    found = {verdict.claim: verdict for verdict in ingredient_verdicts(CELLS, finals, lowest_returns([finals]))}
    assert len(found) == 5 * (1 + len(finals))
    return found


def test_verdicts_compare_seed_by_seed():
    """Between seeds the spread is 25 times the effect."""
    finals = {"A": additive(spread=5.0), "B": additive(spread=5.0)}
    assert welch_t(finals["A"][BETTER], finals["A"][WORSE]).p_value > 0.5
    found = verdicts(finals)
    assert found[f"{CLAIM} on every domain"].outcome is HOLDS
    single = found[f"A: {CLAIM}"]
    assert (single.outcome, single.seeds) == (HOLDS, (SEEDS,))
    assert single.test == "paired t, Holm over 10"
    # QRC and QRC with a scaled regulariser: −30 and 5.
    assert found["A: Relative to the features, QRC's regulariser is above the absolute one"].outcome is HOLDS
    finals["B"][BETTER] = finals["B"][WORSE] - 5.0 + 0.1 * np.arange(SEEDS)
    found = verdicts(finals)
    assert found[f"{CLAIM} on every domain"].outcome is FAILS
    assert (found[f"A: {CLAIM}"].outcome, found[f"B: {CLAIM}"].outcome) == (HOLDS, FAILS)


@pytest.mark.parametrize(("lost", "counts"), [(WORSE, "0 of 8 and 8 of 8"), (BETTER, "8 of 8 and 0 of 8")])
def test_lost_runs_decide_nothing(lost, counts):
    """As the lowest returns they would say that the other side is better."""
    finals = {"A": additive(spread=5.0)}
    finals["A"][lost] = np.full(SEEDS, np.nan)
    found = verdicts(finals)
    single, everywhere = found[f"A: {CLAIM}"], found[f"{CLAIM} on every domain"]
    assert (single.outcome, everywhere.outcome) == (OPEN, OPEN)
    assert single.reason == f"{counts} runs have no return"
    assert found["A: Relative to the features, QRC's regulariser is above the absolute one"].outcome is HOLDS


def test_claims_on_combinations_that_are_not_there_are_left_out():
    finals = {"A": additive()}
    found = ingredient_verdicts(SMALL.cells, finals, lowest_returns([finals]))
    assert [verdict.claim for verdict in found] == [
        "Without a target network, the squared loss is above the Huber loss of DQN on every domain",
        "A: Without a target network, the squared loss is above the Huber loss of DQN",
    ]


def test_the_lowest_return_is_one_for_all_stages():
    first = {"A": {"x": np.array([1.0, np.nan])}, "B": {"x": np.array([np.nan, np.nan])}}
    later = {"A": {"x": np.array([-5.0, np.inf])}}
    assert lowest_returns([first]) == {"A": 1.0, "B": 0.0}
    assert lowest_returns([first, later]) == {"A": -5.0, "B": 0.0}


# --- the analysis ---


def rows_of(preset=SMALL, rule=final):
    return made_rows(EXPERIMENT.plan, preset, rule)


def combinations(analysis):
    (table,) = (table for table in analysis.tables if table.name == "combinations")
    return table, {(row["domain"], row["combination"]): row for row in table.rows}


def test_the_analysis():
    analysis = EXPERIMENT.analyse(SMALL, rows_of())
    assert len(analysis.verdicts) == 1 + 2
    table, rows = combinations(analysis)
    assert len(rows) == 2 * 6
    assert [name for name in table.header() if "decile" not in name] == [
        "domain",
        "combination",
        "mean rank",
        ONE_RATE,
        FALLS,
        BEST,
    ]
    # Seeds 20 000 to 20 002 are 1, 2 and 3 of seven, 30 000 to 30 002 are 5, 6 and 0.
    row = rows["Cart-pole", "one-sided, squared, no target, plain"]
    assert row[ONE_RATE].estimate == pytest.approx(10.0 + 0.2)
    assert row[BEST].estimate == pytest.approx(10.0 + 5.0 + 0.2)
    assert row[FALLS].estimate == pytest.approx(10.0 + 5.0 + 0.1 * 11 / 3)
    assert rows["Cliff World", "one-sided, squared, no target, plain"][ONE_RATE].estimate == pytest.approx(15.2)
    assert row["mean rank"] == 1.5, "two combinations are the best"
    assert rows["Cart-pole", "SBEED, plain"][FALLS] is None
    assert "(the 6 best combinations with a correction" in table.caption
    (effects,) = (table.rows for table in analysis.tables if table.name == "effect-sizes")
    main = {(row["domain"], row["effect"]): row for row in effects if row["kind"] == "main"}
    for stage in (ONE_RATE, BEST):
        column = f"difference of the return, {stage}"
        assert main["Cart-pole", "correction: one-sided"][column].estimate == pytest.approx(10.0)
        assert main["Cart-pole", "loss: squared"][column].estimate == pytest.approx(0.0)
    assert not [note for note in analysis.notes if "left out" in note or "yet" in note]


def test_the_figure_says_the_scales_of_its_domains():
    (plot,) = EXPERIMENT.analyse(SMALL, rows_of()).plots
    assert "(Cart-pole 500, Cliff World 1000)" in plot.caption
    drawn = {(row["panel"], row["group"]): row["value"] for row in plot.data}
    assert drawn["Cliff World", "one-sided"] == pytest.approx(10.0 / SCALES["cliff-world"])


@pytest.mark.parametrize("stage", [FALLS, BEST])
def test_a_stage_that_is_not_finished_is_left_out(stage):
    every, rate = rows_of(), {FALLS: FALLING, BEST: 2.0**-9}[stage]
    of_stage = [row for row in every if row["stage"] == REPORTED and row["setting"]["learning_rate"] == rate]
    analysis = EXPERIMENT.analyse(SMALL, [row for row in every if row is not of_stage[-1]])
    assert f"The column {stage!r} is left out: those runs have not all been made." in analysis.notes
    table, rows = combinations(analysis)
    (other,) = {FALLS, BEST} - {stage}
    assert stage not in table.header()
    assert stage not in rows["Cart-pole", "one-sided, squared, no target, plain"]
    assert {ONE_RATE, other} < set(table.header())
    assert len(analysis.verdicts) == 3


@pytest.mark.parametrize("made", [0, 1, FACTORIAL - 1])
def test_half_a_factorial_says_nothing_in_one_sentence(made):
    rows = rows_of()[:made]
    analysis = EXPERIMENT.analyse(SMALL, rows)
    left = f"{FACTORIAL - made} of the {FACTORIAL} runs"
    assert analysis.notes == [
        f"Nothing is said yet: {left} at the step size 2^-10 have not been made, and an effect is an average over all "
        "of them."
    ]
    assert (analysis.verdicts, analysis.plots, analysis.tables) == ([], [], [])


def test_half_a_factorial_has_a_page():
    made = make_report(EXPERIMENT, "smoke", [], "command")
    assert made.notes[0].startswith("Nothing is said yet: 24 of the 24 runs")
    assert verdict_table(made.verdicts).markdown()


def test_a_run_without_a_return_counts_as_the_lowest_of_all_stages():
    """A falling step size brings −50, which chooses no others than were run, and counts at the other step sizes."""
    lost = "none | squared | no target | plain"

    def rule(run):
        label, falls = run.names["contender"], run.spec["arguments"]["learning_rate"] == FALLING
        if run.names["domain"] == "cart-pole" and label == lost and run.names["seed"] == FIRST_SEED:
            return None if run.spec["arguments"]["learning_rate"] == CONSTANT else final(run)
        return {**final(run), "final": -50.0} if falls and label == lost else final(run)

    _, rows = combinations(EXPERIMENT.analyse(SMALL, rows_of(rule=rule)))
    row = rows["Cart-pole", "none, squared, no target, plain"]
    assert row[FALLS].estimate == -50.0
    assert row[ONE_RATE].estimate == pytest.approx((-50.0 + 0.2 + 0.3) / 3)
    assert row["mean rank"] == 4.5, "by the factorial's own lowest return it ties with all but two on both domains"


def test_later_returns_choose_no_other_finalists(monkeypatch):
    """With the lowest of all stages the one with a lost run would be out."""
    monkeypatch.setattr(ingredients, "FINALISTS", 1)
    often = "one-sided | squared | no target | plain"

    def rule(run):
        label, rate = run.names["contender"], run.spec["arguments"]["learning_rate"]
        if label == often and run.names["seed"] == FIRST_SEED and rate == CONSTANT:
            return None
        found = final(run)
        return {**found, "final": found["final"] + 20.0 * (label == often) - 1e6 * (rate == FALLING)}

    rows = rows_of(rule=rule)
    falling = {row["contender"] for row in rows if row["setting"]["learning_rate"] == FALLING}
    assert falling == {often, *(cell.label for cell in BASELINES if cell in SMALL.cells)}
    analysis = EXPERIMENT.analyse(SMALL, rows)
    assert not [note for note in analysis.notes if "left out" in note]
    assert combinations(analysis)[1]["Cart-pole", often.replace(" | ", ", ")][FALLS] is not None


def test_unfinished_runs_are_noted_by_stage():
    def rule(run):
        return {**final(run), "unfinished": run.spec["arguments"]["learning_rate"] == FALLING}

    (note,) = (note for note in EXPERIMENT.analyse(SMALL, rows_of(rule=rule)).notes if note.startswith("Unfinished"))
    assert "3 of 3 of one-sided | squared | no target | plain (Cart-pole, falling)" in note
    assert ONE_RATE not in note


def test_presets_are_full_factorials():
    for preset in PRESETS.values():
        levels = [list(dict.fromkeys(cell[i] for cell in preset.cells)) for i in range(4)]
        assert list(preset.cells) == [Cell(*names) for names in itertools.product(*levels)]
