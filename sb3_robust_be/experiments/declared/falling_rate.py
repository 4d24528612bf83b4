"""Ours: QLC's falling learning rate where training goes on, is stopped early, or lasts long."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.evaluation import Verdict, combined, judged
from sb3_robust_be.experiments.control.contenders import QLC, Rate, falling
from sb3_robust_be.experiments.control.control_analysis import MEASURE, size_notes, unfinished_notes
from sb3_robust_be.experiments.control.domains import CHEAP_DOMAINS, DOMAINS
from sb3_robust_be.experiments.control.preset import Contender, ControlPreset, measure, plan, read
from sb3_robust_be.experiments.control.yardstick import LEVEL, SCALE_OF, not_below, returns_by_environment
from sb3_robust_be.experiments.experiment import Analysis, Experiment, Reading, Run
from sb3_robust_be.experiments.rows import Row, Rows
from sb3_robust_be.experiments.setting_text import setting_text

FALLING, CONSTANT_RATE = falling(-9), 2.0**-10
"""QLC's default, and the middle one of the constant rates of the other experiments"""
LONGER = 4
"""How many times as long the long runs are"""
FIRST_SEED = 40_000
"""No other experiment has these"""

PLANNED, TWICE, OFTEN, CONSTANT = "one call", "two calls", "eight calls", "constant rate"
LONG, STOPPED = "four times as long", "stopped after a quarter"
"""The long runs, and what these had after as many steps as the others"""
CALLS = {PLANNED: 1, TWICE: 2, OFTEN: 8}
"""Of ``learn``: the first, then with ``reset_num_timesteps=False``"""
MEANINGS = {
    PLANNED: "of learn, for all steps",
    TWICE: "for half of the steps, then for the other half with reset_num_timesteps=False",
    OFTEN: "the same with eight parts",
    CONSTANT: "one call with a constant learning rate of 2^-10",
    LONG: "one call for four times as many steps",
    STOPPED: "the run that is four times as long, after as many steps as the others have",
}


def _contender(label: str, rate: Rate = FALLING, calls: int = 1) -> Contender:
    return Contender(label, "qlc", {"learning_rate": (rate,)}, QLC, learn_calls=calls)


@dataclass(frozen=True)
class FallingRatePreset:
    """The size of the experiment."""

    domains: tuple[str, ...]
    seeds: int
    steps: float
    """Environment steps of all runs but the long ones, as a fraction of the paper's"""
    compile: bool = True
    note: str = ""

    def parts(self) -> tuple[ControlPreset, ControlPreset]:
        """The runs of the ordinary length, and those that are longer."""
        ordinary = (*(_contender(label, calls=n) for label, n in CALLS.items()), _contender(CONSTANT, CONSTANT_RATE))
        return self._part(ordinary, self.steps), self._part((_contender(LONG),), LONGER * self.steps)

    def _part(self, contenders: tuple[Contender, ...], steps: float) -> ControlPreset:
        return ControlPreset(
            self.domains,
            contenders,
            self.seeds,
            selection_seeds=0,
            steps=steps,
            compile=self.compile,
            first_seed=FIRST_SEED,
        )


PRESETS = {
    "smoke": FallingRatePreset(("cart-pole", "cliff-world"), seeds=2, steps=0.003, compile=False),
    "laptop": FallingRatePreset(
        CHEAP_DOMAINS, seeds=20, steps=0.4, note="40 000 steps, Cliff World 20 000: 0.4 of the paper's."
    ),
    "paper": FallingRatePreset(CHEAP_DOMAINS, seeds=100, steps=1.0),
}


def _plan(preset: FallingRatePreset, rows: Rows) -> list[Run]:
    return [run for part in preset.parts() for run in plan(part, rows)]


def stopped_return(row: Row) -> float:
    """The mean return that a long run had over the last quarter before a stop after as many steps as the others have.

    :param row: Of a run that is :data:`LONGER` times as long.
    :return: NaN if it had diverged by then, or failed.
    """
    diverged_at, curve = row.get("diverged_at"), row.get("curve")
    if curve is None or (diverged_at is not None and diverged_at <= row["steps"] / LONGER):
        return math.nan
    end = max(1, len(curve) // LONGER)
    return float(np.mean(curve[end - max(1, end // 4) : end]))


def falling_rate_verdicts(finals: Mapping[str, Mapping[str, np.ndarray]]) -> list[Verdict]:
    """
    :param finals: Final returns (runs,) by environment's name and label; NaN for runs without one.
    :return: The combined claims, then the comparisons on each environment.
    """
    claims, single = [], []
    for claim, labels, other in (
        (
            "Training that goes on by further calls of learn ends level with one call",
            (TWICE, OFTEN),
            PLANNED,
        ),
        ("A run that is stopped after a quarter is level with one that was planned so long", (STOPPED,), PLANNED),
        ("A run that is stopped after a quarter is level with one at a constant rate", (STOPPED,), CONSTANT),
        ("A run that is four times as long ends level with the shorter one, or above", (LONG,), PLANNED),
    ):
        parts = [
            part
            for name, own in finals.items()
            for label in labels
            for part in not_below(name, label, [other], own, _SCALES[name])
        ]
        claims.append(combined(f"{claim}, on every environment", parts))
        single += parts
    return judged(claims, single)


_SCALES = {DOMAINS[key].name: SCALE_OF[key] for key in CHEAP_DOMAINS}
"""By name of a domain"""


def _analyse(preset: FallingRatePreset, rows: Rows) -> Analysis:
    ordinary, longer = (read(part, rows) for part in preset.parts())
    finals = {name: {**own, **longer.finals[name]} for name, own in ordinary.finals.items()}
    for (key, _), own in longer.reported.items():
        finals[DOMAINS[key].name][STOPPED] = np.array([stopped_return(row) for row in own])
    settings = {
        (part.preset.domain(key).name, label): setting_text(setting)
        for part in (ordinary, longer)
        for (key, label), setting in part.settings.items()
    }
    settings |= {(name, STOPPED): settings[name, LONG] for name in finals}
    words = "; ".join(f"{label}: {meaning}" for label, meaning in MEANINGS.items())
    return Analysis(
        verdicts=falling_rate_verdicts(finals),
        plots=[report.distributions("distributions", finals, measure=MEASURE, rng=np.random.default_rng(0))],
        tables=[returns_by_environment("returns", f"QLC; {words}.", finals, settings, _SCALES)],
        notes=[
            f"Level: no more than {LEVEL:g} of an environment's scale below, as in `one-setting`.",
            *(note for part in (ordinary, longer) for note in size_notes(part.preset)),
            *unfinished_notes(run for part in (ordinary, longer) for run in part.named()),
            *([preset.note] if preset.note else []),
        ],
    )


EXPERIMENT = Experiment(
    name="falling-rate",
    figure="ours",
    summary="QLC's falling learning rate: training that goes on, is stopped early, or lasts long",
    claims=(
        "Training that goes on by further calls of learn ends level with one call.",
        "A run that is stopped early is level with one that was planned so long, and with one at a constant rate.",
        "A run that is four times as long ends level with the shorter one, or above.",
    ),
    presets=PRESETS,
    plan=_plan,
    measure=measure,
    analyse=_analyse,
    readings=(
        Reading(
            "Which rates does training have that goes on?",
            ("it falls anew from the first one", "those of the rest of a run as long as both together"),
            "those of the rest of a run as long as both together",
            "it is what SB3 does with `reset_num_timesteps=False`: progress is counted over all steps so far and to "
            "come, so that the rate jumps up where training goes on.",
        ),
        Reading(
            "What had a run that was stopped early?",
            ("its last quarter before the stop", "greedy evaluations"),
            "its last quarter before the stop",
            "the measure of the other experiments; it is taken from the hundred points of the long run's learning "
            "curve, of which six are the last quarter before the stop.",
        ),
    ),
)
