"""Checks of arguments, observations and rewards, whose errors name the argument, the value and the remedy."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from sb3_robust_be.messages import warn
from sb3_robust_be.updates import H_TARGETS, LIMITS, ROBUST_LOSSES

# Every argument that takes a number, of DQN's and of ours.
NUMERIC_ARGUMENTS = (
    *("learning_rate", "buffer_size", "learning_starts", "batch_size", "tau", "gamma", "gradient_steps", "n_steps"),
    *("target_update_interval", "exploration_fraction", "exploration_initial_eps", "exploration_final_eps"),
    *("max_grad_norm", "huber_threshold", "h_regularization", "h_learning_rate_ratio", "temperature", "eta"),
    *("correction_weight", "td_error_threshold"),
    *("stats_window_size", "verbose", "seed"),
)


def constructor_arguments(algorithm: type[Any]) -> dict[str, inspect.Parameter]:
    """
    Every argument of an algorithm's constructor, those included that ``**kwargs`` hand on to its base class.

    :param algorithm: A class.
    :return: By name, in the order of the class that has them all; the defaults are the algorithm's own.
    """
    found: dict[str, inspect.Parameter] = {}
    for cls in algorithm.__mro__:
        if "__init__" not in vars(cls):
            continue
        own = inspect.signature(vars(cls)["__init__"]).parameters
        found = {**own, **found}  # the nearest class's defaults count
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in own.values()):
            break
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: p for name, p in found.items() if name != "self" and p.kind not in variable}


def check_numbers(arguments: dict[str, Any]) -> None:
    """Refuse strings, which YAML makes of ``1e5`` and of anything in quotes.

    :param arguments: Values by name; only :data:`NUMERIC_ARGUMENTS` are looked at.
    :raises TypeError: With the first offender.
    """
    for name in NUMERIC_ARGUMENTS:
        if isinstance(value := arguments.get(name), str):
            raise TypeError(
                f"{name} must be a number and is the string {value!r}. In YAML, leave the quotes out and write "
                "exponents as `!!float 1e5`; in Python, pass the number."
            )


def plain_number(value: Any) -> Any:
    """A number of numpy's as Python's own, which JSON and every generator of random numbers take; else ``value``."""
    return value.item() if isinstance(value, np.number) else value


def check_choice(name: str, value: str | None, choices: Iterable[str | None]) -> None:
    """Check an argument that must be one of several values.

    :param name: The argument.
    :param value: What it was set to.
    :param choices: What it may be.
    :raises ValueError: If it is none of them.
    """
    choices = tuple(choices)
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))} and is {value!r}.")


def check_flag(name: str, value: Any) -> None:
    """Check an argument that must be a bool.

    :param name: The argument.
    :param value: What it was set to.
    :raises TypeError: If it is neither ``True`` nor ``False``.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False and is {value!r}. In YAML, leave the quotes out.")


def check_compile(value: Any) -> None:
    """Check the argument ``compile``.

    :param value: What it was set to.
    :raises TypeError: If it is neither a bool nor ``"bfloat16"``.
    """
    if not isinstance(value, bool) and value != "bfloat16":
        raise TypeError(f"compile must be True, False or 'bfloat16' and is {value!r}. In YAML, True has no quotes.")


def check_count(name: str, value: Any, remedy: str, least: int = 1) -> None:
    """Check an argument that must be an integer, a positive one unless ``least`` says otherwise.

    :param name: The argument.
    :param value: What it was set to.
    :param remedy: What to do instead.
    :param least: The smallest integer that it may be.
    :raises TypeError: If it is no integer.
    :raises ValueError: If it is less than that.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer and is {value!r}. {remedy}")
    if value < least:
        raise ValueError(f"{name} must be at least {least} and is {value!r}. {remedy}")


def check_not_negative(name: str, value: Any, remedy: str, finite: bool = False) -> float:
    """Check an argument that must be a number of at least 0.

    :param name: The argument.
    :param value: What it was set to.
    :param remedy: What to do instead.
    :param finite: Whether infinity is out of range as well.
    :return: The value as a float.
    :raises TypeError: If it is no number.
    :raises ValueError: If it is out of range or NaN.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{name} must be a number and is {value!r}. {remedy}")
    if not value >= 0:
        raise ValueError(f"{name} must not be negative and is {value!r}. {remedy}")
    if finite and value == math.inf:
        raise ValueError(f"{name} must be finite and is {value!r}. {remedy}")
    return float(value)


def check_share(name: str, value: Any, remedy: str) -> None:
    """Check an argument that must be a number from 0 to 1.

    :param name: The argument.
    :param value: What it was set to.
    :param remedy: What to do instead.
    :raises TypeError: If it is no number.
    :raises ValueError: If it is out of range or NaN.
    """
    if check_not_negative(name, value, remedy) > 1:
        raise ValueError(f"{name} must be from 0 to 1 and is {value!r}. {remedy}")


_COUNTS = {
    "buffer_size": (1, "Pass how many transitions are kept."),
    "batch_size": (1, "The paper uses 32."),
    "n_steps": (1, "1 is the plain return."),
    "gradient_steps": (-1, "Pass the updates after each train_freq, -1 for as many as there were steps."),
    "target_update_interval": (0, "Pass None for no target network."),
}
_SHARES = {
    "gamma": "The paper uses 0.99.",
    "tau": "1 copies the whole network.",
    "exploration_fraction": "It is the share of training over which exploration falls.",
    "exploration_final_eps": "It is the probability of a random action in the end.",
}
_NUMBERS = {
    "learning_rate": "Pass a small number such as 1e-3, or a schedule.",
    "learning_starts": "Pass the environment steps before the first update; 0: none.",
    "max_grad_norm": "Pass None for no clipping.",
    # More than 1 explores all the time at first, and then less.
    "exploration_initial_eps": "It is the probability of a random action at the start.",
}
DQN_ARGUMENTS = (*_COUNTS, *_SHARES, *_NUMBERS, "train_freq")
"""The arguments of DQN that :func:`check_dqn_arguments` checks"""


def check_dqn_arguments(arguments: Mapping[str, Any]) -> None:
    """Check arguments of DQN, which all algorithms here have. SB3 takes any number for them, and fails late or never.

    :param arguments: Values by name; only :data:`DQN_ARGUMENTS` are looked at. A ``learning_rate`` may be a schedule,
        ``target_update_interval`` 0 or ``None`` (no target network) and ``max_grad_norm`` ``None`` (no clipping).
    :raises TypeError: For something else than a number.
    :raises ValueError: For a number that is out of range.
    """
    for name in DQN_ARGUMENTS:
        if name in arguments:
            _check_dqn_argument(name, arguments[name])


def _check_dqn_argument(name: str, value: Any) -> None:
    if value is None and name in ("target_update_interval", "max_grad_norm"):
        return
    if name in _COUNTS:
        least, remedy = _COUNTS[name]
        check_count(name, value, remedy, least)
    elif name in _SHARES:
        check_share(name, value, _SHARES[name])
    elif name == "train_freq":
        check_frequency(value)
    elif not (name == "learning_rate" and callable(value)):
        check_not_negative(name, value, _NUMBERS[name], finite=name == "learning_rate")


def check_frequency(train_freq: Any) -> None:
    """Check how often an agent learns.

    :param train_freq: The argument, or what SB3 makes of it: a number, or a number with its unit.
    :raises TypeError: If the number is no integer.
    :raises ValueError: If it is less than 1, or the unit another one.
    """
    remedy = "Pass the steps between two updates, or (1, 'episode')."
    count, unit = train_freq if isinstance(train_freq, (tuple, list)) and len(train_freq) == 2 else (train_freq, "step")
    check_count("train_freq", count, remedy)
    if getattr(unit, "value", unit) not in ("step", "episode"):
        raise ValueError(f"train_freq must count steps or episodes and is {train_freq!r}. {remedy}")


def check_threshold(value: Any, projection: str) -> float:
    """Check a value of ``huber_threshold``.

    :param value: One value of ``huber_threshold``, the argument or what its schedule gave.
    :param projection: A valid projection.
    :return: The value as a float.
    :raises TypeError: If it is no number.
    :raises ValueError: If it is negative, or not between 0 and infinity for ``smooth_huber``.
    """
    threshold = check_not_negative(
        "huber_threshold", value, "Pass a number in units of reward, a schedule, or None for no clipping."
    )
    if projection == "smooth_huber" and not 0 < threshold < math.inf:
        raise ValueError(
            f"huber_threshold must be positive and finite with projection='smooth_huber' and is {value!r}. "
            "Use projection='huber' for the limits 0 and infinity."
        )
    return threshold


def check_projection(projection: str, huber_threshold: Any, limit: str | None, h_target: str) -> None:
    """Check the arguments that choose the robust loss.

    :param projection: The argument.
    :param huber_threshold: A number, a schedule or ``None``.
    :param limit: The argument.
    :param h_target: The argument.
    :raises TypeError: If ``huber_threshold`` is neither.
    :raises ValueError: For an unknown name, a threshold out of range, or a missing one.
    """
    check_choice("projection", projection, ROBUST_LOSSES)
    check_choice("limit", limit, (None, *LIMITS))
    check_choice("h_target", h_target, H_TARGETS)
    if huber_threshold is None:
        if projection == "smooth_huber":
            raise ValueError("huber_threshold must be a positive number with projection='smooth_huber' and is None.")
        return
    if not callable(huber_threshold):
        check_threshold(huber_threshold, projection)
    if not ROBUST_LOSSES[projection].thresholded and h_target != "clipped":
        warn(
            f"huber_threshold={huber_threshold!r} has no effect with projection={projection!r}: pass "
            "huber_threshold=None, or projection='huber' to clip."
        )


def check_rewards(rewards: np.ndarray, num_timesteps: int) -> None:
    """Stop before a NaN reaches the replay buffer, from where it would fill the weights.

    :param rewards: One per environment.
    :param num_timesteps: Environment steps so far, these included.
    :raises ValueError: If one is NaN or infinite.
    """
    # The sum is finite unless a reward is not, or they overflow together, for which the second look is there.
    if not math.isfinite(rewards.sum()) and not np.isfinite(rewards).all():
        index = int(np.flatnonzero(~np.isfinite(rewards))[0])
        raise ValueError(
            f"The environment with index {index} returned the reward {rewards[index]} at environment step "
            f"{num_timesteps}. One such reward would make every weight NaN: fix the environment, or wrap it in "
            "gymnasium.wrappers.TransformReward."
        )


_LARGEST = float(np.finfo(np.float32).max)
_LARGEST_SQUARE = _LARGEST**2


def check_observations(
    observations: np.ndarray | dict[str, np.ndarray],
    num_timesteps: int,
    environment: int | None = None,
    occasion: str = "",
) -> None:
    """Stop before a NaN reaches the replay buffer, from where it would fill the weights.

    :param observations: Batch first, or one observation of ``environment``; by key where the space is a ``Dict``.
        Integers are never looked at.
    :param num_timesteps: Environment steps so far, these included.
    :param environment: Index of the environment whose single observation this is; ``None``: a batch, one of each.
    :param occasion: What kind of observation it is, for the message.
    :raises ValueError: If a number in it is NaN, infinite, or too large for float32.
    """
    by_key = observations if isinstance(observations, dict) else {None: observations}
    for key, given in by_key.items():
        values = np.asarray(given)
        # The sum of squares is small unless a number is NaN or infinite, or is so in float32, which networks compute
        # in, or many are large, for which the second look is there. No other way to look at every number costs as
        # little.
        if values.dtype.kind != "f" or float(np.vdot(values, values)) <= _LARGEST_SQUARE:
            continue
        fine = np.abs(values) <= _LARGEST
        if fine.all():
            continue
        place = tuple(int(i) for i in np.argwhere(~fine)[0])
        index, inner = (place[0], place[1:]) if environment is None else (environment, place)
        where = "".join(
            [f" under the key {key!r}" if key is not None else "", f" at position {inner}" if inner else ""]
        )
        raise ValueError(
            f"The environment with index {index} returned an observation that holds {values[place]}{where}, at "
            f"environment step {num_timesteps}{occasion}. One such number would make every weight NaN: fix the "
            "environment, or wrap it in gymnasium.wrappers.TransformObservation (with numpy.nan_to_num, for instance)."
        )


def check_buffer_arguments(
    n_steps: int,
    replay_buffer_class: type[ReplayBuffer] | None,
    optimize_memory_usage: bool,
    observation_space: spaces.Space,
) -> None:
    """Check the arguments of the replay buffer against each other.

    :param n_steps: The argument.
    :param replay_buffer_class: The argument; what the user's own class can do, the user knows.
    :param optimize_memory_usage: The argument.
    :param observation_space: The environment's.
    :raises ValueError: If SB3 has no replay buffer for them.
    """
    if n_steps > 1 and replay_buffer_class is None:
        if optimize_memory_usage:
            raise ValueError(
                f"n_steps={n_steps} does not work with optimize_memory_usage=True: SB3's n-step buffer has "
                "no memory-efficient variant. Choose one of the two."
            )
        if isinstance(observation_space, spaces.Dict):
            raise ValueError(
                f"n_steps={n_steps} does not work with Dict observations: SB3 has no n-step buffer for them. "
                "Use n_steps=1, or flatten the observations with gymnasium.wrappers.FlattenObservation."
            )


# What an update reads of a batch.
_USED = {"observations", "actions", "next_observations", "dones", "rewards", "discounts", "next_action_masks"}


def check_buffer(buffer: ReplayBuffer | None) -> None:
    """Check that a replay buffer can be sampled from.

    :param buffer: That an update is to sample from.
    :raises ValueError: If nothing is in it.
    """
    if buffer is None or buffer.size() == 0:
        raise ValueError(
            "The replay buffer is empty, so that train() has nothing to learn from. Call learn(), which fills it, or "
            "load_replay_buffer(path) before."
        )


def warn_of_priorities(buffer: ReplayBuffer, data: ReplayBufferSamples) -> None:
    """Warn of what a replay buffer offers and the update does not use, such as importance weights.

    :param buffer: The replay buffer.
    :param data: A batch of it.
    """
    ignored = [
        name
        for name in getattr(data, "_fields", ())
        if name not in _USED and isinstance(getattr(data, name), (th.Tensor, np.ndarray, Sequence))
    ]
    if callable(getattr(buffer, "update_priorities", None)):
        ignored.append("update_priorities()")
    if ignored:
        warn(
            f"The replay buffer {type(buffer).__name__} offers {', '.join(ignored)}, which the update ignores: every "
            "sample of a batch counts alike and no priority is ever updated. Use a buffer that samples uniformly, such "
            "as ReplayBuffer."
        )
