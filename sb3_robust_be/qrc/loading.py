"""Decides for ``load`` which attributes come from the file and which from the caller's arguments."""

from __future__ import annotations

import json
import zipfile
from collections import deque
from typing import Any

import torch as th
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.save_util import json_to_data, load_from_zip_file, open_path

from sb3_robust_be.qrc.validation import check_numbers, constructor_arguments, plain_number

# Names that `load` would take and that would change nothing.
NOT_CHANGEABLE: dict[str, str] = {
    "policy": "the policy's class comes from the file, and custom_objects={'policy_class': ...} replaces it",
    "_init_setup_model": "loading always builds the networks",
    "lr_schedule": "it is made from learning_rate: pass that",
    "exploration_schedule": "it is made from exploration_initial_eps, exploration_final_eps and exploration_fraction: "
    "pass those",
}


def read_attributes(path: Any, device: th.device | str, custom_objects: dict[str, Any]) -> dict[str, Any]:
    """Read the attributes of a saved model.

    :param path: Of a file that SB3 or this package saved.
    :param device: As of ``load``.
    :param custom_objects: In place of saved ones.
    :return: The saved attributes by name, of which the class of the policy is certainly one.
    :raises ValueError: If an attribute without which nothing can be loaded cannot be read.
    """
    remedy = (
        "Pass custom_objects={'policy_class': DQNPolicy} (from stable_baselines3.dqn.policies; CnnPolicy or "
        "MultiInputPolicy if the model has one of those), or the subclass of QRCPolicy to use."
    )
    try:
        data = load_from_zip_file(path, device=device, custom_objects=custom_objects)[0] or {}
    except ImportError as error:
        # SB3 goes on without an object that it cannot read, but not without a module.
        missing = _unreadable(path, custom_objects)
        raise ValueError(
            f"{path} holds {', '.join(missing)}, which cannot be read here ({error}). Install what is missing, or "
            f"replace it by custom_objects. {remedy if 'policy_class' in missing else ''}".rstrip()
        ) from error
    if data and "policy_class" not in data:
        raise ValueError(f"{path} holds a policy_class that cannot be read here. {remedy}")
    return data


def _unreadable(path: Any, custom_objects: dict[str, Any]) -> list[str]:
    """The attributes in a file that cannot be read because a module is missing."""
    with zipfile.ZipFile(open_path(path, "r", suffix="zip")) as archive:
        saved = json.loads(archive.read("data"))
    missing = []
    for name, value in saved.items():
        try:
            json_to_data(json.dumps({name: value}), custom_objects)
        except ImportError:
            missing.append(name)
    return missing


def _check_layer_norm(path: Any, saved: dict[str, Any], given: dict[str, Any]) -> None:
    # SB3 refuses all policy_kwargs but the saved ones; why these cannot be, it does not say.
    saved_with, given_with = saved.get("layer_norm", False), given.get("layer_norm", False)
    if saved_with != given_with:
        raise ValueError(
            f"policy_kwargs say layer_norm={given_with}, and {path} was saved with layer_norm={saved_with}: weights "
            "fit only the network that they were trained in. Leave policy_kwargs out of load(), or train a new model."
        )


def changed_attributes(
    algorithm: type[BaseAlgorithm], path: Any, data: dict[str, Any], given: dict[str, Any]
) -> dict[str, Any]:
    """Turn what ``load`` was given into the attributes that it changes.

    :param algorithm: Which is loaded.
    :param path: Of the file, for the error.
    :param data: Its attributes.
    :param given: Arguments of the constructor, or other attributes, that ``load`` was given.
    :return: The attributes that take their values.
    :raises TypeError: For an argument that is unknown or cannot be changed.
    :raises ValueError: For ``policy_kwargs`` with layer normalisation if the file is without, and the reverse.
    """
    known = constructor_arguments(algorithm)
    for name in given:
        if name in NOT_CHANGEABLE:
            raise TypeError(f"load() cannot change {name}: {NOT_CHANGEABLE[name]}.")
        if name not in known and name not in data:
            raise TypeError(
                f"load() got the unknown argument {name!r}, neither an argument of {algorithm.__name__} nor an "
                f"attribute in {path}. Look for a typing error."
            )
    check_numbers(given)
    changes = dict(given)
    if "policy_kwargs" in changes:
        changes["policy_kwargs"] = changes["policy_kwargs"] or {}
        _check_layer_norm(path, data.get("policy_kwargs") or {}, changes["policy_kwargs"])
    if (window := changes.pop("stats_window_size", None)) is not None:
        # SB3 keeps it under another name, and in the length of what it has collected.
        changes["_stats_window_size"] = window = plain_number(window)
        for name in ("ep_info_buffer", "ep_success_buffer"):
            if data.get(name) is not None:
                changes.setdefault(name, deque(data[name], maxlen=window))
    return changes
