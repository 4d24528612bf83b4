"""Trajectories of the behaviour policy, as indices into a problem's transitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be.linear.problems import Problem


def sample_trajectories(problem: Problem, steps: int, seeds: Sequence[int]) -> NDArray[np.int32]:
    """Follow the behaviour policy, restarting from ``mu0`` after each termination.

    A seed's trajectory does not depend on the other seeds, and a shorter one is the beginning of a longer one.

    :return: Indices into :attr:`Problem.transitions`, ``(len(seeds), steps)``.
    """
    table = problem.transitions
    n = problem.n_states
    first = np.searchsorted(table.state, np.arange(n))
    count = np.bincount(table.state, minlength=n)
    # Row s holds the cumulative probabilities of s's transitions; the padding above 1 is never passed.
    cumulative = np.full((n, count.max()), 2.0)
    for s in range(n):
        cumulative[s, : count[s]] = np.cumsum(table.probability[first[s] : first[s] + count[s]])
        cumulative[s, count[s] - 1] = 2.0
    start_cumulative = np.cumsum(problem.mu0)
    start_cumulative[np.flatnonzero(problem.mu0)[-1] :] = 2.0

    generators = [np.random.default_rng(seed) for seed in seeds]
    taken = np.empty((steps, len(seeds)), dtype=np.int32)
    state = np.array([np.searchsorted(start_cumulative, g.random(), side="right") for g in generators], dtype=np.int64)
    for begin in range(0, steps, 1000):
        # Draws are blocked by 1000 steps whatever `steps` is, so that a shorter run is a prefix of a longer one.
        draws = np.stack([g.random((1000, 2)) for g in generators], axis=1)
        restarts = np.searchsorted(start_cumulative, draws[:, :, 1], side="right")
        for t in range(begin, min(begin + 1000, steps)):
            choice = (draws[t - begin, :, 0, None] >= cumulative[state]).sum(axis=1)
            taken[t] = first[state] + choice
            state = table.next_state[taken[t]]
            state = np.where(state == n, restarts[t - begin], state)
    return np.ascontiguousarray(taken.T)
