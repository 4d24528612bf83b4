"""Loads files that SB3's DQN saved, by converting their parameters to the two-headed network's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch as th
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.dqn.dqn import DQN
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_robust_be.messages import warn
from sb3_robust_be.qrc.extractors import MinAtarCNN
from sb3_robust_be.qrc.policies import QRCPolicy

# Arguments that make DQN what it is and that this family does without.
DQN_ONLY: dict[str, Any] = {"target_update_interval": None, "max_grad_norm": None, "tau": 1.0}


_OF_LAYER_NORM_EXTRACTOR = ("q_net.features_extractor.extractor.", "q_net.features_extractor.hidden.")


def two_headed(policy_class: Any, aliases: Mapping[str, type[BasePolicy]]) -> type[BasePolicy] | None:
    """Find the policy class with a secondary head that corresponds to one of SB3's.

    :param policy_class: A policy, of SB3 or not.
    :param aliases: An algorithm's own policies by name.
    :return: The one that takes the place of SB3's; one that has two heads already is its own; else ``None``.
    """
    for name, dqns in DQN.policy_aliases.items():
        if policy_class is dqns:
            return aliases[name]
    return policy_class if isinstance(policy_class, type) and issubclass(policy_class, QRCPolicy) else None


def objects_from_dqn(
    path: Any,
    data: Mapping[str, Any],
    algorithm: str,
    aliases: Mapping[str, type[BasePolicy]],
    given: Collection[str] = (),
) -> dict[str, Any]:
    """
    What must replace the saved objects of a DQN, said in a warning.

    :param path: Of the file, for what is said.
    :param data: Its attributes.
    :param algorithm: The name of the class that is loaded.
    :param aliases: Its policies by name.
    :param given: Arguments that the caller has chosen.
    :return: Objects by the name of the attribute.
    :raises ValueError: If it is another algorithm's file, or has a policy that cannot be replaced.
    """
    saved_policy = data.get("policy_class")
    if not (isinstance(saved_policy, type) and issubclass(saved_policy, DQNPolicy)):
        raise ValueError(
            f"{path} holds a model with the policy {getattr(saved_policy, '__name__', saved_policy)}, neither of "
            f"{algorithm} nor of SB3's DQN. Load it with the class that saved it."
        )
    policy_class = two_headed(saved_policy, aliases)
    if policy_class is None:
        raise ValueError(
            f"{path} holds a DQN with the policy {saved_policy.__name__}, which has no secondary head. Pass "
            "custom_objects={'policy_class': ...} with a subclass of sb3_robust_be.qrc.QRCPolicy of the same "
            "architecture."
        )
    objects = {**DQN_ONLY, "policy_class": policy_class}
    if data.get("n_steps", 1) > 1 and data.get("replay_buffer_class") is NStepReplayBuffer:
        # SB3's own choice, saved as if it were the user's, with its γ.
        saved_kwargs = data.get("replay_buffer_kwargs") or {}
        objects["replay_buffer_class"] = None
        objects["replay_buffer_kwargs"] = {k: v for k, v in saved_kwargs.items() if k not in ("n_steps", "gamma")}
    elif data.get("replay_buffer_class") in (ReplayBuffer, DictReplayBuffer):
        objects["replay_buffer_class"] = None
    features = (data.get("policy_kwargs") or {}).get("features_extractor_class")
    if features is MinAtarCNN and data["policy_kwargs"].get("net_arch") is None:
        # DQN's default on top of any CNN but NatureCNN; CnnPolicy's on top of this one is no layer.
        objects["policy_kwargs"] = {**data["policy_kwargs"], "net_arch": [64, 64]}
    warn(
        f"{path} was saved by SB3's DQN: {algorithm} starts from its values and number of steps, with h at zero "
        f"and a fresh optimizer{_reset(algorithm, given)}."
    )
    return objects


def _reset(algorithm: str, given: Collection[str]) -> str:
    reset = [name for name in DQN_ONLY if name not in given]
    if not reset:
        return ""
    return f"; {', '.join(reset)} {'is' if len(reset) == 1 else 'are'} back at {algorithm}'s defaults"


def is_dqns(parameters: Mapping[str, Any]) -> bool:
    """Whether parameters were saved by SB3's DQN.

    :param parameters: By the names of ``get_parameters``.
    :return: Whether they are a DQN's, which always name its target network.
    """
    # Without a secondary head and without a target, they are a part of our own parameters.
    names = parameters.get("policy", ())
    return any(name.startswith("q_net_target.") for name in names) and not any(".h_net." in name for name in names)


def parameters_from_dqn(parameters: Mapping[str, Any], policy: QRCPolicy) -> dict[str, Any]:
    """Convert a DQN's parameters to those of a two-headed policy.

    :param parameters: A DQN's.
    :param policy: That is to have them.
    :return: The same values, a secondary head of zeros and an optimiser that has made no step.
    """
    heads = {name: th.zeros_like(x) for name, x in policy.state_dict().items() if ".h_net." in name}
    optimizer = {"state": {}, "param_groups": policy.optimizer.state_dict()["param_groups"]}
    return {**parameters, "policy": {**parameters["policy"], **heads}, "policy.optimizer": optimizer}


def check_normalisation(parameters: Mapping[str, Any], policy: QRCPolicy) -> None:
    """Check that parameters come from a network with the same kind of layer normalisation as a policy's.

    :param parameters: By the names of ``get_parameters``, a DQN's or a two-headed policy's.
    :param policy: That is to have them.
    :raises ValueError: If the layers differ, so that the names of all that follow differ too.
    """
    given, own = (_normalisation(state) for state in (parameters.get("policy", {}), policy.state_dict()))
    if "policy" in parameters and given != own:
        raise ValueError(
            f"The parameters are those of a network {given} and do not fit into this model, which has one {own}: make "
            "the model with the policy_kwargs that the parameters were trained with, or train it from the start."
        )


def _normalisation(state: Mapping[str, Any]) -> str:
    """How a network's layers are normalised, in words, by the names and shapes of its parameters."""
    # Gains are the only weights with one dimension; those of batch normalisation come with statistics.
    weights = [name.removesuffix("weight") for name, x in state.items() if name.endswith(".weight") and x.ndim == 1]
    gains = [name for name in weights if name.startswith("q_net.") and f"{name}running_mean" not in state]
    if any(name.startswith(_OF_LAYER_NORM_EXTRACTOR) for name in gains):
        return "with LayerNormExtractor"
    return "with policy_kwargs=dict(layer_norm=True)" if gains else "without layer normalisation"
