"""Logs that runs have left on disk, written by SB3's own Monitor and logger."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest
from log_files import write_log, write_monitor
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import load_results

from sb3_robust_be.experiments.logs import (
    Episodes,
    LogError,
    Series,
    find_runs,
    read_events,
    read_monitor,
    read_progress,
    runs_of_files,
)


def test_a_file_of_sb3s_monitor_is_what_sb3_reads(tmp_path):
    envs = make_vec_env("CartPole-v1", n_envs=1, seed=0, monitor_dir=str(tmp_path))
    envs.action_space.seed(0)
    envs.reset()
    for _ in range(200):
        envs.step(np.array([envs.action_space.sample()]))
    envs.close()
    read = read_monitor(tmp_path / "0.monitor.csv")
    theirs = load_results(str(tmp_path))
    assert len(theirs) > 3
    assert read.env_id == "CartPole-v1"
    assert not read.cut_off
    np.testing.assert_array_equal(read.episodes.lengths, theirs["l"])
    np.testing.assert_array_equal(read.episodes.returns, theirs["r"])
    assert abs(read.start - time.time()) < 600
    assert read.end == pytest.approx(read.start + theirs["t"].iloc[-1])


@pytest.mark.parametrize(("left_over", "episodes"), [("5.0,5,12\n", 3), ("5.0,5", 2), ("5.", 2), ("5.0,5,", 2)])
def test_an_incomplete_last_line_is_left_out_and_told(tmp_path, left_over, episodes):
    path = write_monitor(tmp_path / "monitor.csv", [(3, 3.0), (4, 4.0)])
    with path.open("a") as file:
        file.write(left_over)
    read = read_monitor(path)
    assert len(read.episodes.lengths) == episodes
    assert read.cut_off == (episodes == 2)
    notes = find_runs(tmp_path).notes
    assert any("incomplete last line" in note for note in notes) == (episodes == 2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b'#{"t_start": 1.0, "env_id": "A"}\nr,l,t\n', "no episode that ended"),
        (b"a,b\n1,2\n", "not a file of SB3's Monitor"),
        (b"#nothing\nr,l,t\n1,1,1\n", "not a file of SB3's Monitor"),
        (b'#{"t_start": 1.0}\nr,t\n1,1\n', "not a file of SB3's Monitor"),
        (b"\x89PNG\r\n\xff\xfe", "not a text file"),
        (b'#{"t_start": 1.0}\nr,l,t\n1.0,x,2\n1.0,2,3\n', "for episode 1"),
        (b'#{"t_start": 1.0}\nr,l,t\nnan,2,3\n', "for episode 1"),
        (b'#{"t_start": 1.0}\nr,l,t\n1.0,2.5,3\n', "for episode 1"),
    ],
)
def test_what_is_no_monitor_file_is_one_sentence(tmp_path, content, said):
    path = tmp_path / "monitor.csv"
    path.write_bytes(content)
    with pytest.raises(LogError, match=said) as caught:
        read_monitor(path)
    assert str(path) in str(caught.value)
    write_monitor(tmp_path / "other" / "monitor.csv", [(3, 3.0)])
    found = find_runs(tmp_path)
    assert found.problems == (str(caught.value),)
    assert [run.path for run in found.runs] == [tmp_path / "other"], "the other run is still read"


def test_an_absent_file(tmp_path):
    with pytest.raises(LogError, match="No such file"):
        read_monitor(tmp_path / "monitor.csv")


def test_environments_without_an_id_have_none(tmp_path):
    assert read_monitor(write_monitor(tmp_path / "monitor.csv", [(1, 1.0)], env_id=None)).env_id is None


def test_episodes_until_a_step():
    episodes = Episodes(np.array([3, 4, 2]), np.array([1.0, 2.0, 3.0]))
    assert episodes.steps == 9
    cut = episodes.until(5)
    assert cut.lengths.tolist() == [3, 2]
    assert cut.returns.tolist() == [1.0, 2.0]
    assert episodes.until(3).lengths.tolist() == [3]
    assert episodes.until(100).lengths.tolist() == [3, 4, 2]


RECORDS = [
    (100, {"rollout/ep_rew_mean": 1.5}),
    (200, {"rollout/ep_rew_mean": 2.5, "train/h_explained": 0.25, "text": "a, b"}),
    (200, {"eval/mean_reward": 7.0}),
    (300, {"rollout/ep_rew_mean": 4.0, "train/h_explained": float("nan")}),
]


def expected_of(series):
    assert series["rollout/ep_rew_mean"].steps.tolist() == [100, 200, 300]
    assert series["rollout/ep_rew_mean"].values.tolist() == [1.5, 2.5, 4.0]
    assert series["train/h_explained"].values.tolist() == [0.25], "NaN is no number"
    assert series["eval/mean_reward"].steps.tolist() == [200]
    assert "text" not in series


def test_progress_csv(tmp_path):
    write_log(tmp_path, RECORDS)
    expected_of(read_progress(tmp_path / "progress.csv"))


def test_event_files(tmp_path):
    write_log(tmp_path, RECORDS, ["tensorboard"])
    expected_of(read_events(tmp_path))


def test_the_last_line_of_a_killed_run(tmp_path):
    write_log(tmp_path, [(100, {"rollout/ep_rew_mean": 1.5}), (200, {"rollout/ep_rew_mean": 2.5})])
    path = tmp_path / "progress.csv"
    path.write_text(path.read_text().rstrip("\n").rpartition(",")[0])
    assert read_progress(path)["rollout/ep_rew_mean"].values.tolist() == [1.5]


@pytest.mark.parametrize(
    ("content", "said"),
    [("", "is empty"), ("a,b\n1,2\n", "no column time/total_timesteps"), ("time/total_timesteps\n", "has no numbers")],
)
def test_what_is_no_progress_csv_is_one_sentence(tmp_path, content, said):
    path = tmp_path / "progress.csv"
    path.write_text(content)
    with pytest.raises(LogError, match=said):
        read_progress(path)


def test_event_files_with_nothing_in_them(tmp_path):
    (tmp_path / "events.out.tfevents.1.x").write_bytes(b"something else " * 20)
    with pytest.raises(LogError, match="has no numbers"):
        read_events(tmp_path)


def test_without_tensorboard_the_extra_is_named(tmp_path, monkeypatch):
    write_log(tmp_path / "a", RECORDS, ["tensorboard"])
    write_log(tmp_path / "b", RECORDS, ["csv", "tensorboard"])
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing", None)
    found = find_runs(tmp_path)
    assert [run.path for run in found.runs] == [tmp_path / "b"], "progress.csv needs no package"
    (problem,) = found.problems
    assert 'pip install "sb3-robust-be[report]"' in problem


def test_between_records_the_series_is_linear():
    at = Series(np.array([100.0, 300.0]), np.array([1.0, 3.0])).at(np.array([50.0, 100.0, 200.0, 300.0, 301.0]))
    np.testing.assert_array_equal(at, [np.nan, 1.0, 2.0, 3.0, np.nan])


def test_numbered_files_of_one_time_are_one_run(tmp_path):
    for i in range(11):
        write_monitor(tmp_path / f"{i}.monitor.csv", [(5, float(i))], start=1000.0 + 0.1 * i)
    (run,) = find_runs(tmp_path).runs
    assert [one.returns.tolist() for one in run.episodes] == [[float(i)] for i in range(11)], "in their order"
    assert run.path == tmp_path
    assert run.env_id == "CartPole-v1"


def test_numbered_files_one_after_another_are_runs(tmp_path):
    for i in range(3):
        write_monitor(tmp_path / f"{i}.monitor.csv", [(5, float(i))], start=1000.0 + 10 * i)
    runs = find_runs(tmp_path).runs
    assert [run.path.name for run in runs] == ["0.monitor.csv", "1.monitor.csv", "2.monitor.csv"]


def test_named_files_are_runs(tmp_path):
    for name in ("a.monitor.csv", "b.monitor.csv"):
        write_monitor(tmp_path / name, [(5, 1.0)])
    assert [run.path.name for run in find_runs(tmp_path).runs] == ["a.monitor.csv", "b.monitor.csv"]


def test_the_files_of_a_folder_are_one_run(tmp_path):
    write_monitor(tmp_path / "monitor.csv", [(5, 1.0)])
    write_log(tmp_path, RECORDS, ["csv", "tensorboard"])
    (run,) = find_runs(tmp_path).runs
    assert len(run.episodes) == 1
    expected_of(run.series)


def test_the_logger_below_the_monitor_files_belongs_to_them(tmp_path):
    """As of ``DQN(…, Monitor(env, folder), tensorboard_log=folder)``."""
    write_monitor(tmp_path / "0" / "monitor.csv", [(5, 1.0)])
    write_log(tmp_path / "0" / "DQN_1", RECORDS)
    write_monitor(tmp_path / "1" / "monitor.csv", [(5, 1.0)])
    write_log(tmp_path / "1" / "DQN_1", RECORDS)
    write_log(tmp_path / "1" / "DQN_2", RECORDS)
    joined, alone, *logs = find_runs(tmp_path).runs
    assert joined.folders == (tmp_path / "0", tmp_path / "0" / "DQN_1")
    expected_of(joined.series)
    assert alone.series == {}, "of two logs nobody can say which one is its own"
    assert [run.path.name for run in logs] == ["DQN_1", "DQN_2"]


def test_the_monitor_files_of_an_evaluation_are_left_out(tmp_path):
    write_monitor(tmp_path / "run" / "monitor.csv", [(5, 1.0)])
    write_monitor(tmp_path / "run" / "eval" / "monitor.csv", [(5, 100.0)])
    found = find_runs(tmp_path)
    (run,) = found.runs
    assert run.episodes[0].returns.tolist() == [1.0]
    assert len(found.notes) == 1
    assert "eval" in found.notes[0]
    (evaluation,) = runs_of_files([tmp_path / "run" / "eval" / "monitor.csv"]).runs
    assert evaluation.episodes[0].returns.tolist() == [100.0], "named, it is read"


def test_a_folder_without_logs(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    assert find_runs(tmp_path) == ((), (), ())
