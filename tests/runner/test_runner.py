"""The runner on engines that stay alive: what is executed, what is shown, what is refused."""

import os
import subprocess
import sys
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path

import pytest
from runner_functions import spec, thread_pool, units

from sb3_robust_be.runner import RunnerError, StoreError, load_arrays, load_results, run_directory, run_units, status
from sb3_robust_be.runner import run as runner_module
from sb3_robust_be.runner.executors import Engine, SerialExecutor, choose_engine
from sb3_robust_be.runner.processes import _environment
from sb3_robust_be.system import available_cores

ROOT = Path(__file__).parents[2]
SERIAL = {"executor": "serial", "progress": False}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def log(tmp_path):
    (tmp_path / "log").mkdir()
    return tmp_path / "log"


def calls(log):
    return sorted(int(path.name.partition("-")[0]) for path in log.iterdir())


@pytest.mark.parametrize(
    "engine",
    [
        {"jobs": 2, "preload": ()},
        {"executor": "serial"},
        {"executor": thread_pool},
        {"executor": "runner_functions:shared_pool"},
    ],
    ids=["default", "serial", "callable", "name"],
)
def test_every_engine_makes_the_same_files(out, engine):
    work = [*units("square", 3), [spec("square", seed) for seed in (5, 7)]]
    assert run_units(work, out, progress=False, **engine) == (5, 0, 0)
    specs = [one for unit in work for one in unit]
    assert load_results(out, specs) == [{"square": one["seed"] ** 2} for one in specs]
    assert load_arrays(out, specs[-1])["returns"].tolist() == [0, 7, 14, 21]
    assert not list(out.rglob("*.tmp"))


def test_a_second_call_continues(out, log):
    work = units("count_calls", 6, log=str(log))
    assert run_units(work[:2], out, **SERIAL) == (2, 0, 0)
    (run_directory(out, work[1][0]) / "result.json").write_text('{"mem')  # as after a power cut
    assert run_units(work, out, **SERIAL) == (6, 0, 0)
    assert run_units(work, out, **SERIAL) == (6, 0, 0)
    assert calls(log) == [0, 1, 1, 2, 3, 4, 5]


def test_failures_are_executed_again_on_demand_only(out):
    work = [[spec("mixed", seed, ends=end)] for seed, end in enumerate(("finish", "fail"))]
    assert run_units(work, out, **SERIAL) == (1, 1, 0)
    first = run_directory(out, work[1][0]) / "failed.json"
    before = first.stat().st_mtime_ns
    assert run_units(work, out, **SERIAL) == (1, 1, 0)
    assert first.stat().st_mtime_ns == before
    assert run_units(work, out, retry_failed=True, **SERIAL) == (1, 1, 0)
    assert first.stat().st_mtime_ns > before


def test_shards_cover_everything_once_even_when_some_is_done(out, log):
    work = [[spec("count_calls", 2 * pair + member, log=str(log)) for member in range(2)] for pair in range(7)]
    run_units(work[2:4], out, **SERIAL)
    sizes = [run_units(work, out, shard=f"{index}/3", **SERIAL).done for index in (2, 3, 1)]
    assert sizes == [4, 4, 6]
    assert calls(log) == list(range(14))
    assert status(out, [one for unit in work for one in unit]) == (14, 0, 0, 0)


def test_two_runners_on_one_folder(out):
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from runner_functions import units
from sb3_robust_be.runner import (run_units)
assert run_units(units("square", 60), {str(out)!r}, executor="serial", progress=False) == (60, 0, 0)
"""
    both = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    specs = [one for [one] in units("square", 60)]
    assert load_results(out, specs) == [{"square": one["seed"] ** 2} for one in specs]
    assert not list(out.rglob("*.tmp"))


def test_a_worker_uses_one_thread(out):
    one = spec("torch_threads")
    run_units([[one]], out, jobs=1, preload=(), progress=False)
    assert load_results(out, [one]) == [{"threads": 1, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}]


def test_threads_take_turns(out):
    """Runs seed the generators of the process."""
    work = units("count_company", 4)
    run_units(work, out, executor=thread_pool, progress=False)
    assert load_results(out, [one for [one] in work]) == [{"company": 0}] * 4


def test_the_environment_is_lent(monkeypatch):
    monkeypatch.setenv("SET", "before")
    monkeypatch.delenv("UNSET", raising=False)
    with _environment({"SET": "1", "UNSET": "1"}):
        assert (os.environ["SET"], os.environ["UNSET"]) == ("1", "1")
    assert (os.environ["SET"], os.environ.get("UNSET")) == ("before", None)


def test_an_unwritable_folder_is_refused_before_anything_runs(tmp_path, log):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="make the folder writable"):
        run_units(units("count_calls", 2, log=str(log)), tmp_path / "file" / "out", **SERIAL)
    assert calls(log) == []


def test_a_function_that_cannot_be_loaded_stops_everything(out):
    work = [*units("square", 1), *units("no_such", 2), *units("square", 3)]
    with pytest.raises(RunnerError, match="runner_functions:no_such"):
        run_units(work, out, **SERIAL)
    assert status(out, [one for unit in work for one in unit]) == (1, 0, 0, 4)


class Elsewhere(SerialExecutor):
    """A worker that does not share the folder."""

    def submit(self, fn, out, *arguments):
        return super().submit(fn, out + "-elsewhere", *arguments)


def test_workers_that_do_not_share_the_folder(out, tmp_path, monkeypatch):
    with pytest.raises(RunnerError, match="out-elsewhere is not there"):
        run_units(units("square", 2), out, executor=Elsewhere, progress=False)
    (tmp_path / "out-elsewhere" / "runs").mkdir(parents=True)
    monkeypatch.setattr(runner_module, "_VISIBLE_AFTER_S", 0.0)
    with pytest.raises(RunnerError, match=r"2 runs have ended, but .* is not there"):
        run_units(units("square", 2), out, executor=Elsewhere, progress=False)


class Refusing(Executor):
    """Answers every submission by ``error``, raised at once or through the future."""

    def __init__(self, error, at_once):
        self.error, self.at_once = error, at_once

    def submit(self, *arguments):
        if self.at_once:
            raise self.error
        future = Future()
        future.set_exception(self.error)
        return future


@pytest.mark.parametrize("at_once", [True, False])
def test_an_executor_that_breaks_again_and_again(out, at_once):
    with pytest.raises(RunnerError, match=r"the worker died, 3 times before it began to work.*__main__"):
        run_units(units("square", 2), out, executor=lambda: Refusing(BrokenExecutor("no"), at_once), progress=False)


def test_workers_that_die_before_they_begin(out, monkeypatch):
    """As with Dask, whose future names the loss of its own worker."""
    engine = Engine(make=lambda: Refusing(ZeroDivisionError("x"), False), losses=(ZeroDivisionError,), isolates=True)
    monkeypatch.setattr(runner_module, "choose_engine", lambda *arguments: engine)
    with pytest.raises(RunnerError, match=r"the worker died \(x\), 3 times before it began to work"):
        run_units(units("square", 2), out, progress=False)
    assert status(out, [one for [one] in units("square", 2)]) == (0, 0, 0, 2)


def test_an_executor_that_gives_up(out):
    with pytest.raises(RunnerError, match=r"gave up \(ZeroDivisionError\('x'\)\); the same command continues"):
        run_units(units("square", 2), out, executor=lambda: Refusing(ZeroDivisionError("x"), False), progress=False)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"jobs": 0}, ValueError, "jobs is 0; give at least 1"),
        ({"jobs": 2, "executor": "serial"}, ValueError, "jobs is 2, but executor 'serial' has its own"),
        ({"executor": "threads"}, ValueError, "executor is 'threads'; give 'serial', 'dask"),
        ({"executor": "no_such:pool"}, RunnerError, "executor is 'no_such:pool', which cannot be loaded"),
    ],
)
def test_bad_engines(out, arguments, kind, message):
    with pytest.raises(kind, match=message):
        run_units(units("square", 1), out, **arguments)


def test_as_many_workers_as_cores():
    assert choose_engine(None, None, ()).executors == available_cores() >= 1
    assert choose_engine(None, 3, ()).executors == 3


def test_the_runner_is_light():
    """`status` must answer at once."""
    code = "import sys, sb3_robust_be.experiments; assert not {'torch', 'stable_baselines3', 'rich'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
