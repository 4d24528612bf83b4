"""Control experiments: every contender's best setting on selection seeds, reported on fresh ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy

from sb3_robust_be.experiments.control import (
    POPULATION,
    SINGLE,
    control_spec,
    load_curves,
    load_finals,
    lowest_for_failed,
)
from sb3_robust_be.experiments.domains import DOMAINS, Domain, own_arguments, shared_arguments
from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.experiments.grids import settings_of
from sb3_robust_be.experiments.specs import Spec, dumps

# Seeds that choose settings are never reported.
FIRST_SELECTION_SEED = 10_000


@dataclass(frozen=True)
class Contender:
    """An algorithm with the settings that it may choose from."""

    label: str
    algorithm: str
    grid: Mapping[str, Sequence[Any]]
    """Values of each argument; one value each: nothing is chosen"""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments"""


@dataclass(frozen=True)
class ControlPreset:
    """The size of a control experiment."""

    domains: tuple[str, ...]
    """Keys of :data:`~sb3_robust_be.experiments.domains.DOMAINS` or of ``own_domains``"""
    contenders: tuple[Contender, ...]
    seeds: int
    """Reported ones, per contender and domain"""
    selection_seeds: int
    steps: float = 1.0
    """Of a run, as a fraction of the paper's"""
    steps_by_domain: Mapping[str, float] = field(default_factory=dict)
    """Other fractions by domain"""
    seeds_of: Mapping[str, int] = field(default_factory=dict)
    """Other numbers of reported seeds by domain"""
    selection_seeds_of: Mapping[str, int] = field(default_factory=dict)
    """Other numbers of selection seeds by domain; 0: nothing is chosen, contenders have their first setting"""
    one_setting: bool = False
    """Whether a contender has one setting for all domains (the paper's MinAtar) or one for each"""
    compile: bool = True
    stacked: bool = True
    """Lock-step populations, or single agents"""
    own_domains: Mapping[str, Domain] = field(default_factory=dict)
    policy: str = "MlpPolicy"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of all contenders, over those of the domain"""
    note: str = ""
    """In which ways this is less than the paper's, for the report"""

    def domain(self, key: str) -> Domain:
        """The domain of that name."""
        return self.own_domains[key] if key in self.own_domains else DOMAINS[key]

    def steps_of(self, key: str) -> int:
        """Environment steps of a run on a domain."""
        return max(1, round(self.steps_by_domain.get(key, self.steps) * self.domain(key).steps))

    def specs(self, key: str, contender: Contender, setting: Mapping[str, Any], seeds: Sequence[int]) -> list[Spec]:
        """One run per seed."""
        domain = self.domain(key)
        arguments = {
            **shared_arguments(domain),
            **own_arguments(domain, contender.algorithm),
            **self.arguments,
            **contender.choices,
            **setting,
        }
        return [
            control_spec(
                contender.algorithm,
                domain.env,
                self.steps_of(key),
                seed,
                arguments,
                policy=self.policy,
                env_kwargs=dict(domain.env_kwargs),
                gym_packages=domain.gym_packages,
                compile=self.compile and self.stacked,
                function=POPULATION if self.stacked else SINGLE,
            )
            for seed in seeds
        ]

    def selection_specs(self, key: str, contender: Contender) -> dict[str, list[Spec]]:
        """Runs of each setting on the selection seeds, by the setting as JSON."""
        seeds = self.selecting_seeds(key)
        return {dumps(s, "setting"): self.specs(key, contender, s, seeds) for s in settings_of(dict(contender.grid))}

    def selecting_seeds(self, key: str) -> range:
        """Seeds that choose settings for a domain."""
        count = self.selection_seeds_of.get(key, self.selection_seeds)
        return range(FIRST_SELECTION_SEED, FIRST_SELECTION_SEED + count)

    def reported_seeds(self, key: str) -> range:
        """Fresh seeds for a domain."""
        return range(self.seeds_of.get(key, self.seeds))


class Cell(NamedTuple):
    """A contender on a domain, at its chosen setting."""

    setting: dict[str, Any]
    specs: list[Spec]


def stages(preset: ControlPreset, results: Results) -> Iterator[list[Spec]]:
    """Selection, then the reported runs.

    :param preset: The experiment's size.
    :param results: Of the runs so far.
    """
    selection = [
        spec
        for key in preset.domains
        for contender in preset.contenders
        if len(settings_of(dict(contender.grid))) > 1
        for specs in preset.selection_specs(key, contender).values()
        for spec in specs
    ]
    if selection:
        yield _distinct(selection)
    yield _distinct(spec for cell in cells(preset, results).values() for spec in cell.specs)


def _distinct(specs: Iterable[Spec]) -> list[Spec]:
    """Contenders may share settings, such as DQN with the threshold ∞ and DQN with the squared loss."""
    return list({dumps(spec, "spec"): spec for spec in specs}.values())


def cells(preset: ControlPreset, results: Results) -> dict[tuple[str, str], Cell]:
    """
    :param preset: The experiment's size.
    :param results: With all selection runs ended.
    :return: By domain and contender's label.
    """
    found = {}
    for contender in preset.contenders:
        scores = {key: selection_scores(preset, key, contender, results) for key in preset.domains}
        for key in preset.domains:
            # Between domains of different units it is ranks that can be added up.
            votes = [scipy.stats.rankdata(own) for own in scores.values()] if preset.one_setting else [scores[key]]
            best = int(np.argmax(np.sum(votes, axis=0)))
            setting = settings_of(dict(contender.grid))[best]
            specs = preset.specs(key, contender, setting, preset.reported_seeds(key))
            found[key, contender.label] = Cell(setting, specs)
    return found


def selection_scores(preset: ControlPreset, key: str, contender: Contender, results: Results) -> np.ndarray:
    """Mean return per step over the last quarter of each setting on the selection seeds; a run that diverged counts as
    the lowest of them all.

    :param preset: The experiment's size.
    :param key: Of a domain.
    :param contender: One of the preset's.
    :param results: With all its selection runs ended.
    :return: Shape (settings,), in the order of :func:`~sb3_robust_be.experiments.grids.settings_of`.
    """
    selection = preset.selection_specs(key, contender)
    if len(selection) == 1 or not any(selection.values()):
        return np.zeros(len(selection))
    runs = {s: load_finals(results, specs) for s, specs in selection.items()}
    return np.array([own.mean() for own in lowest_for_failed(runs).values()])


def finals(preset: ControlPreset, results: Results) -> dict[str, dict[str, np.ndarray]]:
    """Final returns by domain's name and label, NaN for runs that diverged or failed."""
    return _of_cells(preset, results, load_finals)


def areas(preset: ControlPreset, results: Results) -> dict[str, dict[str, np.ndarray]]:
    """Areas under the learning curve by domain's name and label, NaN for runs that diverged or failed."""
    return _of_cells(preset, results, _load_areas)


def curves(preset: ControlPreset, results: Results) -> dict[str, dict[str, np.ndarray]]:
    """Learning curves by domain's name and label."""
    return _of_cells(preset, results, load_curves)


def _of_cells(
    preset: ControlPreset, results: Results, load: Callable[[Results, Sequence[Spec]], np.ndarray]
) -> dict[str, dict[str, np.ndarray]]:
    found: dict[str, dict[str, np.ndarray]] = {}
    for (key, label), cell in cells(preset, results).items():
        found.setdefault(preset.domain(key).name, {})[label] = load(results, cell.specs)
    return found


def _load_areas(results: Results, specs: Sequence[Spec]) -> np.ndarray:
    return np.array([np.nan if result is None else result["auc"] for result in results.of(specs)])
