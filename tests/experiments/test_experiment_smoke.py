"""The smallest size of every declared experiment, from the first run to the page."""

from __future__ import annotations

import pytest

from sb3_robust_be import cli
from sb3_robust_be.experiments.declared import load_declared, names
from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.experiments.store import status


@pytest.mark.parametrize("name", names())
def test_smoke(name, tmp_path, capsys):
    arguments = [name, "--scale", "smoke", "--out", str(tmp_path)]
    assert cli.main(["experiment", "run", *arguments, "--executor", "serial", "--quiet"]) == 0
    assert cli.main(["experiment", "report", *arguments]) == 0
    experiment = load_declared(name)
    preset, results = experiment.preset("smoke"), Results(tmp_path / f"{name}-smoke")
    specs = [spec for stage in experiment.stages(preset, results) for spec in stage]
    counts = status(results.out, specs)
    assert counts.done == len(specs) > 0
    page = (tmp_path / "reports-smoke" / f"{name}.html").read_text(encoding="utf-8")
    assert page.count("<svg") >= 1
    analysis = experiment.analyse(preset, results)
    assert analysis.verdicts
    # Every claim's verdict, figure and table is on the page.
    assert all(plot.name in page for plot in analysis.plots)
    assert page.count("<table") >= len(analysis.tables)
    beside = {path.name for path in (tmp_path / "reports-smoke" / name).iterdir()}
    assert {f"{plot.name}.csv" for plot in analysis.plots} | {f"{table.name}.md" for table in analysis.tables} <= beside
