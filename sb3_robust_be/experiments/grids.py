"""Runs of many settings and seeds as units of work."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from sb3_robust_be.experiments.control import POPULATION
from sb3_robust_be.experiments.specs import Spec, dumps

# Functions that execute many runs as one population.
STACKED = (POPULATION, "sb3_robust_be.experiments.cliff_maps:train")
# The best number of members per process with 64-64 networks; more do not fit its cache.
LARGEST_UNIT = 32


def settings_of(grid: dict[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """
    :param grid: Values of each argument.
    :return: The arguments of every combination.
    """
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def make_units(specs: Iterable[Spec], jobs: int, largest: int = LARGEST_UNIT) -> list[list[Spec]]:
    """Group runs that can be one population, in parts of about equal size that keep every process busy.

    :param specs: Of :func:`~sb3_robust_be.experiments.control.control_spec`.
    :param jobs: Processes.
    :param largest: Most members of a population.
    :return: Units for the runner; runs that are no population are units of one.
    """
    groups: dict[str, list[Spec]] = {}
    units = []
    for spec in specs:
        if spec["function"] in STACKED:
            groups.setdefault(_population_of(spec), []).append(spec)
        else:
            units.append([spec])
    for group in groups.values():
        # As many parts of each as there are processes to spare, so that none is left alone with the last one.
        parts = min(len(group), max(-(-len(group) // largest), 1 if len(groups) % jobs == 0 else jobs))
        units += [group[i::parts] for i in range(parts)]
    # The longest first.
    return sorted(units, key=lambda unit: -len(unit) * unit[0].get("steps", 0))


def _population_of(spec: Spec) -> str:
    """What the members of a population have in common: all but seeds and numbers that may differ."""
    from sb3_robust_be.population.members import CHOICES, NUMBERS

    shared = {name: value for name, value in spec["arguments"].items() if name not in NUMBERS + CHOICES}
    return dumps({**spec, "seed": None, "arguments": shared}, "spec")
