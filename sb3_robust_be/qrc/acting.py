"""The acting half of DQN, mended: exploration per environment, resuming, n-step buffers, an optional target network."""

from __future__ import annotations

import io
import pathlib
import warnings
from typing import Any, TypeVar

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, Schedule, TrainFreq
from stable_baselines3.common.utils import LinearSchedule, get_parameters_by_name, polyak_update
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.dqn.dqn import DQN

from sb3_robust_be.qrc.channels import with_channels, wrap_env
from sb3_robust_be.qrc.flattening import flatten
from sb3_robust_be.qrc.policies import QRCNetwork, QRCPolicy
from sb3_robust_be.qrc.validation import check_observations, check_rewards, plain_number

SelfActingDQN = TypeVar("SelfActingDQN", bound="ActingDQN")


class ActingDQN(DQN):
    """DQN without its update: everything between the environment and the replay buffer, and the optional target."""

    policy: QRCPolicy
    q_net: QRCNetwork
    q_net_target: QRCNetwork
    target_update_interval: int | None  # type: ignore[assignment]
    # Resuming never explores more than before the interruption, unless it is asked for by another schedule.
    _exploration_cap: float = 1.0
    # What `exploration_rate` was last taken from.
    _explored_by: Schedule | None = None

    @staticmethod
    def _wrap_env(env: GymEnv, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        return flatten(wrap_env(env, verbose, monitor_wrapper))

    def _setup_model(self) -> None:
        # Also runs inside `load`, after the saved arguments and the caller's have been put in place.
        if not issubclass(self.policy_class, QRCPolicy):
            raise ValueError(
                f"policy is {self.policy_class.__name__}, which has no secondary head. Pass a name ('MlpPolicy', …) or "
                "a subclass of sb3_robust_be.qrc.QRCPolicy."
            )
        self._check_buffer_arguments()
        chosen_class, chosen_kwargs = self.replay_buffer_class, self.replay_buffer_kwargs
        self.replay_buffer_kwargs = dict(chosen_kwargs or {})
        self.policy_kwargs = with_channels(self.policy_kwargs, self.policy_class, self.env)
        # Past DQN's own, which cannot do without a target interval.
        super(DQN, self)._setup_model()
        # SB3 leaves its choice of buffer here, where a later `load` would take it, and its γ, for the user's.
        self.replay_buffer_class, self.replay_buffer_kwargs = chosen_class, chosen_kwargs or {}
        if self.target_update_interval is not None:
            self.policy.make_target()
            if self.n_envs > self.target_update_interval:
                warnings.warn(
                    f"target_update_interval={self.target_update_interval} is less than the number of environments "
                    f"({self.n_envs}): the target network is refreshed after each step of all of them.",
                    stacklevel=2,
                )
        self._create_aliases()
        self.batch_norm_stats = get_parameters_by_name(self.q_net, ["running_"])
        self.batch_norm_stats_target = get_parameters_by_name(self.q_net_target, ["running_"])
        if self._explored_by is None:
            # In a file of SB3's DQN.
            self._explored_by = self.__dict__.get("exploration_schedule")
        self.exploration_schedule = LinearSchedule(
            self.exploration_initial_eps, self.exploration_final_eps, self.exploration_fraction
        )

    def _check_buffer_arguments(self) -> None:
        if not self.n_steps >= 1:
            raise ValueError(f"n_steps must be at least 1 and is {self.n_steps!r}. 1 is Q-learning's one-step target.")
        if self.n_steps > 1 and self.replay_buffer_class is None:
            if self.optimize_memory_usage:
                raise ValueError(
                    f"n_steps={self.n_steps} does not work with optimize_memory_usage=True: SB3's n-step buffer has "
                    "no memory-efficient variant. Choose one of the two."
                )
            if isinstance(self.observation_space, spaces.Dict):
                raise ValueError(
                    f"n_steps={self.n_steps} does not work with Dict observations: SB3 has no n-step buffer for them. "
                    "Use n_steps=1, or flatten the observations with gymnasium.wrappers.FlattenObservation."
                )

    def _on_step(self) -> None:
        """After each step of the environments: refresh the target network if there is one, and set ε."""
        self._n_calls += 1
        interval = self.target_update_interval
        if interval is not None and self._n_calls % max(interval // self.n_envs, 1) == 0:
            polyak_update(self.q_net.parameters(), self.q_net_target.parameters(), self.tau)
            polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)
        scheduled = self.exploration_schedule(self._current_progress_remaining)
        self.exploration_rate = min(scheduled, self._exploration_cap)
        self._explored_by = self.exploration_schedule
        # Not through the property: nobody is looking at the log yet.
        self._logger.record("rollout/exploration_rate", self.exploration_rate)

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: np.ndarray,
        new_obs: np.ndarray | dict[str, np.ndarray],
        reward: np.ndarray,
        dones: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        normalizer = self._vec_normalize_env
        check_rewards(reward if normalizer is None else normalizer.get_original_reward(), self.num_timesteps)
        self._check_observations(new_obs)
        for index, done in enumerate(dones):
            if done and (last := infos[index].get("terminal_observation")) is not None:
                if isinstance(new_obs, dict):
                    last = {key: last[key] for key in new_obs}
                check_observations(last, self.num_timesteps, index, " (the last of an episode)")
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)

    def set_random_seed(self, seed: int | None = None) -> None:
        """
        Set the seed of the pseudo-random generators (python, numpy, pytorch, gym, action_space)

        :param seed: An integer, Python's or numpy's.
        """
        super().set_random_seed(plain_number(seed))

    def _convert_train_freq(self) -> None:
        if isinstance(self.train_freq, tuple) and not isinstance(self.train_freq, TrainFreq):
            self.train_freq = (plain_number(self.train_freq[0]), *self.train_freq[1:])
        else:
            self.train_freq = plain_number(self.train_freq)
        super()._convert_train_freq()

    def _check_observations(self, observations: np.ndarray | dict[str, np.ndarray], occasion: str = "") -> None:
        if self._vec_normalize_env is not None:
            # What is stored are the numbers before their normalisation.
            check_observations(self._vec_normalize_env.old_obs, self.num_timesteps, occasion=occasion)
            occasion = " (by VecNormalize, whose statistics hold such a number from before: make a new one)"
        check_observations(observations, self.num_timesteps, occasion=occasion)

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        prepared = super()._setup_learn(total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar)
        self._check_observations(self._last_obs, " (the first, from reset)")  # type: ignore[arg-type]
        return prepared

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """
        Greedy actions, or ε-greedy ones with ε tossed for each environment by itself.

        :param observation: the input observation
        :param state: The last states (can be None, used in recurrent policies)
        :param episode_start: The last masks (can be None, used in recurrent policies)
        :param deterministic: Whether or not to return greedy actions.
        :return: the model's action and the next state (used in recurrent policies)
        """
        if deterministic or self.exploration_rate <= 0.0:
            return self._actions_by_value(observation, state, episode_start, deterministic)
        if self.policy.takes_plainly(observation):
            explore = self._toss(len(observation))
            if explore.all():
                return self._random_actions(len(observation)), state
            actions, state = self._actions_by_value(observation, state, episode_start, deterministic)
        else:
            actions, state = self._actions_by_value(observation, state, episode_start, deterministic)
            explore = self._toss(*actions.shape)
        if explore.any():
            actions = np.array(actions)
            actions[explore] = self._random_actions(int(explore.sum()))
        return actions, state

    def _toss(self, *shape: int) -> np.ndarray:
        # The global generator is the one that SB3 seeds.
        return np.asarray(np.random.rand(*shape) < self.exploration_rate)  # noqa: NPY002

    def _random_actions(self, n: int) -> np.ndarray:
        return np.array([self.action_space.sample() for _ in range(n)])

    def _actions_by_value(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None,
        episode_start: np.ndarray | None,
        deterministic: bool,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """What is done where ε does not strike."""
        return self.policy.predict(observation, state, episode_start, deterministic)

    def learn(
        self: SelfActingDQN,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfActingDQN:
        """
        Return a trained model.

        :param total_timesteps: The total number of samples (env steps) to train on
        :param callback: callback(s) called at every step with state of the algorithm.
        :param log_interval: the number of episodes before logging.
        :param tb_log_name: the name of the run for TensorBoard logging, the class's name by default
        :param reset_num_timesteps: whether or not to reset the current timestep number (used in logging).
            ``False`` resumes: exploration then never rises above where it was, unless its arguments have been changed
            by :meth:`load` or ``exploration_schedule`` has been replaced.
        :param progress_bar: Display a progress bar using tqdm and rich.
        :return: the trained model
        """
        resumed = not reset_num_timesteps and self.num_timesteps > 0
        # ε is first set after a step that no callback has stopped at.
        capped = resumed and self._n_calls > 0 and _same_schedule(self._explored_by, self.exploration_schedule)
        self._exploration_cap = self.exploration_rate if capped else 1.0
        last_step = total_timesteps + (self.num_timesteps if resumed else 0)
        if last_step <= self.learning_starts:
            warnings.warn(
                f"Training ends at step {last_step}, before learning_starts={self.learning_starts}: there will be no "
                "update. Raise total_timesteps or lower learning_starts.",
                stacklevel=2,
            )
        return super().learn(
            total_timesteps=total_timesteps,
            callback=callback,
            log_interval=log_interval,
            tb_log_name=tb_log_name or type(self).__name__,
            reset_num_timesteps=reset_num_timesteps,
            progress_bar=progress_bar,
        )

    def load_replay_buffer(self, path: str | pathlib.Path | io.BufferedIOBase, truncate_last_traj: bool = True) -> None:
        """
        Load a replay buffer from a pickle file; an n-step buffer takes the model's γ and n.

        :param path: Path to the pickled replay buffer.
        :param truncate_last_traj: As ``OffPolicyAlgorithm.load_replay_buffer``.
        """
        super().load_replay_buffer(path, truncate_last_traj)
        if isinstance(self.replay_buffer, NStepReplayBuffer) and self.replay_buffer_class is None:
            self.replay_buffer.gamma, self.replay_buffer.n_steps = self.gamma, self.n_steps


def _same_schedule(schedule: Schedule | None, other: Schedule) -> bool:
    # SB3's own, which come out of a file as new objects, show all that they consist of.
    return schedule is other or (isinstance(schedule, LinearSchedule) and repr(schedule) == repr(other))
