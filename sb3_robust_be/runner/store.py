"""The folder of an experiment: one directory per run, whose files alone say what is done.

``OUT/runs/<id>/`` holds ``spec.json``, ``fingerprint.json`` (what made the run besides its spec, such as versions),
``started.json`` (attempt, host, process, time of the last start), the run's own files such as ``curve.npz`` and
``monitor.csv``, and at the end ``result.json``, or ``failed.json`` with the traceback. ``result.json`` is written last
and atomically: its presence means done.
"""

from __future__ import annotations

import datetime
import os
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from socket import gethostname
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be.runner.specs import Spec, read_json, run_id
from sb3_robust_be.system import store_error

RUNS = "runs"
SPEC, FINGERPRINT, STARTED, PROGRESS, RESULT, FAILED = (
    f"{name}.json" for name in ("spec", "fingerprint", "started", "progress", "result", "failed")
)
_SILENCE_S = 600.0

State = Literal["done", "failed", "running", "left"]


class Counts(NamedTuple):
    """How many runs are in which state."""

    done: int
    failed: int
    running: int
    left: int


def run_directory(out: str | Path, spec: Spec) -> Path:
    """The directory of a run."""
    return Path(out) / RUNS / run_id(spec)


def prepare(out: str | Path) -> Path:
    """Make the folder of an experiment where it is missing, try to write into it, and return its absolute path.

    :raises StoreError: if it cannot be written.
    """
    root = Path(out).absolute()
    probe = root / RUNS / f".{uuid.uuid4().hex}.tmp"
    try:
        probe.parent.mkdir(parents=True, exist_ok=True)
        try:
            probe.write_bytes(b"probe")
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise store_error(error, root) from error
    return root


def run_state(directory: Path) -> State:
    """Tell from its files whether a run is done, failed or neither; a damaged ``result.json`` counts as none.

    A run is ``"running"`` if it was started, has not ended, and its process is alive; a process on another machine is
    taken for alive if it started or reported progress within the last ten minutes.
    """
    if read_json(directory / RESULT) is not None:
        return "done"
    if read_json(directory / FAILED) is not None:
        return "failed"
    started = read_json(directory / STARTED)
    return "running" if started is not None and _alive(directory, started) else "left"


def _alive(directory: Path, started: dict[str, Any]) -> bool:
    # On Windows os.kill(pid, 0) is no question but a Ctrl-C.
    if started.get("host") == gethostname() and os.name == "posix":
        return _process_lives(int(started["pid"]))
    signs = (directory / STARTED, directory.parent / str(started.get("unit")) / PROGRESS)
    return any(sign.exists() and time.time() - sign.stat().st_mtime < _SILENCE_S for sign in signs)


def _process_lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:  # In a container without an init process, the dead stay as zombies.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return True


def status(out: str | Path, specs: Iterable[Spec]) -> Counts:
    """Count the runs by state, from the files alone; a run that is given twice counts once."""
    directories = {run_directory(out, spec) for spec in specs}
    states = [run_state(directory) for directory in directories]
    return Counts(*(states.count(name) for name in ("done", "failed", "running", "left")))


def load_results(out: str | Path, specs: Iterable[Spec]) -> list[dict[str, Any] | None]:
    """Read the result of every run, in the order of ``specs``; ``None`` for a run that is not done."""
    return [read_json(run_directory(out, spec) / RESULT) for spec in specs]


def load_failures(out: str | Path, specs: Iterable[Spec]) -> list[dict[str, Any] | None]:
    """``{"error": first line, "traceback": …, "attempt": …, "host": …}`` of failed runs; ``None`` for the others."""
    directories = [run_directory(out, spec) for spec in specs]
    return [None if read_json(path / RESULT) is not None else read_json(path / FAILED) for path in directories]


def load_arrays(out: str | Path, spec: Spec, name: str = "curve") -> dict[str, NDArray[Any]]:
    """Read the arrays of a run's ``NAME.npz``.

    :raises FileNotFoundError: if the run has no such file.
    :raises ValueError: if the file holds Python objects or is damaged: arrays are never unpickled.
    """
    with np.load(run_directory(out, spec) / f"{name}.npz", allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


def load_origin(out: str | Path, spec: Spec) -> tuple[dict[str, str], str]:
    """What was noted when a run was started, and the date of that day, ``YYYY-MM-DD``; empty where it is not known."""
    directory = run_directory(out, spec)
    noted = (read_json(directory / FINGERPRINT) or {}).get("noted", {})
    started = read_json(directory / STARTED)
    date = datetime.date.fromtimestamp(started["time"]).isoformat() if started else ""
    return noted, date
