"""Mistakes in calls of train, enjoy and tune that rl_zoo3 would not tell, and environments of one's own."""

import sys

import gymnasium as gym
import pytest

from sb3_robust_be import cli, zoo
from sb3_robust_be.messages import did_you_mean

QUIET = ["--no-progress", "--no-tensorboard", "--eval-freq", "-1", "--log-interval", "-2"]


@pytest.fixture
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--env", "CartPol-v1"], "Did you mean 'CartPole-v1'"),
        (["train", "--env", "CliffWorld-v0"], "Did you mean 'RobustBE/CliffWorld-v0'?"),
        (["train", "--env", "MountainCar1000-v0"], "Did you mean 'RobustBE/MountainCar1000-v0'?"),
        (["train", "--env", "breakout-v1"], "'MinAtar/Breakout-v1'"),
        (["tune", "--env", "MinAtar/Breakuot-v0"], "Did you mean 'MinAtar/Breakout-v0'"),
        (["enjoy", "--env", "CliffWorld-v0"], "Did you mean 'RobustBE/CliffWorld-v0'?"),
        (["enjoy", "--env", "Acrobot-v1"], "sb3-robust-be train --algo qlc --env Acrobot-v1"),
        (["train", "--env", "no_env_like_this"], "name that with --gym-packages"),
        (["train", "--env", "my_envs:X-v0"], "give --gym-packages my_envs --env X-v0."),
        (["tune", "--env", "my_envs:X-v0", "--gym-packages", "other"], "give --gym-packages my_envs other --env X-v0."),
        (["enjoy", "--env", "my_envs:X-v0"], "give --gym-packages my_envs --env X-v0."),
        (["train", "--gym-packages", "nosuchpackage"], "--gym-packages nosuchpackage cannot be imported"),
        (["train", "--gym-packages", "json", "--env", "CartPol-v1"], "Did you mean 'CartPole-v1'"),
        (["train", "--trial-id", "3"], "--storage"),
        (["train", "--storage", "s.log", "--study-name", "s"], "--storage and --study-name without --trial-id"),
        (["train", "--storage=s.log"], "--storage without --trial-id"),
        (["train", "--study-name", "s"], "--study-name without --trial-id"),
        (["train", "--trial-id", "0", "--storage", "s.log", "--study-name", "s"], "--trial-id -N"),
    ],
)
def test_mistakes_get_one_clear_error(arguments, message, in_tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["-tb", "here"], ["--no-tensorboard", "--tensorboard-log", "here"]])
def test_without_tensorboard(options, in_tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("stable_baselines3.common.utils.SummaryWriter", None)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["train", *options])
    assert 'TensorBoard is not installed: pip install "sb3-robust-be[report]"' in capsys.readouterr().err


def test_a_name_of_several_namespaces():
    """The one with the version comes first, then one of each other namespace."""
    known = ["ALE/Breakout-v5", "MinAtar/Breakout-v0", "MinAtar/Breakout-v1", "CartPole-v1"]
    assert did_you_mean("breakout-v1", known) == " Did you mean 'MinAtar/Breakout-v1' or 'ALE/Breakout-v5'?"
    assert did_you_mean("Breakout", known) == " Did you mean 'ALE/Breakout-v5' or 'MinAtar/Breakout-v0'?"
    assert did_you_mean("CartPol-v1", known) == " Did you mean 'CartPole-v1'?"


def test_an_environment_of_the_current_folder(in_tmp_path, capsys):
    """Its package is named as for rl_zoo3, and it is found without a PYTHONPATH."""
    (in_tmp_path / "zoo_walks.py").write_text(
        "import gymnasium as gym\n"
        "gym.register('ZooWalk-v0', 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=9)\n"
    )
    env = ["--gym-packages", "zoo_walks", "--env", "ZooWalk-v0"]
    try:
        assert cli.main(["train", *env, "-n", "40", *QUIET]) == 0
        assert cli.main(["enjoy", *env, "-n", "20"]) == 0
    finally:
        sys.modules.pop("zoo_walks", None)
        gym.registry.pop("ZooWalk-v0", None)
    assert "Episode Length 9" in capsys.readouterr().out
    assert str(in_tmp_path) not in sys.path


@pytest.mark.parametrize("option", ["-optimize", "--optimize-hyperparameters"])
def test_a_search_by_train_needs_no_trial(option, monkeypatch):
    passed: list[list[str]] = []
    monkeypatch.setattr(zoo, "rl_zoo3_train", lambda: passed.append(sys.argv[1:]))
    cli.main(["train", option, "--storage", "s.log", "--study-name", "s"])
    assert option in passed[0]
