"""Saving: the old file stays until the new one is complete, and paths mean what they mean to SB3."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
from small_models import every_algorithm, make
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import CheckpointCallback

from sb3_robust_be import QRCHuber
from sb3_robust_be.registry import ALGORITHMS

resource = pytest.importorskip("resource", reason="limits of a file's size are POSIX's")
pytestmark = pytest.mark.filterwarnings("error::UserWarning")
ROOT = Path(__file__).parents[2]
# What saves, and the ending of its files.
SAVING = {"save": "zip", "save_replay_buffer": "pkl"}
every_file = pytest.mark.parametrize(("method", "ending"), SAVING.items(), ids=list(SAVING))


@pytest.fixture(scope="module")
def model():
    return make(QRCHuber).learn(20)


def leftovers(folder):
    return [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]


# In a process of its own, since a limit that has been passed is a signal to it, as a full disk is an error.
FULL_DISK = """
import resource, signal, sys
from stable_baselines3.common.save_util import load_from_pkl
from sb3_robust_be.registry import ALGORITHMS

def saved(save, path, limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        save(path)
    except OSError as error:
        return f"{type(error).__name__} {error}"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for algorithm in ALGORITHMS.values():
    folder = f"{sys.argv[1]}/{algorithm.algorithm_name}/"
    model = algorithm("MlpPolicy", "CartPole-v1", buffer_size=2000, learning_starts=10, device="cpu").learn(20)
    model.save(folder + "model")
    model.save_replay_buffer(folder + "buffer")
    model.learn(20, reset_num_timesteps=False)
    for limit in (100, 20000, 50000):
        print(saved(model.save, folder + "model", limit))
        print(saved(model.save_replay_buffer, folder + "buffer", limit))
        print(saved(model.save, folder + "new", limit))
    print(algorithm.load(folder + "model").num_timesteps, load_from_pkl(folder + "buffer.pkl").pos)
"""


def test_a_full_disk_leaves_the_old_files(tmp_path):
    """However far the new one had got, and there is no half of a file that was not there."""
    command = [sys.executable, "-W", "ignore", "-c", FULL_DISK, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    expected = []
    for name in ALGORITHMS:
        for file in 3 * ("model.zip", "buffer.pkl", "new.zip"):
            reason = "[Errno 27] File too large; free some space or raise the limit, then run the same again"
            expected.append(f"StoreError {reason}: {str(tmp_path / name / file)!r}")
        expected.append("20 20")
        assert names(tmp_path / name) == ["buffer.pkl", "model.zip"]
    assert done.stdout.splitlines() == expected


@every_file
def test_any_other_error_leaves_the_old_file(method, ending, model, tmp_path, monkeypatch):
    """Such as an attribute that cannot be pickled."""
    getattr(model, method)(tmp_path / "file")
    before = (tmp_path / f"file.{ending}").read_bytes()
    where = model if method == "save" else model.replay_buffer
    monkeypatch.setattr(where, "lock", threading.Lock(), raising=False)
    with pytest.raises(TypeError, match="cannot pickle"):
        getattr(model, method)(tmp_path / "file")
    assert (tmp_path / f"file.{ending}").read_bytes() == before
    assert leftovers(tmp_path) == []


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def paths(folder, dots):
    """Calls that save with DQN and with ours alike, into folders that look alike."""
    (folder / f"taken.{dots}").mkdir()
    (folder / f"taken.{dots}_2").mkdir()
    named = [folder / f"ending.{dots}", folder / "v1.5", folder / f"taken.{dots}"]
    return [folder / "plain", str(folder / "text"), *named, folder / "new" / "a" / "b", folder / "plain"]


@every_file
def test_paths_are_sb3s(method, ending, model, tmp_path):
    """With and without an ending, of folders that do not exist, and in place of a folder: names and warnings."""
    said = {}
    for owner, saved in (("dqn", make(DQN).learn(20)), ("ours", model)):
        folder = tmp_path / owner
        folder.mkdir()
        saved.verbose = 2
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for path in paths(folder, ending):
                getattr(saved, method)(path)
        saved.verbose = 0
        said[owner] = [str(w.message).replace(str(folder), "") for w in caught]
        if owner == "ours":
            assert {w.filename for w in caught} == {__file__}
    assert names(tmp_path / "ours") == names(tmp_path / "dqn")
    assert said["ours"] == said["dqn"]


@every_file
def test_streams(method, ending, model, tmp_path):
    stream = io.BytesIO()
    getattr(model, method)(stream)
    assert len(stream.getvalue()) > 1000
    assert not stream.closed
    with open(tmp_path / "file", "wb") as file:
        getattr(model, method)(file)
        assert not file.closed
    assert names(tmp_path) == ["file"]


@every_file
def test_permissions_are_kept(method, ending, model, tmp_path):
    """A new file has the usual ones, an old one keeps its own."""
    path = tmp_path / f"file.{ending}"
    getattr(model, method)(path)
    (tmp_path / "usual").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)
    path.chmod(0o640)
    getattr(model, method)(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only the superuser gives files away")
def test_the_owner_is_kept(model, tmp_path):
    model.save(tmp_path / "model")
    os.chown(tmp_path / "model.zip", 1234, 2345)
    model.save(tmp_path / "model")
    found = (tmp_path / "model.zip").stat()
    assert (found.st_uid, found.st_gid) == (1234, 2345)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write anything")
@every_file
def test_a_file_that_may_not_be_written(method, ending, model, tmp_path):
    path = tmp_path / f"file.{ending}"
    getattr(model, method)(path)
    path.chmod(0o440)
    with pytest.raises(PermissionError):
        getattr(model, method)(path)
    path.chmod(0o640)
    tmp_path.chmod(0o550)
    try:
        getattr(model, method)(path)  # in place: the folder takes no other file
    finally:
        tmp_path.chmod(0o750)


@every_file
def test_links_go_on_pointing(method, ending, model, tmp_path):
    """At a file, or at one that is yet to come."""
    (tmp_path / "runs").mkdir()
    link = tmp_path / f"latest.{ending}"
    link.symlink_to(Path("runs") / f"first.{ending}")
    for _ in range(2):
        getattr(model, method)(tmp_path / "latest")
        assert link.is_symlink()
        assert names(tmp_path) == [link.name, "runs", f"runs/first.{ending}"]
    assert link.stat().st_size > 1000


@every_file
def test_what_is_no_file_is_written_in_place(method, ending, model, tmp_path):
    link = tmp_path / f"null.{ending}"
    link.symlink_to(os.devnull)
    getattr(model, method)(link)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    assert names(tmp_path) == [link.name]


def test_what_a_killed_process_has_left_is_cleared(model, tmp_path):
    """Of the same file, and not while another process may still be writing it."""
    old, young, others = (tmp_path / f".{name}.tmp" for name in ("model.zip.1", "model.zip.2", "notes.1"))
    for path in (old, young, others):
        path.touch()
    for path in (old, others):
        os.utime(path, (0, 0))
    model.save(tmp_path / "model")
    assert sorted(leftovers(tmp_path)) == [young.name, others.name]


@every_algorithm
def test_checkpoints(algorithm, tmp_path):
    """SB3's callback saves both, again and again under the same names."""
    callback = CheckpointCallback(10, str(tmp_path), save_replay_buffer=True)
    for _ in range(2):
        make(algorithm).learn(20, callback=callback)
    expected = [
        f"rl_model_{kind}{n}_steps.{end}" for kind, end in (("", "zip"), ("replay_buffer_", "pkl")) for n in (10, 20)
    ]
    assert names(tmp_path) == sorted(expected)
    assert algorithm.load(tmp_path / "rl_model_20_steps").num_timesteps == 20
