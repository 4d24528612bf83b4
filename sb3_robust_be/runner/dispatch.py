"""Hands units to the executors of an engine, and sorts out what became of them."""

from __future__ import annotations

import contextlib
import itertools
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
from sb3_robust_be.system import StoreError

TRIES = 2
_STILLBIRTHS = 3
_POLL_S = 1.0
_WATCHED = 256
_DEATH = "the worker died"


@dataclass(frozen=True)
class _Task:
    """:param stillbirths: How often its worker died before the unit began, where the engine tells of each alone."""

    specs: list[Spec]
    attempt: int = 1
    stillbirths: int = 0


@dataclass(eq=False)
class _Slot:
    """An executor and what is in it.

    :param casualties: Tasks whose futures say that the executor is broken.
    :param alone: Whether its one task must have no company.
    """

    executor: Executor | None = None
    tasks: dict[Future[list[Outcome]], _Task] = field(default_factory=dict)
    casualties: list[_Task] = field(default_factory=list)
    alone: bool = False


class Dispatcher:
    """A context that ends its executors when it is left: gently after :meth:`run`, at once after an exception.

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
        self._stillbirths = 0
        self._fractions: dict[Future[list[Outcome]], float] = {}
        self._look = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        executors = [slot.executor for slot in self._slots if slot.executor is not None]
        try:
            for executor in executors:
                if kind is None:
                    executor.shutdown()
                else:
                    self.engine.stop(executor)
        finally:
            self.engine.close()

    def run(self, show: Callable[[], None]) -> None:
        """Until every run has ended; ``show`` is called at least once a second, save in a serial engine."""
        self._fill()
        while any(slot.tasks for slot in self._slots):
            with contextlib.suppress(Empty):
                self._settle(*self._ended.get(timeout=_POLL_S))
            self._fill()
            self._watch()
            show()

    def _fill(self) -> None:
        for slot in self._slots:
            while (task := self._next(slot)) is not None:
                self._submit(slot, task)

    def _next(self, slot: _Slot) -> _Task | None:
        capacity = self.engine.capacity
        if slot.alone or slot.casualties or (capacity is not None and len(slot.tasks) >= capacity):
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
                self._of(task),
                self._functions,
            )
        except BrokenExecutor:
            slot.casualties.append(task)
            if not slot.tasks:
                self._bury(slot)
            return
        slot.tasks[future] = task
        future.add_done_callback(lambda ended: self._ended.put((slot, ended)))

    def _of(self, task: _Task) -> dict[str, dict[str, Any]]:
        ids = [run_id(spec) for spec in task.specs]
        return {run: self._fingerprints[run] for run in ids if run in self._fingerprints}

    def _settle(self, slot: _Slot, future: Future[list[Outcome]]) -> None:
        task = slot.tasks.pop(future)
        self.tally.fraction -= self._fractions.pop(future, 0.0)
        slot.alone = False
        try:
            outcomes = future.result()
        except BrokenExecutor:
            slot.casualties.append(task)
        except self.engine.losses as error:
            self._killed(task, f"{_DEATH} ({error})")
        except (StoreError, RunnerError):
            raise
        except Exception as error:
            raise RunnerError(f"The executor gave up ({error!r}); the same command continues from here.") from error
        else:
            self._stillbirths = 0
            if "lost" in outcomes:
                self._lost(task, _DEATH)
            else:
                self._count(outcomes)
        if slot.casualties and not slot.tasks:
            self._bury(slot)

    def _count(self, outcomes: list[Outcome]) -> None:
        self.tally.done += outcomes.count("done")
        self.tally.failed += outcomes.count("failed")

    def _killed(self, task: _Task, reason: str) -> None:
        """Dask gives up all that a dead worker was about to do as well."""
        if self._has_begun(task):
            self._lost(task, reason)
            return
        if task.stillbirths + 1 >= _STILLBIRTHS:
            raise RunnerError(f"{reason}, {_STILLBIRTHS} times before it began to work; see what the workers printed.")
        self._put_back(replace(task, stillbirths=task.stillbirths + 1))

    def _bury(self, slot: _Slot) -> None:
        """Give up a broken executor; its tasks that had not begun go back to where they came from."""
        casualties, slot.casualties = slot.casualties, []
        executor, slot.executor = slot.executor, None
        slot.alone = False
        reason = _DEATH if executor is None else f"{_DEATH}{cause_of_death(executor)}"
        begun = []
        for task in reversed(casualties):
            if self._has_begun(task):
                begun.append(task)
            else:
                self._put_back(task)
        self._stillbirths = 0 if begun else self._stillbirths + 1
        if self._stillbirths >= _STILLBIRTHS:
            raise RunnerError(
                f"{reason}, {_STILLBIRTHS} times before it began to work; what it printed above says why. A script "
                "that calls run_units needs `if __name__ == '__main__':` around the call."
            )
        for task in begun:
            self._lost(task, reason)

    def _has_begun(self, task: _Task) -> bool:
        return any(RunWriter(self.root, spec, task.attempt, self._invocation).was_started for spec in task.specs)

    def _lost(self, task: _Task, reason: str) -> None:
        """Runs of a unit whose worker died are tried again one by one, or recorded as failed."""
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
        """To the head of the queue; a retry that might harm others waits until it can be alone."""
        waits = task.attempt > 1 and not self.engine.isolates
        (self._suspects if waits else self._queue).appendleft(task)

    def _watch(self) -> None:
        """What the running units have done, from their progress files."""
        if time.monotonic() < self._look:
            return
        self._look = time.monotonic() + _POLL_S
        running = itertools.chain.from_iterable(slot.tasks.items() for slot in self._slots)
        self._fractions = {future: self._fraction(task) for future, task in itertools.islice(running, _WATCHED)}
        self.tally.fraction = sum(self._fractions.values())

    def _fraction(self, task: _Task) -> float:
        written: dict[str, Any] = read_json(run_directory(self.root, task.specs[0]) / PROGRESS) or {}
        return float(written.get("fraction", 0.0)) * len(task.specs)
