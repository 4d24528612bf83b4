"""Worker processes: each computes with one thread, ignores Ctrl-C, and ends when the runner does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from sb3_robust_be.system import ctrl_c_later, on_ctrl_c

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_PATIENCE_S = 5.0


def _processes(executor: Executor) -> list[Any]:
    """The worker processes of a ``ProcessPoolExecutor``, which are not public before Python 3.14; of others none."""
    return list((getattr(executor, "_processes", None) or {}).values())


def terminate(executor: Executor) -> bool:
    """End an executor at once: drop what is pending, and end its processes if it has any.

    :return: Whether it had processes, so that nothing of its work goes on.
    """
    processes = _processes(executor)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(_PATIENCE_S)
        if process.is_alive():
            process.kill()
    executor.shutdown(wait=bool(processes), cancel_futures=True)
    return bool(processes)


def cause_of_death(executor: Executor) -> str:
    """How a process of a broken executor ended, in brackets; empty where that is not known."""
    processes = _processes(executor)
    executor.shutdown()
    # A broken pool ends its other workers with SIGTERM.
    codes = [process.exitcode for process in processes if process.exitcode not in (None, 0, -signal.SIGTERM)]
    if not codes:
        return ""
    if codes[0] == -9:
        return " (signal 9: often the system is out of memory)"
    return f" (signal {-codes[0]})" if codes[0] < 0 else f" (exit code {codes[0]})"


class _Worker(ProcessPoolExecutor):
    """A pool of one process, whose start Ctrl-C cannot interrupt halfway."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        with ctrl_c_later():
            return super().submit(fn, *args, **kwargs)


def worker_factory(preload: Sequence[str]) -> Callable[[], Executor]:
    """Return a function that makes executors of one process each, from a fork server where the system has that.

    :param preload: Modules that the fork server loads; it does so once, when it starts, in the main process's life.
    """
    if "forkserver" in multiprocessing.get_all_start_methods():
        from multiprocessing import forkserver

        context: Any = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(preload))
        # It inherits both. Ctrl-C reaches the whole group, but to end its workers is the runner's part.
        with _environment(_ONE_THREAD), on_ctrl_c(signal.SIG_IGN):
            forkserver.ensure_running()
    else:
        context = multiprocessing.get_context("spawn")
    return partial(_Worker, max_workers=1, mp_context=context, initializer=_start_worker)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for the processes started meanwhile: BLAS reads its number of threads as it loads."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Where the fork server is another's, or there is none.
    os.environ.update(_ONE_THREAD)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
