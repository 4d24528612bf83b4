"""The members of a population: every seed with every combination of the listed arguments."""

from __future__ import annotations

import itertools
import operator
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_robust_be import registry
from sb3_robust_be.messages import warn
from sb3_robust_be.population.baseline import Agent, BaselineDQN, target_arguments
from sb3_robust_be.qrc import validation
from sb3_robust_be.qrc.dqn import TwoHeadDQN
from sb3_robust_be.qrc.validation import constructor_arguments

# What may differ between members, hence be a list.
NUMBERS = (
    *("learning_rate", "gamma", "tau", "target_update_interval", "max_grad_norm", "huber_threshold"),
    *("h_regularization", "h_learning_rate_ratio", "temperature", "eta", "correction_weight", "td_error_threshold"),
    *("exploration_fraction", "exploration_initial_eps", "exploration_final_eps"),
)
CHOICES = (
    *("projection", "limit", "h_target", "h_averaging", "h_decoupled_weight_decay", "h_regularization_scale"),
    "behaviour",
)
# Arguments of a single agent that mean nothing in lock-step.
_REFUSED = {
    "seed": "Pass seeds, one per member.",
    "compile": "Pass Population(..., compile=True): the population is compiled as a whole.",
    "n_steps": "Longer returns are for single agents.",
    "replay_buffer_class": "The population has a buffer of its own.",
    "replay_buffer_kwargs": "The population has a buffer of its own.",
    "optimize_memory_usage": "Pass a smaller buffer_size.",
    "tensorboard_log": "Read pop.returns and pop.curve().",
    "stats_window_size": "Read pop.returns.",
    "_init_setup_model": "Leave it out.",
}


@dataclass(frozen=True)
class Member:
    """One agent of a population."""

    seed: int
    settings: dict[str, Any] = field(default_factory=dict)
    """Its values of the arguments that were lists"""


class SpacesEnv(gym.Env):
    """An environment of which only the spaces are used, to build a single agent."""

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def known_algorithms() -> dict[str, type[DQN]]:
    """The algorithms that populations can train.

    :return: The algorithms of which there can be populations, by name.
    """
    return {name: registry.load(name) for name, entry in registry.ENTRIES.items() if entry.population}


def resolve_algorithm(algorithm: str | type[OffPolicyAlgorithm]) -> type[DQN]:
    """Find the class of an algorithm that a population can train.

    :param algorithm: A class, or its name in files and commands.
    :return: The class: SB3's DQN, or one of this package.
    :raises ValueError: For anything else.
    """
    known = known_algorithms()
    found = known.get(algorithm) if isinstance(algorithm, str) else algorithm
    if found is BaselineDQN:
        return DQN
    if not (isinstance(found, type) and (found is DQN or issubclass(found, (TwoHeadDQN, BaselineDQN)))):
        raise ValueError(
            f"algorithm must be one of {', '.join(known)}, or its class, and is {algorithm!r}. Other algorithms of "
            "SB3 have no loss that could be stacked: train single agents."
        )
    return found


def member_class(algorithm: type[DQN]) -> type[Agent]:
    """Find the class of the agents that a population is made of.

    :param algorithm: Of :func:`resolve_algorithm`.
    :return: The class whose loss is stacked.
    """
    return algorithm if issubclass(algorithm, (TwoHeadDQN, BaselineDQN)) else BaselineDQN


def plain(value: Any) -> Any:
    """Convert numpy's numbers and vectors to Python's.

    :param value: An argument.
    :return: Lists in place of numpy's vectors, and Python's numbers in place of numpy's.
    """
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    return [plain(x) for x in value] if isinstance(value, list) else value


def check_frequency(train_freq: Any) -> None:
    """Check that ``train_freq`` counts steps.

    :param train_freq: As of a single agent.
    :raises ValueError: If it does not count steps, one or more.
    """
    validation.check_frequency(train_freq)
    if isinstance(train_freq, (tuple, list)) and train_freq[1] == "episode":
        raise ValueError(
            f"train_freq={train_freq!r} counts episodes, and the members' episodes end at different steps. Pass a "
            "number of steps."
        )


def as_list(seeds: Any) -> list[Any]:
    """Check that seeds are a collection.

    :param seeds: Integers or members.
    :return: The same as a list.
    :raises TypeError: If it is no collection.
    """
    if not isinstance(seeds, Iterable):
        raise TypeError(f"seeds must be integers, as in range(30), and is {seeds!r}.")
    return list(seeds)


def expand(seeds: Iterable[int] | Iterable[Member], arguments: dict[str, Any]) -> list[Member]:
    """Combine every seed with every combination of the arguments that are lists; seeds run fastest.

    :param seeds: One or more, each once; or the members themselves.
    :param arguments: Of which those that are lists are taken apart.
    :return: The members.
    :raises ValueError: For seeds that are negative or doubled, or an empty list.
    :raises TypeError: For seeds that are no integers.
    """
    chosen: list[Any] = list(seeds)
    own = bool(chosen) and all(isinstance(x, Member) for x in chosen)
    if not own:
        chosen = _check_seeds(chosen)
    listed = {name: value for name, value in arguments.items() if isinstance(value, (list, tuple))}
    if isinstance(arguments.get("train_freq"), tuple):
        # One value: a frequency and its unit.
        del listed["train_freq"]
    for name, values in listed.items():
        if name not in NUMBERS + CHOICES:
            raise ValueError(
                f"{name} is the list {values!r} and must be one value for the whole population; lists are possible for "
                f"{', '.join(NUMBERS + CHOICES)}. Make one population per value of {name}."
            )
        if not values:
            raise ValueError(f"{name} is an empty list. Pass at least one value.")
    if own:
        return _check_members(chosen, listed)
    products = itertools.product(*listed.values())
    return [Member(seed, dict(zip(listed, values, strict=True))) for values in products for seed in chosen]


def _check_members(members: list[Member], listed: dict[str, Any]) -> list[Member]:
    if listed:
        raise ValueError(f"seeds are members, so no argument can be a list, and {next(iter(listed))} is one.")
    for name in {name for member in members for name in member.settings}:
        if name not in NUMBERS + CHOICES:
            raise ValueError(f"{name} is a setting of a member and must be one value for the whole population.")
    _check_seeds({member.seed for member in members})
    return members


def _check_seeds(seeds: Iterable[int]) -> list[int]:
    try:
        chosen = [operator.index(seed) for seed in seeds]
    except TypeError:
        raise TypeError(f"seeds must be integers, as in range(30), and is {seeds!r}.") from None
    if not chosen or min(chosen) < 0 or max(chosen) >= 2**32 or len(set(chosen)) < len(chosen):
        raise ValueError(f"seeds must be one or more different integers from 0 to 2³² − 1 and is {chosen!r}.")
    return chosen


def check_arguments(cls: type[Agent], arguments: dict[str, Any]) -> None:
    """Check the names of a population's arguments.

    :param cls: Of :func:`member_class`.
    :param arguments: For its constructor.
    :raises ValueError: For one that a population does not have.
    :raises TypeError: For one that the algorithm does not know.
    """
    for name in arguments:
        if name in _REFUSED:
            raise ValueError(f"{name}={arguments[name]!r} is no argument of a Population. {_REFUSED[name]}")
    known = constructor_arguments(cls).keys() - {"policy", "env"}
    unknown = sorted(arguments.keys() - known)
    if unknown:
        name = "DQN" if cls is BaselineDQN else cls.__name__
        raise TypeError(
            f"{unknown[0]}={arguments[unknown[0]]!r} is no argument of {name}, whose arguments are "
            f"{', '.join(sorted(known - _REFUSED.keys()))}."
        )


def own_arguments(arguments: dict[str, Any], member: Member) -> dict[str, Any]:
    """The arguments of one member as a single agent.

    :param arguments: Of the population.
    :param member: One of its members.
    :return: A single agent's, with the member's settings in place of the lists; its ``seed`` is not among them.
    """
    return target_arguments({**arguments, **member.settings})


def build_models(
    cls: type[Agent], policy: str | type[Any], env: gym.Env, members: Sequence[Member], arguments: dict[str, Any]
) -> list[Agent]:
    """Build a single agent per member, whose initial weights and arguments the population takes.

    :param cls: Of :func:`member_class`.
    :param policy: As for a single agent.
    :param env: For its spaces.
    :param members: Of :func:`expand`.
    :param arguments: As for a single agent, where a member's own settings stand in for the lists.
    :return: The agents. Each distinct warning is given once.
    """
    models = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for member in members:
            # Its own buffer is never written to.
            own = {**own_arguments(arguments, member), "buffer_size": 1, "device": "cpu", "verbose": 0}
            models.append(cls(policy, env, seed=member.seed, **own))
    for text, category in dict.fromkeys((str(w.message), w.category) for w in caught):
        warn(text, category)
    return models


def structure(model: Agent) -> tuple[Any, ...]:
    """What decides whether two members' networks can be stacked.

    :param model: A member.
    :return: All that members whose networks are stacked must have in common besides the population's arguments.
    """
    settings = tuple((k, v) for k, v in model.update_settings().items() if not isinstance(v, (int, float)))
    return model.has_target, settings, *(getattr(model, name, None) for name in CHOICES)
