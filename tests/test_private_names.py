"""Every private attribute of another library that the package uses, by name: what may go with a new version of it."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch as th
import torch._inductor.codecache
import torch.utils._pytree
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecTransposeImage

import sb3_robust_be

PACKAGE = Path(sb3_robust_be.__file__).parent


@functools.cache
def owners() -> dict[str, Any]:
    """What the attributes are looked for on."""
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=10, learning_starts=2, train_freq=1, batch_size=1).learn(5)
    return {
        "SB3's DQN": model,
        "SB3's DQNPolicy": model.policy,
        "SB3's QNetwork": model.q_net,
        "SB3's ReplayBuffer": model.replay_buffer,
        "SB3's VecEnv": model.env,
        "SB3's VecTransposeImage": VecTransposeImage,
        "SB3's BaseCallback": BaseCallback,
        "an environment of gymnasium": gym.make("CartPole-v1"),
        "a space of gymnasium": gym.spaces.MultiDiscrete([2]),
        "a space of gymnasium with a start": gym.spaces.Discrete(2, start=1),
        "a module of torch": th.nn.Linear(1, 1),
        "torch": th,
        "torch.utils": torch.utils,
        "a tensor of torch": th.zeros(1),
        "torch's operations": th.ops.aten,
        "torch's Adam": model.policy.optimizer,
        "torch's optimisers": importlib.import_module("torch.optim.optimizer"),
        "what torch.compile returns": th.compile(th.nn.Linear(1, 1)),
    } | owners_of_extras()


def owners_of_extras() -> dict[str, Any]:
    if importlib.util.find_spec("rl_zoo3") is None:
        return {}
    return {"rl_zoo3's ExperimentManager": importlib.import_module("rl_zoo3.exp_manager").ExperimentManager}


PRIVATE = {
    "SB3's DQN": {
        *("_convert_train_freq", "_create_aliases", "_excluded_save_params", "_get_torch_save_params"),
        *("_on_step", "_setup_learn"),
        *("_setup_model", "_store_transition", "_update_learning_rate", "_wrap_env", "_sample_action"),
        *("_current_progress_remaining", "_custom_logger", "_last_obs", "_logger", "_n_calls", "_n_updates"),
        *("_stats_window_size", "_total_timesteps", "_vec_normalize_env"),
    },
    "SB3's DQNPolicy": {
        *("_build", "_get_constructor_parameters", "_modules", "_predict", "_update_features_extractor"),
    },
    "SB3's QNetwork": {"_get_constructor_parameters", "_modules", "_predict", "_update_features_extractor"},
    "SB3's ReplayBuffer": {"_get_samples"},
    "SB3's BaseCallback": {"_on_step"},
    "a module of torch": {"_forward_hooks", "_forward_pre_hooks", "_parameters"},
    "torch": {"_foreach_add_", "_fused_adam_", "_fused_adamw_", "_inductor"},
    "torch.utils": {"_pytree"},
    "a tensor of torch": {"_backward_hooks", "_post_accumulate_grad_hooks", "_version"},
    "torch's operations": {"_to_copy", "_unsafe_view"},
    "torch's optimisers": {"_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"},
    "torch's Adam": {"_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"},
    "what torch.compile returns": {"_orig_mod"},
    "rl_zoo3's ExperimentManager": {"_preprocess_schedules"},
}
CALLED = (
    (torch._inductor, "standalone_compile"),
    (torch._inductor.codecache.CppCodeCache, "load"),
    (torch.nn.modules.module, "_has_any_global_hook"),
    *((torch.utils._pytree, name) for name in ("tree_flatten", "tree_map", "tree_unflatten")),
)
LISTED = set().union(*PRIVATE.values(), {name for _, name in CALLED if name.startswith("_")})


@pytest.mark.parametrize(
    ("owner", "name"), [(owner, name) for owner, names in PRIVATE.items() for name in sorted(names)]
)
def test_the_attribute_is_still_there(owner, name):
    if owner.startswith("rl_zoo3"):
        pytest.importorskip("rl_zoo3", reason="it comes with the zoo extra")
    assert hasattr(owners()[owner], name), f"{owner} has no {name} any more: grep the package for it"


@pytest.mark.parametrize(("module", "name"), CALLED, ids=lambda x: getattr(x, "__name__", x))
def test_what_is_called_of_private_modules_is_still_there(module, name):
    assert callable(getattr(module, name, None)), f"{module.__name__} has no {name} any more"


# New uses, as far as a text shows them.

# Python's own, which its documentation describes.
PYTHONS = {"_asdict", "_exit", "_fields", "_make", "_replace"}


def is_private(name: str) -> bool:
    return re.fullmatch(r"_[a-z]\w*", name) is not None and name not in PYTHONS


def is_own(node: ast.expr) -> bool:
    """Whether this is ``self``, ``cls`` or ``super()``."""
    name = node.func if isinstance(node, ast.Call) else node
    return isinstance(name, ast.Name) and name.id in ("self", "cls", "super")


def names_of_own_object(tree: ast.AST) -> Iterator[str]:
    """What a class uses of itself, the methods included that it defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_own(node.value):
            yield node.attr
        elif isinstance(node, ast.FunctionDef):
            yield node.name


def names_of_others(tree: ast.AST, theirs: set[str]) -> Iterator[str]:
    """What a text uses of anything else: attributes, imports, and strings as ``getattr`` and SB3's lists have them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not is_own(node.value):
            yield node.attr
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr", "setattr"):
            yield from (x.value for x in node.args if isinstance(x, ast.Constant) and isinstance(x.value, str))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in theirs:
            yield node.value
        elif isinstance(node, ast.Import):
            yield from (part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (part for alias in node.names for part in f"{node.module}.{alias.name}".split("."))


def definitions(tree: ast.AST) -> Iterator[str]:
    """Attributes that are assigned, functions, classes, variables and modules."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Store):
            yield node.attr if isinstance(node, ast.Attribute) else node.id
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name


def is_theirs(cls: type | None) -> bool:
    """Whether a class inherits from another library; one within a function cannot be asked, and may."""
    bases = (base.__module__.partition(".")[0] for base in cls.__mro__) if cls is not None else ()
    return cls is None or not set(bases) <= {"sb3_robust_be", "builtins", "typing", "abc"}


@functools.cache
def uses() -> frozenset[tuple[Path, str]]:
    """Private names of other libraries, by the file that uses them."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    theirs = {name for owner in owners().values() for name in dir(owner)}
    ours = {name for tree in trees.values() for name in definitions(tree)} - theirs
    found = set()
    for path, tree in trees.items():
        found |= {(path, name) for name in names_of_others(tree, theirs) if name not in ours}
        dotted = ".".join(("sb3_robust_be", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and is_theirs(getattr(importlib.import_module(dotted), node.name, None)):
                found |= {(path, name) for name in names_of_own_object(node) if name in theirs}
    return frozenset((path, name) for path, name in found if is_private(name))


def test_no_other_is_used():
    pytest.importorskip("rl_zoo3", reason="the package's commands cannot be imported without the zoo extra")
    new = {f"{name} in {path.relative_to(PACKAGE)}" for path, name in uses() if name not in LISTED}
    assert not new, "give each its place in PRIVATE, or do without"


def test_none_is_listed_in_vain():
    pytest.importorskip("rl_zoo3", reason="the package's commands cannot be imported without the zoo extra")
    assert not LISTED - {name for _, name in uses()}


def test_the_reader_of_uses_sees_all_kinds():
    """The checks above are worth what these functions see."""
    text = """
from torch._dynamo import OptimizedModule
import stable_baselines3.common._new
class Ours(DQN):
    def _overridden(self):
        self._attribute = super()._method()
        model._of_a_model, getattr(model, "_by_string"), ["_in_a_list", "_ours"]
"""
    tree = ast.parse(text)
    assert set(names_of_own_object(tree)) == {"_overridden", "_attribute", "_method"}
    others = {name for name in names_of_others(tree, {"_in_a_list"}) if is_private(name)}
    assert others == {"_dynamo", "_new", "_of_a_model", "_by_string", "_in_a_list"}
    assert {"_overridden", "_attribute", "Ours"} == set(definitions(tree))
    assert is_theirs(sb3_robust_be.QRC)
    assert not is_theirs(sb3_robust_be.Population)
