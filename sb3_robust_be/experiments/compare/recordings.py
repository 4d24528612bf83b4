"""Runs that the user has made elsewhere, read from SB3's Monitor files, as a baseline that needs no training."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sb3_robust_be.experiments.control.training import CURVE_POINTS
from sb3_robust_be.experiments.logs import LoggedRun, runs_of_files
from sb3_robust_be.experiments.logs.logged_runs import MONITOR
from sb3_robust_be.experiments.plot.run_measures import EPISODES, curve_of, final_of, steps_of

RECORDED = "recorded"
"""The recordings' name beside the algorithms"""


class Recordings(NamedTuple):
    """Recorded runs by the measures of those that are trained; the first axis is the runs."""

    paths: list[str]
    finals: np.ndarray
    """Returns over the last quarter of the steps, shape (runs,)"""
    curves: np.ndarray
    """Shape (runs, points); NaN after a recording's end"""
    notes: list[str]
    """What there is to be said of them"""


def find_recordings(patterns: Sequence[str]) -> tuple[list[LoggedRun], list[str]]:
    """Read Monitor files.

    :param patterns: Of paths, as ``logs/dqn/*/monitor.csv``; ``**`` stands for any folders.
    :return: The runs, and sentences on how they were read.
    :raises ValueError: Where a pattern has no file, or a file is not whole and SB3's.
    """
    files: list[Path] = []
    for pattern in patterns:
        found = sorted(path for path in map(Path, glob.glob(pattern, recursive=True)) if path.is_file())
        if not found:
            raise ValueError(
                f"--baseline-monitor {pattern!r} matches no file; give Monitor files of SB3, one for each seed, as "
                "'logs/dqn/*/monitor.csv'."
            )
        files += found
    for path in files:
        if not path.name.endswith(MONITOR):
            raise ValueError(
                f"--baseline-monitor has {path}, which is no Monitor file of SB3 by its name; these end in {MONITOR}."
            )
    read = runs_of_files(dict.fromkeys(files))
    if read.problems:
        raise ValueError(f"--baseline-monitor: {read.problems[0]}")
    return list(read.runs), list(read.notes)


def measure_recordings(runs: Sequence[LoggedRun], steps: int, env_id: str) -> Recordings:
    """Measure recordings as runs of so many steps.

    A longer recording is cut, and a shorter one measured over its own last quarter. Of a run in several environments
    each has its part of the steps, and the measures are means over them.

    :param runs: Of :func:`find_recordings`.
    :param steps: Of the runs that they are compared with.
    :param env_id: Where these are trained.
    """
    points = min(CURVE_POINTS, steps)
    # Of fewer steps than points there is a point for each step, which that curve repeats.
    shown = -(-np.arange(points) * CURVE_POINTS // points)
    lengths = [steps_of(run, EPISODES) for run in runs]
    finals = [final_of(run, EPISODES, min(steps, length)) for run, length in zip(runs, lengths, strict=True)]
    curves = [curve_of(run, EPISODES, steps)[shown] for run in runs]
    notes = _on_lengths(runs, lengths, steps)
    others = {run.env_id for run in runs if run.env_id not in (None, env_id.rpartition(":")[2])}
    if others:
        notes.append(f"Warning: recordings are of {', '.join(sorted(map(str, others)))}, and the runs of {env_id}.")
    # The folder stands for several files of one run only.
    paths = [str(run.monitors[0] if len(run.monitors) == 1 else run.path) for run in runs]
    return Recordings(paths, np.array(finals), np.array(curves), notes)


def _on_lengths(runs: Sequence[LoggedRun], lengths: Sequence[int], steps: int) -> list[str]:
    """What differs from the trained runs. The episode in which a recording stopped is not in its file."""
    longest = [max(int(one.lengths.max()) for one in run.episodes) for run in runs]
    longer = [n for n in lengths if n > steps]
    # Less than an episode is missing from every recording.
    shorter = [n for n, episode in zip(lengths, longest, strict=True) if n + episode < steps]
    notes = []
    if longer:
        most = f"{min(longer)} to {max(longer)}" if min(longer) < max(longer) else f"{longer[0]}"
        notes.append(
            f"{len(longer)} of {len(lengths)} recordings are longer ({most} steps) and are cut to {steps} steps."
        )
    if shorter:
        most = f"{min(shorter)} to {max(shorter)}" if min(shorter) < max(shorter) else f"{shorter[0]}"
        notes.append(
            f"Warning: {len(shorter)} of {len(lengths)} recordings end before {steps} steps (after {most}): each is "
            f"measured over the last quarter of its own; --steps {min(shorter)} would compare equal lengths."
        )
    return notes
