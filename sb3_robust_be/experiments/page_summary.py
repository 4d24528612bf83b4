"""The five lines at the top of a report page, made from its rows and its verdicts."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence

from sb3_robust_be.evaluation import Verdict
from sb3_robust_be.experiments.experiment import REPORTED, SELECTION
from sb3_robust_be.experiments.rows import Row, Rows, key_of
from sb3_robust_be.report import label
from sb3_robust_be.report.sentences import by_sentence, counted, counted_sentences, surprises
from sb3_robust_be.report.tables import verdict_number

MOST_NAMES = 9
"""Names that are listed; of more the first ones and how many others"""
RUN = ("stage", "domain", "contender", "setting", "seed")
"""The columns that tell runs apart"""
EXACT = "unique"
"""The column that exact minima have, of which a seed is a draw of the features"""


def page_summary(rows: Rows, verdicts: Sequence[Verdict]) -> list[str]:
    """
    :param rows: Of all runs of an experiment.
    :param verdicts: On its claims.
    :return: What was compared; how long and how often; how many of the paper's claims hold; those that fail by most;
        and how many runs were lost.
    """
    reported = [row for row in rows if row.get("stage", REPORTED) == REPORTED]
    return [_compared(reported), _length(reported, rows), _claims(verdicts), _surprises(verdicts), _lost(rows)]


def _compared(reported: Rows) -> str:
    contenders = dict.fromkeys(label(str(row["contender"])) for row in reported if "contender" in row)
    domains = dict.fromkeys(str(row["domain"]) for row in reported if "domain" in row)
    where = f", on {_listed(domains)}" if domains else ""
    return f"Compared: {_listed(contenders) or 'runs without names'}{where}."


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    more = len(found) - MOST_NAMES
    return "; ".join(found) if more < 2 else f"{'; '.join(found[:MOST_NAMES])} and {more} others"


def _length(reported: Rows, rows: Rows) -> str:
    # A contender that is reported at two settings has as many seeds as each of these.
    seeds = _seeds(reported, ("domain", "contender", "setting"))
    if not seeds:
        return "Length: everything is computed exactly, without runs and seeds."
    if all(EXACT in row for row in reported if "failed" not in row):
        draws = _range(sorted(set(seeds.values())))
        return f"Length: everything is computed exactly, for {draws} draws of the random features (seeds)."
    steps = sorted({row["steps"] for row in reported if isinstance(row.get("steps"), numbers.Real)})
    long = f"{_range(steps)} steps a run, " if steps else ""
    selection = [row for row in rows if row.get("stage") == SELECTION]
    chosen = sorted(set(_seeds(selection, ("domain", "contender")).values()))
    text = f"Length: {long}{_range(sorted(set(seeds.values())))} seeds of each contender"
    return f"{text}; settings were chosen on {_range(chosen)} other seeds." if chosen else f"{text}."


def _seeds(rows: Rows, columns: tuple[str, ...]) -> dict[tuple[object, ...], int]:
    """How many there are by the values of some columns."""
    found: dict[tuple[object, ...], set[str]] = {}
    for row in rows:
        if "seed" in row:
            found.setdefault(key_of(row, columns), set()).add(str(row["seed"]))
    return {key: len(own) for key, own in found.items()}


def _range(ordered: Sequence[float]) -> str:
    first, last = (f"{number:,}".replace(",", "\u2009") for number in (ordered[0], ordered[-1]))
    return first if first == last else f"{first} to {last}"


def _claims(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return "Claims: none is judged."
    of_sentences = [group for group in by_sentence(verdicts) if group.sentence]
    every = f"{_number_of(len(verdicts), 'verdict')}: {counted(verdicts)}."
    if not of_sentences:
        return f"Claims: {every}"
    sentences = _number_of(len(of_sentences), "sentence")
    return f"Claims: of {sentences} of the paper {counted_sentences(of_sentences)}; of {every}"


def _number_of(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _surprises(verdicts: Sequence[Verdict]) -> str:
    """Of the paper's claims; of ours where the page has no others, or where none of the paper's is refuted."""
    of_paper = [verdict for verdict in verdicts if verdict.sentence]
    ours = [verdict for verdict in verdicts if not verdict.sentence]
    if found := surprises(of_paper):
        return f"Largest surprises, claims that do not hold: {_named(found)}."
    if found := surprises(ours):
        whose = "of ours, no claim of the paper being refuted" if of_paper else "claims that do not hold"
        return f"Largest surprises, {whose}: {_named(found)}."
    return "Surprises: none; no claim is refuted."


def _named(found: Sequence[Verdict]) -> str:
    return "; ".join(f"{one.claim} ({number})" if (number := verdict_number(one)) else one.claim for one in found)


def _lost(rows: Rows) -> str:
    runs: dict[tuple[object, ...], Row] = {key_of(row, RUN): row for row in rows}
    crashed = sum("failed" in row for row in runs.values())
    diverged = sum(row.get("diverged_at") is not None for row in runs.values())
    if not _seeds(rows, ("domain",)):
        return f"Lost: {crashed} of {len(runs)} computations failed."
    return f"Lost: of {len(runs)} runs {crashed} crashed and {diverged} diverged."
