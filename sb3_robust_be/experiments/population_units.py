"""Groups runs into units of work: those that can be trained as one population are one unit."""

from __future__ import annotations

from collections.abc import Iterable

from sb3_robust_be.experiments.run_functions import STACKED
from sb3_robust_be.runner.specs import Spec, dumps

# The best numbers of members per process, by the widest layer: more do not fit a core's cache.
NARROW, LARGEST_NARROW_UNIT, LARGEST_UNIT = 32, 100, 32


def make_units(specs: Iterable[Spec], jobs: int, largest: int | None = None) -> list[list[Spec]]:
    """Group runs that can be one population, in parts of about equal size that keep every process busy.

    :param specs: Of :func:`~sb3_robust_be.experiments.control.training.control_spec`.
    :param jobs: Processes.
    :param largest: Most members of a population; by default what its networks are best with.
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
        # Of few groups so many parts that every process has its own, and none is left alone with the last one.
        even = len(groups) % jobs == 0 or len(groups) > 4 * jobs
        enough = 1 if even else -(-jobs // len(groups)) if len(groups) < jobs else 2
        parts = min(len(group), max(-(-len(group) // (largest or _largest(group[0]))), enough))
        units += [group[i::parts] for i in range(parts)]
    # The longest first.
    return sorted(units, key=lambda unit: -len(unit) * unit[0].get("steps", 0))


def _largest(spec: Spec) -> int:
    widths = (spec["arguments"].get("policy_kwargs") or {}).get("net_arch", [NARROW + 1])
    return LARGEST_NARROW_UNIT if 0 < max(widths, default=0) <= NARROW else LARGEST_UNIT


def _population_of(spec: Spec) -> str:
    """What all members of a population share: everything but seeds and numbers that may differ.

    A population could hold other choices as well, but stacks them apart, as several smaller ones.
    """
    from sb3_robust_be.population.members import NUMBERS

    shared = {name: value for name, value in spec["arguments"].items() if name not in NUMBERS}
    return dumps({**spec, "seed": None, "arguments": shared}, "spec")
