"""Ours: why Cliff World is hard, as maps of values and secondary estimates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.evaluation import bootstrap_interval, fails_more
from sb3_robust_be.experiments.cliff_maps import TRAIN, reaches_goal
from sb3_robust_be.experiments.control import control_spec, load_finals, lowest_for_failed
from sb3_robust_be.experiments.domains import DOMAINS, own_arguments, shared_arguments
from sb3_robust_be.experiments.experiment import Analysis, Experiment, Reading, Results
from sb3_robust_be.experiments.specs import Spec

DOMAIN = DOMAINS["cliff-world"]
ALGORITHMS = ("qrc", "qrc_huber", "qlc", "dqn")
MAPPED = ("qrc", "qrc_huber")


@dataclass(frozen=True)
class CliffPreset:
    """The size of the experiment."""

    seeds: int
    steps: int
    learning_rate: float = 2.0**-11
    observation: str = "one_hot"
    compile: bool = True


def _specs(preset: CliffPreset) -> dict[str, list[Spec]]:
    return {
        name: [
            control_spec(
                name,
                DOMAIN.env,
                preset.steps,
                seed,
                {**shared_arguments(DOMAIN), **own_arguments(DOMAIN, name), "learning_rate": preset.learning_rate},
                env_kwargs={"observation": preset.observation},
                compile=preset.compile,
                function=TRAIN,
            )
            for seed in range(preset.seeds)
        ]
        for name in ALGORITHMS
    }


def _stages(preset: CliffPreset, results: Results) -> Iterator[list[Spec]]:
    yield [spec for specs in _specs(preset).values() for spec in specs]


def _analyse(preset: CliffPreset, results: Results) -> Analysis:
    specs = _specs(preset)
    done = {n: [s for s, r in zip(own, results.of(own), strict=True) if r is not None] for n, own in specs.items()}
    q = {name: np.array([results.arrays(s, "tables")["q"] for s in own]) for name, own in done.items() if own}
    h = {name: np.array([results.arrays(s, "tables")["h"] for s in own]) for name, own in done.items() if own}
    solved = {name: np.array([reaches_goal(table) for table in own]) for name, own in q.items()}
    finals = {name: load_finals(results, own) for name, own in specs.items()}
    scores = lowest_for_failed(finals)
    rng = np.random.default_rng(0)
    median = {name: _median_seed(scores[name]) for name in q}
    maps = report.grid_map(
        "cliff-world",
        {name: q[name][median[name]] for name in MAPPED if name in q},
        {name: h[name][median[name]] for name in MAPPED if name in h},
        caption="The seed with the median return of each algorithm.",
    )
    rows = [
        {
            "algorithm": name,
            "greedy policy reaches the goal": f"{own.sum()} of {len(own)}",
            "return, last 25 % of steps": bootstrap_interval(scores[name], rng=rng),
            "largest |h|, median over seeds": float(np.median(np.abs(h[name]).max(axis=(1, 2)))),
            "share of |h| > 1": float((np.abs(h[name]) > 1).mean()),
        }
        for name, own in solved.items()
    ]
    analysis = Analysis(plots=[maps], tables=[report.Table("outcomes", rows)])
    if set(MAPPED) <= solved.keys():
        claim = "QRC's greedy policy misses the goal in more seeds than QRC-Huber's"
        analysis.verdicts.append(fails_more(claim, ~solved["qrc"], ~solved["qrc_huber"]))
    analysis.plots.append(
        report.distributions("distributions", {DOMAIN.name: finals}, measure="return, last 25 % of steps", rng=rng)
    )
    return analysis


def _median_seed(scores: np.ndarray) -> int:
    return int(np.argsort(scores)[len(scores) // 2])


EXPERIMENT = Experiment(
    name="cliff-maps",
    figure="ours",
    summary="Cliff World: values, greedy actions and h in every cell",
    claims=("The squared loss lets the cliff's large errors spoil the values elsewhere; the Huber loss does not.",),
    presets={
        "smoke": CliffPreset(seeds=2, steps=300, compile=False),
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
