"""What is installed: metadata, the wheel's content, lazy imports, and the size of files."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import sb3_robust_be

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "sb3_robust_be"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = {
    name: {requirement.name: requirement for requirement in map(Requirement, lines)}
    for name, lines in PYPROJECT["project"]["optional-dependencies"].items()
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from this source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return HeaderParser().parsestr(wheel.read(name).decode())


def test_the_wheel_has_every_file_of_the_package(wheel):
    installed = set(wheel.namelist())
    data = [path for part in ("results", "examples", "pretrained") for path in (PACKAGE / part).rglob("*.*")]
    files = [*PACKAGE.rglob("*.py"), *(path for path in data if path.suffix != ".pyc")]
    sources = {str(path.relative_to(ROOT)) for path in files}
    assert sources <= installed
    assert {"sb3_robust_be/py.typed", "sb3_robust_be/LICENSE"} <= installed


def test_the_wheel_has_the_configurations(wheel):
    for path in (ROOT / "zoo_configs").glob("*.yml"):
        assert wheel.read(f"sb3_robust_be/zoo_configs/{path.name}") == path.read_bytes()
    assert "sb3_robust_be/zoo_configs/qrc_huber.yml" in wheel.namelist()


def test_the_wheel_has_nothing_else(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"sb3_robust_be", f"sb3_robust_be-{sb3_robust_be.__version__}.dist-info"}
    assert not [name for name in wheel.namelist() if "__pycache__" in name]


def test_metadata(metadata):
    assert metadata["Name"] == "sb3-robust-be"
    assert Version(metadata["Version"]) == Version(sb3_robust_be.__version__)
    assert metadata["License-Expression"] == "MIT"
    assert Version("3.10") not in Requirement(f"x{metadata['Requires-Python']}").specifier
    assert Version("3.11") in Requirement(f"x{metadata['Requires-Python']}").specifier


def test_plain_dependencies_are_few(metadata):
    plain = {Requirement(line).name for line in metadata.get_all("Requires-Dist") if "extra ==" not in line}
    assert plain == {"stable-baselines3", "sb3-contrib", "torch", "gymnasium", "numpy", "scipy"}


def test_the_licence_is_complete():
    text = (PACKAGE / "LICENSE").read_text(encoding="utf-8")
    assert text.startswith("MIT License\n\nCopyright (c) 2026 the sb3-robust-be authors\n")
    assert "WITHOUT WARRANTY OF ANY KIND" in text


def test_the_zoo_extra_lists_what_rl_zoo3_does_not_declare():
    assert {"rl_zoo3", "requests", "pandas", "tensorboard", "tqdm", "rich"} <= set(EXTRAS["zoo"])
    pandas = EXTRAS["zoo"]["pandas"].specifier
    assert "3.0.0" not in pandas  # rl_zoo3's plots
    assert "2.3.0" in pandas


def test_dev_brings_the_other_extras():
    assert EXTRAS["dev"]["sb3-robust-be"].extras == set(EXTRAS) - {"dev"}


def test_importing_the_package_loads_nothing_heavy():
    heavy = ("torch", "stable_baselines3", "rl_zoo3", "scipy", "matplotlib", "minatar")
    code = f"""
import sys
import sb3_robust_be
loaded = [name for name in {heavy!r} if name in sys.modules]
assert not loaded, loaded
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr


def test_torchs_compiler_is_imported_when_something_is_compiled():
    """It takes seconds. (torch's own optimisers import it where they are made, for DQN as well.)"""
    code = """
import sys
import torch
import stable_baselines3
assert "torch._inductor" not in sys.modules, "torch or SB3 import it by themselves: this test shows nothing any more"
import sb3_robust_be, sb3_robust_be.registry
for name in sb3_robust_be.__all__:
    getattr(sb3_robust_be, name)
assert "sb3_robust_be.qrc.compiled" in sys.modules
assert "sb3_robust_be.population.graphs" in sys.modules
assert "torch._inductor" not in sys.modules, "the package imports it"
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr


def test_every_public_name_loads():
    assert set(sb3_robust_be.__all__) <= set(dir(sb3_robust_be))
    for name in sb3_robust_be.__all__:
        assert getattr(sb3_robust_be, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="QRCHubert"):
        sb3_robust_be.QRCHubert  # noqa: B018


def test_ci_runs_what_the_readme_says():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for command in (
        "pip install torch==2.13.0",
        'pip install -e ".[dev]"',
        "python -m pytest -n 2",
        "ruff check .",
        "ruff format --check .",
        "mypy",
    ):
        line = re.compile(rf"^\s*(\$ )?{re.escape(command)}", re.MULTILINE)
        assert line.search(readme), f"README.md does not say: {command}"
        assert line.search(script), f".ci/run does not do: {command}"


def test_ci_is_executable():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
