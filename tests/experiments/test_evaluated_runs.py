"""Control runs with greedy evaluations on the way: training is the same, and each evaluation is the population's."""

from __future__ import annotations

import numpy as np
import pytest

from sb3_robust_be.experiments.control.evaluated_runs import EVALUATED, evaluation_steps
from sb3_robust_be.experiments.control.training import control_spec
from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.experiments.population_units import make_units
from sb3_robust_be.experiments.run_functions import run_units
from sb3_robust_be.population import Population

TINY = {
    "policy_kwargs": {"net_arch": [8]},
    "buffer_size": 200,
    "learning_starts": 20,
    "train_freq": 1,
    "batch_size": 8,
    "learning_rate": 1e-2,
}


def evaluated(seed=0, evaluations=3, episodes=2, **arguments):
    spec = control_spec("qlc", "CartPole-v1", 150, seed, {**TINY, **arguments}, function=EVALUATED)
    return spec | {"evaluations": evaluations, "evaluation_episodes": episodes}


@pytest.mark.parametrize(
    ("steps", "evaluations", "points"),
    [(150, 3, [0, 50, 100, 150]), (10, 3, [0, 3, 7, 10]), (2, 25, [0, 1, 2]), (7, 1, [0, 7])],
)
def test_evaluation_steps(steps, evaluations, points):
    assert evaluation_steps(steps, evaluations) == points


def test_of_rl_zoo3s_sizes_all_parts_are_equal():
    for steps in (50_000, 100_000, 120_000):
        assert set(np.diff(evaluation_steps(steps, 25))) == {steps // 25}


def test_training_is_the_same_and_the_evaluations_are_the_populations(tmp_path):
    specs = [evaluated(seed) for seed in (0, 4)]
    plain = [control_spec("qlc", "CartPole-v1", 150, seed, TINY) for seed in (0, 4)]
    assert run_units([specs, plain], tmp_path, executor="serial", progress=False) == (4, 0, 0)
    results = Results(tmp_path)
    for spec, other in zip(specs, plain, strict=True):
        own, its = results.result(spec), results.result(other)
        assert {**own, "seconds": 0} == {**its, "seconds": 0}
        for name, values in results.arrays(other).items():
            np.testing.assert_array_equal(results.arrays(spec)[name], values)
    population = Population("qlc", "MlpPolicy", "CartPole-v1", [0, 4], verbose=0, **TINY)
    expected = [population.evaluate(2, seed=0)]
    for number in (1, 2, 3):
        # One call of learn, as there.
        fresh = Population("qlc", "MlpPolicy", "CartPole-v1", [0, 4], verbose=0, **TINY)
        fresh.learn(150, callback=lambda p, at=50 * number: p.num_timesteps < at)
        expected.append(fresh.evaluate(2, seed=number))
    for i, spec in enumerate(specs):
        found = results.arrays(spec, "evaluations")
        assert found["step"].tolist() == [0, 50, 100, 150]
        np.testing.assert_array_equal(found["returns"], np.array(expected)[:, i])
    assert len({x.tobytes() for x in expected}) == 4, "they learn, or meet other episodes"


@pytest.mark.filterwarnings("ignore:.*have failed:UserWarning")
@pytest.mark.parametrize("rates", [(1e-3, 1e30), (1e30, 1e29)])
def test_who_diverges_has_no_later_evaluations(rates, tmp_path):
    """Nor has anyone where training ended because all have."""
    specs = [evaluated(seed, learning_rate=rate) for seed, rate in enumerate(rates)]
    assert run_units([specs], tmp_path, executor="serial", progress=False).done == 2
    for spec in specs:
        returns = Results(tmp_path).arrays(spec, "evaluations")["returns"]
        finite = np.isfinite(returns).all(axis=1).tolist()
        assert finite == [True] + [spec["arguments"]["learning_rate"] < 1] * 3
        assert (Results(tmp_path).result(spec)["diverged_at"] is None) == finite[-1]


def test_populations_are_of_equal_evaluations():
    specs = [evaluated(0), evaluated(1, learning_rate=1e-3), evaluated(2, evaluations=5), evaluated(3, episodes=9)]
    assert sorted(map(len, make_units(specs, 1))) == [1, 1, 2]


def test_a_falling_learning_rate_is_json(tmp_path):
    """Also beside a constant one in the same population."""
    falling = {"$linear": [0.1, 0.0]}
    # Of exactly 0 throughout, nothing is learned.
    nothing = {"$linear": [0.0, 0.0]}
    specs = [evaluated(0, learning_rate=rate) for rate in (falling, 0.1, nothing, 0.0)]
    (unit,) = make_units(specs, 1)
    assert run_units([unit], tmp_path, executor="serial", progress=False).done == 4
    results = Results(tmp_path)
    returns = [results.arrays(spec)["returns"].tolist() for spec in specs]
    assert returns[2] == returns[3] != returns[0] != returns[1]
