"""Members that diverge are marked, frozen and reported; the others go on as if they had never been there."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch as th
from populations import assert_same_member, make, member_state, rows

from sb3_robust_be.population import Member, Population

# Reports of failure are expected here, and tested below; anything else is not.
pytestmark = pytest.mark.filterwarnings(
    "error", "ignore:.*have failed\\.:UserWarning", "ignore:.*bootstraps from a target network:UserWarning"
)
SICK = {"learning_rate": 1e30}
CASES = {
    "dqn": {"max_grad_norm": None},
    "qrc_huber": {},
    "qlc": {"target_update_interval": 3},
    "sbeed": {"behaviour": "softmax"},
}


@pytest.mark.parametrize(("algorithm", "kwargs"), CASES.items(), ids=CASES)
def test_the_others_go_on_as_if_alone(algorithm, kwargs):
    # Its observations are larger than one, so that values become infinite before they are NaN.
    kwargs = {**kwargs, "env": "Acrobot-v1", "env_kwargs": {"max_episode_steps": 9}}
    members = [Member(2, SICK), Member(0), Member(2)]
    seen = []
    population = make(algorithm, members, **kwargs)
    population.learn(50, callback=lambda p: seen.append(rows(p)))
    # The first update is made in the 21st step; the next action shows what it did.
    assert population.failed_at.tolist() == [21, -1, -1]
    assert population.failed.tolist() == [True, False, False]
    assert all(np.array_equal(seen[step][0], seen[21][0], equal_nan=True) for step in range(22, 50)), "frozen"
    assert not np.array_equal(seen[20][0], seen[19][0])
    assert population.returns[0].steps.tolist() == [9, 18]
    healthy = make(algorithm, [0, 2], **kwargs).learn(50)
    assert healthy.returns[0].steps.tolist() == [9, 18, 27, 36, 45]
    for i in range(2):
        assert_same_member(member_state(healthy, i), member_state(population, i + 1))


def test_failures_are_reported_once_and_here():
    population = make("qrc", [0, 1], "Acrobot-v1", learning_rate=[1e-3, 1e30])
    with pytest.warns(
        UserWarning, match=r"2 of 4 members have failed\. Members 2, 3: .*learning_rate.* pop\.failed_at"
    ) as caught:
        population.learn(40)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make("qrc", [0, 1], "Acrobot-v1").learn(25)


def test_a_failure_that_the_values_do_not_show():
    """The secondary head's parameters do not act."""
    population = make("qrc_huber", range(3))

    def spoil(p):
        if p.num_timesteps == 30:
            p._trainer.learners[0].rows[1, -1] = float("nan")
        return p.num_timesteps < 30

    population.learn(40, callback=spoil)
    assert population.failed_at.tolist() == [-1, 30, -1]


def test_a_failed_member_stays_failed(tmp_path):
    """Learning on and loading change nothing of it, nor when and with what it failed."""
    population = make("qrc", [0, 1], learning_rate=[1e-3, 1e30]).learn(30)
    population.save(tmp_path)
    again = Population.load(tmp_path)
    assert again.failed_at.tolist() == population.failed_at.tolist() == [-1, -1, 21, 21]
    before = rows(population)
    for p in (population, again):
        p.learn(20, reset_num_timesteps=False)
        assert p.failed_at.tolist() == [-1, -1, 21, 21]
        np.testing.assert_array_equal(rows(p)[2:], before[2:])
        assert not th.equal(rows(p)[:2], before[:2])
        assert all(e.steps.max(initial=0) <= 21 for e in p.returns[2:])
        assert p.failures[:2] == [None, None]
        for reason in p.failures[2:]:
            assert reason.startswith("At environment step 21: its values became infinite or NaN. A ")
        assert p.diverged.tolist() == [False, False, True, True]
    for i in range(4):
        assert_same_member(member_state(again, i), member_state(population, i))


def test_what_version_0_1_has_saved(tmp_path):
    """There, failed members have diverged and are stepped on; no reasons are kept."""
    population = make("qrc", [0, 1], learning_rate=[1e-3, 1e30]).learn(30)
    population.save(tmp_path)
    index = json.loads((tmp_path / "population.json").read_text())
    del index["failures"]
    (tmp_path / "population.json").write_text(json.dumps(index))
    with np.load(tmp_path / index["state"]) as arrays:
        old = {name: x for name, x in arrays.items() if name not in ("n_steps", "env/stopped")}
    np.savez(tmp_path / index["state"], **old)
    again = Population.load(tmp_path)
    assert again.failures == population.failures
    for p in (again, population):
        p.learn(20, reset_num_timesteps=False)
    assert again.failed_at.tolist() == [-1, -1, 21, 21]
    for i in range(4):
        assert_same_member(member_state(again, i), member_state(population, i))
    assert again[0].replay_buffer.size() == 50


def test_a_failed_member_as_a_single_agent():
    population = make("qrc", [0], learning_rate=[1e-3, 1e30]).learn(30)
    model = population[1]
    assert model.num_timesteps == 21
    found = th.nn.utils.parameters_to_vector(model.policy.parameters())
    assert not (found.abs() < 1e20).all()
    assert population[0].num_timesteps == 30
