"""The paper's control environments and Puddle World, registered with gymnasium by name and loaded when made."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import gymnasium as gym

from sb3_robust_be.messages import did_you_mean, in_a_namespace

__all__ = ["MINATAR_GAMES", "register_envs", "why_unregistered"]

MINATAR_GAMES: dict[str, str] = {
    "Asterix": "asterix",
    "Breakout": "breakout",
    "Freeway": "freeway",
    "Seaquest": "seaquest",
    "SpaceInvaders": "space_invaders",
}
"""The part of the id after ``MinAtar/`` and the name by which the minatar package calls the game."""


def register_envs() -> None:
    """Register this package's environments with gymnasium; importing :mod:`sb3_robust_be` calls it.

    - ``RobustBE/CliffWorld-v0``: :class:`sb3_robust_be.envs.cliff_world.CliffWorldEnv`, cut off after 500 steps
    - ``RobustBE/PuddleWorld-v0``: :class:`sb3_robust_be.envs.puddle_world.PuddleWorldEnv`, cut off after 1000 steps
    - ``RobustBE/MountainCar1000-v0``: gymnasium's ``MountainCar-v0``, cut off after 1000 steps in place of 200
    - ``MinAtar/{Asterix, Breakout, Freeway, Seaquest, SpaceInvaders}-v0`` (all six actions) and ``-v1`` (the actions
      that have an effect in the game), if the minatar package is installed: its sticky actions (0.1) and its
      difficulty ramping are on, ``gym.make(..., sticky_action_prob=0.0, difficulty_ramping=False)`` turns them off

    Nothing beyond gymnasium is imported before an environment is made. An id that is already registered is left as it
    is, so that calling this twice, or after another package has registered MinAtar, changes nothing.

    Source: section 8 and the appendix "Environments" (cut-offs, Cliff World). Puddle World is Sutton's (1996).
    """
    _register("RobustBE/CliffWorld-v0", "sb3_robust_be.envs.cliff_world:CliffWorldEnv", max_episode_steps=500)
    _register("RobustBE/PuddleWorld-v0", "sb3_robust_be.envs.puddle_world:PuddleWorldEnv", max_episode_steps=1000)
    mountain_car = gym.spec("MountainCar-v0")
    _register(
        "RobustBE/MountainCar1000-v0",
        mountain_car.entry_point,
        max_episode_steps=1000,
        reward_threshold=mountain_car.reward_threshold,
    )
    if importlib.util.find_spec("minatar") is not None:
        _register_minatar()


def why_unregistered(env_id: str, error: gym.error.UnregisteredEnv) -> str:
    """What is wrong with an id that gymnasium does not know.

    :param env_id: The id, as it was given.
    :param error: Of ``gym.make``.
    :return: gymnasium's message. Where the namespace is missing, the whole id stands in place of gymnasium's own guess,
        which is among the environments without one.
    """
    name = env_id.rpartition(":")[2]
    if not in_a_namespace(name, gym.registry):
        return str(error)
    return str(error).partition(" Did you mean")[0] + did_you_mean(name, gym.registry)


def _register_minatar() -> None:
    for name, game in MINATAR_GAMES.items():
        for version, use_minimal_action_set in ((0, False), (1, True)):
            _register(
                f"MinAtar/{name}-v{version}",
                "sb3_robust_be.envs.minatar_env:MinAtarEnv",
                kwargs={"game": game, "use_minimal_action_set": use_minimal_action_set},
            )
    # gymnasium takes the larger number for the newer one and advises against v0. Here the two differ in their
    # actions only, and v0 is what the paper uses.
    warnings.filterwarnings("ignore", r".*MinAtar/\w+-v0 is out of date", DeprecationWarning)


def _register(env_id: str, entry_point: Any, **spec: Any) -> None:
    if env_id not in gym.registry:
        gym.register(env_id, entry_point, **spec)
