"""The examples, run as a newcomer runs them: copied into a folder, each in a process of its own."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
import yaml
from nbclient import NotebookClient

from sb3_robust_be import QLC, cli, examples
from sb3_robust_be.experiments.control.yaml_file import KEYS

ROOT = Path(__file__).parents[1]
SOURCES = {path.name: path for path in examples.example_files()}
SCRIPTS = (
    "learning_rate_sweep.py",
    "onnx_export.py",
    "own_environment.py",
    "own_experiment.py",
    "warm_start_from_dqn.py",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of the examples, as the command makes it."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["examples"]) == 0
    monkeypatch.chdir(tmp_path / "examples")
    return tmp_path / "examples"


def run_python(*arguments: str) -> subprocess.CompletedProcess:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment)


def output_of(script: str) -> str:
    done = run_python(script)
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(pattern: str, text: str) -> list[float]:
    found = re.findall(pattern, text)
    assert found, f"{pattern!r} is not in:\n{text}"
    return [float(number) for number in found]


# The command


def test_the_files_are_those_that_are_tested_here():
    assert set(SOURCES) == {*SCRIPTS, "own_experiment.yml", "population.ipynb"}
    for name in SCRIPTS:
        assert len(SOURCES[name].read_text(encoding="utf-8").splitlines()) <= 60, name


def test_the_command_copies_them_and_says_what_they_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["examples", "new/folder"]) == 0
    copied = {path.name: path.read_bytes() for path in (tmp_path / "new" / "folder").iterdir()}
    assert copied == {name: path.read_bytes() for name, path in SOURCES.items()}
    shown = capsys.readouterr().out
    assert "onnx_export.py: Export an agent to ONNX" in shown
    assert shown.count("\n") == len(SOURCES)
    assert cli.main(["examples", "new/folder"]) == 0, "the same files again are no mistake"


def test_changed_files_are_never_replaced(tmp_path, capsys):
    changed = tmp_path / "own_environment.py"
    changed.write_text("mine")
    with pytest.raises(SystemExit, match="2"):
        cli.main(["examples", str(tmp_path)])
    assert "own_environment.py is there already and differs from the example; name another folder." in (
        capsys.readouterr().err
    )
    assert [path.name for path in tmp_path.iterdir()] == ["own_environment.py"]
    assert changed.read_text() == "mine"


def test_a_file_in_place_of_the_folder_is_one_clear_error(tmp_path, capsys):
    (tmp_path / "taken").write_text("")
    with pytest.raises(SystemExit, match="2"):
        cli.main(["examples", str(tmp_path / "taken")])
    assert "taken" in capsys.readouterr().err


# The scripts


@pytest.mark.parametrize("script", SCRIPTS)
def test_importing_a_script_does_nothing(script, tmp_path, monkeypatch, capsys):
    """They are modules of the package, which documentation tools and tests import."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(SOURCES[script]), run_name="imported")
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""


def test_own_environment(folder):
    shown = output_of("own_environment.py")
    (before,), (after,) = numbers(r"before: (-?\d+)", shown), numbers(r"after: (-?\d+)", shown)
    assert after > before + 100, shown  # of 100 steps, degrees from 60 over 10
    ratios = numbers(r"correction ratio (\d\.\d+)", shown)
    assert len(ratios) == 3
    assert all(0 <= ratio <= 1 for ratio in ratios)  # QLC limits a correction by the sample's own TD error
    assert {"tank.zip", "tank_normalization.pkl", "best_model.zip"} <= {path.name for path in folder.iterdir()}
    assert QLC.load("tank").num_timesteps == 3000


def test_warm_start_from_dqn(folder):
    shown = output_of("warm_start_from_dqn.py")
    (dqn,), (start,) = numbers(r"DQN after 4000 steps: (\d+)", shown), numbers(r"starts: (\d+)", shown)
    (after,) = numbers(r"QLC after 8000 steps: (\d+)", shown)
    assert abs(start - dqn) < 0.2 * dqn, "the greedy policy is the same; episodes begin elsewhere"
    assert after > start
    assert QLC.load("qlc").num_timesteps == 8000


def test_learning_rate_sweep(folder):
    shown = output_of("learning_rate_sweep.py")
    means = numbers(r"2\^-\d+ +(\d+\.\d)", shown)
    assert len(means) == 4
    assert means[0] == min(means), "the smallest is too small for 3 000 steps"
    assert shown.count("0 of 6") == 4
    (best,) = numbers(r"The best of these is 2\^-(\d+);", shown)
    assert best == [13, 11, 9, 7][int(np.argmax(means))]
    assert QLC.load("best").learning_rate == 2.0**-best


@pytest.mark.slow
def test_own_experiment_in_python(folder):
    shown = output_of("own_experiment.py")
    assert re.search(r"QLC's mean return is above DQN's: [a-z ]+ \(.*Welch's t.*5 \+ 5 seeds\)", shown), shown
    page = (folder / "experiments" / "reports-laptop" / "own.html").read_text(encoding="utf-8")
    assert "QLC&#x27;s mean return is above DQN&#x27;s" in page or "QLC's mean return is above DQN's" in page
    assert output_of("own_experiment.py").splitlines()[0] == shown.splitlines()[0], (
        "runs that are done are not made again"
    )


def test_own_experiment_by_the_command(folder):
    """Its run function is found in the current folder."""
    # In a process of its own: this one may have imported another module of that name.
    done = run_python(
        "-m", "sb3_robust_be", "experiment", "run", "own_experiment.py", "--scale", "smoke", "--jobs", "1"
    )
    assert done.returncode == 0, done.stderr
    assert len(list(folder.rglob("result.json"))) == 4


@pytest.mark.slow
def test_own_experiment_in_yaml(folder, capsys):
    assert cli.main(["experiment", "run", "own_experiment.yml", "--jobs", "1"]) == 0
    assert cli.main(["experiment", "report", "own_experiment.yml", "--markdown"]) == 0
    shown = capsys.readouterr().out
    assert "quick dqn" in shown
    assert "CartPole-v1" in shown


def test_the_yaml_has_every_key():
    assert set(yaml.safe_load(SOURCES["own_experiment.yml"].read_text(encoding="utf-8"))) == set(KEYS)


def test_onnx_export(folder):
    import onnxruntime

    shown = output_of("onnx_export.py")
    assert re.search(r"mean return \d+; torch is loaded: False", shown), shown
    low = np.array([-2.4, -3.0, -0.2, -3.0])
    observations = np.random.default_rng(0).uniform(low, -low, (100, 4)).astype(np.float32)
    (values,) = onnxruntime.InferenceSession("agent.onnx").run(None, {"observation": observations})
    actions, _ = QLC.load("agent").predict(observations, deterministic=True)
    assert values.argmax(axis=1).tolist() == actions.tolist()
    assert 10 < actions.sum() < 90, "both actions occur"


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_onnx_export_without_the_extra_says_so_in_one_sentence(missing, folder):
    code = f"""
import importlib.util, runpy, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == {missing!r} else find(name)
sys.argv = ["onnx_export.py"]
runpy.run_path("onnx_export.py", run_name="__main__")
"""
    done = run_python("-c", code)
    assert done.returncode == 1
    assert done.stderr == 'onnx and onnxruntime are not installed: pip install "sb3-robust-be[onnx]"\n'


# The notebook


def cell_outputs(notebook: nbformat.NotebookNode) -> list[tuple[str, list[str], str]]:
    """Of each code cell: what its last outputs are, and its text with every number masked.

    Numbers are those of a learning process, which another processor's last digits change.
    """
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            kinds = [sorted(output.get("data", [output.output_type])) for output in cell.outputs]
            text = "".join(output.get("text", "") for output in cell.outputs)
            found.append((cell.id, sorted({kind for own in kinds for kind in own}), re.sub(r"\d+(\.\d+)?", "#", text)))
    return found


def test_the_notebook_gives_its_stored_outputs(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    stored = nbformat.read(SOURCES["population.ipynb"], as_version=4)
    ran = nbformat.from_dict(stored)
    for cell in ran.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    NotebookClient(ran, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert cell_outputs(ran) == cell_outputs(stored)
    text = str(cell_outputs(stored))
    assert "is above that with #^-#: holds" in text
    assert "image/png" in text
