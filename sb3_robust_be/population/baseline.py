"""SB3's DQN with its loss as a method of its own, so that populations can train it and other losses can be tried."""

from __future__ import annotations

import io
import math
import pathlib
from collections.abc import Hashable
from typing import Any, ClassVar, Self

import numpy as np
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import GymEnv, PyTorchObs, ReplayBufferSamples

from sb3_robust_be.qrc.dqn import TwoHeadDQN
from sb3_robust_be.qrc.layer_norm import baseline_policy_kwargs
from sb3_robust_be.qrc.loading import changed_attributes, read_attributes
from sb3_robust_be.qrc.losses import LossTerms, update_loss
from sb3_robust_be.qrc.maskable import MaskableReplayBuffer, has_action_masks, next_action_masks
from sb3_robust_be.qrc.masked_dqn import MaskedDQN
from sb3_robust_be.qrc.validation import DQN_ARGUMENTS, check_dqn_arguments, check_not_negative
from sb3_robust_be.updates import huber, legal_values, semi_gradient_coefficients


def target_arguments(arguments: dict[str, Any], *, always_target: bool = False) -> dict[str, Any]:
    """Arguments in which ``target_update_interval`` says "no target network" as one algorithm understands it.

    :param arguments: Of an agent; an interval of ``None`` or 0 stands for no target network, and one that is left out
        for the algorithm's default.
    :param always_target: Whether the algorithm always has a target network, as SB3's do. Then it is copied before every
        update, which is as good as none.
    :return: The same arguments otherwise.
    """
    if arguments.get("target_update_interval", True):
        return dict(arguments)
    if always_target:
        return {**arguments, "target_update_interval": 1, "tau": 1.0}
    return {**arguments, "target_update_interval": None}


_SB3S_BUFFERS = (ReplayBuffer, DictReplayBuffer, NStepReplayBuffer)


class BaselineDQN(MaskedDQN):
    """
    DQN with three more choices, which the paper's comparison sweeps, and with action masks. With the defaults, in
    environments without ``action_masks()``, it is SB3's. ``layer_norm`` in ``policy_kwargs`` normalises the hidden
    layers, as in the policies of this package.

    :param args: DQN's positional arguments, in its order.
    :param huber_threshold: κ of the loss ``½δ²`` for ``|δ| ≤ κ``, else ``κ(|δ| − ½κ)``, in units of (TD) reward; 1 is
        SB3's, ``None`` the squared loss.
    :param kwargs: DQN's other arguments, of which two take ``None`` as well: ``target_update_interval`` (``None`` or 0:
        no target network, every update bootstraps from the network itself) and ``max_grad_norm`` (``None``: no
        clipping, as in the paper).
    :raises TypeError: For a threshold or norm that is no number, or an interval that is no integer.
    :raises ValueError: For a threshold that is not positive, a negative norm or interval.
    """

    algorithm_name: ClassVar[str] = "dqn"
    target_update_interval: int | None  # type: ignore[assignment]
    h_regularization = 0.0
    h_learning_rate_ratio = 1.0
    h_decoupled_weight_decay = False
    h_regularization_scale = "absolute"

    def __init__(self, *args: Any, huber_threshold: float | None = 1.0, **kwargs: Any) -> None:
        self.huber_threshold = huber_threshold
        super().__init__(*args, **kwargs)

    def _setup_model(self) -> None:
        # Also runs inside `load`, after the saved arguments and the caller's have been put in place.
        self._check_arguments()
        if self.max_grad_norm is None:
            self.max_grad_norm = math.inf
        self.policy_kwargs = baseline_policy_kwargs(DQN, self.policy_class, self.policy_kwargs) or {}
        interval = self.target_update_interval or None
        # DQN's compares the interval with the number of environments, which None cannot be.
        self.target_update_interval = interval or self.n_envs
        self._make_maskable_buffer()
        super()._setup_model()
        self.target_update_interval = interval

    def _make_maskable_buffer(self) -> None:
        if has_action_masks(self.env) and self.replay_buffer_class in _SB3S_BUFFERS:
            # SB3 leaves its own choice where the user's stands, in files too.
            self.replay_buffer_class = None
            given = self.replay_buffer_kwargs or {}
            self.replay_buffer_kwargs = {name: x for name, x in given.items() if name not in ("n_steps", "gamma")}
        super()._make_maskable_buffer()

    def _check_arguments(self) -> None:
        if self.huber_threshold is not None:
            remedy = "Pass a positive number, 1 for SB3's loss, or None for the squared loss."
            if check_not_negative("huber_threshold", self.huber_threshold, remedy) == 0:
                raise ValueError(f"huber_threshold must be positive and is {self.huber_threshold!r}. {remedy}")
        check_dqn_arguments({name: getattr(self, name) for name in DQN_ARGUMENTS})

    @property
    def has_target(self) -> bool:
        """Whether bootstrapping uses a copy of the network, refreshed every ``target_update_interval`` steps."""
        return bool(self.target_update_interval)

    @classmethod
    def load(
        cls,
        path: str | pathlib.Path | io.BufferedIOBase,
        env: GymEnv | None = None,
        device: th.device | str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: Any,
    ) -> Self:
        """
        Load the model from a zip-file, of this algorithm or of SB3's DQN.

        :param path: path to the file (or a file-like) where to load the agent from
        :param env: the new environment to run the loaded model on
        :param device: Device on which the code should run.
        :param custom_objects: Dictionary of objects to replace upon loading.
        :param print_system_info: Whether to print system info from the saved model and the current system info
        :param force_reset: Force call to ``reset()`` before training
        :param kwargs: Arguments of the constructor, or other attributes, in place of the saved ones.
        :return: new model instance with loaded parameters
        :raises TypeError: For an argument that is unknown or cannot be changed.
        :raises ValueError: For ``policy_kwargs`` other than the saved ones.
        """
        data = read_attributes(path, device, custom_objects or {})
        if kwargs.get("policy_kwargs"):
            # SB3 compares them with the saved ones, in which `layer_norm` is said by its extractor.
            own = baseline_policy_kwargs(DQN, data["policy_class"], kwargs["policy_kwargs"])
            kwargs = {**kwargs, "policy_kwargs": own}
        changes = changed_attributes(cls, path, data, kwargs)
        return super().load(path, env, device, custom_objects, print_system_info, force_reset, **changes)

    def _on_step(self) -> None:
        """After each step of the environments: refresh the target network if there is one, and set ε."""
        if self.has_target:
            super()._on_step()
            return
        self._n_calls += 1
        self.exploration_rate = self.exploration_schedule(self._current_progress_remaining)
        self.logger.record("rollout/exploration_rate", self.exploration_rate)

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """
        Sample the replay buffer and do the updates: SB3's own with the threshold 1 and a target network, else the same
        with another loss, with the network itself in place of the target, or bootstrapping from legal actions only.

        :param gradient_steps: How many.
        :param batch_size: Transitions per update.
        """
        masked = isinstance(self.replay_buffer, MaskableReplayBuffer)
        if self.huber_threshold == 1.0 and self.has_target and not masked:
            super().train(gradient_steps, batch_size)
            return
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        settings, losses = self.update_settings(), []
        for _ in range(gradient_steps):
            data = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)  # type: ignore[union-attr]
            terms = self.batch_loss(data, settings)
            self.policy.optimizer.zero_grad()
            terms.loss.backward()
            th.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
            losses.append(0.5 * huber(terms.td_error, settings["threshold"]).mean().item())
        if not self.has_target:
            # Nothing bootstraps from the copy, but files hold it, and `load` may ask for a target network.
            self.policy.q_net_target.load_state_dict(self.policy.q_net.state_dict())
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))

    def update_settings(self) -> dict[str, Any]:
        return {"threshold": math.inf if self.huber_threshold is None else self.huber_threshold}

    def loss_choices(self) -> tuple[Hashable, ...]:
        """Other arguments that the loss depends on, as :meth:`TwoHeadDQN.loss_choices`."""
        return (self.gamma, self.has_target)

    def batch_loss(self, data: ReplayBufferSamples, settings: dict[str, Any]) -> LossTerms:
        next_q = legal_values(self._next_action_values(data.next_observations), next_action_masks(data))
        next_value = next_q.max(dim=1, keepdim=True).values
        start = int(self.action_space.start)  # type: ignore[attr-defined]
        q = self.policy.q_net(data.observations).gather(1, data.actions.long() - start)
        discount = (1 - data.dones) * (self.gamma if data.discounts is None else data.discounts)
        return update_loss(
            semi_gradient_coefficients, q, th.zeros_like(q), next_value, data.rewards, discount, **settings
        )

    @th.no_grad()
    def _next_action_values(self, next_observations: PyTorchObs) -> th.Tensor:
        """``q(s',·)`` of what bootstraps, shape (batch, actions), in evaluation mode as SB3's target network is."""
        if self.has_target:
            return self.policy.q_net_target(next_observations)
        network = self.policy.q_net
        # In training mode, a second pass would move the statistics of batch normalisation a second time.
        mode = network.training
        network.set_training_mode(False)
        values = network(next_observations)
        network.set_training_mode(mode)
        return values


class SquaredDQN(BaselineDQN):
    """SB3's DQN on the squared TD error ``½δ²``, which SB3 has no argument for; a baseline to compare with.

    The Huber loss of SB3's DQN regresses rare, large errors towards a median: without a target network that, and not
    Q-learning, is what fails on Cart-pole. CleanRL, Dopamine (JAX) and bsuite have the squared loss.

    Parameters as of :class:`BaselineDQN`, with ``huber_threshold=None``.
    """

    algorithm_name: ClassVar[str] = "dqn_squared"

    def __init__(self, *args: Any, huber_threshold: float | None = None, **kwargs: Any) -> None:
        super().__init__(*args, huber_threshold=huber_threshold, **kwargs)


Agent = TwoHeadDQN | BaselineDQN
"""A member of a population as a single agent."""
