"""``compare --baseline-monitor``: Monitor files of runs that were made elsewhere, in the baseline's place."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

from sb3_robust_be import cli
from sb3_robust_be.experiments.compare.recordings import find_recordings, measure_recordings

HEADER = '#{"t_start": 1.0, "env_id": "CartPole-v1"}\nr,l,t\n'
SMALL = ["--seeds", "5", "--steps", "100", "--net-arch", "4", "--executor", "serial", "--quiet"]


def run(*arguments: str) -> int:
    return cli.main(["compare", "--env", "CartPole-v1", *arguments])


def record(folder, name, episodes, header=HEADER, end="\n"):
    """A Monitor file of (return, length) pairs."""
    path = folder / name / "monitor.csv"
    path.parent.mkdir(parents=True)
    rows = [f"{value},{length},{i}.5" for i, (value, length) in enumerate(episodes)]
    path.write_text(header + "\n".join(rows) + end)
    return path


def test_measures_by_hand(tmp_path):
    """Of 100 steps the last 25 count: 5 with the return 1, 20 with 3."""
    record(tmp_path, "0", [(2.0, 40), (1.0, 40), (3.0, 20)])
    # Cut in the middle of its last episode, whose return its last 25 steps have.
    record(tmp_path, "1", [(1.0, 60), (7.0, 90), (100.0, 5)])
    # Over the last quarter of its own 40 steps.
    record(tmp_path, "2", [(5.0, 30), (9.0, 10)])
    runs, notes = find_recordings([str(tmp_path / "*" / "monitor.csv")])
    assert notes == []
    found = measure_recordings(runs, 100, "CartPole-v1")
    np.testing.assert_allclose(found.finals, [(5 * 1.0 + 20 * 3.0) / 25, 7.0, 9.0])
    assert found.curves.shape == (3, 100)
    np.testing.assert_array_equal(found.curves[0], [2.0] * 40 + [1.0] * 40 + [3.0] * 20)
    np.testing.assert_array_equal(found.curves[2][:40], [5.0] * 30 + [9.0] * 10)
    assert np.isnan(found.curves[2][40:]).all()
    assert found.notes == [
        "1 of 3 recordings are longer (155 steps) and are cut to 100 steps.",
        "Warning: 1 of 3 recordings end before 100 steps (after 40): each is measured over the last quarter of its "
        "own; --steps 40 would compare equal lengths.",
    ]


def test_of_fewer_steps_than_points_there_is_one_for_each(tmp_path):
    record(tmp_path, "0", [(2.0, 4), (1.0, 3), (3.0, 60)])
    found = measure_recordings(find_recordings([str(tmp_path / "*/*")])[0], 30, "CartPole-v1")
    np.testing.assert_array_equal(found.curves, [[2.0] * 4 + [1.0] * 3 + [3.0] * 23])


def test_a_recording_that_lacks_its_last_episode_is_of_the_same_length(tmp_path):
    record(tmp_path, "0", [(2.0, 40), (1.0, 40)])
    assert measure_recordings(find_recordings([str(tmp_path / "*/*")])[0], 100, "CartPole-v1").notes == []


def test_another_environment_is_said(tmp_path):
    record(tmp_path, "0", [(2.0, 100)], HEADER.replace("CartPole-v1", "Acrobot-v1"))
    runs, _ = find_recordings([str(tmp_path / "*/*")])
    (note,) = measure_recordings(runs, 100, "my:CartPole-v1").notes
    assert note == "Warning: recordings are of Acrobot-v1, and the runs of my:CartPole-v1."
    assert measure_recordings(runs, 100, "my:Acrobot-v1").notes == []


def test_several_environments_of_one_run_share_its_steps(tmp_path):
    """SB3's own files of a run in two environments: each has half of the steps."""
    env = make_vec_env("CartPole-v1", 2, monitor_dir=str(tmp_path), seed=0)
    DQN("MlpPolicy", env, learning_starts=1000, seed=0).learn(400)
    env.close()
    runs, notes = find_recordings([str(tmp_path / "*.monitor.csv")])
    assert len(runs) == 1
    assert "one run" in notes[0]
    found = measure_recordings(runs, 200, "CartPole-v1")
    values = []
    for rank in range(2):
        rows = list(csv.DictReader((tmp_path / f"{rank}.monitor.csv").read_text().splitlines()[1:]))
        per_step = [float(row["r"]) for row in rows for _ in range(int(row["l"]))]
        values.append(np.mean(per_step[75:100]))
    np.testing.assert_allclose(found.finals, [np.mean(values)])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    rng = np.random.default_rng(0)
    for seed in range(6):
        record(folder, f"dqn_{seed}", [(float(n), n) for n in rng.integers(8, 12, 12).tolist()])
    return folder


def test_the_command(recorded, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pattern = str(recorded / "*" / "monitor.csv")
    assert run("--baseline-monitor", pattern, "--algos", "qrc", *SMALL) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^recorded +– +6 +\S+ \[.*–$", printed, re.MULTILINE)
    assert "P(above recorded)" in printed
    (out,) = (tmp_path / "compare").iterdir()
    # Nothing but the algorithm's own seeds was trained.
    assert len(list(out.glob("runs/*/result.json"))) == 5
    (found,) = out.glob("compare-recorded-*.json")
    written = json.loads(found.read_text())
    assert written["baseline"] == "recorded"
    rows = list(csv.DictReader(found.with_suffix(".csv").read_text().splitlines()))
    assert sum(row["algorithm"] == "recorded" and row["file"].startswith(str(recorded)) for row in rows) == 6
    (mean,) = [row["mean"]["estimate"] for row in written["algorithms"] if row["algorithm"] == "recorded"]
    own = [float(row["return_last_quarter"]) for row in rows if row["algorithm"] == "recorded"]
    assert mean == pytest.approx(np.mean(own))
    # Without the recordings it is another comparison of the same runs.
    assert run("--algos", "qrc", *SMALL) == 0
    assert len(list(out.glob("runs/*/result.json"))) == 5
    assert {path.name for path in out.glob("*.json")} == {"compare.json", found.name}


def test_by_default_nothing_is_trained_for_the_baseline(recorded):
    from sb3_robust_be.experiments.compare import compare_arguments

    comparison = compare_arguments.parse(
        ["--env", "CartPole-v1", "--baseline-monitor", str(recorded / "*/monitor.csv")]
    )
    assert comparison.algorithms == ["qlc", "qrc_huber"]


def test_other_files_of_the_same_folder_have_results_of_their_own(tmp_path):
    from sb3_robust_be.experiments.compare import compare_arguments

    path = record(tmp_path, "bad", [(1.0, 100)])
    files = [path.with_name(name) for name in ("t.monitor.csv", "o.monitor.csv")]
    for file in files:
        file.write_text(path.read_text())
    stems = [
        compare_arguments.parse(["--env", "CartPole-v1", "--baseline-monitor", *map(str, given)]).stem
        for given in (files[:1], files[1:], files, [path.parent / "*.csv"])
    ]
    assert len(set(stems)) == 4
    runs, _ = find_recordings([str(files[0])])
    assert measure_recordings(runs, 100, "CartPole-v1").paths == [str(files[0])]


def test_the_file_of_the_dqn_that_was_recorded_is_taken(recorded, tmp_path):
    from sb3_robust_be.experiments.compare import compare_arguments

    config = tmp_path / "dqn.yml"
    config.write_text("default: {gamma: 0.9, target_update_interval: 10}")
    recordings = str(recorded / "*/monitor.csv")
    compare_arguments.parse(["--env", "CartPole-v1", "--baseline-monitor", recordings, "--config", str(config)])


def test_the_end_of_a_killed_run_is_said(tmp_path, capsys):
    record(tmp_path, "0", [(1.0, 50), (2.0, 60), (3.0, 7)], end="\n4.0,1")
    runs, (note,) = find_recordings([str(tmp_path / "*/*")])
    assert "incomplete last line" in note
    assert runs[0].episodes[0].lengths.tolist() == [50, 60, 7]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        (HEADER, "no episode that ended"),
        ("a,b\n1,2\n", "is not a file of SB3's Monitor"),
        (HEADER + "1.0,x,2.0\n1.0,2,3.0\n", "for episode 1"),
        (HEADER + "nan,5,2.0\n1.0,2,3.0\n", "for episode 1"),
    ],
)
def test_files_that_cannot_be_read(text, says, tmp_path, capsys):
    record(tmp_path, "0", [(1.0, 100)])
    path = tmp_path / "1" / "monitor.csv"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(SystemExit, match="2"):
        run("--baseline-monitor", str(tmp_path / "*/monitor.csv"), *SMALL)
    error = capsys.readouterr().err.splitlines()[-1]
    assert str(path) in error
    assert says in error


def test_no_file_and_no_monitor_file(tmp_path, capsys):
    (tmp_path / "other.csv").write_text("x")
    for pattern, says in (
        ("nothing/*", "matches no file"),
        (str(tmp_path / "*"), "no Monitor file of SB3 by its name"),
    ):
        with pytest.raises(SystemExit, match="2"):
            run("--baseline-monitor", pattern, *SMALL)
        assert says in capsys.readouterr().err.splitlines()[-1]
    with pytest.raises(SystemExit, match="2"):
        run("--baseline-monitor", "x", "--baseline", "qlc", *SMALL)
    assert "give one" in capsys.readouterr().err.splitlines()[-1]
