"""Every algorithm, once: its name in files and commands, where its class is, and how figures show it.

Commands, populations, comparisons, figures and rl_zoo3's tables read what they need here. The entries are plain
strings, so that nothing heavy is imported before a class is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """What the package knows of an algorithm."""

    home: str
    """Its class, as ``"module:Class"``"""
    label: str
    """For people, in figures and tables"""
    colour: str
    """In figures: a name of :data:`sb3_robust_be.report.style.COLOURS`"""
    marker: str
    """In figures: matplotlib's code"""
    baseline: bool = False
    """Whether it is there to compare with: an algorithm of another package, or one that differs by a loss"""
    always_target: bool = False
    """Whether a single agent cannot do without a target network, not even for ``target_update_interval=None``"""
    population: bool = True
    """Whether a :class:`~sb3_robust_be.Population` can train it"""
    config: bool = True
    """Whether ``zoo_configs/NAME.yml`` is shipped"""

    @property
    def module(self) -> str:
        """The module of the class."""
        return self.home.partition(":")[0]

    @property
    def class_name(self) -> str:
        """The name of the class."""
        return self.home.partition(":")[2]


# Squared losses are blue, Huber's vermillion, the absolute one purple; semi-gradients black.
ENTRIES: dict[str, Entry] = {
    "dqn": Entry("stable_baselines3:DQN", "DQN", "black", "o", baseline=True, always_target=True),
    "qrc": Entry("sb3_robust_be.qrc:QRC", "QRC", "blue", "s"),
    "qrc_huber": Entry("sb3_robust_be.qrc:QRCHuber", "QRC-Huber", "vermillion", "D"),
    "qlc": Entry("sb3_robust_be.qrc:QLC", "QLC", "purple", "^"),
    "gq": Entry("sb3_robust_be.qrc:GQ", "GQ", "sky", "v"),
    "gq_huber": Entry("sb3_robust_be.qrc:GQHuber", "GQ-Huber", "orange", "P"),
    "sbeed": Entry("sb3_robust_be.sbeed:SBEED", "SBEED", "green", "<"),
    "dqn_squared": Entry(
        *("sb3_robust_be.population.baseline:SquaredDQN", "DQN, squared loss", "yellow", ">"),
        baseline=True,
        config=False,
    ),
    "qrdqn": Entry(
        *("sb3_contrib:QRDQN", "QR-DQN", "grey", "X"), baseline=True, always_target=True, population=False, config=False
    ),
}
"""The entry of each algorithm by its name in files and commands, which is its class's ``algorithm_name``."""


DQN_ONLY: dict[str, Any] = {"target_update_interval": None, "max_grad_norm": None, "tau": 1.0}
"""Arguments that make DQN what it is and that this family does without, with its defaults"""


def own_settings(algorithm: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What an algorithm takes of settings that were made for DQN.

    :param algorithm: The name in files and commands.
    :param settings: Arguments of DQN.
    :return: The same for DQN and its kind. In DQN's place an algorithm of this family has neither a target network nor
        gradient clipping, unless it brings one along: without :data:`DQN_ONLY`.
    """
    if find(algorithm).baseline:
        return dict(settings)
    return {name: value for name, value in settings.items() if name not in DQN_ONLY}


def names(*, baselines: bool = True) -> tuple[str, ...]:
    """List the names of the algorithms.

    :param baselines: Whether those to compare with are among them.
    :return: The names in files and commands, in the order in which lists show them.
    """
    return tuple(name for name, entry in ENTRIES.items() if baselines or not entry.baseline)


def find(name: str) -> Entry:
    """Look an algorithm up.

    :param name: In files and commands.
    :return: The algorithm's entry.
    :raises ValueError: If there is no such algorithm.
    """
    if name not in ENTRIES:
        raise ValueError(f"algorithm is {name!r}; give one of {', '.join(ENTRIES)}.")
    return ENTRIES[name]


def load(name: str) -> type[Any]:
    """Import the class of an algorithm.

    :param name: In files and commands.
    :return: The algorithm's class, which is imported now.
    :raises ValueError: If there is no such algorithm.
    """
    found: type[Any] = resolve_name(find(name).home)
    return found


def classes(*, baselines: bool = False) -> dict[str, type[Any]]:
    """Import the classes of the algorithms.

    :param baselines: Whether those to compare with are among them.
    :return: The algorithms' classes by name, which are imported now.
    """
    return {name: load(name) for name in names(baselines=baselines)}
