"""All single transitions of a problem in one table, and trajectories as indices into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sb3_robust_be.linear.problems import Problem

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Transitions:
    """Every ``(s, a, s')`` of positive probability under the behaviour policy; ``T`` of them, ordered by ``s``.

    :param state: ``s``, ``(T,)``.
    :param next_state: ``s'``, ``(T,)``; ``N`` is the terminal state.
    :param probability: ``b(a|s) K(s'|s,a)``, ``(T,)``; sums to 1 over the transitions of a state.
    :param reward: ``(T,)``.
    :param discount: ``γ``, or 0 on termination, ``(T,)``.
    :param ratio: ``ρ = π/b``, ``(T,)``.
    :param x: Features of ``s``, ``(T, D)``.
    :param x_next: Features of ``s'``, zero on termination, ``(T, D)``.
    """

    state: NDArray[np.int64]
    next_state: NDArray[np.int64]
    probability: Floats
    reward: Floats
    discount: Floats
    ratio: Floats
    x: Floats
    x_next: Floats


def tabulate(K: Floats, R: Floats, gamma: float, pi: Floats, b: Floats, X: Floats) -> Transitions:
    """The table of transitions of an MDP; see :class:`~sb3_robust_be.linear.problems.Problem` for the arguments."""
    n = len(K)
    joint = b[:, :, None] * K
    s, a, t = np.nonzero(joint)
    padded = np.vstack([X, np.zeros(X.shape[1])])
    return Transitions(
        state=s,
        next_state=t,
        probability=joint[s, a, t],
        reward=R[s, a, t],
        discount=np.where(t == n, 0.0, gamma),
        ratio=pi[s, a] / b[s, a],
        x=X[s],
        x_next=padded[t],
    )


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
