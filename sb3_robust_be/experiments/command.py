"""``sb3-robust-be experiment list | show | run | status | report | publish | page``."""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sb3_robust_be.experiments.declared import load_declared, names
from sb3_robust_be.experiments.experiment import SCALES
from sb3_robust_be.experiments.find import (
    ALL,
    command_line,
    find,
    find_all,
    folder,
    results_in,
    stage_counts,
    stage_of,
)
from sb3_robust_be.experiments.options import add_runner_options, execution_of, exit_code
from sb3_robust_be.experiments.publish import FOLDER
from sb3_robust_be.experiments.report_command import (
    DEFAULT_SCALE,
    add_publish_options,
    add_report_options,
    run_publish,
    run_report,
)
from sb3_robust_be.experiments.results_page import PAGE, results_page
from sb3_robust_be.experiments.running import run
from sb3_robust_be.system import write_atomically


def _list(args: argparse.Namespace) -> int:
    for name in names():
        experiment = load_declared(name)
        print(f"{name:24}{experiment.figure:22}{experiment.summary}")
    return 0


def _show(args: argparse.Namespace) -> int:
    experiment = find(args.name)
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
    runs = experiment.plan(preset, experiment.collect(preset, results_in(folder(args.out, experiment, args.scale))))
    for stage, count in Counter(map(stage_of, runs)).items():
        print(f"  runs, {stage}: {count}")
    return 0


def _run(args: argparse.Namespace) -> int:
    experiment = find(args.name)
    how = dataclasses.asdict(execution_of(args))
    ran = run(experiment, args.scale, args.out, source=args.source, **how)
    if ran.left:
        print("Other shards have runs left: run the same command again when they have ended, for what is next.")
        return 0
    print(f"{experiment.name} is complete in {folder(args.out, experiment, args.scale)}.")
    print(f"Next: {command_line('report', args, experiment)}")
    return int(ran.failed > 0)


def _status(args: argparse.Namespace) -> int:
    for experiment in find_all(args.name):
        for stage, counts in stage_counts(
            experiment, args.scale, results_in(folder(args.out, experiment, args.scale))
        ).items():
            text = ", ".join(f"{n} {state}" for state, n in counts._asdict().items())
            print(f"{experiment.name}, {stage} runs: {text}")
    return 0


def _page(args: argparse.Namespace) -> int:
    path = Path(args.source) / PAGE
    write_atomically(path, results_page(path.parent).encode())
    print(path)
    return 0


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
            scales = f"{', '.join(SCALES)} (default: {DEFAULT_SCALE})"
            sub.add_argument("--scale", default=DEFAULT_SCALE, metavar="SCALE", help=scales)
            sub.add_argument("--out", default="experiments", metavar="FOLDER", help="(default: %(default)s)")
        return sub

    command("list", _list, "the experiments")
    command("show", _show, "claims, readings and size of one")
    making = command("run", _run, "make the runs that are not done")
    making.add_argument(
        "--from", dest="source", metavar="FOLDER", help="go on from the rows of a table that `publish` wrote there"
    )
    add_runner_options(making)
    command("status", _status, "how many runs are done, of NAME or of all")
    add_report_options(
        command("report", run_report, "figures, tables and verdicts; NAME may be `all`, which also makes an index")
    )
    add_publish_options(
        command(
            "publish", run_publish, "write the table of the runs that have ended, finished or not; NAME may be `all`"
        )
    )
    page = commands.add_parser("page", help="write the published results of all experiments as one Markdown page")
    page.set_defaults(run=_page)
    page.add_argument(
        "--from",
        dest="source",
        metavar="FOLDER",
        default=str(FOLDER),
        help=f"of published tables, beside which {PAGE} is written (default: the package's)",
    )
    return parser


def main(argv: list[str]) -> int:
    """
    :param argv: The command's arguments.
    :return: The exit code: 1 if runs failed or are missing, 2 for a mistake in the call.
    """
    args: Any = _parser().parse_args(argv)
    return exit_code("sb3-robust-be experiment", lambda: int(args.run(args)))
