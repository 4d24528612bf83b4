"""Several metrics of one sweep, and the mean over the last quarter of the steps."""

import numpy as np
import pytest

from sb3_robust_be.linear import OBJECTIVES, LinearTD, Settings, get, sweep
from sb3_robust_be.linear.sweeps import sweep_metrics
from sb3_robust_be.linear.trajectories import sample_trajectories

BASE = {
    "algorithms": ("tdc-huber", "gtd2"),
    "alphas": (0.01, 0.1),
    "etas": (0.5, 2.0),
    "seeds": (3, 5),
    "steps": 400,
    "evaluations": 10,
    "backend": "numpy",
}
FIELDS = ("auc", "late", "final", "diverged_at")


def evaluated(problem, metric):
    """The metric of tdc-huber, α = 0.1, η = 2, seed 5 after every 40 updates, one transition at a time."""
    table, learner, values = problem.transitions, LinearTD(2, "tdc-huber", alpha=0.1, eta=2.0), []
    for t, k in enumerate(sample_trajectories(problem, 400, [5])[0], start=1):
        learner.fit_one(table.x[k], table.reward[k], table.x_next[k], table.discount[k], table.ratio[k])
        if t % 40 == 0:
            values.append(OBJECTIVES[metric].value(problem, learner.theta_))
    return values


def test_every_metric_is_that_of_the_same_runs():
    problem = get("SmallChain")
    both = sweep_metrics(problem, Settings(**BASE), ("msve", "mave"))
    for metric, result in both.items():
        values = evaluated(problem, metric)
        assert result.settings.metric == metric
        assert result.auc[0, 1, 1, 1] == pytest.approx(np.mean(values), rel=1e-9)
        # Evaluations at 320, 360 and 400 of 400 steps lie beyond 300.
        assert result.late[0, 1, 1, 1] == pytest.approx(np.mean(values[-3:]), rel=1e-9)
        assert result.final[0, 1, 1, 1] == pytest.approx(values[-1], rel=1e-9)
        alone = sweep(problem, Settings(**BASE, metric=metric))
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(result, field), getattr(alone, field))


def test_late_is_final_where_there_is_one_late_evaluation():
    result = sweep(get("SmallChain"), Settings(**(BASE | {"evaluations": 4})))
    np.testing.assert_array_equal(result.late, result.final)
    assert (result.late != result.auc).all()


def test_trajectories_at_hand_give_the_same_result():
    problem, settings = get("SmallChain"), Settings(**BASE)
    taken = sample_trajectories(problem, settings.steps, settings.seeds)
    np.testing.assert_array_equal(
        sweep_metrics(problem, settings, ["msve"], taken=taken)["msve"].auc, sweep(problem, settings).auc
    )
    # They are what the runs see: other ones, another result.
    other = sweep_metrics(problem, settings, ["msve"], taken=taken[::-1].copy())["msve"].auc
    np.testing.assert_array_equal(other, sweep(problem, settings).auc[..., ::-1])


def test_a_run_that_diverged_has_infinite_errors():
    settings = Settings(("td",), (0.5,), (1.0,), (0,), 2000, evaluations=20, backend="numpy")
    for result in sweep_metrics(get("Baird"), settings, ("msve", "mave")).values():
        assert result.diverged_at.item() > 0
        assert all(np.isinf(getattr(result, field)).all() for field in FIELDS[:3])


@pytest.mark.parametrize(
    ("metrics", "taken", "message"),
    [
        ((), None, "metrics is empty"),
        (("mhbe",), None, "metric is 'mhbe'"),
        (("msve",), np.zeros((2, 300), dtype=np.int32), r"taken has shape \(2, 300\); give \(2, 400\)"),
    ],
)
def test_mistakes(metrics, taken, message):
    with pytest.raises(ValueError, match=message):
        sweep_metrics(get("SmallChain"), Settings(**BASE), metrics, taken=taken)
