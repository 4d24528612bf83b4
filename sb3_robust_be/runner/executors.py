"""Where units of work are executed: worker processes, this process, Dask, or any other executor (PEP 3148).

By default each worker is a process in a ``ProcessPoolExecutor`` of its own: a pool that loses a process kills its
others, and here there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from sb3_robust_be.runner.processes import terminate, worker_factory
from sb3_robust_be.runner.units import RunnerError, load_target
from sb3_robust_be.system import available_cores


@dataclass(frozen=True)
class Engine:
    """Which executors there are, and how they are made and ended.

    :param make: Makes an executor, at the start and again when one is broken.
    :param executors: How many there are at a time.
    :param capacity: Units in flight per executor; ``None``: all.
    :param isolates: Whether a dying worker harms no other unit in flight.
    :param losses: Exceptions of a future, beside ``BrokenExecutor``, that mean its worker died.
    :param stop: Ends an executor at once, and the work in it where that can be done; says whether it was done.
    :param close: Called at the very end.
    """

    make: Callable[[], Executor]
    executors: int = 1
    capacity: int | None = None
    isolates: bool = False
    losses: tuple[type[BaseException], ...] = ()
    stop: Callable[[Executor], bool] = terminate
    close: Callable[[], None] = lambda: None


def choose_engine(
    executor: str | Callable[[], Executor] | None, jobs: int | None, preload: Sequence[str] = ()
) -> Engine:
    """Choose how units are executed, from the arguments ``--executor`` and ``--jobs``.

    :param executor: ``None``: worker processes on this machine; ``"serial"``: this process; ``"dask://HOST:PORT"``: the
        Dask cluster with that scheduler; ``"module:factory"`` or a callable: what it returns.
    :param jobs: Worker processes; ``None``: one per core that this process may use.
    """
    if executor is None:
        if jobs is not None and jobs < 1:
            raise ValueError(f"jobs is {jobs}; give at least 1.")
        workers = available_cores() if jobs is None else jobs
        return Engine(make=worker_factory(preload), executors=workers, capacity=1, isolates=True)
    if jobs is not None:
        raise ValueError(f"jobs is {jobs}, but executor {executor!r} has its own workers; leave one of them out.")
    if callable(executor):
        return Engine(make=executor)
    if executor == "serial":
        return Engine(make=SerialExecutor, capacity=1, isolates=True)
    if executor.startswith("dask://"):
        return _dask_engine(executor.removeprefix("dask://"))
    if ":" not in executor:
        raise ValueError(f"executor is {executor!r}; give 'serial', 'dask://HOST:PORT' or 'module:factory'.")
    return Engine(make=load_target(executor, "executor"))


class SerialExecutor(Executor):
    """Executes in the calling thread, at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _cancel(executor: Executor) -> bool:
    # Dask's has no cancel_futures: without waiting it cancels. What a worker is doing may go on for a while.
    executor.shutdown(wait=False)
    return False


def _dask_engine(address: str) -> Engine:
    import distributed
    from distributed.scheduler import KilledWorker

    try:
        client: Any = distributed.Client(address)
    except (OSError, ValueError) as error:
        raise RunnerError(
            f"executor is 'dask://{address}', where no Dask scheduler answers ({error}); "
            "give HOST:PORT as `dask scheduler` prints it."
        ) from error
    threads = max(client.nthreads().values(), default=1)
    if threads > 1:
        client.close()
        raise RunnerError(
            f"executor is 'dask://{address}', where a worker has {threads} threads; a process executes one run at a "
            "time: start the workers with --nthreads 1, and more of them with --nworkers."
        )
    return Engine(
        make=partial(client.get_executor, pure=False),
        isolates=True,
        losses=(KilledWorker,),
        stop=_cancel,
        close=client.close,
    )
