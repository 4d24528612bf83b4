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
