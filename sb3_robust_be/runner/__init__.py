"""Executes a function for many specifications in worker processes, and resumes after any interruption.

A run is a spec, a JSON-able dict that says everything about it, in which ``"function"`` names what executes it:
``"module:function"``, or a short name that the caller gives with :func:`run_units`. A unit is a list of runs that one
worker executes in one go. The files are the truth: one directory per run, and :func:`run_units` executes what is not
done.
"""

from sb3_robust_be.runner.provenance import ChangedError, Fingerprint
from sb3_robust_be.runner.run import Summary, run_units
from sb3_robust_be.runner.specs import Spec, run_id
from sb3_robust_be.runner.store import (
    Counts,
    load_arrays,
    load_failures,
    load_results,
    run_directory,
    status,
)
from sb3_robust_be.runner.units import RunFunction, RunnerError
from sb3_robust_be.runner.writer import RunWriter
from sb3_robust_be.system import StoreError

__all__ = [
    "ChangedError",
    "Counts",
    "Fingerprint",
    "RunFunction",
    "RunWriter",
    "RunnerError",
    "Spec",
    "StoreError",
    "Summary",
    "load_arrays",
    "load_failures",
    "load_results",
    "run_directory",
    "run_id",
    "run_units",
    "status",
]
