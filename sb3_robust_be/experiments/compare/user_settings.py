"""The settings of a user's DQN, from rl_zoo3's files and the command line, and which algorithm takes what of them."""

from __future__ import annotations

import contextlib
import importlib
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym

from sb3_robust_be import registry
from sb3_robust_be.experiments.compare.values import as_json, assignments, python_value, rate
from sb3_robust_be.experiments.control.contenders import Rate
from sb3_robust_be.messages import did_you_mean, first_line

SET = "--set"
_POLICIES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")
# Texts there are Python's, as rl_zoo3 has it.
_EXPRESSIONS = ("policy_kwargs", "replay_buffer_class", "replay_buffer_kwargs", "normalize", "env_kwargs")

_MAPPINGS = ("policy_kwargs", "replay_buffer_kwargs", "env_kwargs")

_IN_THE_ENVIRONMENT = "Register an environment that has it inside, and give its id with --env"
_NOT_HERE = {
    "env_wrapper": _IN_THE_ENVIRONMENT,
    "vec_env_wrapper": _IN_THE_ENVIRONMENT,
    "frame_stack": f"{_IN_THE_ENVIRONMENT} (gymnasium.wrappers.FrameStackObservation)",
    "n_envs": "Every seed has one environment here",
    "callback": "Runs have no callbacks here",
    "monitor_kwargs": "Runs are recorded by the command itself",
    "tensorboard_log": "Curves are in the command's own files",
    "seed": "Seeds are those of --seeds",
    "verbose": "--quiet says less",
    "device": "Runs are made on the CPU, populations on a GPU where there is one",
    "compile": "Populations are compiled from 10 000 steps on",
}
"""What rl_zoo3's entries may have and a comparison cannot honour, with what helps"""
_DEFAULTS = {"n_steps": 1, "optimize_memory_usage": False, "replay_buffer_class": None, "replay_buffer_kwargs": None}
"""SB3's, which entries may write out, and which populations do not have"""
_NEUTRAL = {"n_envs": (1,), "frame_stack": (0, 1)}
"""Values, besides None, with which these say nothing"""


@dataclass(frozen=True)
class UserSettings:
    """What the user's DQN is run with."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of the algorithms, as JSON; without the learning rate"""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Who has given each of these, the learning rate and the four below: the file, or an option"""
    learning_rate: Rate | None = None
    steps: int | None = None
    policy: str | None = None
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    normalize: Any = None
    """``True``, or arguments of VecNormalize; ``None``: not said"""
    name: str = ""
    """For a folder"""
    given: bool = False
    """Whether there are settings at all: then what they leave open is each class's default, and not compare's"""


def read_settings(config: Path | None, given: Sequence[str], env_id: str) -> UserSettings:
    """Read the settings.

    :param config: A file of rl_zoo3's, in YAML or Python; ``None``: none.
    :param given: ``NAME=VALUE``, each in place of the file's.
    :param env_id: gymnasium's, by which the file is asked.
    :raises ValueError: For a file or a value that cannot be read, and for a setting that cannot be honoured.
    """
    entry: dict[str, Any] = {}
    origins: dict[str, str] = {}
    if config is not None:
        key, entry = _entry(config, env_id)
        origins = dict.fromkeys(entry, f"{config.name}, {key}")
    own = assignments(given, SET)
    entry = {**entry, **own}
    origins |= dict.fromkeys(own, SET)
    _refuse(entry, origins)
    values = {name: _read(name, value, origins[name]) for name, value in entry.items() if name not in _NOT_HERE}
    values = {name: value for name, value in values.items() if name not in _DEFAULTS or value != _DEFAULTS[name]}
    steps, policy = values.pop("n_timesteps", None), values.pop("policy", None)
    if steps is not None and (not isinstance(steps, int | float) or isinstance(steps, bool) or not steps >= 1):
        raise ValueError(
            f"n_timesteps ({origins['n_timesteps']}) is {entry['n_timesteps']!r}; give a number of steps from 1 on."
        )
    if policy is not None and policy not in _POLICIES:
        raise ValueError(
            f"policy ({origins['policy']}) is {policy!r}; these algorithms have {', '.join(_POLICIES)}, whose parts "
            "policy_kwargs can replace."
        )
    normalize = values.pop("normalize", None)
    if isinstance(normalize, dict) and "gamma" in values:
        # As rl_zoo3: the algorithm's discount.
        normalize.pop("gamma", None)
    env_kwargs = values.pop("env_kwargs", None) or {}
    words = [*([config.stem] if config is not None else []), *sorted(own)[:3]]
    return UserSettings(
        learning_rate=values.pop("learning_rate", None),
        arguments=values,
        origins=origins,
        steps=None if steps is None else int(steps),
        policy=policy,
        env_kwargs=env_kwargs,
        normalize=None if normalize is False else normalize,
        name="-".join(words),
        given=config is not None or bool(own),
    )


def _entry(path: Path, env_id: str) -> tuple[str, dict[str, Any]]:
    """The entry that rl_zoo3 would take, and its key."""
    full_id, env_id = env_id, env_id.rpartition(":")[2]
    try:
        entries = _loaded(path)
    except FileNotFoundError as error:
        raise ValueError(f"--config {path} is not there; give a file in rl_zoo3's format, as dqn.yml.") from error
    except OSError as error:
        raise ValueError(f"--config {path} cannot be read: {error.strerror}.") from error
    if not isinstance(entries, dict) or not all(isinstance(value, dict | None) for value in entries.values()):
        raise ValueError(
            f"--config {path} is not in rl_zoo3's format: a mapping of settings for each environment's id."
        )
    keys = [key for key in (env_id, *(("atari",) if _is_atari(full_id) else ()), "default") if key in entries]
    if not keys:
        known = [key for key in entries if not str(key).startswith(".")]
        raise ValueError(
            f"--config {path} has no entry for {env_id!r} and no default.{did_you_mean(env_id, known)} It has "
            f"{', '.join(map(str, known)) or 'none at all'}."
        )
    return str(keys[0]), dict(entries[keys[0]] or {})


def _is_atari(env_id: str) -> bool:
    module, colon, name = env_id.rpartition(":")
    if colon:
        with contextlib.suppress(ImportError):  # which comes to light where the environment is made
            importlib.import_module(module)
    return name in gym.registry and "AtariEnv" in str(gym.registry[name].entry_point)


def _loaded(path: Path) -> Any:
    if path.suffix == ".py":
        try:
            return runpy.run_path(str(path)).get("hyperparams")
        except OSError:
            raise
        except Exception as error:
            raise ValueError(f"--config {path} cannot be run: {first_line(error)}") from error
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"--config {path} is no YAML: {' '.join(str(error).split())}") from error


def _refuse(entry: Mapping[str, Any], origins: Mapping[str, str]) -> None:
    for name, remedy in _NOT_HERE.items():
        value = entry.get(name)
        if value is not None and value not in _NEUTRAL.get(name, ()):
            raise ValueError(
                f"{name} ({origins[name]}) is {value!r}, which a comparison cannot honour. {remedy}; or go without, "
                f"{SET} {name}=None."
            )


def _read(name: str, value: Any, origin: str) -> Any:
    from sb3_robust_be.qrc.validation import check_dqn_arguments, check_numbers

    if name == "learning_rate":
        try:
            return None if value in (None, "None") else rate(str(value))
        except ValueError as error:
            raise ValueError(f"learning_rate ({origin}): {error}.") from error
    if name in _EXPRESSIONS and isinstance(value, str):
        value = python_value(value, f"{name} ({origin})")
    if name in _MAPPINGS and not isinstance(value, dict | None):
        raise ValueError(f"{name} ({origin}) is {value!r}; give its arguments, as dict(name=value).")
    if value is not None:
        try:
            check_numbers({name: value})
            check_dqn_arguments({name: value})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{error} It is given by {origin}.") from error
    return as_json(value, f"{name} ({origin})")


def arguments_of(algorithm: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What an algorithm takes of the settings.

    :param algorithm: The name in commands.
    :param settings: Arguments by name.
    :return: Those that its class has, without what is DQN's alone where it stands in DQN's place, and without ``None``
        where the class takes none: that leaves the class its default.
    """
    from sb3_robust_be.qrc.validation import constructor_arguments

    known = constructor_arguments(registry.load(algorithm))
    own = registry.own_settings(algorithm, settings)
    return {
        name: value
        for name, value in own.items()
        if name in known and (value is not None or known[name].default is None or "None" in str(known[name].annotation))
    }


def check_names(settings: UserSettings, algorithms: Sequence[str]) -> list[str]:
    """
    :param settings: Of a comparison.
    :param algorithms: Their names.
    :return: What none of them takes and a file has for DQN, in whose place they are: it is left out.
    :raises ValueError: For any other setting that none of them takes.
    """
    from sb3_robust_be.qrc.validation import constructor_arguments

    of_dqn = constructor_arguments(registry.load("dqn"))
    left_out = []
    for name, value in settings.arguments.items():
        # Any value will do: None, which leaves an argument out, is taken by few.
        if any(name in arguments_of(algorithm, {name: 0}) for algorithm in algorithms):
            continue
        if name in of_dqn and settings.origins[name] != SET:
            left_out.append(name)
        elif name not in of_dqn or value is not None:
            of_all = {argument for one in algorithms for argument in constructor_arguments(registry.load(one))}
            why = " It is DQN's alone." if name in registry.DQN_ONLY else did_you_mean(name, of_all)
            raise ValueError(
                f"{name} ({settings.origins[name]}) is taken by none of {', '.join(algorithms)}.{why} Leave it out, or "
                "name an algorithm that has it in --algos."
            )
    return left_out


def default_rate(algorithm: str) -> Rate:
    """
    :param algorithm: The name in commands.
    :return: The learning rate that its class has by default, as JSON.
    """
    from stable_baselines3.common.utils import LinearSchedule

    from sb3_robust_be.experiments.control.training import LINEAR
    from sb3_robust_be.qrc.validation import constructor_arguments

    default = constructor_arguments(registry.load(algorithm))["learning_rate"].default
    if isinstance(default, LinearSchedule):
        return {LINEAR: [default.start, default.end]}
    return float(default)


def why_single(algorithms: Sequence[str], settings: Mapping[str, Any]) -> str | None:
    """Why agents with these settings have to be trained one by one.

    :param algorithms: Their names.
    :param settings: Arguments by name, as JSON.
    :return: What a population has against them; ``None``: nothing.
    """
    from sb3_robust_be.population import members

    for name in algorithms:
        if registry.find(name).population:
            cls = members.member_class(members.resolve_algorithm(name))
            try:
                own = arguments_of(name, settings)
                members.check_arguments(cls, own)
                members.check_frequency(own.get("train_freq", 1))
            except ValueError as error:
                return str(error)
    return None
