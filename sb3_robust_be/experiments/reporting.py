"""From an experiment's finished runs to its page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sb3_robust_be import report
from sb3_robust_be.experiments.experiment import Experiment, Results
from sb3_robust_be.experiments.specs import Spec, run_id
from sb3_robust_be.report import Report


@dataclass(frozen=True)
class Made:
    """How an experiment's runs were made.

    :param command: That makes them.
    :param versions: By package.
    :param hardware: By part.
    :param note: Where they come from, if not from a folder of runs.
    """

    command: str
    versions: Mapping[str, str] = field(default_factory=report.versions)
    hardware: Mapping[str, str] = field(default_factory=report.hardware)
    note: str = ""


def make_report(experiment: Experiment, scale: str, results: Results, made: Made) -> Report:
    """
    :param experiment: All of whose runs have ended.
    :param scale: Of its presets.
    :param results: Of its runs.
    :param made: How they were made.
    :return: What its page shows.
    """
    preset = experiment.preset(scale)
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
        command=made.command,
        versions=made.versions,
        hardware=made.hardware,
        notes=[*([made.note] if made.note else []), *analysis.notes, *notes],
    )


def _name(spec: Spec) -> str:
    """Enough to find a run by."""
    parts = [str(spec.get("algorithm", spec["function"])), str(spec.get("env", "")), f"seed {spec.get('seed', '–')}"]
    return f"{', '.join(filter(None, parts))} ({run_id(spec)})"
