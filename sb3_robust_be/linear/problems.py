"""Finite Markov decision processes with linear features, as exact data.

Everything is evaluated exactly, so the state count is meant to be small (dense ``(N, A, N + 1)`` tensors).
Notation of the paper's section 2: ``P_γ = γ P``, ``A = X − P_γ X``, Bellman error ``δ(θ) = r − A θ``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_robust_be.linear.array_checks import PROBABILITY_TOLERANCE, check_column_rank, check_distribution, finite
from sb3_robust_be.linear.transitions import Transitions, tabulate

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
    """One prediction problem: an MDP, a target and a behaviour policy, a state weighting and features.

    Arrays are copied, checked and made read-only. The last next-state column is the terminal state, whose features
    and value are zero. :meth:`from_mdp` fills in defaults; call the constructor itself with every field.

    :param name: For tables and messages.
    :param K: Transition probabilities ``K[s, a, s']``, shape ``(N, A, N + 1)``; each ``K[s, a]`` sums to 1.
    :param R: Rewards ``R[s, a, s']``, shape of ``K``.
    :param gamma: Discount in ``[0, 1]``.
    :param pi: Target policy ``(N, A)``.
    :param b: Behaviour policy ``(N, A)``, positive wherever ``pi`` is: the ratio ``π/b`` must be finite.
    :param mu0: Start-state distribution ``(N,)``.
    :param d: State weighting ``(N,)``, sums to 1.
    :param X: Features ``(N, D)``.
    :param theta0: Initial weights ``(D,)``.
    """

    name: str
    K: Floats
    R: Floats
    gamma: float
    pi: Floats
    b: Floats
    mu0: Floats
    d: Floats
    X: Floats
    theta0: Floats

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name not in ("name", "gamma"):
                array = finite(field.name, getattr(self, field.name))
                array.setflags(write=False)
                object.__setattr__(self, field.name, array)
        self._check_shapes()
        if not 0.0 <= self.gamma <= 1.0:
            raise ValueError(f"gamma is {self.gamma}; give a discount between 0 and 1.")
        for name in ("K", "pi", "b", "d", "mu0"):
            check_distribution(name, getattr(self, name))
        unsupported = np.argwhere((self.pi > 0) & (self.b == 0))
        if len(unsupported):
            s, a = unsupported[0]
            raise ValueError(
                f"b[{s}, {a}] is 0 but pi[{s}, {a}] is {self.pi[s, a]:g}, so the importance ratio is infinite; "
                "give the behaviour policy a positive probability wherever the target policy has one."
            )
        if np.linalg.cond(np.eye(self.n_states) - self.gamma * self.P) > 1e14:
            raise ValueError(
                f"gamma is {self.gamma} and the target policy never reaches the terminal state from some state, "
                "so its value is infinite; give gamma below 1 or a terminating policy."
            )

    def _check_shapes(self) -> None:
        if self.K.ndim != 3 or self.K.shape[2] != self.K.shape[0] + 1:
            raise ValueError(f"K has shape {self.K.shape}; give (N, A, N + 1), the last column for the terminal state.")
        n, actions = self.K.shape[:2]
        if self.X.ndim != 2 or self.X.shape[0] != n:
            raise ValueError(f"X has shape {self.X.shape}; give one row of features for each of the {n} states.")
        expected = {"R": self.K.shape, "pi": (n, actions), "b": (n, actions), "d": (n,), "mu0": (n,)}
        expected["theta0"] = (self.X.shape[1],)
        for name, shape in expected.items():
            actual = getattr(self, name).shape
            if actual != shape:
                raise ValueError(f"{name} has shape {actual}; give {shape} to fit K and X.")

    @classmethod
    def from_mdp(
        cls,
        K: ArrayLike,
        R: ArrayLike,
        gamma: float,
        pi: ArrayLike,
        X: ArrayLike | None = None,
        *,
        b: ArrayLike | None = None,
        mu0: ArrayLike | None = None,
        d: ArrayLike | None = None,
        theta0: ArrayLike | None = None,
        name: str = "custom",
        allow_dependent_features: bool = False,
    ) -> Problem:
        """A problem from a user's own MDP.

        :param X: Default: one indicator feature per state.
        :param b: Default: ``pi`` (on-policy).
        :param mu0: Default: ``d`` if given, else uniform.
        :param d: Default: the long-run visitation of the behaviour policy with restarts, :func:`visitation`.
        :param theta0: Default: zeros.
        :param allow_dependent_features: Accept ``X`` without full column rank; minimisers are then not unique.
        :raises ValueError: With the argument, the value and the remedy.
        """
        K = finite("K", K)
        if K.ndim != 3:
            raise ValueError(f"K has shape {K.shape}; give (N, A, N + 1).")
        n = K.shape[0]
        features = np.eye(n) if X is None else finite("X", X)
        target = finite("pi", pi)
        behaviour = target if b is None else finite("b", b)
        if mu0 is None:
            mu0 = np.full(n, 1.0 / n) if d is None else d
        start = finite("mu0", mu0)
        if d is None:
            for argument, given, shape in (
                ("pi", target, K.shape[:2]),
                ("b", behaviour, K.shape[:2]),
                ("mu0", start, (n,)),
            ):
                if given.shape != shape:
                    raise ValueError(f"{argument} has shape {given.shape}; give {shape}.")
                check_distribution(argument, given)
            check_distribution("K", K)
            d = visitation(np.einsum("sa,sat->st", behaviour, K[:, :, :n]), start)
        if features.ndim == 2 and not allow_dependent_features:
            check_column_rank(features)
        return cls(
            name=name,
            K=K,
            R=finite("R", R),
            gamma=float(gamma),
            pi=target,
            b=behaviour,
            mu0=start,
            d=finite("d", d),
            X=features,
            theta0=np.zeros(features.shape[-1]) if theta0 is None else finite("theta0", theta0),
        )

    @classmethod
    def from_chain(
        cls,
        P: ArrayLike,
        r: ArrayLike,
        gamma: float,
        X: ArrayLike | None = None,
        d: ArrayLike | None = None,
        **options: Any,
    ) -> Problem:
        """A problem from a bare Markov reward process: one action, rewards known in expectation only.

        :param P: Transitions ``(N, N)``; what a row lacks of 1 ends the episode.
        :param r: Expected reward of each state ``(N,)``.
        :param options: Further arguments of :meth:`from_mdp`.
        """
        P = np.array(P, dtype=np.float64)
        r = np.array(r, dtype=np.float64)
        if P.ndim != 2 or P.shape[0] != P.shape[1]:
            raise ValueError(f"P has shape {P.shape}; give a square matrix.")
        if r.shape != (len(P),):
            raise ValueError(f"r has shape {r.shape}; give one expected reward for each of the {len(P)} states.")
        ending = 1.0 - P.sum(axis=1)
        if ending.min() < -PROBABILITY_TOLERANCE:
            s = int(ending.argmin())
            raise ValueError(f"P[{s}] sums to {P[s].sum():.10g}; give rows that sum to at most 1.")
        # A tiny remainder is rounding of a row meant to sum to 1, not a way to end.
        ending[ending < 1e-12] = 0.0
        K = np.concatenate([P, ending[:, None]], axis=1)[:, None, :]
        K /= K.sum(axis=2, keepdims=True)
        R = np.broadcast_to(r[:, None, None], K.shape)
        return cls.from_mdp(K, R, gamma, np.ones((len(P), 1)), X, d=d, **options)

    @classmethod
    def from_toy_text(
        cls, env: Any, gamma: float = 0.99, pi: ArrayLike | None = None, X: ArrayLike | None = None, **options: Any
    ) -> Problem:
        """A problem from a gymnasium toy-text environment's transition table ``env.unwrapped.P``.

        Rewards that differ among outcomes with the same ``(s, a, s')`` are replaced by their mean.

        :param pi: Target policy ``(N, A)``; default: uniform.
        :param X: Default: one indicator feature per state.
        :param options: Further arguments of :meth:`from_mdp`.
        """
        inner = getattr(env, "unwrapped", env)
        table = getattr(inner, "P", None)
        if not isinstance(table, dict):
            raise ValueError(f"env is {env}, which has no transition table P; give a toy-text environment.")
        n, actions = len(table), len(table[0])
        K, R = np.zeros((n, actions, n + 1)), np.zeros((n, actions, n + 1))
        for s, row in table.items():
            for a, outcomes in row.items():
                for probability, next_state, reward, terminated in outcomes:
                    target = n if terminated else next_state
                    K[s, a, target] += probability
                    R[s, a, target] += probability * reward
        np.divide(R, K, out=R, where=K > 0)
        policy = np.full((n, actions), 1.0 / actions) if pi is None else pi
        options.setdefault("mu0", inner.initial_state_distrib)
        options.setdefault("name", type(inner).__name__)
        return cls.from_mdp(K, R, gamma, policy, X, **options)

    @property
    def n_states(self) -> int:
        return self.K.shape[0]

    @property
    def n_features(self) -> int:
        return self.X.shape[1]

    @cached_property
    def P(self) -> Floats:  # noqa: N802
        """State transitions under the target policy ``(N, N)``; rows sum to less than 1 where episodes can end."""
        return np.einsum("sa,sat->st", self.pi, self.K[:, :, : self.n_states])

    @cached_property
    def r(self) -> Floats:
        """Expected reward under the target policy ``(N,)``."""
        return np.einsum("sa,sat,sat->s", self.pi, self.K, self.R)

    @cached_property
    def v_pi(self) -> Floats:
        """True values ``(I − P_γ)⁻¹ r``, ``(N,)``."""
        return np.asarray(np.linalg.solve(np.eye(self.n_states) - self.gamma * self.P, self.r), dtype=np.float64)

    @cached_property
    def A(self) -> Floats:  # noqa: N802
        """``X − P_γ X``, ``(N, D)``: the Bellman error is ``δ(θ) = r − A θ``."""
        return self.X - self.gamma * self.P @ self.X

    @cached_property
    def transitions(self) -> Transitions:
        """Every transition the behaviour policy can make."""
        return tabulate(self.K, self.R, self.gamma, self.pi, self.b, self.X)

    def bellman_error(self, theta: ArrayLike) -> Floats:
        """``δ(θ) = r − A θ`` of every state; ``theta`` of shape ``(..., D)`` gives ``(..., N)``."""
        return self.r - np.asarray(theta, dtype=np.float64) @ self.A.T

    def value_error(self, theta: ArrayLike) -> Floats:
        """``v_π − X θ`` of every state; ``theta`` of shape ``(..., D)`` gives ``(..., N)``."""
        return self.v_pi - np.asarray(theta, dtype=np.float64) @ self.X.T


def visitation(P_b: Floats, mu0: Floats) -> Floats:
    """Long-run state frequencies of a chain that restarts from ``mu0`` whenever it ends.

    ``m/Σm`` with ``m = (I − P_bᵀ)⁻¹ μ₀``, the expected visits per episode; the stationary law of a chain that never
    ends. States that are left for ever have exactly zero.

    :raises ValueError: If the chain never ends and has more than one stationary law.
    """
    from scipy.sparse.csgraph import connected_components

    ending = 1.0 - P_b.sum(axis=1)
    ending[ending < 1e-12] = 0.0  # rounding of a row that sums to 1
    restarting = P_b + np.outer(ending, mu0)
    classes, of_state = connected_components(restarting > 0.0, connection="strong")
    before, after = (of_state[states] for states in np.nonzero(restarting))
    closed = np.setdiff1d(np.arange(classes), before[before != after])
    if len(closed) > 1:
        raise ValueError("d is not given and the behaviour policy has several stationary laws; give d.")
    d = np.zeros(len(P_b))
    kept = np.flatnonzero(of_state == closed[0])
    d[kept] = _stationary(restarting[np.ix_(kept, kept)])
    return d


def _stationary(P: Floats) -> Floats:
    """The stationary law of an irreducible chain, each probability to full relative precision, however small.

    Elimination without subtractions: states are removed one by one, what enters one going on to where it leads.
    Source: Grassmann, Taksar & Heyman (1985).
    """
    P = P.copy()
    for k in range(len(P) - 1, 0, -1):
        P[:k, k] /= P[k, :k].sum()
        P[:k, :k] += np.outer(P[:k, k], P[k, :k])
    weight = np.ones(len(P))
    for k in range(1, len(P)):
        weight[k] = weight[:k] @ P[:k, k]
    return weight / weight.sum()
