"""Figures and tables that all control experiments have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.evaluation import bootstrap_interval, failed, worst_decile_mean
from sb3_robust_be.experiments.control import CURVE_POINTS, lowest_for_failed
from sb3_robust_be.experiments.control_grid import ControlPreset, cells, curves, finals, selection_scores
from sb3_robust_be.experiments.experiment import Analysis, Results
from sb3_robust_be.experiments.grids import settings_of

MEASURE = "return per step, last 25 % of steps"


def control_analysis(preset: ControlPreset, results: Results) -> Analysis:
    """Distributions over seeds, learning curves, sensitivity to the step size, and a table.

    :param preset: The experiment's size.
    :param results: All of whose runs have ended.
    :return: Without verdicts.
    """
    rng = np.random.default_rng(0)
    scores = finals(preset, results)
    steps = {preset.domain(key).name: _points(preset.steps_of(key)) for key in preset.domains}
    plots = [
        report.distributions("distributions", scores, measure=MEASURE, rng=rng),
        report.learning_curves("learning-curves", curves(preset, results), steps, measure="return per step", rng=rng),
    ]
    sensitivities = _sensitivities(preset, results)
    if sensitivities:
        plots.append(
            report.sensitivity(
                "sensitivity",
                sensitivities,
                parameter="learning_rate",
                measure=MEASURE,
                rng=rng,
                caption="Selection seeds; other settings at their best for each step size.",
            )
        )
    notes = [
        f"Settings were chosen on {preset.selection_seeds} seeds from 10 000 on; what is reported are other seeds, "
        "from 0 on. Runs that diverged count as the lowest return of the domain in means and tests.",
        f"Runs have {preset.steps:g} of the paper's steps, and there are {preset.seeds} seeds.",
        *([preset.note] if preset.note else []),
    ]
    return Analysis(plots=plots, tables=[_table(preset, results, scores, rng)], notes=notes)


def _points(steps: int) -> np.ndarray:
    points = min(CURVE_POINTS, steps)
    return (np.arange(points) + 0.5) * steps / points


def _table(
    preset: ControlPreset, results: Results, scores: dict[str, dict[str, np.ndarray]], rng: np.random.Generator
) -> Any:
    rows = []
    in_order = sorted(cells(preset, results).items(), key=lambda item: preset.domains.index(item[0][0]))
    for (key, label), cell in in_order:
        name = preset.domain(key).name
        values = lowest_for_failed(scores[name])[label]
        rows.append(
            {
                "domain": name,
                "algorithm": label,
                "mean": bootstrap_interval(values, np.mean, rng=rng),
                "median": float(np.median(values)),
                "worst decile": float(worst_decile_mean(values)),
                "diverged": int(failed(scores[name][label]).sum()),
                "seeds": len(values),
                "setting": ", ".join(f"{name}={_short(x)}" for name, x in cell.setting.items()),
            }
        )
    return report.Table("returns", rows, caption=f"{MEASURE}, at the chosen setting, on fresh seeds.")


def _short(value: Any) -> str:
    if isinstance(value, float) and value > 0 and np.log2(value).is_integer() and value < 0.1:
        return f"2^{int(np.log2(value))}"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _sensitivities(preset: ControlPreset, results: Results) -> dict[str, dict[str, dict[float, np.ndarray]]]:
    """By domain, label and step size: the best over the other settings on the selection seeds."""
    found: dict[str, dict[str, dict[float, np.ndarray]]] = {}
    for key in preset.domains:
        for contender in preset.contenders:
            settings = settings_of(dict(contender.grid))
            if len(contender.grid.get("learning_rate", ())) < 2:
                continue
            means = selection_scores(preset, key, contender, results)
            specs = list(preset.selection_specs(key, contender).values())
            best: dict[float, int] = {}
            for i, setting in enumerate(settings):
                rate = setting["learning_rate"]
                if rate not in best or means[i] > means[best[rate]]:
                    best[rate] = i
            own = found.setdefault(preset.domain(key).name, {}).setdefault(contender.label, {})
            for rate, i in best.items():
                own[rate] = np.array([np.nan if r is None else r["final"] for r in results.of(specs[i])])
    return found
