"""Why corrections fail on Cliff World: what they do at falls and at moves against the border."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be import report
from sb3_robust_be.evaluation import fails_more, greater
from sb3_robust_be.experiments.cliff_world.trace import GROUPS
from sb3_robust_be.experiments.experiment import Analysis
from sb3_robust_be.experiments.rendering import Rendering
from sb3_robust_be.report.panels import on_ticks

Floats = NDArray[np.float64]
Traces = Mapping[str, Sequence[Mapping[str, np.ndarray]]]

UNCORRECTED = "qrc_huber, κ = 0"
"""The same δ, networks and optimiser without the correction: semi-gradient Q-learning on the squared error"""
SMOOTH_CLIP = "qrc_huber, smooth clip"
CLIPS = ("qrc_huber", SMOOTH_CLIP)
"""QRC-Huber as its class is by default, with the hard clip, and with τ tanh(h/τ)"""
CORRECTED = ("qrc", *CLIPS, "qlc")
_FALLS, _BLOCKED = GROUPS.index("falls"), GROUPS.index("blocked moves")
_CAPTION = (
    "What corrections do over training. A fall is one of the four moves into the cliff; a blocked move goes against "
    "the border and stays in its cell. Clipped: h, the estimate of the TD error, is beyond ±κ, or beyond QLC's limit; "
    "|γz|/|δ|: the size of the correction over that of the TD error δ, both averaged over the transitions in the "
    "replay buffer. κ = 0 is semi-gradient Q-learning with the same δ. All rewards are negative, so that no start is "
    "worth more than 0."
)
_TABLE = (
    "Means over seeds and over the steps of training, of what the replay buffer holds. Push on the start's value: the "
    "part −γz of the updates that lead to the start, by which the correction alone moves that value."
)


def add_mechanism(
    analysis: Analysis,
    traces: Traces,
    scores: Mapping[str, Floats],
    solved: Mapping[str, np.ndarray],
    rng: np.random.Generator,
) -> list[Rendering]:
    """Add the figure, the table and the notes.

    :param analysis: That of the experiment.
    :param traces: Of the runs that neither failed nor diverged, by contender.
    :param scores: Online returns of all runs, by contender.
    :param solved: Whether each run's greedy policy reaches the goal, by contender.
    :param rng: For the bands.
    :return: The paper's sentences on corrections, and our claims on them, with what each is judged by.
    """
    if too_few := [report.label(name) for name, own in traces.items() if len(own) < 2]:
        analysis.notes.append(f"The mechanism is not shown: {', '.join(too_few)} has fewer than two finished runs.")
        return []
    stacked = {name: _stack(own) for name, own in traces.items()}
    analysis.plots.append(_figure(stacked, next(iter(traces.values()))[0]["step"], rng))
    analysis.tables.append(report.Table("corrections", _rows(stacked), _TABLE))
    analysis.notes += _sentences(stacked)
    return [_skewed_updates(stacked), _deemphasised(stacked), _without_correction(stacked, scores, solved)]


def _stack(traces: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Floats]:
    """Runs first, shape (runs, points, …)."""
    return {name: np.stack([trace[name] for trace in traces]).astype(np.float64) for name in traces[0]}


def _figure(stacked: Mapping[str, dict[str, Floats]], steps: np.ndarray, rng: np.random.Generator) -> report.Plot:
    corrected = {name: stacked[name] for name in CORRECTED}
    ratio = "Falls: |γz| / |δ|"
    panels: dict[str, dict[str, Floats]] = {
        "Falls: h clipped": {name: of["clipped"][..., _FALLS] for name, of in corrected.items()},
        ratio: {name: of["ratio"][..., _FALLS] for name, of in corrected.items()},
        "Runs whose start is above 0": {name: (of["start_value"] > 0.0).astype(float) for name, of in stacked.items()},
        "Blocked moves: h clipped": {name: of["clipped"][..., _BLOCKED] for name, of in corrected.items()},
        "Blocked moves: |γz| / |δ|": {name: of["ratio"][..., _BLOCKED] for name, of in corrected.items()},
        "Blocked moves: share": {name: of["share"][..., _BLOCKED] for name, of in stacked.items()},
    }
    plot = report.learning_curves("mechanism", panels, steps, measure="", rng=rng, caption=_CAPTION)
    axis = next(axis for axis in plot.figure.axes if axis.get_title(loc="left") == ratio)
    axis.set_yscale("log")
    axis.set_ylim(on_ticks(axis.dataLim.minposy, axis.dataLim.y1, log=True))
    axis.yaxis.set_major_formatter("{x:g}")
    what = "Over training, corrections and clipping at falls and at blocked moves, and where they leave the agents."
    return replace(plot, alt=" ".join([what, *_sentences(stacked)]))


def _rows(stacked: Mapping[str, dict[str, Floats]]) -> list[dict[str, Any]]:
    return [
        {
            "algorithm": report.label(name),
            "transitions": group,
            "share": _mean(of["share"][..., i]),
            "mean |δ|": _mean(of["td_error"][..., i]),
            "mean |h|": _mean(of["h"][..., i]),
            "h clipped": _mean(of["clipped"][..., i]),
            "|γz| / |δ|": _mean(of["ratio"][..., i]),
            "push on the start's value": _mean(of["push"][..., i]),
        }
        for name, of in stacked.items()
        for i, group in enumerate(GROUPS)
    ]


def _mean(x: Floats) -> float | None:
    present = x[np.isfinite(x)]
    return float(present.mean()) if present.size else None


def _first(x: Floats) -> Floats:
    """Each run's mean over the first quarter of the points, of those with a value; NaN without any."""
    return np.ma.masked_invalid(x[:, : max(1, x.shape[1] // 4)]).mean(axis=1).filled(np.nan)


def _last(x: Floats) -> Floats:
    """Each run's mean over the last quarter of the points, of those with a value; NaN without any."""
    return _first(x[:, ::-1])


def _skewed_updates(stacked: Mapping[str, Mapping[str, Floats]]) -> Rendering:
    return Rendering(
        "Further, during the optimization, these high-magnitude errors can skew updates.",
        [],
        [
            greater(
                f"In the first quarter of the steps falls push the start's value up more under QRC than under {name}",
                _first(stacked["qrc"]["push"][..., _FALLS]),
                _first(huber["push"][..., _FALLS]),
            )
            for name, huber in _with_a_clip(stacked)
        ],
    )


def _deemphasised(stacked: Mapping[str, Mapping[str, Floats]]) -> Rendering:
    parts = []
    for name, huber in _with_a_clip(stacked):
        clipped = _first(huber["clipped"][..., _FALLS])
        ratios = np.stack([_first(huber["ratio"][..., group]) for group in (_BLOCKED, _FALLS)])
        # Without the runs that did not fall.
        at_blocked, at_falls = ratios[:, np.isfinite(ratios).all(axis=0)]
        parts += [
            greater(
                f"In the first quarter the h of {name} is beyond ±κ in more than half of the falls",
                clipped[np.isfinite(clipped)],
                0.5,
            ),
            greater(
                f"In the first quarter |γz|/|δ| of {name} is larger at blocked moves than at falls",
                at_blocked,
                at_falls,
                method="paired",
            ),
            greater(
                f"In the first quarter blocked moves push the start's value up more under {name} than falls do",
                _first(huber["push"][..., _BLOCKED]),
                _first(huber["push"][..., _FALLS]),
                method="paired",
            ),
        ]
    return Rendering(
        "This projection [onto the clipped functions] plays the role of deemphasizing errors of high-magnitude.",
        [],
        parts,
    )


def _with_a_clip(stacked: Mapping[str, Mapping[str, Floats]]) -> list[tuple[str, Mapping[str, Floats]]]:
    """QRC-Huber with each of its clips, by its label in sentences."""
    return [(report.label(name), stacked[name]) for name in CLIPS]


def _without_correction(
    stacked: Mapping[str, dict[str, Floats]],
    scores: Mapping[str, Floats],
    solved: Mapping[str, np.ndarray],
) -> Rendering:
    """Ours: the agents at the end of training against those without a correction and DQN."""
    huber, without = stacked["qrc_huber"], stacked[UNCORRECTED]
    return Rendering(
        "",
        [],
        [
            *(
                greater(
                    f"In the last quarter {report.label(name)}'s value of the start is higher than without the "
                    "correction (κ = 0)",
                    _last(stacked[name]["start_value"]),
                    _last(without["start_value"]),
                    # A rank test: single seeds' values may be off by hundreds.
                    method="rank",
                )
                for name in ("qrc", "qrc_huber")
            ),
            greater(
                "In the last quarter more of what QRC-Huber replays is blocked moves than without the correction",
                _last(huber["share"][..., _BLOCKED]),
                _last(without["share"][..., _BLOCKED]),
            ),
            greater("QRC-Huber's return is higher without its correction", scores[UNCORRECTED], scores["qrc_huber"]),
            fails_more(
                "Without the correction the greedy policy misses the goal in more seeds than DQN's",
                ~solved[UNCORRECTED],
                ~solved["dqn"],
            ),
        ],
    )


def _sentences(stacked: Mapping[str, dict[str, Floats]]) -> list[str]:
    huber = stacked["qrc_huber"]
    first = {name: np.nanmedian(_first(huber[name]), axis=0) for name in ("clipped", "ratio")}
    late = np.nanmedian(_last(huber["ratio"][..., _BLOCKED]))
    values = "; ".join(
        f"{report.label(name)}: {np.median(_last(of['start_value'])):.3g}" for name, of in stacked.items()
    )
    return [
        f"In the first quarter of the steps QRC-Huber's h is clipped in {first['clipped'][_FALLS]:.0%} of the replayed "
        f"falls, where its correction is {first['ratio'][_FALLS]:.2%} of the TD error; at blocked moves it is "
        f"{first['ratio'][_BLOCKED]:.0%}, and {late:.0%} in the last quarter (medians over seeds).",
        f"Median over seeds of the start's mean value in the last quarter: {values}. All rewards are negative.",
    ]
