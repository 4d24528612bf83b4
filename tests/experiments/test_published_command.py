"""``experiment publish`` and ``report --published``, and what the package itself publishes."""

from __future__ import annotations

import gzip
import shutil

import pytest
from sb3_robust_be.experiments.parts import from_columns
from sb3_robust_be.experiments.published import FOLDER, load, published
from test_published import make_runs

from sb3_robust_be import cli, report
from sb3_robust_be.experiments.declared import load_declared

OWN = """
from test_published import experiment
EXPERIMENT = experiment()
"""


def command(*arguments):
    return cli.main(["experiment", *map(str, arguments)])


def test_publish_and_report_from_the_command_line(tmp_path, capsys, monkeypatch):
    own, to = tmp_path / "own.py", tmp_path / "published"
    own.write_text(OWN)
    assert command("publish", own, "--out", tmp_path, "--to", to) == 1
    assert "own has at least 3 runs left at scale laptop" in capsys.readouterr().err
    assert not to.exists()
    make_runs(tmp_path / "own-laptop")
    made = ["--hardware", "processor=theirs", "GPU=a big one", "--versions", "numpy=1.2"]
    assert command("publish", own, "--out", tmp_path, *made) == 0
    assert capsys.readouterr().out.startswith(f"{to / 'own-laptop.json'} (")
    assert str(tmp_path) not in (to / "own-laptop.json").read_text()
    shutil.rmtree(tmp_path / "own-laptop")
    monkeypatch.setattr(report, "versions", lambda: {"another": "2.0"})
    assert command("report", own, "--out", tmp_path, "--from", to) == 0
    page = (tmp_path / "reports-laptop-published" / "own.html").read_text(encoding="utf-8")
    assert "sb3-robust-be experiment run own.py --scale laptop" in page
    assert "another" not in page
    assert all(word in page for word in ("numpy", "1.2", "a big one"))
    assert "no luck" in page
    capsys.readouterr()
    assert command("report", own, "--out", tmp_path, "--from", to, "--markdown") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("### Own (nowhere)\n\n- The finals are small: **holds** (0.3333; computed: below 1)\n")
    assert "| 0.3333 | – | 1 |" in printed


def test_all_that_is_published(tmp_path, capsys):
    arguments = ["objectives", "--scale", "smoke", "--out", tmp_path]
    assert command("run", *arguments, "--executor", "serial", "--quiet") == 0
    assert command("publish", *arguments, "--to", tmp_path / "to") == 0
    shutil.rmtree(tmp_path / "objectives-smoke")
    capsys.readouterr()
    reported = ["report", "all", "--out", tmp_path, "--from", tmp_path / "to"]
    assert command(*reported) == 0
    pages = tmp_path / "reports-smoke-published"
    assert capsys.readouterr().out.splitlines() == [str(pages / "objectives.html"), str(pages / "index.html")]
    assert command(*reported, "--scale", "laptop") == 2
    assert "has no published experiment at scale laptop" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "objectives is not published at scale paper in"),
        (b"{", "is no published experiment, or damaged"),
        (b"[]", "is no published experiment, or damaged"),
        (b'{"format": 1, "experiment": "x", "scale": "y", "digits": 4, "arrays": []}', "is no published experiment"),
        (b'{"format": 1}', "is no published experiment, or damaged"),
        (b'{"format": 99}', "has format 99, not 1"),
    ],
)
def test_files_that_cannot_be_used(content, says, tmp_path, capsys):
    if content is not None:
        (tmp_path / "objectives-paper.json").write_bytes(content)
    assert command("report", "objectives", "--scale", "paper", "--from", tmp_path, "--out", tmp_path) == 2
    error = capsys.readouterr().err.strip()
    assert says in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("values", [[], [0.5, 0.25]])
def test_a_run_with_too_few_or_too_many_values_is_damaged(values):
    groups = [{"structure": [False, [["final", None]]], "runs": {"a": values}}]
    with pytest.raises(ValueError, match=r"run a has (fewer|more) values than its structure"):
        from_columns(groups, lambda value: value)


def test_damaged_compressed_files(tmp_path, capsys):
    data = bytearray(gzip.compress(b'{"format": 1}' * 100, mtime=0))
    data[12] ^= 255
    (tmp_path / "objectives-paper.json.gz").write_bytes(data)
    assert command("report", "objectives", "--scale", "paper", "--from", tmp_path, "--out", tmp_path) == 2
    assert "or damaged" in capsys.readouterr().err


def test_what_the_runs_were_made_with_is_name_and_value(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command("publish", "objectives", "--out", tmp_path, "--hardware", "H200")
    assert "'H200' is not NAME=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "scale"), published(FOLDER))
def test_what_the_package_publishes_is_of_its_experiments(name, scale):
    """Every run of the experiment as it is declared now is there."""
    experiment, results = load_declared(name), load(FOLDER, name, scale)
    specs = [spec for stage in experiment.stages(experiment.preset(scale), results) for spec in stage]
    ended = zip(results.of(specs), results.failures(specs), strict=True)
    assert all((one is None) != (failure is None) for one, failure in ended)
    assert results.made.command == f"sb3-robust-be experiment run {name} --scale {scale}"


def test_the_published_files_are_small():
    sizes = [path.stat().st_size for path in FOLDER.iterdir()]
    assert max(sizes) < 1_000_000
    assert sum(sizes) < 5_000_000
