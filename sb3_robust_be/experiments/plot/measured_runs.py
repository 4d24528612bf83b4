"""Which runs count in which environment, by which measure and up to which step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sb3_robust_be.evaluation.sample_checks import Floats
from sb3_robust_be.experiments.logs import LoggedRun
from sb3_robust_be.experiments.plot.run_measures import EPISODES, WHEN, curve_of, final_of, has, steps_of
from sb3_robust_be.messages import did_you_mean

EP_REW_MEAN = "rollout/ep_rew_mean"
UNKNOWN = "environment not named"

Runs = Mapping[str, Sequence[LoggedRun]]
"""By label"""


@dataclass
class Measured:
    """The runs of one environment by a measure.

    :param curves: Of every run, by label, shape (runs, points); as far as each goes.
    :param steps: Of the curves.
    :param finals: Of every run that reaches the last quarter before ``until``, by label, shape (seeds,).
    :param until: The step before which the last quarter lies.
    :param notes: Sentences.
    """

    curves: dict[str, Floats] = field(default_factory=dict)
    steps: int = 0
    finals: dict[str, Floats] = field(default_factory=dict)
    until: int = 0
    notes: list[str] = field(default_factory=list)


def by_environment(runs: Runs) -> dict[str, dict[str, list[LoggedRun]]]:
    """Runs by environment and label.

    Only Monitor files name their environment. Other logs are of the one that a folder of theirs is named after, as
    ``ENV`` or ``ENV_N``, else of the only one that there is.

    :param runs: Of all environments.
    """
    known = list(dict.fromkeys(run.env_id for own in runs.values() for run in own if run.env_id is not None))
    found: dict[str, dict[str, list[LoggedRun]]] = {env: {} for env in known}
    for label, own in runs.items():
        for run in own:
            env = run.env_id or _environment_of(run, known)
            found.setdefault(env, {}).setdefault(label, []).append(run)
    return found


def _environment_of(run: LoggedRun, known: Sequence[str]) -> str:
    parts = {re.sub(r"_\d+$", "", part) for folder in run.folders for part in folder.parts}
    named = [env for env in known if env.replace("/", "-") in parts]
    candidates = named or known
    return candidates[0] if len(candidates) == 1 else UNKNOWN


def measured(runs: Runs, measure: str, cut: int | None) -> Measured:
    """
    :param runs: Of one environment.
    :param measure: :data:`EPISODES`, in place of which a label without Monitor files has :data:`EP_REW_MEAN`, or the
        name of an entry of SB3's log.
    :param cut: Steps after which nothing counts; ``None``: those of the shortest run for final values, those of the
        longest for curves.
    :return: Empty if no run has the measure.
    """
    found = Measured()
    chosen = {label: _measure_of(label, own, measure, found.notes) for label, own in runs.items()}
    counted = {label: [run for run in own if has(run, chosen[label])] for label, own in runs.items()}
    counted = {label: own for label, own in counted.items() if own}
    ends = {(label, str(run.path)): steps_of(run, chosen[label]) for label, own in counted.items() for run in own}
    if not ends:
        return found
    found.steps = min(max(ends.values()), cut or max(ends.values()))
    found.until = cut or min(ends.values())
    found.notes += _about_lengths(ends, cut)
    for label, own in counted.items():
        found.curves[label] = np.array([curve_of(run, chosen[label], found.steps) for run in own])
        finals = np.array([final_of(run, chosen[label], found.until) for run in own])
        reached = np.isfinite(finals)
        if not reached.all():
            found.notes.append(
                f"{label}: {(~reached).sum()} of {len(own)} runs have nothing in the last quarter before step "
                f"{found.until} and are left out of the table."
            )
        if reached.any():
            found.finals[label] = finals[reached]
    return found


def _measure_of(label: str, runs: Sequence[LoggedRun], measure: str, notes: list[str]) -> str:
    """What a label is measured by; its runs that do not have that are told."""
    if (
        measure == EPISODES
        and not any(has(run, EPISODES) for run in runs)
        and any(has(run, EP_REW_MEAN) for run in runs)
    ):
        notes.append(
            f"{label} has no Monitor files. Its returns are those of SB3's log, {EP_REW_MEAN}: means over the last "
            "episodes, 100 by default, which lag behind."
        )
        return EP_REW_MEAN
    without = sum(not has(run, measure) for run in runs)
    if without:
        what = "Monitor files" if measure == EPISODES else f"the entry {measure}"
        notes.append(f"{label}: {without} of {len(runs)} logs have no {what}, and count in the diagnostics only.")
    return measure


def _about_lengths(ends: Mapping[tuple[str, str], int], cut: int | None) -> list[str]:
    (label, path), shortest = min(ends.items(), key=lambda item: item[1])
    longest = max(ends.values())
    if cut is None and shortest < longest:
        return [
            f"The logs end between step {shortest} ({label}, {path}) and step {longest}. The table is about the last "
            f"quarter before step {shortest}; --steps N takes that before step N."
        ]
    early = sum(end < cut for end in ends.values()) if cut is not None else 0
    if early:
        return [
            f"{early} of {len(ends)} logs end before step {cut}, the first at step {shortest} ({label}, {path}): they "
            "count with what they have of the last quarter."
        ]
    return []


def check_measure(runs: Runs, measure: str) -> None:
    """
    :param runs: Of all environments.
    :param measure: As of :func:`measured`.
    :raises ValueError: If no run has it.
    """
    every = [run for own in runs.values() for run in own]
    if any(has(run, measure) for run in every):
        return
    entries = sorted({name for run in every for name in run.series})
    if measure == EPISODES:
        if EP_REW_MEAN in entries:
            return
        raise ValueError(f"no log has the returns of episodes: there are neither Monitor files nor {EP_REW_MEAN}.")
    known = f" There are {', '.join(entries)}." if entries else " There are Monitor files only."
    raise ValueError(f"--measure {measure!r} is in no log.{did_you_mean(measure, entries)}{known}")


def in_words(measure: str) -> str:
    """
    :param measure: As of :func:`measured`.
    :return: What the table has, in words.
    """
    return f"{measure}, {WHEN}"
