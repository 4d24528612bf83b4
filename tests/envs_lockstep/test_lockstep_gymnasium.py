"""The numpy versions against gymnasium's environments, one step at a time from equal states and along episodes."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import AcrobotEnv, CartPoleEnv
from gymnasium.wrappers import TimeAwareObservation
from lockstep_envs import ACROBOT, CART_POLE, CLIFF_WORLD, MOUNTAIN_CAR, PUDDLE_WORLD, random_actions

import sb3_robust_be  # noqa: F401  (registers the environments)
from sb3_robust_be.envs.lockstep import VECTORISED, Step, episode_seed, make_lockstep
from sb3_robust_be.envs.lockstep.generic import GenericEnv
from sb3_robust_be.envs.lockstep.vectorised import VectorisedEnv

pytestmark = pytest.mark.filterwarnings("ignore:.*CartPole-v0 is out of date:DeprecationWarning")

SEEDS = (3, 11, 4, 0)
N_STEPS = 10_000 // len(SEEDS)

# Limits at which many episodes are cut off while others, and some of the same length, terminate.
CASES = [
    ("CartPole-v0", {}),
    (CART_POLE, {"sutton_barto_reward": True, "max_episode_steps": 20}),
    (MOUNTAIN_CAR, {"goal_velocity": 0.03, "max_episode_steps": 160}),
    ("RobustBE/MountainCar1000-v0", {}),
    (ACROBOT, {"max_episode_steps": 120}),
    (CLIFF_WORLD, {"max_episode_steps": 100}),
    (CLIFF_WORLD, {"observation": "one_hot"}),
]
# Beside these, an environment whose steps are random: its steps from equal states are not equal, its episodes are.
NOISY_CASES = [
    (PUDDLE_WORLD, {"max_episode_steps": 60}),
    (PUDDLE_WORLD, {"start": (0.2, 0.4), "max_episode_steps": 60}),
]
NUMPY_IDS = ["CartPole-v0", CART_POLE, MOUNTAIN_CAR, "RobustBE/MountainCar1000-v0", ACROBOT, CLIFF_WORLD, PUDDLE_WORLD]


def some_towards_the_end(observations: np.ndarray, actions: np.ndarray, random: np.ndarray) -> np.ndarray:
    """Seven in ten of the actions replaced by those that swing a car or a pendulum up, so that episodes terminate."""
    speed = observations[:, 1] if observations.shape[1] == 2 else -observations[:, 4]
    return np.where(random < 0.7, 2 * (speed > 0), actions)


def step_from(env: gym.Env, state: np.ndarray, action: np.int64) -> tuple[np.ndarray, list[float], np.ndarray]:
    """gymnasium's step from a given state, as if it was the first: observation, (reward, terminated), next state."""
    env.state = state
    env.steps_beyond_terminated = None
    observation, reward, terminated, truncated, _ = env.step(action)
    assert not truncated
    return observation, [reward, terminated], np.asarray(env.state)


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_steps_are_gymnasiums(env_id, kwargs):
    """Each step from equal states; where an episode begins, its first observation and the state behind it."""
    env = make_lockstep(env_id, SEEDS, **kwargs)
    assert isinstance(env, VectorisedEnv)
    reference = gym.make(env_id, **kwargs).unwrapped
    rng, seen, states = np.random.default_rng(0), env.reset(), [env.state_dict()["states"]]
    steps, expected = [], []
    for actions in random_actions(env, N_STEPS):
        if env.action_space.n == 3:
            actions = some_towards_the_end(seen, actions, rng.random(len(SEEDS)))
        expected.append([step_from(reference, *pair) for pair in zip(states[-1], actions, strict=True)])
        steps.append(step := env.step(actions))
        states.append(env.state_dict()["states"])
        seen = step.observations
    ours = Step(*map(np.array, zip(*steps, strict=True)))
    ended = ours.terminated | ours.truncated
    observations, outcomes, following = (np.array([[one[k] for one in row] for row in expected]) for k in range(3))
    np.testing.assert_array_max_ulp(ours.final_observations, observations, maxulp=1)
    np.testing.assert_array_equal(np.stack([ours.rewards, ours.terminated], axis=-1), outcomes)
    np.testing.assert_array_equal(ours.observations[~ended], ours.final_observations[~ended])
    for member, seed in enumerate(SEEDS):
        for k, t in enumerate(np.flatnonzero(ended[:, member]), start=1):
            first, _ = reference.reset(seed=episode_seed(seed, k))
            np.testing.assert_array_equal(ours.observations[t, member], first)
            following[t, member] = reference.state
    np.testing.assert_allclose(np.array(states[1:]), following, rtol=1e-12, atol=1e-12)
    limit = kwargs.get("max_episode_steps", gym.spec(env_id).max_episode_steps)
    np.testing.assert_array_equal(ours.truncated, steps_of_episodes(ended) == limit)
    assert (ours.terminated & ~ours.truncated).any()
    assert (ours.truncated & ~ours.terminated).any() or "max_episode_steps" not in kwargs


def steps_of_episodes(ended: np.ndarray) -> np.ndarray:
    """Which step of its episode each step is, from 1; ``ended`` is ``(steps, N)``."""
    count, counts = np.zeros(ended.shape[1], int), []
    for row in ended:
        counts.append(count + 1)
        count = np.where(row, 0, count + 1)
    return np.array(counts)


WIDE = {
    CART_POLE: ([-2.5, -30, -0.22, -30], [2.5, 30, 0.22, 30]),
    MOUNTAIN_CAR: ([-1.2, -0.07], [0.6, 0.07]),
    ACROBOT: ([-np.pi, -np.pi, -4 * np.pi, -9 * np.pi], [np.pi, np.pi, 4 * np.pi, 9 * np.pi]),
}


@pytest.mark.parametrize("env_id", WIDE)
def test_steps_from_all_over_the_state_space(env_id):
    """Where play hardly comes: at the walls, at the largest speeds, over the top, and past the goal."""
    n = 2000
    env, reference = make_lockstep(env_id, range(n), max_episode_steps=-1), gym.make(env_id).unwrapped
    env.reset()
    states = np.random.default_rng(0).uniform(*WIDE[env_id], size=(n, len(WIDE[env_id][0])))
    env.load_state_dict(env.state_dict() | {"states": states})
    [actions] = random_actions(env, 1)
    expected = [step_from(reference, *pair) for pair in zip(states, actions, strict=True)]
    observations, outcomes, following = (np.array([one[k] for one in expected]) for k in range(3))
    step = env.step(actions)
    np.testing.assert_array_max_ulp(step.final_observations, observations, maxulp=1)
    np.testing.assert_array_equal(np.stack([step.rewards, step.terminated], axis=-1), outcomes)
    np.testing.assert_allclose(
        env.state_dict()["states"][~step.terminated], following[~step.terminated], rtol=1e-12, atol=1e-12
    )
    assert n / 50 < step.terminated.sum() < 49 * n / 50
    for extreme in {MOUNTAIN_CAR: (-1.2, 0.6, -0.07, 0.07), ACROBOT: WIDE[ACROBOT][1][2:], CART_POLE: ()}[env_id]:
        assert (following == extreme).any(), "no state has been cut at this bound"


@pytest.mark.parametrize(("env_id", "kwargs"), NOISY_CASES)
def test_noisy_episodes_are_the_single_environments_to_the_last_bit(env_id, kwargs):
    """10 000 steps, half of them towards the goal, against one instance per member that is reset by hand."""
    env, rng = make_lockstep(env_id, SEEDS, **kwargs), np.random.default_rng(0)
    singles = [gym.make(env_id, **kwargs) for _ in SEEDS]
    episodes, n_ends = [0] * len(SEEDS), {"terminated": 0, "truncated": 0}
    shown, rewards = env.reset(), []
    for i, single in enumerate(singles):
        np.testing.assert_array_equal(shown[i], single.reset(seed=episode_seed(SEEDS[i], 0))[0], strict=True)
    for actions in random_actions(env, N_STEPS):
        actions = np.where(rng.random(len(SEEDS)) < 0.5, actions % 2, actions)
        step = env.step(actions)
        for i, single in enumerate(singles):
            observation, reward, terminated, truncated, _ = single.step(actions[i])
            np.testing.assert_array_equal(step.final_observations[i], observation, strict=True)
            assert (step.rewards[i], step.terminated[i]) == (reward, terminated)
            # rl_zoo3, once imported, replaces TimeLimit by one that does not truncate in the step that terminates.
            assert (step.truncated[i] and not terminated) == (truncated and not terminated)
            if terminated or truncated:
                n_ends["terminated" if terminated else "truncated"] += 1
                episodes[i] += 1
                observation, _ = single.reset(seed=episode_seed(SEEDS[i], episodes[i]))
            np.testing.assert_array_equal(step.observations[i], observation, strict=True)
            np.testing.assert_array_equal(env.state_dict()["states"][i], single.unwrapped.state, strict=True)
        rewards.append(step.rewards)
    assert min(n_ends.values()) > 10
    assert np.unique(rewards).size > 500, "few steps have ended in a puddle"


@pytest.mark.parametrize(("env_id", "kwargs"), CASES + NOISY_CASES)
def test_trajectories_are_those_of_the_generic_adapter(env_id, kwargs):
    seeds = range(3)
    fast = make_lockstep(env_id, seeds, **kwargs)
    slow = make_lockstep(lambda: gym.make(env_id, **kwargs), seeds)
    assert isinstance(slow, GenericEnv)
    assert (fast.observation_space, fast.action_space) == (slow.observation_space, slow.action_space)
    np.testing.assert_array_equal(fast.reset(), slow.reset(), strict=True)
    for actions in random_actions(fast, 300):
        ours, theirs = fast.step(actions), slow.step(actions)
        assert ours.final_action_masks is theirs.final_action_masks is None
        for one, other in zip(ours[:-1], theirs[:-1], strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
        # rl_zoo3, once imported, replaces TimeLimit by one that does not truncate in the step that terminates.
        cut_off, theirs_cut_off = (step.truncated & ~step.terminated for step in (ours, theirs))
        np.testing.assert_array_equal(cut_off, theirs_cut_off)
        np.testing.assert_array_equal(ours.terminated, theirs.terminated)
        np.testing.assert_array_equal(ours.rewards, theirs.rewards)
        np.testing.assert_allclose(ours.observations, theirs.observations, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(ours.final_observations, theirs.final_observations, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("limit", "ends"), [(5, (False, True)), (6, (True, True)), (7, (True, False)), (-1, (True, False))]
)
def test_the_time_limit_beside_a_termination(limit, ends):
    """The shortest way through Cliff World takes six steps; a limit of −1 is none, as for gymnasium."""
    env = make_lockstep(CLIFF_WORLD, [0, 1], max_episode_steps=limit)
    env.reset()
    for t, action in enumerate((0, 1, 1, 1, 1, 2), start=1):
        step = env.step(np.array([action, 3]))
        at_limit = t == limit
        if t in (limit, 6):
            assert (step.terminated[0], step.truncated[0]) == ends
            np.testing.assert_array_equal(step.observations[0], [0, 0])
            np.testing.assert_array_equal(step.final_observations[0], [4, 1] if t == 5 else [4, 0])
            break
        assert not step.terminated.any()
        assert not step.truncated.any()
    assert (step.terminated[1], step.truncated[1]) == (False, at_limit)


@pytest.mark.parametrize("env_id", NUMPY_IDS)
def test_ids_get_the_numpy_version(env_id):
    env = make_lockstep(env_id, [0])
    assert isinstance(env, VECTORISED)
    assert isinstance(gym.make(env_id).unwrapped, env.env_class)


def semi_implicit() -> gym.Env:
    env = CartPoleEnv()
    env.kinematics_integrator = "semi-implicit"
    return env


def heavy() -> gym.Env:
    env = CartPoleEnv()
    env.gravity = 25.0
    return env


def register(monkeypatch: pytest.MonkeyPatch, env_id: str, **spec: object) -> None:
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.registry))
    monkeypatch.setattr(gym, "registry", gym.envs.registration.registry)
    gym.register(env_id, **spec)


def test_what_numpy_does_not_do_goes_to_the_generic_adapter(monkeypatch):
    time_aware = TimeAwareObservation(gym.make(CART_POLE)).spec.additional_wrappers
    register(
        monkeypatch, "Test/TimeAware-v0", entry_point=CartPoleEnv, max_episode_steps=9, additional_wrappers=time_aware
    )
    gym.register("Test/SemiImplicit-v0", entry_point=semi_implicit)
    gym.register("Test/Subclass-v0", entry_point=type("Subclass", (CartPoleEnv,), {}))
    gym.register("Test/SameClass-v0", entry_point=CartPoleEnv)
    for env_id in ("Test/TimeAware-v0", "Test/SemiImplicit-v0", "Test/Subclass-v0"):
        env = make_lockstep(env_id, [0])
        assert isinstance(env, GenericEnv)
        assert len(env.reset()[0]) == (5 if "TimeAware" in env_id else 4)
    assert isinstance(make_lockstep("Test/SameClass-v0", [0]), VectorisedEnv)
    assert isinstance(make_lockstep(CART_POLE, [0], render_mode="rgb_array"), GenericEnv)
    for option, value in (("book_or_nips", "nips"), ("torque_noise_max", 0.1)):
        with monkeypatch.context() as patch:
            patch.setattr(AcrobotEnv, option, value)
            assert isinstance(make_lockstep(ACROBOT, [0]), GenericEnv)


def test_constants_are_the_environments(monkeypatch):
    register(monkeypatch, "Test/Heavy-v0", entry_point=heavy, max_episode_steps=50)
    env, light = make_lockstep("Test/Heavy-v0", [4]), make_lockstep(CART_POLE, [4])
    assert isinstance(env, VectorisedEnv)
    env.reset()
    light.reset()
    reference = heavy()
    reference.reset(seed=episode_seed(4, 0))
    for _ in range(5):
        expected, *_ = reference.step(1)
        np.testing.assert_array_equal(env.step(np.ones(1, int)).observations[0], expected)
        assert not np.array_equal(light.step(np.ones(1, int)).observations[0], expected)
