"""A member is what it would be alone: no number of it depends on how many the others are, or on who they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from populations import TRAINED, assert_same_member, every_algorithm, find, make, member_state, rows
from small_envs import SpaceEnv, images

from sb3_robust_be.population import Member

pytestmark = pytest.mark.filterwarnings("ignore:.*bootstraps from a target network:UserWarning")


@every_algorithm
def test_all_members_learn_something_else(algorithm, trained):
    """Else it would be no news that each is independent of the others."""
    population, _ = trained(algorithm)
    learned = rows(population)
    assert len(population) == 3 * math.prod(len(x) for x in TRAINED[algorithm].values() if isinstance(x, list))
    assert len(learned.unique(dim=0)) == len(population)
    assert len({tuple(member_state(population, i)["replay/actions"].ravel()) for i in range(0, 24, 8)}) > 1
    for learner in population._trainer.learners:
        assert learner.n_updates == 20


@pytest.mark.parametrize("target_update_interval", [None, 7])
@every_algorithm
def test_alone_as_among_others(algorithm, target_update_interval, trained):
    """Bit for bit: parameters, moments, target, transitions, episodes, ε."""
    population, _ = trained(algorithm)
    lists = {name: values for name, values in TRAINED[algorithm].items() if isinstance(values, list)}
    settings = {name: values[-1] for name, values in lists.items()}
    settings |= {"target_update_interval": target_update_interval}
    alone = make(algorithm, [1], **{**TRAINED[algorithm], **settings}).learn(40)
    assert alone.returns[0].steps.size > 0
    assert_same_member(member_state(alone, 0), member_state(population, find(population, 1, **settings)))


def test_alone_as_among_others_in_any_environment():
    """One instance per member, and members in another order."""

    def factory():
        # The space draws the observations, so that each instance needs one of its own.
        return SpaceEnv(spaces.Box(-1.0, 1.0, (3,)), n_actions=3)

    many = make("qrc_huber", [5, 0, 3], factory, gamma=[0.5, 0.9], train_freq=2).learn(30)
    few = make("qrc_huber", [Member(3, {"gamma": 0.9}), Member(5, {"gamma": 0.5})], factory, train_freq=2).learn(30)
    assert_same_member(member_state(few, 0), member_state(many, 5))
    assert_same_member(member_state(few, 1), member_state(many, 0))


def test_a_member_that_clips_changes_none_that_does_not():
    """The norm is taken for all as soon as one clips."""
    many = make("gq", [2], max_grad_norm=[None, 1e-3]).learn(30)
    alone = make("gq", [2], max_grad_norm=None).learn(30)
    assert not th.equal(rows(many)[0], rows(many)[1])
    assert_same_member(member_state(many, 0), member_state(alone, 0))


def test_the_global_generators_are_not_used():
    """Acting at random, by a softmax, and learning: nothing that the rest of a program draws depends on it."""
    population = make("sbeed", [4, 0], behaviour="softmax", temperature=1.0)
    numpys, torchs = np.random.get_state(), th.get_rng_state()
    population.learn(30)
    assert np.array_equal(np.random.get_state()[1], numpys[1])
    assert np.random.get_state()[2] == numpys[2]
    assert th.equal(th.get_rng_state(), torchs)


def test_convolutions():
    """Those of all members are one grouped convolution, whose rounding torch may choose by the number of groups."""

    def learned(seeds):
        network = {"features_extractor_kwargs": {"features_dim": 8, "n_channels": 4}}
        population = make("qrc", seeds, lambda: SpaceEnv(images(5, 5, 2)), "CnnPolicy", policy_kwargs=network)
        return rows(population.learn(26))

    one, four = learned([1]), learned([4, 1, 0, 7])
    th.testing.assert_close(one[0], four[1], rtol=1e-4, atol=1e-5)
    assert (one[0] - four[0]).abs().max() > 0.1
