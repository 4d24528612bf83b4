"""Parts of what runs have left: mappings that know only what an analysis reads, and their compact form as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be.experiments.specs import dumps


class NotPublishedError(ValueError):
    """Something that the published summary of an experiment does not have."""


class Part(Mapping[str, Any]):
    """Some of the entries of a mapping; nested mappings are parts, too. What is not known is an error, no default."""

    def __init__(self) -> None:
        #: What is known, by key.
        self.entries: dict[str, Any] = {}
        #: Whether these are all the keys there were.
        self.whole = False

    def __getitem__(self, key: str) -> Any:
        if key not in self.entries and not self.whole:
            raise NotPublishedError(f"{key!r} of a run is not published; make the report from the runs themselves.")
        return self.entries[key]

    def __iter__(self) -> Iterator[str]:
        self._check_whole()
        return iter(self.entries)

    def __len__(self) -> int:
        self._check_whole()
        return len(self.entries)

    def _check_whole(self) -> None:
        if not self.whole:
            raise NotPublishedError("not all that a run has left is published; make the report from the runs.")


class Noted(Mapping[str, Any]):
    """A mapping that notes what is read of it.

    :param source: The mapping.
    :param part: What has been read.
    """

    def __init__(self, source: Mapping[str, Any], part: Part) -> None:
        self._source = source
        self._part = part

    def __getitem__(self, key: str) -> Any:
        if key not in self._source:
            self._note_all()  # That it is absent.
            raise KeyError(key)
        value = self._source[key]
        if isinstance(value, Mapping):
            return Noted(value, self._part.entries.setdefault(key, Part()))
        self._part.entries[key] = value
        return value

    def __iter__(self) -> Iterator[str]:
        self._note_all()
        return iter(self._source)

    def __len__(self) -> int:
        self._note_all()
        return len(self._source)

    def _note_all(self) -> None:
        if self._part.whole:
            return
        self._part.whole = True
        for key in self._source:
            inner = self[key]
            if isinstance(inner, Noted):
                inner._note_all()
        # In the order of the source.
        self._part.entries = {key: self._part.entries[key] for key in self._source}


def to_columns(parts: Mapping[str, Part], encode: Callable[[Any], Any]) -> list[dict[str, Any]]:
    """Parts of one structure share it: ``[{"structure": …, "runs": {id: [value, …]}}, …]``.

    :param parts: By the run's id.
    :param encode: From a value to JSON.
    """
    groups: dict[str, dict[str, Any]] = {}
    for run, part in sorted(parts.items()):
        structure = _structure(part)
        group = groups.setdefault(dumps(structure, "structure"), {"structure": structure, "runs": {}})
        group["runs"][run] = [encode(value) for value in _values(part)]
    return [groups[key] for key in sorted(groups)]


def from_columns(groups: Iterable[Mapping[str, Any]], decode: Callable[[Any], Any]) -> dict[str, Part]:
    """The inverse of :func:`to_columns`.

    :raises ValueError: If a run has fewer or more values than its structure.
    """
    parts = {}
    for group in groups:
        for run, values in group["runs"].items():
            left = map(decode, values)
            try:
                parts[run] = _part(group["structure"], left)
            except StopIteration:
                raise ValueError(f"run {run} has fewer values than its structure.") from None
            if next(left, _END) is not _END:
                raise ValueError(f"run {run} has more values than its structure.")
    return parts


_END = object()


def _structure(part: Part) -> list[Any]:
    keys = [[key, _structure(value) if isinstance(value, Part) else None] for key, value in part.entries.items()]
    return [part.whole, keys]


def _values(part: Part) -> Iterator[Any]:
    for value in part.entries.values():
        if isinstance(value, Part):
            yield from _values(value)
        else:
            yield value


def _part(structure: list[Any], values: Iterator[Any]) -> Part:
    part = Part()
    part.whole, keys = structure
    for key, inner in keys:
        part.entries[key] = next(values) if inner is None else _part(inner, values)
    return part


def array_to_json(values: NDArray[Any], digits: int | None) -> list[Any]:
    """Data type, shape and the numbers as text, which is shorter than a list of them and has NaN and infinities.

    :param values: Numbers or booleans.
    :param digits: Significant ones of floating-point numbers; ``None``: all.
    :raises ValueError: For anything else.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"an array of type {array.dtype} cannot be published; give numbers or booleans.")
    if array.dtype.kind == "f":
        text = " ".join(repr(x) if digits is None else f"{x:.{digits}g}" for x in array.ravel().tolist())
    else:
        text = " ".join(str(int(x)) for x in array.ravel().tolist())
    return [array.dtype.name, list(array.shape), text]


def array_from_json(value: list[Any]) -> NDArray[Any]:
    """The inverse of :func:`array_to_json`."""
    dtype, shape, text = value
    number = float if np.dtype(dtype).kind == "f" else int
    return np.array([number(x) for x in text.split()]).astype(dtype).reshape(shape)
