"""Runs that another folder has already: copied whole, or not at all."""

import json

import pytest
from runner_functions import spec, units

from sb3_robust_be.runner import Fingerprint, load_arrays, load_results, run_directory, run_id, run_units, status
from sb3_robust_be.runner import reuse as reuse_module
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


def test_nothing_half_copied_is_left(tmp_path, other, monkeypatch):
    def full(source, target):
        target.mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reuse_module.shutil, "copytree", full)
    with pytest.raises(StoreError, match="free some space"):
        reuse_runs(tmp_path / "out", SPECS, [other], made_with(SPECS))
    assert list((tmp_path / "out" / "runs").iterdir()) == []
