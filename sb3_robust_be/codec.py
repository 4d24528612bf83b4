"""Values as JSON and back: what JSON lacks is an object with one key that says what it is, ``{"$float": "inf"}``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Any

import numpy as np

#: Strict JSON has no NaN and no infinities: such a number is stored as ``{"$float": "nan"}``, ``"inf"`` or ``"-inf"``.
FLOAT = "$float"
#: A class or function is stored by its name, ``{"__import__": "module:name"}``.
IMPORT = "__import__"
#: What a function or class makes is stored as a list of its name and arguments; a learning rate that falls to a tenth:
#: ``{"__call__": [{"__import__": "stable_baselines3.common.utils:LinearSchedule"}, 1e-3, 1e-4, 1.0]}``.
CALL = "__call__"


def _called(parts: list[Any]) -> Any:
    return parts[0](*parts[1:])


NUMBERS: Mapping[str, Callable[[Any], Any]] = {FLOAT: float}
"""The tags of plain data"""
OBJECTS: Mapping[str, Callable[[Any], Any]] = {**NUMBERS, IMPORT: resolve_name, CALL: _called}
"""Those and the tags of what can be imported, and of what it makes"""

Tagged = Callable[[Any], Any]


def to_json(value: Any, where: str, tagged: Tagged = lambda value: None) -> Any:
    """Convert to plain JSON types: tuples and arrays become lists, numpy's scalars Python's.

    :param value: Anything.
    :param where: What the value is called in an error.
    :param tagged: Asked first for every value that is no number or text: what it is to become, or ``None``.
    :return: What ``json.dumps`` takes, and :func:`from_json` reads.
    :raises TypeError: if something in it is no JSON value; the error names it.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {FLOAT: str(value)}
    if (other := tagged(value)) is not None:
        return other
    if isinstance(value, list | tuple):
        return [to_json(item, f"{where}[{index}]", tagged) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {_key(key, where): to_json(item, f"{where}[{key!r}]", tagged) for key, item in value.items()}
    raise TypeError(
        f"{where} is {value!r}, of type {type(value).__name__}; give None, bools, ints, floats, strings, "
        "and lists and dicts of them."
    )


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str) or key == FLOAT:
        raise TypeError(f"{where} has the key {key!r}; give strings other than {FLOAT!r}.")
    return key


def from_json(value: Any, tags: Mapping[str, Callable[[Any], Any]] = NUMBERS) -> Any:
    """Convert back from JSON.

    :param value: Of :func:`to_json`.
    :param tags: What to make of an object whose only key is one of these, from its value.
    :return: The value.
    """
    if isinstance(value, list):
        return [from_json(item, tags) for item in value]
    if not isinstance(value, dict):
        return value
    inside = {key: from_json(item, tags) for key, item in value.items()}
    if len(inside) == 1:
        ((key, item),) = inside.items()
        if key in tags:
            return tags[key](item)
    return inside


def import_name(value: Any) -> str | None:
    """Name a class or function.

    :param value: Anything.
    :return: Its ``"module:name"``; ``None`` if it cannot be imported by that.
    """
    name = f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}"
    try:
        return name if resolve_name(name) is value else None
    except (ImportError, AttributeError, ValueError):
        return None
