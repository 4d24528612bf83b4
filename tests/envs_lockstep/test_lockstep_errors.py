"""Bad input gives one error that names the argument, its value and the remedy."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from lockstep_envs import CART_POLE, FROZEN_LAKE, DictEnv, random_actions

import sb3_robust_be  # noqa: F401  (registers the environments)
from sb3_robust_be.envs.lockstep import make_lockstep


class Continuous(DictEnv):
    """Acts in an interval."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Box(-1, 1)


class Words(DictEnv):
    """Shows words."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Text(3)


class Nested(DictEnv):
    """Shows a Dict in a Dict."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Dict(all=self.observation_space)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPol-v1", r"env='CartPol-v1' is not registered.*Did you mean: `CartPole`\?.*or pass a factory"),
        ("CartPole-v9", r"env='CartPole-v9' is not registered.*provides versioned environments: \[ `v0`, `v1` \]"),
        ("PuddleWorld-v0", r"env='PuddleWorld-v0' is not registered.*Did you mean 'RobustBE/PuddleWorld-v0'\?"),
        ("cliffworld", r"`cliffworld` doesn't exist\. Did you mean 'RobustBE/CliffWorld-v0'\? Correct the id"),
        ("sb3_robust_be:CliffWorld-v0", r"Did you mean 'RobustBE/CliffWorld-v0'\? Correct the id"),
        ("Nowhere/Land-v0", "env='Nowhere/Land-v0' is not registered.*import the package that registers it"),
    ],
)
def test_unknown_ids(env_id, message):
    with pytest.raises(gym.error.UnregisteredEnv, match=message):
        make_lockstep(env_id, [0])


def test_unknown_keyword_arguments():
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'colour'.*CartPole-v1.*'red'"):
        make_lockstep(CART_POLE, [0], colour="red")


@pytest.mark.parametrize("env", [DictEnv(), 3, None])
def test_neither_ids_nor_factories(env):
    with pytest.raises(TypeError, match=r"env=.* is neither an id nor a factory: pass a factory, .* lambda: MyEnv\(\)"):
        make_lockstep(env, [0])


def test_factories_that_make_nothing_new():
    shared = DictEnv()
    for factory in (lambda: shared, lambda: TimeLimit(shared, 10)):
        with pytest.raises(ValueError, match=r"env=.*returned the same instance twice: let it make a new environment"):
            make_lockstep(factory, [0, 1])
    assert shared.closed


def test_factories_of_other_things():
    with pytest.raises(TypeError, match=r"env=<class 'dict'> returned {}: a factory must return a gymnasium.Env"):
        make_lockstep(dict, [0])
    kinds = iter([CART_POLE, FROZEN_LAKE])
    with pytest.raises(ValueError, match=r"env=.*returned environments with different spaces, Box.*Discrete\(16\)"):
        make_lockstep(lambda: gym.make(next(kinds)), [0, 1])


def test_unsupported_spaces():
    with pytest.raises(ValueError, match=r"env='Pendulum-v1' has the action space Box.*: choose.*Discrete actions"):
        make_lockstep("Pendulum-v1", [0])
    with pytest.raises(ValueError, match=r"env=<class.*Continuous'> has the action space Box"):
        make_lockstep(Continuous, [0])
    for env in (Words, Nested):
        with pytest.raises(ValueError, match=r"env=.* has the observation space .*: Box, Discrete.*FlattenObservation"):
            make_lockstep(env, [0])


@pytest.mark.parametrize(
    ("seeds", "error", "message"),
    [
        ([], ValueError, r"seeds=\[\] is empty: pass one per member, as in range\(30\)"),
        ([0, -1], ValueError, r"seeds has -1: pass integers from 0 to 2\*\*63 - 1"),
        ([2**63], ValueError, r"seeds has 9223372036854775808: pass"),
        ([0, 1.0], TypeError, r"seeds=\[0, 1.0\] is no sequence of integers: pass one per member"),
        ("12", TypeError, r"seeds='12' is no sequence of integers"),
        (3, TypeError, r"seeds=3 is no sequence of integers"),
    ],
)
def test_bad_seeds(seeds, error, message):
    with pytest.raises(error, match=message):
        make_lockstep(CART_POLE, seeds)


def test_seeds_of_all_integer_kinds():
    expected = make_lockstep(CART_POLE, [0, 1, 2]).reset()
    for seeds in (range(3), np.arange(3), (np.uint8(0), 1, np.int64(2))):
        env = make_lockstep(CART_POLE, seeds)
        assert env.seeds == (0, 1, 2)
        np.testing.assert_array_equal(env.reset(), expected)
    env = make_lockstep(CART_POLE, [2**63 - 1])
    env.reset()
    env.load_state_dict(env.state_dict())


@pytest.mark.parametrize(
    "actions",
    [np.array([0, 2]), np.array([-1, 0]), np.array([0.0, 1.0]), np.array([0]), np.zeros((2, 1), int), 0, [True, False]],
)
@pytest.mark.parametrize("make", [CART_POLE, lambda: gym.make(CART_POLE)])
def test_bad_actions(make, actions):
    env = make_lockstep(make, [0, 1])
    env.reset()
    before = env.state_dict()
    with pytest.raises(ValueError, match=r"(?s)actions=.* is not valid: give an array of 2 integers.*from 0 to 1"):
        env.step(actions)
    for name, part in env.state_dict().items():
        np.testing.assert_array_equal(part, before[name])


def test_bad_actions_where_the_first_is_not_0():
    env = make_lockstep(DictEnv, [0])
    env.reset()
    for action in (-2, 2):
        with pytest.raises(ValueError, match="one per member, from -1 to 1"):
            env.step(np.array([action]))


def test_a_step_before_the_first_episode():
    env = make_lockstep(CART_POLE, [0])
    with pytest.raises(RuntimeError, match=r"no episode has begun: call reset\(\) or load_state_dict\(\) before step"):
        env.step(np.array([0]))


def test_missing_packages_stay_visible(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(gym.error.DependencyNotInstalled, match="Box2D") as missing:
        make_lockstep("LunarLander-v3", [0])
    assert isinstance(missing.value.__cause__, ModuleNotFoundError)
    monkeypatch.delitem(gym.registry, "MinAtar/Breakout-v0")
    monkeypatch.setitem(sys.modules, "minatar", None)
    with pytest.raises(ModuleNotFoundError) as missing:
        make_lockstep("MinAtar/Breakout-v0", [0])
    assert missing.value.name == "minatar"


def counted(error: BaseException) -> tuple[list[DictEnv], Callable[[], gym.Env]]:
    """Two environments that have been made, and a factory that raises where the third is."""
    made: list[DictEnv] = []

    def factory() -> gym.Env:
        if len(made) == 2:
            raise error
        made.append(DictEnv())
        return made[-1]

    return made, factory


def test_an_environment_that_cannot_be_made_stops_its_member():
    made, factory = counted(OSError("no room for a third"))
    env = make_lockstep(factory, range(3))
    ((member, failure),) = env.failures.items()
    assert member == 2
    assert failure.reason.startswith("making its environment failed with OSError: no room for a third (test_lockstep_")
    env.reset()
    for actions in random_actions(env, 30):
        env.step(actions)
    assert (len(made[0].given), len(made[1].given)) == (30, 30)
    env.close()
    assert [one.closed for one in made] == [True, True]


def test_what_the_first_environment_raises_comes_through():
    def factory() -> gym.Env:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        make_lockstep(factory, range(3))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_what_is_no_environments_fault_comes_through_and_all_are_closed(error):
    made, factory = counted(error)
    with pytest.raises(type(error)):
        make_lockstep(factory, range(3))
    assert [one.closed for one in made] == [True, True]


class Huge(gym.Env):
    """Shows a number of double precision that single precision does not have, in the member with an odd seed."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.odd = bool(seed % 2)
        return np.zeros(2), {}

    def step(self, action):
        return np.array([1e30, 1e60 if self.odd else 1e38]), 0.0, False, False, {}


def test_numbers_beyond_single_precision():
    env = make_lockstep(Huge, range(6))
    env.reset()
    env.step(np.zeros(6, np.int64))
    odd = [member for member, one in env._envs.items() if one.odd]
    assert 0 < len(odd) < 6
    assert sorted(env.failures) == odd
    assert "returned an observation with 1e+60." in env.failures[odd[0]].reason
