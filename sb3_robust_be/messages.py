"""Words that error messages share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """
    :param name: Something that is not known.
    :param known: What there is.
    :return: The nearest known name as a sentence that begins with a space; nothing where none is near.
    """
    near = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def first_line(error: BaseException) -> str:
    """
    :param error: An exception, whose message may have many lines.
    :return: Its type and the first of them.
    """
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    lines = str(error).strip().splitlines()
    return f"{name}: {lines[0]}" if lines else name
