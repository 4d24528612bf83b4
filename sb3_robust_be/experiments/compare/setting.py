"""What a comparison is made with: which setting is whose, and the folder that is its own."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sb3_robust_be.experiments.compare.comparison import KEY
from sb3_robust_be.experiments.compare.summary import rate_text
from sb3_robust_be.experiments.control.contenders import Rate
from sb3_robust_be.experiments.control.preset import ControlPreset, settings_of
from sb3_robust_be.experiments.experiment import REPORTED
from sb3_robust_be.report import Table
from sb3_robust_be.runner.specs import dumps

_DIGITS, _LONGEST_NAME = 6, 40


@dataclasses.dataclass(frozen=True)
class Setting:
    """What decides the runs of a comparison, besides the environment, the algorithms and the seeds.

    With the defaults it is that of a plain ``compare --env ENV``.
    """

    steps: int = 10_000
    learning_rates: Sequence[Rate] | None = None
    """``None``: as where none is asked for"""
    net_arch: Sequence[int] | None = None
    layer_norm: bool = False
    arguments: Mapping[str, Any] | None = None
    """The user's; ``None``: there are none, and all is compare's"""
    policy: str | None = None
    env_kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    normalize: Mapping[str, Any] | None = None
    name: str = dataclasses.field(default="", compare=False)
    """For people, of the user's settings"""

    def digest(self) -> str:
        """Its name for machines; empty for the default."""
        if self == Setting():
            return ""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.compare}
        return hashlib.sha256(dumps(values, "setting").encode("ascii")).hexdigest()[:_DIGITS]

    def folder(self, env_id: str) -> Path:
        """Where its runs and results go: the same for the same setting, and never another's.

        :param env_id: gymnasium's.
        """
        env = env_id.rpartition(":")[2].replace("/", "-")
        if not (digest := self.digest()):
            return Path("compare") / env
        default = Setting()
        words = [
            self.name,
            "rates" if self.learning_rates != default.learning_rates else "",
            "net" if self.net_arch is not None else "",
            "layer-norm" if self.layer_norm else "",
            "env-kwargs" if self.env_kwargs else "",
            "normalize" if self.normalize is not None else "",
            f"{self.steps}-steps" if self.steps != default.steps else "",
        ]
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(filter(None, words)))[:_LONGEST_NAME].strip("-")
        return Path("compare") / "-".join(filter(None, (env, name, digest)))


def ignore_in_git(folder: Path) -> None:
    """Make a folder of results that git passes over. One that is there already is left as it is.

    :param folder: Of a comparison.
    """
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def settings_table(preset: ControlPreset, origins: Mapping[str, str], otherwise: str) -> Table:
    """Every argument that the algorithms are given, with who has given it.

    :param preset: Of the comparison.
    :param origins: By argument, who has given it, where the user has.
    :param otherwise: Who has given all the others.
    :return: A row per argument and value.
    """
    rows: dict[tuple[str, str], list[str]] = {}
    for contender in preset.contenders:
        (run,) = preset.runs(REPORTED, KEY, contender, settings_of(contender.grid)[0], [0])
        rates = {"learning_rate": ", ".join(map(rate_text, contender.grid["learning_rate"]))}
        for name, value in {**run.spec["arguments"], **rates}.items():
            if value != {}:
                rows.setdefault((name, shown(value)), []).append(contender.label)
    everyone = [contender.label for contender in preset.contenders]
    return Table(
        "settings",
        [
            {
                "argument": name,
                "value": value,
                "of": "all" if who == everyone else ", ".join(who),
                "from": origins.get(name, otherwise),
            }
            for (name, value), who in sorted(rows.items())
        ],
    )


def shown(value: Any) -> str:
    """
    :param value: As JSON.
    :return: As people write it.
    """
    if isinstance(value, Mapping):
        if len(value) == 1 and next(iter(value)) == "__import__":
            return str(value["__import__"]).rpartition(":")[2]
        return f"dict({', '.join(f'{name}={shown(item)}' for name, item in value.items())})"
    return str(value)


def in_columns(rows: Iterable[Sequence[Any]], left: int = 1) -> str:
    """
    :param rows: Of one length, the header first.
    :param left: How many columns begin at the left; the others end at the right.
    :return: Text for a terminal.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]
    return "\n".join(line.rstrip() for line in lines)
