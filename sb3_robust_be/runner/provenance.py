"""Notes beside each result which versions and environment made it, and refuses to mix results of different ones."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sb3_robust_be.messages import warn
from sb3_robust_be.runner.specs import read_json
from sb3_robust_be.runner.store import FAILED, FINGERPRINT, RUNS, run_state
from sb3_robust_be.runner.units import RunnerError

_SHOWN = 6


class Fingerprint(NamedTuple):
    """What a run's result depends on besides its spec, such as versions, as named strings."""

    compared: dict[str, str]
    """Results that differ in one of these are not to be mixed"""
    noted: dict[str, str]
    """For readers"""


class ChangedError(RunnerError):
    """Finished runs were made by other versions or another environment than are here now."""


def check_unchanged(root: Path, fingerprints: Mapping[str, Fingerprint]) -> None:
    """Refuse to add runs to those that other versions or another environment have made.

    :param root: The folder of an experiment.
    :param fingerprints: What would make the runs now, by id.
    :raises ChangedError: if a finished run was made by something else.
    """
    changes: dict[str, None] = {}
    finished = unknown = 0
    for run, wanted in fingerprints.items():
        directory = root / RUNS / run
        found = read_fingerprint(directory)
        if found == wanted.compared or run_state(directory) != "done":
            continue
        if found is None:
            unknown += 1
        else:
            finished += 1
            changes |= dict.fromkeys(_changes(found, wanted.compared))
    if finished:
        shown = list(changes)[:_SHOWN] + ["…"] * (len(changes) > _SHOWN)
        raise ChangedError(
            f"{root} holds {finished} finished run{'s' * (finished > 1)} made with something else than is here now: "
            f"{'; '.join(shown)}. The two are not to be averaged."
        )
    if unknown:
        warn(
            f"{root} holds finished runs of an earlier version, which did not note what environment made them. They "
            "are used as they are; whether the environment is still the same cannot be checked."
        )


def forget_other_failures(root: Path, fingerprints: Mapping[str, Fingerprint]) -> None:
    """Delete recorded failures of other versions or another environment: the cause may have been mended.

    :param root: The folder of an experiment.
    :param fingerprints: What would make the runs now, by id.
    """
    for run, wanted in fingerprints.items():
        directory = root / RUNS / run
        if read_fingerprint(directory) != wanted.compared:
            (directory / FAILED).unlink(missing_ok=True)


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    names = dict.fromkeys([*old, *new])
    return [
        f"{name}: {old.get(name, 'nothing')} → {new.get(name, 'nothing')}"
        for name in names
        if old.get(name) != new.get(name)
    ]


def read_fingerprint(directory: Path) -> dict[str, str] | None:
    """Read what was noted of a run and is to be compared; ``None`` if nothing was.

    :param directory: Of a run.
    """
    written = read_json(directory / FINGERPRINT) or {}
    compared = written.get("compared")
    return compared if isinstance(compared, dict) else None


def set_aside(out: str | Path) -> Path | None:
    """Rename the folder of an experiment, so that its runs can be made anew.

    :param out: The folder, which need not exist.
    :return: Its new name, with today's date; ``None`` where there is none, or nothing in it.
    :raises RunnerError: if runs are being made in it, or the current folder is in it.
    """
    root = Path(out).absolute()
    if not root.is_dir() or not any(root.iterdir()):
        return None
    if Path.cwd().is_relative_to(root.resolve()):
        raise RunnerError(f"{out} cannot be renamed, since it holds the current folder; give another one.")
    if any(run_state(directory) == "running" for directory in (root / RUNS).glob("[!.]*")):
        raise RunnerError(f"runs are being made in {out}; stop them first, or give another folder.")
    first = root.with_name(f"{root.name}.{time.strftime('%Y-%m-%d')}")
    kept, number = first, 1
    while kept.exists():
        number += 1
        kept = first.with_name(f"{first.name}.{number}")
    os.rename(root, kept)
    return kept
