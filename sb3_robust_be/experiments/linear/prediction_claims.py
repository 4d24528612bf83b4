"""What section 6 and the appendix claim of the prediction algorithms, as verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sb3_robust_be.evaluation import Verdict, combined, computed, greater, judged
from sb3_robust_be.evaluation.paired_errors import lower, lower_ratio
from sb3_robust_be.evaluation.pairs import PAIRED_MEANS
from sb3_robust_be.experiments.linear.sweep_runs import Sensitivity, error_limit, step_sizes_within
from sb3_robust_be.experiments.rendering import Rendering, is_tie, with_and_without_ties
from sb3_robust_be.experiments.rows import SIGNIFICANT_DIGITS
from sb3_robust_be.linear import Problem, expected_update, update_variance
from sb3_robust_be.linear.projected import project
from sb3_robust_be.report import label
from sb3_robust_be.report.tables import verdict_number

FOUR = ("HardAlias-1", "HardAlias-2", "SmallChain, features 0", "Baird")
"""The paper's problems, as this experiment reads them; the other cases are variants of them"""
SQUARED, HUBER, ABSOLUTE = ("gtd2", "tdc"), ("gtd2-huber", "tdc-huber"), ("gtd2-l1", "tdc-l1")
ROBUST = (*HUBER, *ABSOLUTE)
SIX = (*SQUARED, *ROBUST)
PAIRS = tuple(zip(ROBUST, (*SQUARED, *SQUARED), strict=True))
"""Each robust algorithm and its squared form"""
SIMILAR = 1.25
"""The factor below which two errors are similar"""

Panel = Mapping[str, Sensitivity]
"""By algorithm, at least :data:`SIX`"""
Panels = Mapping[str, Panel]
"""By case"""
Judge = Callable[[str, Panel], Verdict]

# The paper's words.
WORSE_ACROSS = (
    "The L1-TDC variant appears to suffer as a result of biased gradient estimates and generally performs worse across "
    "stepsizes than its GTD2-based counterpart."
)
HYPOTHESIS = (
    "Our hypothesis is that the robust objectives will provide lower variance update rules, allowing larger stepsizes "
    "and faster convergence to their fixed-points."
)
WIDER_AND_BETTER = (
    "Generally the robust GTD2 algorithms and the Huber-TDC algorithm show wider stepsize sensitivities and often the "
    "MHPBE algorithms show marginally better performance for their best choice of stepsize."
)
SQUARED_PERFORM_WELL = (
    "The mean squared algorithms generally performed well across environments—even the adversarially chosen "
    "environments—suggesting the difficulty in minimizing the MABE."
)
HUBER_PERFORM_BEST = (
    "The Huber algorithms performed best across many environments, often displaying less sensitivity to the choice of "
    "stepsize."
)
CHAIN_LESS_SENSITIVE = (
    "On the idealized SmallChain environment, the algorithms optimizing the mean squared objective tended to be "
    "slightly less sensitive to their choice of stepsize."
)
CHAIN_LESS_ERROR = (
    "However, the robust algorithms had far less error, suggesting faster convergence rates on this problem."
)
ON_BAIRD = (
    "On the Baird counterexample problem, the robust TDC variants performed notably better than all other tested "
    "algorithms and all robust algorithms showed much less sensitivity to stepsize than the mean squared variants, "
    "suggesting overall faster convergence for the robust objectives on this problem."
)
SIMILAR_BEST = (
    "The robust algorithms generally have similar best performance as the MSBE algorithms, but with less sensitivity "
    "to choice of stepsize."
)
DOES_NOT_LEARN = (
    "The ℓ1-TDC algorithm often fails to learn a meaningful value function estimate in the given number of training "
    "steps."
)
TD_DIVERGES = (
    "[Baird] is used to investigate optimization performance in a high-variance off-policy setting where TD diverges."
)

ELSEWHERE = {"HardAlias-2": "HardAlias-2, θ₀ = 1"}
"""A problem of the four that starts at its optimum, where every algorithm ends above the error before learning, and the
case that starts elsewhere"""


@dataclass
class Findings:
    """What is found on sentences of the paper by one measure, and what the verdicts rest on.

    :param measure: For people.
    """

    measure: str
    renderings: list[Rendering] = field(default_factory=list)
    parts: list[tuple[str, str, Verdict]] = field(default_factory=list)
    """Case, claim and verdict of each single comparison"""

    @property
    def verdicts(self) -> list[Verdict]:
        """All of them, uncorrected."""
        return [verdict for of in self.renderings for verdict in (*of.claims, *of.comparisons)]

    def begin(self, sentence: str) -> None:
        """What follows renders this sentence.

        :param sentence: In the paper's words.
        """
        self.renderings.append(Rendering(sentence, [], []))

    def over_problems(self, claim: str, panels: Panels, judge: Judge, at_least: int) -> None:
        """Judge the claim in every case, and whether it holds on so many of :data:`FOUR`, if all are there."""
        self.count(claim, self.each(claim, panels, judge), at_least)

    def each(self, claim: str, panels: Panels, judge: Judge) -> dict[str, Verdict]:
        """The verdict on the claim in every case."""
        found = {case: judge(case, panel) for case, panel in panels.items()}
        self.parts += [(case, claim, verdict) for case, verdict in found.items()]
        return found

    def count(
        self, claim: str, found: Mapping[str, Verdict], at_least: int, problems: Sequence[str] = FOUR, where: str = ""
    ) -> None:
        """Judge whether the claim holds on so many of the problems, if all are there.

        :param claim: In words.
        :param found: Its verdict by case.
        :param at_least: On how many problems it has to hold.
        :param problems: Which.
        :param where: What is different with other problems than :data:`FOUR`, for people.
        """
        if all(case in found for case in problems):
            name = f"{self.measure}: {claim}, on {at_least} of {len(problems)} problems{where}"
            self.renderings[-1].claims.append(combined(name, [found[case] for case in problems], at_least))

    def count_with_and_without_ties(self, claim: str, found: Mapping[str, Verdict], at_least: int) -> None:
        """Judge as :meth:`count` does, and once more without the problems on which the two sides are the same."""
        if all(case in found for case in FOUR):
            parts = [found[case] for case in FOUR]
            own = with_and_without_ties(f"{self.measure}: {claim}", parts, at_least, "on {} problems")
            self.renderings[-1].claims.extend(own)

    def add(self, case: str, claim: str, verdict: Verdict) -> None:
        """A claim on one case: a verdict, but for other draws of random features."""
        if case in FOUR or not case.startswith("SmallChain"):
            of = self.renderings[-1]
            # A combination has no number of its own.
            (of.claims if np.isnan(verdict.estimate) else of.comparisons).append(
                replace(verdict, claim=f"{self.measure}, {case}: {claim}")
            )
        self.parts.append((case, claim, verdict))


def part_rows(findings: Sequence[Findings]) -> list[dict[str, Any]]:
    """
    :param findings: By every measure.
    :return: A row per single comparison, which are one family.
    """
    where = [(own.measure, case, claim) for own in findings for case, claim, _ in own.parts]
    found = judged([], [verdict for own in findings for _, _, verdict in own.parts])
    return [
        {
            "measure": measure,
            "claim": claim,
            "problem": case,
            "outcome": "a tie" if is_tie(verdict) else str(verdict.outcome),
            "number": verdict_number(verdict),
            "test": verdict.test,
            "p": verdict.p_value if verdict.seeds else None,
            "reason": verdict.reason,
        }
        for (measure, case, claim), verdict in zip(where, found, strict=True)
    ]


def of_errors(panels: Panels) -> Findings:
    """
    :param panels: Of the MSVE over the whole run.
    :return: On the claims of section 6.
    """
    found = Findings("MSVE over the run")
    found.begin(HYPOTHESIS)
    for robust, squared in PAIRS:
        claim = f"{label(robust)}'s best step size is larger than {label(squared)}'s"
        found.count_with_and_without_ties(claim, found.each(claim, panels, _larger_step_size(robust, squared)), 3)
    corrected, saddlepoint = (label(name) for name in ("tdc-l1", "gtd2-l1"))
    found.begin(WORSE_ACROSS)
    found.over_problems(f"{corrected}'s error is above {saddlepoint}'s", panels, _errs_less("gtd2-l1", "tdc-l1"), 3)
    worse = f"{corrected} is worse than {saddlepoint} at most step sizes (share of them − ½)"
    found.over_problems(worse, panels, _worse_at_most, 3)
    found.begin(WIDER_AND_BETTER)
    _add_widths(found, panels, [pair for pair in PAIRS if pair[0] != "tdc-l1"])
    for huber, squared in zip(HUBER, SQUARED, strict=True):
        claim = f"{label(huber)}'s error is below {label(squared)}'s"
        found.count_with_and_without_ties(claim, found.each(claim, panels, _errs_less(huber, squared)), 2)
    chains = {case: panel for case, panel in panels.items() if case.startswith("SmallChain")}
    found.begin(CHAIN_LESS_SENSITIVE)
    for case, panel in chains.items():
        _add_chain_widths(found, case, panel)
    found.begin(CHAIN_LESS_ERROR)
    for case, panel in chains.items():
        _add_chain_errors(found, case, panel)
    found.begin(ON_BAIRD)
    for case, panel in panels.items():
        if case.startswith("Baird"):
            _add_baird(found, case, panel)
    _add_captions(found, panels)
    return found


def of_late_absolute_errors(panels: Panels, before: Mapping[str, float]) -> Findings:
    """
    :param panels: Of the MAVE over the last quarter.
    :param before: The MAVE before learning by case.
    :return: On the claims of the appendix.
    """
    found = Findings("MAVE, last 25 %")
    found.begin(SIMILAR_BEST)
    similar = f"the best robust algorithm's error is below {SIMILAR:g} times the better squared one's"
    found.over_problems(similar, panels, _robust_is_similar, 3)
    _add_widths(found, panels, PAIRS)
    found.begin(DOES_NOT_LEARN)
    _add_does_not_learn(found, panels, before)
    _add_captions(found, panels)
    return found


def of_variances(problems: Mapping[str, Problem]) -> Findings:
    """
    :param problems: By case.
    :return: On how much single updates vary, exactly, at the weights before learning and the best ``h`` for them, to
        which its regression goes.
    """
    found = Findings("Before learning, with the best h")
    found.begin(HYPOTHESIS)
    spreads = {case: _spreads(problem) for case, problem in problems.items()}
    for relative, by in enumerate(("", ", over the square of its mean,")):
        for robust, squared in PAIRS:
            claim = f"the variance of {label(robust)}'s update{by} is below that of {label(squared)}'s"
            ratio = f"ratio of {label(squared)}'s to {label(robust)}'s"
            parts = {
                case: replace(lower_ratio(case, [own[robust][relative]], [own[squared][relative]]), quantity=ratio)
                for case, own in spreads.items()
            }
            found.parts += [(case, claim, part) for case, part in parts.items()]
            found.count_with_and_without_ties(claim, parts, 3)
    return found


def _spreads(problem: Problem) -> dict[str, tuple[float, float]]:
    """By algorithm the variance of its update before learning, and the same over the square of its mean."""
    h = project(problem, problem.bellman_error(problem.theta0))
    weights = problem.theta0, np.linalg.lstsq(problem.X, h, rcond=None)[0]
    found = {}
    for name in SIX:
        variance, _ = update_variance(problem, name, *weights)
        mean, _ = expected_update(problem, name, *weights)
        found[name] = variance, variance / float(mean @ mean)
    return found


def td_diverges(problem: Problem) -> Verdict:
    """The claim "TD diverges": its mean update ``XᵀD(r − Aθ)`` grows along an eigenvector."""
    growth = np.linalg.eigvals(-problem.X.T @ (problem.d[:, None] * problem.A)).real.max()
    claim = f"{problem.name}: TD diverges (largest eigenvalue of its mean update)"
    return computed(claim, float(growth), 1e-9, "above", "eigenvalue")


def _add_captions(found: Findings, panels: Panels) -> None:
    """What the captions of both figures say."""
    found.begin(SQUARED_PERFORM_WELL)
    good = "the better squared algorithm's error is below twice that of the best of the six"
    found.over_problems(good, panels, _squared_is_good, 3)
    found.begin(HUBER_PERFORM_BEST)
    best = "a Huber algorithm has the least error of the six"
    found.count_with_and_without_ties(best, found.each(best, panels, _huber_is_best), 2)
    # Weaker: ℓ1 may be the best as well.
    robust = "a robust algorithm, Huber or ℓ1, has less error than both squared ones"
    found.count_with_and_without_ties(robust, found.each(robust, panels, _robust_is_best), 2)


def _add_widths(found: Findings, panels: Panels, pairs: Sequence[tuple[str, str]]) -> None:
    """Robust algorithms are less sensitive to the step size, with a limit for each, and with one for both."""
    for robust, squared in pairs:
        for one_limit in (False, True):
            claim = _less_sensitive_claim(robust, squared, one_limit)
            judge = _wider(robust, squared, limit_of=squared if one_limit else None)
            found.count_with_and_without_ties(claim, found.each(claim, panels, judge), 3)


def _add_does_not_learn(found: Findings, panels: Panels, before: Mapping[str, float]) -> None:
    name, other = label("tdc-l1"), label("tdc")

    def ends_above(case: str, panel: Panel) -> Verdict:
        error = panel["tdc-l1"].best
        return lower(case, np.full_like(error, before[case]), error)

    def other_ends_below(case: str, panel: Panel) -> Verdict:
        error = panel["tdc"].best
        below = lower(f"{other}'s is below", error, np.full_like(error, before[case]))
        return combined(case, [replace(ends_above(case, panel), claim=f"{name}'s is above"), below])

    claim = f"{name}'s error is above that before learning"
    above = found.each(claim, panels, ends_above)
    found.count(claim, above, 2)
    elsewhere = [ELSEWHERE.get(case, case) for case in FOUR]
    found.count(claim, above, 2, elsewhere, f" ({', '.join(ELSEWHERE.values())} for that which starts at its optimum)")
    found.over_problems(f"{claim}, and {other}'s is below it", panels, other_ends_below, 2)


def _errs_less(x: str, y: str) -> Judge:
    return lambda claim, panel: lower(claim, panel[x].best, panel[y].best)


def _larger_step_size(x: str, y: str) -> Judge:
    """By the step size of the least error on each seed."""

    def judge(claim: str, panel: Panel) -> Verdict:
        first, second = (best_exponents(panel[name]) for name in (x, y))
        verdict = _above_or_tied(claim, panel[x], panel[y], first, second, "best step sizes")
        return replace(verdict, quantity="mean difference of log₂ of step sizes")

    return judge


def best_exponents(of: Sensitivity) -> np.ndarray:
    """
    :param of: An algorithm on a problem.
    :return: ``log₂`` of the step size at which each seed has its least error, shape (seeds,); of the smaller one where
        two have the same, and of the smallest where the seed diverged at all of them.
    """
    return np.log2(of.alphas)[of.errors.argmin(axis=0)]


def _above_or_tied(
    claim: str, x: Sensitivity, y: Sensitivity, first: np.ndarray, second: np.ndarray, what: str
) -> Verdict:
    """The claim "what is made of x's errors is above what is made of y's", on pairs of seeds; or that it is a tie.

    :param first: Made of x's errors, shape (seeds,).
    :param second: Of y's, likewise.
    :param what: They are.
    """
    if not np.array_equal(first, second):
        return greater(claim, first, second, method="paired")
    same = np.allclose(x.errors, y.errors, rtol=10.0 ** (1 - SIGNIFICANT_DIGITS), atol=0.0)
    reason = "the two have the same errors at every step size" if same else f"the {what} are equal on every seed"
    return replace(computed(claim, 0.0, 0.0, "above", PAIRED_MEANS), reason=reason)


def _less_sensitive_claim(x: str, y: str, one_limit: bool) -> str:
    limits = f"within twice {label(y)}'s error" if one_limit else "each within twice its own least error"
    return f"{label(x)} is less sensitive to the step size than {label(y)} (difference of widths, {limits})"


def _wider(x: str, y: str, limit_of: str | None = None) -> Judge:
    """x is less sensitive than y.

    :param limit_of: Whose least error limits what both count; ``None``: each algorithm's its own, so that a lower
        least error makes it narrower.
    """

    def judge(claim: str, panel: Panel) -> Verdict:
        if limit_of is None:
            first, second = panel[x].width, panel[y].width
        else:
            limit = error_limit(panel[limit_of].best)
            first, second = (step_sizes_within(panel[name].errors, limit) for name in (x, y))
        return _above_or_tied(claim, panel[x], panel[y], first, second, "widths")

    return judge


def _worse_at_most(claim: str, panel: Panel) -> Verdict:
    corrected, saddlepoint = panel["tdc-l1"].errors, panel["gtd2-l1"].errors
    share = np.where(corrected == saddlepoint, 0.5, corrected > saddlepoint).mean(axis=0)
    return greater(claim, share, 0.5, method="paired")


def _best_of(panel: Panel, algorithms: Sequence[str]) -> Any:
    """Its errors; which one it is, the selection seeds say."""
    return panel[min(algorithms, key=lambda name: panel[name].score)].best


def _huber_is_best(claim: str, panel: Panel) -> Verdict:
    return lower(claim, _best_of(panel, HUBER), _best_of(panel, (*SQUARED, *ABSOLUTE)))


def _squared_is_good(claim: str, panel: Panel) -> Verdict:
    return lower(claim, _best_of(panel, SQUARED), _best_of(panel, SIX), 0.5)


def _robust_is_similar(claim: str, panel: Panel) -> Verdict:
    return lower(claim, _best_of(panel, ROBUST), _best_of(panel, SQUARED), 1.0 / SIMILAR)


def _robust_is_best(claim: str, panel: Panel) -> Verdict:
    return lower(claim, _best_of(panel, ROBUST), _best_of(panel, SQUARED))


def _add_chain_errors(found: Findings, case: str, panel: Panel) -> None:
    squared = _best_of(panel, SQUARED)
    for name, group in (("Huber", HUBER), ("ℓ1", ABSOLUTE)):
        best, claim = _best_of(panel, group), f"the better {name} algorithm's error is below"
        found.add(case, f"{claim} the better squared one's", lower(case, best, squared))
        found.add(case, f"{claim} half of the better squared one's", lower(case, best, squared, 2.0))


def _add_chain_widths(found: Findings, case: str, panel: Panel) -> None:
    parts = [_wider(squared, robust)(f"{label(squared)}, {label(robust)}", panel) for robust, squared in PAIRS]
    claim = "a squared algorithm is less sensitive to the step size than its robust form"
    for verdict in with_and_without_ties(claim, parts, 3, "in {} pairs"):
        found.add(case, verdict.claim, verdict)


def _add_baird(found: Findings, case: str, panel: Panel) -> None:
    corrected = ("tdc-huber", "tdc-l1")
    for robust in corrected:
        parts = [_errs_less(robust, name)(f"below {label(name)}'s", panel) for name in SIX if name not in corrected]
        claim = f"{label(robust)}'s error is below that of all but the other robust TDC"
        found.add(case, claim, combined(claim, parts))
    for one_limit in (False, True):
        widths = [
            _wider(robust, squared, squared if one_limit else None)(f"{label(robust)}, {label(squared)}", panel)
            for robust, squared in PAIRS
        ]
        limits = "within twice the squared form's error" if one_limit else "each within twice its own least error"
        claim = f"every robust algorithm is less sensitive to the step size than its squared form ({limits})"
        found.add(case, claim, combined(claim, widths))
