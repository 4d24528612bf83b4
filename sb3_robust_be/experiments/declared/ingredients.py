"""Ours: which ingredient does what — the loss, a target network, layer normalisation, the correction, the step size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy

from sb3_robust_be import report
from sb3_robust_be.evaluation import (
    Interval,
    Verdict,
    combined,
    greater,
    interactions,
    judged,
    lowest_for_failed,
    main_effects,
    mean_interval,
    unresolved_if_lost,
    worst_decile_mean,
)
from sb3_robust_be.experiments.control.contenders import FEW_RATES, Rate, falling
from sb3_robust_be.experiments.control.control_analysis import MEASURE, unfinished_notes
from sb3_robust_be.experiments.control.domains import CHEAP_DOMAINS, DOMAINS, DQN_TARGET, SCALES
from sb3_robust_be.experiments.control.preset import Contender, ControlPreset, ControlResults, measure, plan, read
from sb3_robust_be.experiments.experiment import (
    Analysis,
    Experiment,
    Reading,
    Results,
    Run,
    distinct_runs,
    without_rows,
)
from sb3_robust_be.experiments.rows import Row, Rows

LOSSES = {"κ = 1": 1.0, "squared": math.inf}
"""Thresholds of the loss of the first term: SB3's, and none"""
TARGETS = {"no target": None, "target": DQN_TARGET}
NORMS = {"plain": False, "LayerNorm": True}
CORRECTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("dqn", {}),
    "QRC": ("qrc", {}),
    "QRC, scaled": ("qrc", {"h_regularization_scale": "features"}),
    "QRC-Huber, smooth": ("qrc_huber", {"projection": "smooth_huber"}),
    "QLC": ("qlc", {"limit": "magnitude"}),
    "one-sided": ("qlc", {"limit": "one_sided"}),
}
"""By name: an algorithm and its arguments; without a correction, ours is DQN"""
CONSTANT = 2.0**-10
FALLING = falling(-9)
FINALISTS = 6
FIRST_SEED = 20_000
"""Of the factorial. What is seen here may become a candidate elsewhere, which is then reported on other seeds"""
FIRST_FALLING_SEED = FIRST_SEED + 10_000
"""Of the runs with a step size that falls"""

ONE_RATE, FALLS, BEST = "2^-10", "falling", "best of three"
"""The stages of the experiment, as columns of the table: the factorial, and what is run once it is complete"""


class Cell(NamedTuple):
    """One combination of the ingredients."""

    correction: str
    loss: str
    target: str
    norm: str

    @property
    def label(self) -> str:
        """The contender's name in rows and tables."""
        return f"{self.correction} | {self.loss} | {self.target} | {self.norm}"

    def contender(self, rates: Sequence[Rate]) -> Contender:
        """The combination with its algorithm's arguments."""
        algorithm, own = CORRECTIONS[self.correction]
        threshold = "huber_threshold" if algorithm == "dqn" else "td_error_threshold"
        choices = {
            **own,
            threshold: LOSSES[self.loss],
            "target_update_interval": TARGETS[self.target],
            **_network(NORMS[self.norm]),
        }
        return Contender(self.label, algorithm, {"learning_rate": rates}, choices)


def _network(layer_norm: bool) -> dict[str, Any]:
    return {"policy_kwargs": {"layer_norm": layer_norm}}


CELLS = tuple(Cell(*names) for names in itertools.product(CORRECTIONS, LOSSES, TARGETS, NORMS))
BASELINES = tuple(cell for cell in CELLS if cell.correction == "none")
BESIDE = {f"SBEED | {norm}": layer_norm for norm, layer_norm in NORMS.items()}
"""Outside the factorial: SBEED with its defaults"""


@dataclass(frozen=True)
class IngredientsPreset:
    """The size of the experiment."""

    domains: tuple[str, ...]
    seeds: int
    steps: Mapping[str, float]
    """Environment steps of a run by domain, as a fraction of the paper's"""
    selection_seeds: int
    """That choose each cell's best of three step sizes; 0: that part is left out"""
    cells: tuple[Cell, ...] = CELLS
    compile: bool = True
    note: str = ""

    def _part(
        self, domain: str, contenders: list[Contender], selection_seeds: int = 0, first_seed: int = FIRST_SEED
    ) -> ControlPreset:
        return ControlPreset(
            (domain,),
            tuple(contenders),
            self.seeds,
            selection_seeds,
            steps_by_domain=self.steps,
            compile=self.compile,
            first_seed=first_seed,
        )

    def at_one_step_size(self, domain: str, rates: Sequence[Rate] = (CONSTANT,), selection: int = 0) -> ControlPreset:
        """The factorial and SBEED beside it, on a domain."""
        beside = [
            Contender(label, "sbeed", {"learning_rate": rates}, _network(layer_norm))
            for label, layer_norm in BESIDE.items()
        ]
        return self._part(domain, [*(cell.contender(rates) for cell in self.cells), *beside], selection)

    def at_the_best_step_size(self, domain: str) -> ControlPreset:
        """The same, each with the best of three step sizes, chosen on other seeds."""
        return self.at_one_step_size(domain, FEW_RATES, self.selection_seeds)

    def falling(self, domain: str, cells: tuple[Cell, ...]) -> ControlPreset:
        """Some cells with a step size that falls, on seeds that have not chosen them."""
        return self._part(domain, [cell.contender((FALLING,)) for cell in cells], first_seed=FIRST_FALLING_SEED)


Returns = Mapping[str, np.ndarray]
"""Final returns (runs,) by label, without NaN"""
Finals = Mapping[str, Mapping[str, np.ndarray]]
"""Final returns (runs,) by domain and label; NaN for runs without one"""


def ranks(finals: Finals) -> dict[str, float]:
    """The mean rank of each contender's mean return over the domains; 1 is the best.

    :param finals: Of one stage, whose lowest return counts for runs without one.
    """
    means = {domain: {x: y.mean() for x, y in lowest_for_failed(own).items()} for domain, own in finals.items()}
    labels = list(next(iter(means.values())))
    found = [scipy.stats.rankdata([-own[label] for label in labels]) for own in means.values()]
    return dict(zip(labels, np.mean(found, axis=0).tolist(), strict=True))


def finalists(cells: tuple[Cell, ...], finals: Finals) -> tuple[Cell, ...]:
    """The best combinations with a correction by mean rank, and every baseline.

    :param cells: Of the factorial.
    :param finals: Of the factorial, at one step size.
    """
    found = ranks(finals)
    own = sorted((cell for cell in cells if cell.correction != "none"), key=lambda cell: found[cell.label])
    return (*own[:FINALISTS], *(cell for cell in BASELINES if cell in cells))


def lowest_returns(stages: Iterable[Finals]) -> dict[str, float]:
    """The lowest return of any run on each domain, which counts for runs without one; 0 where there is none at all.

    It is one for all stages, whose means stand beside each other.

    :param stages: As far as they are there.
    """
    together: dict[str, list[np.ndarray]] = {}
    for stage in stages:
        for domain, own in stage.items():
            together.setdefault(domain, []).extend(own.values())
    return {
        domain: min(filter(math.isfinite, np.concatenate(runs).tolist()), default=0.0)
        for domain, runs in together.items()
    }


def with_lowest(finals: Finals, lowest: Mapping[str, float]) -> dict[str, Returns]:
    """
    :param finals: Of a stage.
    :param lowest: Of :func:`lowest_returns`.
    :return: The same with the lowest return of the domain for runs without one.
    """
    return {
        domain: {label: np.where(np.isfinite(runs), runs, lowest[domain]) for label, runs in own.items()}
        for domain, own in finals.items()
    }


def _measure(run: Run, results: Results) -> list[Row]:
    """Without the learning curves, which nothing here looks at: there are thousands of runs."""
    return [{name: value for name, value in row.items() if name != "curve"} for row in measure(run, results)]


def _finals(parts: list[ControlResults]) -> dict[str, dict[str, np.ndarray]]:
    return {domain: own for part in parts for domain, own in part.finals.items()}


def _later_stages(preset: IngredientsPreset, chosen: tuple[Cell, ...]) -> dict[str, list[ControlPreset]]:
    """What is run once the factorial is complete, by stage; a part for each domain."""
    parts = {FALLS: [preset.falling(domain, chosen) for domain in preset.domains]}
    if preset.selection_seeds:
        parts[BEST] = [preset.at_the_best_step_size(domain) for domain in preset.domains]
    return parts


def _own(part: ControlPreset, rows: Rows) -> list[Row]:
    """The rows of its domain: its functions go through all that they are given, and there are thousands."""
    return [row for row in rows if row.get("domain") in part.domains]


def _planned(parts: list[ControlPreset], rows: Rows) -> list[Run]:
    return [run for part in parts for run in plan(part, _own(part, rows))]


def _read(parts: list[ControlPreset], rows: Rows) -> list[ControlResults]:
    return [read(part, _own(part, rows)) for part in parts]


def _plan(preset: IngredientsPreset, rows: Rows) -> list[Run]:
    first = [preset.at_one_step_size(domain) for domain in preset.domains]
    runs = _planned(first, rows)
    if without_rows(runs, rows):
        return runs
    chosen = finalists(preset.cells, _finals(_read(first, rows)))
    for parts in _later_stages(preset, chosen).values():
        runs += _planned(parts, rows)
    # The best of the three step sizes may be the factorial's.
    return distinct_runs(runs)


def by_cell(cells: tuple[Cell, ...], own: Returns) -> dict[tuple[str, ...], np.ndarray]:
    """
    :param cells: Of the factorial.
    :param own: On a domain.
    :return: The same by the levels of each cell, for :mod:`sb3_robust_be.evaluation.factorial`.
    """
    return {tuple(cell): own[cell.label] for cell in cells}


def _effects_table(cells: tuple[Cell, ...], stages: Mapping[str, Mapping[str, Returns]]) -> report.Table:
    """
    :param cells: Of the factorial.
    :param stages: Those that have all cells, by name.
    """
    rows: list[Row] = []
    for domain in next(iter(stages.values())):
        for kind, effects in (("main", main_effects), ("interaction", interactions)):
            found = {name: effects(Cell._fields, by_cell(cells, finals[domain])) for name, finals in stages.items()}
            rows += [
                {"domain": domain, "kind": kind, "effect": effect}
                | {f"difference of the return, {name}": own[effect] for name, own in found.items()}
                for effect in next(iter(found.values()))
            ]
    caption = (
        f"{MEASURE}, averaged over all other ingredients, {'; '.join(_WORDS[name] for name in stages)}. Main: with the "
        "level, less with the first one of its kind (no correction, κ = 1, no target network, no normalisation). "
        "Interaction: how much larger an effect is where the other level is there as well. Student's 95 % intervals "
        "over the seeds, each of which gives one difference; they are not corrected for their number."
    )
    return report.Table("effect-sizes", rows, caption=caption)


def _effects_plot(cells: tuple[Cell, ...], finals: Mapping[str, Returns], scales: Mapping[str, float]) -> report.Plot:
    panels: dict[str, dict[str, dict[str, Interval]]] = {}
    for domain, own in finals.items():
        scaled = {label: values / scales[domain] for label, values in own.items()}
        for name, interval in main_effects(Cell._fields, by_cell(cells, scaled)).items():
            kind, _, level = name.partition(": ")
            panels.setdefault(domain, {}).setdefault(level, {})[kind] = interval
    widths = ", ".join(f"{domain} {scales[domain]:g}" for domain in finals)
    caption = (
        "What each ingredient adds to the return, averaged over all others, as a fraction of the domain's scale "
        f"({widths}). Student's 95 % intervals over seeds."
    )
    return report.bars("effects", panels, measure="effect / scale", caption=caption)


_WORDS = {
    ONE_RATE: "at the step size 2^-10",
    FALLS: f"with one that falls from 2^-9 to 2^-13 (the {FINALISTS} best combinations with a correction by mean rank, "
    "and every one without)",
    BEST: "at the best of three, chosen on other seeds",
}


def _cells_table(stages: Mapping[str, Mapping[str, Returns]], rank: Mapping[str, float]) -> report.Table:
    """
    :param stages: By name; the factorial has all combinations, others some of them.
    :param rank: By label.
    """
    rows: list[Row] = []
    for domain, own in stages[ONE_RATE].items():
        for label in sorted(own, key=rank.__getitem__):
            row: Row = {"domain": domain, "combination": label.replace(" | ", ", "), "mean rank": rank[label]}
            for name, stage in stages.items():
                row |= _columns(name, stage[domain].get(label))
            rows.append(row)
    caption = (
        f"{MEASURE}: mean and the mean of the worst tenth of the seeds, {'; '.join(_WORDS[name] for name in stages)}. "
        "The rank is that of the mean at 2^-10, averaged over the domains; 1 is the best."
    )
    return report.Table("combinations", rows, caption=caption)


def _columns(name: str, values: np.ndarray | None) -> Row:
    mean, worst = (
        (None, None)
        if values is None
        else (mean_interval(values, rng=np.random.default_rng(0)), float(worst_decile_mean(values)))
    )
    return {name: mean, f"{name}, worst decile": worst}


def ingredient_verdicts(cells: tuple[Cell, ...], finals: Finals, lowest: Mapping[str, float]) -> list[Verdict]:
    """The claims on what matters, by paired t tests: runs of one seed share the environment's random numbers.

    A comparison in which more than a tenth of the runs of one side have no return is not resolved.

    :param cells: Of the factorial.
    :param finals: Of the factorial.
    :param lowest: Of :func:`lowest_returns`.
    :return: Of each claim whether it holds on every domain, then all comparisons on single domains.
    """
    filled = with_lowest(finals, lowest)
    claims: list[Verdict] = []
    single: list[Verdict] = []
    pairs = {
        "Without a target network, the squared loss is above the Huber loss of DQN": (
            Cell("none", "squared", "no target", "plain"),
            Cell("none", "κ = 1", "no target", "plain"),
        ),
        "Layer normalisation raises squared Q-learning without a target network": (
            Cell("none", "squared", "no target", "LayerNorm"),
            Cell("none", "squared", "no target", "plain"),
        ),
        "Relative to the features, QRC's regulariser is above the absolute one": (
            Cell("QRC, scaled", "squared", "no target", "plain"),
            Cell("QRC", "squared", "no target", "plain"),
        ),
        "One-sided corrections raise squared Q-learning with layer normalisation": (
            Cell("one-sided", "squared", "no target", "LayerNorm"),
            Cell("none", "squared", "no target", "LayerNorm"),
        ),
        "One-sided corrections are above two-sided ones with layer normalisation": (
            Cell("one-sided", "squared", "no target", "LayerNorm"),
            Cell("QLC", "squared", "no target", "LayerNorm"),
        ),
    }
    for claim, (better, worse) in pairs.items():
        if better not in cells or worse not in cells:
            continue
        parts = [
            unresolved_if_lost(
                greater(f"{domain}: {claim}", own[better.label], own[worse.label], method="paired"),
                finals[domain][better.label],
                finals[domain][worse.label],
            )
            for domain, own in filled.items()
        ]
        claims.append(combined(f"{claim} on every domain", parts))
        single += parts
    return judged(claims, single)


def _missing(parts: list[ControlPreset], rows: Rows) -> list[Run]:
    return without_rows(_planned(parts, rows), rows)


def _analyse(preset: IngredientsPreset, rows: Rows) -> Analysis:
    factorial = [preset.at_one_step_size(domain) for domain in preset.domains]
    if missing := _missing(factorial, rows):
        total = len(_planned(factorial, rows))
        note = (
            f"Nothing is said yet: {len(missing)} of the {total} runs at the step size {ONE_RATE} have not been made, "
            "and an effect is an average over all of them."
        )
        return Analysis(notes=[note])
    results = {ONE_RATE: _read(factorial, rows)}
    constant = _finals(results[ONE_RATE])
    left_out = []
    # From the returns as they are: a lowest return that later stages bring must not choose others than were run.
    for name, parts in _later_stages(preset, finalists(preset.cells, constant)).items():
        if _missing(parts, rows):
            left_out.append(f"The column {name!r} is left out: those runs have not all been made.")
        else:
            results[name] = _read(parts, rows)
    finals = {name: _finals(parts) for name, parts in results.items()}
    lowest = lowest_returns(finals.values())
    filled = {name: with_lowest(own, lowest) for name, own in finals.items()}
    scales = {DOMAINS[d].name: SCALES[d] for d in preset.domains}
    return Analysis(
        verdicts=ingredient_verdicts(preset.cells, constant, lowest),
        plots=[_effects_plot(preset.cells, filled[ONE_RATE], scales)],
        tables=[
            _effects_table(preset.cells, {name: own for name, own in filled.items() if name != FALLS}),
            _cells_table(filled, ranks(constant)),
        ],
        notes=[
            f"{preset.seeds} seeds; steps: "
            + ", ".join(f"{DOMAINS[d].name} {preset.at_one_step_size(d).steps_of(d)}" for d in preset.domains)
            + ". The domains' networks and buffers are the paper's.",
            "Runs without a return (diverged or crashed) count as the lowest return of the domain at any step size.",
            *left_out,
            *unfinished_notes(
                (f"{domain}, {name}", label, own)
                for name, parts in results.items()
                for part in parts
                for domain, label, own in part.named()
            ),
            *([preset.note] if preset.note else []),
        ],
    )


_SHORTER = "Shorter than the paper's runs: 30 000 steps, Mountain Car 40 000, Cliff World 20 000."
STEPS = {"acrobot": 0.3, "cart-pole": 0.3, "cliff-world": 0.4, "mountain-car": 0.4}
PRESETS = {
    "smoke": IngredientsPreset(
        ("cart-pole", "cliff-world"),
        seeds=2,
        steps={"cart-pole": 0.002, "cliff-world": 0.011},
        selection_seeds=0,
        cells=tuple(
            Cell(*names)
            for names in itertools.product(("none", "one-sided"), ("κ = 1", "squared"), ("no target",), ("plain",))
        ),
        compile=False,
    ),
    "laptop": IngredientsPreset(
        CHEAP_DOMAINS,
        seeds=20,
        steps=STEPS,
        selection_seeds=0,
        note=f"{_SHORTER} The best of three step sizes for each combination is in the scale `long`.",
    ),
    "long": IngredientsPreset(CHEAP_DOMAINS, seeds=20, steps=STEPS, selection_seeds=5, note=_SHORTER),
    "paper": IngredientsPreset(CHEAP_DOMAINS, seeds=100, steps=dict.fromkeys(CHEAP_DOMAINS, 1.0), selection_seeds=10),
}

EXPERIMENT = Experiment(
    name="ingredients",
    figure="ours",
    summary="Loss, target network, layer normalisation, correction and step size: what each adds, alone and together",
    claims=(
        "Without a target network, the squared loss is above the Huber loss of DQN.",
        "Layer normalisation raises squared Q-learning without a target network.",
        "Relative to the features, QRC's regulariser is above the absolute one.",
        "One-sided corrections raise squared Q-learning with layer normalisation, and more than two-sided ones.",
    ),
    presets=PRESETS,
    plan=_plan,
    measure=_measure,
    analyse=_analyse,
    readings=(
        Reading(
            "At which step size are ingredients compared?",
            ("one for all", "each combination's best of three"),
            "one for all",
            "an effect is then one of the ingredient alone; the best of three stands beside it.",
        ),
        Reading(
            "How are two combinations compared?",
            ("as independent samples (Welch)", "seed by seed (paired t)"),
            "seed by seed",
            "runs of one seed see the same random numbers of the environment, so that two combinations are no "
            "independent samples; the effects have their intervals from differences within a seed as well.",
        ),
        Reading(
            "What is a correction's Huber loss?",
            ("a clipped first term, with h and the correction on δ as it is", "h on the clipped δ as well"),
            "a clipped first term",
            "the loss is that of the values; what h estimates is the paper's in every combination.",
        ),
    ),
)
