"""Ours: every class with no argument but its policy and environment, as a first script has it; and with DQN's rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sb3_robust_be import registry, report
from sb3_robust_be.evaluation import Verdict, combined, greater, judged, lowest_for_failed, unresolved_if_lost
from sb3_robust_be.experiments.control.control_analysis import MEASURE, unfinished_notes
from sb3_robust_be.experiments.control.training import control_spec
from sb3_robust_be.experiments.control.yardstick import SCALE_OF, returns_by_environment
from sb3_robust_be.experiments.experiment import REPORTED, Analysis, Experiment, Reading, Results, Run
from sb3_robust_be.experiments.rows import Row, Rows
from sb3_robust_be.experiments.setting_text import setting_text

DQN = "dqn"
DQNS_RATE = {"learning_rate": 1e-4}
"""The default of SB3's DQN"""
FIRST_SEED = 50_000
"""No other experiment has these"""
SCALES = {"CartPole-v1": SCALE_OF["cart-pole"], "Acrobot-v1": SCALE_OF["acrobot"]}
"""The environments, and what a failed seed is there"""


class Bare(NamedTuple):
    """A class with hardly an argument."""

    label: str
    algorithm: str
    """Its name in commands"""
    arguments: Mapping[str, Any] = {}


CONTENDERS = (
    *(Bare(name, name) for name in (DQN, *registry.names(baselines=False))),
    *(Bare(f"{name}, DQN's learning rate", name, DQNS_RATE) for name in ("qrc_huber", "qlc")),
)
"""The last two differ from the class's defaults in the learning rate alone"""
FEW = tuple(one for one in CONTENDERS if one.algorithm in (DQN, "qlc"))


@dataclass(frozen=True)
class DefaultsPreset:
    """The size of the experiment."""

    seeds: int
    steps: int
    contenders: tuple[Bare, ...] = CONTENDERS
    """With DQN among them"""
    compile: bool = True


def _plan(preset: DefaultsPreset, rows: Rows) -> list[Run]:
    return [
        Run(
            {
                "stage": REPORTED,
                "domain": env,
                "contender": one.label,
                "setting": dict(one.arguments),
                "seed": seed,
                "steps": preset.steps,
            },
            control_spec(one.algorithm, env, preset.steps, seed, dict(one.arguments), compile=preset.compile),
        )
        for env in SCALES
        for one in preset.contenders
        for seed in range(FIRST_SEED, FIRST_SEED + preset.seeds)
    ]


def _measure(run: Run, results: Results) -> list[Row]:
    result = results.result(run.spec)
    assert result is not None
    return [{name: result[name] for name in ("final", "diverged_at", "unfinished")}]


def returns(preset: DefaultsPreset, rows: Rows) -> dict[str, dict[str, np.ndarray]]:
    """
    :param preset: The experiment's size.
    :param rows: Of its runs.
    :return: Final returns (seeds,) by environment and contender's label; NaN for runs without one.
    """
    found: dict[str, dict[str, list[float]]] = {env: {one.label: [] for one in preset.contenders} for env in SCALES}
    for row in rows:
        found[row["domain"]][row["contender"]].append(row.get("final", np.nan))
    return {env: {label: np.array(of, dtype=float) for label, of in own.items()} for env, own in found.items()}


def defaults_verdicts(preset: DefaultsPreset, finals: Mapping[str, Mapping[str, np.ndarray]]) -> list[Verdict]:
    """
    :param preset: The experiment's size.
    :param finals: By environment and label.
    :return: The combined claims, then the comparisons on each environment.
    """
    pairs = [(one.label, DQN) for one in preset.contenders if not one.arguments and one.label != DQN]
    # The class as it is has its name in commands for a label.
    pairs += [(one.algorithm, one.label) for one in preset.contenders if one.arguments]
    claims, single = [], []
    for label, other in pairs:
        parts = []
        for env, own in finals.items():
            ranked = lowest_for_failed(own)
            claim = f"{env}: the mean of {report.label(label)} is above that of {report.label(other)}"
            parts.append(unresolved_if_lost(greater(claim, ranked[label], ranked[other]), own[label], own[other]))
        claims.append(combined(f"{report.label(label)} is above {report.label(other)} on every environment", parts))
        single += parts
    return judged(claims, single)


def _analyse(preset: DefaultsPreset, rows: Rows) -> Analysis:
    finals = returns(preset, rows)
    settings = {
        (env, one.label): setting_text(dict(one.arguments)) or "no argument"
        for env in SCALES
        for one in preset.contenders
    }
    by_contender = {
        (env, one.label): [row for row in rows if (row["domain"], row["contender"]) == (env, one.label)]
        for env in SCALES
        for one in preset.contenders
    }
    return Analysis(
        verdicts=defaults_verdicts(preset, finals),
        plots=[report.distributions("distributions", finals, measure=MEASURE, rng=np.random.default_rng(0))],
        tables=[returns_by_environment("returns", "Every class with its defaults.", finals, settings, SCALES)],
        notes=[
            f"Runs: {preset.steps} steps, {preset.seeds} seeds. Runs without a return count as the lowest.",
            *unfinished_notes((env, label, own) for (env, label), own in by_contender.items()),
        ],
    )


EXPERIMENT = Experiment(
    name="defaults",
    figure="ours",
    summary="Defaults: every class with no argument but its policy and environment",
    claims=(
        "With no argument but policy and environment, a class of ours is above SB3's DQN on every environment.",
        "The learning rate that QRC-Huber and QLC have by default is better for them than DQN's.",
    ),
    presets={
        "smoke": DefaultsPreset(seeds=2, steps=400, contenders=FEW, compile=False),
        "laptop": DefaultsPreset(seeds=30, steps=50_000),
        "paper": DefaultsPreset(seeds=100, steps=50_000),
    },
    plan=_plan,
    measure=_measure,
    analyse=_analyse,
    readings=(
        Reading(
            "What are the defaults?",
            ("those of the paper's setting", "those of the classes"),
            "those of the classes",
            "it is what a first script has: two layers of 64 units, an update every fourth step on 32 transitions, ε "
            "from 1 to 0.05 over a tenth of the run, for DQN a target network refreshed every 10 000 steps, and the "
            "learning rate of each class.",
        ),
        Reading(
            "Which return is compared?",
            ("that of greedy evaluations", "that of the ε-greedy behaviour in the last quarter"),
            "that of the ε-greedy behaviour",
            "the measure of the other control experiments.",
        ),
    ),
)
