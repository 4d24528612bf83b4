"""The policies that build the two-headed network and its optimiser."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    CombinedExtractor,
    NatureCNN,
)
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

from sb3_robust_be.qrc.extractors import MinAtarCNN, extractor_for
from sb3_robust_be.qrc.forward import is_plain, plain_values
from sb3_robust_be.qrc.layer_norm import insert_into_extractor
from sb3_robust_be.qrc.maskable import greedy_actions
from sb3_robust_be.qrc.networks import HEAD_INITS, HeadInit, QRCNetwork, concatenate
from sb3_robust_be.qrc.observations import as_array, as_torch_takes
from sb3_robust_be.qrc.validation import check_choice, check_flag
from sb3_robust_be.system import replacing
from sb3_robust_be.updates import legal_values

# Indices of the optimiser's parameter groups.
VALUE_GROUP, H_GROUP = 0, 1


class TransitionValues(NamedTuple):
    """Values of one batch of transitions, of shape (batch, 1) and through which gradients flow, but for the last."""

    q: th.Tensor
    """``q(s,a)``"""
    h: th.Tensor
    """``h(s,a)``, on detached features"""
    next_value: th.Tensor
    """``max q(s',·)``; one index gets the gradient of a tie"""
    features: th.Tensor
    """``φ(s)``, what h sees: detached, shape (batch, width)"""


class StateValues(NamedTuple):
    """Values of all actions for a batch of transitions, through which gradients flow."""

    q: th.Tensor
    """``q(s,·)``, shape (batch, actions)"""
    h: th.Tensor
    """``h(s,·)``, on detached features, shape (batch, actions)"""
    next_q: th.Tensor
    """``q(s',·)`` of the network that bootstraps, shape (batch, actions)"""
    features: th.Tensor
    """``φ(s)``, what h sees: detached, shape (batch, width)"""


def _batch_shape(observation: Any, space: spaces.Space) -> tuple[int, ...] | None:
    """``(n,)`` for an array that is a batch of a space, ``()`` for an element; ``None`` for anything else."""
    if not isinstance(observation, np.ndarray):
        return None
    shape, inner = observation.shape, space.shape
    if shape[1:] == inner and shape:
        return shape[:1]
    return () if shape == inner else None


class QRCPolicy(DQNPolicy):
    """Policy of the QRC family: DQN's, with a secondary head and without a target network.

    ``q_net_target`` is ``q_net`` itself until :meth:`make_target` is called. The optimiser has two parameter groups,
    values first, then the secondary head; Adam and AdamW are fused unless ``optimizer_kwargs`` say otherwise.

    :param observation_space: Observation space
    :param action_space: Action space
    :param lr_schedule: Learning rate schedule (could be constant)
    :param net_arch: The specification of the hidden layers, ``[64, 64]`` by default.
    :param activation_fn: Activation function
    :param features_extractor_class: Features extractor to use.
    :param features_extractor_kwargs: Keyword arguments to pass to the features extractor.
    :param normalize_images: Whether to normalize images or not, dividing by 255.0 (True by default)
    :param optimizer_class: The optimizer to use, ``th.optim.Adam`` by default
    :param optimizer_kwargs: Additional keyword arguments, excluding the learning rate, to pass to the optimizer.
        The weight decay of the secondary head is the algorithm's ``h_regularization``, whatever is given here.
    :param head_init: Where the two heads start: ``"zero_h"``: h at zero, q as torch draws it (DQN's); ``"torch"``: both
        as torch draws them; ``"zeros"``: both at zero. The paper does not say.
    :param layer_norm: Whether every hidden layer is normalised, linear layer or convolution → layer normalisation →
        activation, that of a convolution over channels, height and width with one gain per channel; the heads are not,
        and neither is a features extractor of your own (:func:`~sb3_robust_be.qrc.layer_norm.insert_layer_norm`).
    :raises ValueError: For another ``head_init``.
    :raises TypeError: If ``layer_norm`` is neither ``True`` nor ``False``.
    """

    q_net: QRCNetwork

    def __init__(self, *args: Any, head_init: HeadInit = "zero_h", layer_norm: bool = False, **kwargs: Any) -> None:
        check_choice("head_init", head_init, HEAD_INITS)
        check_flag("layer_norm", layer_norm)
        # Before DQN's, which builds the network.
        self.head_init: HeadInit = head_init
        self.layer_norm = layer_norm
        super().__init__(*args, **kwargs)

    def save(self, path: str) -> None:
        """
        Save model to a given location. A file that is there is kept until the new one is complete.

        :param path: Where to, as it is: without a suffix it gets none.
        """
        with replacing(pathlib.Path(path)) as stream:
            super().save(stream)  # type: ignore[arg-type]  # torch writes into streams as well

    def _get_constructor_parameters(self) -> dict[str, Any]:
        own = {"head_init": self.head_init, "layer_norm": self.layer_norm}
        return {**super()._get_constructor_parameters(), **own}

    def _build(self, lr_schedule: Schedule) -> None:
        """
        Create the network and the optimizer.

        :param lr_schedule: ``lr_schedule(1)`` is the initial learning rate
        """
        self.q_net = self.make_q_net()
        self._mode_matters = self.q_net.mode_matters()
        secondary = set(self.q_net.h_net.parameters())
        groups = [
            {"params": [p for p in self.q_net.parameters() if p not in secondary]},
            {"params": list(self.q_net.h_net.parameters())},
        ]
        kwargs = dict(self.optimizer_kwargs)
        chosen = kwargs.keys() & {"fused", "foreach", "capturable", "differentiable"}
        if self.optimizer_class in (th.optim.Adam, th.optim.AdamW) and not chosen:
            kwargs["fused"] = True
        self.optimizer = self.optimizer_class(groups, lr=lr_schedule(1), **kwargs)  # type: ignore[call-arg]

    def make_q_net(self) -> QRCNetwork:
        """Create the two-headed network.

        :return: A network of this policy's architecture, with its own features extractor.
        """
        net_args = self._update_features_extractor(self.net_args, features_extractor=None)
        return QRCNetwork(**net_args, head_init=self.head_init, layer_norm=self.layer_norm).to(self.device)

    def make_features_extractor(self) -> BaseFeaturesExtractor:
        """Create a features extractor.

        :return: One of ``features_extractor_class``, with its hidden layers normalised if ``layer_norm`` asks for it.
        """
        extractor = super().make_features_extractor()
        if self.layer_norm:
            insert_into_extractor(extractor)
        return extractor

    @property
    def q_net_target(self) -> QRCNetwork:  # type: ignore[override]
        """The network that bootstraps: ``q_net`` itself, or the copy made by :meth:`make_target`."""
        return cast(QRCNetwork, self._modules.get("q_net_target", self.q_net))

    @property
    def has_target(self) -> bool:
        """Whether bootstrapping uses a copy of the network."""
        return "q_net_target" in self._modules

    def make_target(self) -> None:
        """Bootstrap from a copy of the network from now on (the paper's ablation, section 8.2)."""
        # Not by assignment: the name is a read-only property above, for the type checker's sake as well.
        self._modules["q_net_target"] = copy.deepcopy(self.q_net)
        self.q_net_target.set_training_mode(False)

    def evaluate_transitions(
        self,
        observations: PyTorchObs,
        actions: th.Tensor,
        next_observations: PyTorchObs,
        next_action_masks: th.Tensor | None = None,
    ) -> TransitionValues:
        """Values of a batch of transitions.

        :param observations: s, batch first.
        :param actions: a, shape (batch, 1).
        :param next_observations: s', batch first.
        :param next_action_masks: Which actions are legal in s', over which the maximum is taken, shape (batch,
            actions); ``None``: all.
        :return: q(s,a), h(s,a), max q(s',·) and the features of s.
        """
        actions = self.action_indices(actions)
        q, h, next_q, features = self.evaluate_states(observations, next_observations, actions.shape[0])
        next_value = legal_values(next_q, next_action_masks).max(dim=1, keepdim=True).values
        return TransitionValues(q.gather(1, actions), h.gather(1, actions), next_value, features)

    def action_indices(self, actions: th.Tensor) -> th.Tensor:
        """Convert actions to column indices of the heads' outputs.

        :param actions: Actions of the space, which may start at any number.
        :return: The columns of q and h that are theirs.
        """
        actions = actions.long()
        start = int(self.action_space.start)  # type: ignore[attr-defined]
        return actions - start if start else actions

    def evaluate_states(self, observations: PyTorchObs, next_observations: PyTorchObs, batch_size: int) -> StateValues:
        """Values of all actions for a batch of transitions.

        Without a target network one pass serves s and s': two would update batch-norm statistics twice, and cost more.

        :param observations: s, batch first.
        :param next_observations: s', batch first.
        :param batch_size: Of either.
        :return: q(s,·), h(s,·), q(s',·) and the features of s.
        """
        network = self.q_net
        q_head = network.q_net[-1]
        if self.has_target:
            features = network.hidden_features(observations)
            q, next_q = q_head(features), self.q_net_target(next_observations)
        else:
            features = network.hidden_features(concatenate(observations, next_observations))
            values = q_head(features)
            # Slices would each have a gradient as large as both.
            q, next_q = values.split(batch_size)
        # The secondary head has no part in shaping the features.
        seen = features.detach()[:batch_size]
        return StateValues(q, network.h_net(seen), next_q, seen)

    def batch_shape(self, observation: np.ndarray | dict[str, np.ndarray]) -> tuple[int, ...] | None:
        """Tell the shape of the actions for an observation, as far as that needs no conversion.

        :param observation: the input observation
        :return: ``(n,)`` for a batch, ``()`` for a single observation; ``None`` if it is no array (or dictionary of
            arrays) of the space's shape, as those in training always are.
        """
        space = self.observation_space
        if not isinstance(space, spaces.Dict):
            return _batch_shape(observation, space)
        if not isinstance(observation, dict) or observation.keys() != space.keys():
            return None
        shapes = {_batch_shape(part, space[key]) for key, part in observation.items()}
        return shapes.pop() if len(shapes) == 1 else None

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
        action_masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """
        Greedy actions, as ``BasePolicy.predict``, which costs several times as much as a small network.

        :param observation: the input observation
        :param state: The last hidden states (can be None, used in recurrent policies)
        :param episode_start: The last masks (can be None, used in recurrent policies)
        :param deterministic: Whether or not to return deterministic actions.
        :param action_masks: Which actions are legal, shape (batch, actions); ``None``: all.
        :return: the model's action and the next hidden state (used in recurrent policies)
        """
        if action_masks is not None:
            return greedy_actions(self, observation, action_masks), state
        given = self._plain_input(observation)
        if given is None:
            return super().predict(observation, state, episode_start, deterministic)
        self.set_training_mode(False)
        inputs, vectorized = given
        network = self.q_net
        # Not inference_mode: what a user's layer keeps from its first call could not be used in a graph later.
        with th.no_grad():
            if getattr(self._predict, "__func__", None) is DQNPolicy._predict and is_plain(network):
                # The first of equal values, as torch's, whose own costs twice as much. numpy has no bfloat16, which
                # values have within torch.autocast.
                actions = plain_values(network, inputs).float().cpu().numpy().argmax(axis=1)
                if start := int(self.action_space.start):  # type: ignore[attr-defined]
                    actions += start
            else:
                actions = self._predict(inputs, deterministic=deterministic).cpu().numpy()
        return (actions if vectorized else actions.squeeze(0)), state

    def _plain_input(self, observation: np.ndarray | dict[str, np.ndarray]) -> tuple[th.Tensor, bool] | None:
        """As :meth:`obs_to_tensor` for numbers in an array of their space's shape, but in the array's own memory.

        :return: ``None`` for anything else.
        """
        space = self.observation_space
        shape = _batch_shape(observation, space) if isinstance(space, spaces.Box) else None
        if shape is None:
            return None
        array = as_torch_takes(observation if shape else observation[None])  # type: ignore[arg-type, index]
        inputs, device = th.from_numpy(array), self.q_net.h_net.weight.device
        return (inputs if device.type == "cpu" else inputs.to(device)), bool(shape)

    def obs_to_tensor(self, observation: np.ndarray | dict[str, np.ndarray]) -> tuple[PyTorchObs, bool]:
        """
        Convert an input observation to a PyTorch tensor that can be fed to a model.

        :param observation: the input observation
        :return: The observation as PyTorch tensor
            and whether the observation is vectorized or not
        """
        return super().obs_to_tensor(self._as_arrays(observation))

    def is_vectorized_observation(self, observation: np.ndarray | dict[str, np.ndarray]) -> bool:
        """Check whether an observation is a batch, as ``BasePolicy.is_vectorized_observation``.

        :param observation: the input observation to check
        :return: whether the given observation is vectorized or not
        """
        return super().is_vectorized_observation(self._as_arrays(observation))

    def _as_arrays(self, observation: np.ndarray | dict[str, np.ndarray]) -> np.ndarray | dict[str, np.ndarray]:
        space = self.observation_space
        if isinstance(observation, dict) and isinstance(space, spaces.Dict):
            return {key: as_array(part, space[key]) for key, part in observation.items()}
        if isinstance(observation, dict):
            return observation  # left to SB3's error
        return as_array(observation, space)

    def set_training_mode(self, mode: bool) -> None:
        """
        Put the policy in either training or evaluation mode.

        The modules are visited only if one of them may care: this is called twice per environment step.

        :param mode: if true, set to training mode, else set to evaluation mode
        """
        if self._mode_matters:
            self.q_net.set_training_mode(mode)
        if self.training is not mode:
            # Past torch's, which looks whether it is a parameter or a module.
            object.__setattr__(self, "training", mode)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As torch's; a target network that only one side has is copied from ``q_net``, or left out.

        :param state_dict: Parameters by name.
        :param strict: Whether the names must match otherwise.
        :param assign: As torch's.
        :return: Missing and unexpected names.
        """
        values = {k: v for k, v in state_dict.items() if self.has_target or not k.startswith("q_net_target.")}
        if self.has_target and not any(k.startswith("q_net_target.") for k in values):
            values |= {k.replace("q_net.", "q_net_target.", 1): v for k, v in values.items()}
        return super().load_state_dict(values, strict=strict, assign=assign)


MlpPolicy = QRCPolicy


class CnnPolicy(QRCPolicy):
    """
    :class:`QRCPolicy` for images: ``NatureCNN`` from 36×36 on, :class:`MinAtarCNN` for smaller ones, of which channel
    last, bool and small integers are all fine.

    Parameters as of :class:`QRCPolicy`, but for:

    :param net_arch: The specification of the hidden layers after the features; none by default for these two networks.
    :param features_extractor_class: Features extractor to use; ``None`` chooses by the size of the image.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        net_arch: list[int] | None = None,
        activation_fn: type[nn.Module] = nn.ReLU,
        features_extractor_class: type[BaseFeaturesExtractor] | None = None,
        features_extractor_kwargs: dict[str, Any] | None = None,
        normalize_images: bool = True,
        optimizer_class: type[th.optim.Optimizer] = th.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
        head_init: HeadInit = "zero_h",
        layer_norm: bool = False,
    ) -> None:
        if features_extractor_class is None:
            features_extractor_class = extractor_for(observation_space)
        if net_arch is None and features_extractor_class in (NatureCNN, MinAtarCNN):
            net_arch = []
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            net_arch,
            activation_fn,
            features_extractor_class,
            features_extractor_kwargs,
            normalize_images,
            optimizer_class,
            optimizer_kwargs,
            head_init=head_init,
            layer_norm=layer_norm,
        )


class MultiInputPolicy(QRCPolicy):
    """:class:`QRCPolicy` for dictionary observations, with the same parameters."""

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        net_arch: list[int] | None = None,
        activation_fn: type[nn.Module] = nn.ReLU,
        features_extractor_class: type[BaseFeaturesExtractor] = CombinedExtractor,
        features_extractor_kwargs: dict[str, Any] | None = None,
        normalize_images: bool = True,
        optimizer_class: type[th.optim.Optimizer] = th.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
        head_init: HeadInit = "zero_h",
        layer_norm: bool = False,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            net_arch,
            activation_fn,
            features_extractor_class,
            features_extractor_kwargs,
            normalize_images,
            optimizer_class,
            optimizer_kwargs,
            head_init=head_init,
            layer_norm=layer_norm,
        )
