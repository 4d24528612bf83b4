"""Registration, Mountain Car with the paper's cut-off, and MinAtar's seeds."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gymnasium as gym
import minatar.gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from stable_baselines3.common.env_checker import check_env as sb3_check_env
from stable_baselines3.common.env_util import make_vec_env

import sb3_robust_be
from sb3_robust_be.envs import MINATAR_GAMES, register_envs

MINATAR_IDS = [f"MinAtar/{name}-v{version}" for name in MINATAR_GAMES for version in (0, 1)]
OWN_IDS = ["RobustBE/CliffWorld-v0", "RobustBE/MountainCar1000-v0", "RobustBE/PuddleWorld-v0"]
OUT_OF_DATE = r".*MinAtar/\w+-v0 is out of date"  # pytest replaces the filters that registration has set

pytestmark = pytest.mark.filterwarnings(f"ignore:{OUT_OF_DATE}:DeprecationWarning")


def python(code: str) -> str:
    """What a fresh interpreter that finds this package prints; the test fails with its error if it has one."""
    root = Path(sb3_robust_be.__file__).parents[1]
    code = f"import sys; sys.path.insert(0, {str(root)!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


@contextmanager
def registered_by_minatar() -> Iterator[None]:
    """minatar's own registration in the place of ours."""
    ours = {env_id: gym.registry.pop(env_id) for env_id in MINATAR_IDS}
    try:
        minatar.gym.register_envs()
        yield
    finally:
        gym.registry.update(ours)


# Mountain Car


@pytest.mark.parametrize("seed", range(3))
def test_mountain_car_differs_from_gymnasiums_in_its_cut_off_only(seed):
    ours, theirs = gym.make("RobustBE/MountainCar1000-v0"), gym.make("MountainCar-v0", max_episode_steps=10_000)
    assert ours.spec.reward_threshold == theirs.spec.reward_threshold
    np.testing.assert_array_equal(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0])
    rng = np.random.default_rng(seed)
    for t in range(1, 1001):
        action = rng.integers(3)
        (obs, *ours_rest), (other, *theirs_rest) = ours.step(action), theirs.step(action)
        np.testing.assert_array_equal(obs, other)
        # rl_zoo3, once imported, makes gymnasium mark a cut-off in the infos.
        assert ours_rest[3].pop("TimeLimit.truncated", t == 1000) == (t == 1000)
        assert ours_rest == [-1.0, False, t == 1000, {}]
        assert theirs_rest == [-1.0, False, False, {}]


def test_mountain_car_reaches_the_goal():
    """Pushing the way the car moves swings it to the top: a termination, well before the cut-off."""
    env = gym.make("RobustBE/MountainCar1000-v0")
    (_, velocity), _ = env.reset(seed=0)
    ends = []
    while not any(ends):
        (_, velocity), _, terminated, truncated, _ = env.step(2 if velocity >= 0 else 0)
        ends.append(terminated or truncated)
    assert terminated
    assert len(ends) < 200


# Registration


def test_registering_again_changes_nothing():
    before = dict(gym.registry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_envs()
    assert gym.registry == before
    assert {*OWN_IDS, *MINATAR_IDS} <= set(before)


def test_registration_imports_no_environment():
    loaded = python("import sb3_robust_be, gymnasium; print(*gymnasium.registry); print(*sys.modules)")
    ids, modules = (set(line.split()) for line in loaded.splitlines())
    assert {*OWN_IDS, *MINATAR_IDS} <= ids
    assert "sb3_robust_be.envs" in modules
    heavy = {"minatar", "matplotlib", "seaborn", "torch", "stable_baselines3"}
    own = {f"sb3_robust_be.envs.{name}" for name in ("cliff_world", "minatar_env", "puddle_world")}
    assert not modules & (heavy | own)


def test_ids_that_name_the_module_work_where_nothing_is_imported():
    code = "import gymnasium; print(gymnasium.make({!r}).reset(seed=0)[0].shape)"
    assert python(code.format("sb3_robust_be:RobustBE/CliffWorld-v0")) == "(2,)\n"


def test_v0_of_minatar_is_not_called_out_of_date():
    code = "import sb3_robust_be, gymnasium; print(gymnasium.make({!r}).action_space)"
    assert python(code.format("MinAtar/Breakout-v0")) == "Discrete(6)\n"


def test_without_minatar_gymnasium_says_what_is_missing():
    code = """
sys.modules["minatar"] = None
import sb3_robust_be, gymnasium
print(*gymnasium.registry)
try:
    gymnasium.make("MinAtar/Breakout-v0")
except gymnasium.error.NamespaceNotFound as error:
    print(error)
"""
    ids, message = python(code).splitlines()
    assert "RobustBE/CliffWorld-v0" in ids
    assert "MinAtar" not in ids
    assert "proper package for MinAtar" in message


def test_ids_that_minatar_has_registered_are_left_alone():
    with registered_by_minatar():
        missing = MINATAR_IDS[3]
        del gym.registry[missing]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            register_envs()
        entry_points = {env_id: gym.spec(env_id).entry_point for env_id in MINATAR_IDS}
        gym.make(missing).reset()
    assert entry_points.pop(missing) == "sb3_robust_be.envs.minatar_env:MinAtarEnv"
    assert set(entry_points.values()) == {"minatar.gym:BaseEnv"}


# MinAtar


def play(env: gym.Env, actions: np.ndarray, **reset: int) -> list[tuple[bytes, float, bool]]:
    """Frames, rewards and ends from one (seeded or unseeded) reset on, through as many episodes as the actions last."""
    seen = [(env.reset(**reset)[0].tobytes(), 0.0, False)]
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        assert isinstance(reward, (int, float, np.integer))
        assert not truncated
        seen.append((obs.tobytes(), reward, terminated))
        if terminated:
            seen.append((env.reset()[0].tobytes(), 0.0, False))
    return seen


@pytest.mark.parametrize("env_id", MINATAR_IDS)
def test_minatar_is_registered_as_minatar_does_it(env_id):
    ours = gym.spec(env_id)
    with registered_by_minatar():
        theirs = gym.spec(env_id)
    assert ours.kwargs == theirs.kwargs
    assert ours.max_episode_steps is theirs.max_episode_steps is None
    env = ours.make()
    game = env.unwrapped.game
    assert game.sticky_action_prob == 0.1
    assert getattr(game.env, "ramping", True)
    assert env.action_space.n == (6 if env_id.endswith("v0") else len(game.minimal_action_set()))
    assert env.observation_space == gym.spaces.Box(0.0, 1.0, tuple(game.state_shape()), bool)
    assert env.observation_space.contains(env.reset(seed=0)[0])


@pytest.mark.parametrize("name", MINATAR_GAMES)
def test_minatar_games_are_minatars(name):
    """Same seed, same actions: the same frames and rewards as minatar's own class, later unseeded episodes included."""
    actions = np.random.default_rng(1).integers(6, size=3000)
    ours = play(gym.make(f"MinAtar/{name}-v0").unwrapped, actions, seed=5)
    assert ours == play(minatar.gym.BaseEnv(MINATAR_GAMES[name]), actions, seed=5)
    assert len(set(ours)) > 100


@pytest.mark.parametrize("env_id", MINATAR_IDS)
def test_minatar_seed_decides_the_episode_whatever_came_before(env_id):
    """Half of the steps stick, so that an action left over from before the reset would show within a few seeds."""
    kwargs = {"sticky_action_prob": 0.5}
    used, rng = gym.make(env_id, **kwargs), np.random.default_rng(0)
    different = set()
    for seed in range(12):
        actions = rng.integers(used.action_space.n, size=40)
        episode = play(gym.make(env_id, **kwargs), actions, seed=seed)
        assert play(used, actions, seed=seed) == episode
        play(used, actions[::-1])
        different.add(tuple(episode))
    assert len(different) == 12


def test_minatars_own_seeded_reset_depends_on_what_came_before():
    """Why MinAtarEnv exists; if this fails, minatar has mended it, and that part of MinAtarEnv can go."""
    used, fresh = (minatar.gym.BaseEnv("breakout", sticky_action_prob=0.5) for _ in range(2))
    moves, waiting = np.array([1, 3, 1, 3, 1, 3]), np.zeros(5, dtype=int)
    differences = 0
    for seed in range(12):
        play(used, moves)
        play(fresh, waiting)  # leaves "no action" behind, as in a new environment
        differences += play(used, waiting, seed=seed) != play(fresh, waiting, seed=seed)
    assert differences > 0


def test_minatar_seeds_reach_it_through_sb3():
    def rollout(seed: int) -> list[np.ndarray]:
        env = make_vec_env("MinAtar/Asterix-v0", n_envs=2, seed=seed)
        actions = np.random.default_rng(2).integers(6, size=(300, 2))
        steps = [env.reset()]
        for action in actions:
            steps.extend(env.step(action)[:3])
        return steps

    first, second, other = rollout(3), rollout(3), rollout(4)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("env_id", MINATAR_IDS)
def test_minatar_passes_both_checkers(env_id):
    """What remains: minatar's old ``seed`` method, and SB3's advice on images, which its NatureCNN would need."""
    env = gym.make(env_id, render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*Official support for the `seed` function is dropped")
        warnings.filterwarnings("ignore", "It seems that your observation ")
        warnings.filterwarnings("ignore", "The minimal resolution for an image is 36x36")
        gymnasium_check_env(env.unwrapped)
        sb3_check_env(env)


def test_minatar_pictures_can_be_recorded():
    env = gym.make("MinAtar/Breakout-v0", render_mode="rgb_array")
    obs, _ = env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (160, 160, 3)
    assert picture.dtype == np.uint8
    lit = picture.reshape(10, 16, 10, 16, 3).max(axis=(1, 3, 4)) > 0
    np.testing.assert_array_equal(lit, obs.any(axis=2))
    assert picture.max() > 100
    env = gym.make("MinAtar/Breakout-v0", render_mode="array")
    obs, _ = env.reset(seed=0)
    np.testing.assert_array_equal(env.unwrapped.render(), obs)
