"""Prediction problems as the linear experiments name and store them: a few words of JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be.linear import Problem, get

INITIALISATIONS: tuple[str, ...] = ("he", "uniform")

# Hidden layers of the frozen networks whose initialisation can be chosen (paper, appendix "Environments").
_OUTLIER_LAYERS = (10, 5)
_MAX_DRAWS = 100_000


@dataclass(frozen=True)
class Case:
    """A problem with its options, under the name that figures and tables give it."""

    label: str
    problem: str
    """A key of :data:`~sb3_robust_be.linear.PROBLEMS`"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of :func:`~sb3_robust_be.linear.get`"""
    initialisation: str = "he"
    """Of the frozen network: ``"he"``, or ``"uniform"`` (Outlier only), see :func:`uniform_relu_features`"""

    @property
    def random_features(self) -> bool:
        """Whether a seed decides the features."""
        return self.problem in ("Outlier", "SmallChain", "BigChain")

    def draw(self, seed: int) -> Case:
        """The same problem with the features of a seed, where they are random."""
        options = {**self.options, "seed": seed} if self.random_features else self.options
        return dataclasses.replace(self, options=options)

    def as_json(self) -> dict[str, Any]:
        """What :func:`build` takes."""
        return {"problem": self.problem, "options": dict(self.options), "initialisation": self.initialisation}


def build(problem: str, options: Mapping[str, Any], initialisation: str = "he") -> Problem:
    """The problem of a :meth:`Case.as_json`.

    :raises ValueError: For an unknown problem, option or initialisation.
    """
    if initialisation not in INITIALISATIONS:
        raise ValueError(f"initialisation is {initialisation!r}; give one of {', '.join(INITIALISATIONS)}.")
    made = get(problem, **options)
    if initialisation == "he":
        return made
    if made.name != "Outlier":
        raise ValueError(f"initialisation is 'uniform' for {problem}; only Outlier has it: leave it out.")
    X = uniform_relu_features(made.n_states, _OUTLIER_LAYERS, options.get("seed", 0))
    return dataclasses.replace(made, X=X)


def uniform_relu_features(n_states: int, hidden: Sequence[int], seed: int) -> NDArray[np.float64]:
    """Last layer of a frozen ReLU network on one-hot states, weights and biases uniform in ``±1/√fan_in``, redrawn
    until it has full column rank, ``(n_states, hidden[-1])``.

    The default initialisation of torch's linear layers, and so perhaps the paper's, which gives none.

    :raises ValueError: If no draw of 100 000 has full column rank.
    """
    rng = np.random.default_rng(seed)
    for _ in range(_MAX_DRAWS):
        out = np.eye(n_states)
        for width in hidden:
            bound = 1.0 / np.sqrt(out.shape[1])
            weights = rng.uniform(-bound, bound, size=(out.shape[1], width))
            out = np.maximum(out @ weights + rng.uniform(-bound, bound, size=width), 0.0)
        if np.linalg.matrix_rank(out) == hidden[-1]:
            return out
    raise ValueError(f"hidden is {tuple(hidden)}: none of {_MAX_DRAWS} draws has full column rank; widen the layers.")
