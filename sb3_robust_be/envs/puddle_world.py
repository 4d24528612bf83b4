"""Puddle World: walk to a corner of the unit square, around two puddles that cost more the deeper one is in them.

The functions take coordinates of any shape, so that an environment and a vectorised copy share every rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex

import gymnasium as gym
import numpy as np

from sb3_robust_be.envs.moves import move_index

__all__ = [
    "DEPTH_COST",
    "GOAL_SUM",
    "MOVES",
    "NOISE",
    "PUDDLES",
    "RADIUS",
    "STEP_REWARD",
    "PuddleWorldEnv",
    "in_goal",
    "moved",
    "reward_at",
]

STEP = 0.05
MOVES = ((0.0, STEP), (STEP, 0.0), (0.0, -STEP), (-STEP, 0.0))  # (dx, dy) of the actions up, right, down, left
NOISE = 0.01  # standard deviation of what is added to each coordinate
PUDDLES = (((0.1, 0.75), (0.45, 0.75)), ((0.45, 0.4), (0.45, 0.8)))  # ends of the centre lines, the lower one first
RADIUS = 0.1
STEP_REWARD = -1.0
DEPTH_COST = 400.0  # per unit of length inside a puddle
GOAL_SUM = 1.9


def moved(positions: np.ndarray, moves: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """Where a step leads: ``clip(position + move + 0.01 · normal, 0, 1)`` in each coordinate.

    :param positions: ``(2, ...)``, x and y in the unit square.
    :param moves: Of the same shape, elements of :data:`MOVES`.
    :param normals: Of the same shape, standard normal numbers.
    :return: The new positions.
    """
    return np.minimum(np.maximum(positions + (moves + NOISE * normals), 0.0), 1.0)


def reward_at(positions: np.ndarray) -> np.ndarray:
    """The reward of a step that leads to a position: ``−1 − 400 Σ max(0, 0.1 − distance to the centre line)``.

    The sum is over the two puddles. From a point inside, the nearest edge of a puddle is ``0.1 − distance`` away.

    :param positions: ``(2, ...)``, x and y.
    :return: The rewards, from −81 (on both centre lines) to −1.
    """
    x, y = positions
    rewards = np.full_like(x, STEP_REWARD)
    for (x1, y1), (x2, y2) in PUDDLES:
        # A centre line is parallel to an axis, so that its nearest point is the position cut to its range.
        dx = x - np.minimum(np.maximum(x, x1), x2)
        dy = y - np.minimum(np.maximum(y, y1), y2)
        # Not np.hypot: a product and a square root are rounded alike for one number and for many.
        rewards -= DEPTH_COST * np.maximum(RADIUS - np.sqrt(dx * dx + dy * dy), 0.0)
    return rewards


def in_goal(positions: np.ndarray) -> np.ndarray:
    """Whether ``x + y ≥ 1.9``.

    :param positions: ``(2, ...)``, x and y.
    :return: bool, one per position.
    """
    x, y = positions
    return x + y >= GOAL_SUM


class PuddleWorldEnv(gym.Env[np.ndarray, np.int64]):
    """Walk to the upper right corner of the unit square without wading through the two puddles in the way.

    Actions: 0 up, 1 right, 2 down, 3 left; each moves by 0.05, and Gaussian noise of standard deviation 0.01 is added
    to both coordinates. The puddles are all points within 0.1 of the line from (0.1, 0.75) to (0.45, 0.75), or of that
    from (0.45, 0.4) to (0.45, 0.8): bars with half-discs at their ends. A step gives −1 and, for each puddle in which
    it ends, −400 times the distance to that puddle's edge, at most −40. The episode terminates where ``x + y ≥ 1.9``.
    ``gym.make("RobustBE/PuddleWorld-v0")`` cuts episodes off after 1000 steps.

    The observation is ``(x, y)``, a float32 ``(2,)`` from 0 to 1. ``state`` is the same in float64, and decides about
    rewards and the goal. All random numbers are from ``np_random``: the start, then two normal ones per step.

    Source: Sutton (1996), "Generalization in reinforcement learning: successful examples using sparse coarse coding";
    among the environments of Patterson et al. (2024), arXiv 2407.18840. What the first says less than exactly:

    - Start. Sutton: uniform over the states outside the goal, the default here. Others: the point (0.2, 0.4), as
      MushroomRL after Degris et al. (2012); here ``start=(0.2, 0.4)``.
    - Goal. Sutton: the corner region, here ``x + y ≥ 1.9``: all points within a distance |Δx| + |Δy| of 0.1.
    - In both puddles. Sutton: penalties for entering either or both / Ours: they add, since each puddle has its own;
      the other reading is that the deeper one counts alone. They differ around (0.45, 0.75), where ours gives −80.
    - Which state is in a puddle. Ours: the one that the step leads to, noise included.
    - Walls. Sutton: steps do not leave the square / Ours: noise is added first, then each coordinate is cut to [0, 1],
      so that the rest of the step takes place. The other reading is that the whole step is cancelled.
    - Cut-off. Sutton: none / Ours: 1000 steps, by the registration.

    :param start: The start of every episode, ``(x, y)`` in the square and outside the goal; ``None``: a random one.
    :raises ValueError: If ``start`` is no such point.
    """

    def __init__(self, start: Sequence[float] | None = None) -> None:
        self.start = None if start is None else _checked_start(start)
        self.state = np.zeros(2)
        self.observation_space = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(len(MOVES))
        self._moves = np.array(MOVES)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Go to the start.

        :param seed: Of the start and of the episode's noise; ``None`` goes on with the random numbers in use.
        :param options: Not used.
        :return: The observation and an empty dictionary.
        """
        super().reset(seed=seed)
        if self.start is not None:
            self.state = self.start.copy()
        else:
            self.state = self.np_random.random(2)
            while in_goal(self.state):
                self.state = self.np_random.random(2)
        return self.state.astype(np.float32), {}

    def step(self, action: SupportsIndex) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move by 0.05 and some noise.

        :param action: 0 up, 1 right, 2 down, 3 left.
        :return: Observation, reward, whether the goal is reached, ``False`` (the cut-off is a wrapper's), ``{}``.
        :raises ValueError: If ``action`` is not one of the four.
        """
        index = move_index(action)
        self.state = moved(self.state, self._moves[index], self.np_random.standard_normal(2))
        return self.state.astype(np.float32), float(reward_at(self.state)), bool(in_goal(self.state)), False, {}


def _checked_start(start: Sequence[float]) -> np.ndarray:
    try:
        point = np.array(start, dtype=np.float64)
    except (TypeError, ValueError):
        point = np.empty(0)
    if point.shape != (2,) or not ((point >= 0) & (point <= 1)).all() or in_goal(point):
        raise ValueError(
            f"start={start!r} is no start: give (x, y) with both from 0 to 1 and x + y < {GOAL_SUM}, or None for a "
            "random one"
        )
    return point
