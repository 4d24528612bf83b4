"""QRC, QRC-Huber, QLC, GQ and GQ-Huber: one class, and subclasses that set its defaults."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

import torch as th
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import GymEnv, ReplayBufferSamples, Schedule
from stable_baselines3.common.utils import LinearSchedule

from sb3_robust_be.messages import warn
from sb3_robust_be.qrc.dqn import TwoHeadDQN
from sb3_robust_be.qrc.losses import H_AVERAGINGS, HAveraging, LossTerms, action_counts, qrc_loss
from sb3_robust_be.qrc.maskable import next_action_masks
from sb3_robust_be.qrc.policies import QRCPolicy
from sb3_robust_be.qrc.products import CompileMode
from sb3_robust_be.qrc.regularization import HRegularizationScale
from sb3_robust_be.qrc.validation import (
    check_choice,
    check_not_negative,
    check_numbers,
    check_projection,
    check_threshold,
)
from sb3_robust_be.updates import HTarget, Limit

FALLING = LinearSchedule(2.0**-9, 2.0**-13, 1.0)
"""The learning rate of :class:`QLC`: linear in the progress of the run, to a sixteenth of where it began"""


class RobustQLearning(TwoHeadDQN):
    """
    Q-learning on a robust Bellman error (paper, section 7); the subclasses differ in their defaults only.

    The positional arguments are DQN's, in DQN's order and with DQN's defaults, but for ``learning_rate``, which is ten
    times as large, and ``target_update_interval`` and ``max_grad_norm``, which are off.

    :param policy: The policy model to use (MlpPolicy, CnnPolicy, ...)
    :param env: The environment to learn from (if registered in Gym, can be str)
    :param learning_rate: The learning rate of the values, it can be a function of the current progress remaining
        (from 1 to 0)
    :param buffer_size: size of the replay buffer
    :param learning_starts: how many steps of the model to collect transitions for before learning starts
    :param batch_size: Minibatch size for each gradient update
    :param tau: the soft update coefficient of the target network, where there is one. Not the paper's τ, which is
        ``huber_threshold``.
    :param gamma: the discount factor
    :param train_freq: Update the model every ``train_freq`` steps. Alternatively pass a tuple of frequency and unit
        like ``(5, "step")`` or ``(2, "episode")``.
    :param gradient_steps: How many gradient steps to do after each rollout; ``-1``: as many as environment steps.
    :param replay_buffer_class: Replay buffer class to use (for instance ``HerReplayBuffer``).
        If ``None``, it will be automatically selected.
    :param replay_buffer_kwargs: Keyword arguments to pass to the replay buffer on creation.
    :param optimize_memory_usage: Enable a memory efficient variant of the replay buffer, as DQN's.
    :param n_steps: When n_step > 1, uses n-step returns (with the NStepReplayBuffer), as DQN does.
    :param target_update_interval: ``None``: no target network, as in the paper. A number of environment steps:
        bootstrap from a copy refreshed that often (the paper's ablation, section 8.2), for which a warning is given.
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
    :param projection: How ``h`` enters the correction: ``"squared"``: as it is; ``"huber"``: clipped to ±κ;
        ``"absolute"``: its sign; ``"smooth_huber"``: ``κ·tanh(h/κ)``; ``"one_sided"``: ``max(h, 0)`` (ours).
    :param huber_threshold: κ, the paper's τ, in units of (TD) reward: a number, a function of the progress remaining,
        or ``None`` for no clipping. A κ far below the TD errors takes the correction away: on the two-state chain of
        features 1 and 2, κ = 0.1 diverges like DQN where κ = 1 converges. Watch ``train/h_clip_fraction``.
    :param limit: ``None``, or bound ``z`` by each sample's own TD error: ``"magnitude"``, ``|z| ≤ |δ|``;
        ``"same_sign"``, ``z`` between 0 and δ; or ``"one_sided"``, ``0 ≤ z ≤ max(δ, 0)``: values rise cautiously and
        fall by plain Q-learning. Paper: no limit / Ours: QLC.
    :param h_target: ``"td_error"``: h regresses δ (the paper); ``"clipped"``: h regresses δ clipped to ±κ, to ±1 where
        ``huber_threshold`` is ``None``.
    :param h_regularization: β, the ℓ2 regularisation of the secondary head's weight and bias, inside the optimiser.
    :param h_regularization_scale: ``"absolute"``: β as it is (the paper), which shrinks h to half of δ for a state
        whose features have norm 1, and hardly at all where hidden units make them large; ``"features"``: β times a
        running mean n of ``‖φ(s)‖² + 1``, the squared norm of what the secondary head sees, its bias included. For one
        state and action, β = 1 then leaves one half whatever the features' size; in general it leaves the share
        ``pλ/(pλ + βn)`` of δ along a direction of the features with second moment λ, for an action of frequency p: the
        less, the more directions and actions there are. Ours; not with ``h_decoupled_weight_decay``.
    :param h_learning_rate_ratio: η, the secondary head's learning rate over ``learning_rate``.
    :param compile: Compile the update, which takes some seconds at the first one and needs a C++ compiler; without one
        a warning is given and nothing changes. Worth it for small networks and long runs. The step of torch's Adam or
        AdamW is compiled with it; another optimiser, also Adam with ``amsgrad``, ``maximize`` or hooks, makes its own.
        ``"bfloat16"`` computes the update's products of large matrices (256 × 256 numbers or more, as in MinAtar's
        network) with 8 bits of precision, and the rest as before.
    :param h_averaging: ``"batch"``: the loss of h is the mean over the batch; ``"action"``: the sum over actions of the
        mean over the samples with that action, so that rare actions move h as much as frequent ones; ``"broadcast"``:
        as the public code of Ghiassian et al. (2020) computes it, where shapes (batch, 1) and (batch,) are broadcast
        against each other: each correction has the batch's mean of z, and h regresses the batch's mean of δ. The paper
        does not say.
    :param h_decoupled_weight_decay: ``False``: β is added to the gradient of h, where Adam normalises it; ``True``:
        ``θ_h ← (1 − αηβ) θ_h`` apart from the step, as in AdamW (Adam and its kin only). The paper does not say.
    :param correction_weight: w, by which the correction is multiplied: 1 (the paper) or, for ablations, another weight
        of at least 0; 0 is Q-learning without a target network.
    :param td_error_threshold: ``None``: values regress on the squared TD error (the paper); a number: on its Huber loss
        with that threshold, 1 being the loss of SB3's DQN. Gradient corrections only (not GQ, GQHuber).
    :raises TypeError: For a string where a number belongs.
    :raises ValueError: For an unknown projection, limit, h_target or h_averaging, numbers out of range, and decoupled
        decay with an optimizer that has none.
    """

    gradient_correction: ClassVar[bool] = True
    """Whether the values follow the TD error (QRC) or the secondary estimate (GQ)."""

    def __init__(
        self,
        policy: str | type[QRCPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 1e-3,
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
        projection: str = "squared",
        huber_threshold: float | Schedule | None = None,
        limit: Limit | None = None,
        h_target: HTarget = "td_error",
        h_regularization: float = 1.0,
        h_learning_rate_ratio: float = 1.0,
        compile: CompileMode = False,
        h_averaging: HAveraging = "batch",
        h_decoupled_weight_decay: bool = False,
        h_regularization_scale: HRegularizationScale = "absolute",
        correction_weight: float = 1.0,
        td_error_threshold: float | None = None,
    ) -> None:
        check_numbers({"verbose": verbose})  # SB3 looks at it before anything else
        policy_kwargs = self.complete_policy_kwargs(policy, policy_kwargs)
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
        self.projection = projection
        self.huber_threshold = huber_threshold
        self.limit = limit
        self.h_target = h_target
        self.h_regularization = h_regularization
        self.h_learning_rate_ratio = h_learning_rate_ratio
        self.compile = compile
        self.h_averaging = h_averaging
        self.h_decoupled_weight_decay = h_decoupled_weight_decay
        self.h_regularization_scale = h_regularization_scale
        self.correction_weight = correction_weight
        self.td_error_threshold = td_error_threshold
        self.algorithm = self.algorithm_name
        if _init_setup_model:
            self._setup_model()
            self._warn_of_target_arguments()
            if not self.gradient_correction and "one_sided" in (projection, limit):
                warn(
                    f"{type(self).__name__} follows z alone, and one-sided, z is never negative: values that are too "
                    "high are not lowered. Use QRC or QLC, whose values follow the TD error."
                )

    def _warn_of_target_arguments(self) -> None:
        if self.target_update_interval is not None:
            warn(
                f"{type(self).__name__} now bootstraps from a target network, refreshed every target_update_interval="
                f"{self.target_update_interval} environment steps. The algorithm does not need one: leave "
                "target_update_interval out (None) unless you are after the ablation."
            )
        elif self.tau != 1.0:
            warn(
                f"tau={self.tau} is ignored: there is no target network to average. It is not the paper's τ either, "
                "which is called huber_threshold."
            )

    def _check_arguments(self) -> None:
        super()._check_arguments()
        check_projection(self.projection, self.huber_threshold, self.limit, self.h_target)
        check_choice("h_averaging", self.h_averaging, H_AVERAGINGS)
        check_not_negative(
            "correction_weight", self.correction_weight, "The paper uses 1; 0 switches the correction off.", finite=True
        )
        if self.td_error_threshold is not None:
            remedy = "Pass a positive number, 1 for the loss of SB3's DQN, or None for the squared loss."
            if check_not_negative("td_error_threshold", self.td_error_threshold, remedy) == 0:
                raise ValueError(f"td_error_threshold must be positive and is {self.td_error_threshold!r}. {remedy}")
            if not self.gradient_correction:
                raise ValueError(
                    f"td_error_threshold={self.td_error_threshold!r} has no meaning for {type(self).__name__}, whose "
                    "values follow h and not the TD error. Pass None, or use QRC."
                )

    def update_settings(self) -> dict[str, Any]:
        """Keyword arguments of :func:`updates.coefficients` at the current progress."""
        return {
            **self.projection_settings(),
            "correction_weight": self.correction_weight,
            "td_error_threshold": self.td_error_threshold,
        }

    def projection_settings(self) -> dict[str, Any]:
        """Keyword arguments of :func:`updates.project` at the current progress.

        :return: ``projection``, ``threshold`` and ``limit``.
        """
        threshold = self.huber_threshold
        if threshold is not None:
            value = threshold(self._current_progress_remaining) if callable(threshold) else threshold
            threshold = check_threshold(value, self.projection)
        return {"projection": self.projection, "threshold": threshold, "limit": self.limit}

    def loss_choices(self) -> tuple[Hashable, ...]:
        return (*super().loss_choices(), self.h_target, self.h_averaging, self.h_regularization_scale)

    def batch_loss(self, data: ReplayBufferSamples, settings: dict[str, Any]) -> LossTerms:
        """The loss of one batch.

        :param data: Transitions; ``discounts`` replaces γ where the buffer gives it.
        :param settings: From :meth:`update_settings`.
        :return: The loss and the batch's detached quantities.
        """
        q, h, next_value, features = self.policy.evaluate_transitions(
            data.observations, data.actions, data.next_observations, next_action_masks(data)
        )
        terms = qrc_loss(
            q,
            h,
            next_value,
            data.rewards,
            self._discount(data),
            h_counts=action_counts(data.actions) if self.h_averaging == "action" else None,
            broadcast=self.h_averaging == "broadcast",
            **settings,
            h_target=self.h_target,
            gradient_correction=self.gradient_correction,
        )
        if self.h_regularization_scale == "absolute":
            return terms
        return terms._replace(feature_norm=features.square().sum(dim=1).mean() + 1.0)


class QRC(RobustQLearning):
    """Q-learning with Regularized Corrections: the squared projected Bellman error by gradient corrections.

    ``δ = r + γ max q(s',·) − q(s,a)``; ``θ += α (δ ∇q − γ h ∇max q(s',·))``; ``θ_h += α (δ − h) ∇h − αβ θ_h``.
    Source: Ghiassian et al. (2020); paper, section 7. Arguments: :class:`RobustQLearning`.
    """

    algorithm_name: ClassVar[str] = "qrc"


class QRCHuber(RobustQLearning):
    """QRC on the mean Huber projected Bellman error: :class:`QRC` with ``clip(h, −κ, κ)`` in the correction.

    Paper, section 7, where κ (``huber_threshold``) is τ = 1. ``projection="smooth_huber"`` is ``κ tanh(h/κ)``, the
    paper's twice differentiable estimate of the clip. The clip itself is the default since its minima are those of the
    Huber loss, and every agent of 0.1 was trained with it; which to take is measured in qrc/README.md.
    Arguments: :class:`RobustQLearning`.
    """

    algorithm_name: ClassVar[str] = "qrc_huber"

    def __init__(
        self, *args: Any, projection: str = "huber", huber_threshold: float | Schedule | None = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(*args, projection=projection, huber_threshold=huber_threshold, **kwargs)


class QLC(RobustQLearning):
    """Q-learning with Limited Corrections (ours): :class:`QRC` with ``z = min(max(h, 0), max(δ, 0))``.

    With ``w = z/δ`` the update is ``α δ (∇q − γ w ∇max q(s',·))``, between semi-gradient Q-learning (w = 0) and the
    residual gradient (w = 1): Baird's residual algorithm (1995) with the weight learned per transition, and only where
    a value is to rise. There is no threshold to tune, and rewards scaled by c give the same w.

    The hidden layers are normalised (``policy_kwargs=dict(layer_norm=False)`` switches that off; a policy class of your
    own, a subclass of ``QRCPolicy``, is left as it is and has ``layer_norm`` only from your ``policy_kwargs``), and the
    learning rate falls in proportion to the steps: in place of a tuned DQN, leave DQN's learning rate out. The QLC of
    0.1 is ``QLC(policy, env, 1e-4, limit="magnitude", policy_kwargs=dict(layer_norm=False))``. Arguments:
    :class:`RobustQLearning`.
    """

    algorithm_name: ClassVar[str] = "qlc"
    default_policy_kwargs: ClassVar[dict[str, Any]] = {"layer_norm": True}

    def __init__(
        self,
        policy: str | type[QRCPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = FALLING,
        *args: Any,
        projection: str = "huber",
        limit: Limit | None = "one_sided",
        **kwargs: Any,
    ) -> None:
        super().__init__(policy, env, learning_rate, *args, projection=projection, limit=limit, **kwargs)


class GQ(RobustQLearning):
    """Greedy GQ in saddlepoint form, the squared counterpart of GTD2 for control, without regularisation.

    ``θ += α h (∇q − γ ∇max q(s',·))``; ``θ_h += α (δ − h) ∇h``.
    Paper, section 5 and appendix "Additional Results". Arguments: :class:`RobustQLearning`.
    """

    algorithm_name: ClassVar[str] = "gq"
    gradient_correction: ClassVar[bool] = False

    def __init__(self, *args: Any, h_regularization: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, h_regularization=h_regularization, **kwargs)


class GQHuber(RobustQLearning):
    """:class:`GQ` on the mean Huber projected Bellman error: ``clip(h, −κ, κ)`` in place of h.

    Paper, section 5, with the clip, and appendix "Additional Results", whose caption has a twice differentiable
    estimate of it, ``projection="smooth_huber"``. The clip is the default for the reasons that :class:`QRCHuber` gives.
    Arguments: :class:`RobustQLearning`.
    """

    algorithm_name: ClassVar[str] = "gq_huber"
    gradient_correction: ClassVar[bool] = False

    def __init__(
        self,
        *args: Any,
        projection: str = "huber",
        huber_threshold: float | Schedule | None = 1.0,
        h_regularization: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            *args, projection=projection, huber_threshold=huber_threshold, h_regularization=h_regularization, **kwargs
        )
