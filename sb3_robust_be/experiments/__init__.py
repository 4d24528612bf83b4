"""The paper's experiments, those of ours, and your own: declared data, a plan of runs, a table of rows, an analysis.

>>> from sb3_robust_be.experiments import Experiment, run, report
>>> ran = run("control", scale="smoke", out="experiments")    # doctest: +SKIP
>>> page = report("control", scale="smoke", out="experiments")    # doctest: +SKIP

What executes the runs is :mod:`sb3_robust_be.runner`, whose names are here as well, as they were in version 0.1.
"""

from sb3_robust_be.experiments.experiment import Analysis, Experiment, Reading, Results, Run
from sb3_robust_be.experiments.reporting import report
from sb3_robust_be.experiments.run_functions import run_units
from sb3_robust_be.experiments.running import Ran, run
from sb3_robust_be.runner import (
    ChangedError,
    Counts,
    Fingerprint,
    RunFunction,
    RunnerError,
    RunWriter,
    Spec,
    StoreError,
    Summary,
    load_arrays,
    load_failures,
    load_results,
    run_directory,
    run_id,
    status,
)

__all__ = [
    "Analysis",
    "ChangedError",
    "Counts",
    "Experiment",
    "Fingerprint",
    "Ran",
    "Reading",
    "Results",
    "Run",
    "RunFunction",
    "RunWriter",
    "RunnerError",
    "Spec",
    "StoreError",
    "Summary",
    "load_arrays",
    "load_failures",
    "load_results",
    "report",
    "run",
    "run_directory",
    "run_id",
    "run_units",
    "status",
]
