"""Seeds, the independence of the members, and what the generic adapter makes of all kinds of environments."""

from __future__ import annotations

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
    arrays,
    assert_equal,
    random_actions,
)

import sb3_robust_be  # noqa: F401  (registers the environments)
from sb3_robust_be.envs.lockstep import episode_seed, make_lockstep
from sb3_robust_be.envs.lockstep.batches import by_name

pytestmark = pytest.mark.filterwarnings("ignore:.*MinAtar/Breakout-v0 is out of date:DeprecationWarning")

ENVS = [CART_POLE, MOUNTAIN_CAR, ACROBOT, CLIFF_WORLD, PUDDLE_WORLD, FROZEN_LAKE, BREAKOUT, DictEnv]
IDS = [env if isinstance(env, str) else env.__name__ for env in ENVS]


def limits(env: object, max_episode_steps: int = 30) -> dict[str, int]:
    """Episodes short enough for many to end within a test."""
    return {"max_episode_steps": max_episode_steps} if env not in (BREAKOUT, DictEnv) else {}


def test_episode_seeds():
    assert episode_seed(3, 1) == int(np.random.SeedSequence([3, 1]).generate_state(1)[0]) == 457190280
    seeds = {episode_seed(seed, episode) for seed in range(100) for episode in range(100)}
    assert len(seeds) == 10_000
    assert all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds)


@pytest.mark.parametrize("env", ENVS, ids=IDS)
def test_a_member_does_not_depend_on_the_others(env):
    """Alone, in other company and in another place: the same to the last bit."""
    seeds = (5, 7, 9, 2)
    together = make_lockstep(env, seeds, **limits(env))
    actions = random_actions(together, 150)
    first, steps = by_name(together.reset()), [arrays(together.step(row)) for row in actions]
    for company in ([1], [3, 1, 0]):
        apart = make_lockstep(env, [seeds[i] for i in company], **limits(env))
        assert_equal(by_name(apart.reset()), {name: part[company] for name, part in first.items()})
        for row, step in zip(actions, steps, strict=True):
            assert_equal(arrays(apart.step(row[company])), {name: part[company] for name, part in step.items()})
    assert sum((step["terminated"] | step["truncated"]).sum() for step in steps) > 2


@pytest.mark.parametrize("env", ENVS, ids=IDS)
def test_episodes_begin_with_their_seeds(env):
    """Against gymnasium's own instances, reset by hand."""
    seeds = (0, 8)
    members = make_lockstep(env, seeds, **limits(env))
    singles = [gym.make(env, **limits(env)) if isinstance(env, str) else env() for _ in seeds]
    episodes, shown = [0, 0], members.reset()
    for i, single in enumerate(singles):
        assert_shows(shown, i, single.reset(seed=episode_seed(seeds[i], 0))[0])
    for actions in random_actions(members, 100):
        step = members.step(actions)
        for i, single in enumerate(singles):
            observation, reward, terminated, truncated, _ = single.step(actions[i])
            assert_shows(step.final_observations, i, observation)
            assert step.rewards[i] == reward
            assert (step.terminated[i], (step.terminated | step.truncated)[i]) == (terminated, terminated | truncated)
            if terminated or truncated:
                episodes[i] += 1
                observation, _ = single.reset(seed=episode_seed(seeds[i], episodes[i]))
            assert_shows(step.observations, i, observation)
    assert sum(episodes) > 1


def assert_shows(batch: np.ndarray | dict[str, np.ndarray], member: int, observation: object) -> None:
    if isinstance(batch, dict):
        for key, part in batch.items():
            assert_shows(part, member, observation[key])
    else:
        np.testing.assert_allclose(batch[member], observation, rtol=1e-6, atol=1e-6)


def test_equal_seeds_see_equal_episodes_and_others_do_not():
    env = make_lockstep(CART_POLE, [4, 4, 5])
    observations = env.reset()
    for actions in np.random.default_rng(0).integers(2, size=100):
        np.testing.assert_array_equal(observations[0], observations[1])
        assert not np.array_equal(observations[0], observations[2])
        observations = env.step(np.full(3, actions)).observations
    np.testing.assert_array_equal(env.reset(), make_lockstep(CART_POLE, [4, 4, 5]).reset())


@pytest.mark.parametrize("env", ENVS, ids=IDS)
def test_steps_are_not_overwritten(env):
    members = make_lockstep(env, range(3), **limits(env, 10))
    members.reset()
    steps = [members.step(actions) for actions in random_actions(members, 40)]
    copies = [{name: part.copy() for name, part in arrays(step).items()} for step in steps]
    for actions in random_actions(members, 40, seed=1):
        members.step(actions)
    for step, copied in zip(steps, copies, strict=True):
        assert_equal(arrays(step), copied)
    assert any((step.terminated | step.truncated).any() for step in steps)


def test_final_observations_are_the_last_ones():
    """A walk off the lake's edge terminates in a hole, or at the goal; the new episode begins at the start."""
    env = make_lockstep(FROZEN_LAKE, range(5))
    env.reset()
    holes_and_goal = {5, 7, 11, 12, 15}
    n_ended = 0
    for actions in random_actions(env, 100):
        step = env.step(actions)
        assert step.observations.dtype == step.final_observations.dtype == np.int64
        assert set(step.final_observations[step.terminated]) <= holes_and_goal
        assert not set(step.final_observations[~step.terminated]) & holes_and_goal
        assert not step.observations[step.terminated].any()
        n_ended += step.terminated.sum()
    assert n_ended > 20


def test_observations_are_as_their_spaces_say():
    shapes = {"place": (2,), "picture": (3, 4, 1), "cell": (), "bits": (4,), "digits": (2,)}
    dtypes = {"place": "float32", "picture": "uint8", "cell": "int64", "bits": "int8", "digits": "int64"}
    env = make_lockstep(DictEnv, range(4))
    env.reset()
    step = env.step(np.array([-1, 0, 1, 0]))
    for batch in (step.observations, step.final_observations):
        assert {key: part.shape for key, part in batch.items()} == {key: (4, *shape) for key, shape in shapes.items()}
        assert {key: str(part.dtype) for key, part in batch.items()} == dtypes
    pictures = make_lockstep(BREAKOUT, range(2)).reset()
    assert (pictures.shape, pictures.dtype) == ((2, 10, 10, 4), bool)


def test_actions_are_those_of_the_space():
    made: list[DictEnv] = []
    env = make_lockstep(lambda: made.append(DictEnv(noise=0.0)) or made[-1], range(3))
    env.reset()
    actions = np.array([[-1, 0, 1], [1, -1, 0]], dtype=np.int32)
    rewards = [env.step(row).rewards for row in actions]
    np.testing.assert_array_equal(rewards, np.cumsum(actions, axis=0))
    assert [one.given for one in made] == actions.T.tolist()


def test_an_environment_may_terminate_and_truncate_itself():
    env = make_lockstep(DictEnv, range(20))
    env.reset()
    pairs = set()
    for actions in random_actions(env, 50):
        step = env.step(actions)
        place = np.abs(step.final_observations["place"][:, 0])
        np.testing.assert_array_equal(step.terminated, place > 3)
        np.testing.assert_array_equal(step.truncated, place > 2)
        pairs |= set(zip(step.terminated.tolist(), step.truncated.tolist(), strict=True))
    assert pairs == {(False, False), (False, True), (True, True)}


def test_keyword_arguments_reach_factories():
    env = make_lockstep(DictEnv, [0], noise=0.0)
    env.reset()
    assert env.step(np.array([1])).rewards.tolist() == [1.0]


def test_close_closes_all():
    made: list[DictEnv] = []
    make_lockstep(lambda: made.append(DictEnv()) or made[-1], range(3)).close()
    assert [one.closed for one in made] == [True] * 3
