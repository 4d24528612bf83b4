"""``compare`` on environments that it cannot train, and on those of the user's own modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import changing_envs
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from masked_envs import TableEnv

from sb3_robust_be import cli
from sb3_robust_be.experiments.compare import compare_arguments
from sb3_robust_be.experiments.compare.comparison import look_at, make_preset
from sb3_robust_be.experiments.control.preset import plan

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> int:
    return cli.main(["compare", *arguments])


class _Shapes(gym.Env):
    def __init__(self, space):
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}


def _space(name):
    uint8 = {"low": 0, "high": 255, "dtype": np.uint8}
    return {
        "float images": spaces.Box(0.0, 1.0, (84, 84, 3)),
        "channels first": spaces.Box(0.0, 1.0, (3, 84, 84)),
        "small floats": spaces.Box(0.0, 1.0, (12, 12, 3)),
        "other bounds": spaces.Box(0, 9, (84, 84, 1), dtype=np.uint8),
        "tiny": spaces.Box(shape=(2, 2, 3), **uint8),
        "small in a Dict": spaces.Dict({"x": spaces.Box(shape=(10, 10, 3), **uint8)}),
        "a number": spaces.Box(-1.0, 1.0, ()),
        "empty Dict": spaces.Dict({}),
        "none": spaces.Box(-1.0, 1.0, (0,)),
    }[name]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "float images",
            "has observations of shape (84, 84, 3) and type float32, which no network here takes for images",
        ),
        (
            "channels first",
            "has observations of shape (3, 84, 84) and type float32, which no network here takes for images",
        ),
        ("small floats", "FlattenObservation"),
        ("other bounds", "You should use NatureCNN only with images"),
        ("tiny", "MinAtarCNN needs images of at least 3×3"),
        ("small in a Dict", "Kernel size can't be greater than actual input size"),
        ("a number", "Dimension out of range"),
        ("empty Dict", "expected a non-empty list of Tensors"),
        ("none", "AssertionError"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_work(name, says, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(gym.registry, "Shapes-v0", gym.envs.registration.EnvSpec("Shapes-v0", _Shapes))
    gym.registry["Shapes-v0"].kwargs["space"] = _space(name)
    gym.registry["Shapes-v0"].disable_env_checker = True
    arguments = ["--env", "Shapes-v0", "--algos", "qlc,dqn", "--seeds", "2", "--steps", "60", "--out", str(tmp_path)]
    assert run(*arguments, "--executor", "serial", "--quiet") == 2
    error = capsys.readouterr().err
    assert says in error
    assert "'Shapes-v0'" in error
    assert "http" not in error
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.glob("runs/*"))


def test_an_environment_that_cannot_be_made_is_one_line(monkeypatch, capsys):
    def broken():
        raise RuntimeError("first\nsecond")

    monkeypatch.setitem(gym.registry, "Broken-v0", gym.envs.registration.EnvSpec("Broken-v0", broken))
    with pytest.raises(SystemExit, match="2"):
        run("--env", "Broken-v0")
    assert capsys.readouterr().err.splitlines()[-1].endswith("RuntimeError: first")


# --- environments of the current folder ---


def test_a_module_of_the_current_folder_is_found_by_the_workers_too(tmp_path):
    """As the installed command has it, whose first folder to search is that of the command."""
    changing_envs.write(tmp_path, changing_envs.SOURCE)
    script = tmp_path / "bin" / "sb3-robust-be"
    script.parent.mkdir()
    small = ["--algos", "qlc", "--seeds", "2", "--steps", "40", "--net-arch", "8", "--jobs", "1", "--quiet"]
    script.write_text(
        "from sb3_robust_be.cli import main\n"
        "if __name__ == '__main__':\n"
        f"    small = {small}\n"
        "    assert main(['compare', '--gym-packages', 'walks', '--env', 'Walk-v0', '--out', 'one', *small]) == 0\n"
        "    assert main(['compare', '--env', 'walks:Walk-v0', '--out', 'other', *small]) == 0\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for out in ("one", "other"):
        assert len(list(tmp_path.glob(f"{out}/runs/*/result.json"))) == 2


def test_packages_are_in_the_runs_and_in_no_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changing_envs.write(tmp_path, changing_envs.SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    (spec,) = (run.spec for run in plan(make_preset(look_at("Walk-v0", None, ["walks"]), ["qlc"], 1, 10, [0.5]), []))
    changing_envs.forget()
    assert spec["gym_packages"] == ["walks"]
    (spec,) = (run.spec for run in plan(make_preset(look_at("CartPole-v1", None), ["qlc"], 1, 10, [0.5]), []))
    assert "gym_packages" not in spec


def test_a_package_that_is_not_there(capsys):
    with pytest.raises(SystemExit, match="2"):
        run("--env", "Walk-v0", "--gym-packages", "nosuchpackage")
    error = capsys.readouterr().err.splitlines()[-1]
    assert "'nosuchpackage', which cannot be imported" in error


def test_no_far_fetched_suggestion(capsys):
    with pytest.raises(SystemExit, match="2"):
        run("--env", "CartPole-v1", "--algos", "ppo")
    error = capsys.readouterr().err.splitlines()[-1]
    assert "'ppo' is no algorithm. There are dqn" in error


@pytest.fixture
def masked(monkeypatch):
    """The id of an environment that says which actions are legal."""
    monkeypatch.setitem(gym.registry, "Table-v0", gym.envs.registration.EnvSpec("Table-v0", TableEnv))
    return "Table-v0"


_SB3S = "illegal actions are taken, and bootstrapped from, by {}, since SB3's DQN and sb3-contrib's QR-DQN do not know"
_POPULATION = "dqn uses the environment's action masks here, which SB3's own DQN does not: --single-agents compares"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("qlc,dqn", ["legal actions only are taken by qlc, dqn.", _POPULATION]),
        ("qlc,dqn_squared", ["legal actions only are taken by qlc, dqn_squared."]),
        ("qlc,dqn,qrdqn", ["legal actions only are taken by qlc, dqn.", _SB3S.format("qrdqn"), _POPULATION]),
        ("qlc,dqn_squared,dqn --single-agents", ["are taken by qlc, dqn_squared.", _SB3S.format("dqn")]),
        ("qrdqn", [_SB3S.format("qrdqn")]),
    ],
)
def test_who_takes_legal_actions_only_is_said(masked, arguments, says):
    notes = compare_arguments.parse(["--env", masked, "--algos", *arguments.split()]).notes
    assert len(notes) == len(says)
    assert all(part in note for part, note in zip(says, notes, strict=True))


def test_where_all_actions_are_legal_nothing_is_said_of_masks():
    assert compare_arguments.parse(["--env", "CartPole-v1"]).notes == []


def test_masks_are_said_of_recordings(masked, tmp_path):
    (tmp_path / "monitor.csv").write_text('#{"t_start": 1.0, "env_id": "Table-v0"}\nr,l,t\n1.0,3,0.5\n')
    recordings = str(tmp_path / "monitor.csv")
    *_, last = compare_arguments.parse(["--env", masked, "--algos", "qlc", "--baseline-monitor", recordings]).notes
    assert last == "Recordings of SB3's DQN or of QR-DQN, which do not know masks, have illegal actions too."


def test_masks_are_in_what_is_printed_and_written(masked, tmp_path, capsys):
    arguments = ["--env", masked, "--algos", "dqn", "--seeds", "1", "--steps", "40", "--net-arch", "4", "--quiet"]
    assert run(*arguments, "--executor", "serial", "--out", str(tmp_path)) == 0
    printed = capsys.readouterr().out
    written = json.loads((tmp_path / "compare.json").read_text())["notes"]
    for part in ("Table-v0 has action_masks(): legal actions only are taken by dqn.", _POPULATION):
        assert part in printed
        assert any(part in note for note in written)
