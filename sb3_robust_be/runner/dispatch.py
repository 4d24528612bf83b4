"""Gives units of work to executors, and tries again or records as failed what their workers lose."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

from sb3_robust_be.runner.executors import Engine
from sb3_robust_be.runner.processes import cause_of_death
from sb3_robust_be.runner.progress import Tally
from sb3_robust_be.runner.specs import Spec, read_json, run_id
from sb3_robust_be.runner.store import PROGRESS, run_directory, run_state
from sb3_robust_be.runner.units import Outcome, RunnerError, execute_unit
from sb3_robust_be.runner.writer import RunWriter
from sb3_robust_be.system import StoreError, remove_stale_temporaries

TRIES = 2
_MAX_FAILED_STARTS = 3
_POLL_S = 1.0
_WATCHED = 256
_DEATH = "the worker died"


@dataclass(frozen=True)
class _Task:
    """A unit of work, and how often it has been tried.

    :param attempt: 1, or 2 for the retry after its worker died.
    :param failed_starts: How often its worker died before it began, where the engine says so of each unit by itself.
    """

    specs: list[Spec]
    attempt: int = 1
    failed_starts: int = 0


@dataclass(eq=False)
class _Slot:
    """An executor and the tasks that it was given.

    :param lost_tasks: Tasks whose futures say that the executor is broken.
    :param alone: Whether it is to be given no other task beside its one.
    """

    executor: Executor | None = None
    tasks: dict[Future[list[Outcome]], _Task] = field(default_factory=dict)
    lost_tasks: list[_Task] = field(default_factory=list)
    alone: bool = False


class Dispatcher:
    """Executes units on an engine's executors until every run has a result or a failure.

    It is a context manager, which ends the executors: after their work, or at once if there was an exception.

    :param root: The folder, absolute.
    :param units: Runs that have not ended.
    :param tally: Updated as runs end.
    :param fingerprints: By the run's id, what its ``fingerprint.json`` is to say.
    :param functions: By a function's short name, its ``"module:function"``.
    """

    def __init__(
        self,
        root: Path,
        units: Iterable[list[Spec]],
        engine: Engine,
        tally: Tally,
        fingerprints: Mapping[str, dict[str, Any]] | None = None,
        functions: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self.engine = engine
        self.tally = tally
        self._fingerprints = fingerprints or {}
        self._functions = dict(functions or {})
        self._invocation = uuid.uuid4().hex
        self._queue = deque(_Task(unit) for unit in units)
        self._suspects: deque[_Task] = deque()
        self._slots = [_Slot() for _ in range(engine.executors)]
        self._ended: SimpleQueue[tuple[_Slot, Future[list[Outcome]]]] = SimpleQueue()
        self._failed_starts = 0
        self._fractions: dict[Future[list[Outcome]], float] = {}
        self._look = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            for slot in self._slots:
                if slot.executor is not None and kind is None:
                    slot.executor.shutdown()
                elif slot.executor is not None and self.engine.stop(slot.executor):
                    self._remove_temporaries(slot)
        finally:
            self.engine.close()

    def _remove_temporaries(self, slot: _Slot) -> None:
        """Delete what the processes of an executor were writing when they were ended."""
        for task in slot.tasks.values():
            for spec in task.specs:
                remove_stale_temporaries(run_directory(self.root, spec), older_than=-math.inf)

    def run(self, show: Callable[[], None]) -> None:
        """Execute the units until every run has ended.

        :param show: Called at least once a second, but in a serial engine only after each unit.
        """
        self._fill()
        while any(slot.tasks for slot in self._slots):
            with contextlib.suppress(Empty):
                self._finish_task(*self._ended.get(timeout=_POLL_S))
            self._fill()
            self._watch()
            show()

    def _fill(self) -> None:
        for slot in self._slots:
            while (task := self._next(slot)) is not None:
                self._submit(slot, task)

    def _next(self, slot: _Slot) -> _Task | None:
        capacity = self.engine.capacity
        if slot.alone or slot.lost_tasks or (capacity is not None and len(slot.tasks) >= capacity):
            return None
        if self._queue:
            return self._queue.popleft()
        if self._suspects and not slot.tasks:
            slot.alone = True
            return self._suspects.popleft()
        return None

    def _submit(self, slot: _Slot, task: _Task) -> None:
        if slot.executor is None:
            slot.executor = self.engine.make()
        try:
            future = slot.executor.submit(
                execute_unit,
                str(self.root),
                task.specs,
                task.attempt,
                self._invocation,
                self._fingerprints_of(task),
                self._functions,
            )
        except BrokenExecutor:
            slot.lost_tasks.append(task)
            if not slot.tasks:
                self._give_up_executor(slot)
            return
        slot.tasks[future] = task
        future.add_done_callback(lambda ended: self._ended.put((slot, ended)))

    def _fingerprints_of(self, task: _Task) -> dict[str, dict[str, Any]]:
        ids = [run_id(spec) for spec in task.specs]
        return {run: self._fingerprints[run] for run in ids if run in self._fingerprints}

    def _finish_task(self, slot: _Slot, future: Future[list[Outcome]]) -> None:
        task = slot.tasks.pop(future)
        self.tally.fraction -= self._fractions.pop(future, 0.0)
        slot.alone = False
        try:
            outcomes = future.result()
        except BrokenExecutor:
            slot.lost_tasks.append(task)
        except self.engine.losses as error:
            self._worker_died(task, f"{_DEATH} ({error})")
        except (StoreError, RunnerError):
            raise
        except Exception as error:
            raise RunnerError(f"The executor gave up ({error!r}); the same command continues from here.") from error
        else:
            self._failed_starts = 0
            if "lost" in outcomes:
                self._lost(task, _DEATH)
            else:
                self._count(outcomes)
        if slot.lost_tasks and not slot.tasks:
            self._give_up_executor(slot)

    def _count(self, outcomes: list[Outcome]) -> None:
        self.tally.done += outcomes.count("done")
        self.tally.failed += outcomes.count("failed")

    def _worker_died(self, task: _Task, reason: str) -> None:
        """A task whose future says that a worker died: lost if it had begun, else started again a few times.

        Dask gives up all the tasks that a dead worker had been given, those that it had not begun too.
        """
        if self._has_begun(task):
            self._lost(task, reason)
            return
        if task.failed_starts + 1 >= _MAX_FAILED_STARTS:
            raise RunnerError(
                f"{reason}, {_MAX_FAILED_STARTS} times before it began to work; see what the workers printed."
            )
        self._put_back(replace(task, failed_starts=task.failed_starts + 1))

    def _give_up_executor(self, slot: _Slot) -> None:
        """Give up a broken executor; those of its tasks that had not begun wait for the next one."""
        lost_tasks, slot.lost_tasks = slot.lost_tasks, []
        executor, slot.executor = slot.executor, None
        slot.alone = False
        reason = _DEATH if executor is None else f"{_DEATH}{cause_of_death(executor)}"
        begun = []
        for task in reversed(lost_tasks):
            if self._has_begun(task):
                begun.append(task)
            else:
                self._put_back(task)
        self._failed_starts = 0 if begun else self._failed_starts + 1
        if self._failed_starts >= _MAX_FAILED_STARTS:
            raise RunnerError(
                f"{reason}, {_MAX_FAILED_STARTS} times before it began to work; what it printed above says why. A "
                "script that calls run_units needs `if __name__ == '__main__':` around the call."
            )
        for task in begun:
            self._lost(task, reason)

    def _has_begun(self, task: _Task) -> bool:
        return any(RunWriter(self.root, spec, task.attempt, self._invocation).was_started for spec in task.specs)

    def _lost(self, task: _Task, reason: str) -> None:
        """Try the runs of a unit whose worker died again, one by one, or record them as failed."""
        for spec in task.specs:
            state = run_state(run_directory(self.root, spec))
            if state == "done" or state == "failed":
                self._count([state])
            elif task.attempt >= TRIES:
                writer = RunWriter(self.root, spec, task.attempt, fingerprint=self._fingerprints.get(run_id(spec)))
                writer.fail(f"{reason}; it was tried {TRIES} times")
                self._count(["failed"])
            else:
                self._put_back(_Task([spec], task.attempt + 1))

    def _put_back(self, task: _Task) -> None:
        """Let a task be the next one; a retry that might kill others' worker waits until it can run alone."""
        waits = task.attempt > 1 and not self.engine.isolates
        (self._suspects if waits else self._queue).appendleft(task)

    def _watch(self) -> None:
        """Add up the finished fractions of the running units, from their progress files."""
        if time.monotonic() < self._look:
            return
        self._look = time.monotonic() + _POLL_S
        running = itertools.chain.from_iterable(slot.tasks.items() for slot in self._slots)
        self._fractions = {future: self._fraction(task) for future, task in itertools.islice(running, _WATCHED)}
        self.tally.fraction = sum(self._fractions.values())

    def _fraction(self, task: _Task) -> float:
        written: dict[str, Any] = read_json(run_directory(self.root, task.specs[0]) / PROGRESS) or {}
        return float(written.get("fraction", 0.0)) * len(task.specs)
