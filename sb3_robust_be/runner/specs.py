"""A run's spec as canonical JSON, and the run's id made from it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from sb3_robust_be.codec import from_json, to_json

Spec = dict[str, Any]

_ID_DIGITS = 16


def dumps(value: Any, where: str) -> str:
    """Write canonical JSON: keys sorted, no spaces, ASCII, shortest floats. Read it with :func:`loads`."""
    plain = to_json(value, where)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def loads(text: str | bytes) -> Any:
    """Read what :func:`dumps` wrote, NaN and infinities included."""
    return from_json(json.loads(text))


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
