"""The base of every algorithm here: DQN with a secondary head. Acting, updating, saving and loading."""

from __future__ import annotations

import io
import pathlib
from abc import abstractmethod
from collections.abc import Hashable, Iterable
from typing import Any, ClassVar, Self

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.type_aliases import (
    GymEnv,
    MaybeCallback,
    ReplayBufferSamples,
    Schedule,
    TensorDict,
    TrainFreq,
)
from stable_baselines3.common.utils import LinearSchedule, get_parameters_by_name, polyak_update
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.dqn.dqn import DQN

from sb3_robust_be.envs.action_masks import checked_masks
from sb3_robust_be.messages import warn
from sb3_robust_be.qrc.adam import fused_step
from sb3_robust_be.qrc.channels import with_channels, wrap_env
from sb3_robust_be.qrc.compiled import CompiledUpdate
from sb3_robust_be.qrc.diagnostics import UpdateDiagnostics
from sb3_robust_be.qrc.dqn_files import check_normalisation, is_dqns, objects_from_dqn, parameters_from_dqn, two_headed
from sb3_robust_be.qrc.flattening import flatten
from sb3_robust_be.qrc.loading import changed_attributes, read_attributes
from sb3_robust_be.qrc.losses import LossTerms
from sb3_robust_be.qrc.maskable import with_terminal_masks
from sb3_robust_be.qrc.masked_dqn import MaskedDQN
from sb3_robust_be.qrc.policies import (
    H_GROUP,
    VALUE_GROUP,
    CnnPolicy,
    MlpPolicy,
    MultiInputPolicy,
    QRCNetwork,
    QRCPolicy,
)
from sb3_robust_be.qrc.products import CompileMode
from sb3_robust_be.qrc.regularization import (
    H_REGULARIZATION_SCALES,
    HRegularizationScale,
    RelativeDecay,
    feature_norm_rate,
)
from sb3_robust_be.qrc.sampling import sample_batch
from sb3_robust_be.qrc.saving import saving_to
from sb3_robust_be.qrc.validation import (
    DQN_ARGUMENTS,
    NUMERIC_ARGUMENTS,
    check_buffer,
    check_buffer_arguments,
    check_choice,
    check_compile,
    check_count,
    check_dqn_arguments,
    check_flag,
    check_not_negative,
    check_numbers,
    check_observations,
    check_rewards,
    constructor_arguments,
    plain_number,
    warn_of_priorities,
)


class TwoHeadDQN(MaskedDQN):
    """
    DQN with a secondary head h(s,a) that has its own learning rate and regularisation, and with an optional target.

    Between the environment and the replay buffer it does what DQN does, but that ε is tossed for each environment by
    itself, that resuming never explores more than before, and that numbers that are not finite are refused.

    A subclass brings its constructor, which sets the attributes below and calls DQN's with
    ``_init_setup_model=False``, :meth:`update_settings` and :meth:`batch_loss`.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": MlpPolicy,
        "CnnPolicy": CnnPolicy,
        "MultiInputPolicy": MultiInputPolicy,
    }
    diagnostics_class: ClassVar[type[UpdateDiagnostics]] = UpdateDiagnostics
    default_policy_kwargs: ClassVar[dict[str, Any]] = {}
    """``policy_kwargs`` of the policies in ``policy_aliases``, given by name or by class, where the caller's do not say
    otherwise. A policy class of the user's own has none of them."""
    algorithm_name: ClassVar[str]
    """The name in files and commands."""
    algorithm: str
    """``algorithm_name``, as an attribute so that it is saved."""
    policy: QRCPolicy
    q_net: QRCNetwork
    q_net_target: QRCNetwork
    target_update_interval: int | None  # type: ignore[assignment]
    max_grad_norm: float | None  # type: ignore[assignment]
    h_regularization: float
    h_learning_rate_ratio: float
    h_decoupled_weight_decay: bool = False
    h_regularization_scale: HRegularizationScale = "absolute"
    compile: CompileMode
    # Resuming never explores more than before the interruption, unless it is asked for by another schedule.
    _exploration_cap: float = 1.0
    # What `exploration_rate` was last taken from.
    _explored_by: Schedule | None = None
    # Whose samples have been looked at.
    _known_buffer: ReplayBuffer | None = None
    # Whether `learn` is running, whose `dump_logs` records the diagnostics.
    _learning: bool = False

    # Setting up

    @classmethod
    def complete_policy_kwargs(
        cls, policy: str | type[BasePolicy], policy_kwargs: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        """The caller's ``policy_kwargs`` with the class's defaults where the policy is one of this package.

        :param policy: By name or by class.
        :param policy_kwargs: The caller's, which win.
        :return: With :attr:`default_policy_kwargs`; as they are for a policy class of the user's own.
        """
        if isinstance(policy, str) or policy in cls.policy_aliases.values():
            return {**cls.default_policy_kwargs, **(policy_kwargs or {})}
        return policy_kwargs

    @staticmethod
    def _wrap_env(env: GymEnv, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        return flatten(wrap_env(with_terminal_masks(env), verbose, monitor_wrapper))

    def _setup_model(self) -> None:
        # Also runs inside `load`, after the saved arguments and the caller's have been put in place.
        # SB3's name for stats_window_size comes along.
        for name in (*NUMERIC_ARGUMENTS, "_stats_window_size"):
            if name in self.__dict__:
                setattr(self, name, plain_number(self.__dict__[name]))
        self._check_arguments()
        if not issubclass(self.policy_class, QRCPolicy):
            raise ValueError(
                f"policy is {self.policy_class.__name__}, which has no secondary head. Pass a name ('MlpPolicy', …) or "
                "a subclass of sb3_robust_be.qrc.QRCPolicy."
            )
        check_buffer_arguments(
            self.n_steps, self.replay_buffer_class, self.optimize_memory_usage, self.observation_space
        )
        # Where `train()` writes to before `learn()` or the user has said where to.
        self._logger = Logger(folder=None, output_formats=[])
        chosen_class, chosen_kwargs = self.replay_buffer_class, self.replay_buffer_kwargs
        self.replay_buffer_kwargs = dict(chosen_kwargs or {})
        self.policy_kwargs = with_channels(self.policy_kwargs, self.policy_class, self.env)
        self._make_maskable_buffer()
        # Past DQN's own, which cannot do without a target interval.
        super(DQN, self)._setup_model()
        # SB3 leaves its choice of buffer here, where a later `load` would take it, and its γ, for the user's.
        self.replay_buffer_class, self.replay_buffer_kwargs = chosen_class, chosen_kwargs or {}
        if self.target_update_interval is not None:
            self._make_target(self.target_update_interval)
        self._create_aliases()
        self.batch_norm_stats = get_parameters_by_name(self.q_net, ["running_"])
        self.batch_norm_stats_target = get_parameters_by_name(self.q_net_target, ["running_"])
        if self._explored_by is None:
            # In a file of SB3's DQN.
            self._explored_by = self.__dict__.get("exploration_schedule")
        self.exploration_schedule = LinearSchedule(
            self.exploration_initial_eps, self.exploration_final_eps, self.exploration_fraction
        )
        self._diagnostics = self.diagnostics_class()
        self._compiled = CompiledUpdate(self, self.compile == "bfloat16") if self.compile else None
        self._configure_optimizer()
        self._forget_features()

    def _forget_features(self) -> None:
        """Begin the running mean of the features' squared norm anew, and the count of batches that it has seen."""
        self._feature_norm = th.zeros((), device=self.device)
        self._feature_norm_updates = th.zeros((), dtype=th.long)

    def _check_arguments(self) -> None:
        check_numbers({**self.__dict__, "stats_window_size": self._stats_window_size})
        check_not_negative(
            "h_regularization", self.h_regularization, "The paper uses 1; 0 switches it off.", finite=True
        )
        check_not_negative("h_learning_rate_ratio", self.h_learning_rate_ratio, "The paper uses 1.", finite=True)
        if self.target_update_interval is not None:
            check_count("target_update_interval", self.target_update_interval, "Pass None for no target network.")
        check_dqn_arguments({name: getattr(self, name) for name in DQN_ARGUMENTS})
        check_compile(self.compile)
        check_flag("h_decoupled_weight_decay", self.h_decoupled_weight_decay)
        check_choice("h_regularization_scale", self.h_regularization_scale, H_REGULARIZATION_SCALES)
        if self.h_decoupled_weight_decay and self.h_regularization_scale != "absolute":
            raise ValueError(
                f"h_regularization_scale={self.h_regularization_scale!r} is defined for a regulariser inside Adam's "
                "gradient, and h_decoupled_weight_decay=True takes it out. Leave one of the two out."
            )

    def _make_target(self, interval: int) -> None:
        self.policy.make_target()
        if self.n_envs > interval:
            warn(
                f"target_update_interval={interval} is less than the number of environments "
                f"({self.n_envs}): the target network is refreshed after each step of all of them."
            )

    @property
    def has_target(self) -> bool:
        """Whether bootstrapping uses a copy of the network, refreshed every ``target_update_interval`` steps."""
        return self.policy.has_target

    def _configure_optimizer(self) -> None:
        """Set the secondary head's regularisation β as the weight decay of its parameters, where β is one number.

        By default it is part of the gradient: decoupled, it would bound every weight and hide what the squared loss
        does to the head.
        """
        group = self.policy.optimizer.param_groups[H_GROUP]
        if self.h_regularization_scale != "absolute":
            # `_regularize` adds it to the gradient.
            if "weight_decay" in group:
                group["weight_decay"] = 0.0
        elif "weight_decay" in group:
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

    # Acting

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
        action_masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """
        Greedy actions, or ε-greedy ones for which each environment decides by itself whether to explore.

        :param observation: the input observation
        :param state: The last states (can be None, used in recurrent policies)
        :param episode_start: The last masks (can be None, used in recurrent policies)
        :param deterministic: Whether or not to return greedy actions.
        :param action_masks: Which actions are legal, as MaskablePPO takes it: bool of shape (batch, actions), or
            (actions,) for one observation; ``None``: all.
        :return: the model's action and the next state (used in recurrent policies)
        :raises ValueError: For masks of another shape or kind, or that allow nothing.
        """
        if deterministic or self.exploration_rate <= 0.0:
            return self._actions_by_value(observation, state, episode_start, deterministic, action_masks)
        masks = None
        if action_masks is not None:
            masks = checked_masks(action_masks, int(self.action_space.n))  # type: ignore[attr-defined]
        shape = self._shape_before_values(observation)
        explore = None if shape is None else self._toss(*shape)
        if explore is not None and 0 < explore.size == np.count_nonzero(explore):
            if not isinstance(self.observation_space, spaces.Box):
                # For its error, where an integer is not of the space.
                self.policy.is_vectorized_observation(observation)
            return self._random_actions(explore.size, masks).reshape(explore.shape), state
        actions, state = self._actions_by_value(observation, state, episode_start, deterministic, masks)
        if explore is None:
            explore = self._toss(*actions.shape)
        if exploring := int(np.count_nonzero(explore)):
            actions = np.array(actions)
            legal = None if masks is None else masks[np.atleast_1d(explore)]
            actions[explore] = self._random_actions(exploring, legal)
        return actions, state

    def _shape_before_values(self, observation: np.ndarray | dict[str, np.ndarray]) -> tuple[int, ...] | None:
        """The shape of the actions, where the network need not be asked if every environment explores."""
        return self.policy.batch_shape(observation)

    def _toss(self, *shape: int) -> np.ndarray:
        # The global generator is the one that SB3 seeds.
        return np.asarray(np.random.rand(*shape) < self.exploration_rate)  # noqa: NPY002

    def _actions_by_value(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None,
        episode_start: np.ndarray | None,
        deterministic: bool,
        action_masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """The actions of environments that do not explore: the greedy ones, unless a subclass says otherwise."""
        if action_masks is None:
            return self.policy.predict(observation, state, episode_start, deterministic)
        return self.policy.predict(observation, state, episode_start, deterministic, action_masks)

    # Between the environments and the replay buffer

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
        self.logger.record("rollout/exploration_rate", self.exploration_rate)

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

    # Updating

    def _update_learning_rate(self, optimizers: list[th.optim.Optimizer] | th.optim.Optimizer) -> None:
        # Replaces SB3's, which writes one rate into all groups.
        learning_rate = self.lr_schedule(self._current_progress_remaining)
        self.logger.record("train/learning_rate", learning_rate)
        for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
            optimizer.param_groups[VALUE_GROUP]["lr"] = learning_rate
            optimizer.param_groups[H_GROUP]["lr"] = self.h_learning_rate_ratio * learning_rate

    @abstractmethod
    def update_settings(self) -> dict[str, Any]:
        """Settings that :meth:`batch_loss` takes, with schedules evaluated at the current progress."""

    @abstractmethod
    def batch_loss(self, data: ReplayBufferSamples, settings: dict[str, Any]) -> LossTerms:
        """The loss of one batch.

        :param data: Transitions; ``discounts`` replaces γ where the buffer gives it.
        :param settings: From :meth:`update_settings`.
        :return: The loss and the batch's detached quantities.
        """

    def loss_choices(self) -> tuple[Hashable, ...]:
        """Other arguments that :meth:`batch_loss` depends on; a compiled update is made anew when one changes."""
        return (self.gamma,)

    def _discount(self, data: ReplayBufferSamples) -> th.Tensor:
        """``γ·(1 − terminated)``, (batch, 1)."""
        return (1 - data.dones) * (self.gamma if data.discounts is None else data.discounts)

    def _compute_gradients(self, data: ReplayBufferSamples, settings: dict[str, Any]) -> LossTerms:
        """Compute the gradient of one batch's loss into the parameters' ``grad``."""
        if self._compiled is not None:
            compiled_terms = self._compiled.gradients(data, settings)
            if compiled_terms is not None:
                return compiled_terms
        for group in self.policy.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
        terms = self.batch_loss(data, settings)
        terms.loss.backward()
        # The diagnostics keep the terms, and nothing that holds a graph can be copied.
        terms = terms._replace(loss=terms.loss.detach())
        if self.has_target:
            # The correction's gradient is taken at the target's parameters and moves the online ones.
            for online, target in zip(self.q_net.parameters(), self.q_net_target.parameters(), strict=True):
                if target.grad is not None:
                    if online.requires_grad:
                        online.grad = target.grad if online.grad is None else online.grad + target.grad
                    target.grad = None
        return terms

    def _clip_gradients(self, values: list[th.nn.Parameter]) -> th.Tensor | None:
        """Clip values and secondary head apart, so that the loss of h does not scale the step of q."""
        if self.max_grad_norm is None:
            return None
        th.nn.utils.clip_grad_norm_(self.q_net.h_net.parameters(), self.max_grad_norm)
        return th.nn.utils.clip_grad_norm_(values, self.max_grad_norm)

    def _relative_decay(self) -> RelativeDecay | None:
        """What the next batch's regulariser of h is made of where β is relative; else the optimiser has it."""
        if self.h_regularization_scale == "absolute":
            return None
        rate = feature_norm_rate(int(self._feature_norm_updates) + 1)
        return RelativeDecay(self._feature_norm, rate, self.h_regularization)

    def _regularize(self, feature_norm: th.Tensor) -> None:
        """Add ``β·n·θ_h`` to the secondary head's gradient, n being the running mean of the features' squared norm.

        :param feature_norm: Of :class:`LossTerms`.
        """
        decay = self._relative_decay()
        assert decay is not None
        parameters = list(self.q_net.h_net.parameters())
        decay.add(feature_norm, [p.grad for p in parameters], parameters)
        self._feature_norm_updates += 1

    def _update(self, data: ReplayBufferSamples, settings: dict[str, Any]) -> tuple[LossTerms, th.Tensor | None]:
        """Make one update.

        :param data: Transitions.
        :param settings: From :meth:`update_settings`.
        :return: The batch's detached quantities, and the norm of the values' gradient before clipping if it is known.
        """
        optimizer = self.policy.optimizer
        if self._compiled is not None:
            decay = self._relative_decay()
            done = self._compiled.step(data, settings, optimizer, self.max_grad_norm, decay)
            if done is not None:
                if decay is not None:
                    self._feature_norm_updates += 1
                return done
        terms = self._compute_gradients(data, settings)
        grad_norm = self._clip_gradients(optimizer.param_groups[VALUE_GROUP]["params"])
        if terms.feature_norm is not None:
            self._regularize(terms.feature_norm)
        if not fused_step(optimizer):
            optimizer.step()
        return terms, grad_norm

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """
        Sample the replay buffer and do the updates.

        Called by the user, it records the diagnostics at once. Within :meth:`learn` they stay on the device until SB3
        writes a line of its log (:meth:`dump_logs`), 100 updates have been made, or :meth:`learn` ends.

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
        settings = self.update_settings()
        values = optimizer.param_groups[VALUE_GROUP]["params"]

        terms: list[LossTerms] = []
        grad_norm = None
        for _ in range(gradient_steps):
            data = sample_batch(self.replay_buffer, batch_size, self._vec_normalize_env)  # type: ignore[arg-type]
            if self._known_buffer is not self.replay_buffer:
                self._known_buffer = self.replay_buffer
                warn_of_priorities(self.replay_buffer, data)  # type: ignore[arg-type]
            last_terms, grad_norm = self._update(data, settings)
            terms.append(last_terms)

        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        due = self._diagnostics.hold(terms, settings, values, grad_norm)
        if due or not self._learning:
            self._diagnostics.record(self.logger)

    def dump_logs(self) -> None:
        """
        Write log data, the diagnostics of the last ``train()`` call included.
        """
        self._diagnostics.record(self.logger)
        super().dump_logs()

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
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
            warn(
                f"Training ends at step {last_step}, before learning_starts={self.learning_starts}: there will be no "
                "update. Raise total_timesteps or lower learning_starts."
            )
        self._learning = True
        try:
            super().learn(
                total_timesteps=total_timesteps,
                callback=callback,
                log_interval=log_interval,
                tb_log_name=tb_log_name or type(self).__name__,
                reset_num_timesteps=reset_num_timesteps,
                progress_bar=progress_bar,
            )
        finally:
            self._learning = False
        self._diagnostics.record(self.logger)
        return self

    # Saving and loading

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

        From DQN's, the values (features and q head) and the number of steps are taken over, with all arguments but
        ``target_update_interval``, ``max_grad_norm`` and ``tau``; the secondary head starts at zero and the optimiser
        afresh. A warning says so, and where the network, without layer normalisation, and the learning rate stay
        DQN's although a new model would have others.

        :param path: path to the file (or a file-like) where to load the agent from
        :param env: the new environment to run the loaded model on
        :param device: Device on which the code should run.
        :param custom_objects: Dictionary of objects to replace upon loading.
        :param print_system_info: Whether to print system info from the saved model and the current system info
        :param force_reset: Force call to ``reset()`` before training
        :param kwargs: Arguments of the constructor, or other attributes, in place of the saved ones.
        :return: new model instance with loaded parameters
        :raises TypeError: For an argument that is unknown or cannot be changed.
        :raises ValueError: For a file of another algorithm.
        """
        custom_objects = dict(custom_objects or {})
        if (replacement := custom_objects.get("policy_class")) is not None:
            # The remedy that is known for a DQN's file names DQN's policy.
            custom_objects["policy_class"] = two_headed(replacement, cls.policy_aliases) or replacement
        data = read_attributes(path, device, custom_objects)
        if "policy_kwargs" not in data:
            # They cannot be read, for which SB3 has warned; what a new model would have is not what the file has.
            custom_objects["policy_kwargs"] = data["policy_kwargs"] = {}
        saved_by = data.get("algorithm")
        if saved_by is None:
            if "huber_threshold" in data and "huber_threshold" in constructor_arguments(cls):
                # That of SquaredDQN's loss is another.
                own = constructor_arguments(cls)["huber_threshold"].default
                custom_objects = {"huber_threshold": own, **custom_objects}
            custom_objects = {
                **objects_from_dqn(path, data, cls, {**custom_objects, **kwargs}),
                **custom_objects,
            }
        elif saved_by != cls.algorithm_name:
            raise ValueError(
                f"{path} was saved by the algorithm {saved_by!r} and {cls.__name__} is {cls.algorithm_name!r}. Load it "
                f"with the class that saved it; to go on from its weights with {cls.__name__}, make a new model and "
                "call its set_parameters(path)."
            )
        if "policy_kwargs" in kwargs and kwargs["policy_kwargs"] != data["policy_kwargs"]:
            # What the constructor was given, beside what it added: nothing for a policy of the user's own, or in 0.1.
            added = {name: x for name, x in cls.default_policy_kwargs.items() if name in data["policy_kwargs"]}
            kwargs["policy_kwargs"] = {**added, **(kwargs["policy_kwargs"] or {})}
        changes = changed_attributes(cls, path, data, kwargs)
        model = super().load(path, env, device, custom_objects, print_system_info, force_reset, **changes)
        if kwargs.get("tau", 1.0) != 1.0 and model.target_update_interval is None:
            warn(
                f"tau={model.tau} is ignored: there is no target network to average. Leave it out, or set "
                "target_update_interval as well."
            )
        return model

    def set_parameters(
        self,
        load_path_or_dict: str | TensorDict,
        exact_match: bool = True,
        device: th.device | str = "auto",
    ) -> None:
        """
        Load parameters from a given zip-file or a nested dictionary, as ``BaseAlgorithm.set_parameters``.

        Parameters of SB3's DQN set the values, put the secondary head to zero and reset the optimiser.

        :param load_path_or_dict: Location of the saved data, or a nested dictionary of parameters.
        :param exact_match: If True, the given parameters should include parameters for each module and each of their
            parameters, otherwise raises an Exception.
        :param device: Device on which the code should run.
        :raises ValueError: For parameters with layer normalisation if the model is without, and the reverse.
        """
        params: Any = load_path_or_dict
        if not isinstance(params, dict):
            _, params, _ = load_from_zip_file(params, device=device, load_data=False)
        if is_dqns(params):
            params = parameters_from_dqn(params, self.policy)
        if exact_match:
            check_normalisation(params, self.policy)
        super().set_parameters(params, exact_match, device)
        # The optimiser's groups have been replaced by the saved ones, and the features are others.
        self._configure_optimizer()
        self._forget_features()

    def save(
        self,
        path: str | pathlib.Path | io.BufferedIOBase,
        exclude: Iterable[str] | None = None,
        include: Iterable[str] | None = None,
    ) -> None:
        """
        Save all the attributes of the object and the model parameters in a zip-file.

        A file that is there already is replaced when the new one is complete: whatever goes wrong, it stays.

        :param path: path to the file where the rl agent should be saved
        :param exclude: name of parameters that should be excluded in addition to the default ones
        :param include: name of parameters that might be excluded but should be included anyway
        """
        with saving_to(path, "zip") as target:
            super().save(target, exclude, include)

    def save_replay_buffer(self, path: str | pathlib.Path | io.BufferedIOBase) -> None:
        """
        Save the replay buffer as a pickle file, which replaces one that is there already when it is complete.

        :param path: Path to the file where the replay buffer should be saved.
            if path is a str or pathlib.Path, the path is automatically created if necessary.
        """
        with saving_to(path, "pkl", self.verbose) as target:
            super().save_replay_buffer(target)

    def load_replay_buffer(self, path: str | pathlib.Path | io.BufferedIOBase, truncate_last_traj: bool = True) -> None:
        """
        Load a replay buffer from a pickle file; an n-step buffer takes the model's γ and n.

        :param path: Path to the pickled replay buffer.
        :param truncate_last_traj: As ``OffPolicyAlgorithm.load_replay_buffer``.
        """
        super().load_replay_buffer(path, truncate_last_traj)
        if isinstance(self.replay_buffer, NStepReplayBuffer) and self.replay_buffer_class is None:
            self.replay_buffer.gamma, self.replay_buffer.n_steps = self.gamma, self.n_steps

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        state_dicts, tensors = super()._get_torch_save_params()
        # Only where they are in use, so that other files stay as they were.
        own = [] if self.h_regularization_scale == "absolute" else ["_feature_norm", "_feature_norm_updates"]
        return state_dicts, [*tensors, *own]

    def _excluded_save_params(self) -> list[str]:
        made = [
            "_feature_norm",
            "_feature_norm_updates",
            "batch_norm_stats",
            "batch_norm_stats_target",
            "_diagnostics",
            "_compiled",
            "_known_buffer",
            "_learning",
        ]
        return [*super()._excluded_save_params(), *made]


def _same_schedule(schedule: Schedule | None, other: Schedule) -> bool:
    # SB3's own, which come out of a file as new objects, show all that they consist of.
    return schedule is other or (isinstance(schedule, LinearSchedule) and repr(schedule) == repr(other))
