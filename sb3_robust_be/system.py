"""Files that are written completely or not at all, processor cores, free memory, and delaying Ctrl-C."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import glob
import io
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_STALE_S = 3600.0


class StoreError(OSError):
    """The folder cannot be written: full, read-only or gone. What was complete in it is untouched."""


def store_error(error: OSError, path: Path) -> StoreError:
    """Turn an error of the disk into one that names the path and the remedy."""
    if isinstance(error, StoreError):
        return error
    full = error.errno in _FULL
    remedy = "free some space or raise the limit" if full else "make the folder writable or choose another"
    return StoreError(error.errno, f"{error.strerror or error}; {remedy}, then run the same again", str(path))


def is_storage_trouble(error: OSError) -> bool:
    """Whether an error is the disk's and not the run's: it would strike every other run as well."""
    return isinstance(error, StoreError) or error.errno in (*_FULL, errno.EROFS)


def write_atomically(path: Path, data: bytes, durable: bool = True) -> None:
    """Replace a file by ``data`` at once.

    :param durable: Whether to wait until the disk has it.
    :raises StoreError: if that is impossible; the old file is then still there.
    """
    with replacing(path, durable) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path: Path, durable: bool = True) -> Iterator[io.BufferedWriter]:
    """Replace a file at once by what is written: a temporary file beside it, ``os.replace``, each with fsync.

    :param path: The file, which need not exist.
    :param durable: Whether to wait until the disk has it.
    :raises StoreError: if that is impossible. After this and any other error the old file is still there.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        # Not the tempfile module's: its files are private, and results on a shared file system are not.
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if durable:
            _sync_folder(path.parent)
    except OSError as error:
        raise store_error(error, path) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return  # Windows opens no folders.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_stale_temporaries(folder: Path, name: str | None = None, older_than: float = _STALE_S) -> None:
    """Delete what writers killed in the middle have left; a file that is still being written is younger.

    :param name: Of the file that was to be replaced; ``None``: any.
    :param older_than: Seconds; less than none where nobody writes any more.
    """
    for path in folder.glob(".*.tmp" if name is None else f".{glob.escape(name)}.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > older_than:
                path.unlink()


def available_cores() -> int:
    """How many processor cores this process may use, where the system tells; else all."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@functools.cache
def _malloc_trim() -> Callable[[Any], int] | None:
    """glibc's function; ``None`` with another C library."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


def return_free_memory() -> None:
    """Give what is free of the process's memory back to the operating system, where the C library is glibc.

    Large tensors that come and go between blocks that stay for an episode, as those of Box2D's worlds, leave holes
    which glibc does not give back by itself: ten agents of Lunar Lander had 149 MB in use after 5600 steps, and 365 MB
    of holes. A process that trained three such populations one after another had grown to 12 GB.
    """
    if (trim := _malloc_trim()) is not None:
        trim(ctypes.c_size_t(0))


@contextlib.contextmanager
def on_ctrl_c(handler: Any) -> Iterator[Any]:
    """Replace the handler of SIGINT within the context, which yields the usual one; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield before
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def ctrl_c_later() -> Iterator[None]:
    """Delay Ctrl-C to the end of the context, so that what is done in it is done completely."""
    caught: list[Any] = []
    with on_ctrl_c(lambda *signal_and_frame: caught.append(signal_and_frame)) as usual:
        yield
    if caught and callable(usual):
        usual(*caught[0])
