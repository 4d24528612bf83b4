"""Checks of what the statistics are given, each with an error that names the argument, its value and a remedy."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
#: Resamples of a bootstrap or permutation test where none are named.
N_RESAMPLES = 9_999


def sample(name: str, values: ArrayLike, *, infinite: bool = False) -> Floats:
    """``values`` as a float array ``(runs,)``: not empty, without NaN, and finite unless only their order matters."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}; give one value per run, shape (runs,).")
    if array.size == 0:
        raise ValueError(f"{name} is empty; give at least one run.")
    bad = np.flatnonzero(np.isnan(array) if infinite else ~np.isfinite(array))
    if bad.size:
        remedy = "an infinity for a run worse or better than all" if infinite else "finite values"
        raise ValueError(f"{name}[{bad[0]}] is {array[bad[0]]}; give {remedy}, or count such runs with failed().")
    return array


def quantities(values: ArrayLike) -> Floats:
    """``values`` as a float array ``(quantities, runs)``, finite and not empty."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape or not np.isfinite(array).all():
        raise ValueError(f"values has shape {array.shape}; give finite numbers of shape (quantities, runs).")
    return array


def run_curves(name: str, values: ArrayLike) -> Floats:
    """``values`` as a float array ``(runs, points)``: not empty, and finite or NaN where a run has no value."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name} has shape {array.shape}; give one curve per run, shape (runs, points).")
    if np.isinf(array).any():
        raise ValueError(f"{name} holds an infinity; give finite values, and NaN where a run has none.")
    return array


def paired(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    """Two arrays of one shape whose entries belong together, flattened."""
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(
            f"x has shape {first.shape} and y {second.shape}; give x and y in the same order of (domain, seed), as "
            "align_runs() does."
        )
    return sample("x", first.ravel()), sample("y", second.ravel())


def strata(name: str, values: ArrayLike | Mapping[str, ArrayLike], *, infinite: bool = False) -> dict[str, Floats]:
    """Samples by game; a single sample is the only game, with an empty name."""
    if not isinstance(values, Mapping):
        return {"": sample(name, values, infinite=infinite)}
    if not values:
        raise ValueError(f"{name} names no game; give at least one.")
    return {str(key): sample(f"{name}[{key!r}]", runs, infinite=infinite) for key, runs in values.items()}


def check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level}; give a confidence level between 0 and 1, such as 0.95.")


def check_count(name: str, count: int) -> None:
    if not isinstance(count, (int, np.integer)) or isinstance(count, bool) or count < 1:
        raise ValueError(f"{name} is {count!r}; give a whole number of at least 1.")


def check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} is {value!r}; give one of {', '.join(known)}.")


def check_generator(rng: np.random.Generator | None) -> np.random.Generator:
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng is {rng!r}; give a generator, such as numpy.random.default_rng(0).")
    return rng


def generator_argument(function: Callable[..., Any], rng: np.random.Generator) -> dict[str, np.random.Generator]:
    """``rng`` under the name that this scipy gives it: ``random_state`` before 1.15."""
    return {"rng" if "rng" in inspect.signature(function).parameters else "random_state": rng}
