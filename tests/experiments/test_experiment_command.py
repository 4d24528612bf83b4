"""``experiment list | show | run | status | report``, for declared experiments and the user's own."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import changing_envs
import gymnasium as gym
import pytest

from sb3_robust_be import cli
from sb3_robust_be.evaluation import Outcome
from sb3_robust_be.experiments.control.preset import ControlPreset
from sb3_robust_be.experiments.declared import load_declared, names
from sb3_robust_be.experiments.experiment import SCALES, Analysis, Experiment, Results
from sb3_robust_be.experiments.find import load_experiment

ENGINE = ["--executor", "serial", "--quiet"]

OWN_YAML = """
env: CartPole-v1
steps: 200
seeds: 3
selection_seeds: 2
net_arch: [8]
buffer_size: 300
compile: false
algorithms:
  qlc:
    learning_rate: [0.001, 0.01]
  slow dqn:
    algorithm: dqn
    learning_rate: 0.001
    target_update_interval: 50
"""

OWN_PYTHON = """
from sb3_robust_be.experiments.experiment import Analysis, Experiment, Run

def plan(preset, rows):
    return [
        Run({"seed": seed}, {"function": "runner_functions:square", "seed": seed})
        for seed in range(preset)
    ]

def measure(run, results):
    return [{"square": results.result(run.spec)["square"]}]

def analyse(preset, rows):
    return Analysis(notes=[f"sum {sum(row['square'] for row in rows)}"])

EXPERIMENT = Experiment("squares", "nowhere", "Squares", ("They add up.",), {"laptop": 4}, plan, measure, analyse)
"""


def experiment(*arguments: str) -> int:
    return cli.main(["experiment", *arguments])


def test_list_names_them_all(capsys):
    assert experiment("list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(names())
    assert len(lines) == 18


@pytest.mark.parametrize("name", names())
def test_every_experiment_is_complete(name, capsys):
    declared = load_declared(name)
    assert declared.name == name
    assert declared.claims
    assert {"smoke", "laptop", "paper"} <= set(declared.presets) <= set(SCALES)
    assert experiment("show", name, "--scale", "paper") == 0
    printed = capsys.readouterr().out
    assert all(claim in printed for claim in declared.claims)
    assert all(reading.default in printed and reading.why in printed for reading in declared.readings)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A user's own experiment, run and reported."""
    folder = tmp_path_factory.mktemp("own")
    path = folder / "mine.yml"
    path.write_text(OWN_YAML)
    arguments = [str(path), "--out", str(folder)]
    assert experiment("run", *arguments, *ENGINE) == 0
    assert experiment("report", *arguments) == 0
    return folder, arguments


def test_a_yaml_file_is_an_experiment(own, capsys):
    folder, arguments = own
    mine = load_experiment(folder / "mine.yml")
    preset = mine.preset("laptop")
    assert isinstance(preset, ControlPreset)
    rows = mine.collect(preset, Results(folder / "own-mine-laptop"))
    assert Counter(row["stage"] for row in rows) == {"selection": 2 * 2, "reported": 2 * 3}
    assert experiment("status", *arguments) == 0
    assert capsys.readouterr().out.splitlines() == [
        "own-mine, selection runs: 4 done, 0 failed, 0 running, 0 left",
        "own-mine, reported runs: 6 done, 0 failed, 0 running, 0 left",
    ]


def test_the_report_has_verdicts_figures_and_tables(own):
    folder, arguments = own
    page = (folder / "reports-laptop" / "own-mine.html").read_text(encoding="utf-8")
    assert any(str(outcome) in page for outcome in Outcome)
    assert "slow dqn" in page
    assert "sb3-robust-be experiment run" in page
    assert page.count("<svg") >= 2
    beside = {path.name for path in (folder / "reports-laptop" / "own-mine").iterdir()}
    assert {"distributions.csv", "distributions.svg", "learning-curves.csv", "returns.csv", "returns.md"} <= beside
    assert not [name for name in beside if name.endswith(".png")]
    assert experiment("report", *arguments, "--png") == 0
    path = folder / "reports-laptop" / "own-mine.html"
    assert (path.parent / "own-mine" / "distributions.png").is_file()
    assert 'href="own-mine/distributions.png"' in path.read_text(encoding="utf-8")


def test_the_dqn_of_the_file_is_what_it_says(own):
    folder, _ = own
    mine = load_experiment(folder / "mine.yml")
    preset = mine.preset("laptop")
    runs = mine.plan(preset, mine.collect(preset, Results(folder / "own-mine-laptop")))
    slow = [run.spec for run in runs if run.names["contender"] == "slow dqn"]
    assert len(slow) == 3
    assert all(spec["arguments"]["target_update_interval"] == 50 for spec in slow)
    assert all(spec["arguments"]["policy_kwargs"] == {"net_arch": [8]} for spec in slow)


def test_a_python_file_is_an_experiment(tmp_path, capsys):
    path = tmp_path / "squares.py"
    path.write_text(OWN_PYTHON)
    arguments = [str(path), "--out", str(tmp_path)]
    assert experiment("report", *arguments) == 1
    assert "4 runs left" in capsys.readouterr().err
    assert experiment("run", *arguments, *ENGINE) == 0
    assert experiment("report", *arguments) == 0
    capsys.readouterr()
    assert experiment("status", *arguments) == 0
    assert capsys.readouterr().out.strip() == "squares, reported runs: 4 done, 0 failed, 0 running, 0 left"
    assert "sum 14" in (tmp_path / "reports-laptop" / "squares.html").read_text(encoding="utf-8")


def test_shards_wait_for_each_other(tmp_path, capsys):
    path = tmp_path / "mine.yml"
    path.write_text(OWN_YAML)
    arguments = ["run", str(path), "--out", str(tmp_path), *ENGINE]
    assert experiment(*arguments, "--shard", "1/2") == 0
    first = len(list(tmp_path.glob("own-mine-laptop/runs/*/result.json")))
    assert experiment(*arguments, "--shard", "2/2") == 0
    assert experiment(*arguments, "--shard", "1/2") == 0
    assert len(list(tmp_path.glob("own-mine-laptop/runs/*/result.json"))) == 10
    assert first < 10


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("env: CartPole-v1\nsteps: 10\n", "lacks the key 'algorithms'"),
        ("env: X\nsteps: 10\nalgorithms: {}\nseed: 3\n", "unknown key 'seed'"),
        ("- 1\n", "holds list"),
        ("a: [", "is no YAML"),
        ("env: X\nsteps: many\nalgorithms: {qlc: {}}\n", "steps is 'many' and must be a positive whole number"),
        ("env: X\nsteps: 10\nalgorithms: [qlc]\n", "algorithms is ['qlc'] and must be a dict"),
        ("env: X\nsteps: 10\nalgorithms: {qlc: }\n", "algorithms.qlc is None"),
        ("env: X\nsteps: 10\nnet_arch: 64\nalgorithms: {qlc: {}}\n", "net_arch is 64"),
    ],
)
def test_mistakes_in_a_file(content, says, tmp_path, capsys):
    path = tmp_path / "bad.yml"
    path.write_text(content)
    assert experiment("show", str(path)) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "controll"], "Did you mean 'control'"),
        (["run", "control", "--scale", "huge"], "scale is 'huge'"),
        (["run", "nothing.yml"], "nothing.yml"),
        (["run", "control", "--scale", "smoke", "--shard", "3/2"], "shard is '3/2'"),
    ],
)
def test_mistakes_are_one_line(arguments, says, capsys, tmp_path):
    assert experiment(*arguments, "--out", str(tmp_path)) == 2
    error = capsys.readouterr().err.strip()
    assert says in error
    assert len(error.splitlines()) == 1


def test_no_far_fetched_suggestion(capsys):
    assert experiment("run", "xyz") == 2
    assert "'xyz' is no experiment. There are objectives" in capsys.readouterr().err


def test_packages_that_register_environments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changing_envs.write(tmp_path, changing_envs.SOURCE)
    Path("mine.yml").write_text(OWN_YAML.replace("env: CartPole-v1", "env: Walk-v0\ngym_packages: [walks]"))
    try:
        assert experiment("run", "mine.yml", *ENGINE) == 0
    finally:
        changing_envs.forget()
    assert len(list(tmp_path.glob("experiments/own-mine-laptop/runs/*/result.json"))) == 10


def test_what_cannot_be_trained_is_one_line(tmp_path, monkeypatch, capsys):
    """SB3's own message has seven lines and ends with a link."""
    images = gym.spaces.Box(0.0, 1.0, (84, 84, 3))
    monkeypatch.setitem(gym.registry, "Images-v0", gym.envs.registration.EnvSpec("Images-v0", lambda: _Images(images)))
    path = tmp_path / "mine.yml"
    path.write_text(
        "env: Images-v0\nsteps: 40\npolicy: CnnPolicy\nsingle_agents: true\nalgorithms: {qlc: {policy_kwargs: {}}}\n"
    )
    assert experiment("run", str(path), "--out", str(tmp_path), *ENGINE) == 2
    error = capsys.readouterr().err
    assert "You should use NatureCNN only with images not with Box" in error
    assert len(error.splitlines()) == 1


class _Images(gym.Env):
    action_space = gym.spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ("{algorithm: qlk}", "qlk"),
        ("{learning_rat: 0.1}", "learning_rat"),
        ("{temperature: 0.1}", "temperature"),
    ],
)
def test_contenders_that_cannot_be_made_are_found_before_the_work(own, says, tmp_path, capsys):
    path = tmp_path / "bad.yml"
    path.write_text(OWN_YAML.replace("    learning_rate: [0.001, 0.01]\n", "").replace("  qlc:", f"  qlc: {own}"))
    assert experiment("run", str(path), "--out", str(tmp_path), *ENGINE) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "cannot be made" in error
    assert not list(tmp_path.glob("*/runs/*"))


def test_numbers_that_yaml_reads_as_text(tmp_path):
    path = tmp_path / "text.yml"
    path.write_text(OWN_YAML.replace("[0.001, 0.01]", "[1e-3, 1e-2]"))
    first = next(load_experiment(path).preset("laptop").contenders[0].grid["learning_rate"] for _ in (0,))
    assert first == [0.001, 0.01]


def test_a_file_without_an_experiment(tmp_path):
    path = tmp_path / "empty.py"
    path.write_text("")
    with pytest.raises(ValueError, match="defines no EXPERIMENT"):
        load_experiment(path)


def test_failures_are_in_the_report(tmp_path, capsys):
    path = tmp_path / "fails.py"
    path.write_text(
        OWN_PYTHON.replace("runner_functions:square", "runner_functions:mixed").replace(
            '"seed": seed}', '"seed": seed, "ends": "fail"}'
        ).replace("sum {sum(row['square'] for row in rows)}", "nothing")
    )  # fmt: skip
    assert experiment("run", str(path), "--out", str(tmp_path), *ENGINE) == 1
    assert experiment("report", str(path), "--out", str(tmp_path)) == 0
    page = (tmp_path / "reports-laptop" / "squares.html").read_text(encoding="utf-8")
    assert len(re.findall("the member(&#x27;|&#39;|')s own reason", page)) == 4


def test_an_analysis_starts_empty():
    assert Analysis().verdicts == Analysis().plots == []
    assert Analysis().verdicts is not Analysis().verdicts


def test_an_unknown_scale_names_those_there_are():
    one = Experiment("x", "y", "z", (), {"laptop": 1}, lambda p, r: [], lambda p, r: [], lambda p, r: Analysis())
    with pytest.raises(ValueError, match="x has laptop"):
        one.preset("paper")


# --- from Python ---


def test_run_and_report_from_python(tmp_path):
    from sb3_robust_be.experiments import Experiment, report, run

    quietly = {"executor": "serial", "progress": False}
    with pytest.raises(ValueError, match="objectives has at least 2 runs left at scale smoke; run it first"):
        report("objectives", "smoke", tmp_path)
    ran = run("objectives", "smoke", tmp_path, **quietly)
    assert (ran.failed, ran.left) == (0, 0)
    assert {row["part"] for row in ran.rows} == {"surface", "minimum"}
    experiment = load_declared("objectives")
    assert isinstance(experiment, Experiment)
    again = run(experiment, "smoke", tmp_path, **quietly)
    assert [row["contender"] for row in again.rows] == [row["contender"] for row in ran.rows]
    page = report(experiment, "smoke", tmp_path)
    assert page == tmp_path / "reports-smoke" / "objectives.html"
    assert page.is_file()
