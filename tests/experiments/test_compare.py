"""``compare``: which runs it makes, what it says of them, and what it leaves behind."""

from __future__ import annotations

import argparse
import json
import re

import numpy as np
import pytest
from matplotlib import image
from run_results import compared_spec

from sb3_robust_be import cli
from sb3_robust_be.evaluation import Interval
from sb3_robust_be.experiments.compare import compare_arguments
from sb3_robust_be.experiments.compare.comparison import check_algorithms, look_at, make_preset
from sb3_robust_be.experiments.compare.summary import Row, as_text, summarise, verdict
from sb3_robust_be.experiments.control.preset import plan
from sb3_robust_be.experiments.control.training import POPULATION, SINGLE
from sb3_robust_be.runner.specs import loads

SELECTION_SEEDS = range(10_000, 10_010)
SMALL = ["--seeds", "3", "--steps", "300", "--net-arch", "8", "--executor", "serial", "--quiet"]


def run(*arguments: str) -> int:
    return cli.main(["compare", *arguments])


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A comparison with a choice among step sizes, and the folder."""
    out = tmp_path_factory.mktemp("compare")
    arguments = ["--env", "CartPole-v1", "--algos", "qlc,dqn", "--learning-rates", "2^-10", "0.01", "--out", str(out)]
    assert run(*arguments, *SMALL) == 0
    return arguments, out


def specs_in(out):
    return [loads(path.read_text()) for path in (out / "runs").glob("*/spec.json")]


def test_the_runs(compared):
    _, out = compared
    specs = specs_in(out)
    selection = [s for s in specs if s["seed"] in SELECTION_SEEDS]
    reported = [s for s in specs if s["seed"] in range(3)]
    assert len(selection) == 2 * 2 * len(SELECTION_SEEDS)
    assert len(reported) == 2 * 3
    assert len(specs) == len(selection) + len(reported)
    for algorithm in ("qlc", "dqn"):
        assert len({s["arguments"]["learning_rate"] for s in reported if s["algorithm"] == algorithm}) == 1
    assert all(s["steps"] == 300 and s["arguments"]["policy_kwargs"] == {"net_arch": [8]} for s in specs)


def test_the_step_size_is_the_best_on_the_selection_seeds(compared):
    _, out = compared
    finals: dict = {}
    for path in (out / "runs").glob("*"):
        spec = loads((path / "spec.json").read_text())
        if spec["seed"] in SELECTION_SEEDS:
            own = finals.setdefault(spec["algorithm"], {}).setdefault(spec["arguments"]["learning_rate"], [])
            own.append(loads((path / "result.json").read_text())["final"])
    for algorithm, by_rate in finals.items():
        lowest = np.nanmin(list(finals[algorithm].values()))
        best = max(by_rate, key=lambda rate, own=by_rate, low=lowest: np.nan_to_num(own[rate], nan=low).mean())
        chosen = {
            s["arguments"]["learning_rate"] for s in specs_in(out) if s["algorithm"] == algorithm and s["seed"] < 3
        }
        assert chosen == {best}


def test_it_leaves_a_picture(compared):
    picture = image.imread(compared[1] / "compare.png")
    assert min(picture.shape[:2]) > 500
    assert picture[..., :3].std() > 0.05


def test_the_same_command_finds_everything_done(compared, capsys):
    arguments, out = compared
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/result.json")}
    assert run(*arguments, *SMALL) == 0
    assert {path: path.stat().st_mtime_ns for path in out.glob("runs/*/result.json")} == before
    printed = capsys.readouterr().out
    assert re.search(r"^qlc +0\.\d+ +3 ", printed, re.MULTILINE)
    assert "P(above dqn)" in printed
    assert " on CartPole-v1 " in printed


def test_more_seeds_keep_those_that_are_done(compared):
    arguments, out = compared
    before = set(out.glob("runs/*/result.json"))
    assert run(*arguments, *SMALL, "--seeds", "4") == 0
    assert len(set(out.glob("runs/*/result.json")) - before) == 2


def test_the_last_shard_reports(tmp_path, capsys):
    arguments = ["--env", "CartPole-v1", "--algos", "qlc,dqn", "--out", str(tmp_path), *SMALL]
    assert run(*arguments, "--shard", "1/2") == 0
    assert not (tmp_path / "compare.png").exists()
    assert "runs of other shards are left" in capsys.readouterr().out
    assert run(*arguments, "--shard", "2/2") == 0
    assert (tmp_path / "compare.png").exists()


def test_failed_runs_are_reported_and_count(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(compare_arguments, "_rate", lambda text: 1e30)
    arguments = ["--env", "CartPole-v1", "--algos", "qrc", "--learning-rates", "1e30", "--out", str(tmp_path)]
    with pytest.warns(UserWarning, match="members have failed"):
        # The command has worked, and its exit code says that runs have not.
        assert run(*arguments, *SMALL) == 1
    printed = capsys.readouterr().out
    assert re.search(r"^qrc .* 3 +–$", printed, re.MULTILINE)
    assert "Every run on CartPole-v1 has failed" in printed


@pytest.mark.parametrize(
    ("env", "network"),
    [
        ("RobustBE/MountainCar1000-v0", {"net_arch": [32, 32]}),
        (
            "MinAtar/Breakout-v0",
            {"net_arch": [], "features_extractor_class": {"__import__": "sb3_robust_be.qrc.extractors:MinAtarCNN"}},
        ),
    ],
)
def test_layer_normalisation_is_for_all(env, network):
    setup = look_at(env, None)
    for layer_norm in (False, True):
        runs = plan(make_preset(setup, ["qlc", "dqn", "qrdqn"], 1, 10, [0.5], layer_norm), [])
        assert {run.spec["algorithm"] for run in runs} == {"qlc", "dqn", "qrdqn"}
        expected = {**network, **({"layer_norm": True} if layer_norm else {})}
        assert all(run.spec["arguments"]["policy_kwargs"] == expected for run in runs)


def test_compare_with_layer_normalisation(tmp_path):
    arguments = ["--env", "CartPole-v1", "--algos", "qlc,dqn,qrdqn", "--layer-norm", "--out", str(tmp_path)]
    assert run(*arguments, *SMALL, "--seeds", "1", "--steps", "120") == 0
    specs = specs_in(tmp_path)
    assert [s["arguments"]["policy_kwargs"] for s in specs] == [{"net_arch": [8], "layer_norm": True}] * 3


# --- environments ---


def test_the_papers_domains_have_the_papers_settings():
    setup = look_at("RobustBE/MountainCar1000-v0", None)
    assert (setup.domain.net_arch, setup.domain.buffer_size, setup.stacked) == ((32, 32), 4_000, True)
    runs = plan(make_preset(setup, ["qrc_huber"], 2, 10, [0.5]), [])
    assert [run.spec["seed"] for run in runs] == [0, 1]
    spec = runs[1].spec
    assert spec["arguments"]["huber_threshold"] == 2.0
    assert (spec["function"], spec["steps"], spec["compile"]) == (POPULATION, 10, False)


@pytest.mark.parametrize(
    ("env", "policy", "stacked"),
    [("FrozenLake-v1", "MlpPolicy", True), ("MinAtar/Breakout-v0", "CnnPolicy", False)],
)
def test_other_environments(env, policy, stacked):
    setup = look_at(env, None)
    assert (setup.policy, setup.stacked) == (policy, stacked)
    assert compared_spec(env, "dqn")["function"] == (POPULATION if stacked else SINGLE)


@pytest.mark.parametrize(
    "shape", [(10, 10, 40), (40, 10, 10), (36, 36, 40), (40, 36, 36), (84, 84, 3), (3, 35, 84), (10, 10, 10)]
)
def test_images_get_the_network_that_cnn_policy_chooses(shape):
    import gymnasium as gym

    from sb3_robust_be.qrc.extractors import MinAtarCNN, extractor_for

    class Images(gym.Env):
        observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        action_space = gym.spaces.Discrete(2)

    name = f"Images{'x'.join(map(str, shape))}-v0"
    gym.register(name, Images, disable_env_checker=True)
    try:
        spec = compared_spec(name, "dqn")
    finally:
        del gym.registry[name]
    small = "features_extractor_class" in spec["arguments"]["policy_kwargs"]
    assert small == (extractor_for(Images.observation_space) is MinAtarCNN)


def test_qrdqn_is_a_single_agent():
    spec = compared_spec("CartPole-v1", "qrdqn", 50_000)
    assert (spec["function"], spec["compile"], spec["arguments"]["device"]) == (SINGLE, False, "cpu")
    assert compared_spec("CartPole-v1", "dqn", 10_000)["compile"]
    assert not compared_spec("CartPole-v1", "dqn", 9_999)["compile"]


@pytest.mark.parametrize("env", ["MinAtar/Breakout-v0", "SmallDict-v0"])
def test_images_and_dict_observations_run(env, tmp_path, monkeypatch):
    import gymnasium as gym

    if env not in gym.registry:
        gym.register(env, lambda: gym.wrappers.TimeLimit(_DictEnv(), 20))
    monkeypatch.setattr(compare_arguments, "_rate", lambda text: 0.001)
    arguments = ["--env", env, "--algos", "qlc,dqn,qrdqn", "--seeds", "2", "--steps", "60", "--out", str(tmp_path)]
    assert run(*arguments, "--executor", "serial", "--quiet") in (0, 1)
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 6


class _DictEnv(__import__("gymnasium").Env):
    def __init__(self):
        from gymnasium import spaces

        self.observation_space = spaces.Dict({"x": spaces.Box(-1.0, 1.0, (2,)), "n": spaces.Discrete(3)})
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), float(action), False, False, {}


# --- what the numbers say ---

FINALS = {
    "qlc": np.array([10.0, 11.0, 12.0, 13.0, 9.0, 10.0]),
    "dqn": np.array([1.0, 2.0, np.nan, 0.0, 1.0, 2.0]),
    "qrc": np.array([10.0, 10.5, 12.5, 13.0, 9.0, 10.0]),
}


def test_the_table():
    rows = summarise(FINALS, dict.fromkeys(FINALS, 0.001), "dqn")
    assert [row.algorithm for row in rows] == ["qlc", "qrc", "dqn"]
    qlc, _, dqn = rows
    assert qlc.mean.estimate == pytest.approx(65 / 6)
    assert qlc.mean.low < 65 / 6 < qlc.mean.high
    assert (qlc.median, qlc.worst_decile, qlc.failed, qlc.seeds) == (10.5, 9.0, 0, 6)
    assert qlc.beats_baseline is not None
    assert qlc.beats_baseline.estimate == 1.0
    # The failed seed counts as the lowest return, 0.
    assert (dqn.failed, dqn.mean.estimate, dqn.beats_baseline) == (1, 1.0, None)
    text = as_text(rows, "dqn")
    assert len({len(line.rstrip()) > 60 for line in text.splitlines()}) == 1


def test_the_sentence_says_what_is_resolved_and_what_is_not():
    rows = summarise(FINALS, dict.fromkeys(FINALS, 0.001), "dqn")
    sentence = verdict(rows, FINALS, "Cart")
    assert re.fullmatch(
        r"On Cart, over 6 seeds: qlc \(10\.83\) is above dqn \(1; difference of means \+9\.8 \[\S+ \S+\], p = \S+\); "
        r"qrc \(10\.83\) is above dqn \(1; difference of means \+9\.8 \[\S+ \S+\], p = \S+\); "
        r"not decided: qlc and qrc\.",
        sentence,
    )
    alike = {"qlc": FINALS["qlc"], "qrc": FINALS["qrc"]}
    rows = summarise(alike, dict.fromkeys(alike, 0.001), "qrc")
    assert verdict(rows, alike, "Cart") == "No difference between qlc, qrc on Cart is resolved by 6 seeds."


def test_a_wide_winner_does_not_hide_what_is_resolved():
    """The highest mean comes with the widest spread; the second is surely above the third."""
    rng = np.random.default_rng(0)
    finals = {
        "gq": np.concatenate((np.full(4, 200.0), np.full(6, -90.0))),
        "qlc": rng.normal(20.0, 1.0, 10),
        "dqn": rng.normal(10.0, 1.0, 10),
    }
    rows = summarise(finals, dict.fromkeys(finals, 0.1), "dqn")
    assert [row.algorithm for row in rows] == ["gq", "qlc", "dqn"]
    assert re.search(r"qlc \(\S+\) is above dqn", verdict(rows, finals, "X"))
    assert "gq and qlc" in verdict(rows, finals, "X")


def test_the_sentence_corrects_for_all_pairs():
    """Of equal algorithms, a difference is claimed in at most a twentieth of comparisons, however many there are."""
    rng = np.random.default_rng(1)
    claimed = 0
    for _ in range(150):
        finals = {f"a{i}": rng.normal(size=20) for i in range(4)}
        rows = [Row(name, 0.1, 20, _interval(x.mean()), 0.0, 0.0, 0, None) for name, x in finals.items()]
        rows.sort(key=lambda row: -row.mean.estimate)
        claimed += "is above" in verdict(rows, finals, "X")
    assert claimed <= 15


def _interval(mean):
    return Interval(float(mean), float(mean), float(mean), 0.95, "none")


# --- mistakes ---


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--env", "CartPole-v9"], "CartPole-v9"),
        (["--env", "PuddleWorld-v0"], "`PuddleWorld` doesn't exist. Did you mean 'RobustBE/PuddleWorld-v0'?"),
        (["--env", "CliffWorld-v0"], "`CliffWorld` doesn't exist. Did you mean 'RobustBE/CliffWorld-v0'?"),
        (["--env", "CartPol-v1"], "Did you mean: `CartPole`?"),
        (["--env", "Pendulum-v1"], "Discrete"),
        (["--env", "CartPole-v1", "--algos", "qlk"], "Did you mean 'qlc'"),
        (["--env", "LunarLander-v2"], "LunarLander-v2"),
        (["--env", "nosuchmodule:Env-v0"], "nosuchmodule"),
        (["--env", "Blackjack-v1"], "wrap it"),
        (["--env", "MinAtar/Breakout-v0", "--net-arch", "8"], "has images"),
        (["--env", "CartPole-v1", "--learning-rates", "2^9999"], "no step size"),
        (["--env", "CartPole-v1", "--algos", "qlc,qlc"], "each once"),
        (["--env", "CartPole-v1", "--seeds", "0"], "not a whole number from 1 on"),
        (["--env", "CartPole-v1", "--seeds", "x"], "argument --seeds: 'x' is not a whole number from 1 on"),
        (["--env", "CartPole-v1", "--algos", ""], "is no algorithm"),
        (["--env", "CartPole-v1", "--learning-rates", "2"], "no step size"),
        (["--env", "CartPole-v1", "--algos", "qlc", "--baseline", "dqn"], "not among"),
    ],
)
def test_mistakes_are_one_line(arguments, says, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(*arguments)
    assert stopped.value.code == 2
    assert says in capsys.readouterr().err.splitlines()[-1]


def test_step_sizes_may_be_powers():
    read = compare_arguments._rate
    assert read("2^-3") == read("2**-3") == read("0.125") == 0.125
    assert read("2^-3:0.01") == {"$linear": [0.125, 0.01]}
    for text in ("-1", "0.1:", "2^-3:2"):
        with pytest.raises(argparse.ArgumentTypeError):
            read(text)


def test_algorithms_are_checked():
    assert check_algorithms(["qlc", "qrdqn"]) == ["qlc", "qrdqn"]
    with pytest.raises(ValueError, match="one or more"):
        check_algorithms([])


def test_specs_are_json():
    spec = compared_spec("MinAtar/Breakout-v0", "dqn")
    assert json.loads(json.dumps(spec)) == spec
