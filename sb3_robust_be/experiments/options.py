"""Arguments of the runner, for every command that executes runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sb3_robust_be.experiments.fingerprint import fingerprints_of
from sb3_robust_be.experiments.population_units import make_units
from sb3_robust_be.experiments.run_functions import run_units
from sb3_robust_be.runner.provenance import ChangedError, set_aside
from sb3_robust_be.runner.specs import Spec
from sb3_robust_be.runner.units import RunnerError
from sb3_robust_be.system import available_cores

_PROCESSES_PER_SHARD = 4
RETRY = "Failed runs are tried again with --retry-failed, or when the environment or a version has changed."
"""Said where failures are printed"""


def add_runner_options(parser: argparse.ArgumentParser) -> None:
    """
    :param parser: Of a command that executes runs.
    """
    group = parser.add_argument_group("execution")
    group.add_argument("--jobs", type=int, metavar="N", help="processes (default: one per core)")
    group.add_argument(
        "--executor", metavar="ENGINE", help="serial, dask://HOST:PORT or module:factory (default: processes)"
    )
    group.add_argument("--shard", metavar="I/N", help="only this part of the runs, for job arrays")
    group.add_argument("--retry-failed", action="store_true", help="execute runs again that have failed")
    group.add_argument(
        "--fresh",
        action="store_true",
        help="make all runs anew; the folder of earlier ones is kept, renamed",
    )
    group.add_argument("--quiet", action="store_true", help="show no progress")


def number_of_jobs(args: argparse.Namespace) -> int:
    """
    :param args: Of a parser with :func:`add_runner_options`.
    :return: Processes to make units for. With shards it depends on their number alone: every machine must find the
        same units.
    """
    if args.shard is not None:
        shards = args.shard.rpartition("/")[2]
        return _PROCESSES_PER_SHARD * int(shards) if shards.isdigit() else 1
    return 1 if args.executor == "serial" else int(args.jobs or available_cores())


def start_fresh(args: argparse.Namespace, out: Path) -> None:
    """With ``--fresh``, rename the folder of earlier runs so that all are made anew.

    :param args: Of a parser with :func:`add_runner_options`.
    :param out: The folder of the runs.
    :raises ValueError: With ``--shard``: another one may have begun.
    """
    if not args.fresh:
        return
    if args.shard is not None:
        raise ValueError(
            f"--fresh with --shard {args.shard} would rename the folder of the other shards; rename {out} once, or "
            "give another --out."
        )
    kept = set_aside(out)
    if kept is not None:
        print(f"The earlier runs are kept in {kept}. After an interruption, leave --fresh out to continue.")


def execute(specs: Sequence[Spec], out: Path, args: argparse.Namespace) -> None:
    """Execute the runs that are not done.

    :param specs: Of the runs.
    :param out: Their folder.
    :param args: Of a parser with :func:`add_runner_options`.
    :raises RunnerError: Where finished runs were made by something else, among other reasons.
    """
    units = make_units(specs, number_of_jobs(args))
    try:
        run_units(
            units,
            out,
            fingerprints=fingerprints_of(specs),
            **runner_options(args),
        )
    except ChangedError as error:
        raise RunnerError(
            f"{error} Give --fresh to make all runs anew and keep these under another name, or another --out."
        ) from error


def runner_options(args: argparse.Namespace) -> dict[str, Any]:
    """
    :param args: Of a parser with :func:`add_runner_options`.
    :return: Keyword arguments of :func:`~sb3_robust_be.runner.run.run_units`.
    """
    return {
        "jobs": args.jobs,
        "executor": args.executor,
        "shard": args.shard,
        "retry_failed": args.retry_failed,
        "progress": not args.quiet,
    }


def exit_code(program: str, work: Callable[[], int]) -> int:
    """
    :param program: Named in messages.
    :param work: What the command does.
    :return: Its exit code; 130 after Ctrl-C, 2 after one line for a mistake in the call or a folder that fails.
    """
    try:
        return work()
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, RunnerError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
