"""Figures, tables and one self-contained HTML page per experiment.

>>> import numpy as np
>>> from sb3_robust_be import report
>>> rng = np.random.default_rng(0)
>>> scores = {"Cart-pole": {"dqn": rng.normal(300, 90, 30), "qrc_huber": rng.normal(430, 20, 30)}}
>>> plot = report.distributions("final", scores, measure="return, last 25 %", rng=rng)
>>> page = report.write(report.Report("Control", "control", plots=[plot]), "reports")    # doctest: +SKIP

Every figure takes ``{panel: {algorithm: values}}`` and gives a :class:`Plot`, which holds the numbers behind it. An
algorithm has one colour, marker and label everywhere, by its name in commands (:func:`looks`).

Figures need matplotlib (extra ``report``), which loads on first use, is never asked for a window and keeps its global
state; tables and pages need nothing.
"""

from __future__ import annotations

from sb3_robust_be.report.bars import bars
from sb3_robust_be.report.curves import lines, profiles
from sb3_robust_be.report.distributions import distributions
from sb3_robust_be.report.environment import hardware, versions
from sb3_robust_be.report.grid import grid_map
from sb3_robust_be.report.html import Report, write, write_index
from sb3_robust_be.report.learning import learning_curves
from sb3_robust_be.report.markdown import markdown
from sb3_robust_be.report.plot import Plot
from sb3_robust_be.report.sensitivity import sensitivity
from sb3_robust_be.report.style import Look, label, looks
from sb3_robust_be.report.tables import Table, above_in, aligned, verdict_table, verdicts_beside

__all__ = [
    "Look",
    "Plot",
    "Report",
    "Table",
    "above_in",
    "aligned",
    "bars",
    "distributions",
    "grid_map",
    "hardware",
    "label",
    "learning_curves",
    "lines",
    "looks",
    "markdown",
    "profiles",
    "sensitivity",
    "verdict_table",
    "verdicts_beside",
    "versions",
    "write",
    "write_index",
]
