"""What corrections do on Cliff World while agents learn, measured over its transition table."""

from __future__ import annotations

from typing import Any

import numpy as np

from sb3_robust_be.envs.cliff_world import (
    CLIFF_REWARD,
    MOVES,
    N_STATES,
    START,
    observation_table,
    transition_table,
)
from sb3_robust_be.updates import is_clipped, project

GROUPS: tuple[str, ...] = ("falls", "blocked moves", "other moves")
"""Kinds of state-action pairs, in the order of a trace's last axis; a blocked move stays in its cell"""


def _outcomes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Next state, reward and whether the episode goes on, each of shape (20, 4)."""
    table = transition_table()
    pairs = [[table[s][a][0] for a in range(len(MOVES))] for s in range(N_STATES)]
    following, rewards, terminated = (np.array([[pair[i] for pair in row] for row in pairs]) for i in (1, 2, 3))
    return following, rewards, ~terminated


_NEXT, _REWARDS, _GOES_ON = _outcomes()
_FALLS = _REWARDS == CLIFF_REWARD
_BLOCKED = ~_FALLS & (_NEXT == np.arange(N_STATES)[:, None])
_MASKS = np.stack([_FALLS, _BLOCKED, ~(_FALLS | _BLOCKED)])


def checkpoints(steps: int, points: int) -> np.ndarray:
    """
    :param steps: Of a run.
    :param points: How many, evenly spread; no more than there are steps.
    :return: After which steps to measure, shape (points,), the last one included.
    """
    return np.linspace(0, steps, min(points, steps) + 1).astype(int)[1:]


def tables(model: Any, observation: Any) -> tuple[np.ndarray, np.ndarray]:
    """
    :param model: An agent on Cliff World.
    :param observation: What it sees, see :func:`~sb3_robust_be.envs.cliff_world.observation_table`.
    :return: ``q`` and ``h`` in every cell, shape (20, 4).
    """
    import torch as th

    seen = th.as_tensor(observation_table(observation), device=model.device)
    with th.no_grad():
        if hasattr(model.q_net, "q_and_h"):
            q, h = model.q_net.q_and_h(seen)
        else:
            q = model.q_net(seen)
            h = th.zeros_like(q)
    return q.cpu().numpy(), h.cpu().numpy()


def visits(model: Any, observation: Any) -> np.ndarray:
    """
    :param model: An agent on Cliff World.
    :param observation: What it sees.
    :return: How often each pair of state and action is in its replay buffer, shape (20, 4).
    """
    buffer = model.replay_buffer
    seen = buffer.observations[: buffer.size(), 0]
    states = (seen[:, None] == observation_table(observation)).all(axis=-1).argmax(axis=1)
    counts = np.zeros((N_STATES, len(MOVES)))
    np.add.at(counts, (states, buffer.actions[: buffer.size(), 0, 0]), 1)
    return counts


def measure(model: Any, observation: Any) -> dict[str, np.ndarray]:
    """What the update of an agent expects to do, over the transitions in its replay buffer.

    :param model: An agent on Cliff World with a filled replay buffer.
    :param observation: What it sees.
    :return: By :data:`GROUPS`, shape (3,) and NaN where the buffer has no such transition: ``share`` of the
        transitions; their mean ``td_error`` ``|δ|`` and ``h`` ``|h|``; the fraction ``clipped`` of their h; ``ratio``,
        mean ``|γz|`` over mean ``|δ|``; and ``push``, the mean over all transitions of ``−γz`` where the group leads to
        the start: what the correction adds to its value. Shape (): ``start_value``, ``max q(start,·)``, and
        ``start_stays``, whether the greedy move there is blocked or falls.
    """
    (q, h), counts = tables(model, observation), visits(model, observation)
    bootstrapped = _target_values(model, observation, q)[_NEXT]
    discount = model.gamma * _GOES_ON
    td_error = _REWARDS + discount * bootstrapped - q
    if hasattr(model.q_net, "q_and_h"):
        settings = model.projection_settings()
        z, clipped = project(h, td_error, **settings), is_clipped(h, td_error, **settings)
    else:
        z, clipped = np.zeros_like(h), np.zeros(h.shape, bool)
    weights = np.where(_MASKS, counts, 0.0) / counts.sum()

    def total(x: np.ndarray) -> np.ndarray:
        return (weights * x).sum(axis=(1, 2))

    share, errors = total(np.ones_like(counts)), total(np.abs(td_error))
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "share": share,
            "td_error": errors / share,
            "h": total(np.abs(h)) / share,
            "clipped": total(clipped) / share,
            "ratio": total(np.abs(discount * z)) / errors,
            "push": total(np.where(_NEXT == START, -discount * z, 0.0)),
            "start_value": np.asarray(q[START].max()),
            "start_stays": np.asarray(_NEXT[START, q[START].argmax()] == START),
        }


def _target_values(model: Any, observation: Any, q: np.ndarray) -> np.ndarray:
    """``max q(s,·)`` of what the agent bootstraps from, shape (20,)."""
    import torch as th

    if model.q_net_target is model.q_net:
        return q.max(axis=1)
    with th.no_grad():
        seen = th.as_tensor(observation_table(observation), device=model.device)
        return model.q_net_target(seen).max(dim=1).values.cpu().numpy()
