"""Figure 5 and the appendix's figure of the MAVE: online prediction over step sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sb3_robust_be import report
from sb3_robust_be.evaluation import Verdict
from sb3_robust_be.experiments.experiment import REPORTED, Analysis, Experiment, Reading, Run
from sb3_robust_be.experiments.linear.prediction_claims import (
    SIMILAR,
    SIX,
    TD_DIVERGES,
    Panel,
    Panels,
    of_errors,
    of_late_absolute_errors,
    of_variances,
    part_rows,
    td_diverges,
)
from sb3_robust_be.experiments.linear.prediction_figures import MEASURES, sensitivity_plots, table
from sb3_robust_be.experiments.linear.prediction_problems import Case, build
from sb3_robust_be.experiments.linear.sweep_runs import SHOWN, measure, read_sensitivity, sweep_spec
from sb3_robust_be.experiments.rendering import Rendering, verdicts_of
from sb3_robust_be.experiments.rows import Row, Rows
from sb3_robust_be.linear import get
from sb3_robust_be.linear.sweeps import PAPER_ALPHAS, PAPER_ETAS, paper_steps

OTHERS = ("td", "tdrc", "qlc")
"""Beside the paper's six; QLC is ours"""
CASES = (
    Case("HardAlias-1", "HardAlias-1"),
    Case("HardAlias-2", "HardAlias-2"),
    Case("HardAlias-2, θ₀ = 1", "HardAlias-2", {"start": "one"}),
    Case("SmallChain, features 0", "SmallChain", {"seed": 0}),
    Case("Baird", "Baird", {"start": "last"}),
    Case("Baird, θ₀ = (1⁶,10,1)", "Baird", {"start": "sixth"}),
)
PICTURES = ("msve-auc-gtd2", "msve-auc-tdc", "mave-late-tdc")
"""The figures that carry the page: the paper's two families over the whole run, and TDC's at its end"""
FEATURES = tuple(Case(f"SmallChain, features {seed}", "SmallChain", {"seed": seed}) for seed in (1, 2, 3))
"""Other draws of SmallChain's network, for the paper's six only"""


@dataclass(frozen=True)
class PredictionPreset:
    """The size of the sweep."""

    seeds: int
    """Reported ones"""
    selection_seeds: int
    alphas: tuple[float, ...] = PAPER_ALPHAS
    etas: tuple[float, ...] = PAPER_ETAS
    steps: float = 1.0
    """As a fraction of the paper's"""
    evaluations: int = 100
    cases: tuple[Case, ...] = CASES
    features: tuple[Case, ...] = FEATURES
    backend: str = "auto"

    def steps_of(self, case: Case) -> int:
        """Updates of a run."""
        return max(self.evaluations, round(self.steps * paper_steps(case.problem)))

    def algorithms(self) -> dict[str, tuple[str, ...]]:
        """By case."""
        return {case.label: (*SIX, *OTHERS) for case in self.cases} | {case.label: SIX for case in self.features}

    def run(self, case: Case, algorithm: str) -> Run:
        """A sweep."""
        return Run(
            {"stage": REPORTED, "domain": case.label, "contender": algorithm, "steps": self.steps_of(case)},
            sweep_spec(
                case,
                algorithm,
                alphas=self.alphas,
                etas=self.etas,
                seeds=self.seeds,
                selection_seeds=self.selection_seeds,
                steps=self.steps_of(case),
                evaluations=self.evaluations,
                backend=self.backend,
            ),
        )


PRESETS = {
    "smoke": PredictionPreset(
        seeds=8,
        selection_seeds=4,
        alphas=(2.0**-8, 2.0**-5, 2.0**-2),
        etas=(0.25, 4.0),
        steps=0.002,
        evaluations=20,
        cases=tuple(case for case in CASES if case.label in ("SmallChain, features 0", "Baird")),
        features=(),
        backend="numpy",
    ),
    "laptop": PredictionPreset(seeds=100, selection_seeds=50),
    "paper": PredictionPreset(seeds=100, selection_seeds=50),
}


def plan(preset: PredictionPreset, rows: Rows) -> list[Run]:
    """All runs at once: the selection seeds go through the same sweep."""
    algorithms = preset.algorithms()
    cases = (*preset.cases, *preset.features)
    return [preset.run(case, algorithm) for case in cases for algorithm in algorithms[case.label]]


def panels_of(preset: PredictionPreset, rows: Rows) -> dict[str, dict[str, Panel]]:
    """
    :param preset: The size.
    :param rows: Of its runs; a case is left out if one of the paper's six algorithms has failed there.
    :return: By measure, case and algorithm.
    """
    grouped: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if "failed" not in row:
            grouped.setdefault((row["measure"], row["domain"], row["contender"]), []).append(row)
    found: dict[str, dict[str, Panel]] = {name: {} for name in MEASURES}
    for name, panels in found.items():
        for case, algorithms in preset.algorithms().items():
            finished = [one for one in algorithms if (name, case, one) in grouped]
            if set(SIX) <= set(finished):
                panels[case] = {one: read_sensitivity(preset.alphas, grouped[name, case, one]) for one in finished}
    return found


def errors_before(rows: Rows) -> dict[str, dict[str, float]]:
    """
    :param rows: Of the runs.
    :return: The errors of the initial weights, by metric and case.
    """
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if "failed" not in row:
            found.setdefault(row["measure"].partition("_")[0], {})[row["domain"]] = row["before"]
    return found


def judged(
    panels: Mapping[str, Panels], before: Mapping[str, Mapping[str, float]]
) -> tuple[list[Verdict], list[dict[str, Any]]]:
    """
    :param panels: Of :func:`panels_of`.
    :param before: Of :func:`errors_before`.
    :return: Verdicts by sentence of the paper, after Holm, and a row per claim and case that they rest on, another
        family.
    """
    errors, late = of_errors(panels["msve_auc"]), of_late_absolute_errors(panels["mave_late"], before["mave"])
    cases = [case for case in (*CASES, *FEATURES) if case.label in panels["msve_auc"]]
    variances = of_variances({case.label: build(**case.as_json()) for case in cases})
    exact = Rendering(TD_DIVERGES, [], [td_diverges(get("Baird"))])
    renderings: dict[str, Rendering] = {}
    for of in (*errors.renderings, *variances.renderings, *late.renderings, exact):
        # The captions of both figures have the same words.
        own = renderings.setdefault(of.sentence, Rendering(of.sentence, [], []))
        own.claims.extend(of.claims)
        own.comparisons.extend(of.comparisons)
    return verdicts_of(list(renderings.values())), part_rows([errors, variances, late])


def _analyse(preset: PredictionPreset, rows: Rows) -> Analysis:
    panels, before = panels_of(preset, rows), errors_before(rows)
    if not panels["msve_auc"]:
        return Analysis(notes=["Every problem has failed runs."])
    verdicts, parts = judged(panels, before)
    analysis = Analysis(
        verdicts=verdicts,
        tables=[report.Table("claims-by-problem", parts, caption="What the verdicts rest on, and other cases.")],
        notes=[
            f"α and η were chosen on {preset.selection_seeds} seeds from 10 000 on; what is reported are "
            f"{preset.seeds} other seeds, from 0 on, the same trajectories for every algorithm. Runs that diverged "
            "count as the largest finite error in means and tests.",
            f"Runs have {preset.steps:g} times the paper's steps. "
            "Other draws of SmallChain's network are in the tables.",
        ],
    )
    for name in MEASURES:
        own = before[name.partition("_")[0]]
        analysis.tables.append(table(name, panels[name], own))
        if name in SHOWN:
            analysis.plots += sensitivity_plots(name, panels[name], own, [case.label for case in preset.cases])
    there = {plot.name for plot in analysis.plots}
    analysis.pictures = tuple(name for name in PICTURES if name in there)
    return analysis


EXPERIMENT = Experiment(
    name="prediction",
    figure="figure 5, appendix",
    summary="Online prediction: sensitivity to the step size",
    claims=(
        "The robust objectives provide updates of lower variance, and allow larger step sizes.",
        "L1-TDC performs worse across step sizes than L1-GTD2, and often does not learn.",
        "The robust GTD2 algorithms and Huber-TDC are less sensitive to the step size.",
        "The Huber algorithms often have the least error; the squared algorithms generally perform well.",
        "SmallChain: the squared algorithms are slightly less sensitive, the robust ones have far less error.",
        "Baird: the robust TDC variants are better than all others, and robust algorithms less sensitive.",
        "TD diverges on Baird.",
        "In the MAVE, robust algorithms have a similar best performance as squared ones, with less sensitivity.",
    ),
    presets=PRESETS,
    plan=plan,
    measure=measure,
    analyse=_analyse,
    readings=(
        Reading(
            "Which step sizes?",
            ("α 2^-16 … 2^-1, η 2^-4 … 2^4 (section 6)", "α 2^-10 … 2^-1, η 2^-6, 2^-4 … 2^6 (appendix)"),
            "section 6",
            "it has the finer η and the smaller α, which the squared algorithms need on Baird.",
        ),
        Reading(
            "What is measured?",
            ("the area under the curve (section 6)", "the last 25 % of steps (appendix, for the MAVE)"),
            "MSVE over the run, MAVE over the last 25 %",
            "each figure as its text says; the tables have all four.",
        ),
        Reading(
            "Are step sizes chosen on the seeds that are reported?",
            ("yes, the best of the sweep is shown", "on other seeds"),
            "on other seeds",
            "the least of noisy means is biased downwards.",
        ),
        Reading(
            "Where does Baird start?",
            ("(1⁷,10)", "(1⁶,10,1)", "not said"),
            "(1⁷,10)",
            "it is the star's usual start; the claim on robust TDC reverses with the other, which is beside it.",
        ),
        Reading(
            "Where does HardAlias-2 start?",
            ("θ₀ = 0, as usual", "elsewhere"),
            "0",
            "that lies beside the best weight, so that there is little to learn; θ₀ = 1 is beside it.",
        ),
        Reading(
            "Which draw of SmallChain's frozen network?",
            ("one, unpublished", "the draws of the seeds 0 to 3"),
            "seed 0, the others beside it",
            "L1-TDC is worse than L1-GTD2 for some draws and not for others.",
        ),
        Reading(
            "Which update has the lower variance?",
            (
                "a hypothesis, judged by the error over the run",
                "the one whose best step size is larger, as the hypothesis goes on",
                "the one whose single updates vary less before learning, with the best h",
                "the same, over the square of the mean update",
            ),
            "the last three, each judged",
            "a shorter update varies less, which alone does not allow a larger step size. Best step sizes are compared "
            "on pairs of seeds; variances are exact. They are not compared at TD's fixed point, where all six may end: "
            "there the best h is zero, so is GTD2's update, and TDC's no longer depends on its loss.",
        ),
        Reading(
            "Which is the random walk that runs for 100 000 steps?",
            ("SmallChain", "SmallChain and HardAlias-1, which is one as well"),
            "both",
            "the appendix calls both random walks.",
        ),
        Reading(
            "What is sensitivity?",
            (
                "a look at a figure",
                "how many α, of ratio 2, have at most twice the least error of the algorithm itself",
                "the same with one limit for both, twice the least error of the squared form",
            ),
            "both counts, called widths",
            "a verdict needs a number; by the first, an algorithm is the narrower the lower its least error.",
        ),
        Reading(
            "What does a problem count on which both algorithms are the same?",
            ("against a claim of a difference", "nothing: it is left out"),
            "each is judged",
            "where |h| never passes τ, Huber's algorithm is the squared one; where every step size is good, none is "
            "less sensitive.",
        ),
        Reading(
            "When does L1-TDC not learn?",
            (
                "its error ends above that before learning",
                "the same from θ₀ = 1 on HardAlias-2, whose θ₀ = 0 is its optimum",
                "the same, and TDC's ends below",
            ),
            "each is judged",
            "from its optimum, every algorithm ends above.",
        ),
        Reading(
            "How many problems are often, generally, similar?",
            ("not said", f"two, three, within a factor of {SIMILAR:g}"),
            "two of four for often, three for generally",
            "a verdict needs a number.",
        ),
    ),
)
