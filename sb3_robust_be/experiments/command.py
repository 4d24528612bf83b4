"""``sb3-robust-be experiment list | show | run | status | report``."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sb3_robust_be import report
from sb3_robust_be.experiments.declared import load_declared, names
from sb3_robust_be.experiments.experiment import SCALES, Experiment, Results, load_experiment
from sb3_robust_be.experiments.grids import make_units
from sb3_robust_be.experiments.options import add_runner_options, exit_code, number_of_jobs, runner_options
from sb3_robust_be.experiments.reporting import make_report
from sb3_robust_be.experiments.runner import run_units
from sb3_robust_be.experiments.specs import Spec
from sb3_robust_be.experiments.store import Counts, status

ALL = "all"


def _find(name: str) -> Experiment:
    path = Path(name)
    return load_experiment(path) if path.suffix in (".py", ".yml", ".yaml") else load_declared(name)


def _folder(args: argparse.Namespace, experiment: Experiment) -> Path:
    return Path(args.out) / f"{experiment.name}-{args.scale}"


def _ended(out: Path, specs: list[Spec]) -> bool:
    counts = status(out, specs)
    return counts.running + counts.left == 0


def _list(args: argparse.Namespace) -> int:
    for name in names():
        experiment = load_declared(name)
        print(f"{name:24}{experiment.figure:22}{experiment.summary}")
    return 0


def _show(args: argparse.Namespace) -> int:
    experiment = _find(args.name)
    preset = experiment.preset(args.scale)
    print(f"{experiment.name} ({experiment.figure}): {experiment.summary}\n\nClaims:")
    print("\n".join(f"  - {claim}" for claim in experiment.claims))
    for reading in experiment.readings:
        print(f"\n{reading.question}\n  readings: {'; '.join(reading.readings)}")
        print(f"  default: {reading.default}: {reading.why}")
    print(f"\nScale {args.scale}:")
    if dataclasses.is_dataclass(preset):
        for item in dataclasses.fields(preset):
            print(f"  {item.name}: {getattr(preset, item.name)}")
    else:
        print(f"  {preset!r}")
    first = next(experiment.stages(preset, Results(_folder(args, experiment))))
    print(f"  runs of the first stage: {len(first)}")
    return 0


def _run(args: argparse.Namespace) -> int:
    experiment = _find(args.name)
    out = _folder(args, experiment)
    failures: list[str] = []
    for specs in experiment.stages(experiment.preset(args.scale), Results(out)):
        run_units(make_units(specs, number_of_jobs(args)), out, **runner_options(args))
        failures += [failure["error"] for failure in Results(out).failures(specs) if failure is not None]
        if not _ended(out, specs):
            print("Other shards have runs left: run the same command again when they have ended, for what is next.")
            return 0
    print(f"{experiment.name} is complete in {out}.")
    for error, count in Counter(failures).most_common():
        print(f"{count} failed: {error}")
    print(f"Next: {_command('report', args, experiment)}")
    return int(len(failures) > 0)


def _command(verb: str, args: argparse.Namespace, experiment: Experiment) -> str:
    name = args.name if args.name != ALL else experiment.name
    return f"sb3-robust-be experiment {verb} {name} --scale {args.scale} --out {args.out}"


def _stage_counts(experiment: Experiment, scale: str, out: Path) -> list[Counts]:
    """Of the stages that can be known by now."""
    counts = []
    for specs in experiment.stages(experiment.preset(scale), Results(out)):
        counts.append(status(out, specs))
        if not _ended(out, specs):
            break
    return counts


def _status(args: argparse.Namespace) -> int:
    for experiment in [load_declared(n) for n in names()] if args.name == ALL else [_find(args.name)]:
        for stage, counts in enumerate(_stage_counts(experiment, args.scale, _folder(args, experiment)), 1):
            text = ", ".join(f"{n} {state}" for state, n in counts._asdict().items())
            print(f"{experiment.name}, stage {stage}: {text}")
    return 0


def _report(args: argparse.Namespace) -> int:
    chosen = [load_declared(name) for name in names()] if args.name == ALL else [_find(args.name)]
    pages = Path(args.out) / f"reports-{args.scale}"
    written = []
    for experiment in chosen:
        out = _folder(args, experiment)
        last = _stage_counts(experiment, args.scale, out)[-1]
        if last.running + last.left > 0:
            left = f"{experiment.name} has at least {last.running + last.left} runs left at scale {args.scale}"
            print(f"{left}: {_command('run', args, experiment)}", file=sys.stderr)
            continue
        page = make_report(experiment, args.scale, out, _command("run", args, experiment))
        print(report.write(page, pages))
        written.append(page)
    if args.name == ALL and written:
        print(report.write_index(pages, written))
    return int(len(written) < len(chosen))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sb3-robust-be experiment",
        description="The paper's experiments: NAME is one of `list`, or a Python or YAML file with your own.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(run=run)
        if name != "list":
            optional: dict[str, Any] = {"nargs": "?", "default": ALL} if name == "status" else {}
            sub.add_argument("name", metavar="NAME", help="of an experiment, or a .py or .yml file", **optional)
            sub.add_argument(
                "--scale", default="laptop", metavar="SCALE", help=f"{', '.join(SCALES)} (default: laptop)"
            )
            sub.add_argument("--out", default="experiments", metavar="FOLDER", help="(default: %(default)s)")
        return sub

    command("list", _list, "the experiments")
    command("show", _show, "claims, readings and size of one")
    add_runner_options(command("run", _run, "make the runs that are not done"))
    command("status", _status, "how many runs are done, of NAME or of all")
    command("report", _report, "figures, tables and verdicts; NAME may be `all`, which also makes an index")
    return parser


def main(argv: list[str]) -> int:
    """
    :param argv: The command's arguments.
    :return: The exit code: 1 if runs failed or are missing, 2 for a mistake in the call.
    """
    args: Any = _parser().parse_args(argv)
    return exit_code("sb3-robust-be experiment", lambda: int(args.run(args)))
