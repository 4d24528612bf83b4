"""Saving: the old file stays until the new one is complete, and paths mean what they mean to SB3."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tempfile
import threading
import warnings
from pathlib import Path

import pytest
import torch as th
from small_models import every_algorithm, make
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import CheckpointCallback

from sb3_robust_be import QRCHuber

resource = pytest.importorskip("resource", reason="limits of a file's size are POSIX's")
pytestmark = pytest.mark.filterwarnings("error::UserWarning")
# What saves, and the ending of its files.
SAVING = {"save": "zip", "save_replay_buffer": "pkl"}
every_file = pytest.mark.parametrize(("method", "ending"), SAVING.items(), ids=list(SAVING))


@pytest.fixture(scope="module")
def model():
    return make(QRCHuber).learn(20)


def leftovers(folder):
    return [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]


@contextlib.contextmanager
def files_up_to(size):
    """No file may grow beyond this: the system answers as on a full disk, with a signal that Python ignores."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [100, 5000, 10000])
@every_algorithm
def test_a_full_disk_leaves_the_old_files(algorithm, size, tmp_path):
    """However far the new one has got, and there is no half of a file that was not there."""
    model = make(algorithm).learn(20)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    assert min(path.stat().st_size for path in tmp_path.iterdir()) > 10000
    model.learn(20, reset_num_timesteps=False)
    saving = ((model.save, "model.zip"), (model.save_replay_buffer, "buffer.pkl"), (model.save, "new.zip"))
    for save, name in saving:
        with (
            pytest.raises(OSError, match=rf"File too large; free some space or raise the limit.*{name}"),
            files_up_to(size),
        ):
            save(tmp_path / name)
    assert names(tmp_path) == ["buffer.pkl", "model.zip"]
    assert algorithm.load(tmp_path / "model").num_timesteps == 20
    model.load_replay_buffer(tmp_path / "buffer")
    assert model.replay_buffer.pos == 20


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


@contextlib.contextmanager
def as_anybody(*owned):
    """Without the superuser's rights, which no permissions bind; the paths are then this user's own."""
    user = os.geteuid()
    if user == 0:
        for path in owned:
            os.chown(path, 65534, -1)
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@every_file
def test_what_may_not_be_written(method, ending, model):
    """A file that is protected stays; one in a folder that takes no other is written in place."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file.{ending}"
        getattr(model, method)(path)
        with as_anybody(folder, path):
            path.chmod(0o440)
            with pytest.raises(PermissionError):
                getattr(model, method)(path)
            assert path.stat().st_size > 1000
            path.chmod(0o640)
            path.write_bytes(b"")
            Path(folder).chmod(0o550)
            getattr(model, method)(path)
            Path(folder).chmod(0o750)
        assert path.stat().st_size > 1000


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


@every_algorithm
def test_a_policy_alone_is_kept_as_well(algorithm, tmp_path):
    policy = make(algorithm).policy
    policy.save(tmp_path / "policy")
    before = (tmp_path / "policy").read_bytes()
    with pytest.raises(OSError, match="free some space"), files_up_to(3000):
        policy.save(tmp_path / "policy")
    assert names(tmp_path) == ["policy"]
    assert (tmp_path / "policy").read_bytes() == before
    loaded = type(policy).load(tmp_path / "policy")
    for name, value in policy.state_dict().items():
        th.testing.assert_close(loaded.state_dict()[name], value, rtol=0.0, atol=0.0)
