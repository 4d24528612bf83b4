"""Reads the files that SB3's ``Monitor`` writes: a line per episode of one environment."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sb3_robust_be.evaluation.sample_checks import Floats
from sb3_robust_be.messages import first_line


class LogError(ValueError):
    """A log that cannot be read; the message names the file and what is wrong with it."""


class Episodes(NamedTuple):
    """The finished episodes of one environment, in order."""

    lengths: np.ndarray
    """In steps, shape (episodes,)"""
    returns: Floats
    """Undiscounted, shape (episodes,)"""

    @property
    def steps(self) -> int:
        """The steps of all of them. What a run did after its last episode had ended, no Monitor file says."""
        return int(self.lengths.sum())

    def until(self, steps: int) -> Episodes:
        """The episodes that began before a step, as functions of :mod:`~sb3_robust_be.evaluation.returns` take them.

        Of one that ended later, the steps before that one are left, each of which has the return of the whole episode.

        :param steps: The length at which the run is cut.
        """
        starts = np.cumsum(self.lengths) - self.lengths
        begun = starts < steps
        return Episodes(np.minimum(self.lengths, steps - starts)[begun], self.returns[begun])


class MonitorFile(NamedTuple):
    """One Monitor file."""

    path: Path
    env_id: str | None
    """gymnasium's id; ``None`` where the header has none"""
    episodes: Episodes
    start: float
    """When the environment was made, in seconds since 1970"""
    end: float
    """When its last episode ended, likewise"""
    cut_off: bool
    """Whether the last line was incomplete, as of a run that was killed, and has been left out"""


def read_monitor(path: Path) -> MonitorFile:
    """Read a file that SB3's ``Monitor`` has written.

    :param path: As ``monitor.csv`` or ``0.monitor.csv``.
    :return: Its episodes; an incomplete last line is left out and told.
    :raises LogError: For an empty file, one in which no episode has ended, and one that is not of ``Monitor``.
    """
    header, *lines = read_text(path).splitlines()
    try:
        about = json.loads(header.removeprefix("#")) if header.startswith("#") else None
    except json.JSONDecodeError:
        about = None
    columns = next(csv.reader(lines[:1]), [])
    if not isinstance(about, Mapping) or not {"r", "l", "t"} <= set(columns):
        raise LogError(
            f"{path} is not a file of SB3's Monitor: its first two lines should be like "
            f'#{{"t_start": 0.0, "env_id": "CartPole-v1"}} and r,l,t, and it begins with {header[:60]!r}.'
        )
    rows, cut_off = _rows(path, columns, lines[1:])
    if not rows:
        raise LogError(f"{path} has no episode that ended.")
    start = about.get("t_start", 0.0)
    start = float(start) if isinstance(start, int | float) else 0.0
    env_id = about.get("env_id")
    returns, lengths, times = np.array(rows, dtype=np.float64).T
    return MonitorFile(
        path=path,
        # SB3 writes the text None where an environment was not made by gymnasium.make.
        env_id=None if env_id in (None, "None") else str(env_id),
        episodes=Episodes(lengths.astype(np.int64), returns),
        start=start,
        end=start + float(times[-1]),
        cut_off=cut_off,
    )


def read_text(path: Path) -> str:
    """
    :param path: Of a log.
    :return: What is in it.
    :raises LogError: If it is empty, no text, or cannot be opened.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise LogError(f"{path} is not a text file.") from error
    except OSError as error:
        raise LogError(f"{path} cannot be read: {error.strerror or first_line(error)}.") from error
    if not text.strip():
        raise LogError(f"{path} is empty.")
    return text


def _rows(path: Path, columns: Sequence[str], lines: Sequence[str]) -> tuple[list[tuple[float, ...]], bool]:
    """Return, length and time of each episode, and whether an incomplete last line was left out."""
    rows: list[tuple[float, ...]] = []
    for number, cells in enumerate(csv.reader(lines), start=1):
        row = _numbers(dict(zip(columns, cells, strict=False)) if len(cells) == len(columns) else {})
        if row is None and number == len(lines):
            return rows, True
        if row is None or not all(map(math.isfinite, row)) or row[1] < 1 or row[1] % 1:
            raise LogError(
                f"{path} has {','.join(cells)!r} for episode {number}; a finite return, a whole length of at least 1 "
                "and a time were expected."
            )
        rows.append(row)
    return rows, False


def _numbers(cells: Mapping[str, str]) -> tuple[float, ...] | None:
    try:
        return tuple(float(cells[key]) for key in ("r", "l", "t"))
    except (KeyError, ValueError):
        return None
