"""What is shown while the runner works."""

import io
import re
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from rich.console import Console
from runner_functions import spec, units

from sb3_robust_be.runner import RunWriter, run_units
from sb3_robust_be.runner.dispatch import Dispatcher
from sb3_robust_be.runner.executors import Engine
from sb3_robust_be.runner.progress import Bar, Lines, Silence, Tally, describe, display
from sb3_robust_be.runner.store import prepare
from sb3_robust_be.runner.units import execute_unit
from sb3_robust_be.runner.writer import ProgressFile


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def test_lines_of_progress(out, capsys):
    work = [*units("square", 3), [spec("mixed", ends="fail")]]
    run_units(work, out, executor="serial")
    first, last = capsys.readouterr().err.splitlines()
    assert first == "0 done, 0 failed, 4 left"
    assert re.fullmatch(r"3 done, 1 failed, 0 left, \S+ runs/min", last)
    run_units(work, out, executor="serial", progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("tally", "elapsed", "text"),
    [
        (Tally(300, 12, 1), 0.0, "12 done, 1 failed, 287 left"),
        (Tally(300, 12, 1, 0.5), 60.0, "12 done, 1 failed, 287 left, 3.5 runs/min, about 1 h 22 min to go"),
        (Tally(14, 12, 1), 60.0, "12 done, 1 failed, 1 left, 3 runs/min, about 20 s to go"),
        (Tally(28, 12, 1), 60.0, "12 done, 1 failed, 15 left, 3 runs/min, about 5 min to go"),
    ],
)
def test_rate_and_time_to_go_count_what_was_done_since_the_start(tally, elapsed, text):
    assert describe(tally, before=10, elapsed_s=elapsed) == text


def test_running_units_count_by_their_progress_files(out, monkeypatch):
    """A unit of two at a quarter is half a run."""
    monkeypatch.setattr("sb3_robust_be.runner.dispatch._POLL_S", 0.0)
    work, tally, shown = [[spec("square", 0), spec("square", 1)]], Tally(2), []
    future = Future()
    executor = SimpleNamespace(submit=lambda *arguments: future, shutdown=lambda: None)

    def show():
        shown.append((tally.done, tally.fraction))
        if not future.done():
            future.set_result(execute_unit(str(out), work[0], invocation="x"))

    writer = RunWriter(prepare(out), work[0][0])
    writer.start(writer.id)
    ProgressFile([writer])(0.25)
    with Dispatcher(out, work, Engine(make=lambda: executor), tally) as dispatcher:
        dispatcher.run(show)
    assert shown == [(0, 0.5), (2, 0.0)]


def test_the_display_fits_the_stream(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    tally = Tally(4, 1)
    assert type(display(tally, False, Terminal())) is Silence
    assert type(display(tally, True, io.StringIO())) is Lines
    assert type(display(tally, True, Terminal())) is Bar
    monkeypatch.setattr("sb3_robust_be.runner.progress.find_spec", lambda name: None)
    assert type(display(tally, True, Terminal())) is Lines


def test_the_bar_shows_the_fraction_and_the_line():
    stream = io.StringIO()
    tally = Tally(4, 1)
    console = Console(file=stream, force_terminal=True, width=120)
    with Bar(tally, stream, console) as bar:
        tally.done, tally.failed, tally.fraction = 2, 1, 0.4
        bar.update()
    text = stream.getvalue()
    assert "85%" in text
    assert "2 done, 1 failed, 1 left" in text


def test_lines_come_from_time_to_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("sb3_robust_be.runner.progress.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    with Lines(Tally(9), stream) as lines:
        for now[0] in (1.0, 9.9, 10.1, 12.0, 20.2):
            lines.update()
    assert len(stream.getvalue().splitlines()) == 4
