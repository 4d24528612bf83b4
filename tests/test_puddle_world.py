"""Puddle World: geometry by hand, noise, walls, ends of episodes, seeds."""

from __future__ import annotations

import math
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from stable_baselines3.common.env_checker import check_env as sb3_check_env

import sb3_robust_be  # noqa: F401  (registers the environments)
from sb3_robust_be.envs.puddle_world import MOVES, PuddleWorldEnv, in_goal, moved, reward_at

UP, RIGHT, DOWN, LEFT = range(4)
ENV_ID = "RobustBE/PuddleWorld-v0"


def made(state: tuple[float, float] = (0.2, 0.4), seed: int = 0) -> PuddleWorldEnv:
    env = PuddleWorldEnv()
    env.reset(seed=seed)
    env.state = np.array(state)
    return env


# Geometry


@pytest.mark.parametrize(
    ("x", "y", "reward"),
    [
        (0.9, 0.1, -1),  # far from both
        (0.2, 0.75, -1 - 40),  # on the centre line of the horizontal one
        (0.2, 0.70, -1 - 20),  # half-way to its lower edge
        (0.2, 0.83, -1 - 8),
        (0.2, 0.85, -1),  # at its upper edge, and beyond
        (0.2, 0.86, -1),
        (0.45, 0.5, -1 - 40),  # on the centre line of the vertical one
        (0.40, 0.5, -1 - 20),
        (0.53, 0.5, -1 - 8),
        (0.55, 0.5, -1),  # at its right edge
        (0.1, 0.75, -1 - 40),  # the left end of the horizontal centre line
        (0.05, 0.75, -1 - 20),  # in the half-disc beyond it
        (0.07, 0.79, -1 - 20),  # there, too: 3-4-5, at 0.05 from the end
        (0.0, 0.75, -1),  # where the half-disc touches the wall
        (0.02, 0.67, -1),  # outside the half-disc, in the corner of a rectangle around it: √0.0128 > 0.1
        (0.45, 0.35, -1 - 20),  # the lower end of the vertical one
        (0.48, 0.36, -1 - 20),
        (0.45, 0.3, -1),
        (0.45, 0.85, -1 - 20),  # its upper end, at the upper edge of the horizontal one
        (0.51, 0.88, -1),  # 6-8-10, at the edge of the upper half-disc
    ],
)
def test_rewards_by_hand(x, y, reward):
    assert reward_at(np.array([x, y])) == pytest.approx(reward, abs=1e-9)


@pytest.mark.parametrize(
    ("x", "y", "horizontal", "vertical"),
    [
        (0.45, 0.75, 40, 40),  # the end of the one on the centre line of the other
        (0.42, 0.75, 40, 28),
        (0.40, 0.70, 20, 20),
        (0.48, 0.79, 20, 28),  # beyond the right end of the horizontal one by 0.03 and 0.04, beside the vertical one
        (0.45, 0.67, 8, 40),
        (0.36, 0.75, 40, 4),
    ],
)
def test_in_both_puddles_penalties_add(x, y, horizontal, vertical):
    """The deeper one alone would give the larger of the two."""
    assert reward_at(np.array([x, y])) == pytest.approx(-1 - horizontal - vertical, abs=1e-9)


def test_depth_is_the_distance_to_the_edge():
    """Against the nearest of 16 000 points on the edge of the horizontal puddle: two lines and two half-circles."""
    angles = np.linspace(0, np.pi, 4001)
    along = np.linspace(0.1, 0.45, 4001)
    left = np.stack([0.1 - 0.1 * np.sin(angles), 0.75 + 0.1 * np.cos(angles)])
    right = np.stack([0.45 + 0.1 * np.sin(angles), 0.75 + 0.1 * np.cos(angles)])
    edge = np.concatenate([left, right, [along, along * 0 + 0.65], [along, along * 0 + 0.85]], axis=1)
    rng = np.random.default_rng(0)
    points = rng.uniform([[0.0], [0.64]], [[0.33], [0.86]], size=(2, 200))  # far from the vertical one
    distances = np.sqrt(((points[:, :, None] - edge[:, None]) ** 2).sum(axis=0)).min(axis=1)
    x, y = points
    inside = (abs(y - 0.75) < 0.1) & (x > 0.1) | (np.hypot(x - 0.1, y - 0.75) < 0.1)
    assert 150 < inside.sum() < 200
    np.testing.assert_allclose(reward_at(points)[inside], -1 - 400 * distances[inside], atol=0.02)
    np.testing.assert_array_equal(reward_at(points)[~inside], -1)


def test_functions_take_one_position_or_many_alike():
    rng = np.random.default_rng(0)
    many, moves, normals = rng.random((2, 500)), np.array(MOVES)[rng.integers(4, size=500)].T, rng.normal(size=(2, 500))
    for function, arguments in ((reward_at, [many]), (in_goal, [many]), (moved, [many, moves, normals])):
        together = function(*arguments)
        apart = [function(*(argument[:, i].copy() for argument in arguments)) for i in range(500)]
        np.testing.assert_array_equal(together.T, apart)


@pytest.mark.parametrize(
    ("xy", "goal"),
    [
        ((1, 1), True),
        ((0.95, 0.95), True),
        ((0.9, 1), True),
        ((1, 0.9), True),
        ((0.9499, 0.95), False),
        ((1, 0.8999), False),
        ((0.2, 0.4), False),
    ],
)
def test_goal(xy, goal):
    assert in_goal(np.array(xy, float)) == goal


# Steps


@pytest.mark.parametrize(("action", "dx", "dy"), [(UP, 0, 0.05), (RIGHT, 0.05, 0), (DOWN, 0, -0.05), (LEFT, -0.05, 0)])
def test_actions_and_noise(action, dx, dy):
    """20 000 steps from the same place: mean ±5 standard errors, standard deviation, independence, a normal's shape."""
    env, n = made(), 20_000
    moves = np.empty((n, 2))
    for row in moves:
        env.state = np.array([0.7, 0.3])
        env.step(action)
        row[:] = env.state - [0.7, 0.3]
    noise = (moves - [dx, dy]) / 0.01
    assert np.abs(noise.mean(axis=0)).max() < 5 / math.sqrt(n)
    assert np.abs(noise.std(axis=0) - 1).max() < 5 / math.sqrt(2 * n)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 5 / math.sqrt(n)
    np.testing.assert_allclose([(np.abs(noise) < k).mean() for k in (1, 2)], [0.6827, 0.9545], atol=0.012)


def test_a_step_by_hand():
    """The reward, the end and the observation are of the state after the move, noise included."""
    env = made((0.2, 0.64), seed=3)
    normals = made((0.2, 0.64), seed=3).np_random.standard_normal(2)
    observation, reward, terminated, truncated, info = env.step(np.int64(UP))
    x, y = 0.2 + 0.01 * normals[0], 0.69 + 0.01 * normals[1]
    assert env.state == pytest.approx([x, y], abs=1e-15)
    np.testing.assert_array_equal(observation, np.float32([x, y]), strict=True)
    assert reward == pytest.approx(-1 - 400 * (0.1 - (0.75 - y)))
    assert reward < -10, "where the step began is outside the puddle"
    assert (type(reward), terminated, truncated, info) == (float, False, False, {})


def test_a_step_out_of_a_puddle_costs_one():
    env = made((0.53, 0.6))
    assert env.step(RIGHT)[1] == -1.0


@pytest.mark.parametrize(
    ("start", "action", "axis", "wall"),
    [((0.0, 0.2), LEFT, 0, 0.0), ((1.0, 0.2), RIGHT, 0, 1.0), ((0.7, 0.0), DOWN, 1, 0.0), ((0.2, 1.0), UP, 1, 1.0)],
)
def test_walls_cut_one_coordinate_and_leave_the_others_noise(start, action, axis, wall):
    env = made(start)
    others = set()
    for _ in range(100):
        env.state = np.array(start)
        observation, *_ = env.step(action)
        assert env.state[axis] == observation[axis] == wall
        others.add(env.state[1 - axis] - start[1 - axis])
    assert len(others) == 100
    assert max(np.abs(list(others))) < 0.05


def test_noise_alone_leads_off_a_wall_and_no_further_than_it():
    env = made()
    below = []
    for _ in range(1000):
        env.state = np.array([0.0, 0.2])
        env.step(UP)
        below.append(env.state[0])
    assert 400 < np.count_nonzero(below) < 600
    assert min(below) == 0.0


def test_terminates_in_the_goal_with_the_reward_of_a_step():
    env = made((0.94, 0.94))
    _, reward, terminated, truncated, _ = env.step(RIGHT)
    assert (reward, terminated, truncated) == (-1.0, True, False)
    assert not env.reset()[0].sum() >= 1.9


def test_a_detour_is_worth_it():
    """From (0.2, 0.4): below the vertical puddle no step is penalised; straight through it, some four are."""

    def play(waypoints, seed):
        env = gym.make(ENV_ID, start=(0.2, 0.4))
        (x, y), _ = env.reset(seed=seed)
        rewards, terminated = [], False
        while not terminated:
            if len(waypoints) > 1 and max(abs(waypoints[0][0] - x), abs(waypoints[0][1] - y)) < 0.04:
                waypoints = waypoints[1:]
            dx, dy = waypoints[0][0] - x, waypoints[0][1] - y
            action = (RIGHT if dx > 0 else LEFT) if abs(dx) > abs(dy) else (UP if dy > 0 else DOWN)
            (x, y), reward, terminated, truncated, _ = env.step(action)
            rewards.append(reward)
            assert not truncated
        return sum(rewards), np.less(rewards, -1).sum()

    around = [play([(0.2, 0.2), (0.7, 0.2), (1.0, 1.0)], seed) for seed in range(20)]
    through = [play([(0.7, 0.5), (1.0, 1.0)], seed) for seed in range(20)]
    assert all(penalised == 0 and -45 < total < -30 for total, penalised in around)
    # Four steps of 0.05 through a bar of 0.2, at depths of about 0.025, 0.075, 0.075 and 0.025.
    assert np.mean([total for total, _ in through]) == pytest.approx(-28 - 400 * 0.2, abs=10)
    assert max(total for total, _ in through) < min(total for total, _ in around)


@pytest.mark.parametrize(("kwargs", "limit"), [({}, 1000), ({"max_episode_steps": 7}, 7)])
def test_cuts_off_without_terminating(kwargs, limit):
    env = gym.make(ENV_ID, start=(0.9, 0.05), **kwargs)
    env.reset(seed=0)
    steps = [env.step(DOWN) for _ in range(limit)]
    assert not any(terminated for _, _, terminated, _, _ in steps)
    assert [truncated for _, _, _, truncated, _ in steps] == [False] * (limit - 1) + [True]
    assert sum(reward for _, reward, *_ in steps) == -limit


# Starts and seeds


def test_starts_are_uniform_outside_the_goal():
    """Cells of 0.25: each has its share, the goal's with what the goal leaves of it."""
    env, n = PuddleWorldEnv(), 20_000
    env.reset(seed=0)
    starts = np.array([env.reset()[0] for _ in range(n)])
    assert starts.shape == (n, 2)
    assert (starts.sum(axis=1) < 1.9).all()
    counts, *_ = np.histogram2d(*starts.T, bins=4, range=[[0, 1], [0, 1]])
    areas = np.full((4, 4), 1 / 16)
    areas[3, 3] -= 0.005
    expected = n * areas / 0.995
    assert np.abs((counts - expected) / np.sqrt(expected)).max() < 4.5


def test_a_fixed_start():
    env = gym.make(ENV_ID, start=(0.2, 0.4))
    for seed in (0, 1, None):
        observation, info = env.reset(seed=seed)
        np.testing.assert_array_equal(observation, np.float32([0.2, 0.4]), strict=True)
        assert info == {}
        observation += 1  # what the caller does with it must not reach the environment
        env.step(UP)


@pytest.mark.parametrize("start", [(0.2,), (0.2, 0.4, 0.1), (-0.1, 0.5), (0.5, 1.1), (1, 0.9), (math.nan, 0), "centre"])
def test_refuses_what_is_no_start(start):
    with pytest.raises(ValueError, match=r"start=.* is no start: give \(x, y\) with both from 0 to 1 and x \+ y < 1.9"):
        PuddleWorldEnv(start=start)


@pytest.mark.parametrize("action", [-1, 4, np.int64(7)])
def test_refuses_unknown_actions(action):
    with pytest.raises(ValueError, match=r"action=.*is invalid: choose 0 \(up\)"):
        made().step(action)


def test_seeds_decide_everything():
    actions = np.random.default_rng(0).integers(4, size=300)

    def episode(seed):
        env = gym.make(ENV_ID)
        first, _ = env.reset(seed=seed)
        return [first.tolist()] + [(o.tolist(), r, t) for o, r, t, *_ in map(env.unwrapped.step, actions)]

    assert episode(5) == episode(5)
    assert episode(5)[0] != episode(6)[0]
    env = gym.make(ENV_ID, start=(0.2, 0.4))
    noises = [(env.reset(seed=seed), env.step(UP))[1][0].tolist() for seed in (0, 0, 1)]
    assert noises[0] == noises[1] != noises[2]


@pytest.mark.parametrize("start", [None, (0.2, 0.4)])
def test_passes_both_checkers_without_a_warning(start):
    env = gym.make(ENV_ID, start=start)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gymnasium_check_env(env.unwrapped)
        sb3_check_env(env)
