"""Killed workers, Ctrl-C, a killed runner, a full disk: all of them real."""

import os
import re
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from runner_functions import has_started, pid_of, spec, started, units, wait_until

from sb3_robust_be.runner import RunWriter, load_failures, load_results, run_directory, run_units, status

ROOT = Path(__file__).parents[2]
LOCAL = {"jobs": 2, "preload": (), "progress": False}
POOLS = [LOCAL, {"executor": "runner_functions:shared_pool", "progress": False}]
pools = pytest.mark.parametrize("engine", POOLS, ids=["default", "shared"])


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def lives(pid):
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pools
def test_a_run_that_kills_its_worker_fails_after_two_tries_and_alone(out, engine):
    guilty, unlucky = spec("kill_itself", 1, tries=2), spec("kill_itself", 2, tries=1)
    specs = [guilty, unlucky, *(spec("kill_itself", seed) for seed in range(3, 9))]
    assert run_units([[one] for one in specs], out, **engine) == (7, 1, 0)
    failures = load_failures(out, specs)
    assert failures[0]["error"] == (
        "the worker died (signal 9: often the system is out of memory); it was tried 2 times"
    )
    assert failures[0]["attempt"] == 2
    assert failures[1:] == [None] * 7
    results = load_results(out, specs)
    assert results[1]["attempt"] == 2
    if engine is LOCAL:  # There, the innocent do not even notice.
        assert [result["attempt"] for result in results[2:]] == [1] * 6
    # Not tried a third time, but on demand, where the count begins anew.
    before = (run_directory(out, guilty) / "started.json").stat().st_mtime_ns
    assert run_units([[guilty]], out, **engine) == (0, 1, 0)
    assert (run_directory(out, guilty) / "started.json").stat().st_mtime_ns == before
    assert run_units([[guilty]], out, retry_failed=True, **engine) == (0, 1, 0)


@pools
def test_members_of_a_unit_that_died_are_retried_one_by_one(out, engine):
    tries = [0, 2, 0, 1]
    unit = [spec("kill_itself", seed, tries=number) for seed, number in enumerate(tries)]
    assert run_units([unit, *units("square", 2)], out, **engine) == (5, 1, 0)
    results = load_results(out, unit)
    assert results[0] == {"attempt": 1, "members": 4}
    assert results[1] is None
    assert results[2:] == [{"attempt": 2, "members": 1}] * 2
    assert [failure is not None for failure in load_failures(out, unit)] == [False, True, False, False]


def test_a_run_that_exits_hard(out):
    one = spec("kill_itself", tries=2, code=7)
    assert run_units([[one]], out, **LOCAL) == (0, 1, 0)
    assert load_failures(out, [one])[0]["error"] == "the worker died (exit code 7); it was tried 2 times"


def test_a_worker_killed_from_outside_takes_nobody_with_it(out, tmp_path):
    victim, neighbour = (spec("wait_for_gate", seed, gate=str(tmp_path / "gate")) for seed in range(2))

    def kill():
        wait_until(lambda: has_started(out, victim) and has_started(out, neighbour))
        assert status(out, [victim, neighbour]) == (0, 0, 2, 0)
        os.kill(pid_of(out, victim), signal.SIGKILL)
        wait_until(lambda: started(RunWriter(out, victim))["attempt"] == 2)
        (tmp_path / "gate").touch()

    killer = threading.Thread(target=kill)
    killer.start()
    assert run_units([[victim], [neighbour]], out, **LOCAL) == (2, 0, 0)
    killer.join()
    assert load_results(out, [victim, neighbour]) == [{"attempt": 2}, {"attempt": 1}]


SCRIPT = f"""
import resource, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from runner_functions import spec, units
from sb3_robust_be.runner import (StoreError, run_units)
if __name__ == "__main__":
    try:
        print(*run_units(eval(sys.argv[2]), sys.argv[1], **eval(sys.argv[3])))
    except KeyboardInterrupt:
        sys.exit(130)
    except StoreError as error:
        print(error, file=sys.stderr)
        sys.exit(3)
"""


@pytest.fixture
def start(tmp_path, out):
    """Starts a runner in a process, and a process group, of its own."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    runners = []

    def start_runner(work, **options):
        command = [
            sys.executable,
            str(script),
            str(out),
            repr(work),
            repr({"progress": False, "preload": ()} | options),
        ]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        runners.append(subprocess.Popen(command, env=environment, start_new_session=True, **pipes))
        return runners[-1]

    yield start_runner
    for runner in runners:
        runner.kill()
        runner.wait()


@pytest.mark.parametrize("whole_group", [True, False], ids=["terminal", "kill"])
def test_ctrl_c_is_clean_and_the_next_call_continues(out, tmp_path, start, whole_group):
    quick = units("square", 3)
    slow = units("wait_for_gate", 4, gate=str(tmp_path / "gate"))
    specs = [one for [one] in [*quick, *slow]]
    runner = start([*quick, *slow], jobs=2)
    wait_until(lambda: all(has_started(out, one) for one in specs[3:5]))
    workers = [pid_of(out, one) for one in specs[3:5]]
    assert status(out, specs) == (3, 0, 2, 2)
    # As of a worker that is ended while noting its progress.
    (run_directory(out, specs[4]) / ".progress.json.0123.tmp").touch()
    (os.killpg if whole_group else os.kill)(runner.pid, signal.SIGINT)
    stdout, stderr = runner.communicate(timeout=30)
    assert (runner.returncode, stdout) == (130, "")
    assert stderr == "Interrupted: 3 done, 0 failed, 4 left. The same command continues from here.\n"
    assert not any(map(lives, workers))
    assert status(out, specs) == (3, 0, 0, 4)
    assert not list(out.rglob("*.tmp"))
    (tmp_path / "gate").touch()
    assert run_units([[one] for one in specs], out, executor="serial", progress=False) == (7, 0, 0)
    # An interrupted run has not killed its worker: it is in its first attempt again.
    assert load_results(out, specs[3:]) == [{"attempt": 1}] * 4


@pytest.mark.parametrize("engine", [{"executor": "serial"}, {"executor": "runner_functions:shared_pool"}], ids=str)
def test_ctrl_c_on_other_engines(out, tmp_path, start, engine):
    work = units("wait_for_gate", 3, gate=str(tmp_path / "gate"))
    specs = [one for [one] in work]
    runner = start(work, **engine)
    wait_until(lambda: status(out, specs).running >= 1)
    os.kill(runner.pid, signal.SIGINT)
    _, stderr = runner.communicate(timeout=30)
    assert runner.returncode == 130
    assert stderr.endswith("Interrupted: 0 done, 0 failed, 3 left. The same command continues from here.\n")


def test_ctrl_c_while_the_workers_load_their_modules(out, tmp_path, start):
    module = "from pathlib import Path; import time; Path(__file__).with_name('loading').touch(); time.sleep(1.5)"
    (tmp_path / "slow_to_load.py").write_text(module)
    runner = start(units("square", 3), jobs=2, preload=("slow_to_load",))
    wait_until((tmp_path / "loading").exists)
    os.killpg(runner.pid, signal.SIGINT)
    _, stderr = runner.communicate(timeout=30)
    assert runner.returncode == 130
    assert stderr == "Interrupted: 0 done, 0 failed, 3 left. The same command continues from here.\n"


def test_workers_do_not_outlive_a_killed_runner(out, tmp_path, start):
    work = units("wait_for_gate", 2, gate=str(tmp_path / "gate"))
    specs = [one for [one] in work]
    runner = start(work, jobs=2)
    wait_until(lambda: status(out, specs).running == 2)
    workers = [pid_of(out, one) for one in specs]
    runner.kill()
    runner.wait()
    wait_until(lambda: not any(map(lives, workers)))
    assert status(out, specs) == (0, 0, 0, 2)


@pytest.mark.parametrize("function", ["write_megabytes", "write_own_file"])
def test_a_full_disk_stops_the_runner_and_loses_nothing(out, start, function):
    """No file may grow beyond a megabyte: the system answers as on a full disk."""
    specs = [spec(function, seed, megabytes=megabytes) for seed, megabytes in enumerate((0, 2, 0))]
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limit[1]))
    try:
        runner = start([[one] for one in specs], jobs=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    stdout, stderr = runner.communicate(timeout=60)
    assert (runner.returncode, stdout) == (3, "")
    pattern = r"\[Errno 27\] File too large; free some space or raise the limit, then run the same again: '(.*)'\n"
    match = re.fullmatch(pattern, stderr)
    assert match is not None, stderr
    assert Path(match[1]).is_relative_to(run_directory(out, specs[1]))
    assert status(out, specs) == (1, 0, 0, 2)
    assert not list(out.rglob("*.tmp"))
    assert run_units([[one] for one in specs], out, executor="serial", progress=False) == (3, 0, 0)


def test_a_script_without_a_guard_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        SCRIPT.replace('__name__ == "__main__"', "True").replace("eval(sys.argv[3])", "{'jobs': 1, 'preload': ()}")
    )
    command = [sys.executable, str(script), str(tmp_path / "out"), "units('square', 1)"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "3 times before it began to work" in done.stderr
    assert "needs `if __name__ == '__main__':` around the call" in done.stderr
