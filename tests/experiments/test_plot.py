"""``plot``: figures and a table of logs, through the command; logs are written by SB3."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from log_files import write_log, write_monitor
from matplotlib import image
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

from sb3_robust_be import QLC, cli
from sb3_robust_be.evaluation import skewness_corrected_t
from sb3_robust_be.experiments.logs import Episodes, LoggedRun, Series, find_runs
from sb3_robust_be.experiments.plot.labelled_runs import label_of, labelled_runs, split_label
from sb3_robust_be.experiments.plot.measured_runs import UNKNOWN, by_environment
from sb3_robust_be.experiments.plot.run_measures import EPISODES, curve_of, final_of, points_at
from sb3_robust_be.report.style import looks

EP_REW_MEAN = "rollout/ep_rew_mean"


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plot(*arguments: str) -> int:
    return cli.main(["plot", *arguments])


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def constant(value, length=10, episodes=10):
    """Episodes of one return: a run of 100 steps."""
    return [(length, float(value))] * episodes


def seeds(folder, values, **options):
    for i, value in enumerate(values):
        write_monitor(folder / f"seed_{i}" / "monitor.csv", constant(value), **options)


# Through SB3: what is trained is found, labelled and drawn.


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two seeds each of QLC and SB3's DQN by SB3's own means, one run of QLC in a VecEnv of two environments."""
    folder = tmp_path_factory.mktemp("trained")
    for algorithm, kwargs in ((QLC, {"n_envs": 2}), (DQN, {}), (QLC, {"n_envs": 1}), (DQN, {})):
        name = algorithm.__name__.lower()
        run = folder / "logs" / name / f"run_{sum(1 for _ in (folder / 'logs' / name).glob('*'))}"
        env = make_vec_env("CartPole-v1", **{"n_envs": 1, **kwargs}, monitor_dir=str(run), seed=0)
        model = algorithm(
            *("MlpPolicy", env),
            learning_starts=20,
            policy_kwargs={"net_arch": [8]},
            tensorboard_log=str(run),
            device="cpu",
        )
        model.learn(400, log_interval=2)
        env.close()
    return folder


def test_runs_of_sb3_by_folder(trained, monkeypatch, capsys):
    monkeypatch.chdir(trained)
    assert plot("logs", "--out", "figures") == 0
    shown = capsys.readouterr().out
    assert "Episode return, last quarter of training, CartPole-v1 before step" in shown
    assert "2 Monitor files that were written at the same time" in shown
    made = trained / "figures" / "plot"
    table = {row["label"]: row for row in rows_of(made / "table.csv")}
    assert {label: row["seeds"] for label, row in table.items()} == {"qlc": "2", "dqn": "2"}
    # The diagnostics are QLC's; SB3's DQN has none and is simply not there.
    diagnostics = rows_of(made / "diagnostics.csv")
    assert {row["panel"] for row in diagnostics} == {"clip fraction", "correction ratio", "h explained"}
    assert {row["algorithm"] for row in diagnostics} == {"qlc"}
    assert any(np.isfinite(float(row["mean"])) for row in diagnostics)
    for name in ("learning-curves", "distributions", "diagnostics"):
        assert image.imread(made / f"{name}.png")[..., :3].std() > 0.02
        assert (made / f"{name}.svg").read_bytes().startswith(b"<?xml")
    page = (trained / "figures" / "plot.html").read_text()
    assert page.index("diagnostics.png") < page.index("worst 10 %"), "the table is beneath the figures"
    assert looks(table)["dqn"] == looks(["dqn"])["dqn"], "an algorithm has its own colour"


def test_the_table_is_that_of_the_episodes(trained, monkeypatch):
    """Computed here from the files, step by step."""
    monkeypatch.chdir(trained)
    assert plot("DQN=logs/dqn/*", "--out", "of-dqn", "--steps", "300") == 0
    means = []
    for path in (trained / "logs" / "dqn").glob("*/0.monitor.csv"):
        rows = list(csv.DictReader(path.read_text().splitlines()[1:]))
        of_each_step = [float(row["r"]) for row in rows for _ in range(int(row["l"]))]
        means.append(np.mean(of_each_step[225:300]))
    (row,) = rows_of(trained / "of-dqn" / "plot" / "table.csv")
    assert float(row["mean"]) == pytest.approx(np.mean(means))
    assert float(row["median"]) == pytest.approx(np.median(means))
    assert float(row["worst_decile"]) == pytest.approx(min(means))
    assert row["label"] == "DQN"


# Measures by hand.


def run_of(*environments, series=()):
    return LoggedRun(
        *("run", (), "A"), tuple(Episodes(np.array(lengths), np.array(r, float)) for lengths, r in environments), series
    )


def test_the_final_value_of_one_environment():
    # Steps 75 … 99: five of the episode of return 1, twenty of that of return 6.
    run = run_of(([80, 30], [1.0, 6.0]))
    assert final_of(run, EPISODES, 100) == pytest.approx((5 * 1.0 + 20 * 6.0) / 25)


def test_the_final_value_of_two_environments_is_the_mean_of_both():
    """100 steps are 50 of each; the last quarter is step 38 … 49 of each (round(12.5) = 12 steps)."""
    run = run_of(([40, 10], [2.0, 4.0]), ([50], [10.0]))
    assert final_of(run, EPISODES, 100) == pytest.approx(((2 * 2.0 + 10 * 4.0) / 12 + 10.0) / 2)


def test_a_run_that_ends_before_the_last_quarter_has_no_final_value():
    assert np.isnan(final_of(run_of(([75], [1.0])), EPISODES, 100))
    assert final_of(run_of(([76], [1.0])), EPISODES, 100) == 1.0


def test_a_curve_goes_as_far_as_the_log():
    curve = curve_of(run_of(([100, 50], [1.0, 3.0])), EPISODES, 200)
    np.testing.assert_array_equal(curve, [*[1.0] * 50, *[3.0] * 25, *[np.nan] * 25])


def test_a_curve_of_fewer_steps_than_points():
    curve = curve_of(run_of(([1, 1, 2], [1.0, 2.0, 3.0])), EPISODES, 4)
    np.testing.assert_array_equal(curve, np.repeat([1.0, 2.0, 3.0, 3.0], 25))


def test_an_entry_of_the_log():
    series = {"eval/mean_reward": Series(np.array([0.0, 100.0]), np.array([0.0, 100.0]))}
    run = run_of(series=series)
    np.testing.assert_allclose(curve_of(run, "eval/mean_reward", 100), points_at(100))
    assert final_of(run, "eval/mean_reward", 100) == pytest.approx(87.5)


# Labels.


@pytest.mark.parametrize(
    ("argument", "split"),
    [("logs/dqn", (None, "logs/dqn")), ("a b=x/*=y", ("a b", "x/*=y")), ("with=sign", (None, "with=sign"))],
)
def test_the_label_of_an_argument(argument, split, tmp_path):
    (tmp_path / "with=sign").mkdir()
    assert split_label(argument) == split


@pytest.mark.parametrize("argument", ["=logs", "dqn=", " = "])
def test_an_empty_label_or_pattern_is_an_error(argument, capsys):
    assert plot(argument) == 2
    assert "empty label or pattern" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("folders", "label"),
    [
        (["logs/qlc/CartPole-v1_1", "logs/qlc/CartPole-v1_1/CartPole-v1"], "qlc"),
        (["logs/ppo/CartPole-v1_1", "logs/ppo/CartPole-v1_1/CartPole-v1"], "ppo"),
        (["logs/tensorboard/CartPole-v1/QRCHuber_12"], "qrc_huber"),
        (["logs/QRC-Huber/0"], "qrc_huber"),
        (["logs/deep/qrc/gq_huber/seed0"], "gq_huber"),
        (["logs/mine/CartPole-v1_1"], "logs"),
    ],
)
def test_the_label_of_a_run(folders, label, tmp_path):
    """Of rl_zoo3 the second folder has args.yml, whatever the algorithm is called."""
    write_monitor(tmp_path / folders[0] / "monitor.csv", constant(1))
    for folder in folders[1:]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "args.yml").write_text("")
    for root in ("logs", tmp_path / "logs"):
        assert list(labelled_runs([str(root)]).runs) == [label]


def test_the_name_of_a_tensorboard_run(tmp_path):
    write_log(tmp_path / "tb" / "PPO_1", [(100, {EP_REW_MEAN: 1.0})], ["tensorboard"])
    (run,) = find_runs(tmp_path / "tb").runs
    assert label_of(run, tmp_path / "tb") == "PPO"


def test_equal_labels_of_several_folders_are_told_apart(tmp_path):
    seeds(tmp_path / "a" / "dqn", [1, 2])
    seeds(tmp_path / "b" / "dqn", [3])
    found = labelled_runs(["a/dqn", "b/dqn"])
    assert {label: len(own) for label, own in found.runs.items()} == {"dqn, a": 2, "dqn, b": 1}
    assert "LABEL=PATTERN" in found.notes[-1]
    look = looks(found.runs)
    assert look["dqn, a"].colour == look["dqn, b"].colour == looks(["dqn"])["dqn"].colour
    # What the shell makes of a/dqn/* is one label.
    found = labelled_runs(["a/dqn/seed_0", "a/dqn/seed_1"])
    assert {label: len(own) for label, own in found.runs.items()} == {"dqn": 2}


def comparison(folder, algorithms=("dqn", "qlc")):
    """What `compare` leaves: the runs of all algorithms side by side, told apart by their specs alone."""
    for i, algorithm in enumerate(algorithms * 2):
        run = folder / "runs" / f"{i:08x}"
        write_monitor(run / "monitor.csv", constant(i))
        (run / "spec.json").write_text(json.dumps({"algorithm": algorithm, "env": "CartPole-v1", "seed": i}))


def test_runs_of_a_comparison_are_labelled_by_their_algorithm(tmp_path):
    comparison(tmp_path / "a")
    comparison(tmp_path / "b")
    for argument in ("a", "a/runs/*", "a/runs/*/monitor.csv"):
        assert {label: len(runs) for label, runs in labelled_runs([argument]).runs.items()} == {"dqn": 2, "qlc": 2}
    assert set(labelled_runs(["a", "b"]).runs) == {"dqn, a", "qlc, a", "dqn, b", "qlc, b"}
    given = labelled_runs(["old=a", "new=b"]).runs
    assert {label: len(runs) for label, runs in given.items()} == {
        "old/dqn": 2,
        "old/qlc": 2,
        "new/dqn": 2,
        "new/qlc": 2,
    }
    comparison(tmp_path / "c", ("qlc",))
    assert set(labelled_runs(["mine=c"]).runs) == {"mine"}, "one algorithm needs no other name than the given one"


def write_run(folder, seed, env="CartPole-v1", **arguments):
    write_monitor(folder / "monitor.csv", constant(seed))
    spec = {"algorithm": "qlc", "env": env, "seed": seed, "steps": 100 + seed, "arguments": arguments}
    (folder / "spec.json").write_text(json.dumps(spec))


def test_runs_of_several_settings_are_told_apart_by_what_differs(tmp_path):
    fall = {"$linear": [0.001, 0.0001]}
    for seed in (0, 1):
        write_run(tmp_path / f"a/runs/{seed}", seed, learning_rate=0.001, gamma=0.99)
        write_run(tmp_path / f"a/runs/{seed}f", seed, learning_rate=fall, gamma=0.99)
    found = labelled_runs(["a"])
    assert {label: len(runs) for label, runs in found.runs.items()} == {
        "qlc, learning_rate=0.001": 2,
        "qlc, learning_rate=0.001 → 0.0001": 2,
    }
    assert found.notes == ["Runs called qlc differ in learning_rate, and are drawn apart by that."]
    assert set(labelled_runs(["mine=a"]).runs) == {
        "mine, learning_rate=0.001",
        "mine, learning_rate=0.001 → 0.0001",
    }, "a given name does not pool them either"
    # An argument that some leave open; labels of other folders stay as they are.
    write_run(tmp_path / "b/runs/0", 0, gamma=0.99)
    write_run(tmp_path / "b/runs/1", 1, gamma=0.99, tau={"$float": "inf"})
    assert set(labelled_runs(["b"]).runs) == {"qlc", "qlc, tau=inf"}
    # However little they differ, and whatever somebody's own runs have there.
    for rate in (0.00123451, 0.00123452, "lin_0.001"):
        write_run(tmp_path / f"c/runs/{rate}", 0, learning_rate=rate)
    assert len(labelled_runs(["c"]).runs) == 3


def test_each_environment_may_have_its_own_setting(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / f"a/{seed}c", seed, gamma=0.99)
        write_run(tmp_path / f"a/{seed}m", seed, env="MountainCar-v0", gamma=0.98)
    found = labelled_runs(["a"])
    assert set(found.runs) == {"qlc"}
    assert found.notes == []


def test_a_label_that_is_given_twice_has_both_and_no_run_twice(tmp_path):
    seeds(tmp_path / "a", [1, 2])
    seeds(tmp_path / "b", [3])
    found = labelled_runs(["x=a", "x=b/*", "x=a/seed_0"])
    assert {label: len(own) for label, own in found.runs.items()} == {"x": 3}
    assert found.notes == ["x is given more than once: it has the runs of all its patterns."]


def test_patterns_over_files_and_folders(tmp_path):
    seeds(tmp_path / "dqn", [1, 2, 3])
    for pattern in ("x=dqn/*/monitor.csv", "x=dqn/*", "x=**", "x=dqn/seed_[012]"):
        assert {label: len(own) for label, own in labelled_runs([pattern]).runs.items()} == {"x": 3}, pattern


# What is said and what is drawn.


def test_one_seed_has_no_interval_and_the_others_have(tmp_path, capsys):
    seeds(tmp_path / "one", [5])
    seeds(tmp_path / "three", [1, 2, 6])
    assert plot("one", "three") == 0
    shown = capsys.readouterr().out
    assert "One seed has no interval: one." in shown
    one, three = rows_of(tmp_path / "plots" / "one-three" / "plot" / "table.csv")
    assert (one["label"], float(one["mean"]), one["mean_low"], one["mean_high"]) == ("one", 5.0, "nan", "nan")
    assert float(three["mean"]) == 3.0
    expected = skewness_corrected_t([1.0, 2.0, 6.0])
    assert float(three["mean_low"]) == pytest.approx(expected.low)
    assert float(three["mean_high"]) == pytest.approx(expected.high)


def test_runs_of_different_lengths(tmp_path, capsys):
    """The table is cut to the shortest and says so; curves go on, their means where all have a value."""
    write_monitor(tmp_path / "dqn" / "0" / "monitor.csv", [(40, 1.0), (60, 2.0)])
    write_monitor(tmp_path / "dqn" / "1" / "monitor.csv", [(40, 3.0), (160, 4.0)])
    assert plot("dqn") == 0
    shown = capsys.readouterr().out
    assert "between step 100 (dqn, dqn/0) and step 200" in shown
    made = tmp_path / "plots" / "dqn" / "plot"
    (row,) = rows_of(made / "table.csv")
    assert (float(row["mean"]), row["until_step"]) == (3.0, "100")
    points = rows_of(made / "learning-curves.csv")
    assert float(points[-1]["step"]) == 199.0
    assert [(float(p["mean"]), p["runs"]) for p in (points[0], points[49])] == [(2.0, "2"), (3.0, "2")]
    assert (points[50]["mean"], points[50]["low"], points[50]["runs"]) == ("nan", "nan", "1")


def test_steps_cut_and_leave_out(tmp_path, capsys):
    write_monitor(tmp_path / "dqn" / "0" / "monitor.csv", [(40, 1.0), (60, 2.0)])
    write_monitor(tmp_path / "dqn" / "1" / "monitor.csv", [(40, 3.0), (160, 4.0)])
    assert plot("dqn", "--steps", "200", "--out", "a") == 0
    shown = capsys.readouterr().out
    assert "dqn: 1 of 2 runs have nothing in the last quarter before step 200 and are left out" in shown
    (row,) = rows_of(tmp_path / "a" / "plot" / "table.csv")
    assert (row["seeds"], row["mean"]) == ("1", "4.0")
    assert plot("dqn", "--steps", "40", "--out", "b") == 0
    (row,) = rows_of(tmp_path / "b" / "plot" / "table.csv")
    assert (row["seeds"], row["mean"]) == ("2", "2.0")
    assert float(rows_of(tmp_path / "b" / "plot" / "learning-curves.csv")[-1]["step"]) < 40
    assert plot("dqn", "--steps", "1000") == 2
    assert "the longest ends at step 200" in capsys.readouterr().err


@pytest.mark.parametrize("steps", ["0", "-5", "many"])
def test_steps_that_are_none(steps, capsys):
    with pytest.raises(SystemExit):
        plot("dqn", "--steps", steps)
    assert "--steps" in capsys.readouterr().err


def test_the_log_of_sb3_stands_in_for_monitor_files(tmp_path, capsys):
    seeds(tmp_path / "dqn", [1, 2])
    for i in range(2):
        write_log(tmp_path / "ppo" / str(i), [(10, {EP_REW_MEAN: 3.0 + i}), (100, {EP_REW_MEAN: 3.0 + i})])
    write_log(tmp_path / "dqn" / "log", [(100, {"train/h_explained": 0.5}), (50, {"train/h_explained": 0.5})])
    assert plot("dqn", "ppo") == 0
    shown = capsys.readouterr().out
    assert "ppo has no Monitor files. Its returns are those of SB3's log, rollout/ep_rew_mean" in shown
    assert "dqn: 1 of 3 logs have no Monitor files, and count in the diagnostics only." in shown
    made = tmp_path / "plots" / "dqn-ppo" / "plot"
    assert [(row["label"], float(row["mean"])) for row in rows_of(made / "table.csv")] == [("ppo", 3.5), ("dqn", 1.5)]
    assert {row["panel"] for row in rows_of(made / "diagnostics.csv")} == {"h explained"}


def test_another_measure(tmp_path, capsys):
    records = [(10, {"eval/mean_reward": 8.0}), (100, {"eval/mean_reward": 8.0, EP_REW_MEAN: 1.0})]
    write_log(tmp_path / "dqn" / "0", records)
    assert plot("dqn", "--measure", "eval/mean_reward") == 0
    assert "Eval/mean_reward" not in (shown := capsys.readouterr().out)
    assert "eval/mean_reward, last quarter of training" in shown
    (row,) = rows_of(tmp_path / "plots" / "dqn" / "plot" / "table.csv")
    assert row["mean"] == "8.0"
    assert plot("dqn", "--measure", "eval/mean_rewrad") == 2
    said = capsys.readouterr().err
    assert "Did you mean 'eval/mean_reward'?" in said
    assert "There are eval/mean_reward, rollout/ep_rew_mean, time/total_timesteps." in said


def test_a_measure_where_only_monitor_files_are(tmp_path, capsys):
    seeds(tmp_path / "dqn", [1])
    assert plot("dqn", "--measure", "eval/mean_reward") == 2
    assert "Monitor files only" in capsys.readouterr().err


def test_environments_are_never_averaged(tmp_path, capsys):
    seeds(tmp_path / "dqn" / "a", [1, 3], env_id="MinAtar/Breakout-v1")
    seeds(tmp_path / "dqn" / "b", [100, 300], env_id="CartPole-v1")
    assert plot("dqn") == 0
    shown = capsys.readouterr().out
    assert "Warning: the runs are of several environments, MinAtar/Breakout-v1, CartPole-v1." in shown
    made = tmp_path / "plots" / "dqn" / "plot"
    found = {row["environment"]: float(row["mean"]) for row in rows_of(made / "table.csv")}
    assert found == {"MinAtar/Breakout-v1": 2.0, "CartPole-v1": 200.0}
    assert {row["panel"] for row in rows_of(made / "learning-curves.csv")} == set(found)


def test_the_environment_of_a_log_without_its_name():
    def log(folder):
        return LoggedRun(folder, (folder,), None, (), {"x": Series(np.ones(1), np.ones(1))})

    def monitored(env_id):
        return run_of(([1], [1.0]))._replace(env_id=env_id)

    in_folder, elsewhere = log(Path("logs/tensorboard/MinAtar-Breakout-v1/QLC_1")), log(Path("logs/QLC_2"))
    numbered = log(Path("logs/CartPole-v1_3"))
    several = {"a": [monitored("MinAtar/Breakout-v1"), monitored("CartPole-v1")], "b": [in_folder, elsewhere, numbered]}
    found = by_environment(several)
    assert found["MinAtar/Breakout-v1"]["b"] == [in_folder]
    assert found["CartPole-v1"]["b"] == [numbered]
    assert found[UNKNOWN] == {"b": [elsewhere]}
    assert list(by_environment({"a": [monitored("X")], "b": [elsewhere]})) == ["X"]
    assert list(by_environment({"b": [elsewhere]})) == [UNKNOWN]


# What cannot be read costs only itself.


def test_what_cannot_be_read_is_said_and_the_rest_is_drawn(tmp_path, capsys):
    seeds(tmp_path / "good", [1, 2])
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "monitor.csv").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("r,l,t")
    (tmp_path / "nothing").mkdir()
    assert plot("good", "empty", "nothing", "notes.txt", "x=no/such/*") == 1
    shown, said = capsys.readouterr()
    assert len(said.strip().splitlines()) == 4
    assert "empty/monitor.csv is empty." in said
    assert "nothing has no logs, which are monitor.csv" in said
    assert "notes.txt has no logs, which are monitor.csv" in said
    assert "no/such/* matches no file and no folder." in said
    assert "good" in shown
    assert "monitor.csv is empty" in (tmp_path / "plots" / "good" / "plot.html").read_text()


def test_nothing_to_draw_is_one_error(tmp_path, capsys):
    assert plot("no/such") == 2
    assert "no run was found. Name folders that have monitor.csv" in capsys.readouterr().err
    assert not (tmp_path / "plots").exists()
    write_log(tmp_path / "log", [(100, {"train/loss": 0.5})])
    assert plot("log") == 2
    assert "neither Monitor files nor rollout/ep_rew_mean" in capsys.readouterr().err
    write_log(tmp_path / "short", [(100, {EP_REW_MEAN: 0.5})])
    assert plot("short") == 2
    assert "logs with more than one record" in capsys.readouterr().err


def test_a_killed_run_is_drawn(tmp_path, capsys):
    seeds(tmp_path / "dqn", [1, 2])
    with (tmp_path / "dqn" / "seed_0" / "monitor.csv").open("a") as file:
        file.write("17.0,1")
    assert plot("dqn") == 0
    assert "incomplete last line" in capsys.readouterr().out


def test_without_tensorboard_the_rest_is_drawn(tmp_path, monkeypatch, capsys):
    seeds(tmp_path / "dqn", [1, 2])
    write_log(tmp_path / "qlc" / "QLC_1", [(100, {EP_REW_MEAN: 1.0})], ["tensorboard"])
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing", None)
    assert plot("dqn", "qlc") == 1
    assert 'pip install "sb3-robust-be[report]"' in capsys.readouterr().err


# Folders.


def test_a_folder_is_never_anothers(tmp_path, capsys):
    seeds(tmp_path / "dqn", [1, 2])
    assert plot("dqn") == 0
    assert plot("dqn") == 0, "the same plot again replaces its own"
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["dqn"]
    assert plot("dqn", "--steps", "50") == 0
    assert "plots/dqn-2/plot.html" in capsys.readouterr().out
    first = (tmp_path / "plots" / "dqn" / "plot" / "table.csv").read_bytes()
    assert first != (tmp_path / "plots" / "dqn-2" / "plot" / "table.csv").read_bytes()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    for out in ("mine", "plots/dqn", "mine/thesis.txt"):
        assert plot("dqn", "--steps", "20", "--out", out) == 2
        assert f"--out {out} has something else" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    made_of = json.loads((tmp_path / "plots" / "dqn-2" / "plot.json").read_text())
    assert made_of == {"logs": [[None, str(tmp_path / "dqn")]], "measure": "return", "steps": 50}


def test_a_folder_that_cannot_be_made(tmp_path, capsys):
    seeds(tmp_path / "dqn", [1, 2])
    (tmp_path / "file").write_text("")
    assert plot("dqn", "--out", "file/below") == 2
    assert "make the folder writable or choose another" in capsys.readouterr().err


def test_a_label_of_any_signs_makes_a_folder(tmp_path):
    seeds(tmp_path / "dqn", [1, 2])
    assert plot("../κ: 1/2 <b>=dqn") == 0
    (made,) = (tmp_path / "plots").iterdir()
    assert (made / "plot.html").is_file()


def test_the_logs_are_left_as_they_are(tmp_path):
    seeds(tmp_path / "dqn", [1, 2])
    before = {path: path.read_bytes() for path in (tmp_path / "dqn").rglob("*.csv")}
    assert plot("dqn") == 0
    assert {path: path.read_bytes() for path in (tmp_path / "dqn").rglob("*") if path.is_file()} == before
