"""Environments in files of the current folder, which tests change between two commands."""

import sys
from pathlib import Path

import gymnasium as gym

SOURCE = """
import gymnasium as gym
import numpy as np
from gymnasium import spaces

class Walk(gym.Env):
    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}

gym.register("Walk-v0", "walks:Walk", max_episode_steps=10)
"""
MODULES = ("walks", "walk_rewards")


def write(folder: Path, source: str, module: str = "walks") -> None:
    """The file as it is now, and a process that has not imported it."""
    (folder / f"{module}.py").write_text(source)
    forget()


def forget() -> None:
    for name in MODULES:
        sys.modules.pop(name, None)
    gym.registry.pop("Walk-v0", None)
