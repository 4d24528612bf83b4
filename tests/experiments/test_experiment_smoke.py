"""The smallest size of every declared experiment, from the first run to the page made of what was published."""

from __future__ import annotations

import shutil

import pytest

from sb3_robust_be import cli, report
from sb3_robust_be.experiments.declared import load_declared, names
from sb3_robust_be.experiments.experiment import Results, distinct_specs
from sb3_robust_be.runner.store import status


@pytest.mark.parametrize("name", names())
def test_smoke(name, tmp_path, capsys):
    arguments = [name, "--scale", "smoke", "--out", str(tmp_path)]
    assert cli.main(["experiment", "run", *arguments, "--executor", "serial", "--quiet"]) == 0
    experiment = load_declared(name)
    preset, results = experiment.preset("smoke"), Results(tmp_path / f"{name}-smoke")
    rows = experiment.collect(preset, results)
    runs = experiment.plan(preset, rows)
    counts = status(results.out, [run.spec for run in runs])
    assert counts.done == len(distinct_specs(runs)) > 0
    assert counts.left == counts.failed == 0
    analysis = experiment.analyse(preset, rows)
    assert analysis.verdicts

    published = tmp_path / "published"
    assert cli.main(["experiment", "publish", *arguments, "--to", str(published)]) == 0
    # Larger tables than 2^18 bytes are compressed, and how large one is depends on the names of processor and versions.
    assert sum(path.stat().st_size for path in published.iterdir()) <= 2**18
    shutil.rmtree(results.out)
    assert cli.main(["experiment", "report", *arguments, "--from", str(published)]) == 0
    page = (tmp_path / "reports-smoke-published" / f"{name}.html").read_text(encoding="utf-8")
    assert page.count("<svg") >= 1
    # Every claim's verdict, figure and table is on the page.
    assert all(plot.name in page for plot in analysis.plots)
    assert page.count("<table") >= len(analysis.tables)
    beside = tmp_path / "reports-smoke-published" / name
    assert {f"{plot.name}.csv" for plot in analysis.plots} <= {path.name for path in beside.iterdir()}
    # As from the runs.
    for table in (report.verdict_table(analysis.verdicts), *analysis.tables):
        assert (beside / f"{table.name}.md").read_text(encoding="utf-8") == table.markdown()
    for plot in analysis.plots:
        assert (beside / f"{plot.name}.csv").read_bytes() == plot.csv()
