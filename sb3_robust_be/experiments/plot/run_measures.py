"""Curves and final values of logged runs, by the episodes of their Monitor files or by an entry of SB3's log."""

from __future__ import annotations

import numpy as np

from sb3_robust_be.evaluation import binned_curve, final_performance
from sb3_robust_be.evaluation.sample_checks import Floats
from sb3_robust_be.experiments.control.training import CURVE_POINTS
from sb3_robust_be.experiments.logs import LoggedRun

EPISODES = "episode return"
"""The measure that needs Monitor files; every other one is the name of an entry of SB3's log"""
FRACTION = 0.25
"""Of a run, at its end, that its final value is about"""
WHEN = "last quarter of training"
"""That fraction in words"""


def has(run: LoggedRun, measure: str) -> bool:
    """
    :param run: Any.
    :param measure: :data:`EPISODES` or the name of an entry.
    :return: Whether its log has it.
    """
    return bool(run.episodes) if measure == EPISODES else measure in run.series


def steps_of(run: LoggedRun, measure: str) -> int:
    """
    :param run: Any that has the measure.
    :param measure: :data:`EPISODES` or the name of an entry.
    :return: Up to which step the log tells of it.
    """
    if measure == EPISODES:
        return sum(one.steps for one in run.episodes)
    return int(run.series[measure].steps[-1])


def points_at(steps: int) -> Floats:
    """
    :param steps: Of a figure.
    :return: The middles of the bins of :func:`curve_of`, in steps, shape (points,).
    """
    return (np.arange(CURVE_POINTS) + 0.5) * steps / CURVE_POINTS


def curve_of(run: LoggedRun, measure: str, steps: int) -> Floats:
    """The learning curve of a run, up to the step to which its log goes.

    :param run: Any that has the measure.
    :param measure: :data:`EPISODES`: the return of the episode that a step belongs to, averaged over the steps of a
        bin (:func:`~sb3_robust_be.evaluation.binned_curve`) and over the environments of the run. The name of an entry:
        its values, linear between two records.
    :param steps: Of the figure.
    :return: At :func:`points_at` of them, shape (points,); NaN where the log has nothing.
    """
    if measure != EPISODES:
        return run.series[measure].at(points_at(steps))
    own = max(1, round(steps / len(run.episodes)))
    n_bins = min(CURVE_POINTS, own)
    # A figure of fewer steps than points has a bin per step, and several points in each.
    bins = np.arange(CURVE_POINTS) * n_bins // CURVE_POINTS
    return _mean([binned_curve(*one.until(own), own, n_bins)[bins] for one in run.episodes])


def final_of(run: LoggedRun, measure: str, steps: int) -> float:
    """The mean of a run over the last quarter of the steps up to a certain one.

    :param run: Any that has the measure.
    :param measure: As of :func:`curve_of`. Of episodes it is :func:`~sb3_robust_be.evaluation.final_performance`.
    :param steps: At which the run is cut.
    :return: NaN where the log has nothing of that quarter.
    """
    if measure != EPISODES:
        return float(_mean(curve_of(run, measure, steps)[-round(FRACTION * CURVE_POINTS) :]))
    own = max(1, round(steps / len(run.episodes)))
    return float(_mean([final_performance(*one.until(own), own, FRACTION) for one in run.episodes]))


def _mean(values: list[Floats] | list[float] | Floats) -> Floats:
    """Over the first axis, of what is known; NaN where nothing is."""
    array = np.asarray(values, dtype=np.float64)
    known = np.isfinite(array)
    counts = known.sum(axis=0)
    sums = np.where(known, array, 0.0).sum(axis=0)
    return np.divide(sums, counts, out=np.full(np.shape(sums), np.nan), where=counts > 0)
