"""Runs of the prediction experiment: one algorithm on one problem, over step sizes and seeds in one sweep.

The reported seeds and those that choose step sizes are different ones; both go through the whole grid.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be.experiments.experiment import Results, Run
from sb3_robust_be.experiments.linear.prediction_problems import Case, build
from sb3_robust_be.experiments.rows import Row, Rows, rounded
from sb3_robust_be.linear import OBJECTIVES, Problem, Settings
from sb3_robust_be.linear.sweeps import sweep_metrics
from sb3_robust_be.linear.trajectories import sample_trajectories
from sb3_robust_be.runner.specs import Spec, dumps, loads
from sb3_robust_be.runner.writer import RunWriter

SWEEP = "sweep-step-sizes"
FIRST_SELECTION_SEED = 10_000
METRICS: tuple[str, ...] = ("msve", "mave")
MEASURES: tuple[str, ...] = ("auc", "late")
"""Means of the metric over the run, and over its last quarter"""
SHOWN = ("msve_auc", "mave_late")
"""Those of which figures show the errors at every step size"""

ReportProgress = Callable[[float], None]
Floats = NDArray[np.float64]


def sweep_spec(
    case: Case,
    algorithm: str,
    *,
    alphas: Sequence[float],
    etas: Sequence[float],
    seeds: int,
    selection_seeds: int,
    steps: int,
    evaluations: int,
    backend: str,
) -> Spec:
    """A run.

    :param case: The problem.
    :param algorithm: A key of :data:`~sb3_robust_be.linear.ALGORITHMS`.
    :param alphas: Step sizes of ``θ``.
    :param etas: Ratios ``α_h/α``.
    :param seeds: How many are reported, from 0 on.
    :param selection_seeds: How many choose step sizes, from :data:`FIRST_SELECTION_SEED` on.
    :param steps: Updates.
    :param evaluations: How often the metrics are taken.
    :param backend: Of :class:`~sb3_robust_be.linear.Settings`. The ℓ1 algorithms differ between backends after some
        hundred steps, by rounding.
    """
    arguments = {
        **case.as_json(),
        "alphas": alphas,
        "etas": etas,
        "seeds": list(range(seeds)),
        "selection_seeds": list(range(FIRST_SELECTION_SEED, FIRST_SELECTION_SEED + selection_seeds)),
        "evaluations": evaluations,
        "backend": backend,
    }
    return {"function": SWEEP, "algorithm": algorithm, "steps": steps, "arguments": arguments}


def sweep_step_sizes(specs: list[Spec], writers: list[RunWriter], report_progress: ReportProgress) -> None:
    """Of :func:`sweep_spec`.

    ``errors.npz`` has ``msve_auc``, ``msve_late``, ``mave_auc`` and ``mave_late`` by ``[alpha, eta, seed]``, reported
    seeds first, infinite for a run that diverged; the result has the metrics before learning.
    """
    for i, (spec, writer) in enumerate(zip(specs, writers, strict=True)):
        arguments = spec["arguments"]
        seeds = (*arguments["seeds"], *arguments["selection_seeds"])
        identity = {name: arguments[name] for name in ("problem", "options", "initialisation")}
        problem, taken = _trajectories(dumps(identity, "problem"), spec["steps"], seeds)
        settings = Settings(
            (spec["algorithm"],),
            arguments["alphas"],
            arguments["etas"],
            seeds,
            spec["steps"],
            evaluations=arguments["evaluations"],
            backend=arguments["backend"],
            jobs=1,
        )
        part = partial(_report_part, report_progress, i, len(specs))
        found = sweep_metrics(problem, settings, METRICS, part, taken)
        errors = {f"{name}_{measure}": getattr(found[name], measure)[0] for name in METRICS for measure in MEASURES}
        writer.write_arrays("errors", **errors)
        diverged = found["msve"].diverged_at[0, :, :, : len(arguments["seeds"])] > 0
        before = {name: float(OBJECTIVES[name].value(problem, problem.theta0)) for name in METRICS}
        writer.finish({"before": before, "diverged_by_alpha": diverged.mean(axis=(1, 2))})


def _report_part(report_progress: ReportProgress, i: int, n: int, fraction: float) -> None:
    report_progress((i + fraction) / n)


@lru_cache(maxsize=1)
def _trajectories(problem: str, steps: int, seeds: tuple[int, ...]) -> tuple[Problem, NDArray[np.int32]]:
    """Those of the problem that a worker is at: its algorithms follow one another."""
    built = build(**loads(problem))
    return built, sample_trajectories(built, steps, seeds)


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """An algorithm on a problem by one measure: step sizes chosen on the selection seeds, errors of the others.

    :param alphas: Step sizes.
    :param chosen: Index of the one chosen.
    :param eta: The ratio chosen there.
    :param score: Mean error at the step sizes chosen, on the selection seeds.
    :param best: Errors at the step sizes chosen, shape (seeds,).
    :param width: How many step sizes, of ratio 2, have an error of at most twice the mean at those chosen, shape
        (seeds,).
    :param errors: At the ratio chosen for each step size, shape (alphas, seeds); infinite for a run that diverged.
    """

    alphas: tuple[float, ...]
    chosen: int
    eta: float
    score: float
    best: Floats
    width: Floats
    errors: Floats


def choose(spec: Spec, arrays: Mapping[str, Floats], measure: str) -> Sensitivity:
    """
    :param spec: Of :func:`sweep_spec`.
    :param arrays: Its ``errors``.
    :param measure: One of them, such as ``"msve_auc"``.
    :return: With the least mean on the selection seeds, for every step size and of them all. One run that diverged
        rules a setting out.
    """
    arguments: dict[str, Any] = spec["arguments"]
    every, reported = arrays[measure], len(arguments["seeds"])
    selection = every[:, :, reported:].mean(axis=2)
    eta = selection.argmin(axis=1)
    rows = np.arange(len(eta))
    scores = selection[rows, eta]
    chosen = int(scores.argmin())
    errors = every[rows, eta, :reported]
    return Sensitivity(
        tuple(arguments["alphas"]),
        chosen,
        float(arguments["etas"][eta[chosen]]),
        float(scores[chosen]),
        errors[chosen],
        width_of(errors, chosen),
        errors,
    )


def width_of(errors: Floats, chosen: int) -> Floats:
    """
    :param errors: Shape (alphas, seeds).
    :param chosen: Index of a step size.
    :return: How many step sizes have an error of at most twice the mean of the finite ones there, shape (seeds,).
    """
    return step_sizes_within(errors, error_limit(errors[chosen]))


def error_limit(best: Floats) -> float:
    """
    :param best: Errors at the step size chosen, shape (seeds,).
    :return: Twice the mean of the finite ones; below every error if none is.
    """
    finite = best[np.isfinite(best)]
    return float(2.0 * finite.mean()) if finite.size else -np.inf


def step_sizes_within(errors: Floats, limit: float) -> Floats:
    """
    :param errors: Shape (alphas, seeds).
    :param limit: An error.
    :return: How many step sizes have at most that error, shape (seeds,).
    """
    return np.asarray((errors <= limit).sum(axis=0), dtype=np.float64)


def measure(run: Run, results: Results) -> list[Row]:
    """The rows of a sweep that is done: one per measure and reported seed.

    ``error`` is that at the chosen ``step_size`` and ``ratio``, ``errors`` those at all step sizes, each at its best
    ratio, for the measures of which a figure shows them; ``before`` is the error before learning.

    :param run: With a spec of :func:`sweep_spec`.
    :param results: Of its folder.
    """
    result = results.result(run.spec)
    assert result is not None
    arrays = results.arrays(run.spec, "errors")
    rows = []
    for metric, part in itertools.product(METRICS, MEASURES):
        name = f"{metric}_{part}"
        found = choose(run.spec, arrays, name)
        for i, seed in enumerate(run.spec["arguments"]["seeds"]):
            row: Row = {"measure": name, "seed": seed, "step_size": found.alphas[found.chosen], "ratio": found.eta}
            row |= {"selection_score": found.score, "before": result["before"][metric]}
            row |= {"error": found.best[i], "width": found.width[i]}
            if name in SHOWN:
                row["errors"] = rounded(found.errors[:, i])
            rows.append(row)
    return rows


def read_sensitivity(alphas: Sequence[float], rows: Rows) -> Sensitivity:
    """
    :param alphas: Step sizes of the sweep.
    :param rows: Of one run by one measure, see :func:`measure`.
    :return: The same as :func:`choose` found, but for the last digits of its ``errors``.
    """
    own = sorted(rows, key=lambda row: int(row["seed"]))
    best, width = (np.array([row[name] for row in own], dtype=np.float64) for name in ("error", "width"))
    nothing = np.full(len(alphas), np.nan)
    errors = np.array([row.get("errors", nothing) for row in own]).T
    first = own[0]
    chosen = list(alphas).index(first["step_size"])
    return Sensitivity(tuple(alphas), chosen, first["ratio"], first["selection_score"], best, width, errors)
