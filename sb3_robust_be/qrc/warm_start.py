"""Loading: a file of the same algorithm continues it, a file of SB3's DQN warm-starts it, any other is refused."""

from __future__ import annotations

import inspect
import io
import json
import pathlib
import warnings
import zipfile
from collections import deque
from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

import torch as th
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.save_util import json_to_data, load_from_zip_file, open_path
from stable_baselines3.common.type_aliases import GymEnv, TensorDict
from stable_baselines3.dqn.dqn import DQN
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_robust_be.qrc.acting import ActingDQN
from sb3_robust_be.qrc.extractors import MinAtarCNN
from sb3_robust_be.qrc.policies import QRCPolicy
from sb3_robust_be.qrc.saving import saving_to
from sb3_robust_be.qrc.validation import check_numbers, plain_number

SelfLoadingDQN = TypeVar("SelfLoadingDQN", bound="LoadingDQN")

# Arguments that make DQN what it is and that this family does without.
DQN_ONLY: dict[str, Any] = {"target_update_interval": None, "max_grad_norm": None, "tau": 1.0}


# Names that `load` would take and that would change nothing.
NOT_CHANGEABLE: dict[str, str] = {
    "policy": "the policy's class comes from the file, and custom_objects={'policy_class': ...} replaces it",
    "_init_setup_model": "loading always builds the networks",
    "lr_schedule": "it is made from learning_rate: pass that",
    "exploration_schedule": "it is made from exploration_initial_eps, exploration_final_eps and exploration_fraction: "
    "pass those",
}


class LoadingDQN(ActingDQN):
    """Saving and loading, with files of SB3's DQN as a starting point."""

    algorithm_name: ClassVar[str]
    """The name in files and commands."""
    algorithm: str
    """``algorithm_name``, as an attribute so that it is saved."""

    @classmethod
    def load(
        cls: type[SelfLoadingDQN],
        path: str | pathlib.Path | io.BufferedIOBase,
        env: GymEnv | None = None,
        device: th.device | str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: Any,
    ) -> SelfLoadingDQN:
        """
        Load the model from a zip-file, of this algorithm or of SB3's DQN.

        From DQN's, the values (features and q head) and the number of steps are taken over, with all arguments but
        ``target_update_interval``, ``max_grad_norm`` and ``tau``; the secondary head starts at zero and the optimiser
        afresh. A warning says so.

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
            custom_objects["policy_class"] = cls._two_headed(replacement) or replacement
        data = cls._read(path, device, custom_objects)
        saved_by = data.get("algorithm")
        if saved_by is not None and saved_by != cls.algorithm_name:
            raise ValueError(
                f"{path} was saved by the algorithm {saved_by!r} and {cls.__name__} is {cls.algorithm_name!r}. Load it "
                f"with the class that saved it; to go on from its weights with {cls.__name__}, make a new model and "
                "call its set_parameters(path)."
            )
        if saved_by is None:
            custom_objects = {**cls._objects_from_dqn(path, data), **custom_objects}
        changes = cls._changes(path, data, kwargs)
        model = super().load(path, env, device, custom_objects, print_system_info, force_reset, **changes)
        if kwargs.get("tau", 1.0) != 1.0 and model.target_update_interval is None:
            warnings.warn(
                f"tau={model.tau} is ignored: there is no target network to average. Leave it out, or set "
                "target_update_interval as well.",
                stacklevel=2,
            )
        return model

    @classmethod
    def _read(cls, path: Any, device: th.device | str, custom_objects: dict[str, Any]) -> dict[str, Any]:
        """The attributes in a file, of which the class of the policy is certainly one."""
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

    @classmethod
    def _two_headed(cls, policy_class: Any) -> type[Any] | None:
        """The policy of this class that takes the place of SB3's; one that has two heads already is its own."""
        for name, dqns in DQN.policy_aliases.items():
            if policy_class is dqns:
                return cls.policy_aliases[name]
        return policy_class if isinstance(policy_class, type) and issubclass(policy_class, QRCPolicy) else None

    @classmethod
    def _changes(cls, path: Any, data: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """The attributes that take the values of the arguments given to :meth:`load`."""
        for name in given:
            if name in NOT_CHANGEABLE:
                raise TypeError(f"load() cannot change {name}: {NOT_CHANGEABLE[name]}.")
            if name not in inspect.signature(cls).parameters and name not in data:
                raise TypeError(
                    f"load() got the unknown argument {name!r}, neither an argument of {cls.__name__} nor an attribute "
                    f"in {path}. Look for a typing error."
                )
        check_numbers(given)
        changes = dict(given)
        if "policy_kwargs" in changes:
            changes["policy_kwargs"] = changes["policy_kwargs"] or {}
        if (window := changes.pop("stats_window_size", None)) is not None:
            # SB3 keeps it under another name, and in the length of what it has collected.
            changes["_stats_window_size"] = window = plain_number(window)
            for name in ("ep_info_buffer", "ep_success_buffer"):
                if data.get(name) is not None:
                    changes.setdefault(name, deque(data[name], maxlen=window))
        return changes

    @classmethod
    def _objects_from_dqn(cls, path: Any, data: dict[str, Any]) -> dict[str, Any]:
        """What must replace the saved objects of a DQN."""
        saved_policy = data.get("policy_class")
        if not (isinstance(saved_policy, type) and issubclass(saved_policy, DQNPolicy)):
            raise ValueError(
                f"{path} holds a model with the policy {getattr(saved_policy, '__name__', saved_policy)}, neither of "
                f"{cls.__name__} nor of SB3's DQN. Load it with the class that saved it."
            )
        policy_class = cls._two_headed(saved_policy)
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
        warnings.warn(
            f"{path} was saved by SB3's DQN: {cls.__name__} starts from its values and number of steps, with h at zero "
            f"and a fresh optimizer; {', '.join(DQN_ONLY)} are back at {cls.__name__}'s defaults.",
            stacklevel=3,
        )
        return objects

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
        """
        params: Any = load_path_or_dict
        if not isinstance(params, dict):
            _, params, _ = load_from_zip_file(params, device=device, load_data=False)
        names = params.get("policy", ())
        # DQN's always name its target network; without one, this is a part of our own parameters.
        if any(n.startswith("q_net_target.") for n in names) and not any(".h_net." in n for n in names):
            params = self._parameters_from_dqn(params)
        super().set_parameters(params, exact_match, device)
        # The optimiser's groups have been replaced by the saved ones.
        self._configure_optimizer()

    def _parameters_from_dqn(self, params: dict[str, Any]) -> dict[str, Any]:
        heads = {k: th.zeros_like(v) for k, v in self.policy.state_dict().items() if ".h_net." in k}
        optimizer = {"state": {}, "param_groups": self.policy.optimizer.state_dict()["param_groups"]}
        return {**params, "policy": {**params["policy"], **heads}, "policy.optimizer": optimizer}

    def _configure_optimizer(self) -> None:
        """Write the algorithm's settings into the optimiser's groups."""

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "batch_norm_stats", "batch_norm_stats_target"]


def _unreadable(path: Any, custom_objects: dict[str, Any]) -> list[str]:
    """The attributes in a file that need a module which is not there."""
    with zipfile.ZipFile(open_path(path, "r", suffix="zip")) as archive:
        saved = json.loads(archive.read("data"))
    missing = []
    for name, value in saved.items():
        try:
            json_to_data(json.dumps({name: value}), custom_objects)
        except ImportError:
            missing.append(name)
    return missing
