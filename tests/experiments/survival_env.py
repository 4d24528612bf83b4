"""An environment that pays the same for every step and has no time limit, for the tests of unfinished episodes."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sb3_robust_be.envs.lockstep.base import episode_seed

ID = "Survival-v0"
ENDLESS = 10**9
_SURVIVORS = 0.06


def drawn_length(random: np.random.Generator) -> int:
    """Of an episode that is not given: 2 to 9 steps, or without end."""
    return ENDLESS if random.random() < _SURVIVORS else int(random.integers(2, 10))


def drawn_lengths(seed: int, total_steps: int) -> tuple[list[int], int]:
    """What a population's member with this seed goes through: the lengths of its finished episodes, and the rest."""
    finished: list[int] = []
    while True:
        random, _ = gym.utils.seeding.np_random(episode_seed(seed, len(finished)))
        length = drawn_length(random)
        if sum(finished) + length > total_steps:
            return finished, total_steps - sum(finished)
        finished.append(length)


class SurvivalEnv(gym.Env):
    """
    :param lengths: Of the episodes, in order, the last one for good; ``None``: drawn from the seed of each reset.
    :param reward: Of every step.
    """

    def __init__(self, lengths: list[int] | None = None, reward: float = 1.0) -> None:
        self.observation_space, self.action_space = spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(2)
        self.lengths, self.reward = lengths, reward
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.left = (
            drawn_length(self.np_random)
            if self.lengths is None
            else self.lengths[min(self.episode, len(self.lengths) - 1)]
        )
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(2, np.float32), self.reward, self.left == 0, False, {}


def register() -> str:
    """The id under which it is made."""
    if ID not in gym.registry:
        gym.register(ID, SurvivalEnv)
    return ID
