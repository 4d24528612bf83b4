"""Verdicts by sentence, how many sentences hold, and the largest surprises."""

from dataclasses import replace

import numpy as np
import pytest

from sb3_robust_be.evaluation import Outcome, combined, computed, greater
from sb3_robust_be.report.sentences import by_sentence, counted, counted_sentences, surprises

HIGH, LOW = np.arange(10.0) + 20.0, np.arange(10.0)
HOLDS, FAILS, OPEN = greater("holds", HIGH, LOW), greater("fails", LOW, HIGH), greater("open", [1.0], [0.0])


def of(sentence, *verdicts):
    return [replace(verdict, sentence=sentence) for verdict in verdicts]


def test_sentences_in_their_order_and_claims_of_ours_last():
    ours, first, second = computed("ours", 1.0, 2.0), of("b", HOLDS, FAILS), of("a", OPEN)
    groups = by_sentence([ours, *first, *second, *of("b", OPEN)])
    assert [(group.sentence, len(group.verdicts)) for group in groups] == [("b", 3), ("a", 1), ("", 1)]
    assert by_sentence([]) == []


def test_combined_claims_speak_for_a_sentence():
    both = combined("both", [HOLDS, FAILS])
    [group] = by_sentence([both, HOLDS, FAILS])
    assert group.combined() == (both,)
    assert group.single() == (HOLDS, FAILS)
    [single] = by_sentence([HOLDS, FAILS])
    assert single.combined() == (HOLDS, FAILS)
    assert single.single() == ()
    [alone] = by_sentence([both])
    assert (alone.combined(), alone.single()) == ((both,), ())


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ([HOLDS], "1 holds"),
        ([FAILS, FAILS], "2 do not hold"),
        ([OPEN, HOLDS, OPEN], "1 holds, 2 are not resolved"),
        ([FAILS, HOLDS, HOLDS, OPEN], "2 hold, 1 does not hold, 1 is not resolved"),
        ([], ""),
    ],
)
def test_counts_of_verdicts(outcomes, words):
    assert counted(outcomes) == words


def test_counts_of_sentences():
    """The comparisons of a sentence that has a combined claim do not count."""
    verdicts = [
        *of("a", HOLDS, HOLDS),
        *of("b", HOLDS, FAILS),
        *of("c", OPEN, FAILS),
        *of("d", combined("both", [FAILS, HOLDS]), FAILS, HOLDS),
        *of("e", OPEN),
    ]
    assert counted_sentences(by_sentence(verdicts)) == (
        "1 holds, 1 does not hold, 1 is not resolved, 2 differ between their renderings"
    )


def test_the_largest_surprises_are_those_furthest_from_the_claim():
    """By half-widths: −1 ± 0.1 is further from 0 than −5 ± 2; one per sentence, and those without a number last."""

    def fails(claim, estimate, half_width, sentence=""):
        found = replace(FAILS, claim=claim, estimate=estimate, sentence=sentence, reference=0.0)
        return replace(found, interval=replace(FAILS.interval, low=estimate - half_width, high=estimate + half_width))

    near, far, wide = fails("near", -1.0, 0.5), fails("far", -1.0, 0.1), fails("wide", -5.0, 2.0)
    exact, both = computed("exact", 2.0, 1.0), combined("both", [FAILS, FAILS])
    order = [verdict.claim for verdict in surprises([both, near, HOLDS, exact, far, wide, OPEN], most=9)]
    assert order == ["far", "wide", "near", "exact", "both"]
    assert [one.claim for one in surprises([near, far, wide, exact])] == ["far", "wide", "near"]
    same = [fails("near", -1.0, 0.5, "s"), fails("far", -1.0, 0.1, "s"), fails("other", -1.0, 0.4, "t")]
    assert [one.claim for one in surprises(same)] == ["far", "other"]
    assert surprises([HOLDS, OPEN]) == []
    assert all(verdict.outcome is Outcome.DOES_NOT_HOLD for verdict in surprises([*same, HOLDS]))
