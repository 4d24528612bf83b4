"""The page of results where tables have several sizes, and which tables and pictures it has."""

from __future__ import annotations

import re

import pytest

from sb3_robust_be.experiments import results_page
from sb3_robust_be.experiments.declared import load_declared
from sb3_robust_be.experiments.publish import publish
from sb3_robust_be.experiments.results_page import PICTURES, WANTED_TABLES, larger_scale, results_section
from sb3_robust_be.report import Report, Table

SMALLER = "This is a smaller size of the experiment."


@pytest.fixture
def two_sizes(tmp_path):
    """Tables of ``control`` at two scales and of ``objectives`` at one; empty, where only names are asked for."""
    for name in ("objectives-paper", "control-laptop", "control-long"):
        (tmp_path / f"{name}.csv").touch()
    return tmp_path


def test_the_larger_size_comes_first(two_sizes, monkeypatch):
    monkeypatch.setattr(results_page, "results_section", lambda folder, name, scale: f"## {name} ({scale})\n")
    page = results_page.results_page(two_sizes)
    wanted = [("objectives", "paper"), ("control", "long"), ("control", "laptop")]
    assert re.findall(r"^## (\S+) \((\w+)\)$", page, re.MULTILINE) == wanted
    assert re.findall(r"\]\(#(\S+)-(\w+)\) \([^)]*; scale `(\w+)`\)$", page, re.MULTILINE) == [
        (name, scale, scale) for name, scale in wanted
    ]


def test_larger_scale(two_sizes):
    assert larger_scale(two_sizes, "control", "laptop") == "long"
    assert larger_scale(two_sizes, "control", "long") is None
    assert larger_scale(two_sizes, "objectives", "paper") is None
    assert larger_scale(two_sizes, "threshold", "laptop") is None


@pytest.fixture
def small_reports(monkeypatch):
    """Sections made from a report with a table of 60 and two of 61 rows."""
    tables = [Table(name, [{"x": i} for i in range(n)]) for name, n in (("short", 60), ("returns", 61), ("long", 61))]
    for name in ("load", "control_rows"):
        monkeypatch.setattr(results_page, name, lambda *arguments: [])
    monkeypatch.setattr(
        results_page, "make_report", lambda experiment, *rest: Report("Of tests", experiment.name, tables=tables)
    )


def test_contenders_of_tables_of_0_1_have_the_names_of_today(tmp_path, monkeypatch):
    experiment = load_declared("saddlepoint")
    names = {"stage": "reported", "domain": "acrobot", "contender": "gq_huber", "setting": {}, "seed": 0, "steps": 9}
    publish("saddlepoint", "laptop", [{**names, "final": 1.0}], tmp_path)
    shown = []

    def report_of(experiment, scale, rows, *rest):
        shown.extend(row["contender"] for row in rows)
        return Report("Of tests", experiment.name)

    monkeypatch.setattr(results_page, "make_report", report_of)
    results_section(tmp_path, "saddlepoint", "laptop")
    assert shown == ["gq_huber, hard clip"] == [experiment.names_of_0_1["gq_huber"]]


def test_the_smaller_size_says_so(two_sizes, small_reports):
    """And each has the pictures of its own scale alone."""
    larger, smaller = (results_section(two_sizes, "control", scale) for scale in ("long", "laptop"))
    assert SMALLER not in larger
    assert f"{SMALLER} The larger one, at [scale `long`](#control-long), stands above; where they differ" in smaller
    assert "control.png" in larger
    assert "control.png" not in smaller


def test_long_tables_are_left_to_the_report_but_for_wanted_ones(two_sizes, small_reports):
    assert WANTED_TABLES["one-setting"] == ("returns",)
    wanted, other = (results_section(two_sizes, name, "laptop") for name in ("one-setting", "control"))
    assert wanted.count("| x |") == 2
    assert "Longer tables are in the report: long." in wanted
    assert other.count("| x |") == 1
    assert "Longer tables are in the report: returns, long." in other


def test_pictures_and_wanted_tables_are_of_experiments_that_there_are():
    for name, scale in PICTURES:
        assert scale in load_declared(name).presets
    assert all(load_declared(name).name == name for name in WANTED_TABLES)
