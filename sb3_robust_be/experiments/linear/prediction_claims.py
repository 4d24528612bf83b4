"""What section 6 and the appendix claim of the prediction algorithms, as verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sb3_robust_be.evaluation import Verdict, combined, computed, greater, judged
from sb3_robust_be.evaluation.paired_errors import lower
from sb3_robust_be.evaluation.pairs import PAIRED_MEANS
from sb3_robust_be.experiments.linear.sweep_runs import Sensitivity
from sb3_robust_be.linear import Problem
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


@dataclass
class Findings:
    """Verdicts by one measure, and what they rest on.

    :param measure: For people.
    """

    measure: str
    verdicts: list[Verdict] = field(default_factory=list)
    parts: list[tuple[str, str, Verdict]] = field(default_factory=list)
    """Case, claim and verdict of each single comparison"""

    def over_problems(self, claim: str, panels: Panels, judge: Judge, at_least: int) -> None:
        """Judge the claim in every case, and whether it holds on so many of :data:`FOUR`, if all are there."""
        found = {case: judge(case, panel) for case, panel in panels.items()}
        if all(case in found for case in FOUR):
            parts = [found[case] for case in FOUR]
            self.verdicts.append(combined(f"{self.measure}: {claim}, on {at_least} of 4 problems", parts, at_least))
        for case, verdict in found.items():
            self.parts.append((case, claim, verdict))

    def add(self, case: str, claim: str, verdict: Verdict) -> None:
        """A claim on one case: a verdict, but for other draws of random features."""
        if case in FOUR or not case.startswith("SmallChain"):
            self.verdicts.append(replace(verdict, claim=f"{self.measure}, {case}: {claim}"))
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
            "outcome": str(verdict.outcome),
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
    corrected, saddlepoint = (label(name) for name in ("tdc-l1", "gtd2-l1"))
    found.over_problems(f"{corrected}'s error is above {saddlepoint}'s", panels, _errs_less("gtd2-l1", "tdc-l1"), 3)
    worse = f"{corrected} is worse than {saddlepoint} at most step sizes (share of them − ½)"
    found.over_problems(worse, panels, _worse_at_most, 3)
    for huber, squared in zip(HUBER, SQUARED, strict=True):
        found.over_problems(
            f"{label(huber)}'s error is below {label(squared)}'s", panels, _errs_less(huber, squared), 2
        )
    for robust, squared in PAIRS:
        if robust != "tdc-l1":
            found.over_problems(_less_sensitive_claim(robust, squared), panels, _wider(robust, squared), 3)
    _add_captions(found, panels)
    for case, panel in panels.items():
        if case.startswith("SmallChain"):
            _add_small_chain(found, case, panel)
        if case.startswith("Baird"):
            _add_baird(found, case, panel)
    return found


def of_late_absolute_errors(panels: Panels, before: Mapping[str, float]) -> Findings:
    """
    :param panels: Of the MAVE over the last quarter.
    :param before: The MAVE before learning by case.
    :return: On the claims of the appendix.
    """

    def does_not_learn(case: str, panel: Panel) -> Verdict:
        error = panel["tdc-l1"].best
        return lower(case, np.full_like(error, before[case]), error)

    found = Findings("MAVE, last 25 %")
    similar = f"the best robust algorithm's error is below {SIMILAR:g} times the better squared one's"
    found.over_problems(similar, panels, _robust_is_similar, 3)
    for robust, squared in PAIRS:
        found.over_problems(_less_sensitive_claim(robust, squared), panels, _wider(robust, squared), 3)
    found.over_problems(f"{label('tdc-l1')}'s error is above that before learning", panels, does_not_learn, 2)
    _add_captions(found, panels)
    return found


def td_diverges(problem: Problem) -> Verdict:
    """The claim "TD diverges": its mean update ``XᵀD(r − Aθ)`` grows along an eigenvector."""
    growth = np.linalg.eigvals(-problem.X.T @ (problem.d[:, None] * problem.A)).real.max()
    claim = f"{problem.name}: TD diverges (largest eigenvalue of its mean update)"
    return computed(claim, float(growth), 1e-9, "above", "eigenvalue")


def _add_captions(found: Findings, panels: Panels) -> None:
    """What the captions of both figures say."""
    found.over_problems("a Huber algorithm has the least error of the six", panels, _huber_is_best, 2)
    good = "the better squared algorithm's error is below twice that of the best of the six"
    found.over_problems(good, panels, _squared_is_good, 3)


def _errs_less(x: str, y: str) -> Judge:
    return lambda claim, panel: lower(claim, panel[x].best, panel[y].best)


def _less_sensitive_claim(x: str, y: str) -> str:
    return f"{label(x)} is less sensitive to the step size than {label(y)} (difference of widths)"


def _wider(x: str, y: str) -> Judge:
    def judge(claim: str, panel: Panel) -> Verdict:
        first, second = panel[x].width, panel[y].width
        if np.array_equal(first, second):
            return replace(
                computed(claim, 0.0, 0.0, "above", PAIRED_MEANS), reason="the widths are equal on every seed"
            )
        return greater(claim, first, second, method="paired")

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


def _add_small_chain(found: Findings, case: str, panel: Panel) -> None:
    squared = _best_of(panel, SQUARED)
    for name, group in (("Huber", HUBER), ("ℓ1", ABSOLUTE)):
        best, claim = _best_of(panel, group), f"the better {name} algorithm's error is below"
        found.add(case, f"{claim} the better squared one's", lower(case, best, squared))
        found.add(case, f"{claim} half of the better squared one's", lower(case, best, squared, 2.0))
    parts = [_wider(squared, robust)(f"{label(squared)}, {label(robust)}", panel) for robust, squared in PAIRS]
    claim = "a squared algorithm is less sensitive to the step size than its robust form, in 3 of 4 pairs"
    found.add(case, claim, combined(claim, parts, 3))


def _add_baird(found: Findings, case: str, panel: Panel) -> None:
    corrected = ("tdc-huber", "tdc-l1")
    for robust in corrected:
        parts = [_errs_less(robust, name)(f"below {label(name)}'s", panel) for name in SIX if name not in corrected]
        claim = f"{label(robust)}'s error is below that of all but the other robust TDC"
        found.add(case, claim, combined(claim, parts))
    widths = [_wider(robust, squared)(f"{label(robust)}, {label(squared)}", panel) for robust, squared in PAIRS]
    claim = "every robust algorithm is less sensitive to the step size than its squared form"
    found.add(case, claim, combined(claim, widths))
