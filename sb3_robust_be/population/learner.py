"""Networks and optimiser of many agents that learn in lock-step, each as it would alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch as th

from sb3_robust_be.envs.lockstep import Observation, batches
from sb3_robust_be.population.baseline import Agent
from sb3_robust_be.population.graphs import Function, trace
from sb3_robust_be.population.member_functions import MemberFunctions, Tensors
from sb3_robust_be.population.replay import nested
from sb3_robust_be.population.stacked import Layout, check_stackable
from sb3_robust_be.qrc.adam import AdamSettings, adam_direction, clipping_factor, is_plain_adam
from sb3_robust_be.qrc.products import CompileMode
from sb3_robust_be.qrc.regularization import feature_norm_rate


def _adam_of(optimizer: th.optim.Optimizer) -> AdamSettings:
    kind = type(optimizer)
    group: dict[str, Any] = optimizer.param_groups[0]
    if kind is not th.optim.Adam or not is_plain_adam(optimizer) or group["weight_decay"]:
        raise ValueError(
            f"policy_kwargs['optimizer_class'] is {kind.__name__} with {optimizer.defaults}, and a Population has "
            "plain Adam (no amsgrad, maximize or weight_decay) only. Leave optimizer_class out, or train single agents."
        )
    return AdamSettings.of(group)


class _Settings(NamedTuple):
    """The members' arguments as an update takes them; tensors have one row per member."""

    rates: list[th.Tensor]
    """Learning rates of values and of the secondary head, each of shape (members, 1)"""
    decay: th.Tensor
    """β, or, if it is decoupled, what it leaves of a weight, 1 − αηβ; shape (members, 1)"""
    gradient_bound: th.Tensor
    """Largest norm of the gradient, shape (members, 1)"""
    numbers: Tensors
    """The numbers among the algorithm's settings, each of shape (members,)"""
    choices: dict[str, Any]
    """Its other settings, which all members share"""


def _named(group: str, tensors: Tensors) -> Tensors:
    """Tensors of a group by names that :func:`nested` groups again: graphs take one flat dictionary."""
    return {f"{group}/{name}": x for name, x in tensors.items()}


class Learner:
    """
    The update of every algorithm for many members at once: ``vmap(grad(loss))`` of the algorithm's own loss, and Adam.

    Members share networks' shapes and everything that is no number; each has its own learning rate and settings.

    :param models: Fresh single agents, one per member, with the members' arguments; the first one's loss serves all.
    :param encode: What is done with tensors by name before they enter the functions.
    :param device: Where to.
    :param compiled: Whether to compile the graphs, and how.
    """

    def __init__(
        self,
        models: Sequence[Agent],
        encode: Callable[[Tensors], Tensors],
        device: th.device,
        compiled: CompileMode = False,
    ) -> None:
        self._models, self._encode, self._compiled = models, encode, compiled
        first = models[0]
        check_stackable(first.policy)
        self.adam = _adam_of(first.policy.optimizer)
        self.layout = Layout(first.policy, apart=bool(compiled))
        self._functions = MemberFunctions(first, self.layout)
        self.rows, constants = self.layout.stack([model.policy for model in models], device)
        self._constants = _named("constants", constants)
        self.has_target = first.has_target
        """Whether the members bootstrap from target networks."""
        self.target_rows = self.rows.clone() if self.has_target else None
        self.mean, self.square = th.zeros_like(self.rows), th.zeros_like(self.rows)
        # Running means of the features' squared norm, where the regulariser is relative to it.
        relative = first.h_regularization_scale != "absolute"
        self.feature_norm = self.rows.new_zeros(len(models), 1) if relative else None
        self.n_updates = 0
        self._graphs: dict[Any, Function] = {}
        self._frozen = np.zeros(len(models), bool)
        self.frozen_at = np.zeros(len(models), np.int64)
        """The number of updates at which each frozen member was frozen, shape (members,)"""
        self._kept: Tensors = {}
        self._decoupled = first.h_decoupled_weight_decay
        self._clips = any(model.max_grad_norm not in (None, np.inf) for model in models)
        self._gamma = self._vector([model.gamma for model in models])
        self._h_rate_ratios = np.array([model.h_learning_rate_ratio for model in models])
        self._h_regularizations = np.array([model.h_regularization for model in models])
        self._rates_change = any(callable(model.learning_rate) for model in models)
        self._numbers_change = any(callable(getattr(model, "huber_threshold", 0)) for model in models)
        self._settings: _Settings | None = None
        self._unchanging: Tensors = {}

    def __getstate__(self) -> dict[str, Any]:
        # Copies and pickles trace again: code has no copy.
        return {**self.__dict__, "_graphs": {}, "_unchanging": {}}

    def _vector(self, values: Sequence[Any] | np.ndarray) -> th.Tensor:
        """A tensor with one number, or row of numbers, per member."""
        return self.rows.new_tensor(np.asarray(values, np.float64))

    def values(self, observations: Observation) -> th.Tensor:
        """Compute every member's action values.

        :param observations: One per member, shape (members, …).
        :return: ``q(s,·)``, shape (members, actions).
        """
        tensors = {n: th.as_tensor(x, device=self.rows.device) for n, x in batches.by_name(observations).items()}
        inputs = {"rows": self.rows, **self._constants, **_named("inputs", self._encode(tensors))}
        if "values" not in self._graphs:
            self._graphs["values"] = trace(self._values, inputs, bool(self._compiled))
        return self._graphs["values"](inputs)

    def _values(self, inputs: Tensors) -> th.Tensor:
        own: dict[str, Any] = nested(inputs)
        return self._functions.values(own["rows"], own.get("constants", {}), own["inputs"])

    def update(self, batch: Tensors, progress_remaining: float) -> None:
        """One update of every member that is not frozen.

        :param batch: By name, shape (members, batch, …).
        :param progress_remaining: From 1 to 0, for schedules.
        """
        self.n_updates += 1
        settings = self._settings_at(progress_remaining)
        scale, eps = self.adam.scales(self.n_updates)
        inputs = {
            **self._unchanging,
            **_named("batch", self._encode(batch)),
            "scales": self.rows.new_tensor([-scale, eps, feature_norm_rate(self.n_updates)]),
        }
        key = batch["rewards"].shape
        if key not in self._graphs:
            choices = settings.choices
            own = {**self._encode(batch), "discounts": self._gamma}
            moves = self.has_target and self._functions.moves_target(settings.numbers, own, choices)
            self._graphs[key] = trace(lambda i: self._step(i, choices, moves), inputs, self._compiled)
        self._graphs[key](inputs)
        self._hold_frozen()

    def _settings_at(self, progress_remaining: float) -> _Settings:
        if self._settings is None or self._numbers_change:
            self._settings = self._every_setting_at(progress_remaining)
        elif self._rates_change:
            # Alone, since asking every member for all of its settings takes longer than the update.
            rates, decay = self._rates_at(progress_remaining)
            self._settings = self._settings._replace(rates=rates, decay=decay)
        if not self._unchanging or self._rates_change or self._numbers_change:
            self._unchanging = {
                # As schedules go on, the same views.
                **(self._unchanging or self._state_in_parts()),
                **self._constants,
                **_named("settings", self._settings.numbers),
                "rates/values": self._settings.rates[0],
                "rates/secondary": self._settings.rates[1],
                "decay": self._settings.decay,
                "gradient_bound": self._settings.gradient_bound,
                "batch/discounts": self._gamma,
            }
        return self._settings

    def _every_setting_at(self, progress_remaining: float) -> _Settings:
        for model in self._models:
            model._current_progress_remaining = progress_remaining
        own = [model.update_settings() for model in self._models]
        bounds = [np.inf if m.max_grad_norm is None else m.max_grad_norm for m in self._models]
        numbers = [name for name, x in own[0].items() if isinstance(x, (int, float)) and not isinstance(x, bool)]
        rates, decay = self._rates_at(progress_remaining)
        return _Settings(
            rates=rates,
            decay=decay,
            gradient_bound=self._vector(bounds)[:, None],
            numbers={name: self._vector([s[name] for s in own]) for name in numbers},
            choices={name: x for name, x in own[0].items() if name not in numbers},
        )

    def _rates_at(self, progress_remaining: float) -> tuple[list[th.Tensor], th.Tensor]:
        """``rates`` and ``decay`` of :class:`_Settings`."""
        rates = np.array([model.lr_schedule(progress_remaining) for model in self._models])
        secondary = self._h_rate_ratios * rates
        decay = 1 - secondary * self._h_regularizations if self._decoupled else self._h_regularizations
        return [self._vector(x)[:, None] for x in (rates, secondary)], self._vector(decay)[:, None]

    def _step(self, named: Tensors, choices: dict[str, Any], moves_target: bool) -> list[th.Tensor]:
        """One update as a function of tensors, of which :meth:`state` is changed in place."""
        inputs: dict[str, Any] = nested(named)
        rows, mean, square = (list(inputs[name].values()) for name in ("rows", "mean", "square"))
        scale, eps, feature_norm_rate = inputs["scales"].unbind()
        rates = [scale * x for x in inputs["rates"].values()]
        gradients, feature_norm = self._functions.gradient(
            rows,
            inputs.get("target_rows"),
            inputs.get("constants", {}),
            inputs.get("settings", {}),
            inputs["batch"],
            choices,
            moves_target,
        )
        if self._clips:
            gradients = self._clipped(gradients, inputs["gradient_bound"])
        decay = inputs["decay"]
        if feature_norm is not None and not self._decoupled:
            inputs["feature_norm"].lerp_(feature_norm[:, None], feature_norm_rate)
            decay = decay * inputs["feature_norm"]
        for part, x, gradient, m, v in zip(self.layout.parts, rows, gradients, mean, square, strict=True):
            if part.secondary and self._decoupled:
                x.mul_(decay)
            elif part.secondary:
                gradient.addcmul_(x, decay)
            x.addcmul_(adam_direction(gradient, m, v, self.adam, eps), rates[part.secondary])
        return []

    def _clipped(self, gradients: list[th.Tensor], bound: th.Tensor) -> list[th.Tensor]:
        """Clip the norms of values and secondary head apart, so that the loss of h does not scale the step of q."""
        scales = {}
        for secondary in {part.secondary for part in self.layout.parts}:
            own = [x for x, part in zip(gradients, self.layout.parts, strict=True) if part.secondary == secondary]
            norms = th.cat([th.linalg.vector_norm(x, dim=1, keepdim=True) for x in own], dim=1)
            norm = th.linalg.vector_norm(norms, dim=1, keepdim=True)
            scales[secondary] = clipping_factor(norm, bound)
        return [x * scales[part.secondary] for x, part in zip(gradients, self.layout.parts, strict=True)]

    def refresh_targets(self, weights: np.ndarray) -> None:
        """Polyak averaging: the target moves a part of the way to the online parameters.

        :param weights: 1 to copy, 0 to leave alone, shape (members,).
        """
        if self.target_rows is not None:
            self.target_rows.lerp_(self.rows, self._vector(weights)[:, None])
            self._hold_frozen()

    def state(self) -> Tensors:
        """Everything that learning changes, to be saved.

        :return: By name the tensors that learning changes, themselves and no copies.
        """
        optional = {"target_rows": self.target_rows, "feature_norm": self.feature_norm}
        there = {name: x for name, x in optional.items() if x is not None}
        return {"rows": self.rows, "mean": self.mean, "square": self.square, **there}

    def _state_in_parts(self) -> Tensors:
        """:meth:`state` as :meth:`_step` takes it: views of the parts, which compiled code knows not to overlap."""
        state = self.state()
        parts = {name: self.layout.cut(state.pop(name)) for name in ("rows", "mean", "square")}
        return {f"{name}/{i}": x for name, own in parts.items() for i, x in enumerate(own)} | state

    def is_finite(self) -> np.ndarray:
        """Check the members' parameters for NaN and infinities.

        :return: Whether all of a member's parameters are, shape (members,).
        """
        return self.rows.isfinite().all(dim=1).cpu().numpy()

    def freeze(self, members: np.ndarray) -> None:
        """Leave these members' networks and optimiser unchanged from now on.

        :param members: Booleans, shape (members,).
        """
        self.frozen_at[members & ~self._frozen] = self.n_updates
        self._frozen = self._frozen | members
        self._kept = {name: x[self._frozen] for name, x in self.state().items()}

    def updates_of(self, row: int) -> int:
        """How many updates a member has made.

        :param row: Its index here.
        :return: Of one that is frozen, those before that.
        """
        return int(self.frozen_at[row]) if self._frozen[row] else self.n_updates

    def _hold_frozen(self) -> None:
        state = self.state()
        for name, kept in self._kept.items():
            state[name][self._frozen] = kept
