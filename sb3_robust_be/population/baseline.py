"""SB3's DQN with its loss as a method of its own, so that populations can train it and other losses can be tried."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, ClassVar

import numpy as np
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.type_aliases import GymEnv, ReplayBufferSamples
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_robust_be.qrc.dqn import TwoHeadDQN
from sb3_robust_be.qrc.layer_norm import baseline_policy_kwargs
from sb3_robust_be.qrc.losses import LossTerms, update_loss
from sb3_robust_be.qrc.validation import check_not_negative
from sb3_robust_be.updates import huber, semi_gradient_coefficients


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


class BaselineDQN(DQN):
    """
    DQN with three more choices, which the paper's comparison sweeps. With the defaults it is SB3's.
    ``layer_norm`` in ``policy_kwargs`` normalises the hidden layers, as in the policies of this package.

    :param policy: As DQN.
    :param env: As DQN.
    :param huber_threshold: κ of the loss ``½δ²`` for ``|δ| ≤ κ``, else ``κ(|δ| − ½κ)``; 1 is SB3's, ``None`` the
        squared loss.
    :param target_update_interval: As DQN; ``None`` or 0: no target network.
    :param max_grad_norm: As DQN; ``None``: no clipping (the paper).
    :param kwargs: DQN's other arguments.
    :raises ValueError: For a threshold that is not positive.
    """

    algorithm_name: ClassVar[str] = "dqn"
    h_regularization = 0.0
    h_learning_rate_ratio = 1.0
    h_decoupled_weight_decay = False
    h_regularization_scale = "absolute"

    def __init__(
        self,
        policy: str | type[DQNPolicy],
        env: GymEnv | str,
        *,
        huber_threshold: float | None = 1.0,
        target_update_interval: int | None = 10_000,
        max_grad_norm: float | None = 10.0,
        **kwargs: Any,
    ) -> None:
        if huber_threshold is not None:
            remedy = "Pass a positive number, 1 for SB3's loss, or None for the squared loss."
            if check_not_negative("huber_threshold", huber_threshold, remedy) == 0:
                raise ValueError(f"huber_threshold must be positive and is 0. {remedy}")
        kwargs["policy_kwargs"] = baseline_policy_kwargs(DQN, policy, kwargs.get("policy_kwargs"))
        self.huber_threshold = huber_threshold
        self.has_target = bool(target_update_interval)
        super().__init__(
            policy,
            env,
            max_grad_norm=math.inf if max_grad_norm is None else max_grad_norm,
            **target_arguments({**kwargs, "target_update_interval": target_update_interval}, always_target=True),
        )

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """
        Sample the replay buffer and do the updates: SB3's own with the threshold 1, else the same with another loss.

        :param gradient_steps: How many.
        :param batch_size: Transitions per update.
        """
        if self.huber_threshold == 1.0:
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
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))

    def update_settings(self) -> dict[str, Any]:
        return {"threshold": math.inf if self.huber_threshold is None else self.huber_threshold}

    def loss_choices(self) -> tuple[Hashable, ...]:
        """Other arguments that the loss depends on, as :meth:`TwoHeadDQN.loss_choices`."""
        return (self.gamma, self.has_target)

    def batch_loss(self, data: ReplayBufferSamples, settings: dict[str, Any]) -> LossTerms:
        bootstrap = self.policy.q_net_target if self.has_target else self.policy.q_net
        with th.no_grad():
            next_value = bootstrap(data.next_observations).max(dim=1, keepdim=True).values
        start = int(self.action_space.start)  # type: ignore[attr-defined]
        q = self.policy.q_net(data.observations).gather(1, data.actions.long() - start)
        discount = (1 - data.dones) * (self.gamma if data.discounts is None else data.discounts)
        return update_loss(
            semi_gradient_coefficients, q, th.zeros_like(q), next_value, data.rewards, discount, **settings
        )


class SquaredDQN(BaselineDQN):
    """SB3's DQN on the squared TD error ``½δ²``, which SB3 has no argument for; a baseline to compare with.

    The Huber loss of SB3's DQN regresses rare, large errors towards a median: without a target network that, and not
    Q-learning, is what fails on Cart-pole. CleanRL, Dopamine (JAX) and bsuite have the squared loss.

    Parameters as of :class:`BaselineDQN`, with ``huber_threshold=None``.
    """

    algorithm_name: ClassVar[str] = "dqn_squared"

    def __init__(
        self, policy: str | type[DQNPolicy], env: GymEnv | str, *, huber_threshold: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(policy, env, huber_threshold=huber_threshold, **kwargs)


Agent = TwoHeadDQN | BaselineDQN
"""A member of a population as a single agent."""
