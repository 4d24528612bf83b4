"""ε-greedy actions of all agents of a population, each with its own ε and random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sb3_robust_be.updates import legal_values, mellowmax_policy


class Exploration:
    """
    The members' exploration: their ε at the current progress, and their actions.

    :param models: The members' single agents, with their schedules.
    :param n_actions: Of the environment.
    """

    WIDTH = 3
    """Uniform numbers per member and step: whether to explore, which action, and which sample of a softmax policy"""

    def __init__(self, models: Sequence[Any], n_actions: int) -> None:
        self._n_actions = n_actions
        schedules = [model.exploration_schedule for model in models]
        arguments = [(m.exploration_initial_eps, m.exploration_final_eps, m.exploration_fraction) for m in models]
        self._distinct = dict(zip(arguments, schedules, strict=True))
        self._member = [list(self._distinct).index(own) for own in arguments]
        softmax = [getattr(model, "behaviour", "greedy") == "softmax" for model in models]
        self._softmax = np.flatnonzero(softmax)
        self._temperatures = np.array([model.temperature for model, own in zip(models, softmax, strict=True) if own])[
            :, None
        ]
        self.cap = np.ones(len(models))
        """Resuming never explores more than before the interruption."""
        self.rates = np.ones(len(models))
        """ε, shape (members,)"""

    def set_progress(self, progress_remaining: float, going_on: np.ndarray | bool = True) -> None:
        """Set ε to that of the current progress.

        :param progress_remaining: From 1 to 0.
        :param going_on: Which members have not failed, shape (members,), or all; the others keep theirs.
        """
        # SB3's schedule divides by the fraction at the very beginning, where a single agent does not ask it.
        distinct = [
            schedule(progress_remaining) if fraction > 0 else final
            for (_, final, fraction), schedule in self._distinct.items()
        ]
        self.rates = np.where(going_on, np.minimum(np.array(distinct)[self._member], self.cap), self.rates)

    def random_actions(self, uniforms: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray:
        """Choose uniformly random actions.

        :param uniforms: In [0, 1), shape (members, at least WIDTH).
        :param masks: Which actions are legal, at least one for each member, shape (members, actions); ``None``: all.
        :return: Indices of actions, shape (members,).
        """
        if masks is None:
            return (uniforms[:, 1] * self._n_actions).astype(np.int64)
        rank = (uniforms[:, 1] * masks.sum(axis=1)).astype(np.int64)
        # The legal action that has so many before it.
        return (masks.cumsum(axis=1) <= rank[:, None]).sum(axis=1)

    def actions(self, values: np.ndarray, uniforms: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray:
        """Choose ε-greedy actions, or those of the members' own policy.

        :param values: ``q(s,·)``, shape (members, actions).
        :param uniforms: In [0, 1), shape (members, at least WIDTH).
        :param masks: As of :meth:`random_actions`.
        :return: Indices of actions, shape (members,).
        """
        values = legal_values(values, masks)
        chosen = values.argmax(axis=1)
        if len(self._softmax):
            below = mellowmax_policy(values[self._softmax].astype(np.float64), self._temperatures).cumsum(axis=1)
            sampled = (below < uniforms[self._softmax, 2:3]).sum(axis=1)
            sampled = np.minimum(sampled, self._n_actions - 1)
            if masks is not None:
                # What rounding has put on an action of probability 0.
                sampled = np.where(masks[self._softmax, sampled], sampled, chosen[self._softmax])
            chosen[self._softmax] = sampled
        explore = uniforms[:, 0] < self.rates
        return np.where(explore, self.random_actions(uniforms, masks), chosen)
