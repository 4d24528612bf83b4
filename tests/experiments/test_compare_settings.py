"""``compare`` with the settings of a user's own DQN: what is read, who gets what, and where the results go."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import re
import subprocess
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_robust_be import cli
from sb3_robust_be.codec import OBJECTS, from_json
from sb3_robust_be.experiments.compare import compare_arguments, compare_files
from sb3_robust_be.experiments.compare.compare_files import check_folder
from sb3_robust_be.experiments.compare.setting import Setting
from sb3_robust_be.experiments.compare.summary import described, edges, footnotes, summarise, verdict
from sb3_robust_be.experiments.compare.user_settings import arguments_of, check_names, read_settings
from sb3_robust_be.experiments.compare.values import as_json, assignments, python_value, rate
from sb3_robust_be.experiments.control.preset import plan
from sb3_robust_be.experiments.control.training import POPULATION, SINGLE, _single_agent
from sb3_robust_be.population.normalization import as_vec_env

CONFIG = """
default:
  n_timesteps: !!float 3e4
  policy: 'MlpPolicy'
.tuned: &tuned
  policy: 'MlpPolicy'
  n_timesteps: !!float 300
  learning_rate: lin_2.3e-3
  batch_size: 16
  target_update_interval: 10
  max_grad_norm: 5
  train_freq: [4, "step"]
  policy_kwargs: "dict(net_arch=[8], activation_fn=nn.Tanh)"
CartPole-v1:
  <<: *tuned
  gamma: 0.9
Scaled-v0:
  <<: *tuned
  gamma: 0.9
  normalize: "{'norm_obs': True, 'norm_reward': False, 'gamma': 0.5}"
Wrapped-v0:
  <<: *tuned
  env_wrapper:
    - stable_baselines3.common.atari_wrappers.AtariWrapper
  frame_stack: 4
Plain-v0:
  frame_stack: 1
  n_envs: 1
  env_wrapper: null
  optimize_memory_usage: False
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "dqn.yml"
    path.write_text(CONFIG)
    return path


def run(*arguments: str) -> int:
    return cli.main(["compare", *arguments])


def parsed(*arguments: str):
    return compare_arguments.parse(list(arguments))


def specs(comparison):
    return {run.spec["algorithm"]: run.spec for run in plan(comparison.preset, [])}


# Values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("dict(net_arch=[256, 256])", {"net_arch": [256, 256]}),
        ("dict(a=dict(b=-1.5), c=None)", {"a": {"b": -1.5}, "c": None}),
        ("{'x': (1, 'step')}", {"x": [1, "step"]}),
        ("nn.Tanh", torch.nn.Tanh),
        ("th.nn.Tanh", torch.nn.Tanh),
        ("torch.optim.SGD", torch.optim.SGD),
        ("inf", math.inf),
        ("float('inf')", math.inf),
        ("True", True),
        ("'word'", "word"),
    ],
)
def test_python_values(text, value):
    assert python_value(text, "it") == value


@pytest.mark.parametrize(
    "text", ["__import__('os').getcwd()", "1 +", "open('x')", "dict(**x)", "nn.NoSuch", "x", "2**3"]
)
def test_no_code_is_run(text):
    with pytest.raises(ValueError, match=r"it is .*, which cannot be read"):
        python_value(text, "it")


def test_a_class_goes_to_json_and_back():
    value = as_json({"activation_fn": torch.nn.Tanh, "x": (1, math.inf)}, "it")
    assert json.loads(json.dumps(value)) == value
    assert from_json(value, OBJECTS) == {"activation_fn": torch.nn.Tanh, "x": [1, math.inf]}
    with pytest.raises(ValueError, match="it is"):
        as_json(object(), "it")


def test_assignments():
    texts = ["gamma=0.98", "limit=one_sided", "learning_rate=lin_0.01", "x:3", "env=a/b-c", "map=8x8"]
    assert assignments(texts, "--set") == {
        "gamma": 0.98,
        "limit": "one_sided",
        "learning_rate": "lin_0.01",
        "x": 3,
        "env": "a/b-c",
        "map": "8x8",
    }
    for wrong, says in ((["gamma"], "NAME=VALUE"), (["gamma="], "NAME=VALUE"), (["a=1", "a=2"], "twice")):
        with pytest.raises(ValueError, match=says):
            assignments(wrong, "--set")


@pytest.mark.skipif(importlib.util.find_spec("rl_zoo3") is None, reason="rl_zoo3 is not installed")
def test_rl_zoo3s_own_file_is_read_as_by_rl_zoo3():
    import argparse

    from rl_zoo3.exp_manager import ExperimentManager

    folder = Path(importlib.util.find_spec("rl_zoo3").origin).parent
    for env in ("CartPole-v1", "MountainCar-v0", "Acrobot-v1"):
        manager = ExperimentManager(argparse.Namespace(), "dqn", env, "", verbose=0)
        theirs, *_ = manager._preprocess_hyperparams(manager.read_hyperparameters()[0])
        theirs["learning_rate"] = theirs["learning_rate"](1.0)
        ours = read_settings(folder / "hyperparams" / "dqn.yml", [], env)
        assert ours.steps == manager.n_timesteps
        assert {**ours.arguments, "learning_rate": ours.learning_rate, "policy": ours.policy} == theirs


def test_an_entry(config):
    found = read_settings(config, ["gamma=0.98", "max_grad_norm=None"], "CartPole-v1")
    assert (found.steps, found.policy, found.learning_rate) == (300, "MlpPolicy", {"$linear": [2.3e-3, 0.0]})
    assert found.arguments == {
        "batch_size": 16,
        "target_update_interval": 10,
        "max_grad_norm": None,
        "train_freq": [4, "step"],
        "policy_kwargs": {"net_arch": [8], "activation_fn": {"__import__": "torch.nn.modules.activation:Tanh"}},
        "gamma": 0.98,
    }
    assert found.origins["gamma"] == found.origins["max_grad_norm"] == "--set"
    assert found.origins["batch_size"] == "dqn.yml, CartPole-v1"
    # The discount of the algorithm scales rewards, whatever the dictionary says: rl_zoo3's rule.
    assert read_settings(config, [], "Scaled-v0").normalize == {"norm_obs": True, "norm_reward": False}
    assert read_settings(config, [], "Other-v0").steps == 30_000


def test_what_says_nothing_is_no_setting(config):
    assert read_settings(config, ["n_steps=1"], "Plain-v0").arguments == {}
    assert read_settings(config, ["env_wrapper=None", "frame_stack=None"], "Wrapped-v0").arguments["batch_size"] == 16


def test_a_file_in_python(tmp_path):
    path = tmp_path / "dqn.py"
    path.write_text("hyperparams = {'CartPole-v1': dict(gamma=0.5, policy_kwargs=dict(net_arch=[4]))}")
    assert read_settings(path, [], "CartPole-v1").arguments == {"gamma": 0.5, "policy_kwargs": {"net_arch": [4]}}


@pytest.mark.parametrize(
    ("entry", "env", "says"),
    [
        (CONFIG, "Wrapped-v0", "env_wrapper (dqn.yml, Wrapped-v0) is ['stable_baselines3"),
        (
            "X-v0: {frame_stack: 4}",
            "X-v0",
            "frame_stack (dqn.yml, X-v0) is 4, which a comparison cannot honour. Register",
        ),
        ("X-v0: {n_envs: 8}", "X-v0", "--set n_envs=None"),
        ("X-v0: {callback: a.B}", "X-v0", "callback"),
        ("X-v0: {n_timesteps: '1e5'}", "X-v0", "n_timesteps (dqn.yml, X-v0) is '1e5'; give a number"),
        ("X-v0: {n_timesteps: 0}", "X-v0", "n_timesteps"),
        ("X-v0: {policy: my.Policy}", "X-v0", "policy (dqn.yml, X-v0) is 'my.Policy'"),
        ("X-v0: {policy_kwargs: 'dict(net_arch=f(3))'}", "X-v0", "policy_kwargs (dqn.yml, X-v0) is"),
        ("X-v0: {learning_rate: fast}", "X-v0", "learning_rate (dqn.yml, X-v0): 'fast' is no step size"),
        ("X-v0: {learning_rate: 5}", "X-v0", "learning_rate (dqn.yml, X-v0): '5' is no step size"),
        ("X-v0: {learning_rate: [0.1, 0.2]}", "X-v0", "learning_rate (dqn.yml, X-v0): '[0.1, 0.2]' is no step size"),
        ("X-v0: {n_timesteps: .inf}", "X-v0", "n_timesteps (dqn.yml, X-v0) is inf"),
        ("X-v0: {train_freq: 0}", "X-v0", "train_freq must be at least 1 and is 0. Pass the steps between two updates"),
        ("X-v0: {train_freq: [1.5, step]}", "X-v0", "train_freq must be an integer and is 1.5."),
        (
            "X-v0: {gamma: 1.5}",
            "X-v0",
            "gamma must be from 0 to 1 and is 1.5. The paper uses 0.99. It is given by dqn.yml",
        ),
        ("X-v0: {buffer_size: 1e5}", "X-v0", "buffer_size must be a number and is the string '1e5'. In YAML, leave"),
        ("X-v0: {policy_kwargs: 3}", "X-v0", "policy_kwargs (dqn.yml, X-v0) is 3; give its arguments, as dict("),
        ("X-v0: {env_kwargs: [1]}", "X-v0", "env_kwargs (dqn.yml, X-v0) is [1]; give its arguments, as dict("),
        ("X-v0: {}", "X-v1", "no entry for 'X-v1' and no default. Did you mean 'X-v0'? It has X-v0."),
        ("- 1", "X-v0", "rl_zoo3's format"),
        ("X-v0: 3", "X-v0", "rl_zoo3's format"),
        ("", "X-v0", "rl_zoo3's format"),
        ("X: [", "X-v0", "is no YAML"),
    ],
)
def test_what_cannot_be_honoured_is_an_error(entry, env, says, tmp_path):
    path = tmp_path / "dqn.yml"
    path.write_text(entry)
    with pytest.raises(ValueError, match=re.escape(says)):
        read_settings(path, [], env)


def test_a_python_file_that_fails_is_an_error(tmp_path):
    path = tmp_path / "dqn.py"
    path.write_text("import no_such_module")
    with pytest.raises(ValueError, match=r"dqn\.py cannot be run: .*no_such_module"):
        read_settings(path, [], "CartPole-v1")


# Who gets what


def test_none_leaves_a_setting_out_where_it_is_no_value(config):
    found = read_settings(config, ["gamma=None", "learning_rate=None", "max_grad_norm=None"], "CartPole-v1")
    check_names(found, ["qlc", "dqn"])
    assert found.learning_rate is None
    # SB3's DQN cannot be without max_grad_norm; its squared kind here can.
    assert {"gamma", "max_grad_norm"}.isdisjoint(arguments_of("dqn", found.arguments))
    assert "gamma" not in arguments_of("qlc", found.arguments)
    # No limit is a choice of QLC's.
    assert arguments_of("qlc", {"limit": None, "gamma": 0.5}) == {"limit": None, "gamma": 0.5}


def test_dqn_is_as_the_user_runs_it_and_the_others_take_its_place(config):
    comparison = parsed("--env", "CartPole-v1", "--config", str(config), "--algos", "qlc,qrc_huber,dqn")
    found = specs(comparison)
    shared = {
        "learning_rate": {"$linear": [2.3e-3, 0.0]},
        "batch_size": 16,
        "train_freq": [4, "step"],
        "gamma": 0.9,
        "policy_kwargs": {"net_arch": [8], "activation_fn": {"__import__": "torch.nn.modules.activation:Tanh"}},
    }
    assert found["dqn"]["arguments"] == {**shared, "target_update_interval": 10, "max_grad_norm": 5}
    assert found["qlc"]["arguments"] == found["qrc_huber"]["arguments"] == shared
    assert {spec["function"] for spec in found.values()} == {POPULATION}
    assert {spec["steps"] for spec in found.values()} == {300}
    whose = {(row["argument"], row["of"]): row["from"] for row in comparison.settings}
    assert whose["target_update_interval", "dqn"] == whose["batch_size", "all"] == "dqn.yml, CartPole-v1"


@pytest.mark.parametrize("given", [(), ("--set", "target_update_interval=None", "tau=None")])
def test_without_dqn_the_file_need_not_be_changed(config, given):
    """What is DQN's alone there is left out, as where DQN is compared too, and None of it says nothing."""
    comparison = parsed("--env", "CartPole-v1", "--config", str(config), "--algos", "qlc", *given)
    arguments = specs(comparison)["qlc"]["arguments"]
    assert {"target_update_interval", "max_grad_norm", "tau"}.isdisjoint(arguments)
    assert arguments["batch_size"] == 16
    left = "max_grad_norm" if given else "target_update_interval, max_grad_norm"
    assert comparison.notes == [
        f"Of dqn.yml, what is DQN's alone is left out: {left}.",
        "qlc has the learning_rate of dqn.yml, CartPole-v1. If that was chosen for DQN, compare also with "
        "--own-learning-rates, with which qlc keeps its own, which falls over the run.",
    ]


def test_no_target_network_is_a_setting_of_algorithms_without_one():
    comparison = parsed("--env", "CartPole-v1", "--algos", "qlc", "--set", "target_update_interval=None")
    assert "target_update_interval" not in specs(comparison)["qlc"]["arguments"]
    assert comparison.notes == []


def test_a_files_word_that_dqn_lacks_is_an_error(tmp_path, capsys):
    path = tmp_path / "dqn.yml"
    path.write_text("default: {gama: 0.9}")
    with pytest.raises(SystemExit, match="2"):
        parsed("--env", "CartPole-v1", "--config", str(path), "--algos", "qlc")
    assert "gama (dqn.yml, default) is taken by none of qlc. Did you mean 'gamma'?" in capsys.readouterr().err


def test_the_agent_is_what_sb3_makes_of_the_users_arguments(config):
    """What the settings leave open is SB3's, and not the paper's."""
    spec = specs(parsed("--env", "CartPole-v1", "--config", str(config), "--algos", "dqn"))["dqn"]
    model = _single_agent({**spec, "seed": 3}, "CartPole-v1")
    expected = DQN(
        "MlpPolicy",
        "CartPole-v1",
        batch_size=16,
        target_update_interval=10,
        max_grad_norm=5,
        train_freq=(4, "step"),
        policy_kwargs={"net_arch": [8], "activation_fn": torch.nn.Tanh},
        gamma=0.9,
        seed=3,
    )
    names = ("batch_size", "target_update_interval", "max_grad_norm", "train_freq", "gamma", "buffer_size", "tau")
    names += ("learning_starts", "gradient_steps", "exploration_fraction", "exploration_initial_eps")
    names += ("exploration_final_eps",)
    for name in names:
        assert getattr(model, name) == getattr(expected, name), name
    assert str(model.policy) == str(expected.policy)
    assert [model.lr_schedule(x) for x in (1.0, 0.5, 0.0)] == [2.3e-3, 1.15e-3, 0.0]


def test_what_only_some_have_goes_to_those():
    settings = {"limit": "magnitude", "huber_threshold": 2.0, "gamma": 0.5, "tau": 0.1}
    assert arguments_of("dqn", settings) == {"gamma": 0.5, "tau": 0.1}
    assert arguments_of("dqn_squared", settings) == {"huber_threshold": 2.0, "gamma": 0.5, "tau": 0.1}
    assert arguments_of("qlc", settings)["limit"] == "magnitude"
    assert "tau" not in arguments_of("qrc_huber", settings)
    assert arguments_of("qrc_huber", settings)["huber_threshold"] == 2.0


def test_without_a_learning_rate_each_class_has_its_own():
    found = specs(parsed("--env", "CartPole-v1", "--set", "gamma=0.5", "--algos", "qlc,qrc,dqn"))
    rates = {name: spec["arguments"]["learning_rate"] for name, spec in found.items()}
    assert rates == {"qlc": {"$linear": [2.0**-9, 2.0**-13]}, "qrc": 1e-3, "dqn": 1e-4}
    assert found["dqn"]["arguments"] == {"learning_rate": 1e-4, "gamma": 0.5, "policy_kwargs": {}}


def test_dqns_learning_rate_can_be_left_to_dqn(config):
    files, defaults = {"$linear": [2.3e-3, 0.0]}, {"qlc": {"$linear": [2.0**-9, 2.0**-13]}, "qrc": 1e-3}
    own = ("--env", "CartPole-v1", "--config", str(config), "--algos")
    everyones = parsed(*own, "qlc,qrc,dqn")
    (note,) = everyones.notes
    assert note.startswith("qlc has the learning_rate of dqn.yml, CartPole-v1.")
    assert "--own-learning-rates" in note
    assert parsed(*own, "qrc,dqn").notes == parsed(*own, "qlc,dqn", "--learning-rates", "0.1").notes == []
    left = parsed(*own, "qlc,qrc,dqn,dqn_squared,qrdqn", "--own-learning-rates")
    assert left.notes == []
    found = {name: spec["arguments"]["learning_rate"] for name, spec in specs(left).items()}
    assert found == {**defaults, **dict.fromkeys(("dqn", "dqn_squared", "qrdqn"), files)}
    whose = {(row["value"], row["of"]): row["from"] for row in left.settings if row["argument"] == "learning_rate"}
    assert whose == {
        ("0.0023 → 0", "dqn, dqn_squared, qrdqn"): "dqn.yml, CartPole-v1",
        ("0.00195 → 0.000122", "qlc"): "each class's default",
        ("0.001", "qrc"): "each class's default",
    }
    assert left.out != everyones.out
    # Of one value, too, it is said whose it is.
    same = parsed("--env", "CartPole-v1", "--algos", "qrc,dqn", "--set", "learning_rate=0.001", "--own-learning-rates")
    rates = [(row["of"], row["from"]) for row in same.settings if row["argument"] == "learning_rate"]
    assert sorted(rates) == [("dqn", "--set"), ("qrc", "each class's default")]


def test_settings_keep_the_names_that_they_had():
    """A comparison that was begun with an earlier version goes on in its folder."""
    assert Setting(steps=5000).digest() == "625f37"
    assert Setting(learning_rates=[0.001]).digest() == "5d6931"


def test_flags_win_over_the_file(config):
    comparison = parsed(
        *("--env", "CartPole-v1", "--config", str(config), "--net-arch", "4", "--layer-norm", "--n-timesteps", "77"),
        *("--learning-rates", "2^-9", "--algos", "dqn"),
    )
    spec = specs(comparison)["dqn"]
    assert spec["steps"] == 77
    assert spec["arguments"]["learning_rate"] == 2.0**-9
    tanh = {"__import__": "torch.nn.modules.activation:Tanh"}
    assert spec["arguments"]["policy_kwargs"] == {"net_arch": [4], "layer_norm": True, "activation_fn": tanh}
    whose = {row["argument"]: row["from"] for row in comparison.settings}
    assert whose["learning_rate"] == "--learning-rates"
    assert whose["policy_kwargs"] == "dqn.yml, CartPole-v1 and --net-arch and --layer-norm"


@pytest.mark.parametrize("setting", ["n_steps=3", "train_freq=(1, 'episode')", "replay_buffer_kwargs=dict()"])
def test_what_populations_cannot_is_done_by_single_agents(setting, capsys):
    comparison = parsed("--env", "CartPole-v1", "--set", setting, "--algos", "qlc,dqn")
    assert {spec["function"] for spec in specs(comparison).values()} == {SINGLE}
    assert "trained one by one" in comparison.notes[0]


def test_single_agents_where_populations_lack_a_setting(tmp_path, capsys):
    arguments = ["--env", "CartPole-v1", "--set", "policy_kwargs=dict(net_arch=[4], optimizer_class=th.optim.SGD)"]
    arguments += ["--steps", "60", "--algos", "dqn", "--seeds", "1", "--executor", "serial", "--quiet"]
    assert run(*arguments, "--out", str(tmp_path / "one")) == 2
    assert "--single-agents" in capsys.readouterr().err
    assert run(*arguments, "--single-agents", "--out", str(tmp_path / "other")) == 0
    assert parsed(*arguments).out != parsed(*arguments, "--single-agents").out


def test_the_atari_entry_is_for_atari(tmp_path):
    """Also where the package that registers the game is named with it."""
    pytest.importorskip("ale_py")
    path = tmp_path / "dqn.yml"
    path.write_text("atari: {gamma: 0.5}\ndefault: {gamma: 0.9}\n")
    assert read_settings(path, [], "ale_py:ALE/Pong-v5").arguments == {"gamma": 0.5}
    assert read_settings(path, [], "CartPole-v1").arguments == {"gamma": 0.9}
    assert read_settings(path, [], "nosuchmodule:X-v0").arguments == {"gamma": 0.9}


def test_environment_arguments(capsys):
    comparison = parsed("--env", "FrozenLake-v1", "--env-kwargs", "is_slippery=False", "map_name:8x8", "--algos", "dqn")
    spec = specs(comparison)["dqn"]
    assert spec["env_kwargs"] == {"is_slippery": False, "map_name": "8x8"}
    with pytest.raises(SystemExit, match="2"):
        parsed("--env", "FrozenLake-v1", "--env-kwargs", "slippery=False")
    assert "slippery" in capsys.readouterr().err


def test_normalisation_is_in_the_run_and_reaches_both_kinds():
    plain = specs(parsed("--env", "CartPole-v1", "--algos", "dqn"))["dqn"]
    assert "normalize" not in plain
    spec = specs(parsed("--env", "CartPole-v1", "--algos", "dqn", "--normalize"))["dqn"]
    assert spec == {**plain, "normalize": {}}
    part = parsed("--env", "CartPole-v1", "--algos", "dqn,qrdqn", "--normalize", "dict(norm_reward=False)")
    assert {str(spec["normalize"]) for spec in specs(part).values()} == {"{'norm_reward': False}"}


def test_whose_the_settings_of_the_run_are(config):
    given = ("--env-kwargs", "sutton_barto_reward=True", "--normalize", "--algos", "qlc")
    for options, steps, policy in (
        (("--config", str(config), "--steps", "50"), "--steps", "dqn.yml, CartPole-v1"),
        (("--config", str(config)), "dqn.yml, CartPole-v1", "dqn.yml, CartPole-v1"),
        ((), "compare", "compare"),
    ):
        rows = parsed("--env", "CartPole-v1", *options, *given).settings
        whose = {row["argument"]: row["from"] for row in rows}
        assert (whose["n_timesteps"], whose["policy"]) == (steps, policy)
        assert (whose["env_kwargs"], whose["normalize"]) == ("--env-kwargs", "--normalize")


def test_a_single_agent_learns_behind_sb3s_own_vec_normalize():
    spec = specs(parsed("--env", "CartPole-v1", "--algos", "qrdqn", "--normalize", "--set", "gamma=0.7"))["qrdqn"]
    env = _single_agent(spec, Monitor(gym.make("CartPole-v1"))).get_vec_normalize_env()
    assert isinstance(env, VecNormalize)
    assert (env.gamma, env.clip_obs, env.norm_reward, env.training) == (0.7, 10.0, True, True)


@pytest.mark.parametrize("algorithm", ["qlc", "qrdqn"])
def test_returns_are_those_of_the_true_rewards(algorithm, tmp_path):
    """Cart-pole gives 1 for each step, so that the returns of episodes are their lengths."""
    arguments = ["--env", "CartPole-v1", "--algos", algorithm, "--normalize", "--seeds", "2", "--steps", "90"]
    assert run(*arguments, "--net-arch", "8", "--executor", "serial", "--quiet", "--out", str(tmp_path)) == 0
    paths = list(tmp_path.glob("runs/*/monitor.csv"))
    assert len(paths) == 2
    for path in paths:
        rows = np.loadtxt(path, delimiter=",", skiprows=2, ndmin=2)
        assert len(rows) > 0
        np.testing.assert_array_equal(rows[:, 0], rows[:, 1])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--set", "gama=0.9"], "gama (--set) is taken by none of qlc, qrc_huber, dqn. Did you mean 'gamma'?"),
        (["--set", "target_update_interval=5", "--algos", "qlc"], "It is DQN's alone."),
        (["--set", "learning_rate=0.1", "--learning-rates", "0.1"], "give one of them"),
        (["--own-learning-rates"], "to the baselines; give one there, or leave the option out."),
        (["--own-learning-rates", "--learning-rates", "0.1"], "without --learning-rates"),
        (["--own-learning-rates", "--set", "learning_rate=0.1", "--algos", "qlc"], "--algos names none; add dqn"),
        (["--set", "frame_stack=4"], "frame_stack (--set) is 4, which a comparison cannot honour"),
        (["--set", "seed=4"], "Seeds are those of --seeds"),
        (["--config", "nosuch.yml"], "--config nosuch.yml is not there"),
        (["--normalize", "dict(norm=True)"], "normalize has 'norm'"),
        (["--normalize", "3"], "normalize must be True, False or arguments"),
        (["--env-kwargs", "a"], "--env-kwargs has 'a'; give NAME=VALUE"),
    ],
)
def test_mistakes_are_one_line(arguments, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        run("--env", "CartPole-v1", *arguments)
    assert stopped.value.code == 2
    assert says in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("algorithms", ["qlc,dqn", "dqn", "qrdqn"])
@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("learning_starts=-5", "learning_starts must not be negative and is -5. Pass the environment steps before"),
        ("exploration_fraction=7", "exploration_fraction must be from 0 to 1 and is 7. It is the share of training"),
        ("exploration_final_eps=1.1", "exploration_final_eps must be from 0 to 1 and is 1.1."),
        ("batch_size=0", "batch_size must be at least 1 and is 0. The paper uses 32."),
        ("batch_size=many", "batch_size must be a number and is the string 'many'."),
        ("gamma=1.5", "gamma must be from 0 to 1 and is 1.5. The paper uses 0.99."),
        ("buffer_size=0", "buffer_size must be at least 1 and is 0. Pass how many transitions are kept."),
        ("tau=2", "tau must be from 0 to 1 and is 2. 1 copies the whole network."),
        ("train_freq=0", "train_freq must be at least 1 and is 0. Pass the steps between two updates"),
        ("train_freq=(1,'day')", "train_freq must count steps or episodes and is [1, 'day']."),
        ("gradient_steps=-2", "gradient_steps must be at least -1 and is -2."),
        ("target_update_interval=-3", "target_update_interval must be at least 0 and is -3. Pass None"),
        ("max_grad_norm=-1", "max_grad_norm must not be negative and is -1."),
    ],
)
def test_numbers_that_mean_nothing_are_one_line(algorithms, setting, says, capsys, tmp_path, monkeypatch):
    """Of SB3's classes too, which take any number, and before anything runs."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        run("--env", "CartPole-v1", "--algos", algorithms, "--set", setting, "--single-agents")
    error = capsys.readouterr().err.splitlines()[-1]
    assert says in error
    assert error.endswith("It is given by --set.")
    assert not list(tmp_path.iterdir())


def test_numbers_at_the_edge_are_taken(config):
    """All of them mean something."""
    edge = ("gamma=1", "gamma=0", "tau=0", "learning_starts=0", "exploration_fraction=0", "gradient_steps=-1")
    for setting in (*edge, "target_update_interval=0", "target_update_interval=None", "max_grad_norm=inf"):
        name, _, value = setting.partition("=")
        assert name in read_settings(config, [setting], "CartPole-v1").arguments, value


def test_a_value_that_the_class_refuses_is_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("--env", "CartPole-v1", "--set", "h_regularization=-1", "--algos", "qlc", "--quiet") == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "h_regularization must not be negative and is -1" in error
    assert "--set NAME=None" in error


# Folders and files


def test_default_commands_keep_their_folder_and_every_setting_has_its_own(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = ("--env", "CartPole-v1")
    default = parsed(*env).out
    assert default == Path("compare/CartPole-v1")
    assert parsed(*env, "--seeds", "7", "--algos", "qlc", "--steps", "10000").out == default
    others = [
        ("--steps", "500"),
        ("--learning-rates", "2^-9"),
        ("--learning-rates", "2^-9", "2^-10"),
        ("--net-arch", "8"),
        ("--layer-norm",),
        ("--single-agents",),
        ("--normalize",),
        ("--normalize", "dict(norm_obs=False)"),
        ("--set", "gamma=0.9"),
        ("--set", "gamma=0.8"),
        ("--config", str(config)),
        ("--config", str(config), "--own-learning-rates"),
        ("--config", str(config), "--set", "gamma=0.8"),
    ]
    folders = [parsed(*env, *options).out for options in others]
    assert len({default, *folders}) == 1 + len(others)
    assert folders == [parsed(*env, *options).out for options in others]
    assert all(re.fullmatch(r"CartPole-v1-[\w.-]+-[0-9a-f]{6}", folder.name) for folder in folders)
    assert folders[-1].name.startswith("CartPole-v1-dqn-gamma-300-steps-")
    # The order in which step sizes are named is no other setting.
    assert parsed(*env, "--learning-rates", "2^-10", "2^-9").out == folders[2]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A comparison with the user's settings, its folder, and what was printed."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "dqn.yml").write_text(CONFIG)
    arguments = ["--env", "CartPole-v1", "--config", str(folder / "dqn.yml"), "--seeds", "2", "--algos", "qlc,dqn"]
    arguments += ["--steps", "120", "--set", "learning_starts=20", "--executor", "serial", "--quiet"]
    return arguments, folder


def test_the_command(compared, monkeypatch, capsys):
    arguments, folder = compared
    monkeypatch.chdir(folder)
    subprocess.run(["git", "init", "-q"], check=True)
    assert run(*arguments) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^target_update_interval +10 +dqn +dqn\.yml, CartPole-v1$", printed, re.MULTILINE)
    assert re.search(r"^learning_starts +20 +all +--set$", printed, re.MULTILINE)
    assert "What is not listed is each class's default." in printed
    assert "Episode return, last quarter of training (120 steps on CartPole-v1):" in printed
    assert "return per step" not in printed
    # Two seeds say nothing of a probability.
    assert "1.00 [1.00, 1.00]" not in printed
    assert re.search(r"^qlc .* few seeds$", printed, re.MULTILINE)
    (out,) = (folder / "compare").iterdir()
    assert {path.name for path in out.iterdir()} == {
        *("compare.csv", "compare.json", "compare.png", "compare.svg", ".gitignore", "runs")
    }
    status = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=True)
    assert "compare" not in status.stdout
    rows = list(csv.DictReader((out / "compare.csv").read_text().splitlines()))
    assert [(row["algorithm"], row["seed"]) for row in rows] == [("qlc", "0"), ("qlc", "1"), ("dqn", "0"), ("dqn", "1")]
    found = json.loads((out / "compare.json").read_text())
    assert found["given"]["arguments"]["learning_starts"] == 20
    for algorithm in found["algorithms"]:
        own = [float(row["return_last_quarter"]) for row in rows if row["algorithm"] == algorithm["algorithm"]]
        assert algorithm["mean"]["estimate"] == pytest.approx(np.mean(own))
        assert algorithm["beats_baseline"] is None
    drawing = (out / "compare.svg").read_text()
    assert drawing.count("<svg") == 3
    assert "episode return" in drawing
    ids = re.findall(r'\bid="([^"]+)"', drawing)
    assert len(ids) == len(set(ids))


def test_the_same_command_goes_on_and_another_never_overwrites(compared, monkeypatch, capsys):
    arguments, folder = compared
    monkeypatch.chdir(folder)
    (out,) = (folder / "compare").iterdir()
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/result.json")}
    assert run(*arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in out.glob("runs/*/result.json")} == before
    text = (out / "compare.json").read_text()
    assert run(*arguments, "--out", str(out), "--steps", "130") == 2
    assert "has the results of another setting" in capsys.readouterr().err
    assert (out / "compare.json").read_text() == text
    assert {path: path.stat().st_mtime_ns for path in out.glob("runs/*/result.json")} == before


def test_a_folder_of_another_setting_is_refused(tmp_path):
    check_folder(tmp_path, "compare", "CartPole-v1", Setting())
    index = json.dumps({"environment": "CartPole-v1", **Setting().described()})
    (tmp_path / "compare.json").write_text(index)
    (tmp_path / "compare.csv").write_text("a\n1\n")
    check_folder(tmp_path, "compare", "CartPole-v1", Setting())
    with pytest.raises(ValueError, match="has the results on CartPole-v1, which those on Acrobot-v1 would replace"):
        check_folder(tmp_path, "compare", "Acrobot-v1", Setting())
    with pytest.raises(ValueError, match="results of another setting, which would be lost; give another --out"):
        check_folder(tmp_path, "compare", "CartPole-v1", Setting(steps=5))


@pytest.mark.parametrize("name", ["compare.csv", "compare.png", "compare.svg", "compare.json"])
def test_a_file_that_is_not_compares_own_is_refused(name, tmp_path, capsys):
    """Before anything runs."""
    (tmp_path / name).write_text("[]")
    assert run("--env", "CartPole-v1", "--algos", "qrc", "--seeds", "1", "--steps", "40", "--out", str(tmp_path)) == 2
    says = f"{tmp_path / name} is there and was not written by compare, which would replace it; give another --out"
    assert says in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "[]"


def test_files_that_are_in_nobodys_way(tmp_path):
    """Of other names, those of another comparison, and what 0.1 has left beside its runs."""
    for name in ("mine.csv", "compare-recorded-abcdef.csv"):
        (tmp_path / name).write_text("")
    check_folder(tmp_path, "compare", "CartPole-v1", Setting())
    (tmp_path / "runs").mkdir()
    (tmp_path / "compare.png").write_text("")
    check_folder(tmp_path, "compare", "CartPole-v1", Setting())
    (tmp_path / "compare.json").write_text('{"environment": "CartPole-v1"}')
    with pytest.raises(ValueError, match=r"compare\.json is there and was not written by compare"):
        check_folder(tmp_path, "compare", "CartPole-v1", Setting())


def test_an_interruption_while_files_are_written(tmp_path, monkeypatch):
    """The index is there first, so that the same command is not refused."""
    written = []

    def killed(path, data):
        written.append(path.suffix)
        if len(written) == 2:
            raise KeyboardInterrupt
        path.write_bytes(data)

    monkeypatch.setattr(compare_files, "write_atomically", killed)
    index = {"environment": "CartPole-v1", **Setting().described()}
    monkeypatch.setattr(compare_files, "stacked_png", lambda plots: b"")
    monkeypatch.setattr(compare_files, "stacked_svg", lambda plots: b"")
    with pytest.raises(KeyboardInterrupt):
        compare_files.write_files(tmp_path, "compare", [{"seed": 1}], (), index)
    assert written == [".json", ".csv"]
    check_folder(tmp_path, "compare", "CartPole-v1", Setting())


def test_an_empty_folder_and_compares_own_are_passed_over_by_git(tmp_path):
    compare_files.ignore_in_git(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "*\n"
    (tmp_path / ".gitignore").unlink()
    (tmp_path / "compare.json").write_text(json.dumps({"environment": "CartPole-v1", **Setting().described()}))
    (tmp_path / "compare-recorded-abcdef.csv").write_text("")
    (tmp_path / "runs").mkdir()
    compare_files.ignore_in_git(tmp_path)
    assert (tmp_path / ".gitignore").exists()


def test_a_folder_of_other_files_is_not_made_invisible_to_git(tmp_path):
    (tmp_path / "mine.txt").write_text("")
    arguments = ["--env", "CartPole-v1", "--algos", "qrc", "--seeds", "1", "--steps", "40", "--net-arch", "4"]
    assert run(*arguments, "--executor", "serial", "--quiet", "--out", str(tmp_path)) == 0
    assert not (tmp_path / ".gitignore").exists()


# What is said


def test_the_edge_of_the_grid():
    grid = [rate(text) for text in ("2^-12", "2^-10", "2^-8")]
    said = edges({"qlc": 2.0**-8, "dqn": 2.0**-12, "qrc": 2.0**-10, "recorded": None}, grid)
    assert said == [
        "Warning: the best step size of dqn is the smallest of those tried, 0.0002441: add smaller ones to "
        "--learning-rates.",
        "Warning: the best step size of qlc is the largest of those tried, 0.003906: add larger ones to "
        "--learning-rates.",
    ]
    assert edges({"qrc": 2.0**-10}, grid) == edges({"qlc": 2.0**-8}, grid[2:]) == []


def test_the_command_warns_at_the_edge(tmp_path, capsys):
    arguments = ["--env", "CartPole-v1", "--algos", "qrc", "--seeds", "1", "--steps", "60", "--net-arch", "4"]
    arguments += ["--learning-rates", "2^-9", "2^-11", "--executor", "serial", "--quiet", "--out", str(tmp_path)]
    assert run(*arguments) == 0
    # Of two step sizes each is at an end.
    assert re.search(
        "^Warning: the best step size of qrc is the (smallest|largest)", capsys.readouterr().out, re.MULTILINE
    )


@pytest.mark.parametrize(("seeds", "probability"), [(4, False), (5, True)])
def test_few_seeds_have_no_probability(seeds, probability):
    finals = {"qlc": np.arange(seeds) + 100.0, "dqn": np.arange(seeds) + 0.0}
    rows = summarise(finals, dict.fromkeys(finals, 0.1), "dqn")
    assert (rows[0].beats_baseline is not None) == probability
    assert any("Few seeds" in note for note in footnotes(rows, "dqn")) != probability


def test_what_is_not_known_of_one_seed_is_null():
    (row,) = summarise({"qlc": np.array([3.0])}, {"qlc": 0.1}, "qlc")
    found = described(row)
    assert (found["mean"]["estimate"], found["mean"]["low"], found["mean"]["high"]) == (3.0, None, None)


def test_unequal_numbers_of_seeds_are_said():
    finals = {"qlc": np.arange(6) + 100.0, "recorded": np.arange(3) + 0.0}
    rows = summarise(finals, {"qlc": 0.1, "recorded": None}, "recorded")
    assert "over seeds (6 of qlc, 3 of recorded)" in verdict(rows, finals, "X")


def test_the_environment_behind_vec_normalize_is_what_sb3_would_make():
    env = as_vec_env(gym.make("CartPole-v1"))
    assert isinstance(env, DummyVecEnv)
    assert type(env) is type(DQN("MlpPolicy", "CartPole-v1", buffer_size=2).env)
    assert env.env_is_wrapped(Monitor) == [True]
