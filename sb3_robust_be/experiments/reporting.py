"""From an experiment's finished runs to its page."""

from __future__ import annotations

from pathlib import Path

from sb3_robust_be import report
from sb3_robust_be.experiments.experiment import Experiment, Results
from sb3_robust_be.experiments.specs import Spec, run_id
from sb3_robust_be.report import Report


def make_report(experiment: Experiment, scale: str, out: Path, command: str) -> Report:
    """
    :param experiment: All of whose runs have ended.
    :param scale: Of its presets.
    :param out: The folder of its runs.
    :param command: What made them.
    :return: What its page shows.
    """
    preset, results = experiment.preset(scale), Results(out)
    analysis = experiment.analyse(preset, results)
    specs = [spec for stage in experiment.stages(preset, results) for spec in stage]
    failures = [
        (_name(spec), failure["error"])
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
        command=command,
        versions=report.versions(),
        hardware=report.hardware(),
        notes=[*analysis.notes, *notes],
    )


def _name(spec: Spec) -> str:
    """Enough to find a run by."""
    parts = [str(spec.get("algorithm", spec["function"])), str(spec.get("env", "")), f"seed {spec.get('seed', '–')}"]
    return f"{', '.join(filter(None, parts))} ({run_id(spec)})"
