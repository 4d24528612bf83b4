"""Who is in a population, what is refused and how, and with which weights each member starts."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch as th
from populations import CLASSES, SMALL, every_algorithm, make, make_single
from sb3_contrib import QRDQN
from small_models import BatchNormExtractor
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import nn

from sb3_robust_be.population import Member, Population
from sb3_robust_be.population.baseline import BaselineDQN, target_arguments
from sb3_robust_be.population.members import CHOICES, NUMBERS
from sb3_robust_be.qrc import QRCHuber
from sb3_robust_be.qrc.networks import HEAD_INITS
from sb3_robust_be.registry import classes

ALGORITHMS = classes()

# By argument: an algorithm that has it, and a list of two.
LISTS = {
    **{name: ("qrc_huber", [0.25, 0.5]) for name in NUMBERS if name not in ("temperature", "eta")},
    **{name: ("sbeed", [0.25, 0.5]) for name in ("temperature", "eta")},
    "target_update_interval": ("qrc", [None, 7]),
    "max_grad_norm": ("qrc", [None, 1.0]),
    "projection": ("qrc_huber", ["huber", "smooth_huber"]),
    "limit": ("qlc", ["magnitude", None]),
    "h_target": ("qrc_huber", ["td_error", "clipped"]),
    "h_averaging": ("gq", ["batch", "action"]),
    "h_decoupled_weight_decay": ("qrc", [False, True]),
    "h_regularization_scale": ("qrc", ["absolute", "features"]),
    "behaviour": ("sbeed", ["greedy", "softmax"]),
}

ignore_announcements = pytest.mark.filterwarnings("ignore:.*bootstraps from a target", "ignore:tau=.* is ignored")


def test_members_are_the_product_and_seeds_run_fastest():
    population = make(
        "qrc_huber", [4, 2], learning_rate=[1e-3, 1e-2], huber_threshold=(0.5, None), gamma=0.9, limit="magnitude"
    )
    expected = [
        Member(seed, {"learning_rate": rate, "huber_threshold": threshold})
        for rate in (1e-3, 1e-2)
        for threshold in (0.5, None)
        for seed in (4, 2)
    ]
    assert population.members == expected
    assert len(population) == 8
    single = population[6]
    assert (single.seed, single.learning_rate, single.huber_threshold) == (4, 1e-2, None)
    assert (single.gamma, single.limit) == (0.9, "magnitude")


def test_without_lists_members_differ_in_their_seeds_only():
    assert make("gq", np.arange(3)).members == [Member(0), Member(1), Member(2)]


@pytest.mark.parametrize("name", [*NUMBERS, *CHOICES])
@ignore_announcements
def test_every_number_and_choice_may_be_a_list(name):
    algorithm, values = LISTS[name]
    population = make(algorithm, [0], **{name: values})
    assert [getattr(model, name) for model in population] == values


def test_members_given_one_by_one():
    members = [Member(3, {"learning_rate": 0.1}), Member(3, {"gamma": 0.5}), Member(1)]
    population = make("qrc", members, gamma=0.9)
    assert population.members == members
    assert [(p.seed, p.learning_rate, p.gamma) for p in population] == [(3, 0.1, 0.9), (3, 1e-3, 0.5), (1, 1e-3, 0.9)]


@pytest.mark.parametrize("algorithm", ["dqn", "qrc"])
@ignore_announcements
def test_a_target_interval_of_0_is_none(algorithm):
    population = make(algorithm, [0], target_update_interval=[0, None, 7])
    (without, _), (target, _) = population._trainer.learner_of(0), population._trainer.learner_of(2)
    assert (without.has_target, target.has_target) == (False, True)
    assert [group.tolist() for group in population._trainer.groups] == [[0, 1], [2]]
    assert population[0].target_update_interval == (None if algorithm == "qrc" else 1)


@pytest.mark.parametrize("interval", [None, 0])
def test_no_target_network_in_the_words_of_each_algorithm(interval):
    arguments = {"gamma": 0.9, "tau": 0.5, "target_update_interval": interval}
    assert target_arguments(arguments) == {**arguments, "target_update_interval": None}
    # SB3's always have one: a copy of the network itself before every update.
    copied = {"gamma": 0.9, "tau": 1.0, "target_update_interval": 1}
    assert target_arguments(arguments, always_target=True) == copied
    for always in (False, True):
        for kept in ({"tau": 0.5}, {"target_update_interval": 7, "tau": 0.5}):
            assert target_arguments(kept, always_target=always) == kept


# What is refused


@pytest.mark.parametrize(
    ("name", "values"),
    [("batch_size", [8, 16]), ("learning_starts", (1, 2)), ("policy_kwargs", [{}]), ("train_freq", [1, 4])],
)
def test_lists_where_there_must_be_one_value(name, values):
    with pytest.raises(ValueError, match=rf"^{name} is the list .*one value.*learning_rate, gamma.*one population per"):
        make("qrc", **{name: values})
    with pytest.raises(ValueError, match=r"^learning_rate is an empty list"):
        make("qrc", learning_rate=[])


@pytest.mark.parametrize(
    ("algorithm", "name", "text"),
    [
        ("qrc", "kappa", "QRC.*huber_threshold"),
        ("dqn", "eta", "DQN.*huber_threshold"),
        ("sbeed", "limit", "SBEED.*eta"),
    ],
)
def test_unknown_arguments_name_those_that_there_are(algorithm, name, text):
    with pytest.raises(TypeError, match=rf"^{name}=0\.5 is no argument of {text}") as error:
        make(algorithm, **{name: 0.5})
    assert "n_steps" not in str(error.value), "no alternative that would be refused as well"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("seed", "seeds"),
        ("n_steps", "single agents"),
        ("replay_buffer_class", "its own"),
        ("replay_buffer_kwargs", "its own"),
        ("optimize_memory_usage", "smaller buffer_size"),
        ("tensorboard_log", r"pop\.curve\(\)"),
        ("stats_window_size", r"pop\.returns"),
        ("_init_setup_model", "Leave it out"),
    ],
)
def test_arguments_without_meaning_in_lock_step(name, remedy):
    remedy = "buffer of its own" if remedy == "its own" else remedy
    with pytest.raises(ValueError, match=rf"^{name}=1 is no argument of a Population.*{remedy}"):
        make("qrc", **{name: 1})


@pytest.mark.parametrize("seeds", [[], [1, 2, 1], [-1], range(0)])
def test_seeds_out_of_range(seeds):
    with pytest.raises(ValueError, match=r"^seeds must be one or more different integers from 0 to"):
        make("qrc", seeds)


@pytest.mark.parametrize("seeds", [3, [1.0], "ab", [None], [Member(0), 1]])
def test_seeds_that_are_no_integers(seeds):
    with pytest.raises(TypeError, match=r"^seeds must be integers, as in range\(30\)"):
        make("qrc", seeds)


def test_members_and_lists_do_not_mix():
    with pytest.raises(ValueError, match=r"seeds are members.*gamma"):
        make("qrc", [Member(0)], gamma=[0.9, 0.99])
    with pytest.raises(ValueError, match=r"batch_size is a setting.*one value"):
        make("qrc", [Member(0, {"batch_size": 4})])
    with pytest.raises(ValueError, match="from 0 to"):
        make("qrc", [Member(-2)])


@pytest.mark.parametrize("algorithm", ["ppo", "QRC", PPO, QRDQN, None])
def test_other_algorithms(algorithm):
    with pytest.raises(ValueError, match=r"^algorithm must be one of dqn, qrc, .*single agents"):
        make(algorithm)


def test_algorithms_by_class():
    assert make(DQN).algorithm is make("dqn").algorithm is make(BaselineDQN).algorithm is DQN
    assert make(QRCHuber).algorithm is make("qrc_huber").algorithm is QRCHuber


def test_train_freq_in_episodes():
    with pytest.raises(ValueError, match=r"^train_freq=\(1, 'episode'\) counts episodes.*number of steps"):
        make("qrc", train_freq=(1, "episode"))
    assert make("qrc", train_freq=(4, "step"))[0].train_freq.frequency == 4


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-5, ValueError), (1e5, TypeError), ("9", TypeError)])
def test_numbers_that_are_no_counts(value, error):
    with pytest.raises(error, match=r"^buffer_size must be"):
        make("qrc", buffer_size=value)
    with pytest.raises(error, match=r"^total_timesteps must be"):
        make("dqn").learn(value)


BAD_VALUES = [
    ("qrc", "learning_rate", [1e-3, "1e-3"]),
    ("qrc", "gamma", [0.9, 1.5]),
    ("qrc", "batch_size", 0),
    ("qrc", "target_update_interval", [5, -3]),
    ("gq", "max_grad_norm", [None, -1.0]),
    ("gq", "h_regularization", [0.0, -1.0]),
    ("gq", "h_learning_rate_ratio", [1.0, float("inf")]),
    ("qrc_huber", "huber_threshold", [1.0, -0.5]),
    ("dqn", "huber_threshold", [None, 0.0]),
    ("dqn", "huber_threshold", [1.0, "1"]),
    ("qrc_huber", "projection", ["huber", "hubert"]),
    ("qlc", "limit", ["magnitude", "half"]),
    ("qrc", "h_target", ["td_error", "reward"]),
    ("qlc", "h_averaging", ["batch", "sample"]),
    ("gq_huber", "h_decoupled_weight_decay", [False, "true"]),
    ("sbeed", "temperature", [1.0, 0.0]),
    ("sbeed", "eta", [0.5, 2.0]),
    ("sbeed", "behaviour", ["greedy", "random"]),
]


@pytest.mark.parametrize(("algorithm", "name", "value"), BAD_VALUES)
@ignore_announcements
def test_values_out_of_range_get_the_single_agents_error(algorithm, name, value):
    cls = BaselineDQN if algorithm == "dqn" else CLASSES[algorithm]
    bad = value[-1] if isinstance(value, list) else value
    with pytest.raises((TypeError, ValueError), match=f"^{name}") as expected:
        cls("MlpPolicy", "CartPole-v1", **{**SMALL, name: bad})
    with pytest.raises(expected.type) as found:
        make(algorithm, **{name: value})
    assert str(found.value) == str(expected.value)


class DropoutExtractor(FlattenExtractor):
    """Flat features, of which some are dropped."""

    def __init__(self, observation_space):
        super().__init__(observation_space)
        self.dropout = nn.Dropout(0.5)

    def forward(self, observations):
        return self.dropout(super().forward(observations))


@pytest.mark.parametrize("extractor", [BatchNormExtractor, DropoutExtractor])
@pytest.mark.parametrize("algorithm", ["dqn", "qrc"])
def test_networks_that_cannot_be_stacked(algorithm, extractor):
    with pytest.raises(ValueError, match=r"policy_kwargs.*features_extractor.*(BatchNorm1d|Dropout).*LayerNorm"):
        make(algorithm, policy_kwargs={"features_extractor_class": extractor})


@pytest.mark.parametrize(
    ("optimizer", "kwargs"),
    [
        (th.optim.SGD, {}),
        (th.optim.AdamW, {}),
        (th.optim.Adam, {"amsgrad": True}),
        (th.optim.Adam, {"maximize": True}),
        (th.optim.Adam, {"weight_decay": 0.1}),
    ],
)
@pytest.mark.parametrize("algorithm", ["dqn", "gq"])
def test_other_optimisers(algorithm, optimizer, kwargs):
    name = optimizer.__name__
    with pytest.raises(ValueError, match=rf"policy_kwargs\['optimizer_class'\] is {name}.*plain Adam.*single agents"):
        make(algorithm, policy_kwargs={"optimizer_class": optimizer, "optimizer_kwargs": kwargs})


# How members begin


@pytest.mark.parametrize("target_update_interval", [None, 5])
@every_algorithm
@ignore_announcements
def test_initial_weights_are_the_single_agents(algorithm, target_update_interval):
    population = make(algorithm, [7, 1], learning_rate=[1e-3, 0.1], target_update_interval=target_update_interval)
    (learner,) = population._trainer.learners
    assert learner.has_target == (target_update_interval is not None)
    for i, member in enumerate(population.members):
        interval = {"target_update_interval": target_update_interval or 1} if algorithm == "dqn" else {}
        expected = dict(make_single(algorithm, seed=member.seed, **interval).policy.named_parameters())
        for name, value in learner.layout.split(learner.rows).items():
            assert th.equal(value[i], expected[name]), name
        if target_update_interval is not None:
            assert th.equal(learner.target_rows, learner.rows)
    assert not th.equal(learner.rows[0], learner.rows[1]), "seeds"
    assert th.equal(learner.rows[0], learner.rows[2]), "settings do not change the beginning"


@pytest.mark.parametrize("head_init", HEAD_INITS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_heads_start_as_the_single_agents(algorithm, head_init):
    kwargs = {"net_arch": [16], "head_init": head_init}
    learner, row = make(algorithm, [7, 1], policy_kwargs=kwargs)._trainer.learner_of(1)
    expected = dict(make_single(algorithm, seed=1, policy_kwargs=kwargs).policy.named_parameters())
    for name, value in learner.layout.split(learner.rows).items():
        assert th.equal(value[row], expected[name]), name


def test_each_warning_is_given_once_and_here():
    with pytest.warns(UserWarning, match="no target network") as caught:
        Population("qrc", "MlpPolicy", "CartPole-v1", range(3), tau=[0.5, 0.25], device="cpu")
    assert [str(w.message).split()[0] for w in caught] == ["tau=0.5", "tau=0.25"]
    assert {w.filename for w in caught} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make("dqn", target_update_interval=[None, 7])
