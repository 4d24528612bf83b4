"""Saved in the middle of episodes, as plain arrays, and gone on with elsewhere."""

from __future__ import annotations

import functools
import io
import warnings

import gymnasium as gym
import numpy as np
import pytest
from lockstep_envs import (
    ACROBOT,
    BREAKOUT,
    CART_POLE,
    CLIFF_WORLD,
    FROZEN_LAKE,
    MOUNTAIN_CAR,
    PUDDLE_WORLD,
    DictEnv,
    UnseededEnv,
    arrays,
    assert_equal,
    random_actions,
)

import sb3_robust_be  # noqa: F401  (registers the environments)
from sb3_robust_be.envs.lockstep import make_lockstep
from sb3_robust_be.envs.lockstep.batches import by_name

pytestmark = pytest.mark.filterwarnings("ignore:.*MinAtar/Breakout-v0 is out of date:DeprecationWarning")

ENVS = {
    CART_POLE: CART_POLE,
    MOUNTAIN_CAR: MOUNTAIN_CAR,
    ACROBOT: ACROBOT,
    CLIFF_WORLD: CLIFF_WORLD,
    PUDDLE_WORLD: PUDDLE_WORLD,
    FROZEN_LAKE: FROZEN_LAKE,
    BREAKOUT: BREAKOUT,
    "generic CartPole": functools.partial(gym.make, CART_POLE),
    "Dict": DictEnv,
}


def through_a_file(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Saved and read by numpy, which refuses pickles unless it is asked for them."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **state)
    file.seek(0)
    return np.load(file)


@pytest.mark.parametrize("n_steps", [0, 1, 230])
@pytest.mark.parametrize("name", ENVS)
def test_goes_on_bit_for_bit(name, n_steps):
    seeds = (6, 1, 30)
    env, other = make_lockstep(ENVS[name], seeds), make_lockstep(ENVS[name], seeds)
    actions = random_actions(env, n_steps + 230)
    shown = env.reset()
    other.reset()
    for row in actions[:n_steps]:
        shown = env.step(row).observations
        other.step(row[::-1])
    state = env.state_dict()
    assert_equal(by_name(other.load_state_dict(through_a_file(state))), by_name(shown))
    assert other.restarted == ()
    ends = 0
    for row in actions[n_steps:]:
        step = env.step(row)
        assert_equal(arrays(other.step(row)), arrays(step))
        ends += (step.terminated | step.truncated).sum()
    assert ends > 0 or name in (ACROBOT, CLIFF_WORLD, PUDDLE_WORLD)
    assert_equal(other.state_dict(), env.state_dict())
    assert not all(np.array_equal(part, state[key]) for key, part in env.state_dict().items())


@pytest.mark.parametrize("env", [CART_POLE, DictEnv])
def test_a_saved_state_is_a_copy_and_saving_changes_nothing(env):
    one, other = make_lockstep(env, range(3)), make_lockstep(env, range(3))
    one.reset()
    other.reset()
    for actions in random_actions(one, 50):
        for part in one.state_dict().values():
            part[...] = 0
        assert_equal(arrays(one.step(actions)), arrays(other.step(actions)))
    state = one.state_dict()
    saved = {name: part.copy() for name, part in state.items()}
    other.load_state_dict(state)
    for actions in random_actions(one, 50):
        other.step(actions)
    assert_equal(state, saved)


def test_noise_goes_on_with_a_stopped_member_beside_it():
    """Short episodes, saved in the fourth: the generators of the members that go on are where they were."""
    env, other = (make_lockstep(PUDDLE_WORLD, [3, 1, 3], max_episode_steps=20) for _ in range(2))
    env.reset()
    env.stop(1)
    actions = random_actions(env, 130)
    for row in actions[:73]:
        env.step(row)
    other.load_state_dict(through_a_file(env.state_dict()))
    for row in actions[73:]:
        step = env.step(row)
        assert_equal(arrays(other.step(row)), arrays(step))
    assert (env.state_dict()["episodes"] == [6, 0, 6]).all()
    assert not env.failures


def test_the_time_limit_goes_on():
    env, other = (make_lockstep(MOUNTAIN_CAR, [0], max_episode_steps=10) for _ in range(2))
    env.reset()
    for _ in range(7):
        env.step(np.zeros(1, int))
    other.load_state_dict(env.state_dict())
    assert [bool(other.step(np.zeros(1, int)).truncated[0]) for _ in range(13)] == [False, False, True] + 9 * [
        False
    ] + [True]


def unseeded(*lasting: bool) -> functools.partial[gym.Env]:
    """A factory whose instances last, or not, in this order."""
    order = iter(lasting)
    return functools.partial(lambda: UnseededEnv(next(order)))


def test_what_no_seed_decides_is_not_restored_but_the_rest_is():
    lasting = (True, False, True)
    env, other = make_lockstep(unseeded(*lasting), range(3)), make_lockstep(unseeded(*lasting), range(3))
    env.reset()
    for _ in range(3):
        env.step(np.zeros(3, int))
    state = env.state_dict()
    with pytest.warns(UserWarning, match=r"not deterministic in its seed.*members \(1,\) go otherwise.*np_random"):
        shown = other.load_state_dict(state)
    assert other.restarted == (1,)
    assert shown[1] > state["observations"][1]
    np.testing.assert_array_equal(other.state_dict()["episodes"], [0, 1, 0])
    np.testing.assert_array_equal(other.state_dict()["lengths"], [3, 0, 3])
    ends = [other.step(np.zeros(3, int)).terminated.tolist() for _ in range(5)]
    assert ends[1] == [True, False, True]  # 3 + 2 steps
    assert ends[4] == [False, True, False]  # a whole episode
    other.reset()
    assert other.restarted == ()


def test_a_replay_that_ends_early_is_not_deterministic_either(monkeypatch):
    env, other = (make_lockstep(UnseededEnv, [0], lasting=True) for _ in range(2))
    env.reset()
    for _ in range(4):
        env.step(np.zeros(1, int))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.load_state_dict(env.state_dict())
    monkeypatch.setattr(UnseededEnv, "length", 4)
    with pytest.warns(UserWarning, match="not deterministic in its seed"):
        other.load_state_dict(env.state_dict())
    assert other.restarted == (0,)


@pytest.mark.parametrize("env", [CART_POLE, FROZEN_LAKE])
def test_refuses_states_of_others(env):
    one = make_lockstep(env, [1, 2])
    with pytest.raises(RuntimeError, match=r"nothing to save: call reset\(\)"):
        one.state_dict()
    one.reset()
    one.step(np.zeros(2, int))
    state = one.state_dict()
    for seeds in ([1, 3], [1], [1, 2, 3]):
        with pytest.raises(ValueError, match=r"state has the seeds \[1 2\], not .*: make the environment with them"):
            make_lockstep(env, seeds).load_state_dict(state)
    with pytest.raises(ValueError, match=r"state lacks \['episodes'\]: pass what"):
        one.load_state_dict({name: part for name, part in state.items() if name != "episodes"})
    with pytest.raises(ValueError, match=r"state lacks \['(elapsed|actions)'"):
        make_lockstep(MOUNTAIN_CAR if env == FROZEN_LAKE else FROZEN_LAKE, [1, 2]).load_state_dict(state)
    assert_equal(one.state_dict(), state)


def test_refuses_other_observations():
    car = make_lockstep(MOUNTAIN_CAR, [1, 2])
    car.reset()
    with pytest.raises(ValueError, match=r"state\['observations'\] is float32 of shape \(2, 2\), this .* \(2, 4\)"):
        make_lockstep(CART_POLE, [1, 2]).load_state_dict(car.state_dict())
