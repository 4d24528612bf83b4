"""What the files of a run say, and that they are complete or absent."""

import errno
import json
import os
import subprocess
import sys
import time
from socket import gethostname

import numpy as np
import pytest
from runner_functions import spec

from sb3_robust_be import system as files_module
from sb3_robust_be.runner import (
    RunWriter,
    StoreError,
    load_arrays,
    load_failures,
    load_results,
    run_directory,
    run_id,
    status,
)
from sb3_robust_be.runner.store import prepare

SPEC = spec("square", 1)


@pytest.fixture
def out(tmp_path):
    return prepare(tmp_path / "out")


@pytest.fixture
def writer(out):
    made = RunWriter(out, SPEC, attempt=1, invocation="x")
    made.start(unit=made.id)
    return made


def names(writer):
    return sorted(path.name for path in writer.directory.iterdir())


def test_the_files_of_a_run(out, writer):
    assert writer.directory == run_directory(out, SPEC) == out / "runs" / run_id(SPEC)
    assert json.loads((writer.directory / "spec.json").read_text()) == SPEC
    record = json.loads((writer.directory / "started.json").read_text())
    assert (record["pid"], record["host"], record["attempt"]) == (os.getpid(), gethostname(), 1)
    assert abs(record["time"] - time.time()) < 60
    writer.write_arrays("curve", a=np.eye(2), b=[1, 2])
    writer.finish({"x": np.float64(1.5), "nan": np.nan, "inf": [-np.inf]})
    assert names(writer) == ["curve.npz", "result.json", "spec.json", "started.json"]
    text = (writer.directory / "result.json").read_text()
    assert text == '{"inf":[{"$float":"-inf"}],"nan":{"$float":"nan"},"x":1.5}\n'
    np.testing.assert_equal(load_results(out, [SPEC]), [{"x": 1.5, "nan": np.nan, "inf": [-np.inf]}])
    arrays = load_arrays(out, SPEC)
    np.testing.assert_equal(arrays, {"a": np.eye(2), "b": [1, 2]})


def test_results_come_in_the_order_of_the_specs(out, writer):
    writer.finish({"seed": 1})
    assert load_results(out, [spec("square", 2), SPEC]) == [None, {"seed": 1}]


def test_status_counts_runs_by_state(out, writer):
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    specs = [SPEC, *(spec("square", seed) for seed in range(10, 15))]
    for index, one in enumerate(specs[1:4]):
        other = RunWriter(out, one)
        other.start(unit=other.id)
        if index == 0:
            other.finish({})
        elif index == 1:
            other.fail("reason")
        else:
            record = json.loads((other.directory / "started.json").read_text()) | {"pid": int(gone.stdout)}
            (other.directory / "started.json").write_text(json.dumps(record))
    assert status(out, [*specs, SPEC]) == (1, 1, 1, 3)
    assert status(out / "elsewhere", specs) == (0, 0, 0, 6)


def test_a_run_on_another_host_runs_while_it_gives_signs(out, writer):
    path = writer.directory / "started.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"host": "another", "pid": 1}))
    assert status(out, [SPEC]).running == 1
    os.utime(path, (time.time() - 3600,) * 2)
    assert status(out, [SPEC]).left == 1
    (writer.directory / "progress.json").write_text("{}")
    assert status(out, [SPEC]).running == 1


@pytest.mark.parametrize("damage", [b"", b'{"x": 1', b"\xff\xfe", b"[1]", b"null"])
def test_a_damaged_result_is_none(out, writer, damage):
    writer.finish({"x": 1})
    (writer.directory / "result.json").write_bytes(damage)
    assert load_results(out, [SPEC]) == [None]
    assert status(out, [SPEC]).done == 0


def test_a_result_outweighs_a_failure(out, writer):
    """Two processes may have executed the same run."""
    writer.fail("reason")
    assert load_failures(out, [SPEC, spec("square", 9)]) == [
        {"error": "reason", "traceback": "", "attempt": 1, "host": gethostname()},
        None,
    ]
    second = RunWriter(out, SPEC)
    second.finish({})
    assert "failed.json" not in names(writer)
    RunWriter(out, SPEC).fail("late")
    assert load_failures(out, [SPEC]) == [None]
    assert status(out, [SPEC]) == (1, 0, 0, 0)


def test_an_exception_is_kept_with_its_traceback(out, writer):
    try:
        raise KeyError("missing")
    except KeyError as error:
        writer.fail(error)
    [failure] = load_failures(out, [SPEC])
    assert failure["error"] == "KeyError: 'missing'"
    assert "test_an_exception_is_kept" in failure["traceback"]


@pytest.mark.parametrize("end", [lambda writer: writer.finish({}), lambda writer: writer.fail("reason")])
def test_a_run_ends_once(writer, end):
    end(writer)
    for again in (
        lambda: writer.finish({}),
        lambda: writer.fail("again"),
        lambda: writer.write_arrays("curve", a=[1]),
    ):
        with pytest.raises(RuntimeError, match=r"has ended \((done|failed)\)"):
            again()


def test_python_objects_are_neither_written_nor_read(out, writer):
    with pytest.raises(ValueError, match="a holds Python objects"):
        writer.write_arrays("curve", a=np.array([{}, None]))
    with pytest.raises(TypeError, match=r"result\.json\['f'\] is <built-in"):
        writer.finish({"f": len})
    with pytest.raises(TypeError, match="result is 3; give a dict"):
        writer.finish(3)
    with pytest.raises(ValueError, match=r"name is '\.\./x'"):
        writer.write_arrays("../x", a=[1])
    assert names(writer) == ["spec.json", "started.json"]
    np.savez(writer.directory / "curve.npz", a=np.array([{}, None]))
    with pytest.raises(ValueError, match="allow_pickle"):
        load_arrays(out, SPEC)


def test_a_failed_write_leaves_the_old_file(writer, monkeypatch):
    writer.write_arrays("curve", a=[1])

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files_module.os, "fsync", full)
    with pytest.raises(StoreError, match=r"No space left.*free some space.*curve\.npz") as caught:
        writer.write_arrays("curve", a=[2])
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert names(writer) == ["curve.npz", "spec.json", "started.json"]
    np.testing.assert_equal(np.load(writer.directory / "curve.npz")["a"], [1])


def test_a_full_disk_is_no_failure_of_the_run(out, writer):
    with pytest.raises(StoreError, match="free some space"):
        writer.fail(OSError(errno.ENOSPC, "No space left on device", "monitor.csv"))
    with pytest.raises(StoreError, match="make the folder writable"):
        writer.fail(OSError(errno.EROFS, "Read-only file system", "monitor.csv"))
    assert status(out, [SPEC]).failed == 0
    writer.fail(FileNotFoundError(errno.ENOENT, "No such file", "rom.bin"))
    assert status(out, [SPEC]).failed == 1


def test_what_killed_writers_left_is_removed_when_it_is_old(writer):
    old, young = (writer.directory / f".result.json.{name}.tmp" for name in ("old", "young"))
    for path in (old, young):
        path.write_text("{")
    os.utime(old, (time.time() - 7200,) * 2)
    writer.start(unit=writer.id)
    assert (old.exists(), young.exists()) == (False, True)


def test_an_unwritable_folder(tmp_path):
    """Below a file nobody can write, not even root."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"make the folder writable or choose another.*file/out") as caught:
        prepare(tmp_path / "file" / "out")
    assert isinstance(caught.value, OSError)
    assert caught.value.errno == errno.ENOTDIR
