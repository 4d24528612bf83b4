"""Figures and tables of the prediction experiment."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.evaluation import Interval, mean_intervals
from sb3_robust_be.experiments.linear.prediction_claims import Panel

FAMILIES: dict[str, dict[str, str]] = {
    "gtd2": {"mspbe": "gtd2", "mhpbe": "gtd2-huber", "mapbe": "gtd2-l1"},
    "tdc": {"mspbe": "tdc", "mhpbe": "tdc-huber", "mapbe": "tdc-l1"},
    "others": {"tdc": "tdc", "td": "td", "tdrc": "tdrc", "qlc": "qlc"},
}
"""By figure: the algorithm of each series; one of the objective's name has its colour in every figure"""
TITLES = {
    "gtd2": "GTD2 for the MSPBE, GTD2-Huber for the MHPBE, GTD2-ℓ1 for the MAPBE",
    "tdc": "TDC for the MSPBE, TDC-Huber for the MHPBE, TDC-ℓ1 for the MAPBE",
    "others": "TDC, TD, TDRC and QLC (ours)",
}
MEASURES = {
    "msve_auc": "MSVE, mean over the run",
    "msve_late": "MSVE, last 25 % of steps",
    "mave_auc": "MAVE, mean over the run",
    "mave_late": "MAVE, last 25 % of steps",
}
OFF_SCALE = 10.0
"""Errors beyond so many times that before learning are off the scale of a figure"""


def sensitivity_plots(
    measure: str, panels: Mapping[str, Panel], before: Mapping[str, float], cases: Collection[str]
) -> list[report.Plot]:
    """Errors over α at the best η of each, one figure per family.

    :param measure: Of :data:`MEASURES`.
    :param panels: By case.
    :param before: The metric before learning, by case.
    :param cases: Which to show.
    """
    plots = []
    for family, series in FAMILIES.items():
        shown = {
            case: {name: panel[of] for name, of in series.items()}
            for case, panel in panels.items()
            if case in cases and all(of in panel for of in series.values())
        }
        if not shown:
            continue
        plots.append(
            report.sensitivity(
                f"{measure.replace('_', '-')}-{family}",
                {
                    case: {name: dict(zip(one.alphas, one.errors, strict=True)) for name, one in own.items()}
                    for case, own in shown.items()
                },
                parameter="step size α",
                measure=MEASURES[measure],
                rng=np.random.default_rng(0),
                same_runs=True,
                caption=f"{TITLES[family]}, η at its best for each α on selection seeds.",
                higher_is_better=False,
                log=True,
                worst={case: OFF_SCALE * before[case] for case in shown},
                chosen={
                    case: {name: one.alphas[one.chosen] for name, one in own.items()} for case, own in shown.items()
                },
            )
        )
    return plots


def table(measure: str, panels: Mapping[str, Panel], before: Mapping[str, float]) -> report.Table:
    """Errors and widths at the step sizes chosen.

    :param measure: Of :data:`MEASURES`.
    :param panels: By case.
    :param before: The metric before learning, by case.
    """
    rows = []
    shown = [(case, algorithm, one) for case, panel in panels.items() for algorithm, one in panel.items()]
    # A diverged run has no mean; its row says ∞ in place of the one of zeros.
    errors = _means([np.where(np.isfinite(one.best).all(), one.best, 0.0) for *_, one in shown])
    widths = _means([one.width for *_, one in shown])
    for (case, algorithm, one), error, width in zip(shown, errors, widths, strict=True):
        row: dict[str, Any] = {"problem": case, "algorithm": report.label(algorithm)}
        diverged = int((~np.isfinite(one.best)).sum())
        row["error"] = math.inf if diverged else error
        row["error ÷ before"] = math.inf if diverged else float(one.best.mean() / before[case])
        row["width"] = width
        row |= {"α": _power(one.alphas[one.chosen]), "η": _power(one.eta)}
        row |= {"diverged": diverged, "seeds": len(one.best)}
        rows.append(row)
    caption = (
        f"{MEASURES[measure]}, at the step sizes chosen, on fresh seeds; ∞ where one diverged. Width: how many α have "
        "at most twice the mean of those that did not."
    )
    return report.Table(measure.replace("_", "-"), rows, caption=caption)


def _means(samples: Sequence[np.ndarray]) -> list[Interval]:
    """Of samples (runs,), those of one size by the same resamples: hundreds of bootstraps at once."""
    found: dict[int, Interval] = {}
    for size in {len(own) for own in samples}:
        places = [i for i, own in enumerate(samples) if len(own) == size]
        together = mean_intervals(np.stack([samples[i] for i in places]), rng=np.random.default_rng(0))
        found |= zip(places, together, strict=True)
    return [found[i] for i in range(len(samples))]


def _power(value: float) -> str:
    exponent = np.log2(value)
    return f"2^{int(exponent)}" if exponent.is_integer() else f"{value:g}"
