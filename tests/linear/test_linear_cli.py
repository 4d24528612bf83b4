"""``sb3-robust-be linear``: what it prints for a person and for a program."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from sb3_robust_be.linear import PROBLEMS, Problem, get, msve, solve
from sb3_robust_be.linear import text_tables as tables
from sb3_robust_be.linear.linear_command import main
from sb3_robust_be.linear.picture import curves

SMALL_SWEEP = ["--seeds", "2", "--steps", "200", "--evaluations", "4", "--alphas", "0.01", "0.5", "--etas", "0.5", "1"]


def run_json(capsys, *arguments):
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_solve_json_holds_the_solutions(capsys):
    report = run_json(capsys, "solve", "HardAlias-2", "--tau", "0.03", "-o", "epsilon=0.02")
    problem = get("HardAlias-2", epsilon=0.02)
    rows = {row["objective"]: row for row in report["solutions"]}
    assert report["options"] == {"epsilon": 0.02}
    assert set(rows) >= {"td", "msve", "mave", "msbe", "mabe", "mhbe(0.03)", "mhpbe(0.03)", "mapbe", "mspbe", "mstde"}
    for name, options in (("msbe", {}), ("mhbe", {"tau": 0.03})):
        row = rows[name if not options else "mhbe(0.03)"]
        point = solve(problem, name, **options)
        np.testing.assert_allclose(row["theta"], point.theta, rtol=1e-12)
        best = solve(problem, "msve").value
        assert row["msve_relative"] == pytest.approx(msve(problem, point.theta) / best)
        assert row["converged"]


@pytest.mark.parametrize("name", PROBLEMS)
def test_solve_prints_a_table(capsys, name):
    assert main(["solve", name, "--objective", "td", "msbe", "mhbe", "--tau", "0.5"]) == 0
    out = capsys.readouterr().out
    for word in (name, "td", "msbe", "mhbe(0.5)", "MSVE"):
        assert word in out


def test_solve_options_change_the_result(capsys):
    base = ["solve", "HardAlias-1", "--objective", "mhpbe", "--tau", "0.1"]
    bases = ("features", "wide", "all")
    features, wide, everything = (run_json(capsys, *base, "--basis", basis)["solutions"] for basis in bases)
    assert features[0]["value"] < wide[0]["value"] < everything[0]["value"]
    search = ["solve", "HardAlias-1", "--objective", "msbe", "td", "--method", "iterative"]
    iterative = run_json(capsys, *search)["solutions"]
    assert [row["objective"] for row in iterative] == ["msbe"]
    assert iterative[0]["iterations"] > 0
    assert iterative[0]["margin"] is None


def test_sweep_json(capsys):
    report = run_json(capsys, "sweep", "SmallChain", "--algorithms", "tdc", "td", *SMALL_SWEEP)
    assert [row["algorithm"] for row in report["algorithms"]] == ["tdc", "td"]
    for row in report["algorithms"]:
        assert row["alpha"] in (0.01, 0.5)
        assert row["auc"] == pytest.approx(min(row["auc_by_alpha"]))
    cell = ["--alphas", "0.5", "--etas", "1", "--seeds", "2", "--steps", "2000"]
    diverging = run_json(capsys, "sweep", "Baird", "--algorithms", "td", *cell)
    assert diverging["algorithms"][0]["auc"] is None
    assert diverging["algorithms"][0]["diverged_fraction"] == 1.0


@pytest.mark.parametrize("rich", [True, False])
def test_sweep_prints_a_table_and_progress(capsys, monkeypatch, rich):
    if not rich:
        monkeypatch.setattr(tables, "find_spec", lambda name: None)
    assert main(["sweep", "SmallChain", "--algorithms", "tdc-huber", "--tau", "0.5", *SMALL_SWEEP]) == 0
    out, err = capsys.readouterr()
    for word in ("SmallChain", "tdc-huber", "mean MSVE", "2 × 2 step sizes"):
        assert word in out
    if not rich:
        assert "100 %" in err
        assert err.count("\n") <= 10


def test_solve_shows_progress_on_stderr(capsys, monkeypatch):
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    assert main(["solve", "HardAlias-2", "--objective", "td", "msbe", "mabe", "mave", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [row["objective"] for row in json.loads(out)["solutions"]] == ["td", "msbe", "mabe", "mave"]
    assert [line.rsplit(": ", 1)[1] for line in err.splitlines()] == ["20 %", "50 %", "70 %", "100 %"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve", "Bard"], "name is 'Bard'; give one of HardAlias-1"),
        (["solve", "Baird", "-o", "epsilon=1"], "epsilon is not an option of Baird"),
        (["solve", "HardAlias-2", "--tau", "-1"], "tau is -1.0; give a positive"),
        (["sweep", "Baird", "--jobs", "0", *SMALL_SWEEP], "jobs is 0"),
        (["plot", "Baird", "x.png"], "problem Baird has 8 weights; give one with a single weight"),
    ],
)
def test_mistakes_are_one_line(capsys, arguments, message):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [[], ["solve"], ["solve", "Baird", "-o", "start"], ["sweep", "Baird", "--algorithms", "x"]]
)
def test_usage_errors(capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "usage: sb3-robust-be linear" in capsys.readouterr().err


def test_unsolvable_td_is_a_note(capsys, monkeypatch):
    singular = Problem.from_chain(
        [[0.0, 1.0], [0.0, 0.0]], [1.0, 0.0], 0.9, [[1.0], [2.0]], d=[5 / 6, 1 / 6], name="odd"
    )
    monkeypatch.setattr("sb3_robust_be.linear.linear_command.get", lambda name: singular)
    assert main(["solve", "odd", "--objective", "td", "msbe"]) == 0
    out, err = capsys.readouterr()
    assert "TD fixed point does not exist" in err
    assert "msbe" in out


def test_plot(capsys, tmp_path):
    target = tmp_path / "objectives.png"
    assert main(["plot", "HardAlias-2", str(target), "--tau", "0.05", "--range", "-1", "0.5"]) == 0
    assert target.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert str(target) in capsys.readouterr().out


def test_curves_have_their_minima_at_the_fixed_points():
    problem, theta = get("HardAlias-2"), np.linspace(-1.5, 1.5, 3001)
    panels = curves(problem, theta, 0.03)
    expected = {"MSVE": "msve", "MSBE": "msbe", "MHBE, τ = 0.03": "mhbe", "MABE": "mabe"}
    for label, values in panels["Bellman errors"].items():
        options = {"tau": 0.03} if "τ" in label else {}
        assert theta[values.argmin()] == pytest.approx(solve(problem, expected[label], **options).theta[0], abs=1e-3)
    td = solve(problem, "td").theta[0]
    for values in panels["Projected Bellman errors"].values():
        assert theta[values.argmin()] == pytest.approx(td, abs=1e-3)


def test_importing_the_package_stays_light():
    code = (
        "import sys, sb3_robust_be.linear as l; l.get('Baird')\n"
        "heavy = {'torch', 'stable_baselines3', 'numba', 'scipy', 'matplotlib', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve", "HardAlias-2", "-o", "epsilon=foo"], "the options {'epsilon': 'foo'} do not fit HardAlias-2"),
        (["sweep", "Baird", "--steps", "0"], "steps is 0; give at least 1"),
        (["sweep", "Baird", "--steps", "9", "--alphas", "inf"], "give positive, finite step sizes"),
        (["plot", "HardAlias-2", "no-such-folder/picture.png"], "No such file or directory"),
    ],
)
def test_mistakes_give_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error
