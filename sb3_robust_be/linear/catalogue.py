"""The paper's six prediction problems, by name (sections 3.3 and 6, appendix "Experimental Details")."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be.linear.features import baird_features, dependent_features, random_relu_features
from sb3_robust_be.linear.problems import Problem

_LEFT, _RIGHT = 0, 1


def _walk(n: int, left_reward: float, right_reward: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A walk on ``n`` states that ends on leaving it at either side, as ``(K, R)``."""
    K, R = np.zeros((n, 2, n + 1)), np.zeros((n, 2, n + 1))
    for s in range(n):
        K[s, _LEFT, s - 1 if s > 0 else n] = 1.0
        K[s, _RIGHT, s + 1] = 1.0
    R[0, _LEFT, n], R[n - 1, _RIGHT, n] = left_reward, right_reward
    return K, R


def _policy(n: int, p_left: float) -> NDArray[np.float64]:
    if not 0.0 <= p_left <= 1.0:
        raise ValueError(f"p_left is {p_left}; give a probability.")
    return np.tile([p_left, 1.0 - p_left], (n, 1))


def hard_alias_1() -> Problem:
    """Eight-state walk, right with probability 0.9, reward −1 per step; states 0, 2 and 7 look alike."""
    n = 8
    K, _ = _walk(n, 0.0, 0.0)
    K[0, _LEFT] = np.eye(n + 1)[0]
    X = np.zeros((n, 4))
    X[[0, 2, 7], 0] = 1.0
    X[[1, 3, 4, 5, 6], 1:] = dependent_features()
    return Problem.from_mdp(K, -np.ones_like(K), 0.99, _policy(n, 1.0 - 0.9), X, mu0=np.eye(n)[0], name="HardAlias-1")


def hard_alias_2(epsilon: float = 0.01, gamma: float = 0.99, start: str = "zero") -> Problem:
    """Two states seen as 1 and 2: 0 → 1 with reward 1, then 1 → 1 until it ends with probability ``epsilon``.

    Paper: ``epsilon`` is not published / Ours: 0.01.

    :param start: Initial weight ``"zero"``, which lies beside the optimum, or ``"one"``.
    """
    starts = {"zero": 0.0, "one": 1.0}
    if start not in starts:
        raise ValueError(f"start is {start!r}; give one of {sorted(starts)}.")
    return Problem.from_chain(
        [[0.0, 1.0], [0.0, 1.0 - epsilon]],
        [1.0, 0.0],
        gamma,
        [[1.0], [2.0]],
        mu0=[1.0, 0.0],
        theta0=[starts[start]],
        name="HardAlias-2",
    )


def outlier(p_left: float = 0.01, seed: int = 0) -> Problem:
    """An entry state that ends with −1000 once in a hundred times, before a 49-state walk with −1 and +1 at its ends.

    :param p_left: 0.01 as the paper's text reads; its "normally distributed returns" need 0.5.
    :param seed: Of the random features.
    """
    n = 50
    K, R = np.zeros((n, 2, n + 1)), np.zeros((n, 2, n + 1))
    walk_K, walk_R = _walk(n - 1, -1.0, 1.0)
    K[1:, :, 1:], R[1:, :, 1:] = walk_K, walk_R
    K[0, :, n], K[0, :, 1 + 24] = 0.01, 0.99
    R[0, :, n] = -1000.0
    X = random_relu_features(n, (10, 5), seed)
    return Problem.from_mdp(K, R, 0.99, _policy(n, p_left), X, mu0=np.eye(n)[0], name="Outlier")


def _chain(n: int, seed: int, name: str) -> Problem:
    K, R = _walk(n, -1.0, 1.0)
    X = random_relu_features(n, (4 * n, n, n // 2), seed)
    return Problem.from_mdp(K, R, 0.99, _policy(n, 0.9), X, b=_policy(n, 0.5), mu0=np.eye(n)[n // 2], name=name)


def small_chain(seed: int = 0) -> Problem:
    """Five-state walk off-policy: target left with 0.9, behaviour uniform, −1 and +1 at the ends.

    :param seed: Of the random features.
    """
    return _chain(5, seed, "SmallChain")


def big_chain(seed: int = 0) -> Problem:
    """As :func:`small_chain`, with 19 states.

    :param seed: Of the random features.
    """
    return _chain(19, seed, "BigChain")


def baird(start: str = "last") -> Problem:
    """Baird's star: seven states, the behaviour mostly spreads over the first six, the target stays in the last.

    :param start: Which initial weight is 10, the others being 1: ``"last"`` (1⁷,10), the own weight of the state that
        the target stays in, or ``"sixth"`` (1⁶,10,1). The comparison of robust and squared algorithms reverses
        between the two.
    """
    starts = {"last": 7, "sixth": 6}
    if start not in starts:
        raise ValueError(f"start is {start!r}; give one of {sorted(starts)}.")
    n, dashed, solid = 7, 0, 1
    K = np.zeros((n, 2, n + 1))
    K[:, dashed, :6] = 1.0 / 6.0
    K[:, solid, 6] = 1.0
    theta0 = np.ones(8)
    theta0[starts[start]] = 10.0
    return Problem.from_mdp(
        K,
        np.zeros_like(K),
        0.99,
        np.tile([0.0, 1.0], (n, 1)),
        baird_features(),
        b=np.tile([6.0 / 7.0, 1.0 / 7.0], (n, 1)),
        mu0=np.eye(n)[6],
        d=np.full(n, 1.0 / n),
        theta0=theta0,
        name="Baird",
        allow_dependent_features=True,
    )


PROBLEMS: dict[str, Callable[..., Problem]] = {
    "HardAlias-1": hard_alias_1,
    "HardAlias-2": hard_alias_2,
    "Outlier": outlier,
    "SmallChain": small_chain,
    "BigChain": big_chain,
    "Baird": baird,
}


def get(name: str, **options: Any) -> Problem:
    """One of the paper's problems by name, case-insensitively.

    :param name: A key of :data:`PROBLEMS`.
    :param options: Arguments of that problem's function, e.g. ``epsilon=0.05`` for HardAlias-2.
    :raises ValueError: If the name or an option is unknown.
    """
    by_lower = {known.lower(): build for known, build in PROBLEMS.items()}
    if name.lower() not in by_lower:
        raise ValueError(f"name is {name!r}; give one of {', '.join(PROBLEMS)}.")
    build = by_lower[name.lower()]
    accepted = list(inspect.signature(build).parameters)
    for option in options:
        if option not in accepted:
            raise ValueError(f"{option} is not an option of {name}; it has {', '.join(accepted) or 'none'}.")
    return build(**options)
