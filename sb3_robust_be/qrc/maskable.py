"""Action masks between vectorised environments and the replay buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch as th
from gymnasium import spaces
from sb3_contrib.common.maskable.utils import EXPECTED_METHOD_NAME, is_masking_supported
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.type_aliases import GymEnv, PyTorchObs, ReplayBufferSamples
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from sb3_robust_be.envs.action_masks import TERMINAL_ACTION_MASKS, TerminalActionMasks, checked_masks
from sb3_robust_be.qrc.forward import is_plain, plain_values
from sb3_robust_be.updates import legal_values

NEXT_ACTION_MASKS = "next_action_masks"
"""The key of ``infos`` under which :meth:`MaskableReplayBuffer.add` finds the masks"""


class MaskableReplayBufferSamples(NamedTuple):
    """A batch of transitions with the masks of their next observations."""

    observations: PyTorchObs
    actions: th.Tensor
    next_observations: PyTorchObs
    dones: th.Tensor
    rewards: th.Tensor
    discounts: th.Tensor | None
    next_action_masks: th.Tensor
    """Which actions are legal in s', bool, shape (batch, actions)"""


def next_action_masks(data: ReplayBufferSamples) -> th.Tensor | None:
    """The masks of a batch.

    :param data: Transitions.
    :return: Which actions are legal in s', shape (batch, actions); ``None`` where the buffer stores no masks, and all
        are.
    """
    return getattr(data, NEXT_ACTION_MASKS, None)


class _RemembersIndex(np.ndarray):
    """An array that remembers with which index it was last read."""

    last_index: Any = None

    def __getitem__(self, index: Any) -> Any:
        self.last_index = index
        return self.view(np.ndarray)[index]


class MaskableReplayBuffer(ReplayBuffer):
    """
    Replay buffer that also stores which actions are legal in the next observations.

    Models take it by themselves where the environment has ``action_masks()``. Without a model, ``infos`` of
    :meth:`add` must have ``next_action_masks``, bool of shape (actions,), for each environment; after a termination
    they have no effect.

    :param args: As ``ReplayBuffer``.
    :param kwargs: As ``ReplayBuffer``.
    :raises ValueError: For ``optimize_memory_usage=True``.
    """

    next_action_masks: np.ndarray
    """Shape (buffer size, environments, actions)"""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.optimize_memory_usage:
            raise ValueError(
                "optimize_memory_usage=True does not work with action masks, which are stored for next observations. "
                "Pass optimize_memory_usage=False and, if memory is short, a smaller buffer_size."
            )
        assert isinstance(self.action_space, spaces.Discrete)
        self.next_action_masks = np.zeros((self.buffer_size, self.n_envs, int(self.action_space.n)), bool)
        # SB3 draws the environments of a batch, and finds the ends of n-step returns, within `_get_samples`: where it
        # reads the next observations, the masks are read.
        if isinstance(self.next_observations, dict):
            key = next(iter(self.next_observations))
            self.next_observations[key] = self.next_observations[key].view(_RemembersIndex)
        else:
            self.next_observations = self.next_observations.view(_RemembersIndex)

    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """
        Add one transition of each environment.

        :param obs: Observations
        :param next_obs: Next observations
        :param action: Actions
        :param reward: Rewards
        :param done: Whether the episodes have ended
        :param infos: With ``next_action_masks``
        :raises ValueError: If they are missing.
        """
        if not all(NEXT_ACTION_MASKS in info for info in infos):
            raise ValueError(
                f"infos lack {NEXT_ACTION_MASKS!r}, which {type(self).__name__} stores. Add which actions are legal in "
                "next_obs to the info of each environment, bool of shape (actions,)."
            )
        self.next_action_masks[self.pos] = [info[NEXT_ACTION_MASKS] for info in infos]
        super().add(obs, next_obs, action, reward, done, infos)

    def _get_samples(self, batch_inds: np.ndarray, env: VecNormalize | None = None) -> Any:
        samples = super()._get_samples(batch_inds, env)
        stored: Any = self.next_observations
        read = next(iter(stored.values())) if isinstance(stored, dict) else stored
        masks = self.next_action_masks[read.last_index[:2]]
        return MaskableReplayBufferSamples(**samples._asdict(), next_action_masks=self.to_torch(masks))


class MaskableDictReplayBuffer(MaskableReplayBuffer, DictReplayBuffer):  # type: ignore[misc]
    """:class:`MaskableReplayBuffer` for Dict observations."""


class MaskableNStepReplayBuffer(MaskableReplayBuffer, NStepReplayBuffer):
    """:class:`MaskableReplayBuffer` for n-step returns: the masks are those of where the return bootstraps."""


def maskable_class(
    replay_buffer_class: type[ReplayBuffer] | None, observation_space: spaces.Space, n_steps: int
) -> type[MaskableReplayBuffer]:
    """Choose the replay buffer for an environment with action masks.

    :param replay_buffer_class: The argument.
    :param observation_space: The environment's.
    :param n_steps: The argument.
    :return: The class given, or the one that fits.
    :raises ValueError: If the class given stores no masks.
    """
    if replay_buffer_class is None:
        if isinstance(observation_space, spaces.Dict):
            return MaskableDictReplayBuffer
        return MaskableNStepReplayBuffer if n_steps > 1 else MaskableReplayBuffer
    if not issubclass(replay_buffer_class, MaskableReplayBuffer):
        raise ValueError(
            f"replay_buffer_class={replay_buffer_class.__name__} stores no action masks, and the environment has "
            "action_masks(): values of illegal actions would be bootstrapped from. Leave replay_buffer_class out, or "
            "derive it from sb3_robust_be.qrc.MaskableReplayBuffer. HerReplayBuffer cannot be used with masks, since "
            "which actions are legal may depend on the goal that it exchanges."
        )
    return replay_buffer_class


def has_action_masks(env: GymEnv | None) -> bool:
    """Whether an environment says which actions are legal.

    :param env: Or several.
    :return: Whether it has ``action_masks()``.
    """
    try:
        return env is not None and is_masking_supported(env)
    except NotImplementedError:  # VecEnvs of other libraries, which have no attributes
        return False


def with_terminal_masks(env: GymEnv) -> GymEnv:
    """Wrap environments with masks so that the masks of truncated episodes' last observations are known.

    :param env: Or several.
    :return: As it was if it has no masks; else within :class:`TerminalActionMasks`, which a ``DummyVecEnv`` gets in
        place.
    :raises ValueError: If its single environments cannot be reached, as in ``SubprocVecEnv``, and lack the wrapper.
    """
    if not has_action_masks(env):
        return env
    if not isinstance(env, VecEnv):
        return env if is_wrapped(env, TerminalActionMasks) else TerminalActionMasks(env)
    if all(env.env_is_wrapped(TerminalActionMasks)):
        return env
    inner = env.unwrapped
    if not isinstance(inner, DummyVecEnv):
        raise ValueError(
            f"The environments of {type(inner).__name__} have action_masks(), and which actions were legal when an "
            "episode was cut off is lost in the reset that follows. Wrap each of them: make_vec_env(..., "
            "wrapper_class=TerminalActionMasks), from sb3_robust_be."
        )
    inner.envs = [one if is_wrapped(one, TerminalActionMasks) else TerminalActionMasks(one) for one in inner.envs]
    return env


def action_values(
    policy: Any, observation: np.ndarray | dict[str, np.ndarray], action_masks: np.ndarray | None = None
) -> tuple[th.Tensor, bool]:
    """Values of all actions for observations to act on, in evaluation mode and without a graph.

    :param policy: DQN's, or one of this package.
    :param observation: The input observation.
    :param action_masks: Which actions are legal, shape (batch, actions); ``None``: all.
    :return: ``q(s,·)``, −∞ for illegal actions, shape (batch, actions), and whether the observation is vectorized.
    :raises ValueError: For masks of another shape or kind, or that allow nothing.
    """
    policy.set_training_mode(False)
    inputs, vectorized = policy.obs_to_tensor(observation)
    with th.no_grad():
        values = plain_values(policy.q_net, inputs) if is_plain(policy.q_net) else policy.q_net(inputs)
        if action_masks is None:
            return values, vectorized
        legal = checked_masks(action_masks, values.shape[1], len(values))
        return legal_values(values, th.as_tensor(legal, device=values.device)), vectorized


def greedy_actions(
    policy: Any, observation: np.ndarray | dict[str, np.ndarray], action_masks: np.ndarray
) -> np.ndarray:
    """The legal actions of the largest value.

    :param policy: As of :func:`action_values`.
    :param observation: As there.
    :param action_masks: As there.
    :return: One action per observation, or one of shape () for a single observation.
    """
    values, vectorized = action_values(policy, observation, action_masks)
    actions = values.argmax(dim=1).cpu().numpy() + int(policy.action_space.start)
    return actions if vectorized else actions.squeeze(0)


def current_masks(env: VecEnv, n_actions: int) -> np.ndarray:
    """Ask environments which actions are legal where they are.

    :param env: With ``action_masks()``.
    :param n_actions: How many actions there are.
    :return: Booleans, shape (environments, actions).
    :raises ValueError: For masks of a wrong kind, and where no action is legal.
    """
    return checked_masks(env.env_method(EXPECTED_METHOD_NAME), n_actions, env.num_envs)


def masks_of_next(current: np.ndarray, dones: np.ndarray, infos: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """The masks of the observations that the last step has led to, before the resets that followed.

    :param current: Those after the resets, shape (environments, actions).
    :param dones: Whether the episodes have ended.
    :param infos: Of the step.
    :return: Booleans, shape (environments, actions); all True where an episode has terminated.
    :raises ValueError: If an episode was cut off and its last mask is not there, or allows nothing.
    """
    masks = current.copy()
    for index in np.flatnonzero(dones).tolist():
        info = infos[index]
        if not info.get("TimeLimit.truncated", False):
            masks[index] = True
        elif TERMINAL_ACTION_MASKS in info:
            masks[index] = checked_masks(info[TERMINAL_ACTION_MASKS], masks.shape[1], 1)
        else:
            raise ValueError(
                f"An episode of the environment with index {index} was cut off, and its info has no "
                f"{TERMINAL_ACTION_MASKS!r}. Put TerminalActionMasks outside of the wrapper that cuts episodes off, "
                "such as TimeLimit."
            )
    return masks
