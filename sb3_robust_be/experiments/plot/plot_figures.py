"""The figures and the table of ``plot``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.evaluation import mean_interval, worst_decile_mean
from sb3_robust_be.experiments.logs import LoggedRun
from sb3_robust_be.experiments.plot.measured_runs import Measured, in_words, measured
from sb3_robust_be.experiments.plot.run_measures import EPISODES, points_at
from sb3_robust_be.report import Plot, Table

DIAGNOSTICS = {
    "clip fraction": "train/h_clip_fraction",
    "correction ratio": "train/correction_ratio",
    "h explained": "train/h_explained",
}
"""By what they are called in figures, the entries of SB3's log that only our algorithms have"""

ByEnvironment = Mapping[str, Measured]


def curves(name: str, panels: ByEnvironment, measure: str, caption: str = "") -> Plot:
    """
    :param name: Of its files.
    :param panels: Each with curves.
    :param measure: Of the vertical axes.
    :param caption: In front of how to read the figure.
    :return: Learning curves: every run as far as its log goes, means with intervals where all have a value.
    """
    return report.learning_curves(
        name,
        {title: panel.curves for title, panel in panels.items()},
        {title: points_at(panel.steps) for title, panel in panels.items()},
        measure=measure,
        rng=np.random.default_rng(0),
        show_runs=True,
        caption=caption,
    )


def distributions(panels: ByEnvironment, measure: str) -> Plot:
    """
    :param panels: Each with final values.
    :param measure: Of the runs.
    :return: Every seed as a dot, half-violins and distribution functions.
    """
    finals = {title: panel.finals for title, panel in panels.items()}
    return report.distributions("distributions", finals, measure=in_words(measure), rng=np.random.default_rng(0))


def diagnostics(runs: Mapping[str, Mapping[str, Sequence[LoggedRun]]], cut: int | None) -> Plot | None:
    """
    :param runs: By environment and label.
    :param cut: Steps after which nothing is drawn.
    :return: A panel for each diagnostic of each environment, with the labels that have it; ``None`` if none has any.
    """
    found = {
        f"{env}: {title}" if len(runs) > 1 else title: measured(own, entry, cut)
        for env, own in runs.items()
        for title, entry in DIAGNOSTICS.items()
    }
    found = {title: panel for title, panel in found.items() if panel.curves}
    if not found:
        return None
    caption = (
        "Clip fraction: share of the batch where h is clipped. Correction ratio: mean |γz| over mean |δ|, 0 is "
        "semi-gradient Q-learning. h explained: share of the TD error's variance that h knows, below 0 h does harm. "
        "A label without these entries in its log is not shown."
    )
    return curves("diagnostics", found, "share or ratio", caption)


def table(panels: ByEnvironment, measure: str) -> Table:
    """
    :param panels: Each with final values.
    :param measure: Of the runs.
    :return: A line per label, the highest mean of an environment first.
    """
    rows: list[dict[str, Any]] = []
    for env, panel in panels.items():
        means = {label: mean_interval(finals, rng=np.random.default_rng(0)) for label, finals in panel.finals.items()}
        rows += [
            {
                "environment": env,
                "label": label,
                "seeds": len(panel.finals[label]),
                "mean": means[label],
                "median": float(np.median(panel.finals[label])),
                "worst_decile": float(worst_decile_mean(panel.finals[label])),
                "until_step": panel.until,
            }
            for label in sorted(means, key=lambda label: -means[label].estimate)
        ]
    headers = {
        "label": "",
        **({"environment": "environment"} if len(panels) > 1 else {}),
        "seeds": "seeds",
        "mean": "mean [95 %]",
        "median": "median",
        "worst_decile": "worst 10 %",
    }
    words = in_words(measure)
    # The name of an entry stays as it is.
    return Table("table", rows, words.capitalize() if measure == EPISODES else words, headers)
