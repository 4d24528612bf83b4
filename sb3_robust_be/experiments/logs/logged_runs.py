"""Which files are the log of one run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sb3_robust_be.experiments.logs.monitor_files import Episodes, LogError, MonitorFile, read_monitor
from sb3_robust_be.experiments.logs.scalar_files import Series, read_events, read_progress

MONITOR, PROGRESS, EVENTS = "monitor.csv", "progress.csv", "tfevents"
_RANKED = re.compile(r"(\d+)\.monitor\.csv")


class LoggedRun(NamedTuple):
    """What the log of a run has."""

    path: Path
    """The folder of its files, or its Monitor file where the folder has several runs"""
    folders: tuple[Path, ...]
    """Of its files: that of the Monitor files first, then that of the files of SB3's logger"""
    env_id: str | None
    """gymnasium's id, which only Monitor files have"""
    episodes: tuple[Episodes, ...]
    """By environment of the run, of which a ``VecEnv`` has several; empty without Monitor files"""
    series: Mapping[str, Series]
    """The entries of SB3's log over the steps; empty where only Monitor files are"""
    monitors: tuple[Path, ...] = ()
    """Its Monitor files, in the order of ``episodes``"""


class Found(NamedTuple):
    """The runs in a folder, and what is to be said of them."""

    runs: tuple[LoggedRun, ...]
    problems: tuple[str, ...]
    """A sentence for each file that could not be read"""
    notes: tuple[str, ...]
    """A sentence for each choice that was made in reading"""


def is_log(path: Path) -> bool:
    """
    :param path: Of a file.
    :return: Whether its name is one that SB3 and TensorBoard give.
    """
    return path.name.endswith(MONITOR) or path.name == PROGRESS or EVENTS in path.name


def find_runs(folder: Path) -> Found:
    """Read every run below a folder.

    Monitor files whose own name, or that of a folder below the given one, begins with "eval" are those of evaluations
    during training and left out, which a note says. Where a folder has the Monitor files and one below it those of
    SB3's logger, as of ``tensorboard_log=folder``, they are the log of one run.

    :param folder: Of one run or of many.
    :return: Its runs, in the order of their paths.
    """
    files: list[Path] = []
    notes: list[str] = []
    for here, below, names in os.walk(folder):
        below.sort()
        for path in (Path(here) / name for name in sorted(names)):
            if path.name.endswith(MONITOR) and _is_evaluation(path.relative_to(folder)):
                notes.append(f"{path} is left out as an evaluation during training; name the file itself to read it.")
            elif is_log(path):
                files.append(path)
    found = runs_of_files(files)
    return found._replace(runs=_joined(found.runs), notes=(*notes, *found.notes))


def _is_evaluation(path: Path) -> bool:
    return any(part.lower().startswith("eval") for part in path.parts)


def _joined(runs: Sequence[LoggedRun]) -> tuple[LoggedRun, ...]:
    """Runs with Monitor files only take the logger's files from below their folder, if those are of one run."""
    joined, taken = [], set()
    for run in runs:
        folder = run.folders[0]
        sharing = [other for other in runs if other.episodes and other.folders[0] == folder]
        below = [other for other in runs if not other.episodes and folder in other.path.parents]
        if run.episodes and not run.series and len(sharing) == len(below) == 1:
            taken.add(below[0].path)
            run = run._replace(folders=(folder, below[0].path), series=below[0].series)
        joined.append(run)
    return tuple(run for run in joined if run.episodes or run.path not in taken)


def runs_of_files(files: Iterable[Path]) -> Found:
    """Read the runs that files are the logs of.

    The files of a folder are one run, with three exceptions. Monitor files of several names are runs of their own.
    Those that ``make_vec_env`` numbers, ``0.monitor.csv``, ``1.monitor.csv`` …, are one run of several environments
    if they were written at the same time. And of ``progress.csv`` and event files, which say the same, one is read.

    :param files: Whose names are those that SB3 and TensorBoard give (:func:`is_log`).
    :return: The runs, in the order of their folders.
    """
    by_folder: dict[Path, list[Path]] = {}
    for path in files:
        by_folder.setdefault(path.parent, []).append(path)
    runs: list[LoggedRun] = []
    problems: list[str] = []
    notes: list[str] = []
    for folder, own in by_folder.items():
        monitors = []
        for path in sorted((path for path in own if path.name.endswith(MONITOR)), key=_rank):
            try:
                monitors.append(read_monitor(path))
            except LogError as error:
                problems.append(str(error))
        notes += [
            f"{one.path} has an incomplete last line, as of a run that was killed; it is left out."
            for one in monitors
            if one.cut_off
        ]
        series = _series_of(folder, own, problems)
        groups = _groups(monitors)
        if any(len(group) > 1 for group in groups):
            notes.append(
                f"{folder} has {len(monitors)} Monitor files that were written at the same time: they are one run of "
                "as many environments. If each is a run of its own, put each into a folder of its own."
            )
        if len(groups) == 1:
            runs.append(_run(folder, folder, groups[0], series))
        else:
            runs += [_run(group[0].path, folder, group, {}) for group in groups]
            if series:
                runs.append(_run(folder, folder, [], series))
    return Found(tuple(runs), tuple(problems), tuple(notes))


def _rank(path: Path) -> tuple[int, str]:
    number = _RANKED.fullmatch(path.name)
    return (int(number[1]) if number else -1, path.name)


def _groups(monitors: Sequence[MonitorFile]) -> list[list[MonitorFile]]:
    """The Monitor files of one folder by run."""
    ranked = [one for one in monitors if _RANKED.fullmatch(one.path.name)]
    if len(ranked) > 1 and max(one.start for one in ranked) < min(one.end for one in ranked):
        return [*([one] for one in monitors if one not in ranked), ranked]
    return [[one] for one in monitors]


def _series_of(folder: Path, files: Sequence[Path], problems: list[str]) -> dict[str, Series]:
    for kind in (PROGRESS, EVENTS):
        own = [path for path in files if kind in path.name]
        try:
            if own:
                return read_progress(own[0]) if kind == PROGRESS else read_events(folder)
        except LogError as error:
            problems.append(str(error))
    return {}


def _run(path: Path, folder: Path, monitors: Sequence[MonitorFile], series: Mapping[str, Series]) -> LoggedRun:
    env_id = next((one.env_id for one in monitors if one.env_id is not None), None)
    episodes = tuple(one.episodes for one in monitors)
    return LoggedRun(path, (folder,), env_id, episodes, series, tuple(one.path for one in monitors))
