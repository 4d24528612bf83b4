"""From an experiment's finished runs to its page."""

from __future__ import annotations

from pathlib import Path

from sb3_robust_be import report
from sb3_robust_be.experiments.experiment import Experiment, Results
from sb3_robust_be.report import Report


def make_report(experiment: Experiment, scale: str, out: Path) -> Report:
    """
    :param experiment: All of whose runs have ended.
    :param scale: Of its presets.
    :param out: The folder of its runs.
    :return: What its page shows.
    """
    preset, results = experiment.preset(scale), Results(out)
    analysis = experiment.analyse(preset, results)
    specs = [spec for stage in experiment.stages(preset, results) for spec in stage]
    failures = [
        (f"{spec.get('algorithm', spec['function'])}, seed {spec.get('seed', '–')}", failure["error"])
        for spec, failure in zip(specs, results.failures(specs), strict=True)
        if failure is not None
    ]
    notes = [f"{r.question} {' / '.join(r.readings)}. Here: {r.default}, {r.why}" for r in experiment.readings]
    return Report(
        title=f"{experiment.summary} ({experiment.figure})",
        name=experiment.name,
        verdicts=analysis.verdicts,
        plots=analysis.plots,
        tables=analysis.tables,
        failures=failures,
        command=f"sb3-robust-be experiment run {experiment.name} --scale {scale}",
        versions=report.versions(),
        hardware=report.hardware(),
        notes=[*analysis.notes, *notes],
    )
