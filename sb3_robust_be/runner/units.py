"""What a worker process does: execute a unit, which is a list of runs that share a function.

Many seeds in lock-step are one unit; a run on its own is a unit of one. Nothing but a word per run goes back through
the executor: results are files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from socket import gethostname
from threading import Lock
from typing import Any, Literal

from sb3_robust_be.runner.specs import Spec, run_id
from sb3_robust_be.runner.store import RUNS, run_directory, run_state
from sb3_robust_be.runner.writer import ProgressFile, RunWriter

#: What a spec's ``"function"`` names. It gets the specs of the unit's unfinished runs, a writer for
#: each, and ``report_progress``, which takes the finished fraction of the unit.
RunFunction = Callable[[list[Spec], list[RunWriter], Callable[[float], None]], None]

#: What became of a run. ``"lost"``: the unit had been started before, by a worker that is gone.
Outcome = Literal["done", "failed", "lost"]

# Stable-Baselines3 seeds and draws from the process's own generators: units in threads would share them.
_ONE_AT_A_TIME = Lock()


class RunnerError(RuntimeError):
    """The runner cannot go on. What is done stays done."""


def load_target(target: Any, what: str) -> Callable[..., Any]:
    """Import the callable that ``"module:name"`` names.

    :param what: What the name is called in an error.
    :raises RunnerError: if there is none.
    """
    try:
        found: Any = resolve_name(str(target))
    except (ImportError, AttributeError, ValueError) as error:
        raise RunnerError(
            f"{what} is {target!r}, which cannot be loaded on {gethostname()} ({error}); "
            "give 'module:name' of something that can be imported there."
        ) from error
    if not callable(found):
        raise RunnerError(f"{what} is {target!r}, which is no function but {found!r}.")
    return found


def execute_unit(
    out: str,
    specs: Sequence[Spec],
    attempt: int = 1,
    invocation: str = "",
    fingerprints: Mapping[str, dict[str, Any]] | None = None,
    functions: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """Execute the runs of a unit that have no result and no failure yet.

    An exception out of the function fails every run it has not ended, and so does returning without ending one.

    :param out: The folder of the experiment, which must exist: a worker on another machine must see the same one.
    :param attempt: 1, or 2 for the retry after a worker died.
    :param invocation: A token of the caller. If this attempt of this invocation has already begun, its worker is gone
        (an engine such as Dask starts a lost unit again by itself): the unit is then not executed but lost.
    :param fingerprints: By the run's id, what its ``fingerprint.json`` is to say.
    :param functions: By a function's short name, its ``"module:function"``.
    :return: What became of each run, in order.
    :raises StoreError: if the folder cannot be written; the runs are then unfinished.
    :raises RunnerError: if the folder is not there or the function cannot be loaded.
    """
    if not (Path(out) / RUNS).is_dir():
        raise RunnerError(f"{out} is not there on {gethostname()}; every worker must see the folder at the same path.")
    with _ONE_AT_A_TIME:
        states = [run_state(run_directory(out, spec)) for spec in specs]
        ended: dict[str, Outcome] = {}
        writers = []
        for spec, state in zip(specs, states, strict=True):
            writer = RunWriter(out, spec, attempt, invocation, (fingerprints or {}).get(run_id(spec)))
            if state == "done" or state == "failed":
                ended[writer.id] = state
            else:
                writers.append(writer)
        if any(writer.was_started for writer in writers):
            ended |= {writer.id: "lost" for writer in writers}
        elif writers:
            _execute(writers, functions or {})
            ended |= {writer.id: writer.ended or "failed" for writer in writers}
        return [ended[RunWriter(out, spec).id] for spec in specs]


def _execute(writers: list[RunWriter], functions: Mapping[str, str]) -> None:
    name = str(writers[0].spec["function"])
    function: RunFunction = load_target(functions.get(name, name), "spec['function']")
    for writer in writers:
        writer.start(unit=writers[0].id)
    report_progress = ProgressFile(writers)
    report_progress(0.0)  # In place of the progress file of a worker that died.
    reason: BaseException | str = "The function returned without a result for this run."
    try:
        with _one_torch_thread():
            function([writer.spec for writer in writers], writers, report_progress)
    except (Exception, SystemExit) as error:
        reason = error
    finally:
        report_progress.remove()
    for writer in writers:
        if writer.ended is None:
            writer.fail(reason)


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Let torch compute with one thread meanwhile, since the number of threads changes the last digits of sums."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
