"""Fingerprints beside results, whatever they are of: what the runner keeps and compares."""

import json

import pytest
from runner_functions import spec, units

from sb3_robust_be.runner import ChangedError, Fingerprint, load_results, run_directory, run_id, run_units, status
from sb3_robust_be.runner.executors import SerialExecutor

SERIAL = {"executor": "serial", "progress": False}


def made_with(work, **compared):
    return {run_id(one): Fingerprint(compared, {"host": "here"}) for unit in work for one in unit}


def written(out, one):
    return json.loads((run_directory(out, one) / "fingerprint.json").read_text())


def test_results_and_failures_have_it_even_where_workers_die(tmp_path):
    work = [[spec("square")], [spec("mixed", ends="fail")], [spec("kill_itself", tries=2)]]
    done = run_units(work, tmp_path, jobs=2, preload=(), progress=False, fingerprints=made_with(work, version="1"))
    assert done == (1, 2, 0)
    for [one] in work:
        assert written(tmp_path, one) == {"compared": {"version": "1"}, "noted": {"host": "here"}}


def test_a_run_made_without_one_has_none(tmp_path):
    work = [[spec("mixed", ends="fail")]]
    run_units(work, tmp_path, **SERIAL, fingerprints=made_with(work, version="1"))
    run_units(work, tmp_path, **SERIAL, retry_failed=True)
    assert not (run_directory(tmp_path, work[0][0]) / "fingerprint.json").exists()


def test_every_change_is_named_and_nothing_is_touched(tmp_path):
    work = [*units("square", 2), [spec("mixed", ends="fail")]]
    run_units(work, tmp_path, **SERIAL, fingerprints=made_with(work, version="1", limit="5", same="x"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    with pytest.raises(
        ChangedError, match=r"2 finished runs .*: limit: 5 → nothing; version: 1 → 2; more: nothing → y\."
    ):
        run_units(work, tmp_path, **SERIAL, fingerprints=made_with(work, version="2", same="x", more="y"))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before


def test_finished_runs_of_other_shards_count(tmp_path):
    work = units("square", 2)
    run_units(work, tmp_path, **SERIAL, shard="1/2", fingerprints=made_with(work, version="1"))
    with pytest.raises(ChangedError, match="1 finished run made"):
        run_units(work, tmp_path, **SERIAL, shard="2/2", fingerprints=made_with(work, version="2"))


def test_what_others_make_meanwhile_is_found_at_the_end(tmp_path):
    work = units("square", 2)

    class Meanwhile(SerialExecutor):
        def submit(self, fn, /, *args, **kwargs):
            run_units(work[1:], tmp_path, **SERIAL, fingerprints=made_with(work[1:], version="1"))
            return super().submit(fn, *args, **kwargs)

    with pytest.raises(ChangedError, match="version: 1 → 2"):
        run_units(
            work, tmp_path, executor=Meanwhile, progress=False, shard="1/2", fingerprints=made_with(work, version="2")
        )
    assert load_results(tmp_path, [one for [one] in work]) == [{"square": 0}, {"square": 1}]


def test_interrupted_runs_are_made_by_what_is_there_now(tmp_path):
    (one,) = work_unit = [spec("square", 3)]
    run_units([work_unit], tmp_path, **SERIAL, fingerprints=made_with([work_unit], version="1"))
    (run_directory(tmp_path, one) / "result.json").unlink()
    run_units([work_unit], tmp_path, **SERIAL, fingerprints=made_with([work_unit], version="2"))
    assert written(tmp_path, one)["compared"] == {"version": "2"}
    assert status(tmp_path, [one]) == (1, 0, 0, 0)
