"""Verdicts on figures 6 and 7: heights, spreads and shapes of the distributions over seeds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sb3_robust_be.evaluation import (
    Verdict,
    bimodal,
    combined,
    greater,
    judged,
    longer_tailed,
    lowest_for_failed,
    narrower,
    of_finite,
)

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
    :return: The combined claims, then the single comparisons, on means and then on spreads and shapes.
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
    return judged(claims, [*single, *narrow, *_shapes(finals)])


def _above(claim: str, runs: Runs, better: str, worse: str) -> dict[str, Verdict]:
    """The claim that one contender is above another, on each domain that has both."""
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
