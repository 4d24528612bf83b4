"""Rows of runs, tables of rows, and reports made from them alone."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

import pytest
from own_experiment import CAPPED, CONTENDERS, EXPERIMENT, RATES, SELECTED, SHARED, plan, specs_of

from sb3_robust_be.experiments import running
from sb3_robust_be.experiments.declared import load_declared
from sb3_robust_be.experiments.experiment import (
    REPORTED,
    SELECTION,
    Results,
    Run,
    distinct_specs,
    of_runs,
    rows_of_same_runs,
    without_rows,
)
from sb3_robust_be.experiments.find import collected, keep_known, keep_shared, results_in, stage_counts
from sb3_robust_be.experiments.publish import load, publish, published
from sb3_robust_be.experiments.reporting import make_report
from sb3_robust_be.experiments.rows import ORIGIN, RUN_SPEC, read_rows, write_rows
from sb3_robust_be.experiments.run_functions import run_units
from sb3_robust_be.runner.specs import dumps

SEEDS = 3


def execute(out, specs):
    return run_units([[spec] for spec in specs], out, executor="serial", progress=False)


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A folder in which the runs that choose have been made."""
    out = tmp_path_factory.mktemp("half")
    assert execute(out, specs_of(SEEDS)) == (SELECTED - SHARED, 0, 0)
    return out


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    execute(out, specs_of(SEEDS))
    assert execute(out, specs_of(SEEDS, EXPERIMENT.collect(SEEDS, Results(out)))).failed == 1
    return out


def names(runs):
    return [run.names for run in runs]


def without_origin(row):
    return {name: value for name, value in row.items() if name not in ORIGIN}


# --- from runs to rows ---


def test_a_run_has_a_row_with_its_names_and_what_was_measured(whole):
    rows = EXPERIMENT.collect(SEEDS, Results(whole))
    assert len(rows) == SELECTED + 3 * SEEDS
    first = rows[0]
    assert (first["experiment"], first["stage"], first["domain"], first["seed"]) == ("own", SELECTION, "line", 10_000)
    assert first["setting"] == {"rate": 0.1}
    reported = [row for row in rows if row["stage"] == REPORTED and row["contender"] == "plain"]
    assert [row["setting"]["rate"] for row in reported] == [0.2] * 3, "the better one"
    assert [row["final"] for row in reported] == [0.2 * (1.0 + seed / 3.0) for seed in range(3)]
    assert reported[1]["curve"][-1] == 0.266667
    assert not any("unread" in row for row in rows)


def test_a_run_that_failed_has_one_row_with_its_error(whole):
    rows = EXPERIMENT.collect(SEEDS, Results(whole))
    (failed,) = [row for row in rows if "failed" in row]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", failed["date"])
    spec = '{"cap":0.15,"function":"own_experiment:make","rate":0.2,"seed":null}'
    assert without_origin(failed) == {
        "run_spec": hashlib.sha256(spec.encode()).hexdigest()[:8],
        "experiment": "own",
        "stage": REPORTED,
        "domain": "line",
        "contender": CAPPED,
        "setting": {"rate": 0.2},
        "seed": 2,
        "failed": "no luck",
    }
    assert collected(EXPERIMENT, "laptop", Results(whole))[1] == []


def test_contenders_that_share_a_run_have_a_row_each(half):
    runs = plan(SEEDS, [])
    assert (len(runs), len(distinct_specs(runs))) == (SELECTED, SELECTED - SHARED)
    rows = EXPERIMENT.collect(SEEDS, Results(half))
    plain, same = ([row for row in rows if row["contender"] == label] for label in ("plain", "no cap"))
    assert [row["final"] for row in plain] == [row["final"] for row in same]
    assert [row["setting"] for row in plain] == [row["setting"] for row in same]


def test_rows_of_the_same_runs_are_taken_under_other_names(half):
    rows = EXPERIMENT.collect(SEEDS, Results(half))
    by_label = {label: [row for row in rows if row["contender"] == label] for label in CONTENDERS}
    left = without_rows(plan(SEEDS, []), by_label["plain"])
    found = rows_of_same_runs(left, by_label["plain"], "later")
    assert found == [{**row, "contender": "no cap", "experiment": "later"} for row in by_label["plain"]]
    assert len(found) == SHARED
    # Whoever of several has it: once.
    assert rows_of_same_runs(left, [*by_label["plain"], *by_label["no cap"]], "later") == found
    # Of several rather whose setting has the same arguments, whose other digits then go with each other.
    swept = [{**row, "setting": {**row["setting"], "cap": 1.0}, "final": -1.0} for row in by_label["plain"]]
    for several in ([*swept, *by_label["plain"]], [*by_label["plain"], *swept]):
        assert rows_of_same_runs(left, several, "later") == found
    assert [row["final"] for row in rows_of_same_runs(left, swept, "later")] == [-1.0] * SHARED
    # Not what has another spec, another seed or stage, or failed, or does not say what it was.
    for other in ({RUN_SPEC: "0" * 8}, {"seed": 3}, {"stage": REPORTED}, {"failed": "no luck"}):
        assert rows_of_same_runs(left, [{**row, **other} for row in by_label["plain"]], "later") == []
    nameless = [{name: row[name] for name in row if name != RUN_SPEC} for row in by_label["plain"]]
    assert rows_of_same_runs(left, nameless, "later") == []


def test_what_is_shared_and_known_counts_once(half, tmp_path):
    rows = EXPERIMENT.collect(SEEDS, Results(half))
    keep_shared(tmp_path, rows[:2])
    keep_shared(tmp_path, rows[1:3])
    assert [row["final"] for row in results_in(tmp_path).known] == [row["final"] for row in rows[:3]]
    # Made and published elsewhere with other digits, by now the experiment's own.
    keep_known(tmp_path, [{**row, "final": -1.0, "date": "later"} for row in rows[:2]])
    assert [row["final"] for row in results_in(tmp_path).known] == [-1.0, -1.0, rows[2]["final"]]


def test_what_is_shared_stays_beside_rows_of_0_1(half, tmp_path):
    """Whose contenders of the same names may be others."""
    rows = EXPERIMENT.collect(SEEDS, Results(half))
    older = [{name: value for name, value in row.items() if name != RUN_SPEC} for row in rows[:2]]
    keep_known(tmp_path, older)
    keep_shared(tmp_path, rows[:1])
    found = results_in(tmp_path).known
    assert [row["final"] for row in found] == [row["final"] for row in (*rows[:2], rows[0])]
    assert [RUN_SPEC in row for row in found] == [False, False, True]
    other = replace(EXPERIMENT, names_of_0_1={rows[0]["contender"]: "another"})
    assert other.planned(SEEDS, found)[1][-1] == found[-1]


def test_a_table_that_another_shard_has_just_written_is_read(whole, tmp_path, monkeypatch):
    """Grown, it has another ending, and that which was found is gone."""
    rows = EXPERIMENT.collect(SEEDS, Results(whole))
    keep_shared(tmp_path, rows[:1])
    tries = []

    def read(table):
        if not tries:
            monkeypatch.setattr("sb3_robust_be.experiments.rows._PLAIN_BYTES", 0)
            write_rows(tmp_path / "shared", rows[:3])
        tries.append(table.name)
        return read_rows(table)

    monkeypatch.setattr("sb3_robust_be.experiments.find.read_rows", read)
    assert [row["final"] for row in results_in(tmp_path).known] == [row["final"] for row in rows[:3]]
    assert tries == ["shared.csv", "shared.csv.bz2"]


def in_any_order(rows):
    return sorted(dumps({**without_origin(row), "scale": "laptop", "nothing": None}, "row") for row in rows)


def test_an_experiment_goes_on_from_the_tables_of_others(whole, tmp_path, monkeypatch, capsys):
    source, out = tmp_path / "tables", tmp_path / "out"
    rows = EXPERIMENT.collect(SEEDS, Results(whole))
    publish("own", "laptop", rows, source)
    later = replace(EXPERIMENT, name="later")
    foreign = replace(EXPERIMENT, name="own", measure=lambda run, results: [{"final": 0.0}])
    declared = {"own": EXPERIMENT}
    monkeypatch.setattr(running, "names", lambda: tuple(declared))
    monkeypatch.setattr(running, "load_declared", declared.__getitem__)
    how = {"executor": "serial", "progress": False}

    declared["own"] = foreign
    with pytest.raises(ValueError, match="later is not published at scale laptop"):
        running.run(later, out=tmp_path / "foreign", source=source, **how)
    declared["own"] = EXPERIMENT
    ran = running.run(later, out=out, source=source, **how)
    assert "rows are those of other experiments or contenders" in capsys.readouterr().out
    # All but the run that failed there: it was made here, and failed again.
    assert ran.failed == 1
    assert len(list((out / "later-laptop" / "runs").iterdir())) == 1
    found, left = collected(later, "laptop", results_in(out / "later-laptop"))
    assert left == []
    assert in_any_order(found) == in_any_order({**row, "experiment": "later"} for row in rows)

    # Published, these rows are its own; going on from its own table, none is there twice.
    publish("later", "laptop", found, source)
    again = running.run(later, out=out, source=source, **how)
    assert len(again.rows) == len(rows)
    assert len(collected(later, "laptop", results_in(out / "later-laptop"))[0]) == len(rows)

    # A fresh one takes none.
    fresh = running.run(later, out=tmp_path / "fresh", fresh=True, **how)
    assert len(fresh.rows) == len(rows)
    assert len(list((tmp_path / "fresh" / "later-laptop" / "runs").iterdir())) > 1


def test_what_is_left_is_what_no_row_names(half):
    runs = plan(SEEDS, [])
    rows = EXPERIMENT.collect(SEEDS, Results(half))
    assert without_rows(runs, []) == runs
    assert without_rows(runs, rows) == []
    assert without_rows(runs, rows[1:]) == runs[:1]
    # A row that names less, or has another value, is another's.
    assert without_rows(runs[:1], [{**rows[0], "seed": 9}]) == runs[:1]
    assert without_rows(runs[:1], [{name: rows[0][name] for name in rows[0] if name != "setting"}]) == runs[:1]
    assert without_rows(runs[:1], [{**rows[0], "setting": {"rate": 0.1, "more": 1}}]) == runs[:1]


def test_known_rows_come_first_and_their_runs_are_not_looked_for(half, tmp_path):
    rows = EXPERIMENT.collect(SEEDS, Results(half))
    known = [{**row, "final": -row["final"]} for row in rows[:2]]
    assert EXPERIMENT.collect(SEEDS, Results(tmp_path, known)) == known
    found = EXPERIMENT.collect(SEEDS, Results(half, known))
    assert [row["final"] for row in found] == [row["final"] for row in (*known, *rows[2:])]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"final": 1.0, "seed": 7}], "gives 'seed', which is among the names of the run already"),
        ([{"final": 1.0, "run_spec": 7}], "gives 'run_spec', which is among the names of the run already"),
        ([], "gives no row of a run that is done; give at least one"),
    ],
)
def test_rows_by_which_a_run_is_not_found_again_are_refused(rows, says, half):
    """Such a run would be looked for without an end."""
    wrong = replace(EXPERIMENT, measure=lambda run, results: rows)
    with pytest.raises(ValueError, match=f"own's measure {says}"):
        wrong.collect(SEEDS, Results(half))


def test_counts_of_stages(half, whole, tmp_path):
    by_stage = stage_counts(EXPERIMENT, "laptop", Results(whole))
    assert by_stage == {SELECTION: (SELECTED, 0, 0, 0), REPORTED: (8, 1, 0, 0)}
    assert stage_counts(EXPERIMENT, "laptop", Results(half))[REPORTED] == (0, 0, 0, 9)
    assert stage_counts(EXPERIMENT, "laptop", Results(tmp_path)) == {SELECTION: (0, 0, 0, SELECTED)}


# --- rows of runs that had other arguments ---


def test_what_tells_the_specs_of_runs_apart():
    """Where the seed is among the names it is left to them; else it counts like all the rest."""
    spec = {"function": "f", "rate": 0.1, "seed": 3}
    named = Run({"seed": 3}, spec).digest
    assert re.fullmatch("[0-9a-f]{8}", named)
    assert Run({"seed": 4}, {**spec, "seed": 4}).digest == named
    others = [Run({"seed": 3}, {**spec, "rate": 0.2}), Run({}, spec), Run({"seed": 4}, spec)]
    assert named not in {run.digest for run in others}
    assert Run({}, spec).digest != Run({}, {**spec, "seed": 4}).digest


def test_rows_of_runs_that_had_other_arguments_do_not_count(whole, monkeypatch):
    rows = EXPERIMENT.collect(SEEDS, Results(whole))
    assert EXPERIMENT.planned(SEEDS, rows) == (plan(SEEDS, rows), rows)
    monkeypatch.setitem(CONTENDERS, CAPPED, 0.05)
    runs, fitting = EXPERIMENT.planned(SEEDS, rows)
    assert fitting == [row for row in rows if row["contender"] != CAPPED]
    # What is reported depends on what is to be chosen anew.
    assert [(run.names["stage"], run.names["setting"]["rate"]) for run in without_rows(runs, fitting)] == [
        (SELECTION, rate) for rate in RATES
    ]
    assert stage_counts(EXPERIMENT, "laptop", Results("nowhere", rows)) == {SELECTION: (4, 0, 0, 2)}
    rows, missing = collected(EXPERIMENT, "laptop", Results("nowhere", rows))
    assert rows == fitting
    assert names(missing) == names(without_rows(runs, fitting))


def test_contenders_of_old_tables_have_the_names_of_today(whole):
    rows = EXPERIMENT.collect(SEEDS, Results(whole))
    older = [{name: value for name, value in row.items() if name != RUN_SPEC} for row in rows]
    today = {"plain": "another", CAPPED: "a third"}
    renamed = replace(EXPERIMENT, names_of_0_1=today)
    runs, found = renamed.planned(SEEDS, [*older, rows[0]])
    expected = [{**row, "contender": today.get(row["contender"], row["contender"])} for row in older]
    assert found == [*expected, rows[0]], "a row with a run_spec says what it is"
    assert without_rows(runs, found) == [run for run in plan(SEEDS, []) if run.names["contender"] in today][1:]
    assert renamed.planned(SEEDS, found) == (runs, found)
    with pytest.raises(ValueError, match=r"names_of_0_1 has \['no cap'\] as names of 0.1 and as names of today"):
        replace(EXPERIMENT, names_of_0_1={"plain": "no cap", "no cap": "another"})


@pytest.mark.parametrize("name", ["control", "saddlepoint", "target-networks", "threshold"])
def test_the_hard_clip_of_0_1_is_the_hard_clip_of_today(name):
    experiment = load_declared(name)
    contenders = {one.label: one for one in experiment.preset("laptop").contenders}
    renamed = {old: new for old, new in experiment.names_of_0_1.items() if new in contenders}
    assert renamed
    for old, new in renamed.items():
        if contenders[new].algorithm.endswith("_huber"):
            assert contenders[old].choices["projection"] == "smooth_huber"
            assert {**contenders[old].choices, "projection": "huber"} == contenders[new].choices
    huber = {old for old in contenders if old in renamed and contenders[old].algorithm.endswith("_huber")}
    smooth = {label for label, one in contenders.items() if one.choices.get("projection") == "smooth_huber"}
    assert huber == smooth


def test_rows_of_settings_that_are_not_chosen_any_more_are_left_out_in_the_end(whole, tmp_path, capsys):
    rows = EXPERIMENT.collect(SEEDS, Results(whole))
    chosen = next(row for row in rows if row["stage"] == REPORTED and row["contender"] == "plain")
    assert chosen["setting"] == {"rate": 0.2}
    earlier = {**chosen, "setting": {"rate": 0.1}}
    assert of_runs(plan(SEEDS, rows), [earlier, *rows]) == rows
    assert collected(EXPERIMENT, "laptop", Results("nowhere", [earlier, *rows])) == (rows, [])
    # As long as a run is missing it may still be chosen.
    waiting, missing = collected(EXPERIMENT, "laptop", Results("nowhere", [earlier, *rows[1:]]))
    assert (waiting, len(missing)) == ([earlier, *rows[1:]], 1)
    publish("own", "laptop", [earlier, *rows], tmp_path / "tables")
    how = {"executor": "serial", "progress": False}
    ran = running.run(EXPERIMENT, out=tmp_path / "out", source=tmp_path / "tables", **how)
    assert in_any_order(ran.rows) == in_any_order(rows)
    assert "1 rows that were known are left out: their runs are not planned any more." in capsys.readouterr().out


def test_rows_that_do_not_say_with_which_arguments_are_taken_by_their_names(whole, monkeypatch):
    rows = EXPERIMENT.collect(SEEDS, Results(whole))
    older = [{name: value for name, value in row.items() if name != RUN_SPEC} for row in rows]
    assert collected(EXPERIMENT, "laptop", Results("nowhere", older)) == (older, [])
    monkeypatch.setitem(CONTENDERS, CAPPED, 0.05)
    assert collected(EXPERIMENT, "laptop", Results("nowhere", older)) == (older, [])
    # Beside such rows, those that say it are looked at.
    mixed = [*older[:-1], rows[-1]]
    assert rows[-1]["contender"] == CAPPED
    assert collected(EXPERIMENT, "laptop", Results("nowhere", mixed))[0] == older[:-1]


def test_runs_that_share_their_names_are_all_looked_at(whole):
    """Two contenders with one label: rows of either are the plan's."""
    rows = EXPERIMENT.collect(SEEDS, Results(whole))
    first, *others = plan(SEEDS, [])
    twice = [first, first._replace(spec={**first.spec, "rate": 7}), *others]
    doubled = replace(EXPERIMENT, plan=lambda preset, rows: twice)
    for one in twice[:2]:
        own = [{**rows[0], RUN_SPEC: one.digest}]
        assert doubled.planned(SEEDS, own)[1] == own
    assert doubled.planned(SEEDS, [{**rows[0], RUN_SPEC: "00000000"}])[1] == []


def test_a_table_that_says_more_than_before_is_still_the_folders(whole, tmp_path):
    rows = EXPERIMENT.collect(SEEDS, Results(whole))
    keep_known(tmp_path, [{name: value for name, value in row.items() if name != RUN_SPEC} for row in rows])
    keep_known(tmp_path, rows)
    assert all(RUN_SPEC in row for row in results_in(tmp_path).known)


# --- from rows to tables and back ---


def same_reports(one, other):
    assert other.verdicts == one.verdicts
    assert [table.markdown() for table in other.tables] == [table.markdown() for table in one.tables]
    assert [plot.csv() for plot in other.plots] == [plot.csv() for plot in one.plots]
    assert (other.failures, other.notes, other.versions, other.hardware) == (
        one.failures,
        one.notes,
        one.versions,
        one.hardware,
    )


def test_a_report_from_the_table_is_that_from_the_runs(whole, tmp_path):
    rows, _ = collected(EXPERIMENT, "laptop", Results(whole))
    path = publish("own", "laptop", rows, tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "own-laptop.csv"
    assert published(path.parent) == [("own", "laptop")]
    back, missing = collected(EXPERIMENT, "laptop", Results("nowhere", load(path.parent, "own", "laptop")))
    assert missing == []
    found, wanted = (make_report(EXPERIMENT, "laptop", one, "the command") for one in (back, rows))
    same_reports(found, wanted)
    assert found.command == "the command"
    assert found.failures == [(f"line, {CAPPED}, reported, seed 2", "no luck")]


def test_a_table_published_again_is_the_same(whole, tmp_path):
    rows = EXPERIMENT.collect(SEEDS, Results(whole))
    first = publish("own", "laptop", rows, tmp_path / "a")
    second = publish("own", "laptop", load(tmp_path / "a", "own", "laptop"), tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()


def test_half_an_experiment_goes_on_elsewhere(half, whole, tmp_path):
    rows, missing = collected(EXPERIMENT, "laptop", Results(half))
    assert {run.names["stage"] for run in missing} == {REPORTED}
    publish("own", "laptop", rows, tmp_path)
    elsewhere = tmp_path / "elsewhere"
    keep_known(elsewhere, load(tmp_path, "own", "laptop"))
    known, still = collected(EXPERIMENT, "laptop", results_in(elsewhere))
    assert names(still) == names(missing)
    execute(elsewhere, distinct_specs(still))
    assert len(list(elsewhere.glob("runs/*/spec.json"))) == 2 * SEEDS
    rows, missing = collected(EXPERIMENT, "laptop", results_in(elsewhere))
    assert missing == []
    assert [row["final"] for row in rows[: len(known)]] == [row["final"] for row in known]
    wanted = EXPERIMENT.collect(SEEDS, Results(whole))
    same_reports(*(make_report(EXPERIMENT, "laptop", one, "") for one in (rows, wanted)))


def test_runs_that_failed_elsewhere_are_made_again(whole, tmp_path):
    rows = EXPERIMENT.collect(SEEDS, Results(whole))
    keep_known(tmp_path, rows)
    _, missing = collected(EXPERIMENT, "laptop", results_in(tmp_path))
    assert names(missing) == [{name: row[name] for name in missing[0].names} for row in rows if "failed" in row]


def test_rows_that_a_folder_goes_on_from_are_not_lost(whole, tmp_path):
    rows = EXPERIMENT.collect(SEEDS, Results(whole))
    for given in (rows[:4], rows[:4], rows[:6]):
        keep_known(tmp_path, given)
        assert len(results_in(tmp_path).known) == len(given)
    with pytest.raises(ValueError, match="goes on from 2 rows that are not in the table given; give another --out"):
        keep_known(tmp_path, rows[2:])
    assert len(results_in(tmp_path).known) == 6


def test_the_report_says_where_and_when_the_runs_were_made(whole):
    rows = [without_origin(row) for row in EXPERIMENT.collect(SEEDS, Results(whole))]
    origins = [
        {"hardware": "processor: theirs; cores: 2", "versions": "numpy: 1.2", "date": "2026-01-02"},
        {"hardware": "processor: ours; cores: 2", "versions": "numpy: 1.2; torch: 3", "date": "2026-03-04"},
        {},
    ]
    known = [{**row, **origins[min(i, 2)]} for i, row in enumerate(rows)]
    found = make_report(EXPERIMENT, "laptop", known, "")
    assert found.hardware == {"processor": "theirs / ours", "cores": "2"}
    assert found.versions == {"numpy": "1.2", "torch": "3"}
    assert "The runs were made from 2026-01-02 to 2026-03-04." in found.notes
    found = make_report(EXPERIMENT, "laptop", known[:1] + rows[1:], "")
    assert "The runs were made on 2026-01-02." in found.notes
    unknown = make_report(EXPERIMENT, "laptop", rows, "")
    assert (unknown.hardware, unknown.versions) == ({}, {})
    assert not any("were made" in note for note in unknown.notes)


def test_what_is_not_published_is_told_with_what_is(whole, tmp_path):
    with pytest.raises(ValueError, match=r"own is not published at scale paper in .*\. There is: nothing\."):
        load(tmp_path / "nowhere", "own", "paper")
    rows = EXPERIMENT.collect(SEEDS, Results(whole))
    publish("own", "smoke", rows, tmp_path)
    publish("another-one", "paper", [{"final": 1.0}], tmp_path)
    (tmp_path / "notes.csv").write_text("a\n1\n")
    (tmp_path / "own-huge.csv").write_text("a\n1\n")
    assert published(tmp_path) == [("another-one", "paper"), ("own", "smoke")]
    with pytest.raises(ValueError, match=r"There is: another-one --scale paper, own --scale smoke\."):
        load(tmp_path, "own", "laptop")


def test_a_table_under_a_wrong_name_is_told(whole, tmp_path):
    path = publish("own", "laptop", EXPERIMENT.collect(SEEDS, Results(whole)), tmp_path)
    path.rename(tmp_path / "own-paper.csv")
    with pytest.raises(ValueError, match=r"own-paper\.csv has rows of another experiment or scale than its name says"):
        load(tmp_path, "own", "paper")
