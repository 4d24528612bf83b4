"""The command: runs, then the table, the verdict and the picture."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from sb3_robust_be.evaluation import lowest_for_failed
from sb3_robust_be.experiments.compare.compare_picture import make_plots, stacked_png
from sb3_robust_be.experiments.compare.setup import (
    ALGORITHMS,
    SELECTION_SEEDS,
    Setup,
    check_agents,
    check_algorithms,
    look_at,
    make_specs,
)
from sb3_robust_be.experiments.compare.summary import as_text, footnotes, summarise, verdict
from sb3_robust_be.experiments.control.training import load_curves, load_finals, load_unfinished
from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.experiments.options import RETRY, add_runner_options, execute, exit_code, start_fresh
from sb3_robust_be.runner.specs import Spec
from sb3_robust_be.runner.store import load_failures, run_directory, run_state, status
from sb3_robust_be.system import write_atomically

DEFAULT_ALGORITHMS = "qlc,qrc_huber,dqn"
DEFAULT_RATE = "2^-10"


def _rate(text: str) -> float:
    base, sign, exponent = text.replace("**", "^").partition("^")
    try:
        value = float(base) ** float(exponent) if sign else float(text)
    except OverflowError:
        value = float("inf")
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no step size between 0 and 1; write 0.001 or 2^-10")
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
        help=f"several: each algorithm's best one over {len(SELECTION_SEEDS)} other seeds is used (default: "
        f"{DEFAULT_RATE})",
    )
    parser.add_argument("--net-arch", type=_positive, nargs="+", metavar="UNITS", help="hidden units (default: 64 64)")
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


def _report_failures(out: Path, specs: Sequence[Spec]) -> None:
    failures = load_failures(out, specs)
    for spec, failure in zip(specs, failures, strict=True):
        if failure is not None:
            print(f"{spec['algorithm']}, seed {spec['seed']}: {failure['error']}")
    if any(failures):
        print(RETRY)


def _run(args: argparse.Namespace, specs: list[Spec]) -> bool:
    """Whether all of them have ended."""
    execute(specs, args.out, args)
    _report_failures(args.out, specs)
    counts = status(args.out, specs)
    left = counts.running + counts.left
    if left:
        print(f"{left} runs of other shards are left: the same command goes on when they have ended.")
    return left == 0


def _choose_rates(args: argparse.Namespace, algorithms: list[str], setup: Setup) -> dict[str, float] | None:
    """Each algorithm's best step size on seeds that are not reported; ``None`` while runs are left."""
    rates = args.learning_rates
    if len(rates) == 1:
        return dict.fromkeys(algorithms, rates[0])
    print(f"Choosing step sizes on {len(SELECTION_SEEDS)} seeds that are not reported.")
    specs = {
        (name, rate): make_specs(setup, name, [rate], SELECTION_SEEDS, args.steps)
        for name in algorithms
        for rate in rates
    }
    if not _run(args, [spec for own in specs.values() for spec in own]):
        return None
    finals = lowest_for_failed({str(key): load_finals(Results(args.out), own) for key, own in specs.items()})
    means = {key: x.mean() for key, x in finals.items()}
    return {name: max((means[str((name, rate))], rate) for rate in rates)[1] for name in algorithms}


def _check_agents(args: argparse.Namespace, algorithms: list[str], setup: Setup) -> None:
    """Of the algorithms that have not begun: those that have were checked then."""
    seed = SELECTION_SEEDS[0] if len(args.learning_rates) > 1 else 0
    first = [make_specs(setup, name, args.learning_rates[:1], [seed], args.steps)[0] for name in algorithms]
    check_agents([spec for spec in first if run_state(run_directory(args.out, spec)) == "left"])


def main(argv: list[str]) -> int:
    """
    :param argv: The command's arguments.
    :return: The exit code: 1 if a run failed.
    """
    args, algorithms, setup = _parse(argv)
    return exit_code("sb3-robust-be compare", lambda: _compare(args, algorithms, setup))


def _compare(args: argparse.Namespace, algorithms: list[str], setup: Setup) -> int:
    start_fresh(args, args.out)
    _check_agents(args, algorithms, setup)
    rates = _choose_rates(args, algorithms, setup)
    if rates is None:
        return 0
    specs = {name: make_specs(setup, name, [rates[name]], range(args.seeds), args.steps) for name in algorithms}
    if not _run(args, [spec for own in specs.values() for spec in own]):
        return 0
    finals = {name: load_finals(Results(args.out), own) for name, own in specs.items()}
    unfinished = {name: load_unfinished(Results(args.out), own) for name, own in specs.items()}
    rows = summarise(finals, rates, args.baseline, unfinished)
    print(f"\nReturn per step over the last quarter of {args.steps} steps on {args.env}:\n")
    print(as_text(rows, args.baseline))
    for note in footnotes(rows):
        print(note)
    sentence = verdict(rows, finals, args.env)
    print(f"\n{sentence}\n")
    curves = {name: load_curves(Results(args.out), own) for name, own in specs.items()}
    plots = make_plots(args.env, finals, curves, args.steps)
    picture = args.out / "compare.png"
    write_atomically(picture, stacked_png(plots))
    print(f"Picture: {picture}\nLearning curves: {plots[-1].caption}")
    return int(any(row.failed for row in rows))
