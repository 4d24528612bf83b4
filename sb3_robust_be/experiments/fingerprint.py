"""What a run depends on besides its spec: versions, and the environment's registration and source."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from sb3_robust_be import __version__, report
from sb3_robust_be.experiments.environments import import_packages
from sb3_robust_be.runner.provenance import Fingerprint
from sb3_robust_be.runner.specs import Spec, dumps, run_id

_OWN = __name__.partition(".")[0]
_DISTRIBUTION = _OWN.replace("_", "-")
_DIGITS = 12
# A version stands for what is in these; what is outside of them is being worked on, and its files are read.
_INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_PACKAGE_FOLDERS = {"site-packages", "dist-packages"}


def fingerprints_of(specs: Iterable[Spec]) -> dict[str, Fingerprint]:
    """
    :param specs: Of any function; environments are those of
        :func:`~sb3_robust_be.experiments.control.training.control_spec`.
    :return: By the run's id. Versions of torch, Stable-Baselines3 and numpy and the hardware change digits as well, but
        an upgrade is no other experiment: they are noted and not compared.
    """
    specs = list(specs)
    # Without an environment there is no network either, and no need of torch.
    noted = (
        {_DISTRIBUTION: __version__}
        | report.versions()
        | report.hardware()
        | (_gpu() if any("env" in spec for spec in specs) else {})
    )
    by_environment: dict[str, Fingerprint] = {}
    found = {}
    for spec in specs:
        key = dumps({name: spec.get(name) for name in ("env", "env_kwargs", "gym_packages")}, "spec")
        if key not in by_environment:
            environment = environment_fingerprint(spec) if "env" in spec else {}
            by_environment[key] = Fingerprint({_OWN: __version__, **environment}, noted)
        found[run_id(spec)] = by_environment[key]
    return found


def _gpu() -> dict[str, str]:
    import torch as th

    return {"GPU": th.cuda.get_device_name()} if th.cuda.is_available() else {}


def environment_fingerprint(spec: Spec) -> dict[str, str]:
    """
    :param spec: With ``"env"``, and ``"env_kwargs"`` and ``"gym_packages"`` if it has any.
    :return: The registration, with the arguments and wrappers that ``gym.make`` applies, a hash of the source of the
        environment's modules, and the versions of gymnasium and of the distributions that these modules belong to.
    """
    import_packages(spec)
    env = gym.make(spec["env"], **spec.get("env_kwargs", {}))
    try:
        registered = env.spec
        layers = list(_layers(env))
    finally:
        env.close()
    found = {"gymnasium": gym.__version__}
    if registered is not None:
        fields = [field.name for field in dataclasses.fields(registered) if field.init and field.name != "id"]
        values = {name: getattr(registered, name) for name in fields}
        found |= {name: value if isinstance(value, str) else _text(value) for name, value in values.items()}
    names = _modules_of(layers, registered)
    return found | _distributions(names) | {f"source of {name}": _hash(name) for name in _with_imported(names)}


def _layers(env: gym.Env[Any, Any]) -> Iterator[type]:
    """The classes from the outermost wrapper to the environment, without the wrappers that every registration gets."""
    # Looked up now, for rl_zoo3 puts a class of its own in the place of one.
    usual = (gym.wrappers.TimeLimit, gym.wrappers.OrderEnforcing, gym.wrappers.PassiveEnvChecker)
    while isinstance(env, gym.Wrapper):
        if type(env) not in usual:
            yield type(env)
        env = env.env
    yield type(env)


def _modules_of(layers: Sequence[type], registered: Any) -> list[str]:
    """The modules of the environment, its wrappers and its factory; gymnasium's wrappers have gymnasium's version."""
    names = {layer.__module__ for layer in layers}
    if registered is not None:
        entry = registered.entry_point
        names.add(entry.partition(":")[0] if isinstance(entry, str) else str(getattr(entry, "__module__", "")))
    gymnasiums = {name for name in names if name.startswith("gymnasium.") and name != layers[-1].__module__}
    return sorted(name for name in names - gymnasiums if name in sys.modules)


def _with_imported(names: Iterable[str]) -> list[str]:
    """The modules and, of those that are not installed, what they import of their own kind, however far away.

    Import statements are read, wherever they stand: what a step imports late is part of the environment as well.
    """
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        path = _file(name)
        if path is not None and path.suffix == ".py" and not _is_installed(path):
            waiting += [other for other in _imports(name, path) if _is_local(other)]
    return sorted(found)


def _imports(name: str, path: Path) -> Iterator[str]:
    """Every name in the file's import statements that may be a module's."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = importlib.util.resolve_name("." * node.level + base, package)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _is_local(name: str) -> bool:
    top = name.partition(".")[0]
    # The top alone is looked at first: to look for what is in a package imports the package.
    for part in dict.fromkeys((top, name)):
        path = None if part in ("", _OWN) else _file(part)
        if path is None or _is_installed(path):
            return False
    return True


def _is_installed(path: Path) -> bool:
    return bool(_PACKAGE_FOLDERS & set(path.parts)) or any(path.is_relative_to(folder) for folder in _INSTALLED)


def _file(name: str) -> Path | None:
    """A module's file, whether it has been imported or not."""
    module = sys.modules.get(name)
    if module is not None:
        place = getattr(module, "__file__", None)
    else:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            return None  # a function or a class, as in `from module import name`
        place = spec.origin if spec is not None and spec.has_location else None
    return Path(place) if place and Path(place).is_file() else None


def _hash(name: str) -> str:
    path = _file(name)
    return "unknown" if path is None else hashlib.sha256(path.read_bytes()).hexdigest()[:_DIGITS]


def _distributions(modules: Iterable[str]) -> dict[str, str]:
    tops = {name.partition(".")[0] for name in modules} - {"gymnasium", _OWN}
    owners = importlib.metadata.packages_distributions() if tops else {}
    return {name: importlib.metadata.version(name) for top in sorted(tops) for name in owners.get(top, ())}


def _text(value: Any) -> str:
    """Describe a value by a text that is the same in every process: without addresses, and with sets in order."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(_text, value)) + ")"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(_text, value))) + "}"
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}, {value.dtype}, {hashlib.sha256(value.tobytes()).hexdigest()[:_DIGITS]}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _text({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}:{value.__qualname__}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
