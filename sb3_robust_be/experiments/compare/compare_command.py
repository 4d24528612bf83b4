"""The command: runs, then the table, the verdict and the picture."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import numpy as np

from sb3_robust_be.experiments.compare.compare_picture import make_plots, stacked_png
from sb3_robust_be.experiments.compare.comparison import (
    ALGORITHMS,
    SELECTION_SEEDS,
    Setup,
    check_agents,
    check_algorithms,
    look_at,
    make_preset,
)
from sb3_robust_be.experiments.compare.summary import as_text, footnotes, summarise, verdict
from sb3_robust_be.experiments.control.contenders import Rate
from sb3_robust_be.experiments.control.preset import ControlPreset, ControlResults, measure, plan, read
from sb3_robust_be.experiments.control.training import LINEAR
from sb3_robust_be.experiments.control.yaml_file import analyse as control_analyse
from sb3_robust_be.experiments.experiment import SELECTION, Experiment, Results
from sb3_robust_be.experiments.options import add_runner_options, execution_of, exit_code, start_fresh
from sb3_robust_be.experiments.rows import Row
from sb3_robust_be.experiments.running import make_runs
from sb3_robust_be.runner.specs import Spec
from sb3_robust_be.runner.store import run_directory, run_state
from sb3_robust_be.system import write_atomically

DEFAULT_ALGORITHMS = "qlc,qrc_huber,dqn"
DEFAULT_RATE = "2^-9:2^-13"


def _rate(text: str) -> Rate:
    """A step size, as ``0.001`` or ``2^-10``, or the first and last one of a linear fall, as ``2^-9:2^-13``."""
    first, sign, last = text.partition(":")
    return {LINEAR: [_number(first), _number(last)]} if sign else _number(text)


def _number(text: str) -> float:
    base, sign, exponent = text.replace("**", "^").partition("^")
    try:
        value = float(base) ** float(exponent) if sign else float(text)
    except (OverflowError, ValueError):
        value = float("nan")
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no step size between 0 and 1; write 0.001 or 2^-10, or 2^-9:2^-13 for one that falls"
        )
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sb3-robust-be compare",
        description="Train algorithms on an environment over many seeds, and say which one is better, by how much and "
        "how surely. Interrupted, the same command continues. The exit code is 1 if a seed has failed.",
    )
    parser.add_argument("--env", required=True, help="gymnasium id, or MODULE:ID of a module that registers it")
    parser.add_argument(
        "--gym-packages", nargs="+", default=[], metavar="MODULE", help="to import first: they register environments"
    )
    parser.add_argument(
        "--algos", default=DEFAULT_ALGORITHMS, help=f"of {', '.join(ALGORITHMS)} (default: %(default)s)"
    )
    parser.add_argument("--baseline", help="what the others are compared with (default: dqn, or the last algorithm)")
    parser.add_argument("--seeds", type=_positive, default=30, help="per algorithm (default: %(default)s)")
    parser.add_argument("--steps", type=_positive, default=10_000, help="environment steps (default: %(default)s)")
    parser.add_argument(
        "--learning-rates",
        type=_rate,
        nargs="+",
        default=[_rate(DEFAULT_RATE)],
        metavar="RATE",
        help=f"constant, or FIRST:LAST for a linear fall over the run; several: each algorithm's best one over "
        f"{SELECTION_SEEDS} other seeds is used (default: {DEFAULT_RATE})",
    )
    parser.add_argument("--net-arch", type=_positive, nargs="+", metavar="UNITS", help="hidden units (default: 64 64)")
    parser.add_argument("--layer-norm", action="store_true", help="normalise the hidden layers of every algorithm")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="of the results (default: compare/ENV)")
    add_runner_options(parser)
    return parser


def _parse(argv: list[str]) -> tuple[argparse.Namespace, list[str], Setup]:
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        algorithms = check_algorithms([name.strip() for name in args.algos.split(",")])
        setup = look_at(args.env, args.net_arch, args.gym_packages)
    except ValueError as error:
        parser.error(str(error))
    args.baseline = args.baseline or ("dqn" if "dqn" in algorithms else algorithms[-1])
    if args.baseline not in algorithms:
        parser.error(f"--baseline {args.baseline!r} is not among --algos {args.algos}")
    args.out = args.out or Path("compare") / args.env.rpartition(":")[2].replace("/", "-")
    if importlib.util.find_spec("matplotlib") is None:
        # Before the work, not after it.
        import matplotlib  # noqa: F401
    return args, algorithms, setup


def _first_runs(args: argparse.Namespace, preset: ControlPreset) -> list[Spec]:
    """A run of each algorithm that has not begun: those that have were checked then."""
    first = {run.names["contender"]: run.spec for run in reversed(plan(preset, []))}
    return [spec for spec in first.values() if run_state(run_directory(args.out, spec)) == "left"]


def main(argv: list[str]) -> int:
    """
    :param argv: The command's arguments.
    :return: The exit code: 1 if a run failed.
    """
    args, algorithms, setup = _parse(argv)
    return exit_code("sb3-robust-be compare", lambda: _compare(args, algorithms, setup))


def _compare(args: argparse.Namespace, algorithms: list[str], setup: Setup) -> int:
    how = execution_of(args)
    start_fresh(how, args.out)
    preset = make_preset(setup, algorithms, args.seeds, args.steps, args.learning_rates, args.layer_norm)
    comparison = Experiment(
        name="compare",
        figure="your own",
        summary=f"{', '.join(algorithms)} on {args.env}",
        claims=(),
        presets={},
        plan=plan,
        measure=measure,
        analyse=control_analyse,
        check=lambda preset: check_agents(_first_runs(args, preset)),
    )
    ran = make_runs(
        comparison,
        preset,
        Results(args.out),
        how,
        named=lambda row: f"{row['contender']}, seed {row['seed']}",
        before_round=_say_what_is_chosen,
    )
    if ran.left:
        print(f"{ran.left} runs of other shards are left: the same command goes on when they have ended.")
        return 0
    return _say_what_is_found(args, read(preset, ran.rows))


def _say_what_is_chosen(names: list[Row]) -> None:
    if names[0]["stage"] == SELECTION:
        print(f"Choosing step sizes on {SELECTION_SEEDS} seeds that are not reported.")


def _say_what_is_found(args: argparse.Namespace, results: ControlResults) -> int:
    (finals,) = results.finals.values()
    (curves,) = results.curves.values()
    rates = {label: setting["learning_rate"] for (_, label), setting in results.settings.items()}
    unfinished = {
        label: np.array([bool(row.get("unfinished")) for row in own]) for (_, label), own in results.reported.items()
    }
    rows = summarise(finals, rates, args.baseline, unfinished)
    print(f"\nReturn per step over the last quarter of {args.steps} steps on {args.env}:\n")
    print(as_text(rows, args.baseline))
    for note in footnotes(rows):
        print(note)
    print(f"\n{verdict(rows, finals, args.env)}\n")
    plots = make_plots(args.env, finals, curves, args.steps)
    picture = args.out / "compare.png"
    write_atomically(picture, stacked_png(plots))
    print(f"Picture: {picture}\nLearning curves: {plots[-1].caption}")
    return int(any(row.failed for row in rows))
