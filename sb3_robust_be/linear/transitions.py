"""All single transitions of a problem in one table, and trajectories as indices into it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
