"""How a sentence of the paper is judged: by combined claims and the comparisons that these are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sb3_robust_be.evaluation import Verdict, combined, judged


class Rendering(NamedTuple):
    """A sentence, and what it is judged by."""

    sentence: str
    """The paper's words; empty for a claim of ours"""
    claims: list[Verdict]
    """Combined ones"""
    comparisons: list[Verdict]


def verdicts_of(renderings: Sequence[Rendering]) -> list[Verdict]:
    """
    :param renderings: Of the paper's sentences.
    :return: For each sentence its combined claims, then its comparisons: each a family of Holm's.
    """
    return [
        replace(verdict, sentence=of.sentence) for of in renderings for verdict in judged(of.claims, of.comparisons)
    ]


def combined_if_any(claim: str, parts: Sequence[Verdict], at_least: int | None = None) -> list[Verdict]:
    """:func:`~sb3_robust_be.evaluation.combined` as a list of one, or of none where there are no parts."""
    return [combined(claim, parts, at_least)] if parts else []


def is_tie(verdict: Verdict) -> bool:
    """Whether the two sides of a comparison are the same on every seed.

    So are a Huber loss and the squared one where no error, or no estimate h of one, passes τ: they are one there, by
    construction, and say nothing for or against a difference.
    """
    return not verdict.seeds and verdict.estimate == verdict.reference


def with_and_without_ties(claim: str, parts: Sequence[Verdict], at_least: int, where: str) -> list[Verdict]:
    """A claim on so many of its parts; and, if there are ties, the same share, rounded up, of the parts that are none.

    :param claim: In words.
    :param parts: Uncorrected.
    :param at_least: How many of them have to hold.
    :param where: What follows the claim, with a place for the numbers, such as ``"on {} problems"``.
    """
    found = [combined(f"{claim}, {where.format(f'{at_least} of {len(parts)}')}", parts, at_least)]
    different = [part for part in parts if not is_tie(part)]
    if len(different) < len(parts):
        enough = -(-at_least * len(different) // len(parts))
        name = f"{claim}, {where.format(f'{enough} of the {len(different)}')} where the two are not the same"
        found += combined_if_any(name, different, enough)
    return found
