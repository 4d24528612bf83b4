"""Learning with two heads: everything of an update but the loss, which the subclasses give."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch as th
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from sb3_robust_be.qrc.compiled import CompiledGradients
from sb3_robust_be.qrc.diagnostics import UpdateDiagnostics
from sb3_robust_be.qrc.losses import LossTerms
from sb3_robust_be.qrc.policies import H_GROUP, VALUE_GROUP, CnnPolicy, MlpPolicy, MultiInputPolicy
from sb3_robust_be.qrc.validation import (
    NUMERIC_ARGUMENTS,
    check_buffer,
    check_count,
    check_flag,
    check_not_negative,
    check_numbers,
    plain_number,
    warn_of_priorities,
)
from sb3_robust_be.qrc.warm_start import LoadingDQN


class TwoHeadQLearning(LoadingDQN):
    """
    DQN with a secondary head h(s,a) and its own learning rate and regularisation: the base of every algorithm here.

    A subclass brings its constructor, which calls DQN's with ``_init_setup_model=False`` and sets the attributes below,
    :meth:`_update_settings` and :meth:`_loss`.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": MlpPolicy,
        "CnnPolicy": CnnPolicy,
        "MultiInputPolicy": MultiInputPolicy,
    }
    max_grad_norm: float | None  # type: ignore[assignment]
    h_regularization: float
    h_learning_rate_ratio: float
    h_decoupled_weight_decay: bool = False
    compile: bool
    # Whose samples have been looked at.
    _known_buffer: ReplayBuffer | None = None
    diagnostics_class: ClassVar[type[UpdateDiagnostics]] = UpdateDiagnostics

    def _setup_model(self) -> None:
        # SB3's name for stats_window_size comes along.
        for name in (*NUMERIC_ARGUMENTS, "_stats_window_size"):
            if name in self.__dict__:
                setattr(self, name, plain_number(self.__dict__[name]))
        self._check_arguments()
        # Where `train()` writes to before `learn()` or the user has said where to.
        self._logger = Logger(folder=None, output_formats=[])
        super()._setup_model()
        self._diagnostics = self.diagnostics_class()
        self._compiled = CompiledGradients(self) if self.compile else None
        self._configure_optimizer()

    def _check_arguments(self) -> None:
        check_numbers(self.__dict__)
        check_not_negative(
            "h_regularization", self.h_regularization, "The paper uses 1; 0 switches it off.", finite=True
        )
        check_not_negative("h_learning_rate_ratio", self.h_learning_rate_ratio, "The paper uses 1.", finite=True)
        if self.target_update_interval is not None:
            check_count("target_update_interval", self.target_update_interval, "Pass None for no target network.")
        check_count("n_steps", self.n_steps, "1 is the plain return.")
        check_count("batch_size", self.batch_size, "The paper uses 32.")
        if not check_not_negative("gamma", self.gamma, "The paper uses 0.99.") <= 1:
            raise ValueError(f"gamma must be from 0 to 1 and is {self.gamma!r}. The paper uses 0.99.")
        check_flag("compile", self.compile)
        check_flag("h_decoupled_weight_decay", self.h_decoupled_weight_decay)
        if self.max_grad_norm is not None:
            check_not_negative("max_grad_norm", self.max_grad_norm, "Pass None for no clipping.")

    def _configure_optimizer(self) -> None:
        """β as the head's weight decay, by default inside the gradient: decoupled, it bounds every weight and hides
        what the squared loss does to the head."""
        group = self.policy.optimizer.param_groups[H_GROUP]
        if "weight_decay" in group:
            group["weight_decay"] = self.h_regularization
        elif self.h_regularization > 0:
            raise ValueError(
                f"h_regularization={self.h_regularization} needs an optimizer with weight_decay, which "
                f"{type(self.policy.optimizer).__name__} is not. Use Adam, SGD or RMSprop, or h_regularization=0."
            )
        if "decoupled_weight_decay" in group:
            group["decoupled_weight_decay"] = self.h_decoupled_weight_decay
        elif self.h_decoupled_weight_decay:
            raise ValueError(
                "h_decoupled_weight_decay=True needs an optimizer with decoupled_weight_decay, which "
                f"{type(self.policy.optimizer).__name__} is not. Use Adam, or h_decoupled_weight_decay=False."
            )

    @property
    def logger(self) -> Logger:
        """Getter for the logger object. Looking at it reads the diagnostics of the last ``train()`` call."""
        self._diagnostics.record(self._logger)
        return self._logger

    def _update_learning_rate(self, optimizers: list[th.optim.Optimizer] | th.optim.Optimizer) -> None:
        # Replaces SB3's, which writes one rate into all groups.
        learning_rate = self.lr_schedule(self._current_progress_remaining)
        self._logger.record("train/learning_rate", learning_rate)
        for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
            optimizer.param_groups[VALUE_GROUP]["lr"] = learning_rate
            optimizer.param_groups[H_GROUP]["lr"] = self.h_learning_rate_ratio * learning_rate

    @abstractmethod
    def _update_settings(self) -> dict[str, Any]:
        """What :meth:`_loss` needs to know of the arguments at the current progress."""

    @abstractmethod
    def _loss(self, data: ReplayBufferSamples, settings: dict[str, Any]) -> LossTerms:
        """The loss of one batch.

        :param data: Transitions; ``discounts`` replaces γ where the buffer gives it.
        :param settings: From :meth:`_update_settings`.
        :return: The loss and the batch's detached quantities.
        """

    def _loss_choices(self) -> tuple[Any, ...]:
        """What :meth:`_loss` takes from the arguments themselves: a compiled update is of one value of each."""
        return (self.gamma,)

    def _discount(self, data: ReplayBufferSamples) -> th.Tensor:
        """``γ·(1 − terminated)``, (batch, 1)."""
        return (1 - data.dones) * (self.gamma if data.discounts is None else data.discounts)

    def _compute_gradients(self, data: ReplayBufferSamples, settings: dict[str, Any]) -> LossTerms:
        """Leave the update of one batch in the parameters' ``grad``."""
        if self._compiled is not None and self._compiled.works:
            compiled_terms = self._compiled(data, settings)
            if compiled_terms is not None:
                return compiled_terms
        self.policy.optimizer.zero_grad()
        terms = self._loss(data, settings)
        terms.loss.backward()
        # The diagnostics keep the terms, and nothing that holds a graph can be copied.
        terms = terms._replace(loss=terms.loss.detach())
        if self.policy.has_target:
            # The correction's gradient is taken at the target's parameters and moves the online ones.
            for online, target in zip(self.q_net.parameters(), self.q_net_target.parameters(), strict=True):
                if target.grad is not None:
                    online.grad = target.grad if online.grad is None else online.grad + target.grad
                    target.grad = None
        return terms

    def _clip_gradients(self, values: list[th.nn.Parameter]) -> th.Tensor | None:
        """Clip values and secondary head apart, so that the loss of h does not scale the step of q."""
        if self.max_grad_norm is None:
            return None
        th.nn.utils.clip_grad_norm_(self.q_net.h_net.parameters(), self.max_grad_norm)
        return th.nn.utils.clip_grad_norm_(values, self.max_grad_norm)

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """
        Sample the replay buffer and do the updates.

        :param gradient_steps: How many.
        :param batch_size: Transitions per update.
        :raises ValueError: If the replay buffer is empty.
        """
        check_buffer(self.replay_buffer)
        # Switch to train mode (this affects batch norm / dropout)
        self.policy.set_training_mode(True)
        # Update learning rate according to schedule
        optimizer = self.policy.optimizer
        self._update_learning_rate(optimizer)
        settings = self._update_settings()
        values = optimizer.param_groups[VALUE_GROUP]["params"]

        terms, grad_norm = [], None
        for _ in range(gradient_steps):
            data = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)  # type: ignore[union-attr]
            if self._known_buffer is not self.replay_buffer:
                self._known_buffer = self.replay_buffer
                warn_of_priorities(self.replay_buffer, data)  # type: ignore[arg-type]
            terms.append(self._compute_gradients(data, settings))
            grad_norm = self._clip_gradients(values)
            optimizer.step()

        self._n_updates += gradient_steps
        self._logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        if self._diagnostics.hold(terms, settings, values, grad_norm):
            self._diagnostics.record(self._logger)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_diagnostics", "_compiled", "_known_buffer"]
