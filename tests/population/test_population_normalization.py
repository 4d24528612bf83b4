"""Populations that normalise, against SB3's ``VecNormalize`` on the same transitions."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from populations import SMALL
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_robust_be.envs.lockstep import episode_seed
from sb3_robust_be.population import Population

STEPS = 90


class Drift(gym.Env):
    """A walk with rewards and observations far from 0; Dict observations have a part that must stay as it is."""

    action_space = spaces.Discrete(2)

    def __init__(self, several: bool = False) -> None:
        x = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.several = several
        self.observation_space = spaces.Dict({"x": x, "n": spaces.Discrete(4)}) if several else x

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t, self.length = self.np_random.normal(50.0, 9.0, 3), 0, self.np_random.integers(5, 12)
        return self._seen(), {}

    def step(self, action):
        self.t += 1
        self.x = self.x + self.np_random.normal(action - 0.5, [1.0, 5.0, 0.01])
        ended = self.t >= self.length
        return self._seen(), float(100.0 + 30.0 * action + self.x[0]), ended and self.t % 2 == 0, ended, {}

    def _seen(self):
        x = self.x.astype(np.float32)
        return {"x": x, "n": self.t % 4} if self.several else x


class Replayed(gym.Env):
    """Shows an agent of SB3 what a member has seen: its episodes, whatever the actions given."""

    def __init__(self, seed: int, several: bool, actions: np.ndarray) -> None:
        self.inner, self.seed_of, self.actions = Drift(several), seed, iter(actions)
        self.observation_space, self.action_space, self.episode = self.inner.observation_space, spaces.Discrete(2), 0

    def reset(self, *, seed=None, options=None):
        found = self.inner.reset(seed=episode_seed(self.seed_of, self.episode))
        self.episode += 1
        return found

    def step(self, action):
        return self.inner.step(next(self.actions))


def trained(normalize, several=False, **more):
    policy = "MultiInputPolicy" if several else "MlpPolicy"
    arguments = {**SMALL, "gamma": [0.9, 0.5], **more}
    population = Population(
        "qlc", policy, Drift, [3, 8], env_kwargs={"several": several}, normalize=normalize, **arguments
    )
    return population.learn(STEPS)


def replayed(population, member, several, options):
    """VecNormalize after the transitions of a member."""
    stored = population._trainer.replay.fields()
    actions = stored["actions"][member, :STEPS].numpy().ravel()
    gamma = population.members[member].settings["gamma"]
    env = VecNormalize(
        DummyVecEnv([lambda: Replayed(population.members[member].seed, several, actions)]),
        **{"gamma": gamma, **options},
    )
    observation = env.reset()
    for action in actions:
        observation, *_ = env.step(np.array([action]))
    return env, observation


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm_reward": False},
        {"norm_obs": False},
        {"clip_obs": 0.5, "clip_reward": 0.1, "epsilon": 1.0, "gamma": 0.3},
    ],
)
def test_every_member_is_scaled_as_by_its_own_vec_normalize(options, several):
    if several and options.get("norm_obs", True):
        options = {**options, "norm_obs_keys": ["x"]}
    population = trained(options, several)
    trainer = population._trainer
    uniforms = np.random.default_rng(0).random((4, 16))
    raw = trainer.replay.sample(uniforms)
    batch = trainer.normalizer.batch(raw)
    shown = trainer.normalizer.observations(trainer.observations)
    for member in range(4):
        env, observation = replayed(population, member, several, options)
        ours = {key: x[member] for key, x in shown.items()} if several else {"": shown[member]}
        theirs = {key: x[0] for key, x in observation.items()} if several else {"": observation[0]}
        for key, x in theirs.items():
            np.testing.assert_array_equal(ours[key], x)
        # A buffer of SB3's, which scales by the environment's statistics as it samples.
        kind = DictReplayBuffer if several else ReplayBuffer
        buffer = kind(16, env.observation_space, env.action_space, device="cpu", handle_timeout_termination=False)
        for i in range(16):
            one = {name: x[member, i].numpy() for name, x in raw.items()}
            seen, following = (
                {key: one[f"{field}/{key}"] for key in ("x", "n")} if several else one[field]
                for field in ("observations", "next_observations")
            )
            buffer.add(seen, following, one["actions"], one["rewards"], one["dones"], [{}])
        theirs_batch = buffer._get_samples(np.arange(16), env=env)
        for field in ("observations", "next_observations"):
            pairs = getattr(theirs_batch, field)
            for key, x in pairs.items() if several else [("", pairs)]:
                own = batch[f"{field}/{key}" if several else field][member].numpy()
                np.testing.assert_array_equal(own.reshape(x.shape), x.numpy())
        np.testing.assert_allclose(batch["rewards"][member].numpy(), theirs_batch.rewards.numpy(), rtol=1e-6)


def test_what_is_scaled_differs_from_what_is_not():
    population = trained(True)
    trainer = population._trainer
    raw = trainer.replay.sample(np.random.default_rng(0).random((4, 8)))
    batch = trainer.normalizer.batch(raw)
    assert raw["observations"].abs().max() > 40
    assert batch["observations"].abs().max() <= 10
    assert raw["rewards"].min() > 100
    assert 0 < batch["rewards"].max() <= 10
    # The discount of the scaling is each member's own.
    assert trainer.normalizer.state()["return/var"][0] != trainer.normalizer.state()["return/var"][2]


def test_returns_are_of_the_true_rewards_and_members_do_not_mix():
    normalized, alone = (
        trained(True),
        Population("qlc", "MlpPolicy", Drift, [8], normalize=True, **{**SMALL, "gamma": 0.5}),
    )
    alone.learn(STEPS)
    assert min(float(own.returns.min()) for own in normalized.returns) > 500
    np.testing.assert_array_equal(normalized.returns[3].returns, alone.returns[0].returns)
    for name, x in alone._trainer.normalizer.state().items():
        np.testing.assert_array_equal(normalized._trainer.normalizer.state()[name][3:], x, err_msg=name)


def test_a_member_as_an_agent_has_its_statistics():
    population = trained(True)
    member = population[1]
    env = member.get_vec_normalize_env()
    expected, _ = replayed(population, 1, False, {})
    assert env.gamma == 0.9
    np.testing.assert_array_equal(env.obs_rms.mean, expected.obs_rms.mean)
    np.testing.assert_array_equal(env.obs_rms.var, expected.obs_rms.var)
    assert (env.obs_rms.count, env.ret_rms.count) == (expected.obs_rms.count, expected.ret_rms.count)
    assert float(env.ret_rms.var) == float(expected.ret_rms.var)
    # The population evaluates it as its own environment scales what it sees.
    raw = Drift()
    observation, _ = raw.reset(seed=episode_seed(episode_seed(population.members[1].seed, 0), 0))
    total, ended = 0.0, False
    while not ended:
        action, _ = member.predict(env.normalize_obs(observation), deterministic=True)
        observation, reward, terminated, truncated, _ = raw.step(int(action))
        total, ended = total + reward, terminated or truncated
    assert population.evaluate(1)[1].tolist() == pytest.approx([total])
    member.learn(30)
    assert np.isfinite(member.q_net.q_net[0].weight.detach().numpy()).all()


def test_saved_and_loaded_it_goes_on_bit_for_bit(tmp_path):
    population = trained(True, learning_starts=10)
    population.save(tmp_path)
    loaded = Population.load(tmp_path)
    assert loaded.normalize is True
    for one in (population, loaded):
        one.learn(40, reset_num_timesteps=False)
    np.testing.assert_array_equal(population._trainer.learners[0].rows, loaded._trainer.learners[0].rows)
    for name, x in population._trainer.normalizer.state().items():
        np.testing.assert_array_equal(loaded._trainer.normalizer.state()[name], x, err_msg=name)
    with pytest.raises(ValueError, match="normalize is not what the saved members"):
        Population.load(tmp_path, normalize=False)
    with pytest.raises(ValueError, match="normalize is not what the saved members"):
        Population.load(tmp_path, normalize={"norm_obs": False})


def test_a_failed_member_stays_as_it_is():
    class Broken(Drift):
        def step(self, action):
            if self.t == 4 and self.np_random.integers(100) < 6:
                raise RuntimeError("broken")
            return super().step(action)

    with pytest.warns(UserWarning, match="members have failed"):
        population = Population("dqn", "MlpPolicy", Broken, range(6), normalize=True, **SMALL).learn(STEPS)
    assert population.failed.any()
    assert not population.failed.all()
    counts = population._trainer.normalizer.state()["observations/count"].ravel()
    # The first observation, and one per step until it failed.
    steps = np.where(population.failed, population.failed_at - 1, STEPS)
    np.testing.assert_allclose(counts, 1e-4 + 1 + steps)


def test_the_replay_buffer_of_a_member_as_an_agent_scales_alike():
    population = Population("dqn", "MlpPolicy", Drift, [0], normalize=True, **SMALL).learn(STEPS)
    agent = population[0]
    assert isinstance(agent, DQN)
    data = agent.replay_buffer._get_samples(np.arange(8), env=agent._vec_normalize_env)
    trainer = population._trainer
    own = trainer.normalizer.batch({name: x[:, :8] for name, x in trainer.replay.fields().items()})
    np.testing.assert_array_equal(own["observations"][0], data.observations)
    np.testing.assert_allclose(own["rewards"][0], data.rewards, rtol=1e-6)


@pytest.mark.parametrize(
    ("env", "normalize", "error", "says"),
    [
        ("FrozenLake-v1", True, ValueError, "not Discrete\\(16\\). Scale rewards alone, norm_obs=False"),
        ("CartPole-v1", {"norm_observations": True}, ValueError, "'norm_observations', which is no argument"),
        ("CartPole-v1", {"training": False}, ValueError, "'training', which is no argument"),
        ("CartPole-v1", "yes", TypeError, "normalize must be True, False or arguments of VecNormalize and is 'yes'"),
        ("CartPole-v1", {"norm_obs_keys": ["x"]}, ValueError, "norm_obs_keys"),
    ],
)
def test_what_cannot_be_scaled_is_one_error(env, normalize, error, says):
    with pytest.raises(error, match=says):
        Population("dqn", "MlpPolicy", env, [0], normalize=normalize, **SMALL)


def test_rewards_alone_where_observations_are_integers():
    Population("dqn", "MlpPolicy", "FrozenLake-v1", [0], normalize={"norm_obs": False}, **SMALL).learn(40)


def test_images_are_not_scaled():
    class Images(gym.Env):
        observation_space, action_space = spaces.Box(0, 255, (36, 36, 1), np.uint8), spaces.Discrete(2)

    with pytest.raises(ValueError, match="normalize would scale images"):
        Population("dqn", "CnnPolicy", Images, [0], normalize=True, **{**SMALL, "policy_kwargs": {}})


class Signs(Drift):
    """Whose observations are truth values, which are numbers only once they are normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 1, (3,), np.bool_)

    def _seen(self):
        return self.x > 50.0


@pytest.mark.parametrize("normalize", [False, True])
def test_truth_values(normalize):
    population = Population("qlc", "MlpPolicy", Signs, [3, 8], normalize=normalize, **SMALL).learn(STEPS)
    assert not population.failed.any()
