"""Agents that come with the package: how one is taken in, found, played, loaded and trained on."""

from __future__ import annotations

import json
import re
import sys

import gymnasium as gym
import numpy as np
import pytest
import yaml
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_robust_be import QLC, cli, load_pretrained, pretrained
from sb3_robust_be.pretrained import __main__ as take_in

ENV_ID = "RobustBE/MountainCar1000-v0"
QUIET = ["--no-progress", "--no-tensorboard", "--eval-freq", "-1", "--log-interval", "-2"]


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    """A folder as the package's, with one agent of few steps that was taken in as the shipped ones are."""
    folder = tmp_path_factory.mktemp("pretrained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(pretrained, "FOLDER", folder / "agents")
        patch.setattr(take_in, "EPISODES", 2)
        command = ["train", "--env", ENV_ID, "-n", "100", "--seed", "0", "--save-replay-buffer", *QUIET]
        assert cli.main(command) == 0
        run = "logs/qlc/RobustBE-MountainCar1000-v0_1"
        patch.setattr(sys, "argv", ["", run, "--env", ENV_ID, "--command", "how it was trained"])
        take_in.main()
    return folder / "agents"


@pytest.fixture
def shipped(agents, monkeypatch, tmp_path):
    monkeypatch.setattr(pretrained, "FOLDER", agents)
    monkeypatch.chdir(tmp_path)
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(variable, raising=False)
    return agents


def test_what_is_written_beside_an_agent(shipped):
    files = {str(path.relative_to(shipped)) for path in shipped.rglob("*") if path.is_file()}
    run = "qlc/RobustBE-MountainCar1000-v0_1"
    name = "RobustBE-MountainCar1000-v0"
    assert files == {f"{run}/{name}.zip", f"{run}/{name}/config.yml", f"{run}/results.json"}
    (results,) = pretrained.pretrained_agents().values()
    assert results == json.loads((shipped / run / "results.json").read_text(encoding="utf-8"))
    assert (results["algorithm"], results["env_id"], results["command"]) == ("qlc", ENV_ID, "how it was trained")
    assert (results["n_eval_episodes"], results["num_timesteps"]) == (2, 100)
    assert -1000 <= results["mean_reward"] < 0
    assert results["settings"]["policy_kwargs"] == "{'layer_norm': True, 'net_arch': [32, 32]}"
    assert 0 <= results["diagnostics"]["correction_ratio"] <= 1


def test_enjoy_plays_it(shipped, capsys):
    assert cli.main(["enjoy", "--pretrained", "--env", ENV_ID, "-n", "1000"]) == 0
    shown = capsys.readouterr().out
    assert f"Loading {shipped}" in shown
    assert re.search(r"Episode Length \d+", shown)


def test_other_options_of_enjoy_work_with_it(shipped, capsys):
    assert cli.main(["enjoy", "--env", ENV_ID, "--pretrained", "-n", "30", "--verbose", "0", "--stochastic"]) == 0
    assert "Episode" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "CartPole-v1"], f"no pretrained agent of 'qlc' for 'CartPole-v1'. There are some for {ENV_ID}, or"),
        (["--env", "CartPole-v1"], "sb3-robust-be train --algo qlc --env CartPole-v1"),
        (["--env", "RobustBE/MountainCar-v0"], f"Did you mean '{ENV_ID}'?"),
        (["--env", ENV_ID, "--algo", "dqn"], "There are some of qlc only, so choose another --algo"),
        (["--env", ENV_ID, "--algo", "dqn"], f"sb3-robust-be train --algo dqn --env {ENV_ID}"),
        (["--env", ENV_ID, "-f", "logs2"], "-f chooses among your own agents"),
        (["--env", ENV_ID, "-f", "logs"], "-f chooses among your own agents"),
        (["--env", ENV_ID, "--load-best"], "--load-best chooses among your own agents"),
        (["--env", ENV_ID, "--exp-id", "2"], "--exp-id chooses among your own agents"),
    ],
)
def test_mistakes_get_one_clear_error(arguments, message, shipped, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["enjoy", "--pretrained", *arguments])
    assert message in capsys.readouterr().err


def test_help_explains_the_option(shipped, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["enjoy", "--help"])
    assert "--pretrained" in capsys.readouterr().out


def test_it_loads_and_learns_on(shipped):
    model = load_pretrained(ENV_ID, env=gym.make(ENV_ID), device="cpu")
    assert type(model) is QLC
    assert model.predict(np.array([-0.5, 0.0], np.float32), deterministic=True)[0] in (0, 1, 2)
    assert model.policy.optimizer.state_dict()["state"], "the optimiser's state has come along"
    before = model.policy.state_dict()["q_net.q_net.0.weight"].clone()
    model.learn(100, reset_num_timesteps=False)
    assert model.num_timesteps == 200
    assert not before.equal(model.policy.state_dict()["q_net.q_net.0.weight"])


def test_there_is_none_to_load(shipped):
    with pytest.raises(ValueError, match="no pretrained agent of 'qrc'"):
        load_pretrained(ENV_ID, "qrc")
    with pytest.raises(ValueError, match="algorithm is 'qlcc'; give one of"):
        load_pretrained(ENV_ID, "qlcc")


# Those that are shipped


SHIPPED = list(pretrained.pretrained_agents().items())


@pytest.mark.parametrize(("which", "results"), SHIPPED, ids=[env_id for (_, env_id), _ in SHIPPED])
def test_a_shipped_agent(which, results):
    algo, env_id = which
    path = pretrained.find_pretrained(algo, env_id)
    assert path.stat().st_size < 300_000
    assert path.parent.parent.name == algo
    (config,) = path.parent.glob("*/config.yml")
    settings = dict(yaml.unsafe_load(config.read_text(encoding="utf-8")))
    # By the shipped configuration's own command, and with the seed that was fixed before.
    assert results["command"].startswith(f"sb3-robust-be train --algo {algo} --env {env_id} --seed 0")
    assert results["num_timesteps"] == settings["n_timesteps"]
    assert results["n_eval_episodes"] == 100
    model = load_pretrained(env_id, algo, device="cpu")
    assert model.num_timesteps == results["num_timesteps"]
    # Three of the episodes again. They differ from one another by as much as was written down.
    mean, _ = evaluate_policy(model, make_vec_env(env_id, seed=take_in.SEED), 3)
    assert abs(mean - results["mean_reward"]) <= 4 * results["std_reward"] / 3**0.5 + 1e-6


def test_the_agents_that_are_shipped():
    environments = ("CartPole-v1", "Acrobot-v1", "RobustBE/MountainCar1000-v0")
    assert {which for which, _ in SHIPPED} == {("qlc", environment) for environment in environments}
