"""Tables, figures and verdicts of the experiment ``one-setting``: candidates against baselines, over environments."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.evaluation import (
    NormalisedAverages,
    Verdict,
    brunner_munzel,
    cdf_normalised_averages,
    combined,
    failed,
    greater,
    lowest_for_failed,
    mean_interval,
    unresolved_if_lost,
    worst_decile_mean,
)
from sb3_robust_be.experiments.control.control_analysis import MEASURE
from sb3_robust_be.experiments.control.domains import SCALES

Runs = Mapping[str, Mapping[str, np.ndarray]]
"""Final returns (runs,) by environment's name and contender's label; NaN for runs without one"""

LEVEL = 0.05
"""How far below a baseline a mean may lie and still be level with it, as a fraction of the environment's scale"""
FAILED = 0.1
"""A seed has failed if its return is less than this fraction of the scale above a poor one"""


class Scale(NamedTuple):
    """What returns of an environment mean."""

    poor: float
    """The return of an agent that has learned nothing"""
    width: float
    """From there to a good return"""


SCALE_OF: dict[str, Scale] = {
    "acrobot": Scale(-500.0, SCALES["acrobot"]),
    "cart-pole": Scale(0.0, SCALES["cart-pole"]),
    "cliff-world": Scale(-1000.0, SCALES["cliff-world"]),
    "mountain-car": Scale(-1000.0, SCALES["mountain-car"]),
    "lunar-lander": Scale(-250.0, SCALES["lunar-lander"]),
    "mountain-car-200": Scale(-200.0, SCALES["mountain-car-200"]),
    "puddle-world": Scale(-1000.0, SCALES["puddle-world"]),
    # From 0 to what DQN has reached in as many steps (results of `minatar-population`): 5.6, 23.7 and 24.8.
    "breakout": Scale(0.0, 6.0),
    "freeway": Scale(0.0, 24.0),
    "spaceinvaders": Scale(0.0, 25.0),
}
"""By key of a domain"""


def level_with_baselines(
    candidate: str, baselines: Sequence[str], finals: Runs, scales: Mapping[str, Scale]
) -> list[Verdict]:
    """The claims that a candidate is level with the best baseline: on every environment, then on each of them.

    A candidate is level with the best of the baselines if it is with each of them; so none has to be named the best by
    the runs that then judge it.

    :param candidate: A label.
    :param baselines: Labels.
    :param finals: Of these contenders at least.
    :param scales: By environment's name.
    :return: A claim does not hold if the mean of some baseline is surely higher by more than :data:`LEVEL`.
    """
    who = report.label(candidate)
    parts = [
        combined(
            f"{name}: {who} is level with the best baseline",
            not_below(name, candidate, baselines, own, scales[name]),
        )
        for name, own in finals.items()
    ]
    return [combined(f"{who} is level with the best baseline on every environment", parts), *parts]


def level_with_zoo(candidate: str, zoo: Sequence[str], finals: Runs, scales: Mapping[str, Scale]) -> list[Verdict]:
    """The claims that a candidate is level with what rl_zoo3 has tuned, on every environment that it has values for.

    :param candidate: A label.
    :param zoo: Labels of the algorithms with rl_zoo3's values.
    :param finals: With their runs, where they have any.
    :param scales: By environment's name.
    :return: One claim for each label that has runs.
    """
    found = []
    for label in zoo:
        there = {name: own for name, own in finals.items() if label in own}
        parts = [part for name, own in there.items() for part in not_below(name, candidate, [label], own, scales[name])]
        if parts:
            claim = f"{report.label(candidate)} is level with {report.label(label)} wherever rl_zoo3 has an entry"
            found.append(combined(claim, parts))
    return found


def not_below(
    name: str, candidate: str, others: Sequence[str], own: Mapping[str, np.ndarray], scale: Scale
) -> list[Verdict]:
    """Non-inferiority: the candidate's mean lies above each other's less the tolerance.

    :param name: Of the environment.
    :param candidate: A label.
    :param others: Labels.
    :param own: Final returns (runs,) on it by label; NaN for runs without one.
    :param scale: Of its returns.
    :return: One claim for each other, uncorrected.
    """
    ranked = lowest_for_failed(own)
    found = []
    for other in others:
        claim = f"{name}: {report.label(candidate)} is level with {report.label(other)}"
        verdict = greater(claim, ranked[candidate], ranked[other], margin=-LEVEL * scale.width)
        found.append(unresolved_if_lost(verdict, own[candidate], own[other]))
    return found


def averages(finals: Runs, labels: Sequence[str]) -> NormalisedAverages:
    """
    :param finals: Of the environments to average over.
    :param labels: Of the contenders, which have runs on all of them.
    :return: Their CDF-normalised averages.
    """
    ranked = {name: lowest_for_failed({label: own[label] for label in labels}) for name, own in finals.items()}
    runs = {label: {name: own[label] for name, own in ranked.items()} for label in labels}
    return cdf_normalised_averages(runs, rng=np.random.default_rng(0))


def above_on_average(candidate: str, baselines: Sequence[str], found: NormalisedAverages, where: str) -> list[Verdict]:
    """The claim that a candidate is above every baseline on average, then each comparison, before any correction.

    :param candidate: A label.
    :param baselines: Labels.
    :param found: Of :func:`averages`.
    :param where: Over which environments, in words.
    """
    who = report.label(candidate)
    parts = [
        found.greater(f"{who} is above {report.label(one)} on average, {where}", candidate, one) for one in baselines
    ]
    return [combined(f"{who} is above every baseline on average, {where}", parts), *parts]


def returns_by_environment(
    name: str, caption: str, finals: Runs, settings: Mapping[tuple[str, str], str], scales: Mapping[str, Scale]
) -> report.Table:
    """One row per environment and contender. Cells of contenders without any return are empty.

    :param name: Of the table.
    :param caption: In front of what the columns are.
    :param finals: Of its environments and contenders.
    :param settings: In words, by environment's name and label.
    :param scales: By environment's name.
    """
    rows: list[dict[str, Any]] = []
    for environment, own in finals.items():
        ranked, scale = lowest_for_failed(own), scales[environment]
        for label, values in own.items():
            lost = failed(values).all()
            rows.append(
                {
                    "domain": environment,
                    "algorithm": report.label(label),
                    "mean": None if lost else mean_interval(ranked[label], rng=np.random.default_rng(0)),
                    "worst decile": None if lost else float(worst_decile_mean(ranked[label])),
                    "failed": int(failed(values, below=scale.poor + FAILED * scale.width).sum()),
                    "seeds": len(values),
                    "setting": settings[environment, label],
                }
            )
    text = (
        f"{caption} {MEASURE}, on fresh seeds. Failed: seeds without a return, or with less than {FAILED:g} of the "
        "environment's scale above a poor return."
    )
    return report.Table(name, rows, text)


def improvements(candidates: Sequence[str], baselines: Sequence[str], finals: Runs) -> report.Table:
    """Probability of improvement of each candidate over each baseline, per environment.

    :param candidates: Labels.
    :param baselines: Labels, a column each.
    :param finals: Of these contenders at least; a baseline may lack on an environment.
    """
    rows = []
    for name, own in finals.items():
        ranked = lowest_for_failed(own)
        for candidate in candidates:
            row: dict[str, Any] = {"domain": name, "algorithm": report.label(candidate)}
            for one in baselines:
                there = one in ranked
                row[f"over {report.label(one)}"] = (
                    brunner_munzel(ranked[candidate], ranked[one]).interval if there else None
                )
            rows.append(row)
    caption = "How probable it is that a run of the algorithm has a higher return than one of the baseline; ties half."
    return report.Table("improvement", rows, caption)


def averages_table(by_name: Mapping[str, NormalisedAverages]) -> report.Table:
    """One row per contender, a column for each set of environments.

    :param by_name: Of :func:`averages`, all of the same contenders, by what the column is called.
    """
    return report.Table(
        "averages",
        [
            {
                "algorithm": report.label(label),
                **{name: found.interval(label) for name, found in by_name.items()},
            }
            for label in _labels(by_name)
        ],
        "CDF-normalised returns: the share of all contenders' runs on an environment that a run is above, averaged "
        "over runs, then over environments; ½ is the average of all contenders. Intervals: stratified bootstrap, the "
        "pool of runs resampled as well.",
    )


def averages_between(by_name: Mapping[str, NormalisedAverages]) -> report.Table:
    """The differences of the averages of any two contenders, a column for each set of environments.

    :param by_name: As of :func:`averages_table`.
    """
    rows = [
        {
            "algorithm": report.label(x),
            "and": report.label(y),
            **{name: found.greater("", x, y).interval for name, found in by_name.items()},
        }
        for x, y in itertools.combinations(_labels(by_name), 2)
    ]
    caption = "How far the average of the first is above that of the second; not corrected for many comparisons."
    return report.Table("averages-between", rows, caption)


def leads_without_each(
    candidate: str, baselines: Sequence[str], by_name: Mapping[str, NormalisedAverages]
) -> report.Table:
    """How far a candidate is above the best baseline on average, with each environment left out in turn.

    :param candidate: A label.
    :param baselines: Labels.
    :param by_name: As of :func:`averages_table`; those over one environment alone are left out.
    """
    several = {name: found for name, found in by_name.items() if len(found.environments) > 1}
    rows: list[dict[str, Any]] = []
    for left_out in (None, *dict.fromkeys(one for found in several.values() for one in found.environments)):
        row: dict[str, Any] = {"without": left_out or "none"}
        for name, found in several.items():
            if left_out is None or left_out in found.environments:
                own = found.without(left_out) if left_out else found
                best = max(baselines, key=own.estimates.__getitem__)
                row |= {name: own.greater("", candidate, best).interval, f"best baseline, {name}": report.label(best)}
        rows.append(row)
    caption = (
        f"What the averages rest on: how far {report.label(candidate)} is above the baseline with the highest average, "
        "with each environment left out in turn. Not declared before the runs, not corrected for many tests."
    )
    return report.Table("averages-without-each", rows, caption)


def averages_plot(by_name: Mapping[str, NormalisedAverages]) -> report.Plot:
    """The same as bars.

    :param by_name: As of :func:`averages_table`.
    """
    groups = {
        report.label(label): {name: found.interval(label) for name, found in by_name.items()}
        for label in _labels(by_name)
    }
    caption = "½ is the average of all contenders. 95 % intervals of a stratified bootstrap."
    return report.bars(
        "averages-plot", {"One setting for all environments": groups}, measure="CDF-normalised return", caption=caption
    )


def _labels(by_name: Mapping[str, NormalisedAverages]) -> list[str]:
    return list(next(iter(by_name.values())).estimates)
