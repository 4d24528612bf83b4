"""Finished runs of other folders: the same run need not be made twice."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from sb3_robust_be.runner.provenance import Fingerprint, read_fingerprint
from sb3_robust_be.runner.specs import Spec, run_id
from sb3_robust_be.runner.store import RUNS, prepare, run_directory, run_state
from sb3_robust_be.system import store_error


def reuse_runs(
    out: str | Path, specs: Iterable[Spec], folders: Iterable[Path], fingerprints: Mapping[str, Fingerprint]
) -> dict[Path, int]:
    """Copy finished runs from other folders into one that does not have them.

    A run is the same if it has the same spec and the same fingerprint. What has been begun in the folder stays as it
    is.

    :param out: The folder.
    :param specs: Of the runs that are wanted there.
    :param folders: Of other runs.
    :param fingerprints: What would make the runs now, by id; runs without one are not copied.
    :return: How many have been copied, by the folder that they are from.
    :raises StoreError: if the folder cannot be written.
    """
    root = prepare(out)
    others = [folder.absolute() for folder in folders if folder.absolute() != root]
    copied: dict[Path, int] = {}
    for spec in specs:
        run, directory = run_id(spec), run_directory(root, spec)
        wanted = fingerprints.get(run)
        if wanted is None or directory.exists():
            continue
        for folder in others:
            if (files := _finished(folder / RUNS / run, wanted)) is not None:
                _write(files, directory, root)
                copied[folder] = copied.get(folder, 0) + 1
                break
    return copied


def _finished(directory: Path, wanted: Fingerprint) -> dict[str, bytes] | None:
    """The files of a finished run with that fingerprint; ``None`` where there is none, or it cannot be read."""
    try:
        if not directory.is_dir() or run_state(directory) != "done" or read_fingerprint(directory) != wanted.compared:
            return None
        return {path.name: path.read_bytes() for path in directory.iterdir()}
    except OSError:
        return None


def _write(files: Mapping[str, bytes], directory: Path, root: Path) -> None:
    """All files or none: what is half written has another name."""
    temporary = directory.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        temporary.mkdir()
        for name, data in files.items():
            (temporary / name).write_bytes(data)
        os.rename(temporary, directory)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        if not directory.exists():  # else another shard has been quicker
            raise store_error(error, root) from error
