"""Saves populations to a folder and reads them back: arrays and JSON, without pickle."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch as th
from stable_baselines3.common.utils import LinearSchedule

from sb3_robust_be import registry
from sb3_robust_be.codec import IMPORT, OBJECTS, from_json, import_name, to_json
from sb3_robust_be.envs.lockstep import Failure
from sb3_robust_be.messages import warn
from sb3_robust_be.population.members import Member
from sb3_robust_be.population.trainer import DIVERGED, Trainer
from sb3_robust_be.system import write_atomically

FORMAT = 2
# Files of 0.1, from which the same is read but for what the classes had by default (`_with_defaults_of_0_1`).
FORMAT_OF_0_1 = 1
INDEX = "population.json"
_MISSING, _MEMBER, _TUPLE, _LINEAR = "__not_saved__", "__member__", "__tuple__", "__linear_schedule__"


def _encoded(value: Any) -> Any:
    """What JSON has no form for: members, tuples, SB3's schedules, classes, functions; a note where nothing fits."""
    if isinstance(value, Member):
        return {_MEMBER: [value.seed, to_json(value.settings, "settings", _encoded)]}
    if isinstance(value, tuple):
        return {_TUPLE: [to_json(item, "tuple", _encoded) for item in value]}
    if isinstance(value, LinearSchedule):
        return {_LINEAR: [value.start, value.end, value.end_fraction]}
    if isinstance(value, range):
        return list(value)
    if isinstance(value, list) or (isinstance(value, dict) and all(isinstance(key, str) for key in value)):
        return None
    name = import_name(value)
    return {_MISSING: repr(value)} if name is None else {IMPORT: name}


def _missing(text: str) -> Any:
    raise LookupError(text)


_TAGS = {
    **OBJECTS,
    "__float__": float,  # in files of 0.1
    _TUPLE: tuple,
    _MEMBER: lambda pair: Member(*pair),
    _LINEAR: lambda numbers: LinearSchedule(*numbers),
    _MISSING: _missing,
}


def save(constructor_arguments: Mapping[str, Any], trainer: Trainer, folder: Path) -> None:
    """Write a population to a folder.

    :param constructor_arguments: That make an equal population before its first step.
    :param trainer: Its state.
    :param folder: Where to; an earlier state there is replaced when the new one is complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arguments = {name: to_json(value, name, _encoded) for name, value in constructor_arguments.items()}
    for name, value in arguments.items():
        if _MISSING in json.dumps(value):
            warn(
                f"{name} holds something without an importable name and is not saved. Give it again: "
                f"Population.load({str(folder)!r}, {name}=…)."
            )
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **_arrays(trainer))
    # A name that is not taken: until the index is written, the old state stays what it is.
    names = (f"state-{trainer.num_timesteps}-{i}.npz" for i in itertools.count())
    state = next(name for name in names if not (folder / name).exists())
    write_atomically(folder / state, buffer.getvalue())
    index = {
        "format": FORMAT,
        "state": state,
        "arguments": arguments,
        "failures": {str(member): list(failure) for member, failure in trainer.failures.items()},
    }
    # From here on the folder is the new state.
    write_atomically(folder / INDEX, json.dumps(index, indent=1).encode())
    for old in folder.glob("state-*.npz"):
        if old.name != state:
            old.unlink(missing_ok=True)


class Saved(NamedTuple):
    """A saved population, as :func:`read` finds it."""

    arguments: dict[str, Any]
    """Arguments of the constructor"""
    state: Path
    """The file of arrays"""
    failures: dict[str, list[str]]
    """Why members have failed, by number"""


def read(folder: Path, replacements: dict[str, Any]) -> Saved:
    """Read the arguments of a saved population and where its state is.

    :param folder: Of :func:`save`.
    :param replacements: Arguments in place of the saved ones.
    :return: What makes the population anew, for :func:`restore` to go on with.
    """
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(f"{folder} holds no population: {INDEX} is missing. Pass a folder that save() wrote.")
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    if index["format"] not in (FORMAT_OF_0_1, FORMAT):
        raise ValueError(
            f"{folder} has the format {index['format']!r}; this version reads {FORMAT_OF_0_1} and {FORMAT}."
        )
    arguments = dict(replacements)
    for name, value in index["arguments"].items():
        if name not in replacements:
            try:
                arguments[name] = from_json(value, _TAGS)
            except (LookupError, ImportError, AttributeError) as error:
                raise ValueError(
                    f"{name} was {error} and could not be saved by a name that is there now. Give it again: "
                    f"Population.load({str(folder)!r}, {name}=…)."
                ) from error
    if index["format"] == FORMAT_OF_0_1:
        arguments = _with_defaults_of_0_1(arguments)
    return Saved(arguments, folder / index["state"], index.get("failures", {}))


def _with_defaults_of_0_1(arguments: dict[str, Any]) -> dict[str, Any]:
    """What a class of 0.1 had by default and has no more; a folder says only what the caller gave."""
    if arguments["algorithm"] not in ("qrc", "qrc_huber", "qlc", "gq", "gq_huber"):
        return arguments
    arguments = {"learning_rate": 1e-4, **arguments}
    if arguments["algorithm"] == "qlc":
        arguments = {"limit": "magnitude", **arguments}
        # A policy class of the user's own has no such default.
        if registry.load("qlc").complete_policy_kwargs(arguments["policy"], {}):
            arguments["policy_kwargs"] = {"layer_norm": False, **(arguments.get("policy_kwargs") or {})}
    return arguments


def _arrays(trainer: Trainer) -> dict[str, np.ndarray]:
    arrays = {
        "counts": np.array([trainer.num_timesteps, trainer.n_calls, trainer.total, trainer.collected]),
        "failed_at": trainer.failed_at,
        "n_steps": trainer.n_steps,
        "exploration": trainer.exploration.rates,
        "log/table": trainer.log.table(),
        "log/returns": trainer.log.returns,
        "log/lengths": trainer.log.lengths,
    }
    for i, learner in enumerate(trainer.learners):
        state = learner.state()
        arrays |= {f"learner{i}/{name}": x.cpu().numpy() for name, x in state.items()}
        arrays[f"learner{i}/n_updates"] = np.array(learner.n_updates)
        arrays[f"learner{i}/frozen_at"] = learner.frozen_at
    if trainer.normalizer is not None:
        arrays |= {f"normalizer/{name}": x for name, x in trainer.normalizer.state().items()}
    if trainer.replay is not None:
        replay = trainer.replay
        arrays["replay/counts"] = np.array([replay.capacity, replay.size, replay.position])
        arrays |= {f"replay/{name}": x[:, : replay.size].cpu().numpy() for name, x in replay.fields().items()}
        arrays |= {f"env/{name}": x for name, x in trainer.env.state_dict().items()}
    return arrays


def restore(trainer: Trainer, saved: Saved) -> None:
    """Load the saved state into a population's trainer.

    :param trainer: Of a population made from ``saved.arguments``; it is then as it was when it was saved.
    :param saved: Of :func:`read`.
    :raises ValueError: If replaced arguments make other members, or networks that the saved ones do not fit into.
    """
    with np.load(saved.state, allow_pickle=False) as arrays:
        _restore(trainer, arrays, saved)


# What an argument adds to the state of learning.
_ADDED_BY = {
    "target_rows": ("target_update_interval", "target networks"),
    "feature_norm": ("h_regularization_scale", "running means of the features' squared norm"),
}


def _learned(arrays: Any, group: int, name: str, like: th.Tensor, arguments: Mapping[str, Any]) -> th.Tensor:
    """What a group of members has learned, in the shape that the arguments have made; what they do not is left out."""
    stored = arrays[key] if (key := f"learner{group}/{name}") in arrays else None
    if stored is None and name in _ADDED_BY:
        argument, lacking = _ADDED_BY[name]
        given = f"{argument}={arguments[argument]!r}" if argument in arguments else argument
        raise ValueError(
            f"{given} needs {lacking}, which the saved members do not have. Leave {argument} out of load(), or make a "
            "new Population with it."
        )
    if stored is None or stored.shape != like.shape:
        raise ValueError(
            f"The saved networks do not fit into those that the arguments make, {tuple(like.shape)} numbers. Leave "
            "policy, policy_kwargs, target_update_interval and choices such as limit out of load(), or make a new "
            "Population with them."
        )
    return th.from_numpy(stored)


def _restore(trainer: Trainer, arrays: Any, saved: Saved) -> None:
    n_members = len(trainer.failed_at)
    if len(arrays["failed_at"]) != n_members:
        raise ValueError(
            f"The saved state is of {len(arrays['failed_at'])} members and the arguments are of {n_members}. Do "
            "not replace seeds, and lists by lists of the same length only."
        )
    trainer.num_timesteps, trainer.n_calls, trainer.total, trainer.collected = map(int, arrays["counts"])
    trainer.exploration.rates = arrays["exploration"]
    trainer.log.load(arrays["log/table"], arrays["log/returns"], arrays["log/lengths"])
    for i, learner in enumerate(trainer.learners):
        for name, x in learner.state().items():
            x.copy_(_learned(arrays, i, name, x, saved.arguments))
        learner.n_updates = int(arrays[f"learner{i}/n_updates"])
    if "replay/counts" in arrays:
        capacity, size, position = map(int, arrays["replay/counts"])
        replay = trainer.replay = trainer.make_replay(capacity)
        stored = {name.removeprefix("replay/") for name in arrays if name.startswith("replay/")} - {"counts"}
        if stored != replay.fields().keys():
            raise ValueError(
                f"The saved transitions consist of {', '.join(sorted(stored))}, and those of this environment of "
                f"{', '.join(sorted(replay.fields()))} (next_action_masks where it has action_masks()). Load the "
                "population with the environment that it was trained in, or make a new one."
            )
        for name, x in replay.fields().items():
            x[:, :size] = th.from_numpy(arrays[f"replay/{name}"])
        replay.size, replay.position = size, position
        state = {name.removeprefix("env/"): arrays[name] for name in arrays if name.startswith("env/")}
        trainer.observations = trainer.prepare(trainer.env.load_state_dict(state))
        # An episode that the environment could not go on with is not counted.
        for member in trainer.env.restarted:
            trainer.log.returns[member], trainer.log.lengths[member] = 0.0, 0
    _restore_normalizer(trainer, arrays)
    failed = np.flatnonzero(arrays["failed_at"] >= 0).tolist()
    # Files of version 0.1 have neither: there, a failed member has diverged, and its environment went on.
    why = saved.failures
    trainer.fail({i: Failure(*why[str(i)]) if str(i) in why else DIVERGED for i in failed})
    trainer.failed_at[failed] = arrays["failed_at"][failed]
    for i, learner in enumerate(trainer.learners):
        if f"learner{i}/frozen_at" in arrays:  # In files of version 0.1 it is not.
            learner.frozen_at = arrays[f"learner{i}/frozen_at"]
    trainer.n_steps = arrays["n_steps"] if "n_steps" in arrays else np.full(n_members, trainer.n_calls)


def _restore_normalizer(trainer: Trainer, arrays: Any) -> None:
    stored = {name.removeprefix("normalizer/"): arrays[name] for name in arrays if name.startswith("normalizer/")}
    expected = {} if trainer.normalizer is None else trainer.normalizer.state()
    if {name: x.shape for name, x in stored.items()} != {name: x.shape for name, x in expected.items()}:
        raise ValueError(
            "normalize is not what the saved members were trained with. Leave it out of load(), or make a new "
            "Population with it."
        )
    if trainer.normalizer is not None:
        trainer.normalizer.load_state(stored)
