"""Ours: why Cliff World is hard, as maps of values and secondary estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.envs.cliff_world import MOVES, N_STATES
from sb3_robust_be.evaluation import fails_more, greater, lowest_for_failed, mean_interval
from sb3_robust_be.experiments.cliff_world.learned_tables import TRAIN, reaches_goal
from sb3_robust_be.experiments.cliff_world.mechanism import CLIPS, SMOOTH_CLIP, UNCORRECTED, add_mechanism
from sb3_robust_be.experiments.control.contenders import QLC_01
from sb3_robust_be.experiments.control.control_analysis import unfinished_notes
from sb3_robust_be.experiments.control.domains import DOMAINS, own_arguments, shared_arguments
from sb3_robust_be.experiments.control.preset import merged
from sb3_robust_be.experiments.control.training import control_spec
from sb3_robust_be.experiments.experiment import REPORTED, Analysis, Experiment, Reading, Results, Run
from sb3_robust_be.experiments.rendering import Rendering, verdicts_of
from sb3_robust_be.experiments.rows import Row, Rows, rounded

DOMAIN = DOMAINS["cliff-world"]
CONTENDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "qrc": ("qrc", {}),
    "qrc_huber": ("qrc_huber", {}),
    SMOOTH_CLIP: ("qrc_huber", {"projection": "smooth_huber"}),
    "qlc": ("qlc", QLC_01),
    UNCORRECTED: ("qrc_huber", {"huber_threshold": 0.0}),
    "dqn": ("dqn", {}),
}
MAPPED = ("qrc", "qrc_huber")


@dataclass(frozen=True)
class CliffPreset:
    """The size of the experiment."""

    seeds: int
    steps: int
    learning_rate: float = 2.0**-11
    observation: str = "one_hot"
    trace_points: int = 40
    """After how many parts of a run corrections are measured"""
    compile: bool = True


def _plan(preset: CliffPreset, rows: Rows) -> list[Run]:
    setting = {"learning_rate": preset.learning_rate}
    return [
        Run(
            {
                "stage": REPORTED,
                "domain": f"cliff-world, {preset.observation}",
                "contender": name,
                "setting": setting,
                "seed": seed,
                "steps": preset.steps,
            },
            control_spec(
                algorithm,
                DOMAIN.env,
                preset.steps,
                seed,
                merged(shared_arguments(DOMAIN), own_arguments(DOMAIN, algorithm), further, setting),
                env_kwargs={"observation": preset.observation},
                compile=preset.compile,
                function=TRAIN,
            )
            | {"trace": preset.trace_points},
        )
        for name, (algorithm, further) in CONTENDERS.items()
        for seed in range(preset.seeds)
    ]


_TRACE = "trace, "


def _measure(run: Run, results: Results) -> list[Row]:
    result = results.result(run.spec)
    assert result is not None
    row: Row = {name: result[name] for name in ("final", "diverged_at", "unfinished") if name in result}
    if result["diverged_at"] is None:
        learned, trace = results.arrays(run.spec, "tables"), results.arrays(run.spec, "trace")
        row |= {"reaches_goal": reaches_goal(learned["q"]), "q": rounded(learned["q"]), "h": rounded(learned["h"])}
        row |= {_TRACE + name: rounded(trace[name]) for name in trace}
    return [row]


def _by_seed(preset: CliffPreset, rows: Rows) -> dict[str, list[Row]]:
    """Rows by contender, empty for runs without one."""
    found = {(row["contender"], row["seed"]): row for row in rows}
    return {name: [found.get((name, seed), {}) for seed in range(preset.seeds)] for name in CONTENDERS}


def _analyse(preset: CliffPreset, rows: Rows) -> Analysis:
    by_name = _by_seed(preset, rows)
    finals = {name: np.array([row.get("final", np.nan) for row in own], float) for name, own in by_name.items()}
    learned = {name: {i: row for i, row in enumerate(own) if "q" in row} for name, own in by_name.items()}
    solved = {name: np.array([row.get("reaches_goal", False) for row in own]) for name, own in by_name.items()}
    scores = lowest_for_failed(finals)
    rng = np.random.default_rng(0)
    outcomes = [
        {
            "algorithm": report.label(name),
            "greedy policy reaches the goal": f"{solved[name].sum()} of {preset.seeds}",
            "return, last 25 % of steps": mean_interval(scores[name], rng=np.random.default_rng(0)),
            **_sizes([_of_cells(row["h"]) for row in own.values()]),
        }
        for name, own in learned.items()
    ]
    caption = "A seed that failed or diverged does not reach the goal; its return counts as the lowest, its h not."
    analysis = Analysis(
        tables=[report.Table("outcomes", outcomes, caption)],
        notes=unfinished_notes((DOMAIN.name, name, own) for name, own in by_name.items()),
    )
    mapped = {name: learned[name][_median_seed(scores[name], list(learned[name]))] for name in MAPPED if learned[name]}
    if mapped:
        q, h = ({name: _of_cells(row[part]) for name, row in mapped.items()} for part in ("q", "h"))
        caption = (
            "Cliff World after training: above, in each cell the largest action value and the action that has it; "
            "below, in the direction of each action, h, the estimate of its TD error. Of each algorithm the seed with "
            "the median return, of those that neither failed nor diverged. All rewards are negative, so that no value "
            "should be above 0."
        )
        analysis.plots.append(report.grid_map("cliff-world", q, h, caption=caption))
    traces = {name: [_trace(row) for row in own.values()] for name, own in learned.items()}
    of_mechanism = add_mechanism(analysis, traces, scores, solved, rng)
    analysis.notes.append("QLC is that of 0.1: a two-sided limit, no layer normalisation, a constant step size.")
    analysis.notes.append(
        "The paper calls Cliff World 'designed to show differences in fixed-points, rather than differences during "
        "learning'. That is not judged here: the optimal values, which a network of one-hot observations can "
        "represent, leave no TD error and are a fixed point of all five algorithms, so that what differs on this "
        "page differs during learning."
    )
    analysis.verdicts = verdicts_of([_suboptimal_order(solved), *of_mechanism, _suffers(scores)])
    analysis.plots.append(
        report.distributions("distributions", {DOMAIN.name: finals}, measure="return, last 25 % of steps", rng=rng)
    )
    return analysis


def _suboptimal_order(solved: Mapping[str, np.ndarray]) -> Rendering:
    claim = "QRC's greedy policy misses the goal in more seeds than that of {}"
    return Rendering(
        "Squared errors do just the opposite: by squaring large errors, they expend their limited representation "
        "capacity focusing on those states. As a result, the representation may suffer for other states and actions "
        "providing a suboptimal ordering over actions.",
        [],
        [fails_more(claim.format(report.label(name)), ~solved["qrc"], ~solved[name]) for name in CLIPS],
    )


def _suffers(scores: Mapping[str, np.ndarray]) -> Rendering:
    return Rendering(
        "QRC suffers from its squared loss in the adversarially designed CliffWorld environment.",
        [],
        [greater(f"The return of {report.label(name)} is above QRC's", scores[name], scores["qrc"]) for name in CLIPS],
    )


def _of_cells(values: np.ndarray) -> np.ndarray:
    """A row's list as a table, shape (cells, actions)."""
    return np.asarray(values).reshape(N_STATES, len(MOVES))


def _trace(row: Row) -> dict[str, np.ndarray]:
    """A row's lists by name: one number per point, or per point and group of transitions."""
    points = len(row[_TRACE + "step"])
    lists = {name.removeprefix(_TRACE): np.asarray(x) for name, x in row.items() if name.startswith(_TRACE)}
    return {name: x if x.size == points else x.reshape(points, -1) for name, x in lists.items()}


def _sizes(h: Sequence[np.ndarray]) -> dict[str, float | None]:
    """Of the secondary estimates of all seeds, each of shape (20, 4)."""
    every = np.abs(h)
    return {
        "largest |h|, median over seeds": float(np.median(every.max(axis=(1, 2)))) if len(h) else None,
        "share of |h| > 1": float((every > 1).mean()) if len(h) else None,
    }


def _median_seed(scores: np.ndarray, seeds: Sequence[int]) -> int:
    """Of these seeds; the upper one of two."""
    return sorted(seeds, key=lambda seed: scores[seed])[len(seeds) // 2]


EXPERIMENT = Experiment(
    name="cliff-maps",
    figure="ours",
    summary="Cliff World: values, greedy actions and h in every cell",
    claims=(
        "The squared loss lets the cliff's large errors spoil the order of actions elsewhere, and skew updates.",
        "The projection onto the clipped functions deemphasizes large errors: QRC-Huber's correction is clipped away "
        "at falls, and in force at moves against the border.",
        "QRC suffers from its squared loss on Cliff World.",
        "Without the correction QRC-Huber is better on Cliff World, and still not as good as DQN (ours).",
    ),
    presets={
        "smoke": CliffPreset(seeds=2, steps=300, trace_points=8, compile=False),
        "laptop": CliffPreset(seeds=30, steps=30_000),
        "paper": CliffPreset(seeds=100, steps=50_000),
    },
    plan=_plan,
    measure=_measure,
    analyse=_analyse,
    readings=(
        Reading(
            "How is h limited?",
            ("by τ tanh(h/τ), a twice differentiable estimate of the clip", "clipped to [−τ, τ]"),
            "each, side by side",
            "the hard clip is the class's default; what it does to h is read off more easily. Beyond ±κ the smooth one "
            "lets through less than κ as well, and more than 0.76 of it.",
        ),
        Reading(
            "How does Cliff World look to the agent?",
            ("coordinates", "one-hot"),
            "one-hot",
            "generalisation over coordinates would add errors that are not the loss's.",
        ),
    ),
)
