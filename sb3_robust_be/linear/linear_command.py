"""``sb3-robust-be linear solve|sweep|plot PROBLEM``."""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Callable
from typing import Any

from sb3_robust_be.linear import text_tables as tables
from sb3_robust_be.linear.catalogue import PROBLEMS, get
from sb3_robust_be.linear.features import widened_basis
from sb3_robust_be.linear.fixed_points import OBJECTIVES, least_value_errors, solve
from sb3_robust_be.linear.methods import ALGORITHMS, PAPER_ALGORITHMS, algorithm
from sb3_robust_be.linear.problems import Problem
from sb3_robust_be.linear.stepsizes import OPTIMIZERS
from sb3_robust_be.linear.sweeps import BACKENDS, PAPER_ALPHAS, PAPER_ETAS, PAPER_SEEDS, Settings, paper_steps, sweep


def _option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: give KEY=VALUE")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def _problem(arguments: argparse.Namespace) -> Problem:
    options = dict(arguments.option)
    try:
        return get(arguments.problem, **options)
    except TypeError as error:
        raise ValueError(f"the options {options} do not fit {arguments.problem}: {error}") from error


def _solve(arguments: argparse.Namespace) -> int:
    problem = _problem(arguments)
    bases = {"features": None, "wide": widened_basis(problem.X), "all": "all"}
    runs: list[tuple[str, dict[str, Any]]] = []
    for name in arguments.objective:
        taus = arguments.tau if name in OBJECTIVES and OBJECTIVES[name].takes_tau else [None]
        projects = name in OBJECTIVES and OBJECTIVES[name].takes_basis
        runs += [(name, {"tau": tau} | ({"basis": bases[arguments.basis]} if projects else {})) for tau in taus]
    with tables.progress_bar(f"{problem.name}, {len(runs)} objectives") as progress:
        rows = _solutions(problem, runs, arguments.method, progress)
    if arguments.json:
        print(json.dumps(tables.plain({"problem": problem.name, "options": dict(arguments.option), "solutions": rows})))
    else:
        tables.show_fixed_points(problem, rows)
    return 0


def _solutions(
    problem: Problem, runs: list[tuple[str, dict[str, Any]]], method: str, progress: Callable[[float], None]
) -> list[tables.Row]:
    """A row of the table for each of ``runs``, objectives with their settings; what has no solution says so instead."""
    least, rows = least_value_errors(problem), []
    for i, (name, settings) in enumerate(runs):

        def shown(fraction: float, done: int = i) -> None:
            progress((done + fraction) / len(runs))

        label = name if settings["tau"] is None else f"{name}({settings['tau']:g})"
        shown(0.0)
        if method == "iterative" and name == "td":
            print("td is a linear system and not searched for: skipped", file=sys.stderr)
            continue
        try:
            point = solve(problem, name, method=method, progress=shown, **settings)
        except ValueError as error:
            if name != "td":
                raise
            print(f"{label}: {error}", file=sys.stderr)
            continue
        rows.append(tables.fixed_point_row(problem, label, point, least))
    progress(1.0)
    return rows


def _sweep(arguments: argparse.Namespace) -> int:
    problem = _problem(arguments)
    steps = paper_steps(problem.name) if arguments.steps is None else arguments.steps
    settings = Settings(
        algorithms=[algorithm(name, arguments.tau) for name in arguments.algorithms],
        alphas=arguments.alphas,
        etas=arguments.etas,
        seeds=range(arguments.seeds),
        steps=steps,
        optimizer=arguments.optimizer,
        evaluations=min(arguments.evaluations, steps),
        metric=arguments.metric,
        backend=arguments.backend,
        jobs=arguments.jobs,
    )
    with tables.progress_bar(f"{problem.name}, {steps} steps") as progress:
        result = sweep(problem, settings, progress)
    rows = tables.sweep_rows(result, arguments.algorithms)
    if arguments.json:
        report = {"problem": problem.name, "options": dict(arguments.option), "steps": steps, "seeds": arguments.seeds}
        report |= {"metric": settings.metric, "optimizer": settings.optimizer, "alphas": settings.alphas}
        print(json.dumps(tables.plain(report | {"etas": settings.etas, "algorithms": rows})))
    else:
        tables.show_sweep(problem, settings, rows)
    return 0


def _plot(arguments: argparse.Namespace) -> int:
    from sb3_robust_be.linear.picture import plot

    print(plot(_problem(arguments), arguments.output, arguments.tau, *arguments.range))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sb3-robust-be linear", description="Linear prediction with robust Bellman errors, exactly."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        defaults = argparse.ArgumentDefaultsHelpFormatter
        sub = commands.add_parser(name, help=help, description=help, formatter_class=defaults)
        sub.set_defaults(run=run)
        sub.add_argument("problem", metavar="PROBLEM", help=", ".join(PROBLEMS))
        sub.add_argument(
            "-o", "--option", type=_option, action="append", default=[], metavar="KEY=VALUE",
            help="an argument of the problem, such as epsilon=0.05, p_left=0.5, seed=3 or start=sixth",
        )  # fmt: skip
        return sub

    solving = command("solve", _solve, "minimise the objectives of a problem")
    names = ["td", *OBJECTIVES]
    solving.add_argument("--objective", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    solving.add_argument("--tau", type=float, nargs="+", default=[1.0, 0.03], help="Huber thresholds")
    solving.add_argument("--basis", choices=("features", "wide", "all"), default="features", help="class of h")
    solving.add_argument("--method", choices=("exact", "iterative"), default="exact", help="iterative: the paper's")
    solving.add_argument("--json", action="store_true", help="print JSON")

    sweeping = command("sweep", _sweep, "run the online algorithms over step sizes and seeds")
    add = sweeping.add_argument
    names = list(ALGORITHMS)
    add("--algorithms", nargs="+", choices=names, default=PAPER_ALGORITHMS, metavar="NAME", help=", ".join(names))
    add("--tau", type=float, help="Huber threshold of the algorithms that have one, instead of the paper's 1")
    add("--alphas", type=float, nargs="+", default=PAPER_ALPHAS, help="step sizes of theta")
    add("--etas", type=float, nargs="+", default=PAPER_ETAS, help="ratios of the step sizes of theta_h and theta")
    add("--seeds", type=int, default=PAPER_SEEDS, help="number of trajectories")
    add("--steps", type=int, help="updates per run; by default the paper's: 10000, or 100000 on the walks")
    add("--evaluations", type=int, default=100, help="how often the metric is taken along a run")
    add("--optimizer", choices=OPTIMIZERS, default="sgd", help="step sizes")
    add("--metric", choices=("msve", "mave"), default="msve", help="error to report")
    add("--backend", choices=BACKENDS, default="auto", help="compiled or plain inner loop")
    add("--jobs", type=int, help="threads; by default one per core")
    add("--json", action="store_true", help="print JSON")

    plotting = command("plot", _plot, "draw the objectives of a problem with a single weight (HardAlias-2)")
    plotting.add_argument("output", metavar="FILE", help="an image file, such as objectives.png")
    plotting.add_argument("--tau", type=float, default=0.03, help="Huber threshold")
    plotting.add_argument("--range", type=float, nargs=2, default=(-1.5, 1.5), metavar=("LOW", "HIGH"), help="of theta")
    return parser


def main(argv: list[str]) -> int:
    """Run ``sb3-robust-be linear`` with the arguments after ``linear``.

    :return: 0, or 2 after one line on stderr for a mistake in the call.
    """
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except (ValueError, TypeError, OSError) as error:
        print(f"sb3-robust-be linear: {error}", file=sys.stderr)
        return 2
