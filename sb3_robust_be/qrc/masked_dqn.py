"""DQN in environments that say which actions are legal: acting, and between them and the replay buffer."""

from __future__ import annotations

import io
import pathlib
from typing import Any

import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.dqn.dqn import DQN

from sb3_robust_be.envs.action_masks import checked_masks
from sb3_robust_be.qrc.maskable import (
    NEXT_ACTION_MASKS,
    MaskableReplayBuffer,
    current_masks,
    greedy_actions,
    has_action_masks,
    maskable_class,
    masks_of_next,
    with_terminal_masks,
)


class MaskedDQN(DQN):
    """
    SB3's DQN that takes legal actions only, where the environment has ``action_masks()``; elsewhere it is SB3's.

    Which actions are legal in the next observations is in the replay buffer and its batches. A subclass calls
    :meth:`_make_maskable_buffer` before DQN makes the buffer, and bootstraps from legal actions in its update.
    """

    # Which actions are legal where the environments are, shape (environments, actions); None: all, without asking.
    _last_action_masks: np.ndarray | None = None

    @staticmethod
    def _wrap_env(env: GymEnv, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        return DQN._wrap_env(with_terminal_masks(env), verbose, monitor_wrapper)

    def _make_maskable_buffer(self) -> None:
        """Make the replay buffer one that stores action masks, if the environment has them."""
        if not has_action_masks(self.env) or isinstance(self.replay_buffer, MaskableReplayBuffer):
            return
        if self.replay_buffer is not None and self.replay_buffer.size() > 0:
            raise ValueError(
                "The replay buffer has transitions without action masks, and the environment has action_masks(): "
                "values of illegal actions would be bootstrapped from. Make a new model for this environment (weights "
                "are taken over by set_parameters), or load a replay buffer that was filled in such an environment."
            )
        buffer_class = maskable_class(self.replay_buffer_class, self.observation_space, self.n_steps)
        kwargs = dict(self.replay_buffer_kwargs or {})
        if self.replay_buffer_class is None and self.n_steps > 1:
            kwargs |= {"n_steps": self.n_steps, "gamma": self.gamma}
        self.replay_buffer = buffer_class(
            self.buffer_size,
            self.observation_space,
            self.action_space,
            device=self.device,
            n_envs=self.n_envs,
            optimize_memory_usage=self.optimize_memory_usage,
            **kwargs,
        )

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
        action_masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """
        Greedy actions, or, as SB3's DQN, with probability ε random ones for all observations together.

        :param observation: the input observation
        :param state: The last states (can be None, used in recurrent policies)
        :param episode_start: The last masks (can be None, used in recurrent policies)
        :param deterministic: Whether or not to return greedy actions.
        :param action_masks: Which actions are legal, as MaskablePPO takes it: bool of shape (batch, actions), or
            (actions,) for one observation; ``None``: all.
        :return: the model's action and the next state (used in recurrent policies)
        :raises ValueError: For masks of another shape or kind, or that allow nothing.
        """
        if action_masks is None:
            return super().predict(observation, state, episode_start, deterministic)
        if deterministic or np.random.rand() >= self.exploration_rate:  # noqa: NPY002  # SB3 seeds this one
            return greedy_actions(self.policy, observation, action_masks), state
        several = self.policy.is_vectorized_observation(observation)
        first = next(iter(observation.values())) if isinstance(observation, dict) else observation
        masks = checked_masks(action_masks, int(self.action_space.n))  # type: ignore[attr-defined]
        actions = self._random_actions(len(first) if several else 1, masks)
        return (actions if several else actions.squeeze(0)), state

    def _random_actions(self, n: int, masks: np.ndarray | None = None) -> np.ndarray:
        space = self.action_space
        if masks is None:
            return np.array([space.sample() for _ in range(n)])
        if len(masks) != n:
            raise ValueError(
                f"action_masks has {len(masks)} rows and there are {n} observations. Pass one row for each."
            )
        # Where every action is legal, the same numbers are drawn as without masks.
        return np.array([space.sample() if mask.all() else space.sample(mask=mask.astype(np.int8)) for mask in masks])

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        if self._last_action_masks is None:
            return super()._sample_action(learning_starts, action_noise, n_envs)
        if self.num_timesteps < learning_starts:
            actions = self._random_actions(n_envs, self._last_action_masks)
        else:
            assert self._last_obs is not None
            actions, _ = self.predict(self._last_obs, action_masks=self._last_action_masks)
        return actions, actions

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        prepared = super()._setup_learn(total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar)
        self._make_maskable_buffer()
        self._last_action_masks = self._current_masks() if has_action_masks(self.env) else None
        return prepared

    def _current_masks(self) -> np.ndarray:
        return current_masks(self.env, int(self.action_space.n))  # type: ignore[arg-type, attr-defined]

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: np.ndarray,
        new_obs: np.ndarray | dict[str, np.ndarray],
        reward: np.ndarray,
        dones: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        if isinstance(replay_buffer, MaskableReplayBuffer):
            infos = self._with_next_masks(dones, infos)
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)

    def _with_next_masks(self, dones: np.ndarray, infos: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The infos of a step with what the replay buffer is to store, and ask which actions are legal now."""
        if self._last_action_masks is None:
            # Filled in an environment with masks before, and gone on with in one without.
            masks = np.full((len(infos), int(self.action_space.n)), True)  # type: ignore[attr-defined]
        else:
            self._last_action_masks = self._current_masks()
            masks = masks_of_next(self._last_action_masks, dones, infos)
        return [{**info, NEXT_ACTION_MASKS: mask} for info, mask in zip(infos, masks, strict=True)]

    def load_replay_buffer(self, path: str | pathlib.Path | io.BufferedIOBase, truncate_last_traj: bool = True) -> None:
        """
        Load a replay buffer from a pickle file.

        :param path: Path to the pickled replay buffer.
        :param truncate_last_traj: As ``OffPolicyAlgorithm.load_replay_buffer``.
        :raises ValueError: If its transitions have no action masks, and the environment has ``action_masks()``.
        """
        super().load_replay_buffer(path, truncate_last_traj)
        self._make_maskable_buffer()

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_last_action_masks"]
