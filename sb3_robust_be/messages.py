"""Warnings that name the user's own line, and phrases that error messages share."""

from __future__ import annotations

import difflib
import inspect
import re
import warnings
from collections.abc import Iterable

# Code that stands between a user's line and what warns of it: this package, the libraries that call it back, and
# Python's `with`, which runs our context managers.
_NOT_THE_USERS = frozenset({"sb3_robust_be", "stable_baselines3", "torch", "contextlib"})


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """
    Give a warning that names the line which the user wrote: the nearest caller outside this package and SB3.

    :param text: What to say.
    :param category: Of the warning.
    """
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _NOT_THE_USERS:
        if frame.f_back is None:
            break  # nobody else is there, as in a thread of our own
        frame = frame.f_back
    if frame is None:  # a Python without frames
        warnings.warn(text, category, stacklevel=2)
        return
    warnings.warn_explicit(
        text,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the known name that is nearest to a wrong one.

    :param name: Something that is not known.
    :param known: What there is.
    :return: The nearest known name as a sentence that begins with a space, or where several namespaces have it, one
        of each; nothing where none is near.
    """
    known = list(known)
    by_namespace: dict[str, str] = {}
    for one in in_a_namespace(name, known):
        by_namespace.setdefault(one.partition("/")[0], one)
    near = list(by_namespace.values()) or difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def in_a_namespace(name: str, known: Iterable[str]) -> list[str]:
    """Find the ids of environments that were meant by a name without its namespace.

    :param name: As ``PuddleWorld-v0``, with any version or none.
    :param known: Ids, as ``RobustBE/PuddleWorld-v0``.
    :return: Those with this name in a namespace; the one with its version first.
    """
    found = [one for one in known if "/" in one and _unversioned(one.partition("/")[2]) == _unversioned(name)]
    return sorted(found, key=lambda one: not one.lower().endswith(f"/{name.lower()}"))


def _unversioned(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id).lower()


def first_line(error: BaseException) -> str:
    """Describe an exception in one line.

    :param error: An exception, whose message may have many lines.
    :return: Its type and the first of them.
    """
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    lines = str(error).strip().splitlines()
    return f"{name}: {lines[0]}" if lines else name
