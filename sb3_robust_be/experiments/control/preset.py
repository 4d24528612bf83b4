"""Control experiments: each algorithm's best setting is chosen on some seeds and reported on fresh ones."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    learn_calls: int = 1
    """In how many calls of ``learn`` a run is made, which schedules notice"""
    single: bool = False
    """Whether it is trained by single agents even so, since populations do not have one of its arguments"""


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
    further_step_sizes: int = 0
    """How many step sizes beyond either end of a contender's are tried as well where none is better than one there:
    each half or twice the last, with the other arguments of the best setting, until a better one lies inside. Not with
    one setting for all domains"""
    compile: bool = True
    stacked: bool = True
    """Lock-step populations, or single agents"""
    own_domains: Mapping[str, Domain] = field(default_factory=dict)
    contenders_of: Mapping[str, tuple[Contender, ...]] = field(default_factory=dict)
    """Others by domain: the same algorithms with fewer settings, where runs are expensive, or further ones"""
    rates_of: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By domain the step sizes of all contenders that have any, in place of theirs"""
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
        contenders = self.contenders_of.get(key, self.contenders)
        if key not in self.rates_of:
            return contenders
        rates = {"learning_rate": self.rates_of[key]}
        return tuple(
            replace(one, grid={**one.grid, **rates}) if rates.keys() <= one.grid.keys() else one for one in contenders
        )

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
        stacked = self.stacked and not contender.single and registry.find(contender.algorithm).population
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
                    learn_calls=contender.learn_calls,
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


@dataclass(frozen=True)
class Selection:
    """The settings that a contender has tried on a domain, and what they gave."""

    settings: list[dict[str, Any]]
    finals: list[np.ndarray]
    """For each setting the final returns of the selection seeds, shape (seeds,); NaN for runs that diverged or
    failed"""

    @property
    def scores(self) -> np.ndarray:
        """What the settings are chosen by: :func:`selection_scores`, shape (settings,)."""
        return selection_scores(self.finals)

    @property
    def step_sizes(self) -> list[float]:
        """Those that were tried, in ascending order; none where they are schedules."""
        rates = [setting.get("learning_rate") for setting in self.settings]
        plain = [rate for rate in rates if isinstance(rate, int | float)]
        return sorted(set(plain)) if len(plain) == len(rates) else []

    def beyond(self) -> list[dict[str, Any]]:
        """What to try next: half of the smallest step size where none is better than it, twice the largest likewise.

        :return: The first of the best settings at each such end, with that step size; none where the best lies inside.
        """
        scores, rates = self.scores, self.step_sizes
        if len(rates) < 2:
            return []
        best = [setting for score, setting in zip(scores, self.settings, strict=True) if score == scores.max()]
        found = []
        for end, beyond in ((rates[0], rates[0] / 2.0), (rates[-1], rates[-1] * 2.0)):
            at_end = [setting for setting in best if setting["learning_rate"] == end]
            found += [{**setting, "learning_rate": beyond} for setting in at_end[:1]]
        return found


Runs = dict[str, dict[str, np.ndarray]]
"""By domain's name and contender's label; the first axis is the seeds"""


@dataclass(frozen=True)
class ControlResults:
    """What the rows of a control experiment say, by key of a domain and label of a contender."""

    settings: Mapping[tuple[str, str], dict[str, Any]]
    """The chosen ones"""
    reported: Mapping[tuple[str, str], list[Row]]
    """A row per reported seed; without the runs that are still to be made, and the contenders that have no other"""
    selection: Mapping[tuple[str, str], Selection]
    """What the contenders chose from that have chosen"""
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

    def of(self, labels: Collection[str]) -> ControlResults:
        """The same of the contenders with these labels alone."""
        return ControlResults(
            {key: one for key, one in self.settings.items() if key[1] in labels},
            {key: rows for key, rows in self.reported.items() if key[1] in labels},
            {key: one for key, one in self.selection.items() if key[1] in labels},
            self.preset,
        )

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
    """The selection runs, and the reported ones of each contender that has chosen.

    :param preset: The experiment's size.
    :param rows: Of the runs so far.
    """
    table = _by_names(rows)
    tried = _tried(preset, table)
    selection = [run for runs in tried.values() for of_setting in runs for run in of_setting]
    settings = _chosen(preset, tried.keys(), _selected(tried, table))
    return selection + [run for runs in _reported_runs(preset, settings) for run in runs]


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
    :param rows: Of the runs so far; contenders whose selection has not ended are left out.
    """
    table = _by_names(rows)
    tried = _tried(preset, table)
    selection = _selected(tried, table)
    settings = _chosen(preset, tried.keys(), selection)
    rows_of = [[table[_key(run)] for run in runs if _key(run) in table] for runs in _reported_runs(preset, settings)]
    reported = {key: own for key, own in zip(settings, rows_of, strict=True) if own}
    return ControlResults(settings, reported, selection, preset)


_NAMES = ("stage", "domain", "contender", "setting", "seed", "steps")


def _by_names(rows: Rows) -> dict[tuple[Any, ...], Row]:
    return {key_of(row, _NAMES): row for row in rows}


def _key(run: Run) -> tuple[Any, ...]:
    return key_of(run.names, _NAMES)


_Tried = dict[tuple[str, str], list[list[Run]]]
"""For each contender that chooses on a domain, the selection runs of each setting, as far as it is known which"""


def _tried(preset: ControlPreset, table: Mapping[tuple[Any, ...], Row]) -> _Tried:
    return {
        (key, contender.label): _tried_by(preset, key, contender, table)
        for key in preset.domains
        for contender in preset.contenders_on(key)
        if preset.chooses(key, contender)
    }


def _tried_by(
    preset: ControlPreset, key: str, contender: Contender, table: Mapping[tuple[Any, ...], Row]
) -> list[list[Run]]:
    def runs_of(setting: Mapping[str, Any]) -> list[Run]:
        return preset.runs(SELECTION, key, contender, setting, preset.selecting_seeds(key))

    found = [runs_of(setting) for setting in settings_of(contender.grid)]
    grid = contender.grid.get("learning_rate", ())
    further = 0 if preset.one_setting else preset.further_step_sizes
    while further and (selection := _selection_of(found, table)):
        new = [
            setting
            for setting in selection.beyond()
            if min(grid) / 2.0**further <= setting["learning_rate"] <= max(grid) * 2.0**further
        ]
        if not new:
            break
        found += [runs_of(setting) for setting in new]
    return found


def _selection_of(runs: list[list[Run]], table: Mapping[tuple[Any, ...], Row]) -> Selection | None:
    """``None`` as long as some of the runs have no row."""
    rows = [[table.get(_key(run)) for run in of_setting] for of_setting in runs]
    if any(row is None for own in rows for row in own):
        return None
    finals = [_numbers([row for row in own if row is not None], "final") for own in rows]
    return Selection([dict(of_setting[0].names["setting"]) for of_setting in runs], finals)


def _selected(tried: _Tried, table: Mapping[tuple[Any, ...], Row]) -> dict[tuple[str, str], Selection]:
    found = {key: _selection_of(runs, table) for key, runs in tried.items()}
    return {key: selection for key, selection in found.items() if selection is not None}


def _chosen(
    preset: ControlPreset, choosing: Collection[tuple[str, str]], selection: Mapping[tuple[str, str], Selection]
) -> dict[tuple[str, str], dict[str, Any]]:
    """The setting of each contender on each domain, without those of which some selection is still to end."""
    found = {}
    for key in preset.domains:
        for contender in preset.contenders_on(key):
            domains = preset.domains if preset.one_setting else (key,)
            voters = [(domain, contender.label) for domain in domains if (domain, contender.label) in choosing]
            if not voters:
                found[key, contender.label] = settings_of(contender.grid)[0]
            elif all(voter in selection for voter in voters):
                # Between domains of different units it is ranks that can be added up.
                votes = [scipy.stats.rankdata(selection[voter].scores) for voter in voters]
                found[key, contender.label] = selection[voters[0]].settings[int(np.argmax(np.sum(votes, axis=0)))]
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
