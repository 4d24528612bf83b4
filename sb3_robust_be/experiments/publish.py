"""Published results: one table of rows per experiment and scale, from which every report can be made again."""

from __future__ import annotations

from pathlib import Path

from sb3_robust_be.experiments.experiment import SCALES
from sb3_robust_be.experiments.rows import ENDINGS, Row, Rows, read_rows, write_rows

FOLDER = Path(__file__).parents[1] / "results"
"""Where the package has its own"""


def publish(name: str, scale: str, rows: Rows, folder: Path) -> Path:
    """Write the table of an experiment, complete or not.

    :param name: Of the experiment.
    :param scale: Of its presets.
    :param rows: Of its runs.
    :param folder: Of published tables.
    :return: The file.
    """
    return write_rows(folder / f"{name}-{scale}", [{"experiment": name, "scale": scale, **row} for row in rows])


def load(folder: Path, name: str, scale: str) -> list[Row]:
    """
    :param folder: Of published tables.
    :param name: Of an experiment.
    :param scale: Of its runs.
    :return: The rows.
    :raises ValueError: If that is not published, or the file cannot be read.
    """
    path = find_table(folder / f"{name}-{scale}")
    if path is None:
        there = ", ".join(f"{one} --scale {size}" for one, size in published(folder)) or "nothing"
        raise ValueError(f"{name} is not published at scale {scale} in {folder}. There is: {there}.")
    rows = read_rows(path)
    if any((row.get("experiment"), row.get("scale")) != (name, scale) for row in rows):
        raise ValueError(f"{path} has rows of another experiment or scale than its name says.")
    return rows


def find_table(stem: Path) -> Path | None:
    """
    :param stem: A table's path without its ending.
    :return: Its path; ``None`` if there is no such table.
    """
    return next((path for path in (stem.with_name(stem.name + ending) for ending in ENDINGS) if path.exists()), None)


def published(folder: Path) -> list[tuple[str, str]]:
    """
    :param folder: Of published tables.
    :return: The names and scales of which it has tables, sorted.
    """
    stems = {path.name.removesuffix(ending) for ending in ENDINGS for path in folder.glob(f"*{ending}")}
    parts = (stem.rpartition("-") for stem in sorted(stems))
    return [(name, scale) for name, _, scale in parts if name and scale in SCALES]
