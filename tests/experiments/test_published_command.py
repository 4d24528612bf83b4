"""``experiment publish``, ``run --from`` and ``report --published``, and what the package itself publishes."""

from __future__ import annotations

import bz2
import contextlib
import shutil

import pytest
from made_rows import made_rows
from own_experiment import CAPPED, CONTENDERS, EXPERIMENT, SELECTED, SHARED, specs_of

from sb3_robust_be import cli
from sb3_robust_be.experiments import report_command
from sb3_robust_be.experiments.declared import load_declared
from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.experiments.find import collected
from sb3_robust_be.experiments.publish import FOLDER, load, publish, published
from sb3_robust_be.experiments.rows import ORIGIN, RUN_SPEC, read_rows, write_rows
from sb3_robust_be.experiments.run_functions import run_units

OWN = "from own_experiment import EXPERIMENT\n"
ENGINE = ("--executor", "serial", "--quiet")


def command(*arguments):
    return cli.main(["experiment", *map(str, arguments)])


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def made_in(out):
    return len([*out.glob("own-laptop/runs/*/result.json"), *out.glob("own-laptop/runs/*/failed.json")])


def beside(out):
    """What stands beside a page: its figures' data and its tables."""
    return {path.name: path.read_bytes() for path in out.iterdir() if path.suffix in (".csv", ".md")}


def test_what_is_there_is_published(own, tmp_path, capsys):
    to = tmp_path / "published"
    assert command("publish", own, "--out", tmp_path) == 1
    assert f"own has at least {SELECTED} runs left at scale laptop: " in capsys.readouterr().err
    assert not to.exists()
    assert command("run", own, "--out", tmp_path, *ENGINE) == 1  # one run fails
    assert made_in(tmp_path) == SELECTED - SHARED + 6
    capsys.readouterr()
    assert command("publish", own, "--out", tmp_path) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{to / 'own-laptop.csv'} (")
    assert not printed.err
    assert str(tmp_path) not in (to / "own-laptop.csv").read_text(encoding="utf-8")


def test_a_report_from_a_table_alone(own, tmp_path, capsys):
    command("run", own, "--out", tmp_path, *ENGINE)
    assert command("report", own, "--out", tmp_path) == 0
    assert command("publish", own, "--out", tmp_path, "--to", tmp_path / "to") == 0
    shutil.rmtree(tmp_path / "own-laptop")
    assert command("report", own, "--out", tmp_path, "--from", tmp_path / "to") == 0
    pages = tmp_path / "reports-laptop-published"
    assert beside(pages / "own") == beside(tmp_path / "reports-laptop" / "own")
    page = (pages / "own.html").read_text(encoding="utf-8")
    assert f"sb3-robust-be experiment run {own} --scale laptop" in page
    assert "no luck" in page
    capsys.readouterr()
    assert command("report", own, "--out", tmp_path, "--from", tmp_path / "to", "--markdown") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("### Own (nowhere)\n\n- Compared: ")
    assert "\n\n- The capped are small: **holds** (value 0.35; computed: below 1)\n" in printed
    assert "| no cap | 0.2667 | 3 |" in printed


def test_a_report_of_some_of_the_runs(tmp_path, capsys):
    """Of MinAtar's smallest size one game of two, and of the other one contender."""
    minatar = load_declared("minatar")
    preset = minatar.preset("smoke")
    rows = made_rows(
        minatar.plan, preset, lambda run: {"final": 1.0 * len(run.names["contender"]), "auc": 2.0, "curve": [2.0] * 100}
    )
    some = [row for row in rows if row["domain"] == "freeway" or row["contender"] == "qrc"]
    publish("minatar", "smoke", some, tmp_path)
    arguments = ("report", "minatar", "--scale", "smoke", "--from", tmp_path, "--out", tmp_path, "--markdown")
    assert command(*arguments) == 1
    assert "minatar has at least 6 runs left at scale smoke" in capsys.readouterr().err
    assert command(*arguments, "--partial") == 0
    printed = capsys.readouterr().out
    assert "Freeway: QRC's final return is higher without its correction" in printed
    assert "Breakout: QRC's" not in printed
    whole = (*arguments[:-1], "--partial")
    assert command(*whole) == 0
    page = (tmp_path / "reports-smoke-published" / "minatar.html").read_text(encoding="utf-8")
    assert "Still to be made, so that what is shown may change: 1 of 1 of DQN (Breakout), " in page
    assert "scaled-learning-curves" in page
    # Nothing that is reported has ended.
    publish("minatar", "smoke", [{**row, "stage": "selection"} for row in some], tmp_path)
    assert command(*arguments, "--partial") == 1


def test_a_report_that_needs_all_of_its_runs(tmp_path, capsys):
    objectives = load_declared("objectives")
    rows = [{**run.names, "failed": "no luck"} for run in objectives.plan(objectives.preset("smoke"), [])]
    publish("objectives", "smoke", rows[:1], tmp_path)
    arguments = ("report", "objectives", "--scale", "smoke", "--from", tmp_path, "--out", tmp_path)
    assert command(*arguments, "--partial") == 1
    said = "--partial: a report of objectives needs all of its runs; left: 1"
    assert said in capsys.readouterr().err


def test_half_an_experiment_goes_on_on_another_machine(own, tmp_path, capsys):
    """The missing runs alone are made there, and its report is that of a run without a break."""
    here, there, once = (tmp_path / name for name in ("here", "there", "once"))
    assert command("run", own, "--out", once, *ENGINE) == 1
    folder, engine = here / "own-laptop", {"executor": "serial", "progress": False}
    run_units([specs_of(3)], folder, **engine)
    run_units([specs_of(3, EXPERIMENT.collect(3, Results(folder)))[:6]], folder, **engine)
    first = made_in(here)
    assert first == SELECTED - SHARED + 2, "the choice, and two of the runs that are reported"
    capsys.readouterr()
    assert command("publish", own, "--out", here, "--to", tmp_path) == 1
    printed = capsys.readouterr()
    assert "runs left at scale laptop" in printed.err
    assert f"{tmp_path / 'own-laptop.csv'} (" in printed.out
    assert command("report", own, "--from", tmp_path, "--out", tmp_path) == 1
    again = f"sb3-robust-be experiment run {own} --scale laptop --from {tmp_path}"
    assert capsys.readouterr().err.rstrip().endswith(again)

    assert command("run", own, "--out", there, "--from", tmp_path, *ENGINE) == 1
    assert made_in(there) == made_in(once) - first
    # Nothing is left, with the table or without it.
    assert command("run", own, "--out", there, "--from", tmp_path, *ENGINE) == 1
    assert command("run", own, "--out", there, *ENGINE) == 1
    assert made_in(there) == made_in(once) - first
    capsys.readouterr()
    assert command("status", own, "--out", there) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"own, selection runs: {SELECTED} done, 0 failed, 0 running, 0 left",
        "own, reported runs: 8 done, 1 failed, 0 running, 0 left",
    ]
    for out in (there, once):
        assert command("report", own, "--out", out) == 0
    assert beside(there / "reports-laptop" / "own") == beside(once / "reports-laptop" / "own")
    # What it publishes is the whole.
    assert command("publish", own, "--out", there, "--to", there) == 0
    assert command("publish", own, "--out", once, "--to", once) == 0
    tables = [load(out, "own", "laptop") for out in (there, once)]
    # But for where the runs were made: those that no command has made have no fingerprint.
    plain = [[{name: x for name, x in row.items() if name not in ORIGIN} for row in rows] for rows in tables]
    assert sorted(map(str, plain[0])) == sorted(map(str, plain[1]))
    assert all(set(ORIGIN) <= row.keys() for row in tables[1])


def test_a_contender_that_has_come_to_mean_something_else(own, tmp_path, capsys, monkeypatch):
    """Its runs are made again, and no page shows the old ones under its name."""
    here, there = tmp_path / "here", tmp_path / "there"
    command("run", own, "--out", here, *ENGINE)
    assert command("publish", own, "--out", here, "--to", tmp_path) == 0
    monkeypatch.setitem(CONTENDERS, CAPPED, 0.05)
    capsys.readouterr()
    assert command("report", own, "--from", tmp_path, "--out", tmp_path) == 1
    said = capsys.readouterr().err
    others = (
        "own has at least 2 runs left at scale laptop, 2 of which are known with other arguments than they have now"
    )
    assert said.startswith(f"{others}: sb3-robust-be experiment run ")
    # Two that choose, two that are reported; the third has failed and is not known.
    expected = "4 rows that were known are left out: the runs of their names have other arguments now"
    assert command("run", own, "--from", tmp_path, "--out", there, *ENGINE) == 1
    assert capsys.readouterr().out.count(expected) == 1
    assert made_in(there) == 2 + 3
    # The same again, with the table and without it, makes nothing.
    assert command("run", own, "--from", tmp_path, "--out", there, *ENGINE) == 1
    assert command("run", own, "--out", there, *ENGINE) == 1
    assert made_in(there) == 2 + 3
    assert command("publish", own, "--out", there, "--to", there) == 0
    finals = {
        (row["seed"], row["setting"]["rate"]): row["final"]
        for row in load(there, "own", "laptop")
        if row["contender"] == CAPPED and row["stage"] == "reported" and "failed" not in row
    }
    assert {seed: final for (seed, _), final in finals.items()} == {0: 0.05, 1: 0.05 * (1 + 1 / 3)}


def test_a_table_of_before_that_does_not_say_its_arguments(own, tmp_path, capsys):
    here, there = tmp_path / "here", tmp_path / "there"
    command("run", own, "--out", here, *ENGINE)
    assert command("publish", own, "--out", here, "--to", tmp_path) == 0
    rows = read_rows(tmp_path / "own-laptop.csv")
    older = [{name: value for name, value in row.items() if name != RUN_SPEC} for row in rows]
    write_rows(tmp_path / "own-laptop", older)
    capsys.readouterr()
    assert command("run", own, "--from", tmp_path, "--out", there, *ENGINE) == 1
    printed = capsys.readouterr().out
    assert f"15 of 15 rows in {tmp_path} do not say with which arguments they were made" in printed
    assert "left out" not in printed
    assert made_in(there) == 1, "the one that had failed"


def test_all_that_is_published(tmp_path, capsys):
    arguments = ["objectives", "--scale", "smoke", "--out", tmp_path]
    assert command("run", *arguments, *ENGINE) == 0
    assert command("publish", *arguments, "--to", tmp_path / "to") == 0
    shutil.rmtree(tmp_path / "objectives-smoke")
    capsys.readouterr()
    reported = ["report", "all", "--out", tmp_path, "--from", tmp_path / "to"]
    assert command(*reported) == 0
    pages = tmp_path / "reports-smoke-published"
    assert capsys.readouterr().out.splitlines() == [str(pages / "objectives.html"), str(pages / "index.html")]
    assert command(*reported, "--scale", "laptop") == 2
    assert "has no published experiment at scale laptop" in capsys.readouterr().err


def test_the_page_refuses_rows_of_other_runs(tmp_path, capsys):
    rows = load(FOLDER, "objectives", "paper")
    experiment = load_declared("objectives")
    digests = {str(run.names): run.digest for run in experiment.plan(experiment.preset("paper"), rows)}
    columns = experiment.plan(experiment.preset("paper"), rows)[0].names
    said = [{**row, RUN_SPEC: digests[str({name: row[name] for name in columns})]} for row in rows]
    write_rows(tmp_path / "objectives-paper", said)
    assert command("page", "--from", tmp_path) == 0
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    write_rows(tmp_path / "objectives-paper", [*said[:-2], {**said[-2], RUN_SPEC: "00000000"}, said[-1]])
    assert command("page", "--from", tmp_path) == 2
    says = f"1 of 30 rows of objectives in {tmp_path} were made with other arguments than it has now"
    assert says in capsys.readouterr().err
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == page


def test_the_longest_pages_are_begun_first_and_named_in_order(tmp_path, monkeypatch):
    begun = []

    class Pool(contextlib.nullcontext):
        def map(self, function, jobs):
            begun.extend(job.name for job in jobs)
            return [report_command.Page(job.name, None) for job in jobs]

    monkeypatch.setattr(report_command, "ProcessPoolExecutor", lambda *_, **__: Pool(Pool()))
    for name, size in (("short", 10), ("long", 1_000), ("middling", 100)):
        (tmp_path / f"{name}-laptop.csv").write_bytes(bytes(size))
    jobs = [
        report_command.Job(name, "laptop", str(tmp_path), "out", False, False) for name in ("short", "long", "middling")
    ]
    assert [page.said for page in report_command._in_processes(jobs)] == ["short", "long", "middling"]
    assert begun == ["long", "middling", "short"]
    # Of runs nothing is known before they are read.
    begun.clear()
    report_command._in_processes([job._replace(source=None) for job in jobs])
    assert begun == ["short", "long", "middling"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("objectives-paper.csv", None, "objectives is not published at scale paper in"),
        ("objectives-paper.csv", b"", "is no table of results, or damaged"),
        ("objectives-paper.csv", b"experiment,scale\nobjectives\n", "is no table of results, or damaged"),
        ("objectives-paper.csv", b"a,b\n1,2\n", "has rows of another experiment or scale"),
        (
            "objectives-paper.csv.bz2",
            bz2.compress(b"experiment,scale\n" * 99)[:-9],
            "is no table of results, or damaged",
        ),
    ],
)
@pytest.mark.parametrize("verb", ["report", "run"])
def test_files_that_cannot_be_used(verb, name, content, says, tmp_path, capsys):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    arguments = ["objectives", "--scale", "paper", "--from", tmp_path, "--out", tmp_path / "out"]
    assert command(verb, *arguments) == 2
    error = capsys.readouterr().err.strip()
    assert says in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "scale"), published(FOLDER))
def test_what_the_package_publishes_is_of_its_experiments(name, scale):
    """Every run of the experiment as it is declared now is there, and no other; each says where it was made."""
    experiment, rows = load_declared(name), load(FOLDER, name, scale)
    found, missing = collected(experiment, scale, Results("nowhere", rows))
    assert (len(found), missing) == (len(rows), [])
    runs = experiment.plan(experiment.preset(scale), rows)
    named = {tuple(str(row.get(column)) for column in runs[0].names) for row in rows}
    assert len(named) == len(runs)
    assert all(row["hardware"] and row["versions"] and row["date"].startswith("20") for row in rows)


def test_the_published_files_are_small():
    sizes = [path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()]
    assert max(sizes) < 1_200_000
    assert sum(sizes) < 5_000_000
