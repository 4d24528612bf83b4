"""Control experiments: each algorithm's best setting is chosen on some seeds and reported on fresh ones."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy

from sb3_robust_be import registry
from sb3_robust_be.evaluation import lowest_for_failed
from sb3_robust_be.experiments.control.domains import DOMAINS, Domain, own_arguments, shared_arguments
from sb3_robust_be.experiments.control.training import CURVE_POINTS, POPULATION, SINGLE, control_spec
from sb3_robust_be.experiments.experiment import REPORTED, SELECTION, Results, Run
from sb3_robust_be.experiments.rows import Row, Rows, key_of, rounded

# Seeds that choose settings are never reported.
FIRST_SELECTION_SEED = 10_000


def settings_of(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """
    :param grid: Values of each argument.
    :return: The arguments of every combination.
    """
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments from several places; one in a later place stands in place of an earlier one of that name.

    ``policy_kwargs`` go together argument by argument, so that a contender may have layer normalisation in the network
    of the domain, whatever that is.

    :param parts: Arguments by name.
    """
    arguments: dict[str, Any] = {}
    for part in parts:
        network = {**(arguments.get("policy_kwargs") or {}), **(part.get("policy_kwargs") or {})}
        arguments |= {**part, "policy_kwargs": network}
    return arguments


@dataclass(frozen=True)
class Contender:
    """An algorithm with the settings that it may choose from."""

    label: str
    algorithm: str
    grid: Mapping[str, Sequence[Any]]
    """Values of each argument; one value each: nothing is chosen"""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments; its ``policy_kwargs`` are added to the domain's"""


@dataclass(frozen=True)
class ControlPreset:
    """What a control experiment consists of: environments, algorithms, seeds and steps."""

    domains: tuple[str, ...]
    """Keys of :data:`~sb3_robust_be.experiments.control.domains.DOMAINS` or of ``own_domains``"""
    contenders: tuple[Contender, ...]
    seeds: int
    """Reported ones, per contender and domain"""
    selection_seeds: int
    steps: float = 1.0
    """Environment steps of a run, as a fraction of the paper's"""
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
    contenders_of: Mapping[str, tuple[Contender, ...]] = field(default_factory=dict)
    """Others by domain: the same algorithms with fewer settings, where runs are expensive"""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of all contenders, in place of the domain's"""
    papers_arguments: bool = True
    """Whether what is given nowhere is the paper's; else it is each class's default"""
    first_seed: int = 0
    """Of the reported ones: experiments that choose what others report have seeds of their own"""
    note: str = ""
    """In which ways this is less than the paper's, for the report"""

    def domain(self, key: str) -> Domain:
        """The domain of that name."""
        return self.own_domains[key] if key in self.own_domains else DOMAINS[key]

    def steps_of(self, key: str) -> int:
        """Environment steps of a run on a domain."""
        return max(1, round(self.steps_by_domain.get(key, self.steps) * self.domain(key).steps))

    def contenders_on(self, key: str) -> tuple[Contender, ...]:
        """The contenders of a domain."""
        return self.contenders_of.get(key, self.contenders)

    def runs(
        self, stage: str, key: str, contender: Contender, setting: Mapping[str, Any], seeds: Sequence[int]
    ) -> list[Run]:
        """One run per seed."""
        domain = self.domain(key)
        papers = (shared_arguments(domain), own_arguments(domain, contender.algorithm))
        arguments = merged(
            *(papers if self.papers_arguments else ()),
            domain.arguments,
            self.arguments,
            contender.choices,
            setting,
        )
        stacked = self.stacked and registry.find(contender.algorithm).population
        names = {"stage": stage, "domain": key, "contender": contender.label, "setting": dict(setting)}
        return [
            Run(
                {**names, "seed": seed, "steps": self.steps_of(key)},
                control_spec(
                    contender.algorithm,
                    domain.env,
                    self.steps_of(key),
                    seed,
                    arguments,
                    policy=domain.policy,
                    env_kwargs=dict(domain.env_kwargs),
                    gym_packages=domain.gym_packages,
                    normalize=domain.normalize,
                    compile=self.compile and stacked,
                    function=POPULATION if stacked else SINGLE,
                ),
            )
            for seed in seeds
        ]

    def chooses(self, key: str, contender: Contender) -> bool:
        """Whether a contender chooses among several settings on a domain."""
        return len(settings_of(contender.grid)) > 1 and len(self.selecting_seeds(key)) > 0

    def selecting_seeds(self, key: str) -> range:
        """Seeds that choose settings for a domain."""
        count = self.selection_seeds_of.get(key, self.selection_seeds)
        return range(FIRST_SELECTION_SEED, FIRST_SELECTION_SEED + count)

    def reported_seeds(self, key: str) -> range:
        """Fresh seeds for a domain."""
        return range(self.first_seed, self.first_seed + self.seeds_of.get(key, self.seeds))


Runs = dict[str, dict[str, np.ndarray]]
"""By domain's name and contender's label; the first axis is the seeds"""


@dataclass(frozen=True)
class ControlResults:
    """What the rows of a control experiment say, by key of a domain and label of a contender."""

    settings: Mapping[tuple[str, str], dict[str, Any]]
    """The chosen ones"""
    reported: Mapping[tuple[str, str], list[Row]]
    """A row per reported seed; without the runs that are still to be made, and the contenders that have no other"""
    selection: Mapping[tuple[str, str], list[np.ndarray]]
    """For each setting of a contender that chooses, the final returns of the selection seeds, shape (seeds,); NaN for
    runs that diverged or failed"""
    preset: ControlPreset

    @property
    def finals(self) -> Runs:
        """Final returns, NaN for runs that diverged or failed; shape (seeds,)."""
        return self._column("final")

    @property
    def areas(self) -> Runs:
        """Areas under the learning curve, likewise."""
        return self._column("auc")

    @property
    def curves(self) -> Runs:
        """Learning curves, shape (seeds, points); NaN where there is none, as for runs that diverged or failed."""
        found: Runs = {}
        for (key, label), rows in self.reported.items():
            nothing = np.full(min(CURVE_POINTS, self.preset.steps_of(key)), np.nan)
            own = found.setdefault(self.preset.domain(key).name, {})
            alive = [row if row.get("diverged_at") is None else {} for row in rows]
            own[label] = np.array([row.get("curve", nothing) for row in alive])
        return found

    def named(self) -> list[tuple[str, str, list[Row]]]:
        """Domain's name, contender's label and reported rows."""
        return [(self.preset.domain(key).name, label, rows) for (key, label), rows in self.reported.items()]

    def _column(self, name: str) -> Runs:
        found: Runs = {}
        for (key, label), rows in self.reported.items():
            found.setdefault(self.preset.domain(key).name, {})[label] = _numbers(rows, name)
        return found


def _numbers(rows: Sequence[Row], name: str) -> np.ndarray:
    return np.array([row.get(name, np.nan) for row in rows], dtype=float)


def plan(preset: ControlPreset, rows: Rows) -> list[Run]:
    """Selection, and once all of that has ended, the reported runs.

    :param preset: The experiment's size.
    :param rows: Of the runs so far.
    """
    selection = [
        run
        for key in preset.domains
        for contender in preset.contenders_on(key)
        if preset.chooses(key, contender)
        for setting in settings_of(contender.grid)
        for run in preset.runs(SELECTION, key, contender, setting, preset.selecting_seeds(key))
    ]
    table = _by_names(rows)
    if any(_key(run) not in table for run in selection):
        return selection
    return selection + [
        run for runs in _reported_runs(preset, _chosen(preset, _selected(preset, table))) for run in runs
    ]


def measure(run: Run, results: Results) -> list[Row]:
    """The row of a control run that is done.

    :param run: Of :func:`plan`.
    :param results: Of its folder.
    """
    result = results.result(run.spec)
    assert result is not None
    row: Row = {name: result[name] for name in ("final", "diverged_at", "unfinished") if name in result}
    if run.names["stage"] == REPORTED:
        row |= {"auc": result["auc"], "curve": rounded(results.arrays(run.spec)["curve"])}
    return [row]


def read(preset: ControlPreset, rows: Rows) -> ControlResults:
    """
    :param preset: The experiment's size.
    :param rows: With those of all selection runs.
    """
    table = _by_names(rows)
    selection = _selected(preset, table)
    settings = _chosen(preset, selection)
    rows_of = [[table[_key(run)] for run in runs if _key(run) in table] for runs in _reported_runs(preset, settings)]
    reported = {key: own for key, own in zip(settings, rows_of, strict=True) if own}
    return ControlResults(settings, reported, selection, preset)


_NAMES = ("stage", "domain", "contender", "setting", "seed", "steps")


def _by_names(rows: Rows) -> dict[tuple[Any, ...], Row]:
    return {key_of(row, _NAMES): row for row in rows}


def _key(run: Run) -> tuple[Any, ...]:
    return key_of(run.names, _NAMES)


def _selected(preset: ControlPreset, table: Mapping[tuple[Any, ...], Row]) -> dict[tuple[str, str], list[np.ndarray]]:
    found = {}
    for key in preset.domains:
        for contender in preset.contenders_on(key):
            if preset.chooses(key, contender):
                seeds = preset.selecting_seeds(key)
                runs = [preset.runs(SELECTION, key, contender, s, seeds) for s in settings_of(contender.grid)]
                own = [_numbers([table.get(_key(run), {}) for run in of], "final") for of in runs]
                found[key, contender.label] = own
    return found


def _chosen(
    preset: ControlPreset, selection: Mapping[tuple[str, str], list[np.ndarray]]
) -> dict[tuple[str, str], dict[str, Any]]:
    found = {}
    for key in preset.domains:
        for contender in preset.contenders_on(key):
            settings = settings_of(contender.grid)
            voters = preset.domains if preset.one_setting else (key,)
            # Between domains of different units it is ranks that can be added up.
            votes = [
                scipy.stats.rankdata(selection_scores(selection[voter, contender.label]))
                for voter in voters
                if (voter, contender.label) in selection
            ]
            best = int(np.argmax(np.sum(votes, axis=0))) if votes else 0
            found[key, contender.label] = settings[best]
    return found


def _reported_runs(preset: ControlPreset, settings: Mapping[tuple[str, str], dict[str, Any]]) -> list[list[Run]]:
    contenders = {(key, one.label): one for key in preset.domains for one in preset.contenders_on(key)}
    return [
        preset.runs(REPORTED, key, contenders[key, label], setting, preset.reported_seeds(key))
        for (key, label), setting in settings.items()
    ]


def selection_scores(finals: Sequence[np.ndarray]) -> np.ndarray:
    """The score by which a setting is chosen: its mean final return on the selection seeds.

    A run that diverged counts as the lowest of them all.

    :param finals: For each setting, :func:`~sb3_robust_be.evaluation.final_performance` of each seed, shape (seeds,);
        NaN for runs that diverged or failed.
    :return: Shape (settings,).
    """
    ranked = lowest_for_failed({str(i): own for i, own in enumerate(finals)})
    return np.array([own.mean() for own in ranked.values()])
