"""Which experiment a command is about, where its runs are, and how far they are."""

from __future__ import annotations

import argparse
from pathlib import Path

from sb3_robust_be.experiments.declared import load_declared, names
from sb3_robust_be.experiments.experiment import Experiment, Results, load_experiment
from sb3_robust_be.experiments.specs import Spec
from sb3_robust_be.experiments.store import Counts, status

ALL = "all"


def find(name: str) -> Experiment:
    """
    :param name: Of a declared experiment, or the path of a Python or YAML file.
    """
    path = Path(name)
    return load_experiment(path) if path.suffix in (".py", ".yml", ".yaml") else load_declared(name)


def find_all(name: str) -> list[Experiment]:
    """
    :param name: As for :func:`find`, or ``"all"``: all that are declared.
    """
    return [load_declared(one) for one in names()] if name == ALL else [find(name)]


def folder(args: argparse.Namespace, experiment: Experiment) -> Path:
    """The folder of its runs."""
    return Path(args.out) / f"{experiment.name}-{args.scale}"


def command_line(verb: str, args: argparse.Namespace, experiment: Experiment) -> str:
    """The command that does something else with the experiment."""
    name = args.name if args.name != ALL else experiment.name
    return f"sb3-robust-be experiment {verb} {name} --scale {args.scale} --out {args.out}"


def ended(out: Path, specs: list[Spec]) -> bool:
    """Whether every run has ended, well or not."""
    counts = status(out, specs)
    return counts.running + counts.left == 0


def stage_counts(experiment: Experiment, scale: str, out: Path) -> list[Counts]:
    """Of the stages that can be known by now."""
    counts = []
    for specs in experiment.stages(experiment.preset(scale), Results(out)):
        counts.append(status(out, specs))
        if not ended(out, specs):
            break
    return counts


def what_is_left(experiment: Experiment, args: argparse.Namespace) -> str | None:
    """What to do before a report can be made; ``None`` if every run has ended."""
    last = stage_counts(experiment, args.scale, folder(args, experiment))[-1]
    if last.running + last.left == 0:
        return None
    left = f"{experiment.name} has at least {last.running + last.left} runs left at scale {args.scale}"
    return f"{left}: {command_line('run', args, experiment)}"
