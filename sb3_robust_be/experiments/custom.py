"""A user's own control experiment from a YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sb3_robust_be.evaluation import greater
from sb3_robust_be.experiments.control import lowest_for_failed
from sb3_robust_be.experiments.control_grid import Contender, ControlPreset, finals, stages
from sb3_robust_be.experiments.declared.control_report import control_analysis
from sb3_robust_be.experiments.domains import Domain
from sb3_robust_be.experiments.experiment import SCALES, Analysis, Experiment, Results

KEYS = {
    "env": "gymnasium id (required)",
    "steps": "environment steps (required)",
    "algorithms": "by label: {algorithm: NAME, argument: value or list of values, ...} (required)",
    "seeds": "per algorithm, default 30",
    "selection_seeds": "that choose among lists, default 5",
    "net_arch": "hidden units, default [64, 64]",
    "buffer_size": "transitions, default 100000",
    "env_kwargs": "of gym.make",
    "arguments": "of every algorithm",
    "policy": "default MlpPolicy",
    "single_agents": "true: one by one, for images and Dict observations",
    "compile": "default true",
}


def from_yaml(path: Path) -> Experiment:
    """
    :param path: Of a file with the keys of :data:`KEYS`.
    :return: The experiment, with one preset that all scales share.
    :raises ValueError: For unknown or missing keys.
    """
    import yaml

    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise ValueError(f"{path} holds {type(data).__name__}; give a mapping with {', '.join(KEYS)}.")
    unknown, missing = sorted(data.keys() - KEYS.keys()), [k for k in ("env", "steps", "algorithms") if k not in data]
    if unknown or missing:
        wrong = f"has the unknown key {unknown[0]!r}" if unknown else f"lacks the key {missing[0]!r}"
        raise ValueError(f"{path} {wrong}. Keys: " + "; ".join(f"{k}: {v}" for k, v in KEYS.items()))
    preset = _preset(data)
    return Experiment(
        name=path.stem,
        figure="your own",
        summary=f"{', '.join(data['algorithms'])} on {data['env']}",
        claims=(),
        presets=dict.fromkeys(SCALES, preset),
        stages=stages,
        analyse=_analyse,
    )


def _preset(data: dict[str, Any]) -> ControlPreset:
    domain = Domain(
        data["env"],
        data["env"],
        tuple(data.get("net_arch", (64, 64))),
        int(data.get("buffer_size", 100_000)),
        int(data["steps"]),
        env_kwargs=data.get("env_kwargs", {}),
    )
    stacked = not data.get("single_agents", False)
    return ControlPreset(
        domains=("own",),
        contenders=tuple(_contender(label, dict(own)) for label, own in data["algorithms"].items()),
        seeds=int(data.get("seeds", 30)),
        selection_seeds=int(data.get("selection_seeds", 5)),
        compile=bool(data.get("compile", True)),
        stacked=stacked,
        own_domains={"own": domain},
        policy=data.get("policy", "MlpPolicy"),
        arguments=data.get("arguments", {}),
    )


def _contender(label: str, own: dict[str, Any]) -> Contender:
    algorithm = own.pop("algorithm", label)
    grid = {name: value for name, value in own.items() if isinstance(value, list)}
    return Contender(label, algorithm, grid, {name: value for name, value in own.items() if name not in grid})


def _analyse(preset: ControlPreset, results: Results) -> Analysis:
    analysis = control_analysis(preset, results)
    for domain, scores in finals(preset, results).items():
        runs = lowest_for_failed(scores)
        best = max(runs, key=lambda label: np.mean(runs[label]))
        analysis.verdicts += [
            greater(f"{domain}: {best}'s mean is above that of {other}", runs[best], runs[other])
            for other in runs
            if other != best
        ]
    return analysis
