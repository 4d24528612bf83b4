"""SBEED: Smoothed Bellman Error EmbeDding, with the mellowmax policy of its action values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch as th
from gymnasium import spaces
from scipy.special import entr
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import GymEnv, ReplayBufferSamples, Schedule

from sb3_robust_be.messages import warn
from sb3_robust_be.qrc.diagnostics import UpdateDiagnostics
from sb3_robust_be.qrc.dqn import TwoHeadDQN
from sb3_robust_be.qrc.losses import LossTerms, update_loss
from sb3_robust_be.qrc.maskable import action_values, next_action_masks
from sb3_robust_be.qrc.policies import QRCPolicy
from sb3_robust_be.qrc.products import CompileMode
from sb3_robust_be.qrc.validation import check_choice, check_not_negative, check_numbers, check_share
from sb3_robust_be.updates import mellowmax, mellowmax_policy, sbeed_coefficients

Behaviour = Literal["greedy", "softmax"]

BEHAVIOURS: tuple[str, ...] = ("greedy", "softmax")


class SBEEDDiagnostics(UpdateDiagnostics):
    """
    The diagnostics of :class:`UpdateDiagnostics`, and the policy's entropy on the batch's states, in nats, where every
    action is legal.
    """

    def _own_entries(self, terms: Sequence[LossTerms]) -> dict[str, Any]:
        if any(entry.action_values is None for entry in terms):
            return {}  # with action masks
        q = th.cat([entry.action_values for entry in terms]).double().cpu().numpy()  # type: ignore[misc]
        return {"policy_entropy": entr(mellowmax_policy(q, self._settings["temperature"])).sum(axis=-1).mean()}

    def _clip_fraction(self, h: np.ndarray, td_error: np.ndarray) -> float:
        return 0.0


class SBEED(TwoHeadDQN):
    """
    The squared soft Bellman error by a dual variable (Dai et al., 2018), with the mellowmax policy (paper, 8.1).

    ``V(s) = λ·log mean_a exp(q(s,a)/λ)`` and ``π = softmax(q/λ)``, so that with the dual ``ρ = V + h`` SBEED's residual
    is ``δ = r + γ V(s') − q(s,a)``. ``θ += −α z ∇δ`` with ``z = (1 − η) δ + η h``; ``θ_h += α (δ − h) ∇h``.

    Dai et al.: networks of their own for V, ρ and a parametrised policy / Paper and ours: all three from the two heads
    that the other algorithms have. Paper: always with a target network / Ours: on request.

    The positional arguments are DQN's, in DQN's order and with DQN's defaults, but for ``target_update_interval`` and
    ``max_grad_norm``, which are off.

    :param policy: The policy model to use (MlpPolicy, CnnPolicy, ...)
    :param env: The environment to learn from (if registered in Gym, can be str)
    :param learning_rate: The learning rate of the values, it can be a function of the current progress remaining
        (from 1 to 0)
    :param buffer_size: size of the replay buffer
    :param learning_starts: how many steps of the model to collect transitions for before learning starts
    :param batch_size: Minibatch size for each gradient update
    :param tau: the soft update coefficient of the target network, where there is one.
    :param gamma: the discount factor
    :param train_freq: Update the model every ``train_freq`` steps. Alternatively pass a tuple of frequency and unit
        like ``(5, "step")`` or ``(2, "episode")``.
    :param gradient_steps: How many gradient steps to do after each rollout; ``-1``: as many as environment steps.
    :param replay_buffer_class: Replay buffer class to use (for instance ``HerReplayBuffer``).
        If ``None``, it will be automatically selected.
    :param replay_buffer_kwargs: Keyword arguments to pass to the replay buffer on creation.
    :param optimize_memory_usage: Enable a memory efficient variant of the replay buffer, as DQN's.
    :param n_steps: 1. Longer returns would be biased: the log-probabilities of the actions in between are missing.
    :param target_update_interval: ``None``: no target network, ∇δ runs through V(s'). A number of environment steps:
        V(s') comes from a copy refreshed that often and is a constant (the paper, which sweeps the interval).
    :param exploration_fraction: fraction of entire training period over which the exploration rate is reduced
    :param exploration_initial_eps: initial value of random action probability
    :param exploration_final_eps: final value of random action probability
    :param max_grad_norm: ``None`` for no clipping (the paper), or the largest norm of the values' gradient and, apart,
        of the secondary head's.
    :param stats_window_size: Window size for the rollout logging
    :param tensorboard_log: the log location for tensorboard (if None, no logging)
    :param policy_kwargs: additional arguments to be passed to the policy on creation
    :param verbose: Verbosity level: 0 for no output, 1 for info messages, 2 for debug messages
    :param seed: Seed for the pseudo random generators
    :param device: Device (cpu, cuda, ...) on which the code should be run.
    :param _init_setup_model: Whether or not to build the network at the creation of the instance
    :param temperature: λ > 0, in units of value: V lies up to ``λ·log n`` below max q, in every step. Towards 0, V is
        the maximum and π greedy; towards infinity, the mean and uniform.
    :param eta: η from 0 to 1: how much of the TD error's conditional variance is taken out of the loss. 1 is Greedy GQ
        on mellowmax, 0 the mean squared TD error, which is biased where transitions are random.
    :param behaviour: What acts where ε does not explore: ``"greedy"``, the largest q, or ``"softmax"``, a sample of π.
        ``predict(deterministic=True)`` is greedy with either.
    :param h_regularization: β, the ℓ2 regularisation of the secondary head's weight and bias, inside the optimiser.
    :param h_learning_rate_ratio: The secondary head's learning rate over ``learning_rate``.
    :param compile: Compile the update, which takes some seconds at the first one and needs a C++ compiler; without one
        a warning is given and nothing changes. Worth it for small networks and long runs. The step of torch's Adam or
        AdamW is compiled with it; another optimiser, also Adam with ``amsgrad``, ``maximize`` or hooks, makes its own.
        ``"bfloat16"`` computes the update's products of large matrices (256 × 256 numbers or more, as in MinAtar's
        network) with 8 bits of precision, and the rest as before.
    :raises TypeError: For a string where a number belongs.
    :raises ValueError: For ``n_steps > 1``, an unknown behaviour, and numbers out of range.
    """

    algorithm_name: ClassVar[str] = "sbeed"
    diagnostics_class: ClassVar[type[UpdateDiagnostics]] = SBEEDDiagnostics

    def __init__(
        self,
        policy: str | type[QRCPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 1e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 32,
        tau: float = 1.0,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 4,
        gradient_steps: int = 1,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        target_update_interval: int | None = None,
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.05,
        max_grad_norm: float | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        _init_setup_model: bool = True,
        *,
        temperature: float = 0.01,
        eta: float = 0.01,
        behaviour: Behaviour = "greedy",
        h_regularization: float = 0.0,
        h_learning_rate_ratio: float = 1.0,
        compile: CompileMode = False,
    ) -> None:
        check_numbers({"verbose": verbose})  # SB3 looks at it before anything else
        super().__init__(
            policy,
            env,
            learning_rate,
            buffer_size,
            learning_starts,
            batch_size,
            tau,
            gamma,
            train_freq,
            gradient_steps,
            replay_buffer_class=replay_buffer_class,
            replay_buffer_kwargs=replay_buffer_kwargs,
            optimize_memory_usage=optimize_memory_usage,
            n_steps=n_steps,
            target_update_interval=target_update_interval,  # type: ignore[arg-type]
            exploration_fraction=exploration_fraction,
            exploration_initial_eps=exploration_initial_eps,
            exploration_final_eps=exploration_final_eps,
            max_grad_norm=max_grad_norm,  # type: ignore[arg-type]
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=False,
        )
        self.temperature = temperature
        self.eta = eta
        self.behaviour = behaviour
        self.h_regularization = h_regularization
        self.h_learning_rate_ratio = h_learning_rate_ratio
        self.compile = compile
        self.algorithm = self.algorithm_name
        if _init_setup_model:
            self._setup_model()
            if target_update_interval is None and tau != 1.0:
                warn(
                    f"tau={tau} is ignored: there is no target network to average. Leave it out, or set "
                    "target_update_interval as well."
                )

    def _setup_model(self) -> None:
        super()._setup_model()
        self._check_n_steps(getattr(self.replay_buffer, "n_steps", 1))

    def _check_arguments(self) -> None:
        super()._check_arguments()
        self._check_n_steps(self.n_steps)
        temperature = check_not_negative(
            "temperature", self.temperature, "Pass λ in units of value, for instance 0.01."
        )
        if not 0 < temperature < math.inf:
            raise ValueError(
                f"temperature must be positive and finite and is {self.temperature!r}. For the maximum itself (0) use "
                "GQ, or a temperature far below the differences of the values."
            )
        check_share("eta", self.eta, "Pass a number from 0 to 1.")
        check_choice("behaviour", self.behaviour, BEHAVIOURS)

    @staticmethod
    def _check_n_steps(n_steps: int) -> None:
        if n_steps > 1:
            raise ValueError(
                f"n_steps={n_steps} does not work with SBEED: longer returns lack the log-probabilities of the actions "
                "in between and would bias the values. Use n_steps=1 (also when loading), or QRC, which takes any."
            )

    def update_settings(self) -> dict[str, Any]:
        return {"temperature": self.temperature, "eta": self.eta}

    def batch_loss(self, data: ReplayBufferSamples, settings: dict[str, Any]) -> LossTerms:
        index = self.policy.action_indices(data.actions)
        q, h, next_q, _ = self.policy.evaluate_states(data.observations, data.next_observations, index.shape[0])
        frozen, masks = self.has_target, next_action_masks(data)
        terms = update_loss(
            sbeed_coefficients,
            q.gather(1, index),
            h.gather(1, index),
            mellowmax(next_q.detach() if frozen else next_q, settings["temperature"], masks),
            data.rewards,
            self._discount(data),
            eta=settings["eta"],
        )
        # Nothing moves along ∇V(s') of a target network.
        correction = th.zeros_like(terms.correction) if frozen else terms.correction
        # Which actions are legal in s, hence what the policy there is, is not stored.
        return terms._replace(correction=correction, action_values=q.detach() if masks is None else None)

    def _shape_before_values(self, observation: np.ndarray | dict[str, np.ndarray]) -> tuple[int, ...] | None:
        shape = super()._shape_before_values(observation)
        if self.behaviour == "softmax" and not (shape and isinstance(self.observation_space, spaces.Box)):
            # Actions are drawn in any case, so that a seed gives the run that it gave in 0.1.
            return None
        return shape

    def _actions_by_value(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None,
        episode_start: np.ndarray | None,
        deterministic: bool,
        action_masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        if deterministic or self.behaviour == "greedy":
            return super()._actions_by_value(observation, state, episode_start, deterministic, action_masks)
        values, vectorized = action_values(self.policy, observation, action_masks)
        sampled = th.multinomial(mellowmax_policy(values, self.temperature), 1)
        actions = sampled.squeeze(1).cpu().numpy() + int(self.action_space.start)  # type: ignore[attr-defined]
        return (actions if vectorized else actions.squeeze(0)), state
