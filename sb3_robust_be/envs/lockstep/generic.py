"""Any environment in lock-step: one instance per member, stepped one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from sb3_robust_be.envs.action_masks import ask_masks, checked_masks, has_masks
from sb3_robust_be.messages import warn

from . import batches
from .base import STEP, LockstepEnv
from .batches import Observation
from .member_failures import Failure, failure_of

__all__ = ["GenericEnv"]


class GenericEnv(LockstepEnv):
    """Instances of any environment with discrete actions, side by side.

    Observations get the dtype of their space, whatever the environment returns, as in SB3. Infos are not kept. An
    exception where the first instance is made is the caller's; where a later one is made, it stops that member alone.
    An environment with ``action_masks()`` is asked for them after every reset, and every step that does not terminate.

    :param make: Returns a new instance at each call.
    :param seeds: One per member.
    :param first: The first member's, if it has been made already.
    :param name: What the caller calls the environment, for the error messages.
    :raises TypeError: If ``make`` returns something else than a gymnasium environment.
    :raises ValueError: If it returns the same instance twice or instances with different spaces, or if a space is
        not supported: actions must be Discrete, observations Box, Discrete, MultiBinary, MultiDiscrete or a Dict of
        those.
    """

    def __init__(
        self,
        make: Callable[[], gym.Env[Any, Any]],
        seeds: tuple[int, ...],
        first: gym.Env[Any, Any] | None = None,
        name: str = "env",
    ) -> None:
        self._name = name
        self._envs: dict[int, gym.Env[Any, Any]] = {}
        not_made: dict[int, Failure] = {}
        try:
            self._add(0, make() if first is None else first)
            for member in range(1, len(seeds)):
                try:
                    env = make()
                except Exception as error:
                    not_made[member] = failure_of("making its environment", error)
                else:
                    self._add(member, env)
        except BaseException:
            self.close()
            raise
        action_space = self._envs[0].action_space
        assert isinstance(action_space, gym.spaces.Discrete)
        super().__init__(self._envs[0].observation_space, action_space, seeds)
        self._taken: list[list[int]] = [[] for _ in seeds]  # in the current episodes
        if has_masks(self._envs[0]):
            self.action_masks = np.full((len(seeds), self._n_actions), True)
        self._fail(not_made)

    def _add(self, member: int, env: gym.Env[Any, Any]) -> None:
        if not isinstance(env, gym.Env):
            raise TypeError(f"{self._name} returned {env!r}: a factory must return a gymnasium.Env")
        if any(env.unwrapped is other.unwrapped for other in self._envs.values()):
            raise ValueError(
                f"{self._name} returned the same instance twice: let it make a new environment at each call, since "
                "every member needs its own"
            )
        self._envs[member] = env
        if not isinstance(env.action_space, gym.spaces.Discrete):
            raise ValueError(
                f"{self._name} has the action space {env.action_space}: choose an environment with Discrete actions, "
                "or wrap it to have them"
            )
        if not batches.is_supported(env.observation_space):
            raise ValueError(
                f"{self._name} has the observation space {env.observation_space}: Box, Discrete, MultiBinary, "
                "MultiDiscrete and a Dict of those are supported, wrap it to have one of them (for example in "
                "gymnasium.wrappers.FlattenObservation)"
            )
        first = self._envs[0]
        if (env.observation_space, env.action_space) != (first.observation_space, first.action_space):
            raise ValueError(
                f"{self._name} returned environments with different spaces, {first.observation_space} and "
                f"{first.action_space}, then {env.observation_space} and {env.action_space}: all members need the same"
            )

    def _begin(self, member: int, seed: int) -> Any:
        self._taken[member] = []
        observation, _ = self._envs[member].reset(seed=seed)
        self._ask(member)
        return observation

    def _ask(self, member: int, terminated: bool = False) -> None:
        """Find out which of a member's actions are legal; where its episode has terminated, it makes no difference."""
        if self.action_masks is not None:
            env = self._envs[member]
            self.action_masks[member] = terminated or checked_masks(ask_masks(env), self._n_actions, 1)[0]

    def _advance(self, actions: np.ndarray) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray]:
        n = len(self.seeds)
        observations = batches.empty(self.observation_space, n)
        rewards, terminated, truncated = np.empty(n), np.empty(n, dtype=bool), np.empty(n, dtype=bool)
        self._copy_masks()
        for member, action in enumerate(actions):
            if member in self._stopped:
                continue
            self._taken[member].append(int(action))
            try:
                observation, rewards[member], terminated[member], truncated[member], _ = self._envs[member].step(action)
                batches.write(observations, member, observation)
                self._ask(member, bool(terminated[member]))
            except Exception as error:
                self._fail({member: failure_of(STEP, error)})
        return observations, rewards, terminated, truncated

    def stop(self, member: int) -> None:
        """As :meth:`LockstepEnv.stop`; the member's actions of this episode are forgotten."""
        super().stop(member)
        self._taken[member] = []

    def _state(self) -> dict[str, np.ndarray]:
        lengths = np.array([len(taken) for taken in self._taken], dtype=np.int64)
        actions = np.zeros((len(lengths), lengths.max()), dtype=np.int64)
        for row, taken in zip(actions, self._taken, strict=True):
            row[: len(taken)] = taken
        return {"lengths": lengths, "actions": actions}

    def _restore(self, state: dict[str, np.ndarray]) -> None:
        assert self._observations is not None
        shown = batches.empty(self.observation_space, len(self.seeds))
        self._copy_masks()
        for member, (actions, length) in enumerate(zip(state["actions"], state["lengths"], strict=True)):
            self._replay(member, actions[:length], shown)
        same = np.array([len(taken) for taken in self._taken]) == state["lengths"]
        for name, saved in batches.by_name(self._observations).items():
            again = batches.by_name(shown)[name]
            nan = saved.dtype.kind == "f"
            same &= [np.array_equal(a, b, equal_nan=nan) for a, b in zip(saved, again, strict=True)]
        self.restarted = tuple(member for member in np.flatnonzero(~same).tolist() if member not in self._stopped)
        self._begin_next(self.restarted, self._observations)
        if self.restarted:
            warn(
                f"{self._name} is not deterministic in its seed: with the same seed and actions, the unfinished "
                f"episodes of the members {self.restarted} go otherwise than before they were saved. These members "
                "begin a new episode; draw all random numbers from the environment's np_random to avoid this"
            )

    def _replay(self, member: int, actions: np.ndarray, shown: Observation) -> None:
        """Repeat an episode, whose last observation goes into ``shown``, as far as it goes."""
        self._begin_episode(member, shown)
        for action in actions:
            if member in self._stopped:
                return
            try:
                observation, _, terminated, truncated, _ = self._envs[member].step(action)
                batches.write(shown, member, observation)
                self._ask(member, terminated)
            except Exception as error:
                self._fail({member: failure_of(STEP, error)})
                return
            if terminated or truncated:
                return
            self._taken[member].append(int(action))

    def close(self) -> None:
        """Close all instances. Those that cannot be closed are named in one warning."""
        failures = []
        for member, env in self._envs.items():
            try:
                env.close()
            except Exception as error:
                failures.append(f"member {member}: {failure_of('close() of its environment', error).reason}")
        if failures:
            warn(f"{len(failures)} of {len(self._envs)} environments could not be closed. {failures[0]}")
