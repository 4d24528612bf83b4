"""The replay buffer, from the environment to a batch; and the log of episodes."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from populations import CountingEnv, every_device, make
from small_envs import RewardEnv, images, vector_and_code
from stable_baselines3.common.monitor import Monitor

from sb3_robust_be.envs.lockstep import batches
from sb3_robust_be.evaluation.returns import per_step_returns
from sb3_robust_be.population import replay as replay_module
from sb3_robust_be.population.episode_log import EpisodeLog
from sb3_robust_be.population.replay import Replay, available_memory, nested

CPU = th.device("cpu")
SCALARS = ("actions", "rewards", "dones")

SPACES = {
    "vector": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "double": spaces.Box(-1.0, 1.0, (2, 2), np.float64),
    "image": images(3, 5, 3),
    "minatar": images(4, 4, 2, bool),
    "discrete": spaces.Discrete(6),
    "multi_discrete": spaces.MultiDiscrete([2, 3, 4]),
    "multi_binary": spaces.MultiBinary(5),
    "dict": spaces.Dict({**vector_and_code(), "image": images(3, 3, 1), "flags": spaces.MultiBinary(3)}),
}


def drawn_from(space, n):
    """A batch of random observations."""
    batch = batches.empty(space, n)
    for i in range(n):
        batches.write(batch, i, space.sample())
    return batch


def numbered(capacity, n_members, steps, dtype=th.float32):
    """A buffer whose numbers are 100·member + step."""
    buffer = Replay(SPACES["vector"], n_members, capacity, CPU, dtype)
    for step in range(steps):
        add(buffer, step)
    return buffer


def add(buffer, step):
    number = 100.0 * np.arange(buffer.n_members) + step
    observations = np.repeat(number[:, None], 3, axis=1)
    buffer.add(observations, observations + 0.5, actions=number.astype(int), rewards=-number, dones=number % 2)


def drawn_steps(buffer):
    """Which steps a member's samples are from, with uniform numbers that are dense enough to meet all."""
    grid = np.tile((np.arange(400) + 0.5) / 400, (buffer.n_members, 1))
    batch = buffer.sample(grid)
    number = batch["actions"][..., 0]
    assert (batch["observations"] == number[..., None]).all()
    assert (batch["next_observations"] == number[..., None] + 0.5).all()
    assert (batch["rewards"][..., 0] == -number).all()
    assert (batch["dones"][..., 0] == number % 2).all()
    steps = number - 100 * th.arange(buffer.n_members)[:, None]
    assert (steps.sort(dim=1).values == steps[0].sort().values).all(), "all members are in step"
    found, counts = steps[0].unique(return_counts=True)
    assert counts.max() - counts.min() <= 1, "all are equally likely"
    return found.tolist()


# The ring


@pytest.mark.parametrize("steps", [1, 4, 5, 6, 10, 13])
def test_samples_are_of_the_newest_transitions(steps):
    buffer = numbered(5, 3, steps)
    assert drawn_steps(buffer) == list(range(max(0, steps - 5), steps))
    assert (buffer.size, buffer.position) == (min(steps, 5), steps % 5)


@pytest.mark.parametrize("steps", [3, 5, 7, 11])
def test_growing_keeps_the_newest_and_their_order(steps):
    buffer = numbered(5, 2, steps).grow(8)
    first = max(0, steps - 5)
    assert drawn_steps(buffer) == list(range(first, steps))
    for step in range(steps, steps + 6):
        add(buffer, step)
        assert drawn_steps(buffer) == list(range(max(first, step - 7), step + 1)), "the oldest goes first"


def test_one_uniform_number_chooses_one_transition_of_its_member():
    buffer = numbered(4, 2, 4)
    batch = buffer.sample(np.array([[0.0, 0.24, 0.25, 1 - 1e-16], [0.99, 0.74, 0.75, 0.5]]))
    assert batch["actions"][..., 0].tolist() == [[0, 0, 1, 3], [103, 102, 103, 102]]


def test_the_next_batch_is_written_over_the_last_one():
    """But not over one of another size, nor over one of a copy of the buffer."""
    buffer = numbered(4, 2, 4)
    first = buffer.sample(np.full((2, 3), 0.0))
    other = buffer.sample(np.full((2, 5), 0.0))
    theirs = copy.deepcopy(buffer).sample(np.full((2, 3), 0.9))
    assert first["actions"].tolist() == [[[0]] * 3, [[100]] * 3]
    second = buffer.sample(np.full((2, 3), 0.9))
    assert first["actions"].tolist() == second["actions"].tolist() == [[[3]] * 3, [[103]] * 3]
    assert other["actions"].tolist() == [[[0]] * 5, [[100]] * 5]
    assert theirs["observations"].data_ptr() != second["observations"].data_ptr()


@every_device
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_records_hold_any_observation(space, device):
    """Each with its own type, and beside fields of other sizes."""
    space.seed(3)
    buffer = Replay(space, 3, 4, th.device(device), th.float64)
    kept = []
    for step in range(6):
        observations, after = drawn_from(space, 3), drawn_from(space, 3)
        scalars = {"actions": np.arange(3) + step, "rewards": np.arange(3) / 3 - step, "dones": np.array([0, 1, 1]) > 0}
        buffer.add(observations, after, **scalars)
        named = {f"next_{name}": x for name, x in batches.by_name(after).items()}
        kept.append({**batches.by_name(observations), **named, **scalars})
    for _ in range(2):  # The second time from the graph, where there is one.
        batch = {name: x.cpu() for name, x in buffer.sample(np.full((3, 1), 0.3)).items()}
    fields = {name: x.cpu() for name, x in buffer.fields().items()}
    assert fields.keys() == kept[0].keys() == batch.keys()
    for name, field in fields.items():
        # Steps 2 to 5 are left, the last two of them over the first two.
        expected = np.stack([kept[step][name] for step in (4, 5, 2, 3)], axis=1)
        expected = expected[..., None] if name in SCALARS else expected
        np.testing.assert_array_equal(field.numpy(), expected.astype(field.numpy().dtype))
        assert name in SCALARS or field.numpy().dtype == kept[0][name].dtype
        th.testing.assert_close(batch[name][:, 0], field[:, 1], check_dtype=False, rtol=0, atol=0)
    assert batch["rewards"].dtype == batch["dones"].dtype == th.float64
    assert isinstance(nested(batch)["observations"], dict) == isinstance(space, spaces.Dict)


# Memory


def test_memory_is_said_before_it_is_taken(capsys):
    make("qrc", verbose=1, buffer_size=10**9).learn(20)
    # 4 floats twice, an integer and 2 floats.
    megabytes = 3 * 20 * (8 * 4 + 8 + 2 * 4) / 1e6
    assert capsys.readouterr().out == f"Replay buffer: 3 members × 20 transitions, {megabytes:.1f} MB.\n"
    Replay(SPACES["image"], 10, 20_000, CPU, th.float32, verbose=1)
    record = 2 * 45 + 8 + 2 * 4
    padded = record + -record % 8
    assert f"10 members × 20000 transitions, {padded * 0.2:.1f} MB." in capsys.readouterr().out
    make("qrc", verbose=0).learn(20)
    assert capsys.readouterr().out == ""


def test_too_much_memory_is_refused_before_it_is_taken(monkeypatch):
    monkeypatch.setattr(replay_module, "available_memory", lambda device: 3e9)
    population = make("qrc", range(100), buffer_size=10**6)
    pattern = r"buffer_size: 1000000 transitions of 100 members take 4\.8 GB .* 3\.0 GB are free.*smaller buffer_size"
    with pytest.raises(MemoryError, match=pattern):
        population.learn(10**6)
    population.learn(5)


def test_available_memory(monkeypatch):
    assert 1e6 < available_memory(CPU) < 1e14
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert available_memory(CPU) == float("inf"), "where the system does not tell"


# From the environment


def test_terminations_alone_are_dones_and_the_last_observation_is_kept():
    population = make("qrc", [0, 1], CountingEnv, learning_starts=0, train_freq=1000).learn(33)
    fields = population._trainer.replay.fields()
    for i in range(2):
        before, after, dones = (fields[n][i].numpy() for n in ("observations", "next_observations", "dones"))
        expected = []
        for episode in range(7):
            length, terminated, _ = CountingEnv.ENDS[episode % 3]
            expected += [(episode, count, float(terminated and count + 1 == length)) for count in range(length)]
        expected = np.array(expected[:33])
        np.testing.assert_array_equal(before, expected[:, :2])
        np.testing.assert_array_equal(after, expected[:, :2] + [0, 1])
        np.testing.assert_array_equal(dones[:, 0], expected[:, 2])
        np.testing.assert_array_equal(fields["rewards"][i, :, 0], after[:, 1])


def test_time_limits_of_numpy_environments():
    population = make(
        "qrc", [0, 1], "MountainCar-v0", env_kwargs={"max_episode_steps": 5}, learning_starts=0, train_freq=1000
    )
    fields = population.learn(12)._trainer.replay.fields()
    speeds, after = fields["observations"][..., 1], fields["next_observations"][..., 1]
    assert not fields["dones"].any()
    assert (speeds[:, [0, 5, 10]] == 0).all(), "an episode begins at rest"
    assert (after[:, [4, 9]] != 0).all(), "and goes on where the limit cuts it off"
    assert [e.lengths.tolist() for e in population.returns] == [[5, 5]] * 2


def test_a_resumed_run_goes_on_in_its_episode():
    population = make("qrc", [0], CountingEnv, learning_starts=0, train_freq=1000, buffer_size=7)
    for _ in range(3):
        population.learn(6, reset_num_timesteps=False)
    (episodes,) = population.returns
    assert episodes.steps.tolist() == [4, 10, 15]
    assert episodes.lengths.tolist() == [4, 6, 5]
    newest = population._trainer.replay.fields()["next_observations"][0].tolist()
    assert sorted(newest) == [[2, 2], [2, 3], [2, 4], [2, 5], [3, 1], [3, 2], [3, 3]]


# Episodes


def test_episodes_are_those_of_a_monitor():
    population = make("qrc", [3, 1], lambda: Monitor(CountingEnv()), learning_starts=0, train_freq=1000).learn(40)
    for episodes, env in zip(population.returns, population.env._envs.values(), strict=True):
        assert episodes.returns.tolist() == env.get_episode_rewards()
        assert episodes.lengths.tolist() == env.get_episode_lengths()
        assert episodes.steps.tolist() == np.cumsum(env.get_episode_lengths()).tolist()
    assert episodes.lengths.tolist() == [4, 6, 5, 4, 6, 5, 4, 6][: len(episodes.lengths)]


def test_the_curve_is_the_mean_return_per_step():
    population = make("qrc", [3, 1], "CartPole-v1", learning_starts=0, train_freq=1000).learn(60)
    curve = population.curve(6)
    assert curve.shape == (2, 6)
    for own, episodes in zip(curve, population.returns, strict=True):
        steps = per_step_returns(episodes.lengths, episodes.returns, 60)
        parts = [part[np.isfinite(part)] for part in np.split(steps, 6)]
        expected = [part.mean() if part.size else np.nan for part in parts]
        np.testing.assert_allclose(own, expected)
    assert np.isfinite(curve[:, 0]).all()


def test_the_log_sums_up_and_leaves_out_who_has_failed():
    log = EpisodeLog(3)
    rng = np.random.default_rng(0)
    rewards, ended, alive = rng.normal(size=(30, 3)), rng.random((30, 3)) < 0.2, np.ones((30, 3), bool)
    alive[12:, 1] = False
    for step in range(30):
        log.add(step + 1, rewards[step], ended[step], alive[step])
    again = EpisodeLog(3)
    again.load(log.table(), log.returns, log.lengths)
    for i in range(3):
        ends = np.flatnonzero(ended[:, i]) + 1
        starts = [0, *ends[:-1]]
        kept = ends <= (12 if i == 1 else 30)
        sums = [rewards[a:b, i].sum() for a, b in zip(starts, ends, strict=True)]
        for found in (log.episodes()[i], again.episodes()[i]):
            assert found.steps.tolist() == ends[kept].tolist()
            assert found.lengths.tolist() == (ends - starts)[kept].tolist()
            np.testing.assert_allclose(found.returns, np.array(sums)[kept])
    assert sum(len(e.steps) for e in log.episodes()) > 10
    assert [len(e.steps) for e in EpisodeLog(2).episodes()] == [0, 0]


def test_rewards_may_be_of_any_size():
    """Returns are sums in double precision."""
    population = make("qrc", [0], lambda: RewardEnv(reward=0.1), learning_starts=0, train_freq=1000)
    population.learn(20)
    assert population.unfinished.returns[0] == pytest.approx(2.0, abs=1e-12)
    assert population.unfinished.lengths.tolist() == [20]
    assert population.returns[0].returns.size == 0
    np.testing.assert_allclose(population.curve(2), [[2.0, 2.0]])
