"""Cliff World, by hand and by exact solution from its transition table."""

from __future__ import annotations

import itertools
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from stable_baselines3.common.env_checker import check_env as sb3_check_env

import sb3_robust_be  # noqa: F401  (registers the environments)
from sb3_robust_be.envs.cliff_world import (
    CLIFF,
    GOAL,
    HEIGHT,
    N_STATES,
    START,
    WIDTH,
    CliffWorldEnv,
    coordinates,
    observation_table,
    state_index,
    transition_table,
)

UP, RIGHT, DOWN, LEFT = range(4)
OBSERVATIONS = ("coordinates", "one_hot")
OCCUPIED = [s for s in range(N_STATES) if s not in CLIFF]


def evaluate(policy: np.ndarray, epsilon: float = 0.0) -> np.ndarray:
    """Expected undiscounted return from each state, ε-greedy around ``policy``, by solving v = r + P v."""
    P, r = np.zeros((N_STATES, N_STATES)), np.zeros(N_STATES)
    for s, row in transition_table().items():
        for a, outcomes in row.items():
            weight = epsilon / 4 + (1 - epsilon) * (policy[s] == a)
            for probability, following, reward, terminated in outcomes:
                r[s] += weight * probability * reward
                P[s, following] += weight * probability * (not terminated)
    return np.linalg.solve(np.eye(N_STATES) - P, r)


def along_row(row: int) -> np.ndarray:
    """Up to ``row``, right along it (from above as well), down in the last column."""
    policy = np.full(N_STATES, RIGHT)
    for s in range(N_STATES):
        x, y = coordinates(s)
        if x == WIDTH - 1:
            policy[s] = DOWN
        elif y < row:
            policy[s] = UP
    return policy


@pytest.mark.parametrize(
    ("xy", "action", "following", "reward", "terminated"),
    [
        ((0, 0), UP, (0, 1), -1.0, False),
        ((0, 0), LEFT, (0, 0), -1.0, False),  # bumps stay
        ((0, 0), DOWN, (0, 0), -1.0, False),
        ((0, 3), UP, (0, 3), -1.0, False),
        ((4, 2), RIGHT, (4, 2), -1.0, False),
        ((0, 0), RIGHT, (0, 0), -1000.0, False),  # the cliff: back to the start, and on
        ((1, 1), DOWN, (0, 0), -1000.0, False),
        ((2, 1), DOWN, (0, 0), -1000.0, False),
        ((3, 1), DOWN, (0, 0), -1000.0, False),
        ((4, 1), DOWN, (4, 0), -1.0, True),
        ((2, 2), UP, (2, 3), -1.0, False),
        ((2, 2), RIGHT, (3, 2), -1.0, False),
        ((2, 2), DOWN, (2, 1), -1.0, False),
        ((2, 2), LEFT, (1, 2), -1.0, False),
        ((4, 0), UP, (4, 0), 0.0, True),  # the goal is absorbing
    ],
)
def test_transitions_by_hand(xy, action, following, reward, terminated):
    expected = [(1.0, state_index(*following), reward, terminated)]
    assert transition_table()[state_index(*xy)][action] == expected


def test_geometry():
    assert (WIDTH, HEIGHT, N_STATES) == (5, 4, 20)
    assert coordinates(START) == (0, 0)
    assert coordinates(GOAL) == (4, 0)
    assert [coordinates(s) for s in CLIFF] == [(1, 0), (2, 0), (3, 0)]
    assert [state_index(*coordinates(s)) for s in range(N_STATES)] == list(range(N_STATES))


def test_table_is_complete():
    table = transition_table()
    assert set(table) == set(range(N_STATES))
    for s, a in itertools.product(range(N_STATES), range(4)):
        assert sum(outcome[0] for outcome in table[s][a]) == 1.0
        for _, following, reward, terminated in table[s][a]:
            assert following in OCCUPIED
            assert (reward == -1000.0) <= (following == START)
            assert terminated == (following == GOAL)


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_steps_as_its_table_says(observation):
    env = gym.make("RobustBE/CliffWorld-v0", observation=observation)
    seen = observation_table(observation)
    env.reset()
    for s, a in itertools.product(OCCUPIED, range(4)):
        [(_, following, reward, terminated)] = env.unwrapped.P[s][a]
        env.unwrapped.state = s
        obs, *rest = env.step(np.int64(a))
        assert rest == [reward, terminated, False, {}]
        assert env.unwrapped.state == following
        np.testing.assert_array_equal(obs, seen[following])
        obs += 100  # what the caller does with its observation must not reach the environment
    np.testing.assert_array_equal(env.reset()[0], seen[START])


def test_observations():
    coordinate, one_hot = (gym.make("RobustBE/CliffWorld-v0", **kwargs) for kwargs in ({}, {"observation": "one_hot"}))
    assert coordinate.observation_space == gym.spaces.Box(np.zeros(2, np.float32), np.array([4, 3], np.float32))
    assert one_hot.observation_space == gym.spaces.Box(0.0, 1.0, (20,), np.float32)
    coordinate.reset()
    one_hot.reset()
    for action, x, y in ((UP, 0, 1), (UP, 0, 2), (RIGHT, 1, 2), (UP, 1, 3)):
        obs, hot = coordinate.step(action)[0], one_hot.step(action)[0]
        assert obs.tolist() == [x, y]
        assert np.flatnonzero(hot).tolist() == [5 * y + x]
        assert hot.sum() == 1.0
        assert obs.dtype == hot.dtype == np.float32


def test_optimal_return():
    """Value iteration on the table; the optimal policy, played, gets what it promises."""
    q = np.zeros((N_STATES, 4))
    for _ in range(50):
        v = q.max(axis=1)
        for s, row in transition_table().items():
            for a, outcomes in row.items():
                q[s, a] = sum(p * (r + (not terminated) * v[s2]) for p, s2, r, terminated in outcomes)
    assert q.max(axis=1)[START] == -6.0
    env = CliffWorldEnv()
    env.reset()
    rewards, terminated = [], False
    while not terminated:
        _, reward, terminated, _, _ = env.step(q[env.state].argmax())
        rewards.append(reward)
    assert rewards == [-1.0] * 6
    assert env.state == GOAL


def test_returns_with_exploration():
    """Paper: −115.8 around the shortest path, −40.6 along the top row, at ε = 0.1; to the digits given."""
    shortest, top = along_row(1), along_row(HEIGHT - 1)
    assert evaluate(shortest)[START] == -6.0
    assert evaluate(top)[START] == -10.0
    assert round(evaluate(shortest, epsilon=0.1)[START], 1) == -115.8
    assert round(evaluate(top, epsilon=0.1)[START], 1) == -40.6


def test_cuts_off_after_500_steps_without_terminating():
    env = gym.make("RobustBE/CliffWorld-v0")
    env.reset()
    steps = [env.step(RIGHT) for _ in range(500)]
    assert not any(terminated for _, _, terminated, _, _ in steps)
    assert [truncated for _, _, _, truncated, _ in steps] == [False] * 499 + [True]
    assert sum(reward for _, reward, *_ in steps) == -500_000.0


def test_is_deterministic_whatever_the_seed():
    actions = np.random.default_rng(0).integers(4, size=300)
    episodes = []
    for seed in (0, 0, 1, None):
        env = CliffWorldEnv()
        first, _ = env.reset(seed=seed)
        episodes.append([first.tolist()] + [(o.tolist(), r, t) for o, r, t, *_ in map(env.step, actions)])
    assert all(episode == episodes[0] for episode in episodes)
    assert len({str(step) for step in episodes[0]}) > 10


@pytest.mark.parametrize("action", [-1, 4, np.int64(7)])
def test_refuses_unknown_actions(action):
    env = CliffWorldEnv()
    env.reset()
    with pytest.raises(ValueError, match=r"action=.*is invalid: choose 0"):
        env.step(action)


def test_refuses_unknown_options():
    with pytest.raises(ValueError, match=r"observation='onehot' is unknown: choose 'coordinates' or 'one_hot'"):
        gym.make("RobustBE/CliffWorld-v0", observation="onehot")
    with pytest.raises(ValueError, match=r"render_mode='human' is unknown: choose None, 'ansi' or 'rgb_array'"):
        CliffWorldEnv(render_mode="human")


def test_renders_text():
    env = gym.make("RobustBE/CliffWorld-v0", render_mode="ansi")
    env.reset()
    assert env.render() == ". . . . .\n. . . . .\n. . . . .\nA C C C G\n"
    env.step(UP)
    env.step(RIGHT)
    assert env.render() == ". . . . .\n. . . . .\n. A . . .\nS C C C G\n"


def test_renders_a_picture():
    env = gym.make("RobustBE/CliffWorld-v0", render_mode="rgb_array")
    env.reset()
    for action in (UP, RIGHT, RIGHT):
        env.step(action)
    picture = env.render()
    assert picture.shape == (192, 240, 3)
    assert picture.dtype == np.uint8
    centres = {(x, y): tuple(picture[192 - 48 * y - 24, 48 * x + 24]) for x in range(WIDTH) for y in range(HEIGHT)}
    agent, cliff, start, goal, ground = (centres[xy] for xy in ((2, 1), (1, 0), (0, 0), (4, 0), (0, 3)))
    assert len({agent, cliff, start, goal, ground}) == 5
    assert centres[2, 0] == centres[3, 0] == cliff
    assert [xy for xy, colour in centres.items() if colour == agent] == [(2, 1)]
    assert sum(colour == ground for colour in centres.values()) == 14


def test_says_how_to_render():
    env = CliffWorldEnv()
    env.reset()
    with pytest.warns(UserWarning, match="render_mode='ansi' or 'rgb_array'"):
        assert env.render() is None


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("render_mode", [None, "ansi", "rgb_array"])
def test_passes_both_checkers_without_a_warning(observation, render_mode):
    env = gym.make("RobustBE/CliffWorld-v0", observation=observation, render_mode=render_mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gymnasium_check_env(env.unwrapped)
        sb3_check_env(env)
