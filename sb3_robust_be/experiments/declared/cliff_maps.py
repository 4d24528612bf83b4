"""Ours: why Cliff World is hard, as maps of values and secondary estimates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.evaluation import bootstrap_interval, fails_more
from sb3_robust_be.experiments.cliff_maps import TRAIN, reaches_goal
from sb3_robust_be.experiments.control import control_spec, load_finals, lowest_for_failed
from sb3_robust_be.experiments.declared.cliff_mechanism import UNCORRECTED, add_mechanism
from sb3_robust_be.experiments.declared.control_report import unfinished_notes
from sb3_robust_be.experiments.domains import DOMAINS, own_arguments, shared_arguments
from sb3_robust_be.experiments.experiment import Analysis, Experiment, Reading, Results
from sb3_robust_be.experiments.specs import Spec

DOMAIN = DOMAINS["cliff-world"]
CONTENDERS: dict[str, tuple[str, dict[str, float]]] = {
    "qrc": ("qrc", {}),
    "qrc_huber": ("qrc_huber", {}),
    "qlc": ("qlc", {}),
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


def _specs(preset: CliffPreset) -> dict[str, list[Spec]]:
    return {
        name: [
            control_spec(
                algorithm,
                DOMAIN.env,
                preset.steps,
                seed,
                {
                    **shared_arguments(DOMAIN),
                    **own_arguments(DOMAIN, algorithm),
                    **further,
                    "learning_rate": preset.learning_rate,
                },
                env_kwargs={"observation": preset.observation},
                compile=preset.compile,
                function=TRAIN,
            )
            | {"trace": preset.trace_points}
            for seed in range(preset.seeds)
        ]
        for name, (algorithm, further) in CONTENDERS.items()
    }


def _stages(preset: CliffPreset, results: Results) -> Iterator[list[Spec]]:
    yield [spec for specs in _specs(preset).values() for spec in specs]


def _analyse(preset: CliffPreset, results: Results) -> Analysis:
    specs = _specs(preset)
    finals = {name: load_finals(results, own) for name, own in specs.items()}
    tables = {name: _tables(results, own) for name, own in specs.items()}
    solved = {name: _solved(of, preset.seeds) for name, of in tables.items()}
    scores = lowest_for_failed(finals)
    rng = np.random.default_rng(0)
    rows = [
        {
            "algorithm": name,
            "greedy policy reaches the goal": f"{solved[name].sum()} of {preset.seeds}",
            "return, last 25 % of steps": bootstrap_interval(scores[name], rng=rng),
            **_sizes([of["h"] for of in own.values()]),
        }
        for name, own in tables.items()
    ]
    caption = "A seed that failed or diverged does not reach the goal; its return counts as the lowest, its h not."
    claim = "QRC's greedy policy misses the goal in more seeds than QRC-Huber's"
    analysis = Analysis(
        tables=[report.Table("outcomes", rows, caption)],
        verdicts=[fails_more(claim, ~solved["qrc"], ~solved["qrc_huber"])],
        notes=unfinished_notes(results, [(DOMAIN.name, name, own) for name, own in specs.items()]),
    )
    mapped = {name: tables[name][_median_seed(scores[name], list(tables[name]))] for name in MAPPED if tables[name]}
    if mapped:
        q, h = ({name: of[part] for name, of in mapped.items()} for part in ("q", "h"))
        caption = "The seed with the median return of each algorithm, of those that neither failed nor diverged."
        analysis.plots.append(report.grid_map("cliff-world", q, h, caption=caption))
    traces = {name: [results.arrays(specs[name][i], "trace") for i in own] for name, own in tables.items()}
    add_mechanism(analysis, traces, scores, solved, rng)
    analysis.plots.append(
        report.distributions("distributions", {DOMAIN.name: finals}, measure="return, last 25 % of steps", rng=rng)
    )
    return analysis


def _tables(results: Results, specs: Sequence[Spec]) -> dict[int, dict[str, np.ndarray]]:
    """By seed, of the runs that neither failed nor diverged."""
    done = enumerate(results.of(specs))
    return {i: results.arrays(specs[i], "tables") for i, one in done if one is not None and one["diverged_at"] is None}


def _solved(tables: Mapping[int, Mapping[str, np.ndarray]], seeds: int) -> np.ndarray:
    """Whether each seed's greedy policy reaches the goal; one without tables does not."""
    return np.array([i in tables and reaches_goal(tables[i]["q"]) for i in range(seeds)])


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
        "The squared loss lets the cliff's large errors spoil the values elsewhere; the Huber loss does not.",
        "QRC-Huber's correction is clipped away at falls, and in force at moves against the border (ours).",
        "Without the correction QRC-Huber is better on Cliff World, and still not as good as DQN (ours).",
    ),
    presets={
        "smoke": CliffPreset(seeds=2, steps=300, trace_points=8, compile=False),
        "laptop": CliffPreset(seeds=30, steps=30_000),
        "paper": CliffPreset(seeds=100, steps=50_000),
    },
    stages=_stages,
    analyse=_analyse,
    readings=(
        Reading(
            "How does Cliff World look to the agent?",
            ("coordinates", "one-hot"),
            "one-hot",
            "generalisation over coordinates would add errors that are not the loss's.",
        ),
    ),
)
