"""What all environments in lock-step have in common: seeds, episodes, resets, and saving."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete

from . import batches
from .batches import Observation
from .member_failures import Failure, failure_of, find_bad_observations, find_bad_rewards

__all__ = ["LockstepEnv", "Step", "episode_seed"]

STEP, RESET = "step() of its environment", "reset() of its environment"


class Step(NamedTuple):
    """What one step of all members returns. A later step overwrites none of the arrays."""

    observations: Observation
    """Where the next action is chosen: after a finished episode the first observation of the new one. The very arrays
    of ``final_observations`` while no episode ends."""
    final_observations: Observation
    """Where this step's action has led: the true last observation of a finished episode."""
    rewards: np.ndarray
    """``(N,)``, float64."""
    terminated: np.ndarray
    """``(N,)``, bool."""
    truncated: np.ndarray
    """``(N,)``, bool. As with gymnasium's ``TimeLimit``, a step may both terminate an episode and be its last one."""
    final_action_masks: np.ndarray | None = None
    """Which actions are legal in ``final_observations``, ``(N, actions)``, bool, True where an episode has terminated;
    ``None`` where the environment has no ``action_masks()``."""


def episode_seed(seed: int, episode: int) -> int:
    """The seed of the reset that starts an episode: a member's episodes depend on its own seed and nothing else.

    :param seed: The member's seed, non-negative.
    :param episode: The episode's number, from 0.
    :return: A number of 32 bits, hashed from both by numpy's ``SeedSequence``.
    """
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0])


class LockstepEnv(ABC):
    """Copies of an environment, the members, that take their steps together, each with its own random numbers.

    Episode ``k`` of the member with seed ``s`` starts with ``reset(seed=episode_seed(s, k))``. What a member sees is
    thus decided by its seed and its actions: neither the other members nor their number change it.

    A member whose environment raises an exception in its step or reset, or returns a reward or an observation that is
    NaN, infinite or not of its space, is stopped: :attr:`failures` says why, and the others go on. What an
    environment returns here is therefore finite and fits its space.

    :param observation_space: A single member's.
    :param action_space: A single member's; :meth:`step` takes its elements, whatever its ``start``.
    :param seeds: One per member. Members with equal seeds and actions go through equal episodes.
    """

    observation_space: gym.Space[Any]
    action_space: Discrete
    seeds: tuple[int, ...]
    action_masks: np.ndarray | None = None
    """Which actions are legal where the next one is chosen, ``(N, actions)``, bool; ``None`` where the environment has
    no ``action_masks()``. Not overwritten by later steps."""
    restarted: tuple[int, ...] = ()
    """The members whose episode the last :meth:`load_state_dict` could not restore: they have begun their next one."""

    def __init__(self, observation_space: gym.Space[Any], action_space: Discrete, seeds: tuple[int, ...]) -> None:
        self.observation_space, self.action_space, self.seeds = observation_space, action_space, seeds
        self._first_action, self._n_actions = int(action_space.start), int(action_space.n)
        self._episodes = np.zeros(len(seeds), dtype=np.int64)
        self._observations: Observation | None = None
        self._stopped: set[int] = set()
        self.failures: dict[int, Failure] = {}
        """By member, what its environment did that stopped it."""

    @abstractmethod
    def _begin(self, member: int, seed: int) -> Any:
        """Reset one member with this seed and return its observation."""

    @abstractmethod
    def _advance(self, actions: np.ndarray) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray]:
        """Step all members, without resets: new arrays of observations, rewards, terminated and truncated.

        What they hold for members that are stopped, before or in it, does not matter.
        """

    @abstractmethod
    def _state(self) -> dict[str, np.ndarray]:
        """The arrays from which :meth:`_restore` goes on. The base class keeps seeds, episodes and observations."""

    @abstractmethod
    def _restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from these arrays of :meth:`_state`; seeds, episodes and observations are restored already."""

    @abstractmethod
    def close(self) -> None:
        """Release what the environments hold: windows, files, processes."""

    def reset(self) -> Observation:
        """Start all members' first episodes.

        :return: The first observations, ``(N, ...)``.
        """
        self._episodes[:] = 0
        self.restarted = ()
        self._copy_masks()
        observations = batches.first_elements(self.observation_space, len(self.seeds))
        for member in range(len(self.seeds)):
            self._begin_episode(member, observations)
        self._observations = observations
        return observations

    def begin_next_episodes(self) -> Observation:
        """End all members' episodes early and start their next ones.

        :return: The first observations, ``(N, ...)``.
        """
        shown = self._observations
        if shown is None:
            shown = batches.first_elements(self.observation_space, len(self.seeds))
        self._observations = batches.copy(shown)
        self._copy_masks()
        self._begin_next(range(len(self.seeds)), self._observations)
        return self._observations

    def stop(self, member: int) -> None:
        """Stop a member: its environment is neither stepped nor reset from now on.

        From now on it shows what it has shown last, is rewarded with 0, and its episode does not end.

        :param member: Its number.
        """
        self._stopped.add(member)

    def step(self, actions: np.ndarray) -> Step:
        """Take one action in each member. Whose episode ends is reset in the same call.

        :param actions: ``(N,)``, integers, elements of ``action_space``.
        :return: See :class:`Step`.
        :raises ValueError: If ``actions`` has another shape, is not of integers, or holds one that there is not.
        :raises RuntimeError: Before the first :meth:`reset` or :meth:`load_state_dict`.
        """
        if self._observations is None:
            raise RuntimeError("no episode has begun: call reset() or load_state_dict() before step()")
        final, rewards, terminated, truncated = outcome = self._advance(self._checked(actions))
        self._hold_stopped(*outcome)
        bad = find_bad_observations(STEP, self.observation_space, final) | find_bad_rewards(rewards)
        if bad:
            self._fail(bad)
            self._hold_stopped(*outcome)
        self._observations = final
        final_masks = self.action_masks
        ended = terminated | truncated
        if ended.any():
            self._observations = batches.copy(final)
            self._copy_masks()
            self._begin_next(np.flatnonzero(ended).tolist(), self._observations)
        return Step(self._observations, final, rewards, terminated, truncated, final_masks)

    def _copy_masks(self) -> None:
        """Leave the masks that have been shown as they are; what is asked from now on goes into a copy."""
        if self.action_masks is not None:
            self.action_masks = self.action_masks.copy()

    def _begin_episode(self, member: int, observations: Observation) -> None:
        if member in self._stopped:
            return
        first = batches.empty(self.observation_space, 1)
        try:
            batches.write(first, 0, self._begin(member, episode_seed(self.seeds[member], int(self._episodes[member]))))
        except Exception as error:
            self._fail({member: failure_of(RESET, error)})
            return
        if bad := find_bad_observations(RESET, self.observation_space, first):
            self._fail({member: bad[0]})
            return
        batches.copy_rows(observations, member, first, 0)

    def _begin_next(self, members: Iterable[int], observations: Observation) -> None:
        for member in members:
            if member not in self._stopped:
                self._episodes[member] += 1
                self._begin_episode(member, observations)

    def _fail(self, found: Mapping[int, Failure]) -> None:
        self.failures |= found
        for member in found:
            self.stop(member)

    def _hold_stopped(
        self, observations: Observation, rewards: np.ndarray, terminated: np.ndarray, truncated: np.ndarray
    ) -> None:
        """Overwrite what a step of stopped members has left in its arrays."""
        if self._stopped and self._observations is not None:
            members = list(self._stopped)
            batches.copy_rows(observations, members, self._observations, members)
            rewards[members] = 0.0
            terminated[members] = truncated[members] = False

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        given = np.asarray(actions)
        if given.shape == (len(self.seeds),) and given.dtype.kind in "iu":
            checked = given.astype(np.int64, copy=False)
            # Seen as unsigned, a negative number is a very large one: one comparison serves both ends.
            if (checked - self._first_action).view(np.uint64).max() < self._n_actions:
                return checked
        last = self._first_action + self._n_actions - 1
        raise ValueError(
            f"actions={actions!r} is not valid: give an array of {len(self.seeds)} integers, one per member, "
            f"from {self._first_action} to {last}"
        )

    def state_dict(self) -> dict[str, np.ndarray]:
        """Everything that :meth:`load_state_dict` needs to go on in the middle of the episodes.

        :return: Copies, plain numeric arrays whose first axis is the members: no pickle is needed to save them.
        :raises RuntimeError: Before the first :meth:`reset` or :meth:`load_state_dict`.
        """
        if self._observations is None:
            raise RuntimeError("no episode has begun, there is nothing to save: call reset() before state_dict()")
        stopped = np.isin(np.arange(len(self.seeds)), list(self._stopped))
        own = {"seeds": np.array(self.seeds, dtype=np.int64), "episodes": self._episodes, "stopped": stopped}
        arrays = own | batches.by_name(self._observations) | self._state()
        return {name: array.copy() for name, array in arrays.items()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> Observation:
        """Go on where :meth:`state_dict` was called, also in another process: the same actions give the same steps.

        Environments without a vectorised version are reset with their episode's seed and given that episode's actions
        again, which takes as long as it took before. A member whose environment then does not show what it had shown
        is not deterministic in its seed. Its unfinished episode is lost, not the rest: a warning says so, the member
        begins its next episode, and :attr:`restarted` lists it. One that was stopped stays so.

        :param state: From the ``state_dict`` of an environment with the same seeds; the arrays are copied.
        :return: The current observations, where the next action is chosen.
        :raises ValueError: If the state lacks arrays, or is of other seeds or of other observations.
        """
        room = batches.empty(self.observation_space, len(self.seeds))
        # States of version 0.1 do not say who is stopped.
        arrays = self._arrays({"stopped": np.zeros(len(self.seeds), bool), **state}, room)
        self._episodes = arrays["episodes"]
        self._observations = batches.from_names(room, arrays)
        self.restarted = ()
        self._stopped |= set(np.flatnonzero(arrays["stopped"]).tolist())
        self._restore(arrays)
        return self._observations

    def _arrays(self, state: Mapping[str, np.ndarray], room: Observation) -> dict[str, np.ndarray]:
        """Copies of the arrays of ``state``, which must be those of a ``state_dict`` of this environment."""
        shown = batches.by_name(room)
        names = {"seeds", "episodes", "stopped", *shown, *self._state()}
        if missing := names - set(state):
            raise ValueError(f"state lacks {sorted(missing)}: pass what the same environment's state_dict() returned")
        arrays = {name: np.array(state[name]) for name in names}
        if not np.array_equal(seeds := arrays["seeds"], self.seeds):
            raise ValueError(f"state has the seeds {seeds}, not {np.array(self.seeds)}: make the environment with them")
        for name, part in shown.items():
            saved = arrays[name]
            if (saved.shape, saved.dtype) != (part.shape, part.dtype):
                raise ValueError(
                    f"state[{name!r}] is {saved.dtype} of shape {saved.shape}, this environment's is {part.dtype} of "
                    f"shape {part.shape}: pass what the same environment's state_dict() returned"
                )
        return arrays
