"""Runs that another folder has already: copied whole, or not at all."""

import json
from pathlib import Path

import pytest
from runner_functions import spec, units

from sb3_robust_be.runner import Fingerprint, load_arrays, load_results, run_directory, run_id, run_units, status
from sb3_robust_be.runner.reuse import reuse_runs
from sb3_robust_be.system import StoreError

SERIAL = {"executor": "serial", "progress": False}
SPECS = [one for [one] in units("square", 3)]


def made_with(specs, version="1"):
    return {run_id(one): Fingerprint({"version": version}, {}) for one in specs}


@pytest.fixture
def other(tmp_path):
    out = tmp_path / "other"
    run_units([[one] for one in SPECS], out, **SERIAL, fingerprints=made_with(SPECS))
    return out


def test_the_same_runs_are_copied_and_not_made_again(tmp_path, other):
    out, wanted = tmp_path / "out", [*SPECS, spec("square", 7)]
    assert reuse_runs(out, wanted, [tmp_path / "absent", other], made_with(wanted)) == {other: 3}
    assert status(out, wanted) == (3, 0, 0, 1)
    assert run_units([[one] for one in wanted], out, **SERIAL, fingerprints=made_with(wanted)) == (4, 0, 0)
    assert [result["square"] for result in load_results(out, wanted)] == [0, 1, 4, 49]
    assert load_arrays(out, SPECS[2], "curve")["returns"].tolist() == [0.0, 2.0, 4.0, 6.0]
    # What is done in one folder afterwards is nothing to the other.
    (run_directory(out, SPECS[0]) / "result.json").unlink()
    assert status(other, SPECS).done == 3


def test_only_finished_runs_of_the_same_versions_are(tmp_path, other):
    assert reuse_runs(tmp_path / "out", SPECS, [other], made_with(SPECS, "2")) == {}
    assert reuse_runs(tmp_path / "out", SPECS, [other], {}) == {}
    (run_directory(other, SPECS[0]) / "result.json").unlink()
    assert reuse_runs(tmp_path / "out", SPECS, [other, other], made_with(SPECS)) == {other: 2}
    assert status(tmp_path / "out", SPECS) == (2, 0, 0, 1)


def test_what_has_been_begun_stays_as_it_is(tmp_path, other):
    out = tmp_path / "out"
    directory = run_directory(out, SPECS[0])
    directory.mkdir(parents=True)
    (directory / "failed.json").write_text(json.dumps({"error": "no luck"}))
    assert reuse_runs(out, SPECS, [other, out], made_with(SPECS)) == {other: 2}
    assert status(out, SPECS) == (2, 1, 0, 0)
    assert reuse_runs(out, SPECS, [other], made_with(SPECS)) == {}


@pytest.mark.parametrize(
    ("error", "raised", "says"),
    [
        (OSError(28, "No space left on device"), StoreError, "free some space"),
        (OSError(13, "Permission denied"), StoreError, "make the folder writable"),
        (KeyboardInterrupt(), KeyboardInterrupt, ""),
    ],
)
def test_nothing_half_copied_is_left(error, raised, says, tmp_path, other, monkeypatch):
    out, write_bytes = tmp_path / "out", Path.write_bytes

    def second_fails(path, data):
        if path.is_relative_to(out) and any(path.parent.iterdir()):
            raise error
        return write_bytes(path, data)

    monkeypatch.setattr(Path, "write_bytes", second_fails)
    with pytest.raises(raised, match=says or None):
        reuse_runs(out, SPECS, [other], made_with(SPECS))
    assert list((out / "runs").iterdir()) == []


def test_what_cannot_be_read_is_made_anew(tmp_path, other, monkeypatch):
    read_bytes = Path.read_bytes

    def gone(path):
        if run_id(SPECS[1]) in path.parts and path.suffix == ".npz":
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", gone)
    assert reuse_runs(tmp_path / "out", SPECS, [other], made_with(SPECS)) == {other: 2}
    assert not run_directory(tmp_path / "out", SPECS[1]).exists()
