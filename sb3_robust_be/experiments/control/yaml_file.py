"""A user's own control experiment from a YAML file."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

from sb3_robust_be import registry
from sb3_robust_be.evaluation import Verdict, greater, judged, lowest_for_failed
from sb3_robust_be.experiments.control.control_analysis import control_analysis
from sb3_robust_be.experiments.control.domains import Domain
from sb3_robust_be.experiments.control.preset import Contender, ControlPreset, measure, plan, read, settings_of
from sb3_robust_be.experiments.control.training import make_agent
from sb3_robust_be.experiments.experiment import REPORTED, SCALES, Analysis, Experiment
from sb3_robust_be.experiments.rows import Rows
from sb3_robust_be.messages import first_line

KEYS = {
    "env": "gymnasium id (required)",
    "steps": "environment steps (required)",
    "algorithms": "by label: {algorithm: NAME, argument: value or list of values, ...} (required)",
    "seeds": "per algorithm, default 30",
    "selection_seeds": "that choose among lists, default 5",
    "net_arch": "list of hidden units, default [64, 64]",
    "buffer_size": "transitions, default 100000",
    "env_kwargs": "of gym.make",
    "gym_packages": "list of modules that register the environment",
    "arguments": "of every algorithm; what is not given is the paper's (ε = 0.1, an update per step from the 33rd on, "
    "DQN with a target refreshed every 64 steps and no gradient clipping)",
    "policy": "default MlpPolicy",
    "single_agents": "true: one by one, for images and Dict observations",
    "compile": "default true",
}
_KINDS: dict[str, type[Any]] = {
    **dict.fromkeys(("steps", "seeds", "selection_seeds", "buffer_size"), int),
    **dict.fromkeys(("env", "policy"), str),
    **dict.fromkeys(("algorithms", "env_kwargs", "arguments"), dict),
    **dict.fromkeys(("single_agents", "compile"), bool),
    **dict.fromkeys(("net_arch", "gym_packages"), list),
}


def from_yaml(path: Path) -> Experiment:
    """
    :param path: Of a file with the keys of :data:`KEYS`, whose stem is the experiment's name.
    :return: The experiment, with one preset that all scales share.
    :raises ValueError: For unknown or missing keys, or values of another kind.
    """
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", path.stem) is None:
        raise ValueError(f"{path.name} names files; rename it with letters, digits, '.', '_' and '-'.")
    _check(path, data)
    preset = _preset(data)

    return Experiment(
        # Not to share a folder with a declared one of the same name.
        name=f"own-{path.stem}",
        figure="your own",
        summary=f"{', '.join(data['algorithms'])} on {data['env']}",
        claims=(),
        presets=dict.fromkeys(SCALES, preset),
        plan=plan,
        measure=measure,
        analyse=analyse,
        partial=True,
        check=_check_agents,
    )


def _check(path: Path, data: Any) -> None:
    keys = "Keys: " + "; ".join(f"{k}: {v}" for k, v in KEYS.items())
    if not isinstance(data, dict):
        raise ValueError(f"{path} holds {type(data).__name__}; give a mapping. {keys}")
    unknown, missing = sorted(data.keys() - KEYS.keys()), [k for k in ("env", "steps", "algorithms") if k not in data]
    if unknown or missing:
        raise ValueError(
            f"{path} {f'has the unknown key {unknown[0]!r}' if unknown else f'lacks the key {missing[0]!r}'}. {keys}"
        )
    for key, value in data.items():
        kind = _KINDS[key]
        if not isinstance(value, kind) or (isinstance(value, int) and kind is int and (value is True or value < 1)):
            wanted = "a positive whole number" if kind is int else f"a {kind.__name__}"
            raise ValueError(f"{path}: {key} is {value!r} and must be {wanted}: {KEYS[key]}.")
    for label, own in data["algorithms"].items():
        if not isinstance(own, dict):
            raise ValueError(f"{path}: algorithms.{label} is {own!r}; give arguments, as in {{learning_rate: 0.001}}.")
    if not data["algorithms"]:
        raise ValueError(f"{path}: algorithms is empty; give at least one.")


def _preset(data: dict[str, Any]) -> ControlPreset:
    domain = Domain(
        data["env"],
        data["env"],
        tuple(data.get("net_arch", (64, 64))),
        data.get("buffer_size", 100_000),
        data["steps"],
        env_kwargs=data.get("env_kwargs", {}),
        gym_packages=tuple(data.get("gym_packages", ())),
        policy=data.get("policy", "MlpPolicy"),
    )
    return ControlPreset(
        domains=("own",),
        contenders=tuple(_contender(label, dict(own)) for label, own in data["algorithms"].items()),
        seeds=data.get("seeds", 30),
        selection_seeds=data.get("selection_seeds", 5),
        compile=data.get("compile", True),
        stacked=not data.get("single_agents", False),
        own_domains={"own": domain},
        arguments={name: _number(value) for name, value in data.get("arguments", {}).items()},
    )


def _number(value: Any) -> Any:
    """Convert texts such as ``1e-3``, which YAML 1.1 does not read as numbers."""
    if isinstance(value, str) and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", value, re.IGNORECASE):
        return float(value)
    return [_number(x) for x in value] if isinstance(value, list) else value


def _contender(label: str, own: dict[str, Any]) -> Contender:
    algorithm = str(own.pop("algorithm", label))
    try:
        registry.find(algorithm)
    except ValueError as error:
        raise ValueError(f"{label} cannot be made: {error}") from error
    values = {name: _number(value) for name, value in own.items()}
    grid = {name: value for name, value in values.items() if isinstance(value, list)}
    return Contender(label, algorithm, grid, {name: value for name, value in values.items() if name not in grid})


def _check_agents(preset: ControlPreset) -> None:
    """Make one agent of each contender: mistakes come to light before the work, once and not per run."""
    for contender in preset.contenders:
        for setting in settings_of(contender.grid):
            try:
                (run,) = preset.runs(REPORTED, "own", contender, setting, [0])
                make_agent(run.spec)
            except Exception as error:
                reason = first_line(error)
                raise ValueError(f"{contender.label} with {setting} cannot be made: {reason}") from error


def analyse(preset: ControlPreset, rows: Rows) -> Analysis:
    """Figures, tables, and a verdict on every pair of contenders.

    :param preset: The experiment's size.
    :param rows: Of all its runs.
    """
    results = read(preset, rows)
    analysis = control_analysis(results)
    pairs: list[Verdict] = []
    for domain, scores in results.finals.items():
        runs = lowest_for_failed(scores)
        order = [label for _, label in sorted(((own.mean(), label) for label, own in runs.items()), reverse=True)]
        pairs += [
            greater(f"{domain}: {better}'s mean is above that of {worse}", runs[better], runs[worse])
            for better, worse in itertools.combinations(order, 2)
        ]
    analysis.verdicts = judged([], pairs)
    return analysis
