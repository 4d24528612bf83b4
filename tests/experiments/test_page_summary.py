"""The five lines at the top of a page, from rows and verdicts."""

from dataclasses import replace

import numpy as np
from made_rows import made_rows

from sb3_robust_be.evaluation import computed, greater
from sb3_robust_be.experiments.control.contenders import CLIP
from sb3_robust_be.experiments.declared import load_declared, names
from sb3_robust_be.experiments.page_summary import page_summary
from sb3_robust_be.experiments.reporting import make_report


def row(domain, contender, seed, stage="reported", **more):
    return {"stage": stage, "domain": domain, "contender": contender, "seed": seed, "steps": 20_000, **more}


def test_what_was_compared_how_long_and_what_was_found():
    high, low = np.arange(10.0) + 20.0, np.arange(10.0)
    rows = [row("acrobot", name, seed) for name in ("dqn", "qrc_huber") for seed in range(3)]
    rows += [row("lunar-lander", "dqn", 0, steps=40_000, diverged_at=7), row("lunar-lander", "dqn", 1, failed="no")]
    rows += [row("acrobot", "dqn", 10_000 + i, "selection", setting={"rate": i}) for i in range(4)]
    verdicts = [
        replace(greater("DQN is above", low, high), sentence="It is."),
        replace(greater("QRC is above", high, low), sentence="It is, too."),
        greater("ours", low, high),
    ]
    compared, length, claims, surprises, lost = page_summary(rows, verdicts)
    assert compared == "Compared: DQN; QRC-Huber, on acrobot; lunar-lander."
    assert length == (
        "Length: 20\u2009000 to 40\u2009000 steps a run, 2 to 3 seeds of each contender; settings were chosen on 4 "
        "other seeds."
    )
    assert claims == (
        "Claims: of 2 sentences of the paper 1 holds, 1 does not hold; of 3 verdicts: 1 holds, 2 do not hold."
    )
    assert surprises.startswith("Largest surprises, claims that do not hold: DQN is above (difference of means −20.")
    assert "ours" not in surprises, "the paper's claims come first"
    assert lost == "Lost: of 12 runs 1 crashed and 1 diverged."


def test_seeds_are_counted_by_setting():
    rows = [row("acrobot", "dqn", 100 * i + seed, setting={"rate": i}) for i in range(2) for seed in range(3)]
    assert page_summary(rows, [])[1] == "Length: 20\u2009000 steps a run, 3 seeds of each contender."


def test_exact_results_have_no_length_and_nothing_may_be_refuted():
    rows = [{"domain": "Baird", "contender": f"c{i}"} for i in range(12)]
    compared, length, claims, surprises, lost = page_summary(rows, [computed("1 < 2", 1.0, 2.0)])
    assert lost == "Lost: 0 of 12 computations failed."
    assert compared.endswith("c8 and 3 others, on Baird.")
    assert length == "Length: everything is computed exactly, without runs and seeds."
    assert claims == "Claims: 1 verdict: 1 holds."
    assert surprises == "Surprises: none; no claim is refuted."
    assert page_summary([], [])[2] == "Claims: none is judged."


def test_exact_minima_have_draws_in_place_of_runs():
    """They have a seed and whether the minimum is unique; a draw that failed has only its seed."""
    rows = [
        {"domain": "Outlier", "contender": "mspbe", "seed": 0, "unique": True},
        {"domain": "Outlier", "contender": "mspbe", "seed": 1, "failed": "no"},
        {"domain": "HardAlias-2", "contender": "mspbe", "seed": 0, "unique": False},
    ]
    said = "Length: everything is computed exactly, for 1 to 2 draws of the random features (seeds)."
    assert page_summary(rows, [])[1] == said
    rows.append({"domain": "Outlier", "contender": "tdc", "seed": 0, "steps": 9})
    assert page_summary(rows, [])[1] == "Length: 9 steps a run, 1 to 2 seeds of each contender."


def test_ours_are_named_where_none_of_the_papers_claims_is_refuted():
    high, low = np.arange(10.0) + 20.0, np.arange(10.0)
    of_paper, ours = replace(greater("paper's", high, low), sentence="It is."), greater("ours", low, high)
    _, _, claims, surprises, _ = page_summary([], [of_paper, ours])
    assert claims == "Claims: of 1 sentence of the paper 1 holds; of 2 verdicts: 1 holds, 1 does not hold."
    said = "Largest surprises, of ours, no claim of the paper being refuted: ours (difference of means −20.0"
    assert surprises.startswith(said)
    assert page_summary([], [of_paper])[3] == "Surprises: none; no claim is refuted."
    assert page_summary([], [ours])[3].startswith("Largest surprises, claims that do not hold: ours (")


def test_columns_of_a_users_own():
    """Names need not be text, nor be there."""
    rows = [{"contender": 3, "domain": {"size": i}, "seed": "a", "steps": "few"} for i in range(2)]
    compared, length, *_ = page_summary(rows, [])
    assert compared == "Compared: 3, on {'size': 0}; {'size': 1}."
    assert length == "Length: 1 seeds of each contender."
    assert page_summary([{"n": 1}], [])[0] == "Compared: runs without names."


def test_only_the_readings_of_the_scale_that_ran_are_shown():
    """On the laptop Cliff World ran for 20 000 steps; the first reading of the clip is that of all scales."""
    control = load_declared("control")
    measured = {"final": 0.0, "auc": 0.0, "curve": np.zeros(100)}
    rows = made_rows(control.plan, control.preset("laptop"), lambda run: {**measured, "steps": run.spec["steps"]})
    made = make_report(control, "laptop", rows, "")
    text = " ".join([*made.notes, *made.readings])
    assert "Cliff World 20000 steps" in text
    assert "50 000" not in text
    assert CLIP.question in text
    assert len(made.summary) == 5
    readings = {reading.question: reading.scales for reading in control.readings}
    assert readings["How long are the runs on Cliff World?"] == ("long", "paper")


def test_the_scales_of_readings_are_sizes_of_their_experiment():
    limited = 0
    for name in names():
        experiment = load_declared(name)
        for reading in experiment.readings:
            limited += bool(reading.scales)
            assert set(reading.scales) <= experiment.presets.keys()
    assert limited > 5
