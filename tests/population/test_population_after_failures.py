"""What becomes of failed members when a population learns on, is saved and loaded, or taken apart."""

from __future__ import annotations

import numpy as np
import pytest
from faulty_envs import AT, STEPS, FaultyEnv, nothing_fails, population
from populations import assert_same_member, member_state, rows

from sb3_robust_be.population import Population

pytestmark = pytest.mark.filterwarnings("error", "ignore:.*have failed\\.:UserWarning")


@pytest.mark.parametrize("reset", [False, True])
def test_a_failed_member_stays_failed(reset):
    failed, healthy = population("place nan").learn(STEPS), population().learn(STEPS)
    reasons, before = failed.failures, rows(failed)
    for p in (failed, healthy):
        p.learn(STEPS, reset_num_timesteps=reset)
    assert failed.failed_at.tolist() == [-1, AT, -1]
    assert failed.failures == reasons
    np.testing.assert_array_equal(rows(failed)[1], before[1])
    assert failed.returns[1].steps.tolist() == ([] if reset else [5, 10, 15, 20])
    for i in (0, 2):
        assert_same_member(member_state(failed, i), member_state(healthy, i))


def adam_steps(model):
    return {float(state["step"]) for state in model.policy.optimizer.state.values()}


def test_the_updates_of_a_failed_member_are_saved(tmp_path):
    population("exception", h_regularization_scale="features").learn(STEPS).save(tmp_path)
    loaded = Population.load(tmp_path)
    loaded.learn(5, reset_num_timesteps=False)
    assert adam_steps(loaded[1]) == {float(AT - 1 - 20)}
    assert adam_steps(loaded[2]) == {float(STEPS + 5 - 20)}
    assert int(loaded[1]._feature_norm_updates) == AT - 1 - 20


def test_a_failed_member_keeps_its_exploration_and_count_of_steps():
    """Those of its last step, which a single agent would have, too; the others go on."""
    failed = population("exception", exploration_fraction=1.0).learn(STEPS)
    rate = failed[0].exploration_schedule
    assert failed[1].exploration_rate == rate(1.0 - (AT - 1) / STEPS) > failed[0].exploration_rate == rate(0.0)
    assert (failed[1]._n_calls, failed[0]._n_calls) == (AT - 1, STEPS)


def test_a_member_that_failed_before_it_learned_has_an_optimiser_without_a_state():
    failed = population("exception", episode=1).learn(STEPS)
    assert failed[1].num_timesteps < 20
    assert adam_steps(failed[1]) == set()
    assert failed[1]._n_updates == 0


@pytest.mark.parametrize(("fault", "where"), [("exception", {}), ("place nan", {"step": 0}), ("cell top", {})])
def test_saved_and_loaded(fault, where, tmp_path):
    """Saved after the failure and before; what is loaded knows why, and goes on bit for bit."""
    failed = population(fault, **where)

    def save(p):
        if p.num_timesteps in (10, 30):
            p.save(tmp_path / str(p.num_timesteps))

    failed.learn(STEPS, callback=save)
    assert failed.failed.tolist() == [False, True, False]
    FaultyEnv.calls_after_the_fault = 0
    for step in (10, 30):
        loaded = Population.load(tmp_path / str(step))
        assert loaded.failed.tolist() == [False, step == 30, False]
        loaded.learn(STEPS - step, reset_num_timesteps=False)
        assert loaded.failures == failed.failures
        assert loaded.tracebacks == failed.tracebacks or step == 10
        assert loaded.failed_at.tolist() == failed.failed_at.tolist()
        assert loaded.diverged.tolist() == failed.diverged.tolist()
        for i in range(3):
            assert_same_member(member_state(loaded, i), member_state(failed, i))
    assert FaultyEnv.calls_after_the_fault == 0


def test_an_episode_that_cannot_be_repeated_costs_one_member(tmp_path):
    """To go on, environments repeat the episode that was not finished."""
    population().learn(22).save(tmp_path)
    loaded = Population.load(tmp_path, env_kwargs={"fault": "exception", "step": 2}).learn(
        STEPS - 22, reset_num_timesteps=False
    )
    assert loaded.failed_at.tolist() == [-1, 22, -1]
    assert "step() of its environment failed with RuntimeError: lost" in loaded.failures[1]
    healthy = population().learn(22)
    healthy.learn(STEPS - 22, reset_num_timesteps=False)
    for i in (0, 2):
        assert_same_member(member_state(loaded, i), member_state(healthy, i))


def test_a_failed_member_as_a_single_agent():
    """Its replay buffer ends where its environment failed."""
    failed = population("exception").learn(STEPS)
    model = failed[1]
    assert model.num_timesteps == AT
    assert model.replay_buffer.size() == AT - 1
    # One for each step from `learning_starts` on, in its networks, its optimiser and its count; the others went on.
    updates = AT - 1 - 20
    assert adam_steps(model) == {float(updates)}
    assert model._n_updates == updates
    assert adam_steps(failed[0]) == {float(STEPS - 20)}
    whole = failed[0].replay_buffer
    assert whole.size() == STEPS
    expected = nothing_fails()[1]["replay/rewards"][: AT - 1]
    np.testing.assert_array_equal(model.replay_buffer.rewards[: AT - 1], expected)
    assert population("exception", buffer_size=10).learn(STEPS)[1].replay_buffer.size() == 0
    at_reset = population("exception", step=0).learn(STEPS)[1]
    assert at_reset.replay_buffer.size() == 20
