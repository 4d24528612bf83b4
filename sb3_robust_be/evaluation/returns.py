"""The paper's measure of a control run: the return per *step*, each episode's return counted once per step it lasted.

The paper reports "the average return achieved over the last 25 % of steps" of the ε-greedy behaviour (section 8.1) and
the area under the same curve (appendix "Additional results"). With episodes ``e = 1, 2, …`` of length ``l_e`` and
return ``G_e``, step ``t`` has the value ``G_e`` of the episode it belongs to::

    y_t = G_e   for   l_1 + … + l_{e−1} ≤ t < l_1 + … + l_e        t = 0 … total_steps − 1

The steps after the last finished episode have no value, NaN: means leave them out, and a mean over a window in which
no episode that ended has a step is NaN. The functions but the first work on the episodes alone, so that a run of
millions of steps takes no array of that length.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sb3_robust_be.evaluation.validation import Floats, check_count


def per_step_returns(lengths: ArrayLike, returns: ArrayLike, total_steps: int) -> Floats:
    """``y_t``, shape (total_steps,), NaN for the unfinished tail.

    :param lengths: Steps of each finished episode, in order, shape (episodes,); monitor.csv's ``l``.
    :param returns: Undiscounted return of each, shape (episodes,); monitor.csv's ``r``.
    :param total_steps: Steps of the run.
    :raises ValueError: Arrays that don't match, lengths that are not whole and positive, returns that are not finite,
        or episodes that last longer than the run.
    """
    steps, values = _episodes(lengths, returns, total_steps)
    curve = np.full(total_steps, np.nan)
    curve[: steps.sum()] = np.repeat(values, steps)
    return curve


def binned_curve(lengths: ArrayLike, returns: ArrayLike, total_steps: int, n_points: int) -> Floats:
    """Mean of ``y_t`` in ``n_points`` equal bins of steps, shape (n_points,); NaN where a bin has no finished step.

    Bin ``i`` holds the steps from ``round(i·total_steps/n_points)`` to the next edge: equal up to one step.

    :raises ValueError: As :func:`per_step_returns`, or more points than steps.
    """
    check_count("n_points", n_points)
    check_count("total_steps", total_steps)
    if n_points > total_steps:
        raise ValueError(f"n_points is {n_points} for {total_steps} steps; give at most one point per step.")
    edges = np.rint(np.linspace(0, total_steps, n_points + 1))
    return _window_means(lengths, returns, total_steps, edges)


def final_performance(lengths: ArrayLike, returns: ArrayLike, total_steps: int, fraction: float = 0.25) -> float:
    """Mean of ``y_t`` over the last ``round(fraction·total_steps)`` steps, at least one (paper, section 8.1).

    An episode that began before the window counts with its steps inside it. NaN if no episode that ended has a step
    in the window.

    :param fraction: In (0, 1].
    :raises ValueError: As :func:`per_step_returns`, or a fraction outside (0, 1].
    """
    check_count("total_steps", total_steps)
    if not 0.0 < fraction <= 1.0:
        raise ValueError(f"fraction is {fraction}; give a fraction of the run in (0, 1], such as 0.25.")
    window = max(1, round(fraction * total_steps))
    return float(_window_means(lengths, returns, total_steps, np.array([total_steps - window, total_steps]))[0])


def area_under_curve(lengths: ArrayLike, returns: ArrayLike, total_steps: int) -> float:
    """Mean of ``y_t`` over all steps: the area under the learning curve, per step; NaN if no episode ended.

    :raises ValueError: As :func:`per_step_returns`.
    """
    return final_performance(lengths, returns, total_steps, fraction=1.0)


def _window_means(lengths: ArrayLike, returns: ArrayLike, total_steps: int, edges: Floats) -> Floats:
    """Means between successive ``edges``, from the integral of the step function ``y``, linear within an episode."""
    steps, values = _episodes(lengths, returns, total_steps)
    if steps.size == 0:
        return np.full(len(edges) - 1, np.nan)
    # Integrating the deviation from the mean loses no digits to a large common level.
    level = values.mean()
    ends = np.concatenate(([0], np.cumsum(steps)))
    integral = np.concatenate(([0.0], np.cumsum((values - level) * steps)))
    finished = np.diff(np.minimum(edges, ends[-1]))
    area = np.diff(np.interp(edges, ends, integral))
    return level + np.divide(area, finished, out=np.full(len(finished), np.nan), where=finished > 0)


def _episodes(lengths: ArrayLike, returns: ArrayLike, total_steps: int) -> tuple[np.ndarray, Floats]:
    check_count("total_steps", total_steps)
    given, values = np.asarray(lengths, dtype=np.float64), np.asarray(returns, dtype=np.float64)
    if given.ndim != 1 or given.shape != values.shape:
        raise ValueError(
            f"lengths has shape {given.shape} and returns {values.shape}; give one of each per finished episode."
        )
    wrong = np.flatnonzero(~((given >= 1) & (given == np.rint(given))))
    if wrong.size:
        raise ValueError(f"lengths[{wrong[0]}] is {given[wrong[0]]:g}; give whole steps of at least 1.")
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        raise ValueError(f"returns[{wrong[0]}] is {values[wrong[0]]}; give finite returns, or mark the run as failed.")
    if given.sum() > total_steps:
        raise ValueError(
            f"the episodes last {given.sum():.0f} steps, more than total_steps, {total_steps}; give the steps of all "
            "of them as total_steps, or leave out the episodes that ended after it."
        )
    return given.astype(np.int64), values
