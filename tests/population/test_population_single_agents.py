"""A member of a population as an ordinary agent: it predicts, is saved and loaded, and learns on."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch as th
from populations import CLASSES, CountingEnv, every_algorithm, find, make
from small_models import assert_same_parameters, q_values
from stable_baselines3 import DQN

from sb3_robust_be import SquaredDQN

pytestmark = pytest.mark.filterwarnings("error::UserWarning", "ignore:This member was trained with huber_threshold")


def members_of(population):
    """One without and one with target network, and their learners."""
    for interval in (None, 7):
        i = find(population, 2, **population.members[-1].settings | {"target_update_interval": interval})
        yield i, population[i], *population._trainer.learner_of(i)


@every_algorithm
def test_greedy_actions_are_the_members(algorithm, trained):
    population, _ = trained(algorithm)
    observations = np.random.default_rng(0).normal(size=(25, 12, 4)).astype(np.float32)
    for _, model, learner, row in members_of(population):
        assert type(model) is CLASSES[algorithm]
        values = np.stack([learner.values(batch)[row].numpy() for batch in observations])
        actions, _ = model.predict(observations[:, row], deterministic=True)
        np.testing.assert_array_equal(actions, values.argmax(axis=1))
        np.testing.assert_allclose(q_values(model, observations[:, row]), values, rtol=1e-5, atol=1e-6)


@every_algorithm
def test_everything_learned_is_taken_over(algorithm, trained):
    population, _ = trained(algorithm)
    trainer = population._trainer
    for i, model, learner, row in members_of(population):
        parameters = dict(model.policy.named_parameters())
        states = {name: model.policy.optimizer.state[p] for name, p in parameters.items()}
        for kind, rows in (("exp_avg", learner.mean), ("exp_avg_sq", learner.square)):
            for name, value in learner.layout.split(rows).items():
                assert th.equal(states[name][kind], value[row])
                assert states[name]["step"] == learner.n_updates == model._n_updates == 20
        for name, value in learner.layout.split(learner.rows).items():
            assert th.equal(parameters[name], value[row])
        target = learner.rows if learner.target_rows is None else learner.target_rows
        for name, value in learner.layout.split(target, target=True).items():
            assert th.equal(dict(model.q_net_target.named_parameters())[name.removeprefix("q_net_target.")], value[row])
        assert (model.num_timesteps, model._n_calls, model.exploration_rate) == (40, 40, 0.3)
        buffer = model.replay_buffer
        assert (buffer.pos, buffer.full, buffer.buffer_size) == (40, False, 300)
        for name, field in trainer.replay.fields().items():
            stored = getattr(buffer, name)[:40]
            np.testing.assert_array_equal(stored.reshape(40, -1), field[i, :40].numpy().reshape(40, -1))


@every_algorithm
def test_it_is_saved_loaded_and_learns_on(algorithm, trained, tmp_path):
    population, _ = trained(algorithm)
    before = [learner.rows.clone() for learner in population._trainer.learners]
    for i, model, _, _ in members_of(population):
        model.save(tmp_path / "model")
        loaded = CLASSES[algorithm].load(tmp_path / "model", env=model.get_env())
        assert_same_parameters(loaded, model)
        own = [name for name in population.members[i].settings if hasattr(model, name)]
        assert [getattr(loaded, name) for name in own] == [getattr(model, name) for name in own]
        model.learn(15, reset_num_timesteps=False)
        assert (model.num_timesteps, model._n_updates, model.replay_buffer.pos) == (55, 35, 55)
        learned = th.nn.utils.parameters_to_vector(model.q_net.parameters())
        assert learned.isfinite().all()
        assert not th.equal(learned, th.nn.utils.parameters_to_vector(loaded.q_net.parameters()))
        assert model.exploration_rate == 0.3
        loaded.learn(22)
    for rows, learner in zip(before, population._trainer.learners, strict=True):
        assert th.equal(rows, learner.rows), "a copy"


def test_indices():
    population = make("qrc", [5, 6], gamma=[0.5, 0.9])
    assert [(model.seed, model.gamma) for model in population] == [(5, 0.5), (6, 0.5), (5, 0.9), (6, 0.9)]
    assert (population[-1].seed, population[np.int64(-4)].seed) == (6, 5)
    for index in (4, -5):
        with pytest.raises(IndexError):
            population[index]


def test_before_learning():
    model = make("qrc_huber", [3], "MountainCar-v0")[0]
    assert (model.num_timesteps, model._n_updates, model.replay_buffer.pos) == (0, 0, 0)
    assert not model.policy.optimizer.state
    assert model.learn(25)._n_updates == 5


@pytest.mark.parametrize("buffer_size", [13, 15])
def test_a_full_buffer_begins_with_the_oldest(buffer_size):
    """… in a single agent, whose next transition then goes over the oldest."""
    population = make("qrc", [0, 1], CountingEnv, buffer_size=buffer_size, learning_starts=29).learn(30)
    model = population[1]
    buffer = model.replay_buffer
    assert (buffer.pos, buffer.full) == (0, True)
    steps = [[e, k] for e in range(7) for k in range(CountingEnv.ENDS[e % 3][0])][:30]
    assert buffer.observations[:, 0].tolist() == steps[-buffer_size:]
    assert buffer.rewards[:, 0].tolist() == [k + 1 for _, k in steps[-buffer_size:]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.learn(1, reset_num_timesteps=False)
    assert buffer.observations[0, 0].tolist() == [0, 0]
    assert buffer.observations[1, 0].tolist() == steps[-buffer_size + 1]


def test_dqns_own_has_a_target_clips_and_has_one_loss():
    population = make("dqn", [0], huber_threshold=[1.0, None], max_grad_norm=None, target_update_interval=None, tau=0.5)
    model = population[0]
    # A target that is refreshed before every update is none, if it is refreshed wholly.
    assert (model.target_update_interval, model.tau, model.max_grad_norm) == (1, 1.0, np.inf)
    assert type(model) is DQN
    model.learn(25)
    with pytest.warns(UserWarning, match=r"huber_threshold=None.*threshold 1 .*sb3_robust_be\.SquaredDQN") as caught:
        model = population[1]
    assert caught[0].filename == __file__
    # The remedy that is named.
    own = SquaredDQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [16]})
    own.set_parameters(model.get_parameters())
    assert_same_parameters(own, model)


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("interval", [None, 7])
def test_a_member_with_the_squared_loss_keeps_it(interval):
    population = make("dqn_squared", [0, 1], huber_threshold=[None, 2.0], target_update_interval=interval).learn(25)
    for i, threshold in ((1, None), (2, 2.0)):
        model = population[i]
        assert type(model) is SquaredDQN
        assert (model.huber_threshold, model.target_update_interval) == (threshold, interval)
        model.learn(25)
        assert model._n_updates == 10
