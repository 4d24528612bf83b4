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
from sb3_robust_be.qrc.layer_norm import KNOWN_EXTRACTORS, LayerNormExtractor
from sb3_robust_be.qrc.policies import QRCPolicy
from sb3_robust_be.qrc.validation import constructor_arguments
from sb3_robust_be.registry import DQN_ONLY

# Where `layer_norm=True` puts layer normalisations: behind hidden layers, and into extractors whose layers are known.
_HIDDEN = "q_net.q_net."
_IN_KNOWN_EXTRACTORS = tuple(f"q_net.features_extractor.{part}." for part in ("cnn", "linear", "extractors"))


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
    algorithm: type[Any],
    given: Collection[str] = (),
) -> dict[str, Any]:
    """
    What must replace the saved objects of a DQN, said in a warning.

    :param path: Of the file, for what is said.
    :param data: Its attributes.
    :param algorithm: The class that is loaded, one of ``TwoHeadDQN``.
    :param given: Arguments that the caller has chosen.
    :return: Objects by the name of the attribute.
    :raises ValueError: If it is another algorithm's file, or has a policy that cannot be replaced.
    """
    name, saved_policy = algorithm.__name__, data.get("policy_class")
    if not (isinstance(saved_policy, type) and issubclass(saved_policy, DQNPolicy)):
        raise ValueError(
            f"{path} holds a model with the policy {getattr(saved_policy, '__name__', saved_policy)}, neither of "
            f"{name} nor of SB3's DQN. Load it with the class that saved it."
        )
    policy_class = two_headed(saved_policy, algorithm.policy_aliases)
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
        f"{path} was saved by SB3's DQN: {name} starts from its values and number of steps, with h at zero and a fresh "
        f"optimizer{_reset(name, given)}.{_kept(algorithm, policy_class, data, given)}"
    )
    return objects


def _reset(algorithm: str, given: Collection[str]) -> str:
    reset = [name for name in DQN_ONLY if name not in given]
    if not reset:
        return ""
    return f"; {', '.join(reset)} {'is' if len(reset) == 1 else 'are'} back at {algorithm}'s defaults"


def _kept(algorithm: type[Any], policy_class: type[BasePolicy], data: Mapping[str, Any], given: Collection[str]) -> str:
    """A sentence on what stays as DQN had it and is another in a new model, each with the remedy; or nothing."""
    name, kept = algorithm.__name__, []
    saved = data.get("policy_kwargs") or {}
    extractor = saved.get("features_extractor_class") or object
    normalised = saved.get("layer_norm") or issubclass(extractor, LayerNormExtractor)
    if not normalised and (algorithm.complete_policy_kwargs(policy_class, saved) or {}).get("layer_norm"):
        kept.append(
            f"the network stays without layer normalisation, which {name} has by default and trained weights cannot be "
            f"given (for it, train a new {name}, or begin with a DQN that has LayerNormExtractor)"
        )
    own = constructor_arguments(algorithm)["learning_rate"].default
    rate = data.get("learning_rate")
    # SB3's schedules, which come out of a file as new objects, show all that they consist of.
    if "learning_rate" not in given and rate not in (None, own) and repr(rate) != repr(own):
        number = f", {rate}" if isinstance(rate, (int, float)) else ""
        kept.append(f"the learning rate stays DQN's{number} (for {name}'s, load(..., learning_rate={own!r}))")
    if not kept:
        return ""
    sentence = ", and ".join(kept)
    return f" {sentence[0].upper()}{sentence[1:]}."


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
    if "policy" not in parameters:
        return
    extractor = policy.q_net.features_extractor
    if isinstance(extractor, LayerNormExtractor):
        extractor = extractor.extractor
    # Into an extractor of a user's own nothing is put, whatever it calls its parts.
    places = (_HIDDEN, *_IN_KNOWN_EXTRACTORS) if type(extractor) in KNOWN_EXTRACTORS else (_HIDDEN,)
    given, own = (_normalisation(state, places) for state in (parameters["policy"], policy.state_dict()))
    if given != own:
        raise ValueError(
            f"The parameters are those of a network {given} and do not fit into this model, which has one {own}: make "
            "the model with the policy_kwargs that the parameters were trained with, or train it from the start."
        )


def _normalisation(state: Mapping[str, Any], places: tuple[str, ...]) -> str:
    """How a network's layers are normalised, in words, by the names and shapes of its parameters."""
    norms = [name for name in _norms(state) if name.startswith("q_net.")]
    inserted = any(name.startswith(places) for name in norms)
    in_extractor = any(not name.startswith(places) for name in norms)
    extractors = "layer normalisation in its features extractor (such as LayerNormExtractor)"
    if inserted:
        return f"with policy_kwargs=dict(layer_norm=True){f' and {extractors}' if in_extractor else ''}"
    return f"with {extractors}" if in_extractor else "without layer normalisation"


def _norms(state: Mapping[str, Any]) -> list[str]:
    """The names of layer and group normalisations, each with the dot that its parameters' names go on with."""
    vectors = {name for name, x in state.items() if x.ndim == 1}
    found = [name.removesuffix("weight") for name in vectors if name.endswith(".weight")]
    # A gain comes with an offset, as PReLU's slope does not, and without statistics, as batch normalisation's does not.
    return [name for name in found if f"{name}bias" in vectors and f"{name}running_mean" not in state]
