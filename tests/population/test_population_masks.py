"""Populations in environments with ``action_masks()``: what is illegal is neither done nor bootstrapped from."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from masked_envs import LEGAL, TableEnv, WithMasks
from populations import assert_same_member, every_algorithm, find, make, make_single, member_state
from sb3_contrib.common.envs import InvalidActionEnvDiscrete
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from small_envs import MatchEnv, SpaceEnv, vector_and_code

from sb3_robust_be.population import Population
from sb3_robust_be.population.acting import Exploration
from sb3_robust_be.qrc.maskable import MaskableReplayBuffer, MaskableReplayBufferSamples

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*bootstraps from a target network",
    "ignore:Evaluation environment is not wrapped",
    "ignore:Training ends at step",
    "ignore:env holds something without an importable name",
)
BOTH_TARGETS = {"target_update_interval": [None, 7], "exploration_fraction": 0.5}


def masked_dictionaries():
    return WithMasks(SpaceEnv(vector_and_code()), np.array([False, True]))


def all_legal(**kwargs):
    return WithMasks(MatchEnv(length=5), **kwargs)


def table():
    return TableEnv()


@every_algorithm
def test_no_illegal_action_is_taken(algorithm):
    """The environment raises an exception where one is, in training and in greedy episodes, and that member fails."""
    population = make(algorithm, seeds=range(2), env=table, **BOTH_TARGETS).learn(100)
    assert not population.failed.any()
    assert np.isfinite(population.evaluate(4)).all()
    assert not population.failed.any()


@every_algorithm
def test_the_masks_of_the_last_observations_are_stored(algorithm):
    population = make(algorithm, seeds=range(2), env=table).learn(60)
    fields = population._trainer.replay.fields()
    expected = th.as_tensor(LEGAL)[fields["next_observations"].argmax(dim=2)] | (fields["dones"] == 1)
    assert fields["next_action_masks"].dtype == th.bool
    assert th.equal(fields["next_action_masks"], expected)
    assert 0 < fields["dones"].sum() < fields["dones"].numel()


@every_algorithm
def test_updates_are_those_of_single_agents(algorithm):
    """A member and the single agent on one batch: the gradients of `batch_loss`, whose masks are tested by hand."""
    population = make(algorithm, seeds=[0, 3], env=table, **BOTH_TARGETS)
    population.learn(60)
    trainer = population._trainer
    batch = trainer.replay.sample(np.random.default_rng(0).random((len(population), 16)))
    for rows, learner in zip(trainer.groups, trainer.learners, strict=True):
        own = {name: x[rows] for name, x in batch.items()}
        without = {name: x for name, x in own.items() if name != "next_action_masks"}
        everything = {**own, "next_action_masks": th.ones_like(own["next_action_masks"])}
        masked, unmasked, all_true = (gradient(learner, one) for one in (own, without, everything))
        assert th.equal(unmasked, all_true)
        assert not th.allclose(masked, unmasked)
        for row, member in enumerate(rows):
            th.testing.assert_close(masked[row], single_gradient(population._models[member], row, learner, own))


def gradient(learner, batch):
    inputs = {**learner._encode(batch), "discounts": learner._gamma}
    settings = learner._settings_at(0.5)
    moves = learner.has_target and learner._functions.moves_target(settings.numbers, inputs, settings.choices)
    parts = learner.layout.cut(learner.rows)
    found, _ = learner._functions.gradient(
        parts, learner.target_rows, learner._constants, settings.numbers, inputs, settings.choices, moves
    )
    return th.cat(found, dim=1)


def single_gradient(model, row, learner, batch):
    """Of the member's single agent, with the member's parameters and batch."""
    parameters = {name: x[row] for name, x in learner.layout.split(learner.rows).items()}
    if learner.target_rows is not None:
        parameters |= {name: x[row] for name, x in learner.layout.split(learner.target_rows, target=True).items()}
    model.policy.load_state_dict(parameters, strict=False)
    samples = MaskableReplayBufferSamples(**{name: x[row] for name, x in batch.items()}, discounts=learner._gamma[row])
    loss = model.batch_loss(samples, model.update_settings()).loss
    named = dict(model.policy.named_parameters())
    found = dict(zip(named, th.autograd.grad(loss, list(named.values()), allow_unused=True), strict=True))
    both = [(found[name], found.get(name.replace("q_net.", "q_net_target.", 1))) for name in learner.layout.names]
    return th.cat([sum(x for x in pair if x is not None).flatten() for pair in both])


@every_algorithm
def test_with_all_actions_legal_nothing_changes(algorithm):
    masked = make(algorithm, seeds=range(2), env=all_legal, exploration_fraction=0.5).learn(60)
    plain = make(algorithm, seeds=range(2), env=lambda: MatchEnv(length=5), exploration_fraction=0.5).learn(60)
    assert masked._trainer.env.action_masks is not None
    for i in range(len(masked)):
        state = member_state(masked, i)
        assert state.pop("replay/next_action_masks").all()
        assert_same_member(state, member_state(plain, i))
    np.testing.assert_array_equal(masked.evaluate(2), plain.evaluate(2))


def test_exploration():
    """Of actions with equal chances, the uniform number chooses; without masks or with all, in the same way."""
    single = make_single("sbeed", MatchEnv(), behaviour="softmax", temperature=1.0)
    exploration = Exploration([single] * 6, 4)
    uniforms = np.random.default_rng(0).random((500, 6, 3))
    values = np.random.default_rng(1).normal(size=(6, 4))
    counts = np.zeros((6, 4))
    for one in uniforms:
        np.testing.assert_array_equal(
            exploration.random_actions(one), exploration.random_actions(one, np.ones((6, 4), bool))
        )
        counts[np.arange(6), exploration.random_actions(one, LEGAL)] += 1
    assert (counts[~LEGAL] == 0).all()
    expected = 500 / LEGAL.sum(axis=1, keepdims=True)
    assert (abs(counts - expected)[LEGAL] < 4.5 * np.sqrt(500 * 0.25)).all()
    exploration.rates = np.zeros(6)
    for extreme in (0.0, 0.5, 1.0 - 2**-53):
        one = np.full((6, 3), extreme)
        assert LEGAL[np.arange(6), exploration.actions(values, one, LEGAL)].all()
        np.testing.assert_array_equal(
            exploration.actions(values, one, np.ones((6, 4), bool)), exploration.actions(values, one)
        )


def test_dict_observations():
    population = make("qrc", seeds=range(2), env=masked_dictionaries, policy="MultiInputPolicy").learn(40)
    assert set(population._trainer.replay.fields()["actions"].flatten().tolist()) == {1}
    assert population[0].replay_buffer.next_action_masks[:40].any()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["qlc", "sbeed", "dqn"])
def test_compiled(algorithm):
    eager, compiled = (
        make(algorithm, seeds=range(2), env=table, compile=compile, learning_starts=30).learn(60)
        for compile in (False, True)
    )
    for i in range(2):
        state, other = member_state(eager, i), member_state(compiled, i)
        np.testing.assert_allclose(state["rows"], other["rows"], rtol=1e-3, atol=1e-5)


@every_algorithm
def test_saved_in_the_middle(algorithm, tmp_path):
    def fresh():
        return make(algorithm, seeds=range(2), env=table, exploration_initial_eps=0.3, exploration_final_eps=0.3)

    whole = fresh().learn(30)
    whole.learn(30, reset_num_timesteps=False)
    half = fresh().learn(30)
    half.save(tmp_path)
    loaded = Population.load(tmp_path, env=table)
    loaded.learn(30, reset_num_timesteps=False)
    for i in range(2):
        assert_same_member(member_state(loaded, i), member_state(whole, i))


def test_another_environment_at_loading(tmp_path):
    make("qrc", env=lambda: MatchEnv(length=5)).learn(30).save(tmp_path)
    with pytest.raises(ValueError, match="next_action_masks where it has action_masks"):
        Population.load(tmp_path, env=all_legal)


def test_a_growing_buffer_keeps_the_masks():
    population = make("qrc", seeds=[0], env=table, buffer_size=100).learn(20)
    before = population._trainer.replay.fields()["next_action_masks"].clone()
    population.learn(20, reset_num_timesteps=False)
    after = population._trainer.replay.fields()["next_action_masks"]
    assert after.shape[1] == 40
    assert th.equal(after[:, :20], before)


@pytest.mark.parametrize("algorithm", ["qrc", "dqn_squared"])
def test_a_member_as_a_single_agent(algorithm):
    population = make(algorithm, seeds=range(2), env=table).learn(50)
    member = population[find(population, 1)]
    assert isinstance(member.replay_buffer, MaskableReplayBuffer)
    stored = population._trainer.replay.fields()["next_action_masks"][1].numpy()
    np.testing.assert_array_equal(member.replay_buffer.next_action_masks[:50, 0], stored)
    assert evaluate_policy(member, member.get_env(), 3)[0] >= 0
    member.learn(50, reset_num_timesteps=False)


def test_a_single_dqn_ignores_masks_and_says_so():
    population = make("dqn", seeds=[0], env=table).learn(40)
    with pytest.warns(UserWarning, match="ignores action_masks.*SquaredDQN with huber_threshold=1 has this loss"):
        member = population[0]
    assert member.replay_buffer.pos == 40


@pytest.mark.parametrize("algorithm", ["qlc", "dqn"])
def test_a_masked_task_is_learned(algorithm):
    """sb3-contrib's: of ten actions, three at random are legal, one of which is right. Chance has 33 of 100."""
    np.random.seed(0)
    population = make(
        algorithm,
        seeds=range(2),
        env=lambda: InvalidActionEnvDiscrete(dim=10, n_invalid_actions=7),
        gamma=0.0,
        learning_rate=1e-2,
        exploration_fraction=0.3,
        buffer_size=2000,
    ).learn(1500)
    assert (population.evaluate(3).mean(axis=1) > 90).all()
