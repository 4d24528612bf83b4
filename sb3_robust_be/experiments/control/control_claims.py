"""Verdicts on figures 6 and 7: heights, spreads, shapes and stability of the distributions over seeds.

A sentence whose contenders or domains are not among the runs is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.evaluation import (
    Verdict,
    approximately_normal,
    bimodal,
    enough_seeds,
    greater,
    insensitive,
    largest_fall,
    longer_tailed,
    lowest_for_failed,
    narrower,
    of_finite,
    share_of_rise_lost,
    step_size_loss,
    unresolved_if_lost,
    without_runs,
)
from sb3_robust_be.experiments.control.contenders import dqn_baselines
from sb3_robust_be.experiments.control.domains import TOLERANCES
from sb3_robust_be.experiments.experiment import Reading
from sb3_robust_be.experiments.rendering import Rendering, combined_if_any, verdicts_of

Runs = Mapping[str, Mapping[str, np.ndarray]]
"""By domain's name and contender's label; the first axis is the seeds"""
OverRates = Mapping[str, Mapping[str, Mapping[float, np.ndarray]]]
"""Final returns (seeds,) of the selection seeds by domain's name, contender's label and step size"""

BASELINE, OURS, SQUARED, SBEED, QLC = "dqn", "qrc_huber", "qrc", "sbeed", "qlc"
PAPERS = (BASELINE, SQUARED, SBEED)
"""The paper's contenders besides its own"""
HARD_CLIP = f"{OURS}, hard clip"
FIXED_THRESHOLD = f"{BASELINE}, Huber loss"
"""DQN with a threshold of 1, where that without more words may choose its threshold"""
OTHER_DQNS = tuple(
    contender.label for contender in dqn_baselines((), ()) if contender.label not in (BASELINE, FIXED_THRESHOLD)
)
NORMALISED = f"{BASELINE}, layer norm"
TUNED = (BASELINE, SBEED)
"""Those that choose other settings than the step size, too"""

# As the captions of figures 6 and 7 have them.
BIMODAL = ("Lunar Lander", "Mountain Car")
LONG_TAILED = ("Acrobot", "Cart-pole")
LONG_TAILED_SBEED = ("Cliff World", "Mountain Car")
REASONABLE = ("Acrobot", "Cart-pole")
UNSTABLE = ("Cart-pole", "Mountain Car")
NOT_BY_AREA = "Lunar Lander"
"""What the appendix's "all four domains" leaves out: its benchmark domains are the others"""

JUST_AS_EFFECTIVE = Reading(
    "What is just as effective?",
    (
        "means that differ by at most a fifth of the domain's scale",
        "a mean with the clip that is at most a fifth of the scale below that with its smooth estimate",
    ),
    "each is judged",
    "as effective is no worse, and the clip may be the better one; the row of the second has the difference.",
)


def control_verdicts(
    finals: Runs,
    areas: Runs,
    curves: Runs | None = None,
    over_rates: OverRates | None = None,
    over_rates_fixed: OverRates | None = None,
) -> list[Verdict]:
    """
    :param finals: Final returns (runs,) by domain and label; NaN for runs without one.
    :param areas: Areas under the learning curve, likewise.
    :param curves: Learning curves (runs, points), likewise.
    :param over_rates: What the step sizes gave, the other settings at their best for each.
    :param over_rates_fixed: The same with the other settings as they were chosen.
    :return: For each sentence of the paper, in its order here, the combined claims, then the comparisons.
    """
    means = {domain: lowest_for_failed(own) for domain, own in finals.items()}
    renderings = [
        _narrow_and_normal(finals),
        _far_above_dqn(means),
        _above_dqn_on_lunar_lander(means),
        _own_threshold_of_dqn(means),
        _qrc(means),
        _shapes_of_dqn(finals),
        _shapes_of_sbeed(finals),
        _among_the_best(means),
        _only_one_among_the_best(means),
        _unstable(curves or {}),
        _sbeed_suboptimal(means),
        _by_area(areas),
        _over_step_sizes(over_rates or {}, over_rates_fixed or {}),
        _both_measures_of_clips(finals, areas),
        _other_dqns(means),
        _qlc(means, {domain: lowest_for_failed(own) for domain, own in areas.items()}),
    ]
    return verdicts_of(renderings)


def with_hard_clip(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The domains with runs of QRC-Huber's hard clip, which stands in place of the smooth one.

    :param runs: By domain's name and contender's label.
    :return: Likewise, with one QRC-Huber.
    """
    return {
        domain: {OURS if label == HARD_CLIP else label: one for label, one in own.items() if label != OURS}
        for domain, own in runs.items()
        if HARD_CLIP in own
    }


def _above(claim: str, runs: Runs, better: str, worse: str, tolerances: float = 0.0) -> list[Verdict]:
    """On each domain that has both: one contender's mean is above another's, by more than a margin.

    :param tolerances: The margin in units of :data:`TOLERANCES`; −1 for "at most that much below".
    """
    return [
        greater(
            f"{domain}: {claim}", own[better], own[worse], margin=tolerances * TOLERANCES[domain] if tolerances else 0.0
        )
        for domain, own in runs.items()
        if {better, worse} <= own.keys()
    ]


def _on(domains: tuple[str, ...], runs: Runs) -> Runs:
    return {domain: own for domain, own in runs.items() if domain in domains}


def _each(judge: Callable[..., Verdict], claim: str, runs: Runs, *labels: str) -> list[Verdict]:
    """A verdict on shape on each domain that has these contenders."""
    return [
        of_finite(judge, f"{domain}: {claim}", *(own[label] for label in labels))
        for domain, own in runs.items()
        if set(labels) <= own.keys()
    ]


def _narrow_and_normal(finals: Runs) -> Rendering:
    by_range = _each(narrower, "QRC-Huber is narrower than DQN (interquartile range)", finals, OURS, BASELINE)
    deviations = partial(narrower, measure="std")
    by_deviation = _each(deviations, "QRC-Huber is narrower than DQN (standard deviation)", finals, OURS, BASELINE)
    normal = _each(approximately_normal, "QRC-Huber's distribution is approximately normal", finals, OURS)
    return Rendering(
        "QRC-Huber exhibits narrow and approximately normal performance distributions for every domain, suggesting the "
        "stability of the algorithm over random seeds.",
        [
            *combined_if_any("QRC-Huber is narrower than DQN everywhere (interquartile range)", by_range),
            *combined_if_any("QRC-Huber is narrower than DQN everywhere (standard deviation)", by_deviation),
            *combined_if_any("QRC-Huber's distribution is approximately normal everywhere", normal),
        ],
        [*by_range, *by_deviation, *normal],
    )


def _far_above_dqn(means: Runs) -> Rendering:
    higher = _above("QRC-Huber's mean is above DQN's", means, OURS, BASELINE)
    far = _above("QRC-Huber's mean is above DQN's by more than a fifth of the scale", means, OURS, BASELINE, 1.0)
    enough = max(1, len(higher) - 1)
    return Rendering(
        "[DQN] does not seem to enjoy the same stability as QRC-Huber, with average performance far worse than "
        "QRC-Huber on four of five domains due to high bimodality or long-tailed performance distributions.",
        [
            *combined_if_any("QRC-Huber's mean is above DQN's on all domains but one", higher, enough),
            *combined_if_any("QRC-Huber's mean is far above DQN's on all domains but one", far, enough),
        ],
        [*higher, *far],
    )


def _above_dqn_on_lunar_lander(means: Runs) -> Rendering:
    """A comparison of :func:`_far_above_dqn` that the paper gives as a reason of its own."""
    return Rendering(
        "QRC-Huber clearly already outperforms DQN on Lunar Lander without target networks as shown in [the figure of "
        "the distributions over seeds].",
        [],
        _above("QRC-Huber's mean is above DQN's (outperforms)", _on(("Lunar Lander",), means), OURS, BASELINE),
    )


def _own_threshold_of_dqn(means: Runs) -> Rendering:
    """What :func:`_far_above_dqn` judges of the DQN that chooses its threshold, and of that with a threshold of 1."""
    both = {domain: own for domain, own in means.items() if {OURS, BASELINE, FIXED_THRESHOLD} <= own.keys()}
    enough = max(1, len(both) - 1)
    claims, comparisons = [], []
    for more, tolerances in (("", 0.0), (" by more than a fifth of the scale", 1.0)):
        claim = "QRC-Huber's mean is above that of DQN with a threshold of 1"
        fixed = _above(f"{claim}{more}", both, OURS, FIXED_THRESHOLD, tolerances)
        chosen = _above(f"QRC-Huber's mean is above that of DQN{more}", both, OURS, BASELINE, tolerances)
        each = [
            *combined_if_any(f"{claim}{more}, on all domains but one", fixed, enough),
            *combined_if_any("that of DQN with the best of its thresholds likewise", chosen, enough),
        ]
        # The second of them, alone, is a claim of the sentence on "far worse".
        claims += [*each[:1], *combined_if_any(f"{claim}, and with the best one{more}, on all domains but one", each)]
        comparisons += fixed
    return Rendering(
        "Allowing DQN to select its best τ for each domain does not change the conclusions in [the figure of the "
        "distributions over seeds], so for simplicity we choose to maintain consistency between DQN and QRC-Huber.",
        claims,
        comparisons,
    )


def _qrc(means: Runs) -> Rendering:
    there = _on(REASONABLE, means)
    level = [
        one
        for label in (OURS, BASELINE, SBEED)
        for one in _above(
            f"QRC's mean is at most a fifth of the scale below that of {report.label(label)}",
            there,
            SQUARED,
            label,
            -1.0,
        )
    ]
    above = _above("QRC's mean is above DQN's", there, SQUARED, BASELINE)
    poorly = _above("QRC-Huber's mean is above QRC's", _on(("Cliff World",), means), OURS, SQUARED)
    return Rendering(
        "The QRC algorithm performs reasonably on the Acrobot and Cart-pole domains, but performs quite poorly on the "
        "Cliff World domain.",
        [
            *combined_if_any("QRC is at most a fifth of the scale below any other on Acrobot and Cart-pole", level),
            *combined_if_any("QRC's mean is above DQN's on Acrobot and Cart-pole (a stricter rendering)", above),
            *combined_if_any("QRC's mean is below QRC-Huber's on Cliff World (quite poorly)", poorly),
        ],
        [*level, *above, *poorly],
    )


def _shapes_of_dqn(finals: Runs) -> Rendering:
    claim = "DQN's worst decile lies further below its median than QRC-Huber's"
    bimodals = _each(bimodal, "DQN is bimodal", _on(BIMODAL, finals), BASELINE)
    tailed = _each(longer_tailed, claim, _on(LONG_TAILED, finals), BASELINE, OURS)
    return Rendering(
        "DQN has inconsistent behavior, with bimodal performance on Mountain Car and Lunar Lander, and long-tailed "
        "performance on Acrobot and Cartpole.",
        [
            *combined_if_any("DQN is bimodal on Mountain Car and Lunar Lander", bimodals),
            *combined_if_any(f"{claim} on Acrobot and Cart-pole", tailed),
        ],
        [*bimodals, *tailed],
    )


def _shapes_of_sbeed(finals: Runs) -> Rendering:
    deviations = partial(narrower, measure="std")
    narrow = _each(deviations, "QRC-Huber is narrower than SBEED (standard deviation)", finals, OURS, SBEED)
    claim = "SBEED's worst decile lies further below its median than QRC-Huber's"
    tailed = _each(longer_tailed, claim, _on(LONG_TAILED_SBEED, finals), SBEED, OURS)
    several = narrow if len(narrow) > 1 else []
    return Rendering(
        "SBEED has inconsistent performance with high-variance on several domains and long-tailed performance on "
        "CliffWorld and Mountain Car.",
        [
            *combined_if_any("QRC-Huber is narrower than SBEED on two or more domains", several, 2),
            *combined_if_any(f"{claim} on Cliff World and Mountain Car", tailed),
        ],
        [*narrow, *tailed],
    )


def _among_the_best(means: Runs) -> Rendering:
    level = [
        one
        for label in PAPERS
        for one in _above(
            f"QRC-Huber's mean is at most a fifth of the scale below that of {report.label(label)}",
            means,
            OURS,
            label,
            -1.0,
        )
    ]
    return Rendering(
        "The learning curves […] further highlight that QRC-Huber is the most robust of the three, across all five "
        "problem setting, either having comparable or notably better performance.",
        combined_if_any(
            "QRC-Huber is at most a fifth of the scale below each of the paper's other algorithms everywhere", level
        ),
        level,
    )


def _only_one_among_the_best(means: Runs) -> Rendering:
    claims, comparisons = [], []
    for label in PAPERS:
        name = report.label(label)
        parts = _above(
            f"QRC-Huber's mean is more than a fifth of the scale above that of {name}", means, OURS, label, 1.0
        )
        claims += combined_if_any(f"{name} is more than a fifth of the scale below QRC-Huber on some domain", parts, 1)
        # DQN's are those of "far worse".
        comparisons += parts if label != BASELINE else []
    return Rendering(
        "QRC-Huber is the only algorithm which is consistently among the best performing algorithms for every "
        "environment.",
        claims,
        comparisons,
    )


def _unstable(curves: Runs) -> Rendering:
    falling, losing = [], []
    for domain, own in _on(UNSTABLE, curves).items():
        if {BASELINE, OURS} <= own.keys():
            pair = (own[BASELINE], own[OURS])
            falling += _larger_fall(domain, *pair)
            losing.append(_larger_share_lost(domain, *pair))
    return Rendering(
        "DQN exhibits notable instability in both the Cartpole and Mountain Car environments, while QRC suffers from "
        "its squared loss in the adversarially designed CliffWorld environment.",
        [
            *combined_if_any(
                "DQN's learning curves fall further than QRC-Huber's on Cart-pole and Mountain Car", falling
            ),
            *combined_if_any(
                "DQN's learning curves lose a larger share of what they have risen by than QRC-Huber's on Cart-pole "
                "and Mountain Car",
                losing,
            ),
        ],
        [*falling, *losing],
    )


def _larger_fall(domain: str, baseline: np.ndarray, ours: np.ndarray) -> list[Verdict]:
    """That DQN's curves fall further, by the largest fall of each run; none where fewer than two have a curve."""
    claim = f"{domain}: DQN's learning curves fall further below what they have reached than QRC-Huber's"
    falls = [largest_fall(own) for own in (baseline, ours)]
    first, second = (own[np.isfinite(own)] for own in falls)
    return [unresolved_if_lost(greater(claim, first, second), *falls)] if min(len(first), len(second)) > 1 else []


def _larger_share_lost(domain: str, baseline: np.ndarray, ours: np.ndarray) -> Verdict:
    """The same by the share of the rise, of the runs that learn something: whoever stays low cannot fall far."""
    least = TOLERANCES[domain]
    claim = (
        f"{domain}: DQN's learning curves lose a larger share of what they have risen by than QRC-Huber's, of the runs "
        "that rise by more than a fifth of the scale"
    )
    shares = [share_of_rise_lost(own, least) for own in (baseline, ours)]
    first, second = (own[np.isfinite(own)] for own in shares)
    if min(len(first), len(second)) == 0:
        counts = " and ".join(f"{len(own)} of {len(of)}" for own, of in ((first, baseline), (second, ours)))
        return without_runs(claim, first, second, reason=f"{counts} runs rise by more than {least:g}")
    return unresolved_if_lost(greater(claim, first, second), *(largest_fall(own) for own in (baseline, ours)))


def _sbeed_suboptimal(means: Runs) -> Rendering:
    parts = _above("QRC-Huber's mean is above SBEED's", means, OURS, SBEED)
    suboptimal = [one for one in parts if not one.claim.startswith("Cart-pole")]
    claim = "QRC-Huber's mean is more than a fifth of the scale above SBEED's (notably worse)"
    notably = _above(claim, _on(("Lunar Lander",), means), OURS, SBEED, 1.0)
    return Rendering(
        "The SBEED algorithm consistently performs suboptimally on every domain except Cartpole, with notably worse "
        "performance on Lunar Lander.",
        [
            *combined_if_any("QRC-Huber's mean is above SBEED's on every domain but Cart-pole", suboptimal),
            *combined_if_any(
                "QRC-Huber's mean is more than a fifth of the scale above SBEED's on Lunar Lander (notably worse)",
                notably,
            ),
        ],
        [*parts, *notably],
    )


def _by_area(areas: Runs) -> Rendering:
    means = {domain: lowest_for_failed(own) for domain, own in areas.items()}
    claims, comparisons = [], []
    for label in (BASELINE, SQUARED):
        name = report.label(label)
        higher, narrow = f"QRC-Huber's AUC is above that of {name}", f"QRC-Huber's AUC is narrower than that of {name}"
        for claim, parts, often in (
            (higher, _above(higher, means, OURS, label), True),
            (narrow, _each(narrower, narrow, areas, OURS, label), False),
        ):
            four = [one for one in parts if not one.claim.startswith(NOT_BY_AREA)]
            claims += combined_if_any(f"{claim} on all domains but {NOT_BY_AREA}", four)
            if often:
                claims += combined_if_any(f"{claim} on most domains but {NOT_BY_AREA}", four, len(four) // 2 + 1)
            if len(four) < len(parts):
                claims += combined_if_any(f"{claim} everywhere", parts)
            comparisons += parts
    return Rendering(
        "[By the area under the learning curve] QRC-Huber tends to perform favorably across all four domains compared "
        "to QRC and DQN, exhibiting much more narrow performance distributions that are often centered around higher "
        "rewards than the competitor algorithms.",
        claims,
        comparisons,
    )


def _over_step_sizes(over_rates: OverRates, fixed: OverRates) -> Rendering:
    claims, comparisons = [], []
    for label in PAPERS:
        for more, own in (("", over_rates), (", its other settings fixed", fixed if label in TUNED else {})):
            of_label = _over_step_sizes_of(label, own, more)
            claims += of_label.claims
            comparisons += of_label.comparisons
    return Rendering(
        "The resulting gradient-based algorithms are more stable, for both prediction and control, with less "
        "sensitivity to meta-parameters.",
        claims,
        comparisons,
    )


def _over_step_sizes_of(label: str, over_rates: OverRates, more: str) -> Rendering:
    """What a blind choice of the step size costs against an algorithm's own best, and what it gives.

    By the first, whoever is as bad at every step size loses nothing. The second, a difference of averages, is also that
    of the costs against one best for both.

    :param label: Of the algorithm that QRC-Huber is compared with.
    :param over_rates: Of both.
    :param more: What else is said of the algorithm.
    """
    name = f"{report.label(label)}{more}"
    losing, higher, left_out = [], [], []
    for domain, own in over_rates.items():
        theirs, ours = _at_shared_step_sizes(own.get(label, {}), own.get(OURS, {}))
        if len(ours) < 2:
            continue
        seeds = (len(theirs[0]), len(ours[0]))
        if not enough_seeds(*seeds):
            left_out.append(f"{domain}, where {min(seeds)} selection seeds are too few for any test")
            continue
        losing.append(
            greater(
                f"{domain}: over the step sizes {name}{',' if more else ''} loses more against its best than QRC-Huber",
                step_size_loss(theirs),
                step_size_loss(ours),
            )
        )
        higher.append(
            greater(
                f"{domain}: QRC-Huber's return averaged over the step sizes is above that of {name}",
                np.mean(ours, axis=0),
                np.mean(theirs, axis=0),
            )
        )
    where = "on every domain" + (f" (left out: {'; '.join(left_out)})" if left_out else "")
    where = f", {where}" if more else f" {where}"
    average = f"QRC-Huber's return averaged over the step sizes is above that of {name}"
    return Rendering(
        "",
        [
            *combined_if_any(f"QRC-Huber loses less over the step sizes than {name}{where}", losing),
            *combined_if_any(f"{average}{where}", higher),
        ],
        [*losing, *higher],
    )


def _at_shared_step_sizes(
    x: Mapping[float, np.ndarray], y: Mapping[float, np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The runs of two contenders at each step size that both have tried.

    A run that has diverged is the lowest of both, as in the choice of the step size.
    """
    shared = sorted(x.keys() & y.keys())
    runs = {f"{i} {rate}": own[rate] for i, own in enumerate((x, y)) for rate in shared}
    ranked = list(lowest_for_failed(runs).values()) if runs else []
    return ranked[: len(shared)], ranked[len(shared) :]


def clips(finals: Runs, tolerances: Mapping[str, float]) -> Rendering:
    """The paper's sentence on the clip and its smooth estimate, on each domain that has runs with both.

    :param finals: Final returns (runs,) by domain's name and label; NaN for runs without one.
    :param tolerances: How far means may differ, in units of the return, by domain's name.
    """
    alike, no_worse = [], []
    for domain, own in finals.items():
        if {OURS, HARD_CLIP} <= own.keys():
            pair = lowest_for_failed({label: own[label] for label in (OURS, HARD_CLIP)})
            tolerance = tolerances[domain]
            claim = f"{domain}: the clip and its smooth estimate differ by at most a fifth of the scale"
            within = insensitive(claim, pair, tolerance)
            # As effective is no worse: the clip may be the better one.
            claim = f"{domain}: the clip's mean is at most a fifth of the scale below that of its smooth estimate"
            above = greater(claim, pair[HARD_CLIP], pair[OURS], margin=-tolerance)
            alike.append(unresolved_if_lost(within, own[OURS], own[HARD_CLIP]))
            no_worse.append(unresolved_if_lost(above, own[OURS], own[HARD_CLIP]))
    claim = "QRC-Huber's clip and its smooth estimate differ by at most a fifth of the scale everywhere"
    weaker = "QRC-Huber's clip is at most a fifth of the scale below its smooth estimate everywhere (no worse)"
    return Rendering(
        "In practice, we found the simpler linear approximation followed by clipping to be just as effective [as τ "
        "tanh(x/τ)].",
        [*combined_if_any(claim, alike), *combined_if_any(weaker, no_worse)],
        [*alike, *no_worse],
    )


def _both_measures_of_clips(finals: Runs, areas: Runs) -> Rendering:
    """By the area under the curve, too, which shows what the last quarter of a run does not: how fast they learn."""
    of_final, of_area = clips(finals, TOLERANCES), clips(areas, TOLERANCES)
    by_area = [
        [replace(one, claim=f"{one.claim}, by the AUC") for one in of] for of in (of_area.claims, of_area.comparisons)
    ]
    return Rendering(of_final.sentence, [*of_final.claims, *by_area[0]], [*of_final.comparisons, *by_area[1]])


def _other_dqns(means: Runs) -> Rendering:
    found = [
        one
        for label in OTHER_DQNS
        for one in _above(f"QRC-Huber's mean is above that of {report.label(label)}", means, OURS, label)
    ]
    return Rendering("", [], found)


def _qlc(means: Runs, areas: Runs) -> Rendering:
    """These were declared when the numbers were known."""
    found = [
        one
        for measure, runs in (("mean", means), ("AUC", areas))
        for label in (BASELINE, NORMALISED)
        for one in _above(f"QLC's {measure} is above that of {report.label(label)}", runs, QLC, label)
    ]
    return Rendering("", [], found)
