"""From what is typed, folders and ``LABEL=PATTERN``, to runs by label."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sb3_robust_be import registry
from sb3_robust_be.experiments.logs import Found, LoggedRun, find_runs, is_log, runs_of_files
from sb3_robust_be.experiments.setting_text import shown
from sb3_robust_be.runner.specs import read_json
from sb3_robust_be.runner.store import RUNS, SPEC

LOGS = "monitor.csv, N.monitor.csv, progress.csv or event files of TensorBoard"
_NUMBERED = re.compile(r"(.+)_\d+")
# Lower case; by their names in files and by those of their classes, as SB3's TensorBoard folders have them.
_ALGORITHMS = {name: name for name in registry.names()} | {
    entry.class_name.lower(): name for name, entry in registry.ENTRIES.items()
}


class Labelled(NamedTuple):
    """Runs by label, and what is to be said of them."""

    runs: dict[str, list[LoggedRun]]
    problems: list[str]
    """A sentence for each thing that was asked for and could not be read"""
    notes: list[str]
    """A sentence for each choice that was made in reading"""


class _Named(NamedTuple):
    label: str
    owner: str
    """The folder that a label was read off; empty for one that was given"""
    run: LoggedRun
    spec: Mapping[str, Any]
    """Of :func:`_spec`"""


def labelled_runs(arguments: Sequence[str]) -> Labelled:
    """Read the logs and find a label for each run.

    :param arguments: Folders, files or patterns, as they are or as ``LABEL=PATTERN``. A label that is given again has
        the runs of both patterns.
    :return: At least one run, or problems.
    :raises ValueError: For an argument whose label or pattern is empty.
    """
    named: list[_Named] = []
    problems: list[str] = []
    notes: list[str] = []
    given: set[str] = set()
    for argument in arguments:
        label, pattern = split_label(argument)
        if label is not None and label in given:
            notes.append(f"{label} is given more than once: it has the runs of all its patterns.")
        given |= {label} if label is not None else set()
        for root, found in _found(pattern, problems):
            problems += found.problems
            notes += found.notes
            for run in found.runs:
                given_or_read = (label, "") if label is not None else (label_of(run, root), _owner(run, root))
                named.append(_Named(*given_or_read, run, _spec(run)))
    named = _apart_by_setting(_apart_by_algorithm(named), notes)
    return Labelled(_by_label(named, notes), list(dict.fromkeys(problems)), list(dict.fromkeys(notes)))


def split_label(argument: str) -> tuple[str | None, str]:
    """
    :param argument: As ``dqn=logs/dqn/*``, or without a label.
    :return: The label, ``None`` where there is none, and the pattern.
    :raises ValueError: If one of them is empty.
    """
    label, sign, pattern = argument.partition("=")
    if not sign or Path(argument).exists():
        return None, argument
    if not label.strip() or not pattern.strip():
        raise ValueError(f"{argument!r} has an empty label or pattern; write LABEL=PATTERN, as dqn='logs/dqn/*'.")
    return label.strip(), pattern.strip()


def label_of(run: LoggedRun, root: Path) -> str:
    """The label of a run that is given none: its algorithm where that is told, else the name of the folder.

    The runs of ``compare`` and of experiments have a ``spec.json`` that tells it. rl_zoo3's folders are
    ``ALGO/ENV_N``, those of SB3's ``tensorboard_log`` are ``NAME_N``; else a folder that has the name of one of our
    algorithms tells it, the innermost first.

    :param run: Any.
    :param root: The folder that was asked for.
    """
    if (stated := _stated_algorithm(run)) is not None:
        return stated
    for folder in run.folders:
        if any(folder.glob("*/args.yml")):
            return _algorithm(folder.parent.name) or folder.parent.name
    for folder in run.folders:
        # What a user's home is called tells nothing.
        parts = folder.relative_to(root.parent).parts if folder.is_absolute() else folder.parts
        for part in reversed(parts):
            if (known := _algorithm(part)) is not None:
                return known
    numbered = _NUMBERED.fullmatch(run.folders[-1].name)
    if numbered is not None and any(run.folders[-1].glob("*tfevents*")):
        return numbered[1]
    return root.resolve().name or str(root)


def _spec(run: LoggedRun) -> Mapping[str, Any]:
    """What is in the run's ``spec.json``; empty where it has none that names an algorithm."""
    specs = (read_json(folder / SPEC) or {} for folder in run.folders)
    return next((spec for spec in specs if isinstance(spec.get("algorithm"), str)), {})


def _stated_algorithm(run: LoggedRun) -> str | None:
    """The algorithm in the run's ``spec.json``, if it has one."""
    return _spec(run).get("algorithm")


def _owner(run: LoggedRun, root: Path) -> str:
    """The folder that tells equal labels apart: of a run with a ``spec.json`` that of its experiment."""
    if _stated_algorithm(run) is None:
        return str(root.parent)
    above = run.folders[0].parent
    return str(above.parent if above.name == RUNS else above)


def _apart_by_algorithm(named: Sequence[_Named]) -> list[_Named]:
    """Split a label that was given to runs of several algorithms, as ``LABEL/ALGORITHM``, by their ``spec.json``."""
    algorithms: dict[str, set[str | None]] = {}
    for one in named:
        if not one.owner:
            algorithms.setdefault(one.label, set()).add(one.spec.get("algorithm"))
    return [
        one._replace(label=f"{one.label}/{one.spec['algorithm']}")
        if not one.owner and one.spec and len(algorithms[one.label]) > 1
        else one
        for one in named
    ]


def _apart_by_setting(named: Sequence[_Named], notes: list[str]) -> list[_Named]:
    """Split a label whose runs in one environment have several settings, by the arguments in which these differ."""
    settings = [_setting(one.spec) for one in named]
    by_label: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for one, own in zip(named, settings, strict=True):
        by_label.setdefault((one.label, one.owner), []).append(own)
    differing = {key: _differing(several) for key, several in by_label.items()}
    for (label, _), names in differing.items():
        if names:
            notes.append(f"Runs called {label} differ in {', '.join(names)}, and are drawn apart by that.")
    apart = []
    for one, own in zip(named, settings, strict=True):
        parts = [f"{name}={own[name]}" for name in differing[one.label, one.owner] if name in own]
        apart.append(one._replace(label=", ".join([one.label, *parts])))
    return apart


def _setting(spec: Mapping[str, Any]) -> dict[str, str]:
    """What a run was made with besides its algorithm, steps and seed, as text by name; empty if it is not told."""
    arguments = spec.get("arguments")
    if not isinstance(arguments, Mapping):
        return {}
    told = {name: spec[name] for name in ("env", "env_kwargs", "policy") if name in spec} | dict(arguments)
    return {name: shown(x) for name, x in told.items()}


def _differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The names of what is not the same in all settings of one environment, in their order."""
    values: dict[tuple[str | None, str], set[str | None]] = {}
    names = dict.fromkeys(name for own in settings for name in own if name != "env")
    for own in filter(None, settings):
        for name in names:
            values.setdefault((own.get("env"), name), set()).add(own.get(name))
    return [name for name in names if any(len(x) > 1 for (_, of), x in values.items() if of == name)]


def _algorithm(name: str) -> str | None:
    """The name in our files of an algorithm, from that of a folder."""
    numbered = _NUMBERED.fullmatch(name)
    for text in (name, numbered[1] if numbered else name):
        if (known := _ALGORITHMS.get(text.lower().replace("-", "_"))) is not None:
            return known
    return None


def _found(pattern: str, problems: list[str]) -> Iterable[tuple[Path, Found]]:
    """What each path that matches has."""
    literal = Path(pattern).expanduser()
    paths = [literal] if literal.exists() else [Path(p) for p in sorted(glob.glob(str(literal), recursive=True))]
    folders = {path for path in paths if path.is_dir()}
    paths = [path for path in paths if not folders & set(path.parents)]
    if not paths:
        problems.append(f"{pattern} matches no file and no folder.")
        return
    files: dict[Path, list[Path]] = {}
    for path in paths:
        if not path.is_dir() and is_log(path):
            files.setdefault(path.parent, []).append(path)
    made = [(path, find_runs(path)) for path in paths if path.is_dir()]
    made += [(folder, runs_of_files(own)) for folder, own in files.items()]
    if not any(found.runs or found.problems for _, found in made):
        problems.append(f"{pattern} has no logs, which are {LOGS}.")
    yield from made


def _by_label(named: Sequence[_Named], notes: list[str]) -> dict[str, list[LoggedRun]]:
    """Runs by label; equal labels that were read off different folders are told apart by these."""
    owners: dict[str, dict[str, None]] = {}
    for one in named:
        owners.setdefault(one.label, {})[one.owner] = None
    found: dict[str, dict[str, LoggedRun]] = {}
    for one in named:
        shared = len(owners[one.label]) > 1 and one.owner
        label = f"{one.label}, {one.owner}" if shared else one.label
        # A run that several patterns match is one.
        found.setdefault(label, {}).setdefault(os.path.realpath(one.run.path), one.run)
    for label, several in owners.items():
        if len(several) > 1:
            names = ", ".join(repr(f"{label}, {owner}" if owner else label) for owner in several)
            notes.append(
                f"Runs of several folders are called {label}; here they are {names}. LABEL=PATTERN names them."
            )
    return {label: list(own.values()) for label, own in found.items()}
