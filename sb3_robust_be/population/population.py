"""Many seeds and settings of one algorithm, trained in lock-step."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, overload

import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3.common import callbacks
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.utils import get_device

from sb3_robust_be.envs.lockstep import episode_seed, make_lockstep
from sb3_robust_be.evaluation.returns import binned_curve, with_unfinished
from sb3_robust_be.messages import warn
from sb3_robust_be.population import members as m
from sb3_robust_be.population import storage
from sb3_robust_be.population.encoding import Encoding
from sb3_robust_be.population.episode_log import Episodes, Unfinished
from sb3_robust_be.population.export import single_agent
from sb3_robust_be.population.greedy import greedy_returns
from sb3_robust_be.population.members import Member
from sb3_robust_be.population.normalization import Normalizer, normalize_options
from sb3_robust_be.population.trainer import DIVERGED, Trainer
from sb3_robust_be.qrc.dqn import TwoHeadDQN
from sb3_robust_be.qrc.products import CompileMode
from sb3_robust_be.qrc.validation import check_compile, check_count
from sb3_robust_be.system import ctrl_c_later

Callback = Callable[["Population"], bool | None]
DEFAULT_BUFFER_SIZE = 1_000_000
# Reasons, and members of each, that a warning names.
_SHOWN = 5


def _progress_bar(steps: int, shown: bool) -> Any:
    if not shown:
        return contextlib.nullcontext()
    if callbacks.tqdm is None:
        raise ImportError("progress_bar=True needs tqdm and rich: pip install tqdm rich, or progress_bar=False.")
    return callbacks.tqdm(total=steps)


class Population:
    """
    Agents of one algorithm that differ in their seeds and settings, trained in one process at a fraction of the time.

    Every agent is what a single one with its seed and arguments would be: the same networks with the same initial
    weights, the same loss, its own environment, replay buffer and random numbers. Adding a member changes no other.
    The agents are the product of ``seeds`` and of every argument that is a list; seeds run fastest.

    Lists are possible for numbers (``learning_rate``, ``huber_threshold``, ``h_regularization``,
    ``h_learning_rate_ratio``, ``temperature``, ``eta``, ``gamma``, ``tau``, the three ``exploration_…``,
    ``target_update_interval``, ``max_grad_norm``, ``correction_weight`` and ``td_error_threshold``) and for
    ``projection``, ``limit``, ``h_target``, ``h_averaging``, ``h_decoupled_weight_decay``, ``h_regularization_scale``
    and ``behaviour``.
    Members with and without target network (an interval of 0 or ``None``), or with other choices, are stacked apart.

    DQN is SB3's, with its loss and its target network, and takes ``huber_threshold`` as well (1 is SB3's loss, ``None``
    the squared loss), ``target_update_interval=None`` for no target network and ``max_grad_norm=None``; ``layer_norm``
    in its ``policy_kwargs`` becomes SB3's by :class:`~sb3_robust_be.qrc.LayerNormExtractor`. As an ordinary agent, a
    member is SB3's DQN and learns on with SB3's loss. ``SquaredDQN`` is the same with ``huber_threshold=None`` by
    default, and its members keep their loss.

    A member has failed when its values are no longer finite, when its environment raises an exception, or when that
    returns a reward or an observation that is NaN, infinite or not of its space. It stays as it is, its episodes end,
    :attr:`failures` says why, and the others go on as if nothing had happened.

    :param algorithm: ``DQN``, ``QRC``, ``QRCHuber``, ``QLC``, ``GQ``, ``GQHuber``, ``SBEED``, ``SquaredDQN`` or its
        name in commands.
    :param policy: As for a single agent.
    :param env: A gymnasium id, or a function that makes an environment. CartPole, Mountain Car, Acrobot and Cliff World
        are stepped together, others one by one.
    :param seeds: Different integers from 0 on; or :class:`Member` objects, for a population that is no product.
    :param env_kwargs: Of ``gym.make``, or of the function.
    :param normalize: Scale observations and rewards as SB3's ``VecNormalize`` does, each member by statistics of its
        own: ``True``, or VecNormalize's arguments such as ``dict(norm_reward=False)``. Returns are of the true rewards.
    :param compile: Compile the update, optimiser included: some twenty seconds at first, then up to twice as fast.
        ``"bfloat16"`` also computes the update's products of large matrices (256 × 256 numbers or more for one member,
        as in MinAtar's network) with 8 bits of precision.
    :param device: Device (cpu, cuda, ...) of the networks and the replay buffer.
    :param verbose: 0 prints nothing, 1 says how much memory the replay buffer takes.
    :param arguments: The algorithm's, each one value or a list.
    :raises ValueError: For arguments out of range, or that have no meaning in lock-step (``n_steps``, …).
    :raises TypeError: For arguments that the algorithm does not have.
    """

    def __init__(
        self,
        algorithm: str | type[OffPolicyAlgorithm],
        policy: str | type[Any],
        env: str | Callable[..., gym.Env],
        seeds: Iterable[int] | Iterable[Member],
        *,
        env_kwargs: dict[str, Any] | None = None,
        normalize: bool | Mapping[str, Any] = False,
        compile: CompileMode = False,
        device: th.device | str = "auto",
        verbose: int = 1,
        **arguments: Any,
    ) -> None:
        arguments = {name: m.plain(value) for name, value in arguments.items()}
        self.algorithm = m.resolve_algorithm(algorithm)
        self.policy, self.env_name, self.env_kwargs = policy, env, dict(env_kwargs or {})
        self.arguments, self.compile, self.verbose = arguments, compile, verbose
        check_compile(compile)
        options, self.normalize = normalize_options(normalize), normalize
        cls = m.member_class(self.algorithm)
        m.check_arguments(cls, arguments)
        # The members' own buffers are not used, so this is left to check.
        check_count("buffer_size", arguments.get("buffer_size", 1), "Pass the transitions that each member keeps.")
        self._seeds = m.as_list(seeds)
        self.members = m.expand(self._seeds, arguments)
        m.check_frequency(arguments.get("train_freq", 4))
        self.env = make_lockstep(env, [member.seed for member in self.members], **self.env_kwargs)
        spaces_only = m.SpacesEnv(Encoding(self.env.observation_space).space, self.env.action_space)
        self._models = m.build_models(cls, policy, spaces_only, self.members, arguments)
        if not issubclass(self.algorithm, TwoHeadDQN) and int(self.env.action_space.start) != 0:
            raise ValueError(
                f"env has actions {self.env.action_space}, and SB3's DQN acts from 0 on. Wrap the environment."
            )
        self.device = get_device(device)
        structures: dict[Any, list[int]] = {}
        for i, model in enumerate(self._models):
            structures.setdefault(m.structure(model), []).append(i)
        buffer_size = arguments.get("buffer_size", DEFAULT_BUFFER_SIZE)
        gammas = [model.gamma for model in self._models]
        normalizer = None if options is None else Normalizer(options, self.env.observation_space, gammas)
        self._trainer = Trainer(
            self._models, self.env, list(structures.values()), buffer_size, self.device, compile, verbose, normalizer
        )
        for member, failure in self.env.failures.items():
            warn(f"Seed {self.members[member].seed} will not be trained: {failure.reason}")

    def __len__(self) -> int:
        return len(self.members)

    @overload
    def __getitem__(self, index: int) -> OffPolicyAlgorithm: ...

    @overload
    def __getitem__(self, index: slice) -> list[OffPolicyAlgorithm]: ...

    def __getitem__(self, index: int | slice) -> OffPolicyAlgorithm | list[OffPolicyAlgorithm]:
        """A member as an ordinary agent: it predicts, saves, and learns on from its own replay buffer.

        :param index: Of ``members``; negative ones count from the end.
        :return: A copy; the population does not change with it.
        """
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        position = range(len(self))[index]
        member = self.members[position]
        make = functools.partial(gym.make, self.env_name) if isinstance(self.env_name, str) else self.env_name
        arguments = {**m.own_arguments(self.arguments, member), "seed": member.seed, "device": self.device}
        env = make(**self.env_kwargs)
        return single_agent(self.algorithm, self.policy, env, arguments, self._trainer, position)

    def constructor_arguments(self) -> dict[str, Any]:
        """The arguments that this population was made with.

        :return: What makes an equal population before its first step.
        """
        named = next((name for name, cls in m.known_algorithms().items() if cls is self.algorithm), self.algorithm)
        return {
            "algorithm": named,
            "policy": self.policy,
            "env": self.env_name,
            "seeds": self._seeds,
            "env_kwargs": self.env_kwargs,
            "normalize": self.normalize,
            "compile": self.compile,
            "device": str(self.device),
            "verbose": self.verbose,
            **self.arguments,
        }

    @property
    def num_timesteps(self) -> int:
        """Environment steps so far, of each member."""
        return self._trainer.num_timesteps

    @property
    def failed_at(self) -> np.ndarray:
        """The environment step at which a member failed, or −1; 0 is before the first one. Shape (members,)."""
        return self._trainer.failed_at.copy()

    @property
    def failed(self) -> np.ndarray:
        """Whether a member has failed, shape (members,)."""
        return self.failed_at >= 0

    @property
    def diverged(self) -> np.ndarray:
        """Whether a member has failed because its own values became infinite or NaN, shape (members,)."""
        return np.array([self._trainer.failures.get(i) == DIVERGED for i in range(len(self))])

    @property
    def failures(self) -> list[str | None]:
        """Why each member has failed: the environment step, what happened and what helps; else ``None``."""
        found = self._trainer.failures
        return [
            f"At environment step {step}: {found[i].reason}" if i in found else None
            for i, step in enumerate(self._trainer.failed_at.tolist())
        ]

    @property
    def tracebacks(self) -> list[str]:
        """The traceback of the exception that made a member fail, one per member; empty for all others."""
        found = self._trainer.failures
        return [found[i].traceback if i in found else "" for i in range(len(self))]

    @property
    def returns(self) -> list[Episodes]:
        """Every member's finished episodes: ``steps``, ``returns`` and ``lengths``."""
        return self._trainer.log.episodes()

    @property
    def unfinished(self) -> Unfinished:
        """Every member's episode that is going on: ``returns`` and ``lengths`` so far, each of shape (members,)."""
        return self._trainer.log.unfinished(~self.failed)

    def curve(self, n_points: int = 100) -> np.ndarray:
        """Returns per *step*, as the paper logs them: an episode's return counts once for each step that it lasted.

        An episode that is going on counts with its return so far if it is longer than all that ended in the last
        quarter of the steps (:func:`~sb3_robust_be.evaluation.with_unfinished` says why).

        :param n_points: Equal parts of the steps so far, over each of which it is averaged.
        :return: Shape (members, n_points); NaN where no episode that counts has a step, as at the end of most curves
            and after a failure.
        """
        steps, going_on = self.num_timesteps, self.unfinished
        counted = [
            with_unfinished(own.lengths, own.returns, steps, length, value)
            for own, length, value in zip(self.returns, going_on.lengths, going_on.returns, strict=True)
        ]
        return np.stack([binned_curve(own.lengths, own.returns, steps, n_points) for own in counted])

    def evaluate(self, n_episodes: int = 10, seed: int = 0) -> np.ndarray:
        """Returns of whole episodes in which every member acts greedily, as SB3's ``evaluate_policy`` measures them.

        They are played in environments of their own, and training goes on afterwards bit for bit as if there had been
        none. Episode ``k`` of a member starts with ``reset(seed=episode_seed(episode_seed(s, seed), k))``, where ``s``
        is its own seed and ``episode_seed`` that of :mod:`sb3_robust_be.envs.lockstep`: settings with the same seed
        meet the same episodes, and these are not those of training.

        :param n_episodes: Of each member. The environment must end them all by itself, as a time limit does.
        :param seed: Of the episodes, an integer from 0 on; with another one, they are others.
        :return: Shape (members, n_episodes), in the order of :attr:`members`. NaN for a member that has failed, and
            from the first episode on that values which are not finite, or the environment, do not let a member end;
            the latter with a warning.
        :raises TypeError: If ``n_episodes`` is no integer.
        :raises ValueError: If it is less than 1, or ``seed`` no integer from 0 on.
        """
        check_count("n_episodes", n_episodes, "Pass the episodes of each member.")
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ValueError(f"seed must be an integer from 0 on and is {seed!r}. Pass one, as in evaluate(seed=1).")
        seeds = [episode_seed(member.seed, seed) for member in self.members]
        env = make_lockstep(self.env_name, seeds, **self.env_kwargs)
        try:
            return greedy_returns(self._trainer, env, n_episodes)
        finally:
            env.close()

    def learn(
        self,
        total_timesteps: int,
        callback: Callback | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Population:
        """Train every member.

        SB3: ends with a whole rollout of ``train_freq`` steps / Ours: after ``total_timesteps`` exactly, and goes on in
        the middle of a rollout. Ctrl-C ends it between two steps, and it ends when all members have failed.

        :param total_timesteps: Environment steps per member.
        :param callback: Called with the population after every step; ``False`` ends training.
        :param reset_num_timesteps: Whether to count steps, episodes and schedules from 0 again; ``False`` goes on.
        :param progress_bar: Whether to show one (tqdm and rich).
        :return: The population.
        :raises ValueError: For fewer steps than one.
        """
        check_count("total_timesteps", total_timesteps, "Pass the environment steps of each member.")
        if callback is not None and not callable(callback):
            raise TypeError(f"callback is {callback!r} and must be a function of the population; SB3's have one agent.")
        trainer = self._trainer
        trainer.begin(total_timesteps, reset_num_timesteps)
        if trainer.total <= trainer.learning_starts:
            warn(
                f"Training ends at step {trainer.total}, before learning_starts={trainer.learning_starts}: there will "
                "be no update. Raise total_timesteps or lower learning_starts."
            )
        with _progress_bar(total_timesteps, progress_bar) as bar:
            while trainer.num_timesteps < trainer.total and len(trainer.failures) < len(self):
                with ctrl_c_later():
                    trainer.step()
                if bar is not None:
                    bar.update(1)
                if callback is not None and callback(self) is False:
                    break
        trainer.check_parameters()
        if trainer.failures:
            warn(self._summary_of_failures())
        return self

    def _summary_of_failures(self) -> str:
        """The most frequent reasons of failures in words, each once."""
        reasons: dict[str, list[int]] = {}
        for member, failure in sorted(self._trainer.failures.items()):
            reasons.setdefault(failure.reason, []).append(member)
        parts = []
        for reason, who in sorted(reasons.items(), key=lambda item: -len(item[1]))[:_SHOWN]:
            numbers = ", ".join(map(str, who[:_SHOWN])) + (", …" if len(who) > _SHOWN else "")
            parts.append(f"Member{'s' if len(who) > 1 else ''} {numbers}: {reason}")
        if (rest := len(reasons) - len(parts)) > 0:
            parts.append(f"And {rest} other reason{'s' if rest > 1 else ''}.")
        count = f"{len(self._trainer.failures)} of {len(self)} members have failed."
        return f"{count} {' '.join(parts)} See pop.failures and pop.failed_at."

    def save(self, path: str | Path) -> None:
        """Write all that is needed to go on bit for bit: arrays and JSON, without pickle.

        The folder is at any time the old state or the new one, also if the process is killed while it writes.

        :param path: A folder; it is made if it is not there.
            Arguments that JSON cannot name, such as a lambda, are left to :meth:`load`, for which a warning is given.
        """
        storage.save(self.constructor_arguments(), self._trainer, Path(path))

    @classmethod
    def load(cls, path: str | Path, **replacements: Any) -> Population:
        """Go on from a folder written by :meth:`save`.

        :param path: The folder.
        :param replacements: Arguments of the constructor in place of the saved ones: those that could not be written,
            ``device``, ``compile`` or ``verbose``.
        :return: The population. ``learn(..., reset_num_timesteps=False)`` goes on as if nothing had happened.
        :raises ValueError: For replacements that make other members, or networks that the saved ones do not fit into.
        """
        saved = storage.read(Path(path), replacements)
        population = cls(**saved.arguments)
        storage.restore(population._trainer, saved)
        return population
