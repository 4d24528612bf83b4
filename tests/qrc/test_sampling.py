"""Batches are those of SB3's replay buffers, number for number, and have memory of their own."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from small_envs import SpaceEnv, images, vector_and_code
from small_models import assert_same_parameters, make
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_robust_be import QLC, QRC
from sb3_robust_be.qrc.sampling import sample_batch

pytestmark = pytest.mark.filterwarnings("error::UserWarning")

SPACES = {
    "vector": spaces.Box(-1.0, 1.0, (4,), np.float32),
    "float64": spaces.Box(-1.0, 1.0, (2, 3), np.float64),
    "image": images(6, 5, 3),
    "minatar": images(6, 6, 2, bool),
    "bits": spaces.MultiBinary(5),
    "counts": spaces.MultiDiscrete([3, 4]),
    "number": spaces.Discrete(6),
}
VECTOR = SPACES["vector"]


def filled(buffer: ReplayBuffer, steps: int) -> Any:
    """A buffer with transitions that all differ, some of them ends and some of these by a time limit."""
    rng, n = np.random.default_rng(0), buffer.n_envs
    buffer.observation_space.seed(0)

    def observe() -> Any:
        samples = [buffer.observation_space.sample() for _ in range(n)]
        if isinstance(buffer.observation_space, spaces.Dict):
            return {key: np.stack([sample[key] for sample in samples]) for key in samples[0]}
        return np.stack(samples)

    for _ in range(steps):
        infos = [{"TimeLimit.truncated": bool(rng.integers(2))} for _ in range(n)]
        actions, ends = rng.integers(3, size=n), rng.integers(2, size=n) == 0
        buffer.add(observe(), observe(), actions, rng.normal(size=n), ends, infos)
    return buffer


def plain(space: spaces.Space, n_envs: int = 1, steps: int = 20, size: int = 40, **kwargs: Any) -> Any:
    return filled(ReplayBuffer(size * n_envs, space, spaces.Discrete(3), "cpu", n_envs, **kwargs), steps)


def both(buffer: Any, batch_size: int = 16, env: VecNormalize | None = None) -> tuple[Any, Any]:
    """Our batch and SB3's from one state of the generator, which both leave in one state."""
    np.random.seed(3)
    ours = sample_batch(buffer, batch_size, env)
    after = np.random.get_state()
    np.random.seed(3)
    theirs = buffer.sample(batch_size, env=env)
    for a, b in zip(after, np.random.get_state(), strict=True):
        np.testing.assert_array_equal(a, b)
    return ours, theirs


def assert_equal(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    for name, a, b in zip(ours._fields, ours, theirs, strict=True):
        for x, y in zip(*([v[k] for k in b] if isinstance(b, dict) else [v] for v in (a, b)), strict=True):
            if y is None:
                assert x is None
            else:
                assert (x.dtype, x.shape, x.device) == (y.dtype, y.shape, y.device), name
                assert th.equal(x, y), name


@pytest.mark.parametrize("steps", [1, 20, 70], ids=["one", "some", "overwritten"])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("name", SPACES)
def test_batches_of_the_plain_buffer(name, n_envs, steps):
    buffer = plain(SPACES[name], n_envs, steps)
    with mock.patch.object(ReplayBuffer, "_get_samples", side_effect=AssertionError("SB3's way is not gone")):
        sample_batch(buffer, 16)
    ours, theirs = both(buffer)
    assert_equal(ours, theirs)
    if steps > 1:
        assert set(theirs.dones.unique().tolist()) == {0.0, 1.0}


def test_ends_by_hand():
    """Only an end that is not by a time limit ends the return."""
    buffer = ReplayBuffer(4, VECTOR, spaces.Discrete(3), "cpu")
    for i, (end, by_time) in enumerate([(False, False), (True, False), (True, True)]):
        buffer.add(VECTOR.sample(), VECTOR.sample(), np.array([i]), float(i), end, [{"TimeLimit.truncated": by_time}])
    batch = sample_batch(buffer, 50)
    assert {(a, d) for a, d in zip(batch.actions[:, 0].tolist(), batch.dones[:, 0].tolist(), strict=True)} == {
        (0, 0.0),
        (1, 1.0),
        (2, 0.0),
    }
    assert th.equal(batch.rewards, batch.actions.float())


class Halved(ReplayBuffer):
    """A user's buffer."""

    def _get_samples(self, batch_inds, env=None):
        samples = super()._get_samples(batch_inds, env)
        return samples._replace(rewards=samples.rewards / 2)


def asked() -> dict[str, Any]:
    """Buffers whose own way of sampling stays."""
    actions = spaces.Discrete(3)
    memory = {"optimize_memory_usage": True, "handle_timeout_termination": False}
    return {
        "subclass": filled(Halved(40, VECTOR, actions, "cpu"), 20),
        "n-step": filled(NStepReplayBuffer(40, VECTOR, actions, "cpu", n_steps=3), 20),
        "dict": filled(DictReplayBuffer(40, vector_and_code(), actions, "cpu"), 20),
        "memory": plain(VECTOR, steps=20, **memory),
        "memory, overwritten": plain(VECTOR, steps=50, **memory),
    }


@pytest.mark.parametrize("name", asked())
def test_other_buffers_are_asked(name):
    buffer = asked()[name]
    with mock.patch.object(type(buffer), "sample", autospec=True, side_effect=type(buffer).sample) as sample:
        sample_batch(buffer, 16)
    sample.assert_called_once()
    assert_equal(*both(buffer))


def test_normalised_batches():
    env = VecNormalize(DummyVecEnv([lambda: SpaceEnv(VECTOR)] * 2))
    env.reset()
    for _ in range(20):
        env.step(np.zeros(2, int))
    buffer = plain(VECTOR, n_envs=2)
    assert_equal(*both(buffer, env=env))
    assert not th.equal(both(buffer, env=env)[0].observations, both(buffer)[0].observations)


def test_a_replaced_method_is_called():
    buffer = plain(VECTOR)
    buffer.sample = lambda batch_size, env=None: (batch_size, env)
    assert sample_batch(buffer, 7) == (7, None)


def test_a_batch_may_be_kept_and_changed():
    buffer = plain(VECTOR)
    stored = buffer.observations.copy()
    batch = sample_batch(buffer, 16)
    kept = [x.clone() for x in batch if x is not None]
    sample_batch(buffer, 16)
    filled(buffer, 40)
    assert not np.array_equal(buffer.observations, stored)
    assert all(th.equal(x, y) for x, y in zip((x for x in batch if x is not None), kept, strict=True))
    stored = buffer.observations.copy(), buffer.rewards.copy()
    for x in sample_batch(buffer, 16)[:5]:
        x.zero_()
    np.testing.assert_array_equal(buffer.observations, stored[0])
    np.testing.assert_array_equal(buffer.rewards, stored[1])


@pytest.mark.parametrize("algorithm", [QRC, QLC])
@pytest.mark.parametrize("n_envs", [1, 3])
def test_learning_from_either(algorithm, n_envs):
    """The agent is the one that SB3's batches make; and its buffer is SB3's class."""
    models = []
    for own in (True, False):
        model = make(algorithm, DummyVecEnv([lambda: SpaceEnv(VECTOR)] * n_envs), buffer_size=60)
        assert type(model.replay_buffer) is ReplayBuffer
        if not own:
            model.replay_buffer.sample = model.replay_buffer.sample  # as a user replaces it
        models.append(model.learn(90))
    assert models[0]._n_updates > 20
    assert_same_parameters(*models)
