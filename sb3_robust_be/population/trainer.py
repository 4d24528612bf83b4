"""The loop of DQN, for all members of a population at once."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch as th
from stable_baselines3.common.type_aliases import TrainFreq
from stable_baselines3.common.vec_env import VecTransposeImage
from torch.utils._pytree import tree_map

from sb3_robust_be.envs.lockstep import Failure, LockstepEnv
from sb3_robust_be.population.acting import Exploration
from sb3_robust_be.population.baseline import Agent
from sb3_robust_be.population.encoding import Encoding, stored_space
from sb3_robust_be.population.episode_log import EpisodeLog
from sb3_robust_be.population.learner import Learner
from sb3_robust_be.population.normalization import Normalizer
from sb3_robust_be.population.randomness import Uniforms
from sb3_robust_be.population.replay import Replay
from sb3_robust_be.qrc.products import CompileMode
from sb3_robust_be.system import return_free_memory

RETURN_MEMORY_EVERY = 1000
"""Steps"""
DIVERGED = Failure("its values became infinite or NaN. A smaller learning_rate often helps.")


class Trainer:
    """
    Runs the training loop of SB3's ``learn`` for all members; their networks may differ in structure.

    :param models: Fresh single agents, one per member.
    :param env: Of as many members.
    :param groups: Which members' networks are stacked together; every member is in one of them.
    :param buffer_size: Transitions per member.
    :param device: Of networks and replay buffer.
    :param compiled: Whether to compile the updates, and how.
    :param verbose: 1 prints the memory of the replay buffer.
    :param normalizer: Scales what the networks are given; ``None``: nothing does.
    """

    def __init__(
        self,
        models: Sequence[Agent],
        env: LockstepEnv,
        groups: Sequence[Sequence[int]],
        buffer_size: int,
        device: th.device,
        compiled: CompileMode,
        verbose: int,
        normalizer: Normalizer | None = None,
    ) -> None:
        first, n = models[0], len(models)
        encoding = Encoding(env.observation_space)
        self.env, self.buffer_size, self.device, self._verbose = env, buffer_size, device, verbose
        self.normalizer = normalizer
        self.groups = [np.array(rows) for rows in groups]
        self.learners = [Learner([models[i] for i in rows], encoding, device, compiled) for rows in groups]
        self._dtype = self.learners[0].rows.dtype
        self.learning_starts, self._batch_size = first.learning_starts, first.batch_size
        self._train_freq = cast(TrainFreq, first.train_freq).frequency
        # SB3: a negative number stands for as many updates as steps since the last ones.
        self._gradient_steps = first.gradient_steps if first.gradient_steps >= 0 else self._train_freq
        # As SB3 does: images with the channel last become channel first.
        self._transpose = first.env if isinstance(first.env, VecTransposeImage) else None
        self._space = stored_space(env.observation_space, first.observation_space)
        self._uniforms = Uniforms(env.seeds, Exploration.WIDTH + self._gradient_steps * self._batch_size)
        self.exploration = Exploration(models, int(env.action_space.n))
        self._tau = np.array([model.tau for model in models])
        self._intervals = np.array([model.target_update_interval or 1 for model in models])
        self.num_timesteps = self.n_calls = self.collected = 0
        self.total = 1
        self.failed_at = np.full(n, -1)
        self.failures: dict[int, Failure] = {}
        """By member, why it has failed."""
        self.n_steps = np.zeros(n, np.int64)
        """That each member has made in all; the replay buffer holds the last ones, and nothing of use after them."""
        self.log = EpisodeLog(n)
        self.replay: Replay | None = None
        self.observations: Any = None

    def begin(self, total_timesteps: int, reset_num_timesteps: bool) -> None:
        """Prepare for so many more steps.

        :param total_timesteps: Environment steps per member.
        :param reset_num_timesteps: Whether to count from 0 again.
        """
        first = self.observations is None
        if first or reset_num_timesteps:
            self.num_timesteps = self.collected = 0
            self.log = EpisodeLog(len(self.failed_at))
            self.observations = self.prepare(self.env.reset() if first else self.env.begin_next_episodes())
        self.fail(self.env.failures)
        if self.normalizer is not None and (first or reset_num_timesteps):
            self.normalizer.begin(self.observations, self.failed_at < 0)
        resumed = self.num_timesteps > 0
        self.exploration.cap = self.exploration.rates if resumed else np.ones_like(self.exploration.rates)
        self.total = self.num_timesteps + total_timesteps
        self._make_room(total_timesteps)
        self.exploration.set_progress(1.0 - self.num_timesteps / self.total, self.failed_at < 0)

    def _make_room(self, steps: int) -> None:
        """Make the replay buffer, or enlarge it, as far as these steps can fill it."""
        filled = 0 if self.replay is None else self.replay.size
        capacity = min(self.buffer_size, filled + steps)
        if self.replay is not None and self.replay.capacity >= capacity:
            return
        self.replay = self.make_replay(capacity) if self.replay is None else self.replay.grow(capacity)

    def make_replay(self, capacity: int) -> Replay:
        """Make an empty replay buffer.

        :param capacity: Transitions per member.
        :return: An empty buffer.
        """
        masked = 0 if self.env.action_masks is None else int(self.env.action_space.n)
        return Replay(self._space, len(self.failed_at), capacity, self.device, self._dtype, self._verbose, masked)

    def learner_of(self, member: int) -> tuple[Learner, int]:
        """Find the networks of a member.

        :param member: An index into the population.
        :return: The learner that its networks belong to, and its row there.
        """
        group = next(i for i, rows in enumerate(self.groups) if member in rows)
        return self.learners[group], int(np.flatnonzero(self.groups[group] == member)[0])

    def prepare(self, observations: Any) -> Any:
        """Convert observations of the environment to the network's.

        :param observations: The environment's.
        :return: The network's, in which images have the channel first.
        """
        return observations if self._transpose is None else self._transpose.transpose_observations(observations)

    def step(self) -> None:
        """One environment step of every member, and the updates that are due."""
        assert self.replay is not None
        uniforms = self._uniforms.at(self.n_calls)
        masks = self.env.action_masks
        if self.num_timesteps < self.learning_starts:
            actions = self.exploration.random_actions(uniforms, masks)
        else:
            actions = self.exploration.actions(self._values(), uniforms, masks)
        actions = actions + int(self.env.action_space.start)
        result = self.env.step(actions)
        self.num_timesteps += 1
        self.n_calls += 1
        self.collected += 1
        ended = result.terminated | result.truncated
        self.fail(self.env.failures)
        # Who failed in the reset that follows the end of an episode has made this step.
        alive = (self.failed_at < 0) | ended
        self.n_steps += alive
        final = self.prepare(result.final_observations)
        self.replay.add(
            observations=self.observations,
            actions=actions,
            next_observations=final,
            # The end of a time limit is no termination: the value of what comes next counts.
            dones=result.terminated,
            rewards=result.rewards,
            next_action_masks=result.final_action_masks,
        )
        same = result.observations is result.final_observations
        self.observations = final if same else self.prepare(result.observations)
        self.log.add(self.num_timesteps, result.rewards, ended, alive)
        if self.normalizer is not None:
            self.normalizer.step(self.observations, result.rewards, ended, self.failed_at < 0)
        progress = 1.0 - self.num_timesteps / self.total
        self._refresh_targets()
        self.exploration.set_progress(progress, self.failed_at < 0)
        if self.num_timesteps > self.learning_starts and self.collected % self._train_freq == 0:
            self._train(uniforms[:, Exploration.WIDTH :], progress)
        if self.n_calls % RETURN_MEMORY_EVERY == 0:
            return_free_memory()

    def action_values(self, observations: Any) -> np.ndarray:
        """Compute every member's action values.

        :param observations: Of :meth:`prepare`, one per member.
        :return: ``q(s,·)``, shape (members, actions).
        """
        if self.normalizer is not None:
            observations = self.normalizer.observations(observations)
        if len(self.groups) == 1:
            return self.learners[0].values(observations).cpu().numpy().astype(np.float64)
        values = np.empty((len(self.failed_at), int(self.env.action_space.n)))
        for rows, learner in zip(self.groups, self.learners, strict=True):
            values[rows] = learner.values(tree_map(operator.itemgetter(rows), observations)).cpu().numpy()
        return values

    def _values(self) -> np.ndarray:
        """Action values at the current observations, shape (members, actions); marks members that have diverged."""
        values = self.action_values(self.observations)
        finite = np.isfinite(values).all(axis=1)
        if not finite.all():
            self._mark_diverged(np.asarray(~finite))
            values[~finite] = 0.0
        return values

    def _mark_diverged(self, diverged: np.ndarray) -> None:
        self.fail(dict.fromkeys(np.flatnonzero(diverged).tolist(), DIVERGED))

    def fail(self, found: Mapping[int, Failure]) -> None:
        """Freeze members, and end their episodes. Those that have failed before stay as they are.

        :param found: Why, by member.
        """
        newly = [member for member in found if member not in self.failures]
        if not newly:
            return
        self.failed_at[newly] = self.num_timesteps
        frozen = np.zeros(len(self.failed_at), bool)
        frozen[newly] = True
        for member in newly:
            self.failures[member] = found[member]
            self.env.stop(member)
        for rows, learner in zip(self.groups, self.learners, strict=True):
            if frozen[rows].any():
                learner.freeze(frozen[rows])

    def check_parameters(self) -> None:
        """Mark members with parameters that are not finite, even if their values still are."""
        finite = np.ones(len(self.failed_at), bool)
        for rows, learner in zip(self.groups, self.learners, strict=True):
            finite[rows] = learner.is_finite()
        self._mark_diverged(~finite)

    def _refresh_targets(self) -> None:
        if not any(learner.has_target for learner in self.learners):
            return
        due = self.n_calls % self._intervals == 0
        if due.any():
            weights = np.where(due, self._tau, 0.0)
            for rows, learner in zip(self.groups, self.learners, strict=True):
                if learner.has_target and due[rows].any():
                    learner.refresh_targets(weights[rows])

    def _train(self, uniforms: np.ndarray, progress: float) -> None:
        assert self.replay is not None
        for i in range(self._gradient_steps):
            drawn = uniforms[:, i * self._batch_size : (i + 1) * self._batch_size]
            batch = self.replay.sample(drawn)
            if self.normalizer is not None:
                batch = self.normalizer.batch(batch)
            for rows, learner in zip(self.groups, self.learners, strict=True):
                own = batch if len(self.groups) == 1 else {name: x[rows] for name, x in batch.items()}
                learner.update(own, progress)
