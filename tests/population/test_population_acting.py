"""Which action is taken, when targets are refreshed, and when updates are made: as a single agent does it."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from populations import make, make_single
from scipy.special import softmax
from small_envs import MatchEnv, RewardEnv, SpaceEnv
from stable_baselines3.common.utils import LinearSchedule
from test_population_update import single_update

from sb3_robust_be.population import Member
from sb3_robust_be.population.acting import Exploration
from sb3_robust_be.population.learner import Learner
from sb3_robust_be.population.replay import Replay

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*bootstraps from a target network:UserWarning", "ignore:Training ends at step:UserWarning"
)


def acting(initial, final, fraction, **others):
    """What an Exploration wants to know of a member."""
    names = {"exploration_initial_eps": initial, "exploration_final_eps": final, "exploration_fraction": fraction}
    return SimpleNamespace(**names, exploration_schedule=LinearSchedule(initial, final, fraction), **others)


def four_actions():
    return SpaceEnv(spaces.Box(-1.0, 1.0, (3,)), n_actions=4)


# From values and uniform numbers to actions


def test_actions_follow_the_uniform_numbers():
    """Exploring if the first is below ε; then the second chooses; else the largest value."""
    exploration = Exploration([acting(0.3, 0.3, 0.1)] * 8, 4)
    exploration.set_progress(1.0)
    first = [0.0, 0.29, 0.29, 0.29, 0.3, 0.31, 0.99, 0.5]
    second = [0.0, 0.24, 0.26, 0.999, 0.0, 0.0, 0.0, 0.99]
    uniforms = np.stack([first, second, np.zeros(8)], axis=1)
    values = np.tile([0.0, 1.0, 3.0, 2.0], (8, 1))
    assert exploration.actions(values, uniforms).tolist() == [0, 0, 1, 3, 2, 2, 2, 2]
    assert exploration.random_actions(uniforms).tolist() == [0, 0, 1, 3, 0, 0, 0, 3]


def test_each_member_has_its_epsilon():
    rng = np.random.default_rng(0)
    epsilons = np.repeat([0.0, 0.3, 1.0], 5000)
    exploration = Exploration([acting(e, e, 0.1) for e in epsilons.tolist()], 4)
    exploration.set_progress(0.4)
    actions = exploration.actions(np.tile([0.0, 1.0, 0.0, 0.0], (15_000, 1)), rng.random((15_000, 3)))
    frequencies = np.stack([np.bincount(own, minlength=4) / 5000 for own in actions.reshape(3, -1)])
    expected = np.array([[0, 1, 0, 0], [0.075, 0.775, 0.075, 0.075], [0.25] * 4])
    # Four standard errors at most.
    np.testing.assert_allclose(frequencies, expected, atol=0.025)
    assert frequencies[0].tolist() == [0, 1, 0, 0]


def test_softmax_policies_have_their_frequencies():
    """Members of several temperatures beside greedy ones, in any order."""
    values = np.array([0.2, 1.0, 0.8, -0.5])
    kinds = [("softmax", 0.5), ("greedy", 0.5), ("softmax", 1e-3), ("softmax", 1e3)]
    models = [acting(0.0, 0.0, 0.1, behaviour=b, temperature=t) for b, t in kinds * 4000]
    exploration = Exploration(models, 4)
    exploration.set_progress(1.0)
    uniforms = np.random.default_rng(1).random((16_000, 3))
    actions = exploration.actions(np.tile(values, (16_000, 1)), uniforms).reshape(4000, 4)
    frequencies = np.stack([np.bincount(own, minlength=4) / 4000 for own in actions.T])
    expected = [softmax(values / 0.5), [0, 1, 0, 0], [0, 1, 0, 0], [0.25] * 4]
    np.testing.assert_allclose(frequencies, expected, atol=0.03)
    certain = exploration.actions(np.tile([5.0, 0.0, 0.0, 0.0], (16_000, 1)), np.full((16_000, 3), 1 - 1e-16))
    assert certain.max() <= 3, "rounded sums below the largest uniform number are no further action"


def test_a_softmax_policy_samples_by_its_members_third_number():
    """The cumulative probabilities are 0.25, 0.5 and 0.75: where the values are equal, every action is as likely."""
    kinds = ["greedy", "softmax", "greedy", "softmax", "softmax"]
    exploration = Exploration([acting(0.0, 0.0, 0.1, behaviour=b, temperature=0.5) for b in kinds], 4)
    exploration.set_progress(1.0)
    uniforms = np.array([[0.9, 0.9, third] for third in (0.3, 0.99, 0.6, 0.24, 0.51)])
    assert exploration.actions(np.zeros((5, 4)), uniforms).tolist() == [0, 3, 0, 0, 2]


def actions_and_values(population, i):
    """What a member did, and the values of where it was, by a single agent's network; nothing has been learned."""
    fields = population._trainer.replay.fields()
    with th.no_grad():
        values = population[i].q_net(fields["observations"][i])
    return fields["actions"][i, :, 0].numpy(), values.numpy()


def test_random_until_learning_starts_and_greedy_then():
    members = [Member(s, {"exploration_initial_eps": e, "exploration_final_eps": e}) for e in (0, 1) for s in range(15)]
    population = make("qrc", members, four_actions, learning_rate=0.0, learning_starts=20).learn(50)
    early, late = [], []
    for i in range(30):
        actions, values = actions_and_values(population, i)
        early += actions[:20].tolist()
        late.append((actions[20:] == values[20:].argmax(axis=1)).mean())
    np.testing.assert_allclose(np.bincount(early) / 600, 0.25, atol=0.07)
    assert set(late[:15]) == {1.0}
    assert np.mean(late[15:]) == pytest.approx(0.25, abs=0.08)


def test_the_behaviour_of_sbeed():
    members = [Member(s, {"behaviour": b, "temperature": t}) for b, t in KINDS for s in range(10)]
    silent = {"exploration_initial_eps": 0.0, "exploration_final_eps": 0.0, "learning_rate": 0.0, "learning_starts": 0}
    population = make("sbeed", members, four_actions, **silent).learn(40)
    greedy = [(np.equal(a, v.argmax(axis=1))).mean() for a, v in (actions_and_values(population, i) for i in range(30))]
    assert set(greedy[:10]) == {1.0}
    assert np.mean(greedy[10:20]) > 0.95
    assert np.mean(greedy[20:]) == pytest.approx(0.25, abs=0.09)


KINDS = [("greedy", 1e3), ("softmax", 1e-4), ("softmax", 1e3)]


def test_actions_start_where_the_space_does():
    population = make("qrc_huber", range(4), lambda: MatchEnv(start=3)).learn(30)
    actions = population._trainer.replay.fields()["actions"].numpy()
    assert np.unique(actions).tolist() == [3, 4, 5]
    assert not population.failed.any()


# ε


def single_epsilons(model, steps, **kwargs):
    """ε after each step; callbacks come before SB3 sets it."""
    rates = []
    model.learn(steps, callback=lambda *_: rates.append(model.exploration_rate) or True, **kwargs)
    return [*rates[1:], model.exploration_rate]


def epsilons(population, steps, **kwargs):
    rates = []
    population.learn(steps, callback=lambda p: rates.append(p._trainer.exploration.rates.copy()), **kwargs)
    return np.array(rates)


@pytest.mark.parametrize("algorithm", ["dqn", "qrc", "sbeed"])
def test_epsilon_is_the_single_agents(algorithm):
    lists = {"exploration_fraction": [0.2, 0.5], "exploration_initial_eps": [1.0, 0.7], "exploration_final_eps": [0.1]}
    population = make(algorithm, [0], RewardEnv, learning_starts=1000, **lists)
    models = list(population)
    for kwargs in ({}, {"reset_num_timesteps": False}, {}):
        expected = [single_epsilons(model, 30, **kwargs) for model in models]
        if kwargs and algorithm == "dqn":
            # SB3's own explores anew when it is resumed; members of a population do not.
            expected = [[0.1] * 30] * 4
        np.testing.assert_array_equal(epsilons(population, 30, **kwargs).T, expected)


def test_resuming_before_the_end_goes_on_falling():
    population = make("qrc", [0, 1], RewardEnv, learning_starts=1000, exploration_fraction=[1.0, 0.5])
    population.learn(40, callback=lambda p: p.num_timesteps < 20)
    stopped = population._trainer.exploration.rates.copy()
    np.testing.assert_allclose(stopped, [1 - 0.95 / 2] * 2 + [0.05] * 2)
    rates = epsilons(population, 60, reset_num_timesteps=False)
    assert (rates <= stopped).all()
    assert (np.diff(rates, axis=0) <= 0).all()
    assert rates[0].tolist() == stopped.tolist()
    assert rates[-1].tolist() == pytest.approx([0.05] * 4)


@pytest.mark.parametrize("algorithm", ["dqn", "qrc"])
def test_without_a_schedule(algorithm):
    settings = {"exploration_fraction": 0.0, "exploration_final_eps": 0.2, "learning_starts": 1000}
    expected = single_epsilons(make_single(algorithm, RewardEnv(), **settings), 5)
    found = epsilons(make(algorithm, [0], RewardEnv, **settings), 5)
    assert found[:, 0].tolist() == expected == [0.2] * 5


# Targets


@pytest.mark.parametrize("algorithm", ["dqn", "gq"])
def test_targets_are_refreshed_when_a_single_agents_is(algorithm):
    """At the multiples of the interval, before that step's update, by the member's τ."""
    lists = {"target_update_interval": [1, 3, 5], "tau": [1.0, 0.25]}
    population = make(algorithm, [0], train_freq=2, **lists)
    (learner,) = population._trainer.learners
    seen = [(learner.rows.clone(), learner.target_rows.clone())]
    population.learn(36, callback=lambda _: seen.append((learner.rows.clone(), learner.target_rows.clone())))
    for i, member in enumerate(population.members):
        interval, tau = member.settings["target_update_interval"], member.settings["tau"]
        for step, ((online, target), (_, after)) in enumerate(itertools.pairwise(seen), start=1):
            expected = target[i] + tau * (online[i] - target[i]) if step % interval == 0 else target[i]
            th.testing.assert_close(after[i], expected, rtol=1e-6, atol=1e-7)
            assert (step % interval == 0) or th.equal(after[i], target[i])
    assert not th.equal(seen[-1][0], seen[-1][1])


@pytest.mark.parametrize("algorithm", ["dqn", "gq"])
def test_the_rule_is_the_single_agents(algorithm, monkeypatch):
    """Refreshes and updates in their order, also when learning goes on or starts again."""
    settings = {"target_update_interval": 3, "train_freq": 4, "gradient_steps": 2, "learning_starts": 6}
    expected, found = [], []
    model = make_single(algorithm, RewardEnv(), **settings)
    population = make(algorithm, [0], RewardEnv, **settings)
    (learner,) = population._trainer.learners

    def note(what, agent, entries):
        return lambda *_, **__: entries.append((what, agent.num_timesteps))

    module = "stable_baselines3.dqn.dqn" if algorithm == "dqn" else "sb3_robust_be.qrc.dqn"
    monkeypatch.setattr(f"{module}.polyak_update", note("refresh", model, expected))
    monkeypatch.setattr(model, "train", note("update", model, expected))
    monkeypatch.setattr(learner, "refresh_targets", note("refresh", population, found))
    monkeypatch.setattr(learner, "update", note("update", population, found))
    for kwargs in ({}, {"reset_num_timesteps": False}, {}):
        model.learn(20, **kwargs)
        population.learn(20, **kwargs)
        # The single agent refreshes batch-norm statistics by a second call, and makes several updates by one.
        assert list(dict.fromkeys(found)) == list(dict.fromkeys(expected))
        assert {what for what, _ in found} == {"refresh", "update"}
        expected.clear()
        found.clear()


# Updates


@pytest.mark.parametrize(("train_freq", "gradient_steps"), [(1, 1), (1, 2), (4, -1), (4, 1), ((5, "step"), 3), (2, 0)])
def test_as_many_updates_as_a_single_agents(train_freq, gradient_steps, monkeypatch):
    settings = {"train_freq": train_freq, "gradient_steps": gradient_steps, "learning_starts": 11}
    model = make_single("qrc", RewardEnv(), **settings)
    population = make("qrc", [0, 1], RewardEnv, **settings)
    drawn, sample = [], Replay.sample

    def updates(gradient_steps, **_):
        model._n_updates += gradient_steps

    monkeypatch.setattr(Replay, "sample", lambda self, uniforms: drawn.append(uniforms) or sample(self, uniforms))
    monkeypatch.setattr(Learner, "update", lambda self, batch, progress: setattr(self, "n_updates", self.n_updates + 1))
    monkeypatch.setattr(model, "train", updates)
    for _ in range(2):
        model.learn(40)
        population.learn(40)
    assert population._trainer.learners[0].n_updates == model._n_updates == len(drawn)
    assert {u.shape for u in drawn} <= {(2, 8)}
    assert len({u.tobytes() for u in drawn}) == len(drawn), "each has a batch of its own"


def progress_of(learn):
    """Where a schedule was asked, one entry per update or so; and the one that was asked."""
    asked = []

    def schedule(progress):
        asked.append(progress)
        return 1e-3 * progress

    learn(schedule)
    return list(dict.fromkeys(asked))


def test_schedules_are_asked_where_a_single_agent_asks():
    settings = {"train_freq": 4, "learning_starts": 10}
    singles = progress_of(lambda s: make_single("qrc", RewardEnv(), learning_rate=s, **settings).learn(40))
    members = progress_of(lambda s: make("qrc", [0], RewardEnv, learning_rate=[1e-2, s], **settings).learn(40))
    assert members == singles
    assert members == [1.0, *(1 - step / 40 for step in range(12, 41, 4))]


def test_schedules_of_rate_and_threshold_act():
    """An update at the progress 0.25 is the single agent's there, for members with schedules beside others without."""
    lists = {"learning_rate": [1e-2, lambda p: 2e-2 * p], "huber_threshold": [0.01, lambda p: 0.2 * p]}
    population = make("qrc_huber", [0], **lists).learn(30)
    trainer, models = population._trainer, list(population)
    (learner,) = trainer.learners
    before = learner.rows.clone()
    batch = trainer.replay.sample(np.random.default_rng(0).random((4, 8)))
    learner.update(batch, 0.25)
    for i, model in enumerate(models):
        model._setup_learn(1, reset_num_timesteps=False)
        model._current_progress_remaining = 0.25
        expected = single_update(model, {name: x[i] for name, x in batch.items()})
        for name, value in learner.layout.split(learner.rows).items():
            th.testing.assert_close(value[i], expected[name], rtol=1e-5, atol=1e-6)
    moved = (learner.rows - before).abs().max(dim=1).values
    assert (moved[:2] > 1.5 * moved[2:]).all(), "rates of 0.01 and 0.005"
    assert (learner.rows[0] - learner.rows[1]).abs().max() > 1e-5, "thresholds of 0.01 and 0.05"
