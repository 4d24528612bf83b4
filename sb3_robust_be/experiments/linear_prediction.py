"""Runs of the prediction experiment: one algorithm on one problem, over step sizes and seeds in one sweep.

The reported seeds and those that choose step sizes are different ones; both go through the whole grid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.experiments.linear_problems import Case, build
from sb3_robust_be.experiments.specs import Spec, dumps, loads
from sb3_robust_be.experiments.writer import RunWriter
from sb3_robust_be.linear import OBJECTIVES, Problem, Settings
from sb3_robust_be.linear.sweeps import sweep_metrics
from sb3_robust_be.linear.transitions import sample_trajectories

SWEEP = "sb3_robust_be.experiments.linear_prediction:sweep_step_sizes"
FIRST_SELECTION_SEED = 10_000
METRICS: tuple[str, ...] = ("msve", "mave")
MEASURES: tuple[str, ...] = ("auc", "late")
"""Means of the metric over the run, and over its last quarter"""

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
    :param etas: For each of them the ratio chosen, shape (alphas,).
    :param chosen: Index of the step size chosen.
    :param score: Mean error at the step sizes chosen, on the selection seeds.
    :param best: Errors at the step sizes chosen, shape (seeds,).
    :param width: How many step sizes, of ratio 2, have an error of at most twice the mean at those chosen, shape
        (seeds,).
    :param load_errors: Gives :attr:`errors`. They are most of the data, and most measures do without.
    """

    alphas: tuple[float, ...]
    etas: Floats
    chosen: int
    score: float
    best: Floats
    width: Floats
    load_errors: Callable[[], Floats]

    @classmethod
    def of(cls, alphas: Sequence[float], etas: Floats, errors: Floats, chosen: int, score: float) -> Sensitivity:
        """From the errors."""
        best = errors[chosen]
        finite = best[np.isfinite(best)]
        limit = 2.0 * finite.mean() if finite.size else -np.inf
        width = (errors <= limit).sum(axis=0).astype(np.float64)
        return cls(tuple(alphas), etas, chosen, score, best, width, lambda: errors)

    @property
    def errors(self) -> Floats:
        """At the ratio chosen for each step size, shape (alphas, seeds); infinite for a run that diverged."""
        return self.load_errors()


def choose(spec: Spec, arrays: Mapping[str, Floats], measure: str) -> Sensitivity:
    """
    :param spec: Of :func:`sweep_spec`.
    :param arrays: Its ``errors``.
    :param measure: One of them, such as ``"msve_auc"``.
    :return: With the least mean on the selection seeds, for every step size and of them all. One run that diverged
        rules a setting out.
    """
    arguments: dict[str, Any] = spec["arguments"]
    errors, reported = arrays[measure], len(arguments["seeds"])
    selection = errors[:, :, reported:].mean(axis=2)
    eta = selection.argmin(axis=1)
    rows = np.arange(len(eta))
    scores = selection[rows, eta]
    return Sensitivity.of(
        arguments["alphas"],
        np.asarray(arguments["etas"])[eta],
        errors[rows, eta, :reported],
        int(scores.argmin()),
        float(scores.min()),
    )


def load_sensitivity(results: Results, spec: Spec, measure: str) -> Sensitivity:
    """:func:`choose` for a finished run, reading no more of it than is used.

    :param results: Of the runs.
    :param spec: Of :func:`sweep_spec`.
    :param measure: As for :func:`choose`.
    """

    def chosen(arrays: Mapping[str, Floats]) -> dict[str, Any]:
        found = choose(spec, arrays, measure)
        return {name: np.asarray(getattr(found, name)) for name in ("etas", "chosen", "score", "best", "width")}

    def errors(arrays: Mapping[str, Floats]) -> dict[str, Any]:
        return {"errors": choose(spec, arrays, measure).errors}

    one = results.reduced(spec, "errors", f"{measure}, chosen", chosen)
    return Sensitivity(
        tuple(spec["arguments"]["alphas"]),
        one["etas"],
        int(one["chosen"]),
        float(one["score"]),
        one["best"],
        one["width"],
        lambda: np.asarray(results.reduced(spec, "errors", f"{measure}, all", errors, exact=False)["errors"]),
    )
