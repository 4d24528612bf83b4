"""Verdicts on table 1 and on the learning curves of MinAtar: final returns, speed of learning, single games.

A sentence whose contenders or games are not among the runs is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.evaluation import (
    NormalisedAverages,
    Verdict,
    approximately_normal,
    cdf_normalised_averages,
    combined,
    greater,
    longer_tailed,
    lowest_for_failed,
    of_finite,
    scaled_returns,
    without_runs,
)
from sb3_robust_be.experiments.rendering import Rendering, combined_if_any, verdicts_of

Runs = Mapping[str, Mapping[str, np.ndarray]]
"""By game and contender's label; the first axis is the seeds"""

DQN, SQUARED, OURS, QLC = "dqn", "qrc", "qrc_huber", "qlc"
NO_TARGET = "dqn, squared loss, no target"
NORMALISED = "dqn, squared loss, layer norm"
"""Without a target network, and with QLC's falling step size"""
NO_CORRECTION = "qrc, no correction"
GRADIENT = (OURS, SQUARED)
CONSIDERABLY = 0.05
"""Half of the smaller difference from DQN in the paper's table, 0.47 − 0.36, in units of the scaled return"""
SIMILAR = 0.06
"""The difference of QRC-Huber and QRC in the paper's table, 0.53 − 0.47, likewise"""
EARLY = 0.25
"""The part of a learning curve that is early learning"""


def early(curves: np.ndarray) -> np.ndarray:
    """
    :param curves: Learning curves, shape (runs, points); NaN for runs without one.
    :return: The mean return over the first quarter of the steps, shape (runs,).
    """
    return np.asarray(curves[:, : max(1, round(EARLY * curves.shape[1]))].mean(axis=1))


def by_label(runs: Runs) -> dict[str, dict[str, np.ndarray]]:
    """
    :param runs: Returns (runs,) by game and label; NaN for runs without one.
    :return: By label and game, of the games that have the paper's three contenders, and the contenders that each of
        these games has; a game's lowest return for runs without one.
    """
    games = {game: lowest_for_failed(own) for game, own in runs.items() if {DQN, *GRADIENT} <= own.keys()}
    shared = [label for label in next(iter(games.values()), {}) if all(label in own for own in games.values())]
    return {label: {game: own[label] for game, own in games.items()} for label in shared}


def minatar_verdicts(finals: Runs, areas: Runs, curves: Runs) -> list[Verdict]:
    """
    :param finals: Final returns (runs,) by game and label; NaN for runs without one.
    :param areas: Areas under the learning curve, likewise.
    :param curves: Learning curves (runs, points), likewise.
    :return: For each sentence of the paper, in its order here, the combined claims, then the comparisons; then ours.
    """
    by_final, by_area = by_label(finals), by_label(areas)
    if not by_final:
        return verdicts_of([_ours({}, finals, areas)])
    by_early = by_label({game: {label: early(own) for label, own in of.items()} for game, of in curves.items()})
    averages, area, soon = (
        cdf_normalised_averages(own, rng=np.random.default_rng(0)) for own in (by_final, by_area, by_early)
    )
    pooled = {label: np.concatenate(list(games.values())) for label, games in scaled_returns(by_final).items()}
    seeds = {label: min(averages.seeds[label]) for label in pooled}
    return verdicts_of(
        [
            _can_outperform(by_final),
            _considerably_worse(averages),
            _ours_above_squared(averages, area, pooled, seeds),
            _skewed_but_significant(pooled, seeds),
            _similar(averages),
            _higher_early(soon),
            _considerably_outperform(area, by_area),
            _ours({"final return": averages, "AUC": area}, finals, areas),
        ]
    )


def _scaled_above(averages: NormalisedAverages, better: str, worse: str, measure: str, margin: float = 0.0) -> Verdict:
    more = f" by more than {margin:g}" if margin > 0.0 else ""
    claim = f"{report.label(better)}'s scaled {measure} is above that of {report.label(worse)}{more}"
    return averages.greater(claim, better, worse, margin)


def _on_each_game(runs: Runs, better: str, worse: str, measure: str) -> list[Verdict]:
    """By label and game: one contender's mean is above another's, on each game."""
    claim = f"{report.label(better)}'s {measure} is above that of {report.label(worse)}"
    return [greater(f"{game}: {claim}", runs[better][game], runs[worse][game]) for game in runs[better]]


def _can_outperform(finals: Runs) -> Rendering:
    parts = {label: _on_each_game(finals, label, DQN, "final return") for label in GRADIENT}
    return Rendering(
        "We demonstrate that gradient-based learning rules without target networks, such as QRC and QRC-Huber, can "
        "outperform semi-gradient learning rules such as DQN, even when DQN is allowed to additionally tune its usage "
        "of target networks.",
        [
            claim
            for label, own in parts.items()
            for claim in _counted(f"{report.label(label)}'s final return is above that of DQN", own, "some")
        ],
        [part for own in parts.values() for part in own],
    )


def _counted(claim: str, parts: Sequence[Verdict], *how_many: str) -> list[Verdict]:
    numbers = {"some": 1, "most": len(parts) // 2 + 1, "all": len(parts)}
    names = {"some": "some game", "most": "most games", "all": "every game"}
    return [combined(f"{claim} on {names[one]}", parts, numbers[one]) for one in how_many]


def _considerably_worse(averages: NormalisedAverages) -> Rendering:
    above, far = (
        [_scaled_above(averages, label, DQN, "final return", margin) for label in GRADIENT]
        for margin in (0.0, CONSIDERABLY)
    )
    claim = "QRC-Huber's and QRC's scaled final returns are above that of DQN"
    return Rendering(
        "Despite having four times the number of meta-parameter combinations and the ability to use target networks, "
        "DQN performs considerably worse than either gradient-based algorithm.",
        [combined(claim, above), combined(f"{claim} by more than {CONSIDERABLY:g}", far)],
        [*above, *far],
    )


def _ours_above_squared(
    averages: NormalisedAverages, area: NormalisedAverages, pooled: Mapping[str, np.ndarray], seeds: Mapping[str, int]
) -> Rendering:
    own = _scaled_above(averages, OURS, SQUARED, "final return")
    normal = [
        _of_one_game(
            of_finite(approximately_normal, f"{report.label(label)}'s scaled final returns are normal", pooled[label]),
            seeds[label],
        )
        for label in GRADIENT
    ]
    return Rendering(
        "Because QRC-Huber and QRC yield approximately normal performance distributions, we use a paired t-test and "
        "find that QRC-Huber has a statistically significant performance increase over QRC.",
        [
            combined("QRC-Huber's scaled final return is above that of QRC (a significant increase)", [own]),
            *combined_if_any("QRC-Huber's and QRC's scaled final returns are approximately normal", normal),
        ],
        [
            own,
            _scaled_above(area, OURS, SQUARED, "AUC"),
            _of_papers_test(own.claim, pooled[OURS], pooled[SQUARED], "paired", seeds[OURS]),
            *normal,
        ],
    )


def _of_one_game(verdict: Verdict, seeds: int) -> Verdict:
    """With the seeds of one game, since those of several are not independent of the choice of the games."""
    return replace(verdict, seeds=(seeds,))


def _of_papers_test(claim: str, x: np.ndarray, y: np.ndarray, method: str, seeds: int) -> Verdict:
    name = {"paired": "the paper's paired t", "bootstrap-t": "the paper's bootstrap t"}[method]
    if len(x) != len(y):
        return without_runs(f"{claim} ({name})", x, y, reason="some of the pairs' runs are still to be made")
    return _of_one_game(greater(f"{claim} ({name})", x, y, method=method, rng=np.random.default_rng(0)), seeds)


def _skewed_but_significant(pooled: Mapping[str, np.ndarray], seeds: Mapping[str, int]) -> Rendering:
    claim = "DQN's worst decile of scaled final returns lies further below its median than QRC-Huber's"
    tail = _of_one_game(of_finite(longer_tailed, claim, pooled[DQN], pooled[OURS]), seeds[DQN])
    tests = [
        _of_papers_test(
            f"{report.label(label)}'s scaled final return is above that of DQN",
            pooled[label],
            pooled[DQN],
            method,
            seeds[label],
        )
        for method in ("paired", "bootstrap-t")
        for label in GRADIENT
    ]
    return Rendering(
        "DQN's performance profile is notably skewed by a small number of failing runs, however the difference in "
        "performance between DQN and either gradient-based algorithm is significant according to both a paired t-test "
        "and a much less powerful bootstrap t-test (which allows for a skewed sampling distribution).",
        [
            combined(f"{claim} (notably skewed)", [tail]),
            combined("QRC-Huber's and QRC's scaled final returns are above that of DQN by both tests", tests),
        ],
        [tail, *tests],
    )


def _similar(averages: NormalisedAverages) -> Rendering:
    sides = [
        averages.greater(
            f"{report.label(x)}'s scaled final return is at most {SIMILAR:g} below that of {report.label(y)}",
            x,
            y,
            -SIMILAR,
        )
        for x, y in ((OURS, SQUARED), (SQUARED, OURS))
    ]
    return Rendering(
        "That QRC and QRC-Huber perform similarly is unsurprising as the largest possible reward in any Minatar game "
        "is +1.",
        [combined(f"QRC's and QRC-Huber's scaled final returns differ by at most {SIMILAR:g}", sides)],
        sides,
    )


def _higher_early(soon: NormalisedAverages) -> Rendering:
    return Rendering(
        "The sample mean performance of QRC-Huber is slightly higher than QRC during early learning, but not "
        "statistically significantly so in this result.",
        [],
        [_scaled_above(soon, OURS, SQUARED, "return in the first quarter of the steps")],
    )


def _considerably_outperform(area: NormalisedAverages, areas: Runs) -> Rendering:
    above, far = (
        [_scaled_above(area, label, DQN, "AUC", margin) for label in GRADIENT] for margin in (0.0, CONSIDERABLY)
    )
    single = {label: _on_each_game(areas, label, DQN, "AUC") for label in GRADIENT}
    claim = "QRC-Huber's and QRC's scaled AUCs are above that of DQN"
    return Rendering(
        "[In the learning curves] both gradient-based algorithms considerably outperform DQN with statistical "
        "significance, indicating both less domain-sensitivity to meta-parameters as well as better absolute "
        "performance.",
        [
            combined(claim, above),
            combined(f"{claim} by more than {CONSIDERABLY:g}", far),
            *(
                counted
                for label, own in single.items()
                for counted in _counted(f"{report.label(label)}'s AUC is above that of DQN", own, "most", "all")
            ),
        ],
        [*above, *far, *(part for own in single.values() for part in own)],
    )


def _ours(averages: Mapping[str, NormalisedAverages], finals: Runs, areas: Runs) -> Rendering:
    """What the paper does not compare: other baselines, QLC, and QRC without its correction."""
    found = [
        _scaled_above(own, better, worse, measure)
        for measure, own in averages.items()
        for better, worse in ((OURS, NO_TARGET), (QLC, DQN), (QLC, NO_TARGET), (QLC, NORMALISED))
        if {better, worse} <= own.estimates.keys()
    ]
    for measure, runs in (("final return", finals), ("AUC", areas)):
        for game, own in runs.items():
            if {SQUARED, NO_CORRECTION} <= own.keys():
                claim = f"{game}: QRC's {measure} is higher without its correction"
                pair = lowest_for_failed({label: own[label] for label in (NO_CORRECTION, SQUARED)})
                found.append(greater(claim, pair[NO_CORRECTION], pair[SQUARED]))
    return Rendering("", [], found)
