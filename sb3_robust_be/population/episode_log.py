"""Returns and lengths of every member's episodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Episodes(NamedTuple):
    """A member's finished episodes in their order."""

    steps: np.ndarray
    """The environment step, counted from 1, with which each one ended"""
    returns: np.ndarray
    """Sums of rewards, undiscounted"""
    lengths: np.ndarray
    """In steps"""


class Unfinished(NamedTuple):
    """The members' episodes that have not ended yet."""

    returns: np.ndarray
    """Sums of their rewards so far, undiscounted, shape (members,); NaN for a member that has failed"""
    lengths: np.ndarray
    """Their steps so far, shape (members,); 0 between two episodes and for a member that has failed"""


class EpisodeLog:
    """
    Adds up rewards, and keeps the finished episodes.

    :param n_members: How many.
    """

    def __init__(self, n_members: int) -> None:
        self.returns = np.zeros(n_members)
        self.lengths = np.zeros(n_members, np.int64)
        self._finished: list[tuple[np.ndarray, ...]] = []
        self._n_members = n_members

    def add(self, step: int, rewards: np.ndarray, ended: np.ndarray, alive: np.ndarray) -> None:
        """Add the rewards of one step.

        :param step: From 1 on.
        :param rewards: Shape (members,), 0 for those that have not.
        :param ended: Terminated or cut off, shape (members,).
        :param alive: Members that have taken this step, shape (members,).
        """
        self.returns += rewards
        self.lengths += alive
        if ended.any():
            who = np.flatnonzero(ended & alive)
            self._finished.append((who, np.full(len(who), step), self.returns[who], self.lengths[who]))
            self.returns[ended] = 0.0
            self.lengths[ended] = 0

    def unfinished(self, alive: np.ndarray) -> Unfinished:
        """The episodes that have not ended.

        :param alive: Members that count, shape (members,).
        :return: The episodes that are going on.
        """
        return Unfinished(np.where(alive, self.returns, np.nan), np.where(alive, self.lengths, 0))

    def table(self) -> np.ndarray:
        """All finished episodes as one array, to be saved.

        :return: One row per episode: member, step, return and length.
        """
        rows = [np.column_stack(columns) for columns in self._finished]
        return np.concatenate(rows, dtype=np.float64) if rows else np.empty((0, 4))

    def load(self, table: np.ndarray, returns: np.ndarray, lengths: np.ndarray) -> None:
        """Restore a saved log.

        :param table: Of :meth:`table`.
        :param returns: Of the unfinished episodes.
        :param lengths: Of the unfinished episodes.
        """
        member, steps, sums, spans = table.T
        self._finished = [(member.astype(np.int64), steps.astype(np.int64), sums, spans.astype(np.int64))]
        self.returns, self.lengths = returns.copy(), lengths.astype(np.int64)

    def episodes(self) -> list[Episodes]:
        """The finished episodes of every member.

        :return: One entry per member.
        """
        table = self.table()
        own = [table[table[:, 0] == i] for i in range(self._n_members)]
        return [Episodes(t[:, 1].astype(np.int64), t[:, 2], t[:, 3].astype(np.int64)) for t in own]
