"""Verdicts by the sentence of the paper that they render, and how many sentences hold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from sb3_robust_be.evaluation import Outcome, Verdict


class Group(NamedTuple):
    """The verdicts that render one sentence."""

    sentence: str
    """The paper's words; empty for claims of ours, or where verdicts do not say which sentence they render"""
    verdicts: tuple[Verdict, ...]

    def combined(self) -> tuple[Verdict, ...]:
        """The claims about several problems at once, which speak for the sentence; all verdicts if there is none."""
        return tuple(filter(is_combined, self.verdicts)) or self.verdicts

    def single(self) -> tuple[Verdict, ...]:
        """The comparisons that the combined claims are made of; none if there is no combined claim."""
        rest = tuple(verdict for verdict in self.verdicts if not is_combined(verdict))
        return rest if len(rest) < len(self.verdicts) else ()


def is_combined(verdict: Verdict) -> bool:
    """Whether a verdict combines others, so that it has no number of its own."""
    return math.isnan(verdict.estimate)


def by_sentence(verdicts: Sequence[Verdict]) -> list[Group]:
    """
    :param verdicts: Of an experiment.
    :return: A group per sentence, in the order in which they first occur; those of no sentence come last.
    """
    groups: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(verdict.sentence, []).append(verdict)
    # False comes before True.
    return [Group(sentence, tuple(groups[sentence])) for sentence in sorted(groups, key=lambda one: not one)]


def counted(verdicts: Sequence[Verdict]) -> str:
    """How many of the verdicts have each outcome: ``2 hold, 1 does not hold, 3 are not resolved``."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    words = {
        Outcome.HOLDS: ("holds", "hold"),
        Outcome.DOES_NOT_HOLD: ("does not hold", "do not hold"),
        Outcome.NOT_RESOLVED: ("is not resolved", "are not resolved"),
    }
    return ", ".join(f"{counts[one]} {say[counts[one] != 1]}" for one, say in words.items() if counts[one])


def counted_sentences(groups: Sequence[Group]) -> str:
    """How many sentences hold, do not hold, are open, and differ between their renderings as claims.

    :param groups: Of :func:`by_sentence`, each with a sentence.
    :return: Such as ``1 holds, 2 do not hold, 3 are not resolved, 1 differs between its renderings``.
    """
    kinds = Counter(_kind({verdict.outcome for verdict in group.combined()}) for group in groups)
    words = {
        "holds": ("holds", "hold"),
        "fails": ("does not hold", "do not hold"),
        "open": ("is not resolved", "are not resolved"),
        "mixed": ("differs between its renderings", "differ between their renderings"),
    }
    return ", ".join(f"{kinds[one]} {say[kinds[one] != 1]}" for one, say in words.items() if kinds[one])


def _kind(outcomes: set[Outcome]) -> str:
    """Of a sentence with several renderings: what all say, if they say the same."""
    if outcomes == {Outcome.HOLDS}:
        return "holds"
    if outcomes == {Outcome.DOES_NOT_HOLD}:
        return "fails"
    return "open" if outcomes == {Outcome.NOT_RESOLVED} else "mixed"


def surprises(verdicts: Sequence[Verdict], most: int = 3) -> list[Verdict]:
    """The claims that fail by most: by how many half-widths of its interval a number lies on the other side.

    :param verdicts: Of an experiment.
    :param most: How many.
    :return: At most one per sentence. Numbers without an interval come after those with one, and combined claims, which
        have no number, last, by their p-values.
    """
    found = [verdict for verdict in verdicts if verdict.outcome is Outcome.DOES_NOT_HOLD]
    ranked = sorted(found, key=lambda one: (is_combined(one), one.p_value if is_combined(one) else -_distance(one)))
    first = {verdict.sentence or verdict.claim: verdict for verdict in reversed(ranked)}
    return sorted(first.values(), key=ranked.index)[:most]


def _distance(verdict: Verdict) -> float:
    away = abs(verdict.estimate - (0.0 if math.isnan(verdict.reference) else verdict.reference))
    width = 0.5 * (verdict.interval.high - verdict.interval.low)
    return away / width if width > 0.0 else -1.0
