"""Thirty members and thirty single agents of Stable-Baselines3: two samples of one distribution."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.stats
import single_runs

from sb3_robust_be.evaluation import area_under_curve, final_performance
from sb3_robust_be.population import Population

#: Rounding, and with it the members' runs, differs between processors: on each, these are new samples. At 0.05 one
#: processor in six would fail one of the eight tests; at 0.001 less than one in a hundred does.
LEVEL = 0.001


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dqn", "qrc_huber"])
def test_a_population_and_single_agents_are_indistinguishable(algorithm):
    singles = {key: np.array(x) for key, x in json.loads(single_runs.FILE.read_text())[algorithm].items()}
    arguments = {**single_runs.ARGUMENTS, **single_runs.OWN[algorithm]}
    population = Population(algorithm, "MlpPolicy", single_runs.ENV, range(30), verbose=0, device="cpu", **arguments)
    population.learn(single_runs.STEPS)
    measures = {"final": final_performance, "auc": area_under_curve}
    for key, measure in measures.items():
        members = np.array([measure(e.lengths, e.returns, single_runs.STEPS) for e in population.returns])
        assert len(members) == len(singles[key]) == 30
        # Learning has taken place, and its result varies: the comparison is not one of constants.
        assert singles[key].std() > 3.0
        assert singles[key].mean() > 30.0
        assert scipy.stats.ks_2samp(members, singles[key]).pvalue > LEVEL
        assert scipy.stats.mannwhitneyu(members, singles[key]).pvalue > LEVEL


def test_the_comparison_would_see_a_difference():
    """Half as much return again in one of the two samples, with the singles' own spread, is seen."""
    finals = np.array(json.loads(single_runs.FILE.read_text())["qrc_huber"]["final"])
    rng = np.random.default_rng(0)
    rejected = [
        scipy.stats.mannwhitneyu(rng.choice(finals, 30), 1.5 * rng.choice(finals, 30)).pvalue <= LEVEL
        for _ in range(200)
    ]
    assert np.mean(rejected) > 0.7
