"""Figures and tables that all control experiments have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.evaluation import (
    Interval,
    failed,
    lowest_for_failed,
    mean_interval,
    worst_decile_mean,
)
from sb3_robust_be.evaluation.means import MANY
from sb3_robust_be.experiments.control.contenders import RANDOM
from sb3_robust_be.experiments.control.preset import (
    ControlPreset,
    ControlResults,
    settings_of,
)
from sb3_robust_be.experiments.control.training import CURVE_POINTS
from sb3_robust_be.experiments.experiment import Analysis
from sb3_robust_be.experiments.rows import Rows
from sb3_robust_be.experiments.setting_text import setting_text

MEASURE = "episode return, last 25 % of steps"


def control_analysis(results: ControlResults) -> Analysis:
    """Distributions over seeds, learning curves, sensitivity to the step size, and a table.

    :param results: Of all runs.
    :return: Without verdicts.
    """
    rng = np.random.default_rng(0)
    preset = results.preset
    steps = {preset.domain(key).name: in_pairs(curve_steps(preset, key)) for key in preset.domains}
    curves = {name: {label: in_pairs(runs) for label, runs in own.items()} for name, own in results.curves.items()}
    learning = {
        name: {label: runs for label, runs in own.items() if label != RANDOM.label}
        for name, own in results.finals.items()
    }
    left_out = any(RANDOM.label in own for own in results.finals.values())
    plots = [
        report.distributions(
            "distributions",
            learning,
            measure=MEASURE,
            rng=rng,
            caption="Without the random agent, which is in the table: it would set the scale." if left_out else "",
        ),
        report.learning_curves("learning-curves", curves, steps, measure="episode return", rng=rng),
    ]
    sensitivities = over_step_sizes(results)
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
    return Analysis(plots=plots, tables=[returns_table(results)], notes=control_notes(results))


def control_notes(results: ControlResults) -> list[str]:
    """What a reader of the figures and tables has to know.

    :param results: Of all runs.
    """
    preset = results.preset
    return [
        *size_notes(preset),
        *missing_notes(results),
        *edge_notes(results),
        *unfinished_notes(results.named()),
        *([preset.note] if preset.note else []),
    ]


def missing_notes(results: ControlResults) -> list[str]:
    """Note which runs are still to be made, in a report of those that have ended.

    :param results: Of them.
    :return: A sentence for those that choose settings and one for those that are reported, or none where all are there.
    """
    preset = results.preset
    contenders = [(key, contender) for key in preset.domains for contender in preset.contenders_on(key)]
    choosing, left_out = [], []
    for key, contender in contenders:
        name = f"{report.label(contender.label)} ({preset.domain(key).name})"
        wanted = len(preset.reported_seeds(key))
        left = wanted - len(results.reported.get((key, contender.label), []))
        if (key, contender.label) not in results.settings:
            choosing.append(name)
        elif left:
            left_out.append(f"{left} of {wanted} of {name}")
    return [
        *([f"Left out, since their settings are still to be chosen: {', '.join(choosing)}."] if choosing else []),
        *([f"Still to be made, so that what is shown may change: {', '.join(left_out)}."] if left_out else []),
    ]


def edge_notes(results: ControlResults) -> list[str]:
    """Note which chosen step sizes are the smallest or the largest of those that there were to choose from.

    :param results: With the selection runs.
    :return: One sentence, or none where all lie inside: beyond the end there may be a better one.
    """
    found = []
    for (key, label), selection in results.selection.items():
        rate, rates = results.settings.get((key, label), {}).get("learning_rate"), selection.step_sizes
        if len(rates) > 1 and rate in (rates[0], rates[-1]):
            end = "the smallest" if rate == rates[0] else "the largest"
            where = f"{report.label(label)} on {results.preset.domain(key).name}"
            found.append(f"{where} ({setting_text({'learning_rate': rate})}, {end})")
    return [f"The best step size was at an end of those tried: {'; '.join(found)}."] if found else []


def unfinished_notes(runs: Iterable[tuple[str, str, Rows]]) -> list[str]:
    """Note which returns are bounds, since the unfinished last episode counts with its return so far.

    :param runs: Domain, label and rows of each contender.
    :return: One sentence, or none where there are no such runs.
    """
    counts = [(domain, label, sum(bool(row.get("unfinished")) for row in own), len(own)) for domain, label, own in runs]
    found = [f"{n} of {of} of {report.label(label)} ({domain})" for domain, label, n, of in counts if n]
    if not found:
        return []
    return [
        "Unfinished: runs that stopped in an episode longer than all that ended in the last quarter count it with its "
        "return so far, which is a bound (too low where rewards are positive, too high where they are negative): "
        f"{', '.join(found)}."
    ]


_FEW_RUNS = (
    f"Where there are fewer than {MANY} runs, Welch's intervals of differences and the bootstrap's of ratios of "
    "spreads can be too short: where a few of one algorithm's runs fail, and none of ten of the other's, a nominal "
    "95 % covers in as few as 80 and 70 % of simulated experiments."
)


def size_notes(preset: ControlPreset) -> list[str]:
    """
    :param preset: The experiment's size.
    :return: Steps and seeds by domain, how settings were chosen, and what counts for a run without a return.
    """
    by_domain = [
        f"{preset.domain(key).name} {preset.steps_of(key)} steps, {len(preset.reported_seeds(key))} seeds"
        for key in preset.domains
    ]
    chosen = any(len(settings_of(contender.grid)) > 1 for contender in preset.contenders)
    counts = sorted({len(preset.selecting_seeds(key)) for key in preset.domains} - {0}) if chosen else []
    return [
        *([f"Settings were chosen on {' or '.join(map(str, counts))} other seeds, from 10 000 on."] if counts else []),
        "Runs without a return (diverged or crashed) count as the lowest return of the domain in means and their "
        "tests.",
        f"Runs: {'; '.join(by_domain)}.",
        *([_FEW_RUNS] if min(len(preset.reported_seeds(key)) for key in preset.domains) < MANY else []),
    ]


def curve_steps(preset: ControlPreset, key: str) -> np.ndarray:
    """
    :param preset: The experiment's size.
    :param key: Of a domain.
    :return: The steps at which its learning curves have their points.
    """
    steps = preset.steps_of(key)
    points = min(CURVE_POINTS, steps)
    return (np.arange(points) + 0.5) * steps / points


def in_pairs(points: np.ndarray) -> np.ndarray:
    """Learning curves of half as many points, which is as fine as a panel of a figure shows.

    :param points: Shape (…, points), of which the last axis is averaged in pairs; not finite where there is no value.
    :return: Shape (…, points / 2), the one value of a pair where the other does not exist; ``points`` itself if their
        number is odd.
    """
    if points.shape[-1] % 2:
        return points
    first, second = points[..., ::2], points[..., 1::2]
    return np.where(np.isfinite(first), np.where(np.isfinite(second), (first + second) / 2.0, first), second)


def returns_table(results: ControlResults) -> report.Table:
    """One row per domain and contender. Cells of contenders without any return are empty.

    :param results: Of all runs.
    """
    preset, scores, area = results.preset, results.finals, results.areas
    rows: list[dict[str, Any]] = []
    in_order = sorted(results.reported.items(), key=lambda item: preset.domains.index(item[0][0]))
    for (key, label), own in in_order:
        name = preset.domain(key).name
        values = _imputed(scores[name], label)
        rows.append(
            {
                "domain": name,
                "algorithm": label,
                "mean": _mean(values),
                "median": None if values is None else float(np.median(values)),
                "worst decile": None if values is None else float(worst_decile_mean(values)),
                "AUC": _mean(_imputed(area[name], label)),
                **_lost(own),
                "unfinished": sum(bool(row.get("unfinished")) for row in own),
                "seeds": len(own),
                "setting": setting_text(results.settings[key, label]),
            }
        )
    caption = (
        "Episode return over the last 25 % of steps, each step counting with the return of its episode, at the chosen "
        "setting, on fresh seeds. AUC: the same over all steps."
    )
    return report.Table("returns", rows, caption=caption)


def _imputed(scores: dict[str, np.ndarray], label: str) -> np.ndarray | None:
    """With the lowest of the domain for lost runs; ``None`` if all of the contender's are."""
    return None if failed(scores[label]).all() else lowest_for_failed(scores)[label]


def _mean(values: np.ndarray | None) -> Interval | None:
    # Each from a generator of its own, so that a cell does not depend on which others there are.
    return None if values is None else mean_interval(values, rng=np.random.default_rng(0))


def _lost(rows: Rows) -> dict[str, int]:
    ended = [row for row in rows if "final" in row]
    healthy = [row for row in ended if row.get("diverged_at") is None]
    # Of version 0.1, which left unfinished episodes out; by now whoever has not diverged has a return.
    without = sum(not np.isfinite(row["final"]) for row in healthy)
    return {
        "diverged": len(ended) - len(healthy),
        "crashed": len(rows) - len(ended),
        **({"no return": without} if without else {}),
    }


def over_step_sizes(
    results: ControlResults, further: bool = True, fixed: bool = False
) -> dict[str, dict[str, dict[float, np.ndarray]]]:
    """Final returns of the selection seeds at each step size.

    :param results: Of the selection runs at least.
    :param further: Whether with the step sizes beyond the grid, which not all contenders have tried.
    :param fixed: Whether the other settings are those that were chosen; else they are at their best for each step size.
    :return: Shape (selection seeds,), by domain's name, contender's label and step size.
    """
    preset = results.preset
    found: dict[str, dict[str, dict[float, np.ndarray]]] = {}
    for key in preset.domains:
        for contender in preset.contenders_on(key):
            selection, grid = results.selection.get((key, contender.label)), contender.grid.get("learning_rate", ())
            if selection is None or not selection.step_sizes or len(grid) < 2:
                continue
            means, chosen = selection.scores, results.settings.get((key, contender.label), {})
            best: dict[float, int] = {}
            for i, setting in enumerate(selection.settings):
                rate = setting["learning_rate"]
                if fixed and setting != {**chosen, "learning_rate": rate}:
                    continue
                if (further or rate in grid) and (rate not in best or means[i] > means[best[rate]]):
                    best[rate] = i
            own = found.setdefault(preset.domain(key).name, {}).setdefault(contender.label, {})
            own |= {rate: selection.finals[i] for rate, i in sorted(best.items())}
    return found
