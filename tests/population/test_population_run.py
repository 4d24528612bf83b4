"""Populations run: every kind of observation, devices, callbacks, compiled, and twice; and they learn."""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch as th
import torch._inductor  # imported by the package only when something is compiled
from faulty_envs import FaultyEnv
from gymnasium import spaces
from populations import CountingEnv, assert_same_member, every_device, make, member_state, rows
from small_envs import MatchEnv, SpaceEnv, images, vector_and_code
from small_models import q_values
from stable_baselines3.common import callbacks

from sb3_robust_be.population import Population

pytestmark = pytest.mark.filterwarnings(
    "error::UserWarning", "ignore:.*bootstraps from a target network:UserWarning", "ignore:.*have failed:UserWarning"
)

SMALL_CNN = {"net_arch": [8], "features_extractor_kwargs": {"features_dim": 8, "n_channels": 3}}
WITH_IMAGE = spaces.Dict({"image": images(36, 36, 1), "code": spaces.Discrete(3), "two": spaces.MultiDiscrete([2, 3])})
# By name: algorithm, policy, observations, the network's shape of them, and policy_kwargs.
INTEGERS = {
    "discrete": spaces.Discrete(3, start=4),
    "negative": spaces.Discrete(5, start=-2),
    "multi_discrete": spaces.MultiDiscrete([2, 4], start=[-1, 3]),
    "two_dimensions": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [-5, 2]]),
    "dict": spaces.Dict({"a": spaces.Discrete(4, start=-3), "b": spaces.MultiDiscrete([[3], [2]], start=[[7], [0]])}),
}
OBSERVATIONS = {
    "image": ("qrc", "CnnPolicy", images(6, 5, 3), (3, 6, 5), SMALL_CNN),
    "channels_first": ("sbeed", "CnnPolicy", images(6, 5, 2, channels_last=False), (2, 6, 5), SMALL_CNN),
    "minatar": ("qlc", "CnnPolicy", images(5, 5, 3, bool), (5, 5, 3), SMALL_CNN),
    "more_channels_than_height": ("qrc_huber", "CnnPolicy", images(5, 5, 9, bool), (5, 5, 9), SMALL_CNN),
    "more_channels_first": ("gq", "CnnPolicy", images(5, 5, 9, channels_last=False), (9, 5, 5), SMALL_CNN),
    "dict": ("dqn", "MultiInputPolicy", vector_and_code(), None, {"net_arch": [8]}),
    "dict_with_image": ("gq", "MultiInputPolicy", WITH_IMAGE, None, {"net_arch": [8]}),
    "multi_discrete": ("dqn", "MlpPolicy", spaces.MultiDiscrete([2, 3]), (2,), {"net_arch": [8]}),
    "multi_binary": ("qrc_huber", "MlpPolicy", spaces.MultiBinary(4), (4,), {"net_arch": [8]}),
    "discrete": ("gq_huber", "MlpPolicy", spaces.Discrete(5), (), {"net_arch": [8]}),
    **{
        f"integers_{name}": (
            "qrc_huber",
            "MultiInputPolicy" if name == "dict" else "MlpPolicy",
            space,
            None,
            {"net_arch": [8]},
        )
        for name, space in INTEGERS.items()
    },
}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_observations_reach_the_network_as_a_single_agents_do(name):
    algorithm, policy, space, shape, network = OBSERVATIONS[name]
    if name == "dict_with_image":
        network = {**network, "features_extractor_kwargs": {"cnn_output_dim": 4}}
    population = make(algorithm, [3, 1], lambda: SpaceEnv(space), policy, policy_kwargs=network, batch_size=4)
    before = rows(population).clone()
    trainer = population.learn(25)._trainer
    assert (before != rows(population)).any(dim=1).all()
    assert not population.failed.any()
    if shape is not None:
        assert trainer.replay.fields()["observations"].shape == (2, 25, *shape)
    raw = [space.sample() for _ in range(2)]
    batch = {k: np.stack([o[k] for o in raw]) for k in space} if isinstance(space, spaces.Dict) else np.stack(raw)
    (learner,) = trainer.learners
    found = learner.values(trainer.prepare(batch))
    for i, model in enumerate(population):
        th.testing.assert_close(found[i], q_values(model, raw[i])[0], rtol=1e-5, atol=1e-6)
    model.learn(5, reset_num_timesteps=False)
    assert model._n_updates == 10


def one_hot(space, value):
    """A block of as many zeros as the component has values, with a one at value − start; components in C order."""
    if isinstance(space, spaces.Discrete):
        return np.eye(space.n, dtype=np.float32)[value - space.start]
    blocks = zip(space.nvec.ravel(), np.ravel(value) - space.start.ravel(), strict=True)
    return np.concatenate([np.eye(n, dtype=np.float32)[i] for n, i in blocks])


class OneHot(gym.ObservationWrapper):
    """Integer observations as the numbers that a network gets to see."""

    def __init__(self, env):
        super().__init__(env)
        raw = env.observation_space
        parts = raw.spaces if isinstance(raw, spaces.Dict) else {"": raw}
        boxes = {k: spaces.Box(0.0, 1.0, one_hot(part, part.sample()).shape) for k, part in parts.items()}
        self.observation_space = spaces.Dict(boxes) if isinstance(raw, spaces.Dict) else boxes[""]

    def observation(self, observation):
        raw = self.env.observation_space
        if isinstance(raw, spaces.Dict):
            return {key: one_hot(raw[key], observation[key]) for key in raw}
        return one_hot(raw, observation)


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_may_start_anywhere(name):
    """The same bit for bit as from one-hot observations."""
    space, policy = INTEGERS[name], "MultiInputPolicy" if name == "dict" else "MlpPolicy"
    raw = make("qrc_huber", range(3), lambda: SpaceEnv(space), policy).learn(40)
    encoded = make("qrc_huber", range(3), lambda: OneHot(SpaceEnv(space)), policy).learn(40)
    assert raw.failures == [None] * 3
    assert th.equal(rows(raw), rows(encoded))
    seen = {name: x for name, x in raw._trainer.replay.fields().items() if name.startswith("observations")}
    for key, x in seen.items():
        part = space[key.partition("/")[2]] if name == "dict" else space
        last = part.start + (part.n if isinstance(part, spaces.Discrete) else part.nvec) - 1
        np.testing.assert_array_equal(x.amin(dim=(0, 1)), part.start)
        np.testing.assert_array_equal(x.amax(dim=(0, 1)), last)


@pytest.mark.parametrize("algorithm", ["dqn", "qrc_huber"])
def test_they_learn(algorithm):
    """Of ten steps, each with three actions, one of which is right: at random 3.3 are."""
    population = make(
        algorithm, range(4), MatchEnv, learning_rate=1e-2, gamma=0.0, batch_size=16, exploration_fraction=0.3
    ).learn(300)
    for episodes in population.returns:
        assert episodes.returns.shape == (30,)
        assert episodes.returns[:5].mean() < 6
        assert episodes.returns[-8:].mean() > 8.5
    curve = population.curve(10)
    assert (curve[:, -1] > 8).all()
    assert (curve[:, 0] < 6.5).all()


@every_device
@pytest.mark.parametrize("algorithm", ["dqn", "qrc_huber"])
def test_devices(algorithm, device, tmp_path):
    """A run with everything that moves tensors: targets, clipping, a failure, saving, a member of its own."""
    lists = {"target_update_interval": [None, 4], "learning_rate": [1e-3, 1e30]}
    population = make(algorithm, [0, 1], max_grad_norm=1.0, device=device, **lists).learn(30)
    assert population.device.type == device
    for learner in population._trainer.learners:
        assert {x.device.type for x in learner.state().values()} == {device}
    assert population._trainer.replay.fields()["rewards"].device.type == device
    rates = [member.settings["learning_rate"] for member in population.members]
    assert population.failed.tolist() == [rate == 1e30 for rate in rates]
    population.save(tmp_path)
    loaded = Population.load(tmp_path, device=device)
    for p in (population, loaded):
        p.learn(10, reset_num_timesteps=False)
    th.testing.assert_close(rows(loaded), rows(population), rtol=1e-6, atol=1e-7, equal_nan=True)
    model = population[0]
    assert model.device.type == device
    model.learn(10, reset_num_timesteps=False)
    assert all(p.isfinite().all() for p in model.policy.parameters())


# Runs


def test_callbacks_stop_training():
    population, steps = make("qrc", [0], CountingEnv, learning_starts=0), []
    assert population.learn(30, callback=lambda p: steps.append(p.num_timesteps)) is population
    assert steps == list(range(1, 31))
    population.learn(30, callback=lambda p: p.num_timesteps < 8)
    assert population.num_timesteps == 8
    population.learn(5, reset_num_timesteps=False)
    assert population.num_timesteps == 13


def test_a_second_run_counts_anew_and_keeps_what_was_learned():
    population = make("qrc", [0, 1], exploration_fraction=1.0).learn(30)
    learned, first = rows(population).clone(), population.returns
    seen = []
    population.learn(25, callback=lambda p: seen.append(rows(p).clone()) if p.num_timesteps < 21 else None)
    assert population.num_timesteps == 25
    assert all(th.equal(x, learned) for x in seen), "learning_starts counts anew"
    assert (rows(population) != learned).any(dim=1).all()
    assert population._trainer.learners[0].n_updates == 10 + 5
    assert population._trainer.replay.size == 55
    for old, new in zip(first, population.returns, strict=True):
        assert new.steps.max() <= 25
        assert new.lengths.sum() <= 25
        assert not np.array_equal(old.returns, new.returns)


def test_progress_bar(monkeypatch, capfd):
    with warnings.catch_warnings():
        # Of tqdm, which calls its rich version an experiment.
        warnings.simplefilter("ignore")
        population = make("qrc", [0], learning_starts=0, train_freq=1000).learn(12, progress_bar=True)
    shown = "".join(capfd.readouterr())
    assert "12/12" in shown
    monkeypatch.setattr(callbacks, "tqdm", None)
    with pytest.raises(ImportError, match=r"progress_bar=True needs tqdm and rich.*progress_bar=False"):
        population.learn(5, progress_bar=True)
    population.learn(5)
    assert capfd.readouterr().out == ""


# Compiled


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "target_update_interval"), [("qrc_huber", None), ("dqn", 7)])
def test_compiled_updates_are_the_same(algorithm, target_update_interval):
    def learned(**kwargs):
        return make(algorithm, [0, 1], target_update_interval=target_update_interval, **kwargs).learn(26)

    eager, compiled = learned(), learned(compile=True)
    assert eager._trainer.learners[0].n_updates == compiled._trainer.learners[0].n_updates == 6
    for name, x in eager._trainer.learners[0].state().items():
        th.testing.assert_close(compiled._trainer.learners[0].state()[name], x, rtol=1e-5, atol=1e-5)
    assert not th.equal(rows(eager), rows(make(algorithm, [0, 1])))


@pytest.mark.slow
def test_a_bad_environment_costs_one_member_of_a_compiled_population():
    def learned(fault):
        return make(
            "qrc_huber", range(3), FaultyEnv, "MultiInputPolicy", env_kwargs={"fault": fault}, compile=True
        ).learn(45)

    healthy, failed = learned(None), learned("place nan")
    assert failed.failed_at.tolist() == [-1, 23, -1]
    for i in (0, 2):
        assert_same_member(member_state(failed, i), member_state(healthy, i))


def test_without_a_compiler_the_graphs_are_run(monkeypatch):
    calls = []

    def missing(*_, **__):
        calls.append(1)
        raise RuntimeError("No C++ compiler is there.\nLong trace")

    monkeypatch.setattr(th._inductor, "standalone_compile", missing)
    population = make("qrc", [0, 1], compile=True)
    pattern = r"cannot be compiled here \(RuntimeError: No C\+\+ compiler is there\.\)\. Install .*g\+\+.*compile=False"
    with pytest.warns(UserWarning, match=pattern) as caught:
        population.learn(26)
    assert len(calls) == 2, "once for the values and once for the update"
    assert {w.filename for w in caught} == {__file__}
    eager = make("qrc", [0, 1]).learn(26)
    for i in range(2):
        assert_same_member(member_state(population, i), member_state(eager, i))
