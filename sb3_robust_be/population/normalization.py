"""Observations and rewards scaled by running statistics, as SB3's ``VecNormalize`` does, each member by its own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from sb3_robust_be.envs.lockstep import Observation, batches
from sb3_robust_be.messages import did_you_mean
from sb3_robust_be.population.members import SpacesEnv
from sb3_robust_be.population.replay import NEXT

# `training` is for what has been trained.
OPTIONS = tuple(name for name in inspect.signature(VecNormalize).parameters if name not in ("venv", "training"))
"""Arguments of VecNormalize"""


def normalize_options(normalize: bool | Mapping[str, Any]) -> dict[str, Any] | None:
    """Read an argument ``normalize``.

    :param normalize: Whether to scale observations and rewards, or how: arguments of ``VecNormalize``.
    :return: Those of its arguments that are given; ``None``: nothing is scaled.
    :raises TypeError: For anything else.
    :raises ValueError: For an argument that it does not have.
    """
    if isinstance(normalize, bool):
        return {} if normalize else None
    if not isinstance(normalize, Mapping):
        raise TypeError(f"normalize must be True, False or arguments of VecNormalize and is {normalize!r}.")
    for name in normalize:
        if name not in OPTIONS:
            raise ValueError(
                f"normalize has {name!r}, which is no argument of VecNormalize here.{did_you_mean(str(name), OPTIONS)} "
                f"There are {', '.join(OPTIONS)}."
            )
    return dict(normalize)


def vec_normalize(env: VecEnv, options: Mapping[str, Any], gamma: float) -> VecNormalize:
    """Wrap the environment of an agent as rl_zoo3 does.

    :param env: Of an agent.
    :param options: Of :func:`normalize_options`.
    :param gamma: The agent's discount factor, which rewards are scaled by unless the options have one.
    :raises ValueError: For observations that cannot be scaled.
    """
    try:
        return VecNormalize(env, **{"gamma": gamma, **options})
    except ValueError as error:
        raise ValueError(
            f"{str(error).strip()}. Scale rewards alone, norm_obs=False, or wrap the environment."
        ) from error


def as_vec_env(env: gym.Env) -> DummyVecEnv:
    """Make of an environment what SB3 makes of it, with its returns recorded.

    :param env: One; a ``Monitor`` stays the one that records.
    """
    monitored = env if isinstance(env, Monitor) else Monitor(env)
    return DummyVecEnv([lambda: monitored])


class Normalizer:
    """
    ``VecNormalize`` for all members of a population, whose statistics have one row for each of them.

    Observations are ``(x − mean) / √(variance + ε)``, rewards ``r / √(variance of the discounted return so far + ε)``,
    both clipped. Statistics move with every observation and reward of a member and no other's. As in SB3, the replay
    buffer holds what the environment gave, and batches are scaled by the statistics of the time they are drawn.

    SB3: stores the last observation of an episode scaled, clipped and unscaled again / Ours: stores it as it was.

    :param options: Of :func:`normalize_options`.
    :param space: Of a member's observations.
    :param gammas: The members' discount factors.
    :raises ValueError: For observations that cannot be scaled.
    """

    def __init__(self, options: Mapping[str, Any], space: spaces.Space, gammas: Sequence[float]) -> None:
        self._options = dict(options)
        if options.get("norm_obs", True):
            _refuse_images(space, options.get("norm_obs_keys"))
        only_spaces = DummyVecEnv([lambda: SpacesEnv(space, spaces.Discrete(1))])
        # Its statistics, whose first axis is the members, are the only thing that is not as for one agent.
        self._sb3 = vec_normalize(only_spaces, options, 1.0)
        self._gammas = np.array([options.get("gamma", gamma) for gamma in gammas], dtype=np.float64)
        self._returns = np.zeros(len(gammas))
        self._sb3.ret_rms = self._statistics(())
        self._observations: dict[str, RunningMeanStd] = {}
        if not self._sb3.norm_obs:
            return
        if isinstance(space, spaces.Dict):
            parts = {key: self._statistics(space[key].shape) for key in self._sb3.norm_obs_keys or ()}
            self._sb3.obs_rms = parts
            self._observations = {f"observations/{key}": statistics for key, statistics in parts.items()}
        else:
            self._observations = {"observations": self._statistics(space.shape)}
            # SB3 declares the kind for Dict spaces alone.
            self._sb3.obs_rms = self._observations["observations"]  # type: ignore[assignment]

    def _statistics(self, shape: tuple[int, ...] | None) -> RunningMeanStd:
        assert shape is not None
        n = len(self._gammas)
        found = RunningMeanStd(shape=(n, *shape))
        # A member that has failed counts no further.
        found.count = np.full((n, *(1 for _ in shape)), found.count)  # type: ignore[assignment]
        return found

    def begin(self, observations: Observation, alive: np.ndarray) -> None:
        """Take the first observations of episodes that all members begin.

        :param observations: One per member.
        :param alive: Members that have not failed, shape (members,).
        """
        self._returns[:] = 0.0
        self._see(observations, alive)

    def step(self, observations: Observation, rewards: np.ndarray, ended: np.ndarray, alive: np.ndarray) -> None:
        """Take what a step gave.

        :param observations: Where the next action is chosen, after a finished episode the new one's first.
        :param rewards: Shape (members,).
        :param ended: Whether an episode has, shape (members,).
        :param alive: Members that have not failed, shape (members,).
        """
        self._see(observations, alive)
        # In single precision, as SB3's environments give them.
        self._returns = self._returns * self._gammas + rewards.astype(np.float32)
        _update(self._sb3.ret_rms, self._returns, alive)
        self._returns[ended] = 0.0

    def _see(self, observations: Observation, alive: np.ndarray) -> None:
        named = batches.by_name(observations)
        for name, statistics in self._observations.items():
            _update(statistics, named[name], alive)

    def observations(self, observations: Any) -> Any:
        """
        :param observations: One per member.
        :return: Scaled, in single precision; what is not to be scaled as it is.
        """
        return self._sb3.normalize_obs(observations)

    def batch(self, batch: dict[str, th.Tensor]) -> dict[str, th.Tensor]:
        """
        :param batch: Transitions by name, shape (members, batch, …).
        :return: The same, scaled as :meth:`observations` and VecNormalize's ``normalize_reward``.
        """
        scaled = dict(batch)
        sb3 = self._sb3
        for name, statistics in self._observations.items():
            for field in (name, NEXT + name):
                x = batch[field].double()
                mean = x.new_tensor(statistics.mean).unsqueeze(1)
                scale = x.new_tensor(np.sqrt(statistics.var + sb3.epsilon)).unsqueeze(1)
                scaled[field] = ((x - mean) / scale).clip(-sb3.clip_obs, sb3.clip_obs).float()
        if sb3.norm_reward:
            r = batch["rewards"].double()
            scale = r.new_tensor(np.sqrt(sb3.ret_rms.var + sb3.epsilon)).view(-1, 1, 1)
            scaled["rewards"] = (r / scale).clip(-sb3.clip_reward, sb3.clip_reward).to(batch["rewards"].dtype)
        return scaled

    def environment(self, env: gym.Env, member: int) -> VecNormalize:
        """Wrap the environment of a member as an ordinary agent, with the member's statistics.

        :param env: One of its own.
        :param member: Its index.
        """
        found = vec_normalize(as_vec_env(env), self._options, float(self._gammas[member]))
        found.ret_rms = _of(self._sb3.ret_rms, member)
        if found.norm_obs:
            own = {name.partition("/")[2]: _of(one, member) for name, one in self._observations.items()}
            found.obs_rms = own if isinstance(self._sb3.obs_rms, dict) else own[""]
        return found

    def state(self) -> dict[str, np.ndarray]:
        """Everything that changes, to be saved.

        :return: Arrays by name.
        """
        found = {"returns": self._returns}
        for name, statistics in {**self._observations, "return": self._sb3.ret_rms}.items():
            found |= {f"{name}/{part}": getattr(statistics, part) for part in ("mean", "var", "count")}
        return found

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a saved state.

        :param state: Of :meth:`state`, of a population with the same options.
        """
        self._returns = state["returns"]
        for name, statistics in {**self._observations, "return": self._sb3.ret_rms}.items():
            for part in ("mean", "var", "count"):
                setattr(statistics, part, state[f"{name}/{part}"])


def _refuse_images(space: spaces.Space, keys: Sequence[str] | None) -> None:
    parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    for key, part in parts.items():
        if (keys is None or key in keys) and is_image_space(part):
            raise ValueError(
                f"normalize would scale images, {part}, which networks take as they are. Scale rewards alone, "
                "normalize=dict(norm_obs=False), or the other observations, norm_obs_keys=[…]."
            )


def _update(statistics: RunningMeanStd, values: np.ndarray, alive: np.ndarray) -> None:
    """Add one value of each member: a batch of one, whose variance is 0."""
    before = statistics.mean, statistics.var, statistics.count
    statistics.update_from_moments(values, np.zeros(1), 1)
    if not alive.all():
        for part, kept in zip(("mean", "var", "count"), before, strict=True):
            getattr(statistics, part)[~alive] = kept[~alive]  # type: ignore[index]


def _of(statistics: RunningMeanStd, member: int) -> RunningMeanStd:
    found = RunningMeanStd(shape=statistics.mean.shape[1:])
    found.mean, found.var = statistics.mean[member].copy(), statistics.var[member].copy()
    found.count = float(np.ravel(statistics.count)[member])
    return found
