"""Verdicts on figures 6 and 7: heights, spreads and shapes of the distributions over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy

from sb3_robust_be.evaluation import (
    Comparison,
    Interval,
    Outcome,
    Verdict,
    bimodal,
    bootstrap_samples,
    combined,
    greater,
    narrower,
    worst_decile_mean,
)
from sb3_robust_be.evaluation.verdicts import attainable_p, decide
from sb3_robust_be.experiments.control import lowest_for_failed
from sb3_robust_be.experiments.declared.control_report import holm_adjusted, unresolved_if_lost

Runs = Mapping[str, Mapping[str, np.ndarray]]

BASELINE, OURS, SQUARED = "dqn", "qrc_huber", "qrc"
OTHERS = {"sbeed": "SBEED", "dqn, squared loss": "DQN with the squared loss"}
# As the caption of figure 6 has them.
BIMODAL = ("Lunar Lander", "Mountain Car")
LONG_TAILED = ("Acrobot", "Cart-pole")
REASONABLE = ("Acrobot", "Cart-pole")


def control_verdicts(finals: Runs, areas: Runs) -> list[Verdict]:
    """
    :param finals: Final returns (runs,) by domain and label; NaN for runs without one.
    :param areas: Areas under the learning curve, likewise.
    :return: On means, one family after Holm, but for the combinations, which correct by themselves; then on shapes.
    """
    ranked = {domain: lowest_for_failed(own) for domain, own in finals.items()}
    of_areas = {domain: lowest_for_failed(own) for domain, own in areas.items()}
    higher = _above("{}: QRC-Huber's mean is above DQN's", ranked, OURS, BASELINE)
    area = _above("{}: QRC-Huber's AUC is above DQN's", of_areas, OURS, BASELINE)
    others = {
        label: _above(f"{{}}: QRC-Huber's mean is above that of {name}", ranked, OURS, label)
        for label, name in OTHERS.items()
    }
    reasonable = _above("{}: QRC's mean is above DQN's", _only(ranked, REASONABLE), SQUARED, BASELINE)
    cliff = _above("{}: QRC-Huber's mean is above QRC's", _only(ranked, ("Cliff World",)), OURS, SQUARED)
    single = [*higher.values(), *area.values(), *reasonable.values(), *cliff.values()]
    single += [verdict for own in others.values() for verdict in own.values()]
    narrow = [_narrow(domain, own) for domain, own in finals.items()]
    claims = [
        combined(
            "QRC-Huber's mean is above DQN's in at least four of five domains (here: all but one)",
            list(higher.values()),
            max(1, len(higher) - 1),
        ),
        combined("QRC-Huber is narrower than DQN everywhere", narrow),
    ]
    suboptimal = [verdict for domain, verdict in others["sbeed"].items() if domain != "Cart-pole"]
    if suboptimal:
        claims.append(combined("QRC-Huber's mean is above SBEED's on every domain but Cart-pole", suboptimal))
    return [*claims, *holm_adjusted(single), *narrow, *_shapes(finals)]


def _above(claim: str, runs: Runs, better: str, worse: str) -> dict[str, Verdict]:
    """By domain, where both are among the contenders."""
    return {
        domain: greater(claim.format(domain), own[better], own[worse])
        for domain, own in runs.items()
        if {better, worse} <= own.keys()
    }


def _only(runs: Runs, domains: tuple[str, ...]) -> Runs:
    return {domain: own for domain, own in runs.items() if domain in domains}


def _narrow(domain: str, own: Mapping[str, np.ndarray]) -> Verdict:
    return of_finite(narrower, f"{domain}: QRC-Huber is narrower than DQN", own[OURS], own[BASELINE])


def _shapes(finals: Runs) -> list[Verdict]:
    found = [
        of_finite(bimodal, f"{domain}: DQN is bimodal", own[BASELINE]) for domain, own in _only(finals, BIMODAL).items()
    ]
    for domain, own in _only(finals, LONG_TAILED).items():
        claim = f"{domain}: DQN's worst decile lies further below its median than QRC-Huber's"
        found.append(of_finite(longer_tailed, claim, own[BASELINE], own[OURS]))
    return found


def of_finite(judge: Callable[..., Verdict], claim: str, *samples: np.ndarray) -> Verdict:
    """A verdict on spread or shape by the runs that have a return: one value in place of the others has no spread.

    :param judge: ``(claim, *samples, rng) -> `` verdict.
    :param claim: In words.
    :param samples: Returns, each (runs,); NaN for runs without one.
    :return: Not resolved where more than a tenth of a sample's runs have none.
    """
    finite = [runs[np.isfinite(runs)] for runs in samples]
    seeds = tuple(map(len, finite))
    if min(seeds) == 0:
        nothing = Interval(math.nan, math.nan, math.nan, 0.95, "none: no runs")
        verdict = Verdict(claim, Outcome.NOT_RESOLVED, math.nan, nothing, "none", math.nan, math.nan, seeds)
    else:
        verdict = judge(claim, *finite, rng=np.random.default_rng(0))
    return unresolved_if_lost(verdict, *samples)


def longer_tailed(claim: str, x: np.ndarray, y: np.ndarray, *, rng: np.random.Generator) -> Verdict:
    """The claim "x's worst decile lies further below its median than y's", in units of the return.

    The interval of the difference is a percentile bootstrap; the test exchanges the runs' deviations from their
    sample's median.

    :param x: Shape (runs,), finite.
    :param y: Shape (other runs,), finite.
    :param rng: For both.
    """

    def difference(a: np.ndarray, b: np.ndarray, axis: int = -1) -> Any:
        return _tail(a, axis) - _tail(b, axis)

    interval = bootstrap_samples([x, y], difference, rng=rng, method="percentile")
    p_value = math.nan
    if min(len(x), len(y)) > 1:
        centred = (x - np.median(x), y - np.median(y))
        p_value = float(scipy.stats.permutation_test(centred, difference, n_resamples=1_999, rng=rng).pvalue)
    found = Comparison(
        "permutation of deviations", interval.estimate, interval, interval.estimate, p_value, (len(x), len(y))
    )
    return decide(claim, found, 0.0, attainable=attainable_p(len(x), len(y)))


def _tail(runs: np.ndarray, axis: int) -> Any:
    return np.median(runs, axis=axis) - worst_decile_mean(runs, axis=axis)
