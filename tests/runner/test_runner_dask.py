"""The runner on a real Dask cluster of two worker processes."""

import os
import signal
import threading

import dask.config
import pytest
from distributed import LocalCluster
from runner_functions import has_started, pid_of, spec, started, units, wait_until

from sb3_robust_be.runner import RunnerError, RunWriter, load_failures, load_results, run_units, status

OPTIONS = {"processes": True, "dashboard_address": ":0", "silence_logs": 50}


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, **OPTIONS) as local:
        yield local


def engine(cluster):
    return {"executor": cluster.scheduler_address.replace("tcp://", "dask://"), "progress": False}


def test_a_worker_killed_in_the_middle_loses_only_its_own_run(cluster, tmp_path):
    out = tmp_path / "out"
    victim = spec("wait_for_gate", gate=str(tmp_path / "gate"))
    quick = [one for [one] in units("square", 12)]

    def kill():
        wait_until(lambda: has_started(out, victim) and has_started(out, quick[3]))
        os.kill(pid_of(out, victim), signal.SIGKILL)
        wait_until(lambda: started(RunWriter(out, victim))["attempt"] == 2)
        (tmp_path / "gate").touch()

    killer = threading.Thread(target=kill)
    killer.start()
    assert run_units([[victim], *([one] for one in quick)], out, **engine(cluster)) == (13, 0, 0)
    killer.join()
    assert load_results(out, [victim]) == [{"attempt": 2}]
    assert load_results(out, quick) == [{"square": seed**2} for seed in range(12)]


@pytest.mark.parametrize(
    ("allowed_failures", "reason"), [(3, "the worker died; "), (0, "the worker died (Attempted to run task ")]
)
def test_runs_that_kill_their_workers_fail_after_two_tries(cluster, tmp_path, monkeypatch, allowed_failures, reason):
    """Dask starts a lost task again up to so many times by itself: that must not add tries.

    With none, it also gives up what the worker had not begun: that must not take tries away.
    """
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", allowed_failures)
    unit = [spec("kill_itself", seed, tries=tries) for seed, tries in enumerate((0, 2, 1))]
    assert run_units([unit, *units("square", 4)], tmp_path, **engine(cluster)) == (6, 1, 0)
    assert load_results(tmp_path, unit) == [{"attempt": 1, "members": 3}, None, {"attempt": 2, "members": 1}]
    error = load_failures(tmp_path, unit)[1]["error"]
    assert error.startswith(reason)
    assert error.endswith("; it was tried 2 times")


def test_a_function_that_cannot_be_loaded_stops_everything(cluster, tmp_path):
    work = [*units("no_such", 1), *units("wait_for_gate", 50, gate=str(tmp_path / "gate"))]
    with pytest.raises(RunnerError, match="'runner_functions:no_such', which cannot be loaded"):
        run_units(work, tmp_path, **engine(cluster))
    (tmp_path / "gate").touch()
    # What had not begun is cancelled.
    assert run_units(units("square", 2), tmp_path, **engine(cluster)) == (2, 0, 0)
    assert status(tmp_path, [one for [one] in work]).done < 10


def test_exceptions_are_failures_as_everywhere(cluster, tmp_path):
    one = spec("mixed", ends="forget", raises=True)
    assert run_units([[one]], tmp_path, **engine(cluster)) == (0, 1, 0)
    assert load_failures(tmp_path, [one])[0]["error"] == "ValueError: first line"


def test_workers_with_threads_are_refused(tmp_path):
    options = OPTIONS | {"processes": False, "protocol": "tcp://"}
    local = LocalCluster(n_workers=1, threads_per_worker=2, **options)
    with local, pytest.raises(RunnerError, match=r"a worker has 2 threads.*--nthreads 1"):
        run_units(units("square", 1), tmp_path, **engine(local))


def test_an_address_where_nobody_listens(tmp_path):
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "0.3s"}),
        pytest.raises(RunnerError, match=r"'dask://127\.0\.0\.1:9', where no Dask scheduler answers.*HOST:PORT"),
    ):
        run_units(units("square", 1), tmp_path, executor="dask://127.0.0.1:9", progress=False)
