"""Imports run downwards, and the light parts of the package stay light."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sb3_robust_be

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "sb3_robust_be"

# From the ground up. A part imports parts of lower levels only; within a part everything goes.
LEVELS = (
    {"codec", "updates", "evaluation", "images", "messages", "registry", "system"},
    {"envs", "runner"},
    {"linear", "qrc", "report"},
    {"sbeed"},
    {"population", "hub"},
    {"pretrained"},
    {"zoo", "benchmark", "experiments"},
    {"cli", "examples"},
    {"__main__"},
)
LEVEL = {part: level for level, parts in enumerate(LEVELS) for part in parts}
HEAVY = ("torch", "stable_baselines3", "sb3_contrib", "rl_zoo3")
LIGHT = ("linear", "evaluation", "report", "runner", "updates", "envs", "system", "images", "messages", "registry")

MODULES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The first name below the package: a folder or a module."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_names(path: Path) -> set[str]:
    """Every module and ``module.name`` that a file imports, anywhere in it, with relative imports made absolute."""
    here = ["sb3_robust_be", *path.relative_to(PACKAGE).with_suffix("").parts][:-1]
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            module = ".".join([*base, node.module] if node.module else base)
            names.update(f"{module}.{alias.name}" for alias in node.names)
    return names


def imported_parts(path: Path) -> set[str]:
    """The parts of this package that a file imports; a class that the package loads lazily stands for its home."""
    names = {name.split(".")[1] for name in imported_names(path) if name.startswith("sb3_robust_be.")}
    homes = {name: module.split(".")[1] for name, module in sb3_robust_be._HOME.items()}
    return {homes.get(name, name) for name in names} - {part_of(path), "__version__"}


def existing(parts: tuple[str, ...]) -> list[str]:
    return [part for part in parts if (PACKAGE / part).is_dir() or (PACKAGE / f"{part}.py").is_file()]


def test_every_part_has_a_level():
    parts = {part_of(path) for path in MODULES} - {"__init__"}
    assert parts <= set(LEVEL), "give the new parts a place in LEVELS"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_downwards(path):
    if path == PACKAGE / "__init__.py":
        # What users import lazily may come from anywhere; at import time the environments are registered.
        top = {
            f"{node.module}.{alias.name}"
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sb3_robust_be")
            for alias in node.names
        }
        assert top <= {"sb3_robust_be.registry", "sb3_robust_be.envs.register_envs"}
        return
    for part in imported_parts(path):
        assert part in LEVEL, f"{part} is no part of the package"
        assert LEVEL[part] < LEVEL[part_of(path)], f"{part_of(path)} must not import {part}"


def module_of(path: Path) -> str:
    return ".".join(["sb3_robust_be", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")


def imports_by_module() -> dict[str, set[str]]:
    """The modules of this package that each one imports anywhere, within functions and for types too.

    A package's ``__init__`` gathers what its modules give, and they do not import it back.
    """
    modules = {module_of(path): path for path in MODULES if path.name != "__init__.py"}
    found = {}
    for name, path in modules.items():
        imported = imported_names(path)
        found[name] = ({*imported, *(one.rpartition(".")[0] for one in imported)} & modules.keys()) - {name}
    return found


def test_no_circles():
    """No module imports, over however many others, itself."""
    waiting, done = imports_by_module(), set()
    while free := {name for name, needed in waiting.items() if needed <= done}:
        done |= free
        waiting = {name: needed for name, needed in waiting.items() if name not in free}
    assert waiting == {}, "these import one another in a circle, or need what does"


def test_declared_experiments_do_not_import_one_another():
    for path in (PACKAGE / "experiments" / "declared").glob("*.py"):
        others = {name for name in imported_names(path) if name.startswith("sb3_robust_be.experiments.declared")}
        assert path.name == "__init__.py" or not others, path.name


def test_file_names_are_given_once():
    names = [path.name for path in MODULES if path.name not in ("__init__.py", "__main__.py")]
    assert {name for name in names if names.count(name) > 1} == set()


@pytest.mark.parametrize("part", existing(LIGHT))
def test_light_parts_do_not_name_heavy_packages(part):
    files = [path for path in MODULES if part_of(path) == part]
    assert files
    for path in files:
        heavy = {name.split(".")[0] for name in imported_names(path)} & set(HEAVY)
        assert not heavy, f"{path.name} imports {heavy}"


@pytest.mark.parametrize("part", existing(LIGHT))
def test_light_parts_load_nothing_heavy(part):
    code = f"""
import importlib, pkgutil, sys
part = importlib.import_module("sb3_robust_be.{part}")
for module in pkgutil.walk_packages(getattr(part, "__path__", []), part.__name__ + "."):
    importlib.import_module(module.name)
loaded = [name for name in {HEAVY!r} if name in sys.modules]
assert not loaded, loaded
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_the_reader_of_imports_sees_all_kinds(tmp_path, monkeypatch):
    """The checks above are worth what this function sees."""
    package = tmp_path / "sb3_robust_be"
    (package / "linear").mkdir(parents=True)
    module = package / "linear" / "one.py"
    module.write_text(
        "import torch.nn as nn\n"
        "from sb3_robust_be import updates, __version__\n"
        "from sb3_robust_be import QRC\n"
        "import sb3_robust_be.registry\n"
        "from . import two\n"
        "from ..envs import cliff_world\n"
        "def late():\n"
        "    from sb3_robust_be.zoo import train\n"
    )
    monkeypatch.setitem(globals(), "PACKAGE", package)
    assert "torch.nn" in imported_names(module)
    assert imported_parts(module) == {"updates", "qrc", "registry", "envs", "zoo"}
