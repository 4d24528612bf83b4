"""Ours: rl_zoo3's tuned DQN settings with nothing changed but the class.

A class brings its own defaults along for whatever the settings leave open. For QLC these are one-sided corrections and
layer normalisation, which DQN's network does not have; its learning rate is rl_zoo3's, as that of all others. At the
scales ``long`` and ``paper`` there are QLC with its own, falling learning rate and DQN with that one as well. QRC-Huber
limits h by the hard clip, its class's default.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from sb3_robust_be import registry, report
from sb3_robust_be.evaluation import (
    Interval,
    Verdict,
    brunner_munzel,
    combined,
    failed,
    fails_more,
    greater,
    judged,
    lowest_for_failed,
    mean_interval,
    unresolved_if_lost,
)
from sb3_robust_be.experiments.control.contenders import falling
from sb3_robust_be.experiments.control.control_analysis import unfinished_notes
from sb3_robust_be.experiments.control.evaluated_runs import (
    EVALUATED,
    evaluation_steps,
    final_returns,
    steps_to_final,
)
from sb3_robust_be.experiments.control.training import control_spec
from sb3_robust_be.experiments.control.tuned_domains import DOMAINS
from sb3_robust_be.experiments.control.zoo_values import ZOO_VERSION
from sb3_robust_be.experiments.experiment import REPORTED, Analysis, Experiment, Reading, Results, Run
from sb3_robust_be.experiments.rows import Row, Rows, rounded
from sb3_robust_be.registry import DQN_ONLY

BASELINE = "dqn"


class DropIn(NamedTuple):
    """A class that takes DQN's place."""

    label: str
    algorithm: str
    """Its name in commands"""
    arguments: Mapping[str, Any] = {}
    """In place of the zoo's settings or besides them, as JSON; ``policy_kwargs`` are added to the zoo's"""


CONTENDERS = tuple(DropIn(name, name) for name in (BASELINE, "qrc", "qrc_huber", "qlc"))
"""None has arguments of its own; what the settings leave open has the class's defaults"""
QLCS_RATE = {"learning_rate": falling(-9)}
"""The default of QLC"""
WITH_QLCS_RATE = (
    DropIn("qlc, its own learning rate", "qlc", QLCS_RATE),
    DropIn("dqn, QLC's learning rate", BASELINE, QLCS_RATE),
)
"""Without the zoo's learning rate, which was tuned for DQN; and whether that alone makes the difference"""


@dataclass(frozen=True)
class DropInPreset:
    """The size of the experiment."""

    seeds: int
    domains: tuple[str, ...] = tuple(DOMAINS)
    """Keys of :data:`DOMAINS`"""
    contenders: tuple[DropIn, ...] = CONTENDERS
    """With DQN among them"""
    steps: float = 1.0
    """Environment steps of a run, as a fraction of the zoo's"""
    evaluations: int = 25
    """Equal parts of a run, after each of which it is evaluated; and once before the first step"""
    episodes: int = 5
    """Of an evaluation"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """In place of the zoo's, to be quicker"""
    compile: bool = True
    note: str = ""

    def steps_of(self, env: str) -> int:
        """Environment steps of a run on a domain."""
        return max(1, round(self.steps * DOMAINS[env].steps))

    def points_of(self, env: str) -> list[int]:
        """After how many steps a run is evaluated."""
        return evaluation_steps(self.steps_of(env), self.evaluations)


def arguments_of(contender: DropIn, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a contender: the settings, without what is DQN's alone, and its own.

    :param contender: One of them.
    :param settings: Tuned for DQN.
    """
    kept = registry.own_settings(contender.algorithm, settings)
    policy_kwargs = {**kept.get("policy_kwargs", {}), **contender.arguments.get("policy_kwargs", {})}
    return {**kept, **contender.arguments, "policy_kwargs": policy_kwargs}


def _plan(preset: DropInPreset, rows: Rows) -> list[Run]:
    return [
        Run(
            {
                "stage": REPORTED,
                "domain": env,
                "contender": contender.label,
                "setting": dict(contender.arguments),
                "seed": seed,
                "steps": preset.steps_of(env),
            },
            control_spec(
                contender.algorithm,
                env,
                preset.steps_of(env),
                seed,
                arguments_of(contender, {**DOMAINS[env].settings, **preset.settings}),
                compile=preset.compile,
                function=EVALUATED,
            )
            | {"evaluations": preset.evaluations, "evaluation_episodes": preset.episodes},
        )
        for env in preset.domains
        for contender in preset.contenders
        for seed in range(preset.seeds)
    ]


def _measure(run: Run, results: Results) -> list[Row]:
    result = results.result(run.spec)
    assert result is not None
    row: Row = {name: result[name] for name in ("final", "auc", "diverged_at", "unfinished")}
    return [row | {"evaluations": rounded(results.arrays(run.spec, "evaluations")["returns"].mean(axis=1))}]


class Runs(NamedTuple):
    """What the rows of one domain say, by contender's label; the first axis is the seeds."""

    rows: dict[str, list[Row]]
    """Empty for a run without one"""
    evaluations: dict[str, np.ndarray]
    """Greedy returns, shape (seeds, points)"""
    finals: dict[str, np.ndarray]
    """Final returns; NaN for runs that diverged or crashed"""
    learned_at: dict[str, np.ndarray]
    """Of :func:`steps_to_final`, with the length of the run in place of NaN"""
    failures: dict[str, np.ndarray]
    """Whether a seed has failed"""


def read(preset: DropInPreset, rows: Rows) -> dict[str, Runs]:
    """
    :param preset: The experiment's size.
    :param rows: Of its runs.
    :return: What they say, by domain.
    """
    table = {(row["domain"], row["contender"], row["seed"]): row for row in rows}
    found = {}
    for env in preset.domains:
        points, labels = preset.points_of(env), [contender.label for contender in preset.contenders]
        own = {label: [table.get((env, label, seed), {}) for seed in range(preset.seeds)] for label in labels}
        nothing = np.full(len(points), np.nan)
        evaluations = {
            label: np.array([row.get("evaluations", nothing) for row in of], float) for label, of in own.items()
        }
        finals = {label: final_returns(values) for label, values in evaluations.items()}
        learned_at = {
            label: np.nan_to_num([steps_to_final(one, points) for one in values], nan=points[-1])
            for label, values in evaluations.items()
        }
        failures = {label: failed(values, below=DOMAINS[env].fails_below) for label, values in finals.items()}
        found[env] = Runs(own, evaluations, finals, learned_at, failures)
    return found


def _replacements(preset: DropInPreset) -> list[str]:
    return [contender.label for contender in preset.contenders if contender.label != BASELINE]


def _table(preset: DropInPreset, found: Mapping[str, Runs]) -> report.Table:
    rows = []
    for env, runs in found.items():
        ranked = lowest_for_failed(runs.finals)
        for label, values in ranked.items():
            nothing = bool(failed(runs.finals[label]).all())
            difference: Interval | None = None
            improvement: Interval | None = None
            if label != BASELINE and not nothing:
                difference = greater("", values, ranked[BASELINE]).interval
                improvement = brunner_munzel(values, ranked[BASELINE]).interval
            own = runs.rows[label]
            rows.append(
                {
                    "domain": env,
                    "algorithm": report.label(label),
                    "final": None if nothing else mean_interval(values, rng=np.random.default_rng(0)),
                    "worst seed": None if nothing else float(values.min()),
                    "failed seeds": f"{runs.failures[label].sum()} of {preset.seeds}",
                    "steps to 90 %": None
                    if nothing
                    else mean_interval(runs.learned_at[label], rng=np.random.default_rng(0)),
                    "difference to DQN": difference,
                    "probability of improvement": improvement,
                    "while exploring": _mean([row.get("final", math.nan) for row in own]),
                    "AUC": _mean([row.get("auc", math.nan) for row in own]),
                    "diverged": sum(row.get("diverged_at") is not None for row in own),
                    "crashed": sum("evaluations" not in row for row in own),
                }
            )
    caption = (
        "final: greedy return, mean of the last fifth of the evaluations; steps to 90 %: environment steps until an "
        "evaluation has gone 90 % of the way from the first one, before training, to the run's own final return. Means "
        "over seeds with their intervals; differences of means with Welch's; the probability that a seed's final "
        "return is above one of DQN's. while exploring and AUC: episode return over the last 25 % and over all steps "
        "of training, each step counting with the return of its episode, means over the seeds that have one. Cells of "
        "contenders without any final return are empty."
    )
    return report.Table("drop-in", rows, caption)


def _mean(values: Sequence[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return float(np.mean(finite)) if finite else None


def drop_in_verdicts(preset: DropInPreset, found: Mapping[str, Runs]) -> list[Verdict]:
    """Of each contender: whether it is level with DQN or above everywhere, and whether fewer of its seeds fail.

    :param preset: The experiment's size.
    :param found: By domain.
    :return: The combined claims, then the single comparisons: of failures over all domains, then of means.
    """
    everywhere, failures, single = [], [], []
    for label in _replacements(preset):
        name = report.label(label)
        level = []
        for env, runs in found.items():
            ranked, own = lowest_for_failed(runs.finals), (runs.finals[label], runs.finals[BASELINE])
            pair, tolerance = (ranked[label], ranked[BASELINE]), DOMAINS[env].tolerance
            claim = f"{env}: the mean of {name} is at most {tolerance:.3g} below DQN's"
            level.append(unresolved_if_lost(greater(claim, *pair, margin=-tolerance), *own))
            above = greater(f"{env}: the mean of {name} is above DQN's", *pair)
            single += [level[-1], unresolved_if_lost(above, *own)]
        everywhere.append(combined(f"{name} is level with DQN or above on every domain", level))
        ours, dqns = (np.concatenate([runs.failures[one] for runs in found.values()]) for one in (label, BASELINE))
        more = fails_more(f"Over all domains, DQN fails in more seeds than {name}", dqns, ours)
        failures.append(replace(more, seeds=(preset.seeds, preset.seeds)))
    return judged(everywhere, [*failures, *single])


def _notes(preset: DropInPreset, found: Mapping[str, Runs]) -> list[str]:
    sizes = [f"{env} {preset.steps_of(env)} steps" for env in preset.domains]
    limits = [f"{env} {DOMAINS[env].fails_below:g}" for env in preset.domains]
    return [
        f"Settings: rl_zoo3 {ZOO_VERSION}, hyperparams/dqn.yml; {', '.join(DQN_ONLY)} are DQN's alone. QRC-Huber has "
        "the default of its class, and hence the hard clip, as a changed import does.",
        f"Runs: {'; '.join(sizes)}; {preset.seeds} seeds, evaluated before the first step and after each of "
        f"{preset.evaluations} equal parts, {preset.episodes} episodes each.",
        f"A seed has failed if it diverged or crashed, or if its final return is below: {'; '.join(limits)}.",
        "Runs without a final return (diverged or crashed) count as the lowest of the domain in means and their tests; "
        "runs that end no higher than they began count with their whole length in the steps to 90 %.",
        "QR-DQN is left out: populations cannot train it, and single agents would take twenty times as long.",
        *unfinished_notes((env, label, own) for env, runs in found.items() for label, own in runs.rows.items()),
        *([preset.note] if preset.note else []),
    ]


def _analyse(preset: DropInPreset, rows: Rows) -> Analysis:
    found, rng = read(preset, rows), np.random.default_rng(0)
    curves = {env: runs.evaluations for env, runs in found.items()}
    steps = {env: np.array(preset.points_of(env)) for env in preset.domains}
    measure = f"greedy return, {preset.episodes} episodes"
    return Analysis(
        verdicts=drop_in_verdicts(preset, found),
        plots=[
            report.learning_curves("greedy-evaluations", curves, steps, measure=measure, rng=rng),
            report.distributions(
                "distributions",
                {env: runs.finals for env, runs in found.items()},
                measure="greedy return, last fifth of the evaluations",
                rng=rng,
            ),
        ],
        tables=[_table(preset, found)],
        notes=_notes(preset, found),
    )


EXPERIMENT = Experiment(
    name="drop-in",
    figure="ours",
    summary="Drop-in: rl_zoo3's tuned DQN settings with nothing changed but the class",
    claims=(
        "With settings that were tuned for DQN, a class of ours is level with it or above on every domain.",
        "With a class of ours in DQN's place fewer seeds fail.",
    ),
    presets={
        "smoke": DropInPreset(
            seeds=2,
            domains=("CartPole-v1", "MountainCar-v0"),
            steps=0.004,
            evaluations=4,
            episodes=1,
            settings={"learning_starts": 50, "train_freq": 16, "gradient_steps": 4, "policy_kwargs": {"net_arch": [8]}},
            compile=False,
        ),
        "laptop": DropInPreset(seeds=10, note="Ten seeds; Lunar Lander needs the extra box2d."),
        "long": DropInPreset(
            seeds=10,
            contenders=(*CONTENDERS, *WITH_QLCS_RATE),
            note="Ten seeds; Lunar Lander needs the extra box2d. QLC and DQN with QLC's learning rate were added after "
            "QLC's results on Mountain Car and those of the other classes there and on Acrobot had been seen.",
        ),
        "paper": DropInPreset(seeds=30, contenders=(*CONTENDERS, *WITH_QLCS_RATE)),
    },
    plan=_plan,
    measure=_measure,
    analyse=_analyse,
    readings=(
        Reading(
            "What is kept of DQN's settings?",
            ("everything", "everything but the target network and gradient clipping"),
            "everything but these",
            f"{', '.join(DQN_ONLY)} belong to DQN's target network and its loss, which the other classes do without; "
            "passed on, they would bring a target network back. Whoever replaces the import is told so by a warning.",
        ),
        Reading(
            "What does a class bring along?",
            ("its update alone, with DQN's network", "its defaults, wherever the settings leave something open"),
            "its defaults",
            "that is what a changed import does. Those of QLC are one-sided corrections and layer normalisation of the "
            "hidden layers, so that its verdicts are on both together; DQN, QRC and QRC-Huber have none. Its falling "
            "learning rate is not used: rl_zoo3 has a rate, which all classes get. The scales `long` and `paper` have "
            "QLC and DQN with it beside them.",
        ),
        Reading(
            "How long does a run take to learn?",
            (
                "until a fixed return, the same for all",
                "until 90 % of the way from its first evaluation to its own final return",
            ),
            "90 % of the way to its own final return",
            "the way is a difference of returns, so that it means the same where returns are negative, and a share of "
            "the final return would not. The first evaluation is made before the first step. A run that ends low gets "
            "there early, so the number is to be read beside the final return, and one evaluation of few episodes may "
            "get there by luck. A run that ends no higher than it began counts with its whole length.",
        ),
        Reading(
            "What is the final return?",
            ("the last evaluation", "the best one, as rl_zoo3 saves it", "the mean of the last fifth of them"),
            "the mean of the last fifth",
            "greedy policies flicker from one evaluation to the next, and the best of many is flattering; a user keeps "
            "what training ends with.",
        ),
        Reading(
            "When has a seed failed?",
            ("below gymnasium's reward_threshold", "below half of the way from the floor to that threshold"),
            "below half of the way",
            "DQN itself stays below the threshold on Lunar Lander in rl_zoo3's benchmark (154 ± 79; it asks 200), and "
            "half of the way separates those that have learned the task from those that have not. The floors are what "
            "policies have that learned nothing: the time limit on Acrobot (−500) and Mountain Car (−200), one action "
            "throughout on Cart-pole (9), roundly random actions on Lunar Lander (−200). The thresholds are 475, −100, "
            "−110 and 200; half of the way is 242, −300, −155 and 0.",
        ),
        Reading(
            "What is level with DQN?",
            ("no significant difference", "surely less than a tolerance below it"),
            "surely less than a tolerance below",
            "few seeds resolve no difference at all. The tolerance is a tenth of the way from the floor to the "
            "threshold, declared before any run: 46.6 on Cart-pole, 40 on Acrobot, 9 on Mountain Car, 40 on Lunar "
            "Lander.",
        ),
    ),
)
