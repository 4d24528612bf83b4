"""The paper's measure of a control run: the return per *step*, each episode's return counted once per step it lasted.

The paper reports "the average return achieved over the last 25 % of steps" of the ε-greedy behaviour (section 8.1) and
the area under the same curve (appendix "Additional results"). With episodes ``e = 1, 2, …`` of length ``l_e`` and
return ``G_e``, step ``t`` has the value ``G_e`` of the episode it belongs to::

    y_t = G_e   for   l_1 + … + l_{e−1} ≤ t < l_1 + … + l_e        t = 0 … total_steps − 1

The steps after the last of the given episodes have no value, NaN: means leave them out, and a mean over a window in
which no given episode has a step is NaN. The functions but the first two work on the episodes alone, so that a run of
millions of steps takes no array of that length.

A run mostly stops in the middle of an episode, of which the paper says nothing. Whether that one is among the episodes
that count is decided in one place, :func:`with_unfinished`, which says how and why.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sb3_robust_be.evaluation.sample_checks import Floats, check_count


class CountedEpisodes(NamedTuple):
    """The episodes that count in the measures of a run."""

    lengths: np.ndarray
    """In steps, in order"""
    returns: Floats
    """Undiscounted"""
    unfinished: bool
    """Whether the last of them had not ended and has its return so far"""


def with_unfinished(
    lengths: ArrayLike,
    returns: ArrayLike,
    total_steps: int,
    unfinished_length: int,
    unfinished_return: float,
    fraction: float = 0.25,
) -> CountedEpisodes:
    """The episodes that count: those that ended, and the unfinished one, with its return so far, if it is the longest.

    Paper: says nothing of the episode in which a run stops / Ours: it counts, with its return so far, if it is longer
    already than each episode that ended in the last ``fraction`` of the steps; also if none ended there. Else it is
    left out.

    Without the unfinished episode the best agent of a task that pays for every step and has no time limit, the one that
    lives to the end of training, would have the return of its short early episodes, or none. Its return so far is a
    bound: too low where rewards are positive, too high where they are negative. Where each step pays the same, a return
    so far that belongs to the longest episode of the window moves the window's mean towards what the finished episode
    would make of it, and never past it. That of a shorter one need not: counted always, with 90 of 500 possible steps,
    it would lower the mean of an agent that has just reached 500 five times. An episode that a time limit will cut off
    never outlasts one that it has cut off.

    :param lengths: Steps of each finished episode, in order, shape (episodes,).
    :param returns: Undiscounted return of each, shape (episodes,).
    :param total_steps: Steps of the run.
    :param unfinished_length: Steps of the episode in which the run stopped; 0 if it stopped at the end of one.
    :param unfinished_return: Its undiscounted return so far.
    :param fraction: Of the run, in (0, 1], of which the episodes are compared: that of :func:`final_performance`.
    :return: The episodes for the other functions here.
    :raises ValueError: As :func:`per_step_returns`, or a fraction outside (0, 1].
    """
    steps, values = _episodes(lengths, returns, total_steps)
    start = total_steps - _window(total_steps, fraction)
    if unfinished_length == 0:
        return CountedEpisodes(steps, values, False)
    # One more episode, with the same demands.
    all_steps, all_values = _episodes([*steps, unfinished_length], [*values, unfinished_return], total_steps)
    longest = steps[np.cumsum(steps) > start].max(initial=0)
    if unfinished_length > longest:
        return CountedEpisodes(all_steps, all_values, True)
    return CountedEpisodes(steps, values, False)


def per_step_returns(lengths: ArrayLike, returns: ArrayLike, total_steps: int) -> Floats:
    """``y_t``, shape (total_steps,), NaN for the unfinished tail.

    :param lengths: Steps of each episode, in order, shape (episodes,); monitor.csv's ``l``, or of
        :func:`with_unfinished`.
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
    """Mean of ``y_t`` in ``n_points`` equal bins of steps, shape (n_points,); NaN where a bin has no step of theirs.

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

    An episode that began before the window counts with its steps inside it. NaN if none of the episodes has a step in
    the window: :func:`with_unfinished` adds the one in which the run stopped.

    :param fraction: In (0, 1].
    :raises ValueError: As :func:`per_step_returns`, or a fraction outside (0, 1].
    """
    window = _window(total_steps, fraction)
    return float(_window_means(lengths, returns, total_steps, np.array([total_steps - window, total_steps]))[0])


def area_under_curve(lengths: ArrayLike, returns: ArrayLike, total_steps: int) -> float:
    """Mean of ``y_t`` over all steps: the area under the learning curve, per step; NaN without episodes.

    :raises ValueError: As :func:`per_step_returns`.
    """
    return final_performance(lengths, returns, total_steps, fraction=1.0)


def _window(total_steps: int, fraction: float) -> int:
    """Steps of the last ``fraction`` of a run, at least one."""
    check_count("total_steps", total_steps)
    if not 0.0 < fraction <= 1.0:
        raise ValueError(f"fraction is {fraction}; give a fraction of the run in (0, 1], such as 0.25.")
    return max(1, round(fraction * total_steps))


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
        raise ValueError(f"lengths has shape {given.shape} and returns {values.shape}; give one of each per episode.")
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
