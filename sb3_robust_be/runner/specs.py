"""A run's spec as canonical JSON, and the run's id made from it."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

Spec = dict[str, Any]

#: Strict JSON has no NaN and no infinities: such a number is stored as ``{"$float": "nan"}``, ``"inf"`` or ``"-inf"``.
FLOAT_KEY = "$float"
_ID_DIGITS = 16


def to_json(value: Any, where: str) -> Any:
    """Convert to plain JSON types: tuples and arrays become lists, numpy's scalars Python's.

    :param where: What the value is called in an error.
    :raises TypeError: if something in it is no JSON value; the error names it.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {FLOAT_KEY: str(value)}
    if isinstance(value, list | tuple):
        return [to_json(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {_key(key, where): to_json(item, f"{where}[{key!r}]") for key, item in value.items()}
    raise TypeError(
        f"{where} is {value!r}, of type {type(value).__name__}; give None, bools, ints, floats, strings, "
        "and lists and dicts of them."
    )


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str) or key == FLOAT_KEY:
        raise TypeError(f"{where} has the key {key!r}; give strings other than {FLOAT_KEY!r}.")
    return key


def dumps(value: Any, where: str) -> str:
    """Write canonical JSON: keys sorted, no spaces, ASCII, shortest floats. Read it with :func:`loads`."""
    plain = to_json(value, where)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def loads(text: str | bytes) -> Any:
    """Read what :func:`dumps` wrote, NaN and infinities included."""
    return json.loads(text, object_hook=_float_hook)


def _float_hook(value: dict[str, Any]) -> Any:
    return float(value[FLOAT_KEY]) if value.keys() == {FLOAT_KEY} else value


def run_id(spec: Spec) -> str:
    """Name a run: the first 16 hexadecimal digits of the SHA-256 of its spec's canonical JSON.

    The order of keys, tuple or list, and numpy or Python make no difference; ``1`` and ``1.0`` do.
    """
    return hashlib.sha256(dumps(spec, "spec").encode("ascii")).hexdigest()[:_ID_DIGITS]


def read_json(path: Path) -> dict[str, Any] | None:
    """Read the JSON object in a file; ``None`` if there is no such file or no whole object in it."""
    try:
        value = loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None
