"""Legal actions of environments in lock-step: those of what is shown, before and after the resets."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from masked_envs import BAD_MASKS, LEGAL, TableEnv, WithMasks

from sb3_robust_be.envs.lockstep import make_lockstep

START = 2


def legal_in(observations):
    return LEGAL[observations.argmax(axis=1)]


def first_legal(env):
    return env.action_masks.argmax(axis=1) + START


def test_masks_are_those_of_the_observations():
    env = make_lockstep(TableEnv, range(5), start=START)
    np.testing.assert_array_equal(legal_in(env.reset()), env.action_masks)
    shown = []
    n_cut_off = n_terminated = 0
    for _ in range(40):
        step = env.step(first_legal(env))
        np.testing.assert_array_equal(legal_in(step.observations), env.action_masks)
        expected = legal_in(step.final_observations) | step.terminated[:, None]
        np.testing.assert_array_equal(step.final_action_masks, expected)
        shown.append((step.final_action_masks, expected))
        n_cut_off, n_terminated = n_cut_off + step.truncated.sum(), n_terminated + step.terminated.sum()
    assert n_cut_off > 0
    assert n_terminated > 0
    assert env.failures == {}
    for masks, expected in shown:
        np.testing.assert_array_equal(masks, expected, "a later step has overwritten them")
    before = env.action_masks.copy()
    kept = env.action_masks
    np.testing.assert_array_equal(legal_in(env.begin_next_episodes()), env.action_masks)
    np.testing.assert_array_equal(kept, before)


def test_no_masks_where_there_are_none():
    for name in ("CartPole-v1", "FrozenLake-v1"):
        env = make_lockstep(name, range(2))
        env.reset()
        assert env.action_masks is None
        assert env.step(np.zeros(2, np.int64)).final_action_masks is None


def test_saved_and_restored():
    env = make_lockstep(TableEnv, range(5), start=START)
    env.reset()
    for _ in range(10):
        env.step(first_legal(env))
    twin = make_lockstep(TableEnv, range(5), start=START)
    twin.load_state_dict(env.state_dict())
    assert twin.restarted == ()
    for _ in range(10):
        np.testing.assert_array_equal(twin.action_masks, env.action_masks)
        step, again = env.step(first_legal(env)), twin.step(first_legal(twin))
        np.testing.assert_array_equal(step.final_action_masks, again.final_action_masks)


def test_a_stopped_member_keeps_its_mask():
    env = make_lockstep(TableEnv, range(2), start=START)
    env.reset()
    kept = env.action_masks[1].copy()
    env.stop(1)
    for _ in range(10):
        np.testing.assert_array_equal(env.step(first_legal(env)).final_action_masks[1], kept)


class LateMasks(WithMasks):
    """Two actions, and what is wrong is said from the third step of a member's first episode on."""

    made = 0

    def __init__(self, masks) -> None:
        super().__init__(gym.make("CartPole-v1"), masks)
        self.number, LateMasks.made = LateMasks.made, LateMasks.made + 1
        self.count = 0

    def step(self, action):
        self.count += 1
        return self.env.step(action)

    def action_masks(self):
        return self.masks if self.number == 1 and self.count >= 3 else np.ones(2, bool)


@pytest.mark.parametrize("masks", [*BAD_MASKS.values(), np.zeros(2, bool)], ids=[*BAD_MASKS, "no action"])
def test_a_member_with_bad_masks_stops_alone(masks):
    LateMasks.made = 0
    env = make_lockstep(LateMasks, range(3), masks=masks)
    env.reset()
    for _ in range(6):
        step = env.step(np.array([0, 1, 1]))
        assert step.final_action_masks.all()
    assert env.failures.keys() == {1}
    assert "action_masks" in env.failures[1].reason


def test_bad_masks_at_the_reset():
    env = make_lockstep(lambda: WithMasks(gym.make("CartPole-v1"), np.ones(3, bool)), range(2))
    env.reset()
    assert env.failures.keys() == {0, 1}
    assert "action_masks must be booleans" in env.failures[0].reason
