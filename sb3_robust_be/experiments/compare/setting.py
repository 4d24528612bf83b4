"""What a comparison is made with: which setting is whose, and the folder that is its own."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from sb3_robust_be.experiments.compare.comparison import KEY
from sb3_robust_be.experiments.control.contenders import Rate
from sb3_robust_be.experiments.control.preset import ControlPreset, settings_of
from sb3_robust_be.experiments.experiment import REPORTED
from sb3_robust_be.experiments.setting_text import rate_text, shown
from sb3_robust_be.runner.specs import dumps

DEFAULT_RATES = "each class's default"
"""Where a learning rate is from that nobody has given"""
_DIGITS, _LONGEST_NAME = 6, 40


@dataclasses.dataclass(frozen=True)
class Setting:
    """What decides the runs of a comparison, besides the environment, the algorithms and the seeds.

    With the defaults it is that of a plain ``compare --env ENV``.
    """

    steps: int = 10_000
    learning_rates: Sequence[Rate] | None = None
    """``None``: as where none is asked for"""
    own_learning_rates: bool = False
    """Whether they are the baselines' alone"""
    net_arch: Sequence[int] | None = None
    layer_norm: bool = False
    arguments: Mapping[str, Any] | None = None
    """The user's; ``None``: there are none, and all is compare's"""
    policy: str | None = None
    single_agents: bool = False
    """Asked for, where agents would be a population"""
    env_kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    normalize: Mapping[str, Any] | None = None
    name: str = dataclasses.field(default="", compare=False)
    """For people, of step sizes and of the user's settings"""

    def values(self) -> dict[str, Any]:
        """What it is, by name."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.compare}
        # It came later: without it a setting has the name that it had before.
        return found if self.own_learning_rates else {k: v for k, v in found.items() if k != "own_learning_rates"}

    def described(self) -> dict[str, Any]:
        """Its name for machines, and what it is, for a file."""
        return {"setting": self.digest(), "given": self.values()}

    def digest(self) -> str:
        """Its name for machines; empty for the default."""
        values = self.values()
        if values == Setting().values():
            return ""
        return hashlib.sha256(dumps(values, "setting").encode("ascii")).hexdigest()[:_DIGITS]

    def folder(self, env_id: str) -> Path:
        """Where its runs and results go: the same for the same setting, and never another's.

        :param env_id: gymnasium's.
        """
        env = env_id.rpartition(":")[2].replace("/", "-")
        if not (digest := self.digest()):
            return Path("compare") / env
        words = [
            self.name,
            "net" if self.net_arch is not None else "",
            "layer-norm" if self.layer_norm else "",
            "single" if self.single_agents else "",
            "env-kwargs" if self.env_kwargs else "",
            "normalize" if self.normalize is not None else "",
            f"{self.steps}-steps" if self.steps != Setting().steps else "",
        ]
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(filter(None, words)))[:_LONGEST_NAME].strip("-")
        return Path("compare") / "-".join(filter(None, (env, name, digest)))


def settings_rows(
    preset: ControlPreset, origins: Mapping[str, str], otherwise: str, own_rates: Collection[str] = ()
) -> list[dict[str, str]]:
    """Every argument that the algorithms are given, with who has given it.

    :param preset: Of the comparison.
    :param origins: By argument, who has given it, where that is known.
    :param otherwise: Who has given all others.
    :param own_rates: Algorithms whose learning rate is their class's own.
    :return: One per argument, value and who has given it.
    """

    def origin(name: str, algorithm: str) -> str:
        is_own = name == "learning_rate" and algorithm in own_rates
        return DEFAULT_RATES if is_own else origins.get(name, otherwise)

    takers: dict[tuple[str, str, str], list[str]] = {}
    for contender in preset.contenders:
        (run,) = preset.runs(REPORTED, KEY, contender, settings_of(contender.grid)[0], [0])
        rates = {"learning_rate": ", ".join(map(rate_text, contender.grid["learning_rate"]))}
        for name, value in {**run.spec["arguments"], **rates}.items():
            if value != {}:
                key = name, shown(value), origin(name, contender.algorithm)
                takers.setdefault(key, []).append(contender.label)
    everyone = [contender.label for contender in preset.contenders]
    return [
        {
            "argument": name,
            "value": value,
            "of": "all" if who == everyone else ", ".join(who),
            "from": whose,
        }
        for (name, value, whose), who in sorted(takers.items())
    ]
