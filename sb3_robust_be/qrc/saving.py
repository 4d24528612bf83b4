"""Saves models and replay buffers by SB3's rules for paths; an old file stays until the new one is complete."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import stat
from collections.abc import Iterator

from sb3_robust_be.messages import warn
from sb3_robust_be.system import remove_stale_temporaries, replacing

SavePath = str | pathlib.Path | io.BufferedIOBase


@contextlib.contextmanager
def saving_to(path: SavePath, suffix: str, verbose: int = 0) -> Iterator[SavePath]:
    """Yield what SB3 is to write to, so that the file at a path is replaced completely or not at all.

    An existing file keeps its permissions and its owner, and a symbolic link goes on pointing at it.

    :param path: The user's: without a suffix it gets one, missing folders are created, and a stream is left alone.
    :param suffix: Of a path without any.
    :param verbose: From 2 on, say that a file is replaced.
    :raises StoreError: If it cannot be written. After this and any other error the old file is still there.
    """
    if not isinstance(path, (str, pathlib.Path)):
        yield path
        return
    target = _target(pathlib.Path(path), suffix)
    if target.exists() and not (target.is_file() and _takes_files(target.parent)):
        # A device, a pipe, or a file in a folder that takes no other: only in place.
        yield path
        return
    if target.exists():
        if verbose >= 2:
            warn(f"Path '{target}' exists, will overwrite it.")
        # A file that may not be written may not be replaced either: the system's own error.
        open(target, "r+b").close()
    elif not target.parent.exists():
        warn(f"Path '{target.parent}' does not exist. Will create it.")
        target.parent.mkdir(parents=True, exist_ok=True)
    remove_stale_temporaries(target.parent, target.name)
    with replacing(target) as stream:
        yield stream
        if target.exists():
            _take_over_rights(target, stream.fileno())


def _target(path: pathlib.Path, suffix: str) -> pathlib.Path:
    """The file that SB3 would write, links resolved."""
    if path.suffix == "":
        path = pathlib.Path(f"{path}.{suffix}")
    while path.is_dir():
        warn(f"Path '{path}' is a folder. Will save instead to {path}_2")
        path = pathlib.Path(f"{path}_2")
    return path.resolve()


def _takes_files(folder: pathlib.Path) -> bool:
    return os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _take_over_rights(old: pathlib.Path, new: int) -> None:
    if os.name == "posix":
        owner = old.stat()
        # Only the superuser can give files away.
        with contextlib.suppress(PermissionError):
            os.fchown(new, owner.st_uid, owner.st_gid)
        os.fchmod(new, stat.S_IMODE(owner.st_mode))
