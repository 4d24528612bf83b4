"""What a worker does with a unit, in this process."""

import json
import sys

import pytest
import torch
from runner_functions import spec, started, units

from sb3_robust_be.runner import RunnerError, RunWriter, load_failures, load_results, run_directory, status
from sb3_robust_be.runner.store import prepare
from sb3_robust_be.runner.units import execute_unit
from sb3_robust_be.runner.writer import ProgressFile


@pytest.fixture
def out(tmp_path):
    return str(prepare(tmp_path / "out"))


def population(*ends, **more):
    return [spec("mixed", seed, ends=end, **more) for seed, end in enumerate(ends)]


def test_members_end_by_themselves(out):
    specs = population("finish", "fail", "forget", "finish")
    assert execute_unit(out, specs) == ["done", "failed", "failed", "done"]
    errors = [failure and failure["error"] for failure in load_failures(out, specs)]
    assert errors == [None, "the member's own reason", "The function returned without a result for this run.", None]


def test_an_exception_fails_those_that_have_not_ended(out):
    specs = population("finish", "fail", "forget", raises=True)
    assert execute_unit(out, specs) == ["done", "failed", "failed"]
    failures = load_failures(out, specs)
    assert [failure and failure["error"] for failure in failures] == [
        None,
        "the member's own reason",
        "ValueError: first line",
    ]
    assert "last line" in failures[2]["traceback"]


def test_sys_exit_is_an_exception(out):
    assert execute_unit(out, [spec("leave")]) == ["failed"]
    assert load_failures(out, [spec("leave")])[0]["error"] == "SystemExit: 3"


def test_only_members_that_have_not_ended_are_executed(out, tmp_path):
    log = tmp_path / "log"
    log.mkdir()
    specs = [spec("count_calls", seed, log=str(log)) for seed in range(4)]
    RunWriter(out, specs[0]).start("u")
    RunWriter(out, specs[0]).finish({"members": 0})
    RunWriter(out, specs[2]).fail("earlier")
    assert execute_unit(out, specs) == ["done", "done", "failed", "done"]
    assert load_results(out, specs) == [{"members": 0}, {"members": 2}, None, {"members": 2}]
    assert execute_unit(out, specs) == ["done", "done", "failed", "done"]
    assert sorted(path.name.partition("-")[0] for path in log.iterdir()) == ["1", "3"]


def test_an_attempt_that_has_begun_elsewhere_is_lost(out):
    """Dask starts the unit of a dead worker again by itself; the runner wants to retry its members one by one."""
    specs = [spec("square", seed) for seed in range(2)]
    RunWriter(out, specs[1], attempt=1, invocation="me").start("u")
    assert execute_unit(out, specs, attempt=1, invocation="me") == ["lost", "lost"]
    assert status(out, specs).done == 0
    assert execute_unit(out, specs[1:], attempt=2, invocation="me") == ["done"]
    assert started(RunWriter(out, specs[1]))["attempt"] == 2
    assert execute_unit(out, specs, attempt=1, invocation="me") == ["done", "done"]


def test_an_interruption_leaves_the_run_unfinished(out, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["runner_functions"], "square", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute_unit(out, [spec("square")])
    assert status(out, [spec("square")])[:2] == (0, 0)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("runner_functions:no_such", "no attribute 'no_such'"),
        ("runner_functions:not_callable", "is no function but 7"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_no_failure_of_the_run(out, target, why):
    one = {"function": target}
    with pytest.raises(RunnerError, match=rf"spec\['function'\] is '{target}'.*{why}"):
        execute_unit(out, [one])
    assert status(out, [one]) == (0, 0, 0, 1)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(RunnerError, match="every worker must see the folder at the same path"):
        execute_unit(str(tmp_path / "other"), [spec("square")])
    assert not list(tmp_path.iterdir())


def test_progress_is_throttled_and_removed(out, monkeypatch):
    [[one]] = units("square", 1)
    writer = RunWriter(out, one)
    writer.start(writer.id)
    now = [100.0]
    monkeypatch.setattr("sb3_robust_be.runner.writer.time.monotonic", lambda: now[0])
    report = ProgressFile([writer])
    seen = []
    for now[0], fraction in ((100.0, 0.1), (100.9, 0.2), (101.1, 1.5), (103.0, -1.0)):
        report(fraction)
        seen.append(json.loads(report.path.read_text())["fraction"])
    assert seen == [0.1, 0.1, 1.0, 0.0]
    assert report.path == run_directory(out, one) / "progress.json"
    report.remove()
    report.remove()
    assert not report.path.exists()


def test_every_engine_computes_with_one_torch_thread(out):
    torch.set_num_threads(2)
    try:
        execute_unit(out, [spec("torch_threads")])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert load_results(out, [spec("torch_threads")])[0]["threads"] == 1
