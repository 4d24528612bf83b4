"""One number for many environments: the average of returns that are put on one scale by their ranks.

"CDF normalisation" of the Cross-environment Hyperparameter Setting benchmark (Patterson et al., arXiv 2407.18840): a
return counts as the share of all contenders' runs on that environment that are worse. No environment has to be given a
lowest and a highest return, and none outweighs the others by its units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sb3_robust_be.evaluation.attainable import attainable_p_within
from sb3_robust_be.evaluation.bootstrap import percentile_interval
from sb3_robust_be.evaluation.comparisons import Comparison
from sb3_robust_be.evaluation.intervals import Interval
from sb3_robust_be.evaluation.profiles import Runs, scaled_returns
from sb3_robust_be.evaluation.sample_checks import (
    N_RESAMPLES,
    Floats,
    check_choice,
    check_count,
    check_generator,
    check_level,
    strata,
)
from sb3_robust_be.evaluation.verdicts import Verdict, decide

_METHOD = "percentile bootstrap, stratified"


@dataclass(frozen=True, eq=False)
class NormalisedAverages:
    """Every contender's average over environments, and what resamples of all runs make of it.

    :param scores: Every contender's on each environment in turn, shape (environments,), in [0, 1]; their mean over the
        contenders is ½.
    :param resampled_scores: By contender, shape (environments, resamples): columns of one index belong to one resample.
        NaN where an environment has one run only of a contender, which leaves nothing to resample.
    :param seeds: Runs by contender, of each environment in turn.
    :param environments: Their names.
    :param level: Of the intervals.
    """

    scores: Mapping[str, Floats]
    resampled_scores: Mapping[str, Floats]
    seeds: Mapping[str, tuple[int, ...]]
    environments: tuple[str, ...]
    level: float

    @cached_property
    def estimates(self) -> dict[str, float]:
        """The averages by contender."""
        return {name: float(np.mean(own)) for name, own in self.scores.items()}

    @cached_property
    def resampled(self) -> dict[str, Floats]:
        """The averages in the resamples by contender, shape (resamples,)."""
        return {name: own.mean(axis=0) for name, own in self.resampled_scores.items()}

    def without(self, environment: str) -> NormalisedAverages:
        """The averages over the other environments, from the same resamples.

        :param environment: One of those averaged over, which are two at least.
        :raises ValueError: For another, or the only one.
        """
        check_choice("environment", environment, self.environments)
        if len(self.environments) == 1:
            raise ValueError(f"environment is {environment!r}, the only one; without it there is no average.")
        kept = [i for i, name in enumerate(self.environments) if name != environment]
        return NormalisedAverages(
            {name: own[kept] for name, own in self.scores.items()},
            {name: own[kept] for name, own in self.resampled_scores.items()},
            {name: tuple(own[i] for i in kept) for name, own in self.seeds.items()},
            tuple(self.environments[i] for i in kept),
            self.level,
        )

    def interval(self, contender: str) -> Interval:
        """
        :param contender: One of those compared.
        :return: Its average with a percentile interval.
        :raises ValueError: For another.
        """
        check_choice("contender", contender, tuple(self.estimates))
        return self._interval(self.estimates[contender], self.resampled[contender])

    def greater(self, claim: str, x: str, y: str, margin: float = 0.0) -> Verdict:
        """The claim "x's average is above y's", by more than ``margin``.

        The test is the interval's: p is twice the share of resamples in which the difference is on the other side of
        the margin, or at it, counting the sample itself.

        :param claim: In words.
        :param x: A contender.
        :param y: Another.
        :param margin: Of the averages, which are in [0, 1]; below zero for "not much lower".
        :return: With the difference of the averages as its estimate, and as seeds those of the environment that has
            the fewest.
        :raises ValueError: For contenders that are not among those compared, or a margin that is not finite.
        """
        check_choice("x", x, tuple(self.estimates))
        check_choice("y", y, tuple(self.estimates))
        if not math.isfinite(margin):
            raise ValueError(f"margin is {margin}; give a finite number.")
        differences = self.resampled[x] - self.resampled[y]
        interval = self._interval(self.estimates[x] - self.estimates[y], differences)
        p_value = math.nan
        if not math.isnan(interval.low):
            tail = min(np.count_nonzero(differences <= margin), np.count_nonzero(differences >= margin))
            p_value = min(1.0, 2.0 * (tail + 1) / (len(differences) + 1))
        seeds = (min(self.seeds[x]), min(self.seeds[y]))
        quantity = "difference of averages"
        found = Comparison("stratified bootstrap", interval.estimate, interval, math.nan, p_value, seeds, quantity)
        attainable = attainable_p_within(zip(self.seeds[x], self.seeds[y], strict=True))
        return decide(claim, found, margin, attainable=attainable)

    def _interval(self, estimate: float, resampled: Floats) -> Interval:
        if np.isnan(resampled).any():
            note = "one run has no spread to resample"
            return Interval(estimate, math.nan, math.nan, self.level, _METHOD, note)
        return percentile_interval(estimate, resampled, self.level)


def cdf_normalised_averages(
    runs: Runs, *, rng: np.random.Generator, level: float = 0.95, n_resamples: int = N_RESAMPLES
) -> NormalisedAverages:
    """Average over environments of the share of all runs there that a contender's runs leave below them.

    With contenders ``k = 1 … K`` of ``n_k`` runs ``x_ki`` on an environment::

        G(x) = 1/K · Σ_k 1/n_k · Σ_i (1[x_ki < x] + ½·1[x_ki = x])        score_k = 1/n_k · Σ_i G(x_ki)

    and the average is that of the scores over the environments. G is the empirical distribution of all runs pooled
    where every contender has equally many; one with more runs weighs no more. Ties count half (mid-ranks). The score
    is also the mean over all contenders, itself included (½), of the probability of improvement on them.

    The interval is that of the percentile bootstrap. Each contender's runs on each environment are resampled among
    themselves, and **G is made again from each resample**: the pool is a sample as well, of which the contender's own
    runs are a part, and against them it scores ½ whatever they are. A fixed pool, as
    :func:`~sb3_robust_be.evaluation.suite_mean` has it, would leave out the chance in the other contenders' runs, and
    count a contender's runs against a copy of themselves as chance: with two contenders √2 times too wide. All
    contenders are resampled at once, so that their differences have intervals of their own. With five environments and
    3, 5, 10 runs on each, a nominal 95 % interval of a difference covers in 88, 90, 93 % of simulated experiments; with
    three environments and five runs on each in about 90 %.

    :param runs: Returns by contender and environment, each (runs,), the same environments for all; ``±inf`` is
        allowed, as only their order counts: ``-inf`` for a run that diverged.
    :param rng: For the resamples.
    :param level: Of the intervals.
    :param n_resamples: How many.
    :raises ValueError: No runs, NaN returns, contenders on other environments than the first, a bad level or number.
    :raises TypeError: If ``rng`` is no generator.
    """
    check_level(level)
    check_count("n_resamples", n_resamples)
    check_generator(rng)
    scores = {name: np.array([own.mean() for own in games.values()]) for name, games in scaled_returns(runs).items()}
    checked = {name: strata(name, games, infinite=True) for name, games in runs.items()}
    environments = tuple(next(iter(checked.values())))
    seeds = {name: tuple(len(games[one]) for one in environments) for name, games in checked.items()}
    resampled = {name: np.full((len(environments), n_resamples), np.nan) for name in checked}
    if min(map(min, seeds.values())) >= 2:
        for i, one in enumerate(environments):
            there = _resampled_scores({name: games[one] for name, games in checked.items()}, rng, n_resamples)
            for name, own in there.items():
                resampled[name][i] = own
    return NormalisedAverages(scores, resampled, seeds, environments, level)


def _resampled_scores(runs: Mapping[str, Floats], rng: np.random.Generator, n_resamples: int) -> dict[str, Floats]:
    """Every contender's score on one environment in each resample, shape (resamples,)."""
    # A resample is how often each run is in it. With whole counts the sums below are exact, and ties stay ties.
    counts = {
        name: rng.multinomial(len(x), np.full(len(x), 1.0 / len(x)), size=n_resamples).astype(np.float64)
        for name, x in runs.items()
    }
    scores = {}
    for name, x in runs.items():
        improvements = []
        for other, y in runs.items():
            wins = (x[:, None] > y) + 0.5 * (x[:, None] == y)
            won = ((counts[name] @ wins) * counts[other]).sum(axis=1)
            improvements.append(won / (len(x) * len(y)))
        scores[name] = np.mean(improvements, axis=0)
    return scores
