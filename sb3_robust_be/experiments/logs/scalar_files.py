"""Reads what SB3's logger writes over time: progress.csv and TensorBoard's event files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sb3_robust_be.evaluation.sample_checks import Floats
from sb3_robust_be.experiments.logs.monitor_files import LogError, read_text

STEPS = "time/total_timesteps"
"""The entry of SB3's logger that says how many steps the agent has made"""


class Series(NamedTuple):
    """One entry of the log over a run, at growing steps."""

    steps: Floats
    """Of the agent, shape (records,)"""
    values: Floats
    """Finite, shape (records,)"""

    def at(self, steps: Floats) -> Floats:
        """
        :param steps: Any, shape (points,).
        :return: The values there, linear between two records, NaN before the first and after the last.
        """
        return np.interp(steps, self.steps, self.values, left=np.nan, right=np.nan)


def read_progress(path: Path) -> dict[str, Series]:
    """Read a file that SB3's logger has written with ``configure(folder, ["csv"])``.

    :param path: Of ``progress.csv``. An incomplete last line, as of a run that was killed, is left out.
    :return: Every numeric entry of the log by its name, as ``"rollout/ep_rew_mean"``.
    :raises LogError: For an empty file, one that is not of SB3's logger, and one without numbers.
    """
    text = read_text(path)
    try:
        header, *rows = csv.reader(io.StringIO(text))
    except csv.Error as error:
        raise LogError(f"{path} is not a progress.csv of SB3: {error}.") from error
    if STEPS not in header:
        raise LogError(f"{path} is not a progress.csv of SB3: it has no column {STEPS}.")
    records: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        # Only of a killed run's last line cells are missing.
        cells = dict(zip(header, row, strict=False)) if len(row) == len(header) else {}
        step = _number(cells.get(STEPS, ""))
        for name, cell in cells.items():
            value = _number(cell)
            if step is not None and value is not None:
                records.setdefault(name, []).append((step, value))
    return _series(path, records)


def read_events(folder: Path) -> dict[str, Series]:
    """Read TensorBoard's event files of one run by its own reader.

    :param folder: With the files; what TensorBoard calls a run.
    :return: Every scalar by its name, as ``"rollout/ep_rew_mean"``.
    :raises LogError: Without the package ``tensorboard``, and if there are no scalars.
    """
    try:
        from tensorboard.backend.event_processing import event_accumulator
    except ModuleNotFoundError as error:
        raise LogError(
            f'{folder} has event files, for which tensorboard is needed: pip install "sb3-robust-be[report]".'
        ) from error
    # 0: every record, not a random sample of them.
    reader = event_accumulator.EventAccumulator(str(folder), size_guidance={event_accumulator.SCALARS: 0})
    try:
        reader.Reload()
    except (OSError, ValueError) as error:
        raise LogError(f"{folder} has event files that TensorBoard cannot read: {error}") from error
    return _series(
        folder,
        {name: [(event.step, event.value) for event in reader.Scalars(name)] for name in reader.Tags()["scalars"]},
    )


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _series(path: Path, records: Mapping[str, Iterable[tuple[float, float]]]) -> dict[str, Series]:
    found = {}
    for name, own in records.items():
        # Of several records at a step the last one stays: EvalCallback makes SB3 write lines between its own.
        steps, values = np.array(sorted(dict(own).items()), dtype=np.float64).reshape(-1, 2).T
        finite = np.isfinite(values)
        if finite.any():
            found[name] = Series(steps[finite], values[finite])
    if not found:
        raise LogError(f"{path} has no numbers.")
    return found
