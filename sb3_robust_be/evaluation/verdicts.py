"""Three-valued verdicts on claims: holds, does not hold, or not resolved by this many seeds.

A claim holds only if the confidence interval excludes its opposite, the test agrees, and there are enough seeds for
any exact test to reach the level at all; it does not hold only if the same can be said of the opposite.

How p-values work together. An experiment declares two families before there is any run, or, where it renders several
sentences of the paper, two for each sentence: *single comparisons*, each with the p-value of its own test, and
*combined claims* ("on every domain", "on four of five"), whose p-value :func:`combined` makes from the uncorrected ones
of their parts. :func:`~sb3_robust_be.evaluation.families.judged` then corrects both by Holm's method, each over its own
family, and what a corrected p-value no longer supports is not resolved. So the chance that any row of a family states
something false is at most 5 %. Correcting the parts before they are combined would count them twice. A claim that all
parts hold needs each of them at the level alone, so that it can hold while one of its parts, as a row of the larger
family, is not resolved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from sb3_robust_be.evaluation.comparisons import Comparison
from sb3_robust_be.evaluation.intervals import Interval
from sb3_robust_be.evaluation.sample_checks import check_choice

SIDES: tuple[str, ...] = ("above", "below")
_EXACT_LEVEL = 0.95  # that of what has no error; any would do


class Outcome(StrEnum):
    HOLDS = "holds"
    DOES_NOT_HOLD = "does not hold"
    NOT_RESOLVED = "not resolved by this many seeds"


@dataclass(frozen=True)
class Verdict:
    """A claim, what the runs say of it, and by which evidence.

    :param claim: In words.
    :param outcome: One of three.
    :param estimate: Of the quantity that the claim is about; NaN for a combination of claims.
    :param interval: Its confidence interval.
    :param test: Name of the test.
    :param statistic: The test's statistic; NaN where there is none.
    :param p_value: Two-sided; 0 for what was computed exactly.
    :param seeds: Independent runs of each sample. Pairs count once, and so do runs on several environments that are
        judged together. Empty where no test is left to make: what was computed exactly, or is equal on every seed.
    :param reason: Why the outcome is not what interval or test alone suggest; else empty.
    :param quantity: What the estimate is, such as "difference of means"; empty for a combination of claims.
    :param reference: The value of the quantity that the claim is compared with, such as 0, a margin, or ½ for a
        probability; NaN for a combination.
    :param improvement: The probability of improvement beside a difference of means, with its own test; it decides
        nothing. ``None`` where it does not apply.
    :param sentence: Of the paper, in its words, that the claim renders; empty for a claim of ours.
    """

    claim: str
    outcome: Outcome
    estimate: float
    interval: Interval
    test: str
    statistic: float
    p_value: float
    seeds: tuple[int, ...]
    reason: str = ""
    quantity: str = ""
    reference: float = math.nan
    improvement: Comparison | None = None
    sentence: str = ""

    def __str__(self) -> str:
        parts = [] if math.isnan(self.estimate) else [f"{self.quantity} {self.estimate:.4g}".strip()]
        if self.interval.low < self.interval.high:
            parts.append(
                f"{100 * self.interval.level:g} % interval [{self.interval.low:.4g}, {self.interval.high:.4g}]"
            )
        parts.append(self.test)
        if not math.isnan(self.statistic):
            parts.append(f"statistic {self.statistic:.3g}")
        if self.seeds:
            parts += [f"p = {self.p_value:.2g}", f"{' + '.join(map(str, self.seeds))} seeds"]
        reason = f"; {self.reason}" if self.reason else ""
        return f"{self.claim}: {self.outcome} ({', '.join(parts)}{reason})"

    def as_row(self) -> dict[str, Any]:
        """Flat, for a table or CSV: the interval's parts beside the rest."""
        row = asdict(self) | {"outcome": str(self.outcome), "seeds": " + ".join(map(str, self.seeds))}
        del row["improvement"]
        interval = row.pop("interval")
        row |= {key: interval[key] for key in ("low", "high", "level")}
        row |= {"interval_method": interval["method"], "interval_note": interval["note"]}
        if self.improvement is not None:
            beside = self.improvement.interval
            row |= {"improvement": beside.estimate, "improvement_low": beside.low, "improvement_high": beside.high}
            row["improvement_p"] = self.improvement.p_value
        return row


def decide(claim: str, found: Comparison, against: float, side: str = "above", attainable: float = 0.0) -> Verdict:
    """The verdict on "the effect lies ``side`` the value ``against``".

    :param found: Effect, interval and a two-sided test of ``effect = against``.
    :param side: ``"above"`` or ``"below"``.
    :param attainable: :func:`attainable_p` of the seeds.
    """
    check_choice("side", side, SIDES)
    alpha = 1.0 - found.interval.level
    above, below = found.interval.above(against), found.interval.below(against)
    excluded, significant = above or below, found.p_value <= alpha
    outcome, reason = Outcome.NOT_RESOLVED, ""
    if attainable > alpha:
        reason = f"no exact test of {' + '.join(map(str, found.seeds))} seeds reaches p = {alpha:.2g}"
    elif excluded and significant:
        outcome = Outcome.HOLDS if above == (side == "above") else Outcome.DOES_NOT_HOLD
    elif excluded != significant:
        reason = "interval and test disagree"
    return Verdict(
        claim,
        outcome,
        found.estimate,
        found.interval,
        found.test,
        found.statistic,
        found.p_value,
        found.seeds,
        reason or found.interval.note,
        found.quantity,
        against,
    )


def computed(claim: str, value: float, bound: float, side: str = "below", quantity: str = "value") -> Verdict:
    """The verdict on "``value`` lies ``side`` ``bound``" for a number without seeds, such as an exact fixed point's.

    Equality does not satisfy the claim.

    :param quantity: What the value is, such as "ratio".
    :raises ValueError: NaN in place of either.
    """
    check_choice("side", side, SIDES)
    if math.isnan(value) or math.isnan(bound):
        raise ValueError(f"value is {value} and bound {bound}; give numbers.")
    holds = value > bound if side == "above" else value < bound
    outcome = Outcome.HOLDS if holds else Outcome.DOES_NOT_HOLD
    interval = Interval(value, value, value, _EXACT_LEVEL, "exact")
    test = f"computed: {side} {bound:.4g}"
    return Verdict(claim, outcome, value, interval, test, math.nan, 0.0, (), quantity=quantity, reference=bound)


def combined(claim: str, verdicts: Sequence[Verdict], at_least: int | None = None) -> Verdict:
    """The verdict on "at least ``at_least`` of these claims hold", such as "in four of five domains".

    By partial conjunction (Benjamini & Heller, 2008): with ``p_(1) ≤ p_(2) ≤ …`` of the ``n`` parts that hold it holds
    if ``(n − k + 1)·p_(k) ≤ α``, and with those of the parts that don't it does not hold if
    ``k·p_(n − k + 1) ≤ α``. All of ``n`` thus need no correction to hold, and Bonferroni's to be refuted by one.
    Where parts without seeds, computed exactly or equal on every seed, are enough to decide it, it has no seeds either.

    :param verdicts: The parts with the p-values of their own tests, before any correction over a family.
    :param at_least: ``k``, from 1 to the number of parts; ``None``: all of them.
    :raises ValueError: No parts, parts of different levels, or such a number.
    """
    n = len(verdicts)
    if n == 0:
        raise ValueError("verdicts is empty; give at least one.")
    k = n if at_least is None else at_least
    if not 1 <= k <= n:
        raise ValueError(f"at_least is {at_least} for {n} verdicts; give 1 to {n}.")
    levels = {verdict.interval.level for verdict in verdicts if verdict.seeds} or {_EXACT_LEVEL}
    if len(levels) > 1:
        raise ValueError(f"the verdicts have the levels {sorted(levels)}; give verdicts of one level.")
    level = levels.pop()
    holding, failing = _p_values(verdicts, Outcome.HOLDS), _p_values(verdicts, Outcome.DOES_NOT_HOLD)
    p_holds = min(1.0, (n - k + 1) * holding[k - 1]) if len(holding) >= k else math.nan
    p_fails = min(1.0, k * failing[n - k]) if len(failing) > n - k else math.nan
    outcome, p_value, needed = Outcome.NOT_RESOLVED, math.nan, math.inf
    if p_holds <= 1.0 - level:
        outcome, p_value, needed = Outcome.HOLDS, p_holds, k
    elif p_fails <= 1.0 - level:
        outcome, p_value, needed = Outcome.DOES_NOT_HOLD, p_fails, n - k + 1
    untested = sum(verdict.outcome is outcome and not verdict.seeds for verdict in verdicts)
    tested = [verdict.seeds for verdict in verdicts if verdict.seeds and untested < needed]
    seeds = min(tested, key=sum, default=())
    interval = Interval(math.nan, math.nan, math.nan, level, "none: a combination")
    reason = _in_the_way(verdicts)
    test = f"at least {k} of {n}: {len(holding)} hold, {len(failing)} do not"
    return Verdict(claim, outcome, math.nan, interval, test, math.nan, p_value, seeds, reason)


def _in_the_way(verdicts: Sequence[Verdict]) -> str:
    """Which of the parts do not hold.

    Parts that say the same of several places, as "Acrobot: x is above y" and "Baird: x is above y" do, are named by
    their places together; what they say stands there too if not all parts say it.
    """
    places: dict[tuple[str, Outcome], list[str]] = {}
    for verdict in verdicts:
        place, _, rest = verdict.claim.partition(": ")
        named = rest and "," not in place
        places.setdefault((rest if named else verdict.claim, verdict.outcome), []).extend([place] if named else [])
    alike = len({claim for claim, _ in places}) == 1
    found = []
    for (claim, outcome), where in places.items():
        on = f" on {', '.join(where)}" if where else ""
        if outcome is not Outcome.HOLDS:
            found.append(f"{outcome}{on}" if alike and on else f"{claim}: {outcome}{on}")
    return "; ".join(found)


def _p_values(verdicts: Sequence[Verdict], outcome: Outcome) -> list[float]:
    return sorted(verdict.p_value for verdict in verdicts if verdict.outcome is outcome)
