"""MinAtar as gymnasium and Stable-Baselines3 expect an environment to behave. Imports minatar."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from minatar.gym import BaseEnv

__all__ = ["MinAtarEnv"]

_CELL = 16  # pixels, in a rendered frame


class MinAtarEnv(BaseEnv):
    """minatar's own environment, with three corrections; the games are minatar's, unchanged.

    - A seeded reset forgets what happened before it. minatar keeps the last action of the previous episode for the
      sticky actions, through a seeded reset as well: the first step then repeats, with probability 0.1, an action that
      neither the seed nor this episode determines. Resets without a seed stay as they are.
    - Rewards are floats. Space Invaders gives numpy integers, which SB3's ``check_env`` refuses.
    - ``"rgb_array"`` gives the uint8 pictures that video recorders need, in place of floats that they show as black.

    :param game: ``"asterix"``, ``"breakout"``, ``"freeway"``, ``"seaquest"`` or ``"space_invaders"``.
    :param render_mode: ``"human"``, ``"array"`` (the observation) or ``"rgb_array"``.
    :param display_time: Milliseconds for which ``"human"`` shows a frame.
    :param use_minimal_action_set: Offer only the actions that have an effect in this game.
    :param sticky_action_prob: Probability that a step repeats the action before it.
    :param difficulty_ramping: Whether the game becomes harder as it goes on.
    """

    metadata = {**BaseEnv.metadata, "render_fps": 20}  # noqa: RUF012 (minatar shows a frame for 50 ms)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode.

        :param seed: Fixes this episode and all that follow it: the same seed and actions give the same frames.
        :param options: Not used.
        :return: The observation, a boolean array of shape ``(10, 10, channels)``, and an empty dictionary.
        """
        gym.Env.reset(self, seed=seed)  # minatar leaves this out, and gymnasium's check_env asks for it
        if seed is not None:
            self.game.last_action = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One frame of the game.

        :param action: An index into the action set.
        :return: Observation, reward, whether the game is over, ``False`` and an empty dictionary.
        """
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, float(reward), terminated, truncated, info

    def render(self) -> Any:
        """What ``render_mode`` asks for; as ``"rgb_array"`` a uint8 array of shape ``(160, 160, 3)``."""
        frame = super().render()
        if self.render_mode != "rgb_array":
            return frame
        return np.rint(255 * frame).astype(np.uint8).repeat(_CELL, axis=0).repeat(_CELL, axis=1)
