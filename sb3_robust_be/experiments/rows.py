"""Results as rows with named columns: a table that pandas, R, a spreadsheet or a person reads without this package.

A table is a CSV file, compressed with bzip2 where it is large (of learning curves it makes less than gzip and xz do).
CSV because Python's own library writes it, every program reads it, and two versions of a file can be compared line by
line; Parquet would need pyarrow, which is larger than all else that this package installs. A cell that is not plain
text is JSON: a number (``NaN`` and ``Infinity`` as Python writes them), ``true``, a list such as a learning curve, or
an object such as a setting. An array of several axes is one list, row by row. An empty cell is a value that does not
exist.
"""

from __future__ import annotations

import csv
import functools
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be.runner.specs import dumps
from sb3_robust_be.system import write_atomically

Row = dict[str, Any]
Rows = Sequence[Row]

ORIGIN = ("hardware", "versions", "date")
"""The columns that say where and when a run was made"""
RUN_SPEC = "run_spec"
"""The column that tells apart runs which have the same names and were made with different arguments"""
#: Of the numbers in long lists, such as learning curves, which only figures show.
SIGNIFICANT_DIGITS = 6
_PLAIN_BYTES = 2**17
"""Above it a file is compressed, to a fourth or less: curves and errors of many seeds are all digits"""
ENDINGS = (".csv", ".csv.bz2", ".csv.gz")
"""The last is read only: 0.1 wrote it"""


def write_rows(path: Path, rows: Rows) -> Path:
    """Write a table atomically, the same bytes for the same rows.

    :param path: Without an ending: ``.csv``, or ``.csv.bz2`` for a large table, is put behind it.
    :param rows: Their columns, in the order in which they first appear, are those of the table; where and when a run
        was made comes last.
    :return: The file's path.
    """
    names = sorted(dict.fromkeys(name for row in rows for name in row), key=ORIGIN.__contains__)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(names)
    table.writerows([_cell(row.get(name)) for name in names] for row in rows)
    data = text.getvalue().encode()
    ending = ENDINGS[0]
    if len(data) > _PLAIN_BYTES:
        import bz2  # which not every build of Python has

        ending, data = ENDINGS[1], bz2.compress(data)
    target = path.with_name(path.name + ending)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, data)
    for other in ENDINGS:
        if other != ending:
            path.with_name(path.name + other).unlink(missing_ok=True)
    return target


def read_rows(path: Path) -> list[Row]:
    """
    :param path: Of a file that :func:`write_rows` has written.
    :return: Its rows; lists are arrays that cannot be written to, and cells without a value are left out.
    :raises ValueError: If the file is damaged, or no table.
    """
    data = path.read_bytes()
    try:
        cells = _parse(_unpacked(data, path.suffix).decode())
    except (ValueError, EOFError, OSError, zlib.error, csv.Error) as error:
        raise ValueError(f"{path} is no table of results, or damaged: {error}") from error
    names, rows = (cells[0], cells[1:]) if cells else ([], [])
    if not names or any(len(row) != len(names) for row in rows):
        raise ValueError(f"{path} is no table of results, or damaged: its rows are not all as long as the first.")
    # Most cells stand in many rows.
    value_of = functools.cache(_value)
    return [{name: value_of(cell) for name, cell in zip(names, row, strict=True) if cell} for row in rows]


def _unpacked(data: bytes, ending: str) -> bytes:
    if ending == ".gz":
        return gzip.decompress(data)
    if ending != ".bz2":
        return data
    import bz2

    stream = bz2.BZ2Decompressor()
    text = stream.decompress(data)
    if not stream.eof or stream.unused_data:
        raise ValueError("its compressed data end too early, or too late")
    return text


def _parse(text: str) -> list[list[str]]:
    # A cell may be as long as the table.
    limit = csv.field_size_limit(len(text) + 1)
    try:
        return list(csv.reader(io.StringIO(text, newline=""), strict=True))
    finally:
        csv.field_size_limit(limit)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        # Text that looks like another value gets JSON's quotation marks; a carriage return alone would end a row.
        plain = value and isinstance(_value(value), str) and not value.startswith('"') and "\r" not in value
        return value if plain else json.dumps(value)
    return json.dumps(value.ravel() if isinstance(value, np.ndarray) else value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a cell holds {value!r}, of type {type(value).__name__}; give text, numbers, lists and mappings.")


def _value(cell: str) -> Any:
    try:
        value = json.loads(cell)
    except ValueError:
        return cell
    if not isinstance(value, list):
        return value
    try:
        array = np.array(value)
    except ValueError:  # Lists of several lengths.
        return value
    # Rows share it.
    array.flags.writeable = False
    return array


def rounded(values: Any) -> NDArray[np.float64]:
    """
    :param values: Numbers.
    :return: The same with :data:`SIGNIFICANT_DIGITS`, of which tables are half as large.
    """
    array = np.asarray(values, dtype=np.float64)
    return np.array([float(f"{x:.{SIGNIFICANT_DIGITS}g}") for x in array.ravel().tolist()]).reshape(array.shape)


def key_of(row: Row, names: Iterable[str]) -> tuple[Any, ...]:
    """
    :param row: A row.
    :param names: Of columns.
    :return: Its values there, to compare and to look up by; ``None`` for one that it does not have.
    """
    return tuple(dumps(value, name) if isinstance(value := row.get(name), dict) else value for name in names)
