"""Performance profiles and the scaled returns of the paper's MinAtar table (section 8.3 and its appendix).

A probabilistic performance profile (Barreto et al., 2010; Jordan et al., 2020) puts returns of different games on one
scale: ``G_g(x)`` is the mean over algorithms of the fraction of that algorithm's runs below ``x`` on game ``g``, and
the score of a run is ``G_g`` at its return, in [0, 1]. Which runs are the algorithms', the reference pool, matters:
the paper's three averages have the mean 0.453, so its own pool was wider than these three.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sb3_robust_be.evaluation.bootstrap import Band, bootstrap_samples, mean_band
from sb3_robust_be.evaluation.intervals import Interval
from sb3_robust_be.evaluation.sample_checks import N_RESAMPLES, Floats, check_choice, check_level, sample, strata

#: Returns by algorithm and game, each of shape (runs,).
Runs = Mapping[str, Mapping[str, ArrayLike]]
TIES: tuple[str, ...] = ("mid-rank", "strict")


class PerformanceProfile:
    """``G_g`` of a reference pool.

    :param reference: Returns of the pool by algorithm and game; ``±inf`` is allowed, as for a run that diverged.
    :param ties: ``"mid-rank"``: a run of the pool that equals ``x`` counts half; the algorithms of the pool then
        average 0.5 exactly. ``"strict"``: it does not count, as "below" literally says.
    :raises ValueError: An empty pool, other games in one algorithm than in another, or NaN returns.
    """

    def __init__(self, reference: Runs, ties: str = "mid-rank") -> None:
        check_choice("ties", ties, TIES)
        self.ties = ties
        self._pools = {name: _sorted(games) for name, games in _checked("reference", reference).items()}

    @property
    def games(self) -> tuple[str, ...]:
        """Those of the pool."""
        return tuple(next(iter(self._pools.values())))

    def score(self, game: str, returns: ArrayLike) -> Floats:
        """``G_game`` of each return, any shape; NaN stays NaN.

        :raises ValueError: A game that the pool lacks.
        """
        if game not in self.games:
            raise ValueError(f"game is {game!r}; give one of {', '.join(self.games)}.")
        x = np.asarray(returns, dtype=np.float64)
        below = [self._fraction_below(pool[game], x) for pool in self._pools.values()]
        return np.where(np.isnan(x), np.nan, np.mean(below, axis=0))

    def _fraction_below(self, runs: Floats, x: Floats) -> Any:
        less = np.searchsorted(runs, x, side="left")
        if self.ties == "strict":
            return less / len(runs)
        return 0.5 * (less + np.searchsorted(runs, x, side="right")) / len(runs)


def scaled_returns(
    runs: Runs, *, reference: Runs | None = None, ties: str = "mid-rank"
) -> dict[str, dict[str, Floats]]:
    """Scores ``G_g(return)`` by algorithm and game, in the order of the runs.

    :param runs: Returns by algorithm and game; algorithms may have different numbers of runs.
    :param reference: The pool of :class:`PerformanceProfile`; ``None``: the runs themselves.
    """
    checked = _checked("runs", runs)
    profile = PerformanceProfile(runs if reference is None else reference, ties)
    return {
        name: {game: profile.score(game, returns) for game, returns in games.items()} for name, games in checked.items()
    }


def suite_mean(
    games: Mapping[str, ArrayLike], *, rng: np.random.Generator, level: float = 0.95, n_resamples: int = N_RESAMPLES
) -> Interval:
    """Mean over games of the mean over runs, with a BCa interval stratified by game: a row of the paper's Table 1.

    The scores count as given: how they would change with another reference pool is not part of the interval.

    :param games: Scores of one algorithm by game, each (runs,).
    """
    samples = list(strata("games", games).values())

    def mean_of_means(*resampled: Floats, axis: int) -> Any:
        return np.mean([runs.mean(axis=axis) for runs in resampled], axis=0)

    return bootstrap_samples(samples, mean_of_means, rng=rng, level=level, n_resamples=n_resamples)


def score_distribution(
    games: Mapping[str, ArrayLike],
    thresholds: ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    n_resamples: int = N_RESAMPLES,
) -> Band:
    """Fraction of runs that score above each threshold, averaged over games, with a stratified pointwise band.

    Agarwal et al.'s (2021) "score distribution": one algorithm dominates another where its curve lies above.

    :param games: Scores of one algorithm by game, each (runs,).
    :param thresholds: Shape (points,).
    """
    at = sample("thresholds", thresholds, infinite=True)
    checked = strata("games", games, infinite=True)
    above = {name: (scores[:, None] > at).astype(np.float64) for name, scores in checked.items()}
    return mean_band(above, rng=rng, level=level, n_resamples=n_resamples)


def ecdf_band(values: ArrayLike, at: ArrayLike, level: float = 0.95) -> Band:
    """Empirical distribution ``F_n(x)``, the fraction of runs ``≤ x``, with a band that holds at all x at once.

    Dvoretzky, Kiefer and Wolfowitz with Massart's (1990) constant: ``F_n ± √(ln(2/α)/(2n))``, cut to [0, 1].

    :param values: Shape (runs,); infinities allowed.
    :param at: Where, shape (points,).
    """
    check_level(level)
    runs, x = np.sort(sample("values", values, infinite=True)), sample("at", at, infinite=True)
    fraction = np.searchsorted(runs, x, side="right") / len(runs)
    width = dkw_width(len(runs), level)
    low, high = np.clip(fraction - width, 0.0, 1.0), np.clip(fraction + width, 0.0, 1.0)
    return Band(fraction, low, high, level, "Dvoretzky–Kiefer–Wolfowitz, simultaneous")


def dkw_width(runs: int, level: float) -> float:
    """``√(ln(2/α)/(2n))``: with probability ``1 − α`` no empirical distribution strays further from its own."""
    return float(np.sqrt(np.log(2.0 / (1.0 - level)) / (2.0 * runs)))


def to_rliable(runs: Runs) -> dict[str, Floats]:
    """Arrays (runs, games) by algorithm, the format of the rliable package; games in the first algorithm's order.

    Two algorithms' arrays of :func:`scaled_returns` are also the pairs that the paper's t-test of MinAtar compares.

    :raises ValueError: An algorithm with different numbers of runs per game, which the format cannot hold.
    """
    checked = _checked("runs", runs)
    order = list(next(iter(checked.values())))
    for name, games in checked.items():
        counts = {game: len(games[game]) for game in order}
        if len(set(counts.values())) > 1:
            raise ValueError(f"runs[{name!r}] has {counts} runs; give every game the same number of runs.")
    return {name: np.stack([games[game] for game in order], axis=1) for name, games in checked.items()}


def _checked(name: str, runs: Runs) -> dict[str, dict[str, Floats]]:
    """Every algorithm on the same games, with returns that can be ordered."""
    if not runs:
        raise ValueError(f"{name} names no algorithm; give at least one.")
    checked = {key: strata(f"{name}[{key!r}]", games, infinite=True) for key, games in runs.items()}
    first = next(iter(checked.values()))
    for key, games in checked.items():
        if games.keys() != first.keys():
            raise ValueError(f"{name}[{key!r}] has the games {sorted(games)}; give all algorithms {sorted(first)}.")
    return checked


def _sorted(games: Mapping[str, Floats]) -> dict[str, Floats]:
    return {game: np.sort(runs) for game, runs in games.items()}
