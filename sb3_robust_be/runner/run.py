"""Executes the runs of an experiment that have neither a result nor a recorded failure."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple

from sb3_robust_be.runner.dispatch import Dispatcher
from sb3_robust_be.runner.executors import choose_engine
from sb3_robust_be.runner.progress import Tally, display
from sb3_robust_be.runner.provenance import Fingerprint, check_unchanged, forget_other_failures
from sb3_robust_be.runner.shards import units_of_shard
from sb3_robust_be.runner.specs import Spec
from sb3_robust_be.runner.store import FAILED, SPEC, Counts, prepare, run_directory, run_state, status
from sb3_robust_be.runner.units import RunnerError

# Network file systems show another machine's new files after up to a minute.
_VISIBLE_AFTER_S = 70.0


class Summary(NamedTuple):
    """How many of this call's runs are done, failed or left, those of earlier calls included."""

    done: int
    failed: int
    left: int


def run_units(
    units: Iterable[Sequence[Spec]],
    out: str | Path,
    *,
    jobs: int | None = None,
    executor: str | Callable[[], Executor] | None = None,
    shard: str | None = None,
    retry_failed: bool = False,
    progress: bool = True,
    preload: Sequence[str] = (),
    fingerprints: Mapping[str, Fingerprint] | None = None,
    functions: Mapping[str, str] | None = None,
) -> Summary:
    """Execute every run that has neither a result nor a failure yet; call it again to continue after any interruption.

    A run whose worker dies, by a signal or for lack of memory, is tried once more on its own, and then recorded as
    failed. Several calls may work on one folder at the same time; give them different shards, or they do the same work.

    On an interruption, and where the disk is full, the workers are ended, runs in work count as not begun, and whatever
    has a ``result.json`` stays. Work that cannot be ended, in threads or on a Dask cluster, finishes and is kept.

    :param units: Lists of specs; see :func:`~sb3_robust_be.runner.units.execute_unit`. All specs of a unit have
        the same ``"function"``.
    :param out: The folder.
    :param jobs: Worker processes; by default one per core that this process may use.
    :param executor: Another engine than processes of this machine: ``"serial"``, ``"dask://HOST:PORT"``,
        ``"module:factory"`` or a callable that returns an :class:`~concurrent.futures.Executor`.
    :param shard: ``"i/n"``: only the ``i``-th of ``n`` parts, for job arrays on a shared file system.
    :param retry_failed: Whether runs recorded as failed are executed again.
    :param progress: Whether to show progress on standard error.
    :param preload: Modules that worker processes have from the start. The first call in a process decides.
    :param fingerprints: What makes the runs besides their specs, by id, such as the version of an environment. It is
        kept beside each result; runs that have failed with another are executed again.
    :param functions: ``"module:function"`` by the short name that specs have for it: code can then move, and a run
        stays the same run.
    :raises ChangedError: (a ``RunnerError``) if a finished run has another fingerprint, before anything is executed, or
        at the end where other calls have made such runs meanwhile.
    :raises StoreError: (an ``OSError``) if the folder cannot be written.
    :raises RunnerError: if a function cannot be loaded or the engine gives up.
    :raises KeyboardInterrupt: on Ctrl-C, after a line that says how to continue.
    """
    planned = units_of_shard(units, shard, functions or {})
    specs = [spec for unit in planned for spec in unit]
    root = prepare(out)
    fingerprints = fingerprints or {}
    check_unchanged(root, fingerprints)
    forget_other_failures(root, fingerprints)
    if retry_failed:
        _forget_failures(root, specs)
    open_units, tally = _remaining(root, planned)
    if open_units:
        written = {run: fingerprint._asdict() for run, fingerprint in fingerprints.items()}
        dispatcher = Dispatcher(root, open_units, choose_engine(executor, jobs, preload), tally, written, functions)
        try:
            with dispatcher, display(tally, progress) as shown:
                dispatcher.run(shown.update)
        except KeyboardInterrupt:
            counts = status(root, specs)
            left = counts.running + counts.left
            kept = f"{counts.done} done, {counts.failed} failed, {left} left"
            print(f"Interrupted: {kept}. The same command continues from here.", file=sys.stderr, flush=True)
            raise
    counts = _settled(root, specs)
    check_unchanged(root, fingerprints)
    return Summary(counts.done, counts.failed, counts.running + counts.left)


def _forget_failures(root: Path, specs: Iterable[Spec]) -> None:
    for spec in specs:
        (run_directory(root, spec) / FAILED).unlink(missing_ok=True)


def _remaining(root: Path, planned: list[list[Spec]]) -> tuple[list[list[Spec]], Tally]:
    """Return the units without the runs that have ended, and the numbers of runs at the start."""
    tally = Tally(total=sum(map(len, planned)))
    open_units = []
    for unit in planned:
        states = [run_state(run_directory(root, spec)) for spec in unit]
        tally.done += states.count("done")
        tally.failed += states.count("failed")
        rest = [spec for spec, state in zip(unit, states, strict=True) if state not in ("done", "failed")]
        if rest:
            open_units.append(rest)
    return open_units, tally


def _settled(root: Path, specs: list[Spec]) -> Counts:
    """Count the runs again until a network file system shows every file.

    :raises RunnerError: if the workers have written somewhere else.
    """
    deadline = time.monotonic() + _VISIBLE_AFTER_S
    while True:
        counts = status(root, specs)
        late = time.monotonic() >= deadline
        if counts.done + counts.failed == len(specs) or late:
            break
        time.sleep(0.5)
    absent = [spec for spec in specs if not (run_directory(root, spec) / SPEC).exists()]
    if absent:
        raise RunnerError(
            f"{len(absent)} runs have ended, but {run_directory(root, absent[0])} is not there; "
            "every worker must see the folder at the same path."
        )
    return counts
