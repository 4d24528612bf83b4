"""Arguments of the runner, for every command that executes runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sb3_robust_be.experiments.fingerprint import fingerprints_of
from sb3_robust_be.experiments.population_units import make_units
from sb3_robust_be.experiments.run_functions import run_units
from sb3_robust_be.runner.provenance import ChangedError, Fingerprint, read_fingerprint, set_aside
from sb3_robust_be.runner.reuse import reuse_runs
from sb3_robust_be.runner.specs import Spec, run_id
from sb3_robust_be.runner.store import run_directory, run_state
from sb3_robust_be.runner.units import RunnerError
from sb3_robust_be.system import available_cores

_PROCESSES_PER_SHARD = 4


@dataclass(frozen=True)
class Execution:
    """How runs are executed; see :func:`sb3_robust_be.runner.run_units`.

    :param jobs: Processes; ``None``: one per core.
    :param executor: ``"serial"``, ``"dask://HOST:PORT"`` or ``"module:factory"``; ``None``: processes.
    :param shard: ``"i/n"``: only this part of the runs.
    :param retry_failed: Execute runs again that have failed.
    :param fresh: Make all runs anew; the folder of earlier ones is kept, renamed.
    :param progress: Show progress.
    """

    jobs: int | None = None
    executor: str | None = None
    shard: str | None = None
    retry_failed: bool = False
    fresh: bool = False
    progress: bool = True


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


def execution_of(args: argparse.Namespace) -> Execution:
    """
    :param args: Of a parser with :func:`add_runner_options`.
    """
    return Execution(args.jobs, args.executor, args.shard, args.retry_failed, args.fresh, not args.quiet)


def number_of_jobs(how: Execution) -> int:
    """
    :param how: The runs are executed.
    :return: Processes to make units for. With shards it depends on their number alone: every machine must find the
        same units.
    """
    if how.shard is not None:
        shards = how.shard.rpartition("/")[2]
        return _PROCESSES_PER_SHARD * int(shards) if shards.isdigit() else 1
    return 1 if how.executor == "serial" else int(how.jobs or available_cores())


def units_of(
    specs: Sequence[Spec], out: Path, how: Execution, fingerprints: Mapping[str, Fingerprint]
) -> list[list[Spec]]:
    """Group runs into units of work.

    Runs that have ended are units of their own, so that the processes share what an interruption has left evenly. With
    shards they are not: every machine must find the same units, whatever is done.

    :param specs: Of the runs.
    :param out: Their folder.
    :param how: They are executed.
    :param fingerprints: Of the runs, by id: what has failed with another one is made again.
    """
    if how.shard is not None:
        return make_units(specs, number_of_jobs(how))

    def has_ended(spec: Spec) -> bool:
        directory = run_directory(out, spec)
        state = run_state(directory)
        if state == "failed" and not how.retry_failed:
            return read_fingerprint(directory) == fingerprints[run_id(spec)].compared
        return state == "done"

    ended = [has_ended(spec) for spec in specs]
    left = [spec for spec, has in zip(specs, ended, strict=True) if not has]
    return make_units(left, number_of_jobs(how)) + [[spec] for spec, has in zip(specs, ended, strict=True) if has]


def start_fresh(how: Execution, out: Path) -> None:
    """With ``--fresh``, rename the folder of earlier runs so that all are made anew.

    :param how: The runs are executed.
    :param out: The folder of the runs.
    :raises ValueError: With ``--shard``: another one may have begun.
    """
    if not how.fresh:
        return
    if how.shard is not None:
        raise ValueError(
            f"--fresh with --shard {how.shard} would rename the folder of the other shards; rename {out} once, or "
            "give another --out."
        )
    kept = set_aside(out)
    if kept is not None:
        print(f"The earlier runs are kept in {kept}. After an interruption, leave --fresh out to continue.")


def execute(specs: Sequence[Spec], out: Path, how: Execution, others: Iterable[Path] = ()) -> None:
    """Execute the runs that are not done.

    :param specs: Of the runs.
    :param out: Their folder.
    :param how: They are executed.
    :param others: Folders whose finished runs of the same specs need not be made again.
    :raises RunnerError: Where finished runs were made by something else, among other reasons.
    """
    fingerprints = fingerprints_of(specs)
    for folder, count in reuse_runs(out, specs, others, fingerprints).items():
        print(f"Runs that are there already, and are copied: {count} from {folder.name}.")
    try:
        run_units(
            units_of(specs, out, how, fingerprints),
            out,
            fingerprints=fingerprints,
            jobs=how.jobs,
            executor=how.executor,
            shard=how.shard,
            retry_failed=how.retry_failed,
            progress=how.progress,
        )
    except ChangedError as error:
        raise RunnerError(
            f"{error} Give --fresh to make all runs anew and keep these under another name, or another --out."
        ) from error


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
