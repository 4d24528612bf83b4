"""Writes the files of a run: its start, progress, arrays, and result or failure."""

from __future__ import annotations

import contextlib
import io
import os
import re
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from socket import gethostname
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from sb3_robust_be.messages import first_line
from sb3_robust_be.runner.specs import Spec, dumps, read_json, run_id
from sb3_robust_be.runner.store import FAILED, FINGERPRINT, PROGRESS, RESULT, SPEC, STARTED, run_directory
from sb3_robust_be.system import is_storage_trouble, remove_stale_temporaries, store_error, write_atomically

_REPORT_EVERY_S = 1.0


class RunWriter:
    """The files of one run, for the function that executes it.

    A function ends each of its runs with :meth:`finish` or :meth:`fail`, in any order and at any time.

    :param attempt: 1, or 2 for the retry after a worker died.
    :param invocation: A token of the call of :func:`~sb3_robust_be.runner.run.run_units` it belongs to.
    :param fingerprint: What ``fingerprint.json`` is to say; ``None``: nothing is known.
    """

    def __init__(
        self,
        out: str | Path,
        spec: Spec,
        attempt: int = 1,
        invocation: str = "",
        fingerprint: dict[str, Any] | None = None,
    ) -> None:
        self.spec = spec
        self.id = run_id(spec)
        #: Where further files of the run may be put, such as ``monitor.csv``.
        self.directory = run_directory(out, spec)
        self.ended: Literal["done", "failed"] | None = None
        self._attempt = attempt
        self._invocation = invocation
        self._fingerprint = fingerprint

    def start(self, unit: str) -> None:
        """Write the files that mark a run as started.

        :param unit: The id of the unit's first run, which holds the progress of all.
        """
        self._create()
        remove_stale_temporaries(self.directory)
        started = {
            "attempt": self._attempt,
            "host": gethostname(),
            "pid": os.getpid(),
            "time": time.time(),
            "invocation": self._invocation,
            "unit": unit,
        }
        self._write_json(STARTED, started, durable=False)

    def _create(self) -> None:
        try:
            self.directory.mkdir(exist_ok=True)
        except OSError as error:
            raise store_error(error, self.directory) from error
        self._write_json(SPEC, self.spec)
        if self._fingerprint is not None:
            self._write_json(FINGERPRINT, self._fingerprint)
        else:  # Not that of an earlier attempt.
            (self.directory / FINGERPRINT).unlink(missing_ok=True)

    @property
    def was_started(self) -> bool:
        """Whether this attempt has begun already in this call of the runner, here or in a worker that has died."""
        started = read_json(self.directory / STARTED) or {}
        return (started.get("invocation"), started.get("attempt")) == (self._invocation, self._attempt)

    def write_arrays(self, name: str, /, **arrays: ArrayLike) -> None:
        """Write ``NAME.npz``, atomically; read it with :func:`~sb3_robust_be.runner.store.load_arrays`.

        :raises ValueError: if an array holds Python objects or the name is no plain name.
        """
        self._check_open()
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) is None:
            raise ValueError(f"name is {name!r}; give letters, digits, '_' and '-'.")
        solid = {key: np.asarray(array) for key, array in arrays.items()}
        for key, array in solid.items():
            if array.dtype.hasobject:
                raise ValueError(f"{key} holds Python objects (dtype {array.dtype}); give numbers, bools or strings.")
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **solid)  # type: ignore[arg-type]
        write_atomically(self.directory / f"{name}.npz", buffer.getvalue())

    def finish(self, result: dict[str, Any]) -> None:
        """Write ``result.json``: the run is done.

        :param result: JSON values; numpy's numbers and arrays are converted, NaN and infinities kept.
        """
        self._check_open()
        if not isinstance(result, dict):
            raise TypeError(f"result is {result!r}; give a dict.")
        self._write_json(RESULT, result)
        self.ended = "done"
        with contextlib.suppress(OSError):
            (self.directory / FAILED).unlink(missing_ok=True)

    def fail(self, error: BaseException | str, trace: str = "") -> None:
        """Write ``failed.json``: the run has failed.

        :param error: The exception, with its traceback, or what went wrong in words.
        :param trace: A traceback that belongs to the words.
        :raises StoreError: if the error is the disk's (full, read-only): the run is then not failed but unfinished.
        """
        self._check_open()
        if isinstance(error, OSError) and is_storage_trouble(error):
            raise store_error(error, Path(error.filename or self.directory)) from error
        text = str(error)
        if isinstance(error, BaseException):
            trace = "".join(traceback.format_exception(error))
            text = first_line(error)
        if not self.directory.exists():  # The worker died before it began.
            self._create()
        record = {"error": text, "traceback": trace, "attempt": self._attempt, "host": gethostname()}
        self._write_json(FAILED, record)
        self.ended = "failed"

    def _check_open(self) -> None:
        if self.ended is not None:
            raise RuntimeError(f"run {self.id} has ended ({self.ended}); nothing more can be written to it.")

    def _write_json(self, name: str, value: dict[str, Any], durable: bool = True) -> None:
        write_atomically(self.directory / name, dumps(value, name).encode("ascii") + b"\n", durable)


class ProgressFile:
    """``report_progress`` of a unit: call it with the finished fraction, as often as you like.

    :param writers: The unit's; the file lies with the first.
    """

    def __init__(self, writers: Sequence[RunWriter]) -> None:
        self.path = writers[0].directory / PROGRESS
        self._next = 0.0

    def __call__(self, fraction: float) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _REPORT_EVERY_S
        data = dumps({"fraction": min(max(float(fraction), 0.0), 1.0)}, "progress").encode("ascii")
        # The run matters more than its progress.
        with contextlib.suppress(OSError):
            write_atomically(self.path, data, durable=False)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
