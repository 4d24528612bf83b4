"""Shows how many runs are done: a progress bar in a terminal, else a line from time to time."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Self, TextIO

_TOO_LITTLE = 0.02
"""Of a run, from which the time left is not foretold"""
_LINE_EVERY_S = 10.0


@dataclass
class Tally:
    """Numbers of runs by state.

    :param fraction: The sum of the finished fractions of the runs that are being executed."""

    total: int
    done: int = 0
    failed: int = 0
    fraction: float = 0.0

    @property
    def ended(self) -> int:
        return self.done + self.failed

    @property
    def left(self) -> int:
        return self.total - self.ended


def describe(tally: Tally, before: int, elapsed_s: float) -> str:
    """The progress in words: ``12 done, 1 failed, 287 left, 4.2 runs/min, about 1 h 8 min to go``.

    :param before: Runs that had ended when the clock started.
    """
    parts = [f"{tally.done} done", f"{tally.failed} failed", f"{tally.left} left"]
    worked = tally.ended - before + tally.fraction
    # So little tells nothing of the rest: workers are starting.
    if worked > _TOO_LITTLE and elapsed_s > 0:
        rate = worked / elapsed_s
        parts.append(f"{60 * rate:.3g} runs/min")
        if tally.left:
            parts.append(f"about {_duration(max(tally.left - tally.fraction, 0.0) / rate)} to go")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


class Lines:
    """Prints the progress as a line at the start, about every ten seconds, and at the end."""

    def __init__(self, tally: Tally, stream: TextIO) -> None:
        self.tally = tally
        self._stream = stream
        self._before = tally.ended
        self._start = time.monotonic()
        self._next = self._start

    def __enter__(self) -> Self:
        self.update()
        return self

    def __exit__(self, *error: object) -> None:
        self._next = 0.0
        self.update()

    def line(self) -> str:
        return describe(self.tally, self._before, time.monotonic() - self._start)

    def update(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_EVERY_S
            print(self.line(), file=self._stream, flush=True)


class Silence(Lines):
    """Shows no progress."""

    def update(self) -> None:
        pass


class Bar(Lines):
    """Shows the progress as rich's bar, with the same line after it."""

    def __init__(self, tally: Tally, stream: TextIO, console: Any = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        super().__init__(tally, stream)
        columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=console or Console(file=stream))
        self._task = self._bar.add_task(self.line(), total=tally.total)

    def __enter__(self) -> Self:
        self._bar.start()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        self.update()
        self._bar.stop()

    def update(self) -> None:
        self._bar.update(self._task, completed=self.tally.ended + self.tally.fraction, description=self.line())


def display(tally: Tally, shown: bool, stream: TextIO | None = None) -> Lines:
    """Choose how to show the progress: a bar in a terminal with rich, else lines; on :data:`sys.stderr` by default."""
    stream = sys.stderr if stream is None else stream
    if not shown:
        return Silence(tally, stream)
    if stream.isatty() and find_spec("rich") is not None:
        return Bar(tally, stream)
    return Lines(tally, stream)
