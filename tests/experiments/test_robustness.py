"""The experiment on what the paper leaves open: its runs, and what is made of constructed results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_rows import made_rows

from sb3_robust_be.evaluation import Outcome, holm, welch_t
from sb3_robust_be.experiments.control import alternatives as made
from sb3_robust_be.experiments.control.training import SINGLE, make_agent
from sb3_robust_be.experiments.declared import robustness
from sb3_robust_be.experiments.declared.robustness import ALTERNATIVES, CLIFF, ONE_HOT, PRESETS, STATED, STATED_ON
from sb3_robust_be.experiments.experiment import REPORTED, SELECTION
from sb3_robust_be.report.sentences import by_sentence
from sb3_robust_be.runner.specs import dumps

HOLDS, FAILS, OPEN = Outcome.HOLDS, Outcome.DOES_NOT_HOLD, Outcome.NOT_RESOLVED
LAPTOP = PRESETS["laptop"]


def runs(mean, spread=1.0, n=30, seed=0):
    return mean + spread * np.random.default_rng(seed).normal(size=n)


def lost(values, n):
    return np.where(np.arange(len(values)) < n, np.nan, values)


# --- what is run ---


def test_laptops_runs_are_as_many_as_it_says():
    planned = robustness.EXPERIMENT.plan(LAPTOP, [])
    assert {run.names["stage"] for run in planned} == {REPORTED}
    specs = [run.spec for run in planned]
    steps = sum(spec["steps"] for spec in specs)
    assert f"{steps / 1e6:.1f} million agent-steps" in LAPTOP.note
    assert steps <= 45_000_000
    assert len({dumps(spec, "spec") for spec in specs}) == len(specs)
    rates = {(spec["env"], spec["arguments"]["learning_rate"]) for spec in specs}
    assert {rate for env, rate in rates if "Cliff" in env} == {2.0**-11}
    assert {rate for env, rate in rates if "Cliff" not in env} == {2.0**-10}
    assert {spec["seed"] for spec in specs} == set(range(20))


def test_every_change_is_explained():
    assert set(robustness.MEANINGS) == {*ALTERNATIVES, *STATED, robustness.OBSERVATION}


@pytest.mark.parametrize("key", LAPTOP.domains)
def test_every_variant_is_one_change_of_its_default(key):
    part = replace(LAPTOP, squared_on=(CLIFF, ONE_HOT)).part(key)
    specs = {c.label: part.runs(REPORTED, key, c, {"learning_rate": 0.5}, [0])[0].spec for c in part.contenders}
    ours = [*ALTERNATIVES, *STATED_ON.get(key, {})]
    expected = ["qrc_huber", *(f"qrc_huber, {name}" for name in ours)]
    if key in (CLIFF, ONE_HOT):
        expected += ["qrc", *(f"qrc, {name}" for name in ALTERNATIVES if name != "hard clip"), "dqn"]
    if key == "cart-pole":
        expected += ["dqn", "dqn, 32 units", "dqn, RMSprop"]
    assert specs["qrc_huber"]["arguments"]["projection"] == "smooth_huber"
    assert list(specs) == expected
    for label in made.alternatives(specs):
        default, changed = specs[made.base_of(label)], specs[label]
        # Populations have Adam, which torch compiles with the rest.
        alone = {"function": SINGLE, "compile": False} if label.endswith("RMSprop") else {}
        assert {**changed, "arguments": 0} == {**default, "arguments": 0, **alone}
        own, before = changed["arguments"], default["arguments"]
        (argument,) = (ALTERNATIVES | STATED)[label.partition(", ")[2]]
        assert {name for name in own if own[name] != before.get(name)} == {argument}
        if not label.endswith("32 units"):
            assert own["policy_kwargs"]["net_arch"] == before["policy_kwargs"]["net_arch"]
        assert before.keys() <= own.keys()
    one_hot = {"observation": "one_hot"} if key == ONE_HOT else {}
    assert all(spec["env_kwargs"] == one_hot for spec in specs.values())


@pytest.mark.parametrize("key", [ONE_HOT, "acrobot"])
def test_every_variant_can_be_trained(key):
    part = LAPTOP.part(key)
    for contender in part.contenders:
        (run,) = part.runs(REPORTED, key, contender, {"learning_rate": 0.5}, [0])
        make_agent({**run.spec, "compile": False})


def test_papers_step_sizes_are_chosen_on_other_seeds():
    preset = replace(PRESETS["paper"], domains=(CLIFF, "acrobot"), seeds=2, selection_seeds=1)

    def rule(run):
        rate = run.spec["arguments"]["learning_rate"]
        return {"final": -abs(np.log2(rate) + (9 if "Cliff" in run.spec["env"] else 11)), "diverged_at": None}

    plan = robustness.EXPERIMENT.plan
    everything = plan(preset, made_rows(plan, preset, rule))
    selection, reported = (
        [run.spec for run in everything if run.names["stage"] == stage] for stage in (SELECTION, REPORTED)
    )
    cliff, acrobot = (len(preset.part(key).contenders) for key in preset.domains)
    assert (len(selection), len(reported)) == (6 * (cliff + acrobot), 2 * (cliff + acrobot))
    assert {spec["seed"] for spec in selection} == {10_000}
    chosen = {(spec["env"], spec["arguments"]["learning_rate"]) for spec in reported}
    assert {rate for _, rate in chosen} == {2.0**-9, 2.0**-11}
    assert len(chosen) == 2


# --- tables ---


def shifted(by, seed):
    """As ``runs(0.0)``, with a mean that is higher by exactly this."""
    values = runs(0.0, seed=seed)
    return values - values.mean() + runs(0.0).mean() + by


OWN = {
    "qrc_huber": runs(0.0),
    "qrc_huber, a": shifted(9.0, 1),
    "qrc_huber, b": shifted(0.48, 2),
    "qrc_huber, c": shifted(0.1, 3),
    "dqn": shifted(50.0, 4),
    "qrc": shifted(5.0, 5),
    "qrc, a": shifted(-5.0, 6),
}


def rows_of(own):
    return made.differences_table({"D": own}, {("D", label): 2.0**-11 for label in own}).rows


def test_words_are_after_holm_over_the_domain():
    rows = rows_of(OWN)
    assert [(row["algorithm"], row["variant"], row["verdict"]) for row in rows] == [
        ("QRC-Huber", "default", None),
        ("QRC-Huber", "a", "better"),
        ("QRC-Huber", "b", "not resolved"),
        ("QRC-Huber", "c", "not resolved"),
        ("QRC", "default", None),
        ("QRC", "a", "worse"),
        ("DQN", "reference", None),
    ]
    found = {label: welch_t(OWN[label], OWN[made.base_of(label)]) for label in made.alternatives(OWN)}
    assert 0.025 < found["qrc_huber, b"].p_value < 0.05, "by itself it would be better"
    assert rows[2]["difference to the default"] == found["qrc_huber, b"].interval
    adjusted = dict(zip(found, holm([each.p_value for each in found.values()]), strict=True))
    assert [rows[i]["p"] for i in (1, 2, 3, 5)] == pytest.approx(list(adjusted.values()))
    assert rows[5]["mean"].estimate == pytest.approx(OWN["qrc, a"].mean())
    assert (rows[2]["seeds"], rows[2]["without a return"], rows[2]["step size"]) == (30, 0, "2^-11")


def test_runs_without_a_return_count_as_the_lowest_and_many_of_them_resolve_nothing():
    few, many, none = (lost(OWN["qrc_huber, a"], n) for n in (3, 4, 30))
    rows = rows_of({"qrc_huber": OWN["qrc_huber"], "qrc_huber, a": few, "qrc_huber, b": many, "qrc_huber, c": none})
    assert [row["verdict"] for row in rows] == [None, "better", "not resolved", "not resolved"]
    assert [row["without a return"] for row in rows] == [0, 3, 4, 30]
    assert rows[1]["mean"].estimate == pytest.approx(np.where(np.isnan(few), OWN["qrc_huber"].min(), few).mean())
    assert (rows[3]["mean"], rows[3]["difference to the default"]) == (None, None)


def test_the_figure_shows_the_differences():
    meanings = {"a": "first", "c": "third", "d": "none of these"}
    plot = made.differences_plot({"D": OWN, "E": {"qrc_huber": runs(0.0), "qrc_huber, a": runs(1.0)}}, meanings)
    assert plot.caption.endswith(" a: first; c: third.")
    bars = {(row["panel"], row["group"], row["series"]): (row["low"], row["high"]) for row in plot.data}
    assert list(bars) == [
        *(("D", "a", name) for name in ("qrc_huber", "qrc")),
        *(("D", name, "qrc_huber") for name in "bc"),
        ("E", "a", "qrc_huber"),
    ]
    interval = welch_t(OWN["qrc, a"], OWN["qrc"]).interval
    assert bars["D", "a", "qrc"] == (interval.low, interval.high)


# --- verdicts ---


@pytest.mark.parametrize(
    ("changed", "outcome"), [(0.0, HOLDS), (190.0, HOLDS), (201.0, OPEN), (-300.0, FAILS), (300.0, FAILS)]
)
def test_a_result_is_unchanged_within_the_tolerance(changed, outcome):
    own = {"qrc_huber": runs(0.0, 10.0), "qrc_huber, a": runs(changed, 10.0, seed=1), "qrc_huber, b": runs(1.0, 10.0)}
    assert made.unchanged("D", own, 200.0, ()).outcome is outcome
    # Neither what the paper states, nor QRC, nor DQN decides.
    own |= {"qrc_huber, κ = 10": runs(999.0), "qrc": runs(0.0), "qrc, a": runs(999.0), "dqn": runs(999.0)}
    assert made.unchanged("D", own, 200.0, tuple(STATED)).outcome is outcome
    assert made.unchanged("D", own, 200.0, ()).outcome is FAILS


def test_runs_without_a_return_are_not_alike():
    own = {"qrc_huber": lost(runs(0.0), 5), "qrc_huber, a": runs(0.0)}
    verdict = made.unchanged("D", own, 200.0, ())
    assert (verdict.outcome, verdict.reason) == (OPEN, "a: not resolved by this many seeds")


def test_no_alternative_beats_the_dqn_that_sees_the_same():
    def judged(coordinates, one_hot, default=0.0):
        finals = {
            "C": {"qrc_huber": runs(default), "qrc_huber, a": runs(coordinates), "dqn": runs(5.0, seed=1)},
            "O": {"qrc_huber": runs(one_hot), "qrc_huber, a": runs(0.0), "qrc": runs(999.0), "dqn": runs(9.0, seed=2)},
        }
        return made.below_reference("claim", finals, "C").outcome

    assert judged(0.0, 7.0) is HOLDS
    assert judged(7.0, 7.0) is FAILS
    assert judged(0.0, 99.0) is FAILS, "on one-hot observations the default is an alternative"
    assert judged(0.0, 7.0, default=99.0) is HOLDS, "the default itself is none"
    assert judged(5.1, 7.0) is OPEN


@pytest.mark.parametrize(("lost", "outcome"), [(0, HOLDS), (3, OPEN)])
def test_optimisers_are_not_told_alike_where_runs_are_lost(lost, outcome):
    """Three of twenty without a return are more than a tenth, and few enough to leave the means within a fifth."""
    other = runs(-151.0, n=20, seed=1)
    other[:lost] = np.nan
    finals = {"Acrobot": {label: runs(-150.0, n=20) for label in ("qrc_huber", "qrc_huber, h drawn")}}
    finals["Acrobot"]["qrc_huber, RMSprop"] = other
    found = robustness.robustness_verdicts(replace(LAPTOP, domains=("acrobot",)), finals)
    (alike,) = (verdict for verdict in found if verdict.claim.startswith("Acrobot: QRC-Huber's means with Adam"))
    assert alike.outcome is outcome


def test_the_experiment_takes_scales_and_the_one_hot_default_from_where_they_are():
    preset = replace(LAPTOP, seeds=8, squared_on=(CLIFF, ONE_HOT))
    jitter = np.random.default_rng(0).normal(size=8)

    def rule(run):
        spec = run.spec
        ours = -100.0 if spec["env"] == "CartPole-v1" else -300.0
        base = {"dqn": 0.0, "qrc_huber": ours, "qrc": -900.0}[spec["algorithm"]]
        one_hot = 50.0 if spec["env_kwargs"] else 0.0
        clip = 150.0 if spec["arguments"].get("projection") == "huber" else 0.0
        wide = 50.0 if spec["arguments"]["policy_kwargs"]["net_arch"] == [64, 64] else 0.0
        larger = 250.0 if spec["arguments"].get("huber_threshold") == 10.0 else 0.0
        # With RMSprop QRC-Huber is above DQN on Cart-pole, and with Adam it is not.
        by_env = {"CartPole-v1": 80.0 if spec["algorithm"] == "qrc_huber" else -80.0, "Acrobot-v1": 120.0}
        other = by_env[spec["env"]] if spec["function"] == SINGLE else 0.0
        return {"final": base + one_hot + clip + wide + larger + other + jitter[spec["seed"]], "diverged_at": None}

    analysis = robustness.EXPERIMENT.analyse(preset, made_rows(robustness.EXPERIMENT.plan, preset, rule))
    # 150 is within a fifth of 1000, on Cliff World and Mountain Car, and not of 500.
    *unchanged, against_dqn = [verdict for verdict in analysis.verdicts if not verdict.sentence]
    assert against_dqn.outcome is HOLDS
    clip, thresholds, units, optimisers, ours = by_sentence(analysis.verdicts)
    assert "SGD or RMSProp optimizers" in optimisers.sentence
    assert [verdict.outcome for verdict in optimisers.combined()] == [FAILS]
    alike = "means with Adam and RMSprop differ by at most a fifth of the scale"
    assert {verdict.claim: verdict.outcome for verdict in optimisers.single()} == {
        f"Acrobot: QRC-Huber's {alike}": FAILS,
        f"Cart-pole: QRC-Huber's {alike}": HOLDS,
        f"Cart-pole: DQN's {alike}": HOLDS,
        "Cart-pole: QRC-Huber's mean is above that of DQN, both with Adam": FAILS,
        "Cart-pole: QRC-Huber's mean is above that of DQN, both with RMSprop": HOLDS,
    }
    assert {verdict.outcome for verdict in units.verdicts} == {HOLDS}
    assert len(units.single()) == 2, "QRC is on Cliff World only here"
    assert "just as effective" in clip.sentence
    assert [verdict.outcome for verdict in clip.combined()] == [FAILS, HOLDS], "the clip is no worse"
    assert [(verdict.claim.split(":")[0], verdict.outcome) for verdict in clip.single()] == [
        *(("Acrobot", FAILS), ("Cart-pole", FAILS), ("Cliff World", HOLDS), ("Cliff World, one-hot", HOLDS)),
        ("Mountain Car", HOLDS),
        *((name, HOLDS) for name in ("Acrobot", "Cart-pole", "Cliff World", "Cliff World, one-hot", "Mountain Car")),
    ]
    # κ = 10 is above 1 by 250, which is more than a fifth of 1000, and κ = 100 is as good as 1.
    assert "robust to the choice of threshold parameter" in thresholds.sentence
    found = {verdict.claim: verdict.outcome for verdict in thresholds.single()}
    for domain in ("Cliff World", "Cliff World, one-hot"):
        assert found.pop(f"{domain}: the mean changes by at most 200 over κ") == FAILS
        assert found.pop(f"{domain}: κ = 1 is at most 200 below κ = 10") == FAILS
        assert found.pop(f"{domain}: κ = 1 is at most 200 below κ = 100") == HOLDS
    assert found == {}
    assert [verdict.outcome for verdict in thresholds.combined()] == [FAILS, FAILS]
    assert ours.sentence == ""
    outcomes = {verdict.claim.split(" on ")[1]: verdict.outcome for verdict in unchanged}
    assert outcomes == {
        **{"Acrobot": FAILS, "Cart-pole": FAILS, "Cliff World": HOLDS, "Cliff World, one-hot": HOLDS},
        **{"Mountain Car": HOLDS},
    }
    (table,) = analysis.tables
    shown = {(row["domain"], row["algorithm"], row["variant"]): row for row in table.rows}
    for algorithm in ("QRC-Huber", "QRC"):
        row = shown["Cliff World", algorithm, "one-hot"]
        assert row["mean"].estimate == shown["Cliff World, one-hot", algorithm, "default"]["mean"].estimate
        assert row["difference to the default"].estimate == pytest.approx(50.0)
        assert (row["verdict"], row["step size"]) == ("better", "2^-11")
    assert shown["Acrobot", "QRC-Huber", "hard clip"]["step size"] == "2^-10"
    assert LAPTOP.note in analysis.notes
    (unjudged,) = (note for note in analysis.notes if note.startswith("Not judged"))
    for words in ("in conclusions when using SGD", "'results using RMSProp yielded similar conclusions", "β"):
        assert words in unjudged


def test_sentences_without_runs_are_left_out():
    preset = replace(LAPTOP, domains=(CLIFF, "acrobot"), seeds=8, variants=("mean per action",), squared_on=())
    jitter = np.random.default_rng(0).normal(size=8)
    made_from = made_rows(
        robustness.EXPERIMENT.plan, preset, lambda run: {"final": jitter[run.spec["seed"]], "diverged_at": None}
    )
    (ours,) = by_sentence(robustness.EXPERIMENT.analyse(preset, made_from).verdicts)
    assert (ours.sentence, len(ours.verdicts)) == ("", 3)
