"""What runs have left in a folder, as arrays over the runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sb3_robust_be.experiments.compare.comparison import look_at, make_preset
from sb3_robust_be.experiments.control.preset import plan
from sb3_robust_be.experiments.control.training import CURVE_POINTS
from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.runner import Spec


def load_finals(results: Results, specs: Sequence[Spec]) -> np.ndarray:
    """
    :param results: Of the runs.
    :param specs: Of :func:`control_spec`.
    :return: The return per step over the last quarter, shape (runs,); NaN for runs that diverged, failed or are not
        done. :func:`load_unfinished` says which of them count an episode that had not ended.
    """
    found = map(results.result, specs)
    return np.array([np.nan if result is None else result["final"] for result in found])


def load_unfinished(results: Results, specs: Sequence[Spec]) -> np.ndarray:
    """
    :param results: Of the runs.
    :param specs: Of :func:`control_spec`.
    :return: Whether a run's returns count the episode in which it stopped, with its return so far, shape (runs,): then
        they are bounds (:func:`~sb3_robust_be.evaluation.with_unfinished`).
    """
    # Runs of version 0.1 left such episodes out, and have no such entry.
    found = map(results.result, specs)
    return np.array([result is not None and result.get("unfinished", False) for result in found], bool)


def load_curves(results: Results, specs: Sequence[Spec]) -> np.ndarray:
    """
    :param results: Of the runs.
    :param specs: Of :func:`control_spec`, all of as many steps.
    :return: Learning curves, shape (runs, points); NaN where there is none: everywhere for runs that diverged, failed
        or are not done, else from the start of an unfinished episode on, unless that counts.
    """
    curves = np.full((len(specs), min(CURVE_POINTS, specs[0]["steps"])), np.nan)
    for row, spec in zip(curves, specs, strict=True):
        result = results.result(spec)
        if result is not None and result["diverged_at"] is None:
            row[:] = results.arrays(spec)["curve"]
    return curves


def compared_spec(env, algorithm, steps=10):
    """The run of a comparison with one seed and one step size."""
    (run,) = plan(make_preset(look_at(env, None), [algorithm], 1, steps, [0.5]), [])
    return run.spec
