"""Sweeps over step sizes and seeds, with every algorithm on the same trajectories (paper, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be.linear.fixed_points import OBJECTIVES
from sb3_robust_be.linear.methods import PAPER_ALGORITHMS, Algorithm, algorithm
from sb3_robust_be.linear.online import DIVERGENCE_BOUND
from sb3_robust_be.linear.problems import Problem
from sb3_robust_be.linear.state import LANES, Runs
from sb3_robust_be.linear.stepsizes import check_optimizer
from sb3_robust_be.linear.trajectories import sample_trajectories
from sb3_robust_be.system import available_cores

Floats = NDArray[np.float64]

#: Section 6's ranges. Paper: its appendix names others (α to 2⁻¹⁰, η from 2⁻⁶ to 2⁶) / Ours: the text's.
PAPER_ALPHAS: tuple[float, ...] = tuple(2.0**-k for k in range(16, 0, -1))
PAPER_ETAS: tuple[float, ...] = tuple(2.0**k for k in range(-4, 5))
PAPER_SEEDS = 100
BACKENDS: tuple[str, ...] = ("auto", "numba", "numpy")
_SEEDS_PER_TASK = 10


def paper_steps(problem_name: str) -> int:
    """Updates per run: 10 000, and 100 000 on the walks (appendix "Linear Prediction")."""
    return 10_000 if problem_name in ("HardAlias-2", "Baird") else 100_000


@dataclass(frozen=True)
class Settings:
    """What a sweep runs.

    :param algorithms: Names or :class:`~sb3_robust_be.linear.methods.Algorithm` objects.
    :param alphas: Step sizes of ``θ``.
    :param etas: Ratios ``α_h/α``.
    :param seeds: Seeds of the trajectories.
    :param steps: Updates per run.
    :param optimizer: ``"sgd"`` (the paper's), ``"rmsprop"`` or ``"adam"``.
    :param evaluations: How many times the metric is taken, evenly spread; their mean is the area under the curve.
    :param metric: ``"msve"`` or ``"mave"``, or another objective without settings.
    :param backend: ``"numba"``, ``"numpy"``, or ``"auto"``: numba where it is installed.
    :param jobs: Threads; ``None``: one per available core with numba, else one. The result does not depend on it.
    """

    algorithms: Sequence[str | Algorithm] = PAPER_ALGORITHMS
    alphas: Sequence[float] = PAPER_ALPHAS
    etas: Sequence[float] = PAPER_ETAS
    seeds: Sequence[int] = tuple(range(PAPER_SEEDS))
    steps: int = 10_000
    optimizer: str = "sgd"
    evaluations: int = 100
    metric: str = "msve"
    backend: str = "auto"
    jobs: int | None = None
    chosen: tuple[Algorithm, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("algorithms", "alphas", "etas", "seeds"):
            if len(getattr(self, name)) == 0:
                raise ValueError(f"{name} is empty; give at least one.")
        steps = np.array([*self.alphas, *self.etas])
        if not np.isfinite(steps).all() or min(self.alphas) <= 0.0 or min(self.etas) < 0.0:
            raise ValueError(
                f"alphas start at {min(self.alphas)}, etas at {min(self.etas)}; give positive, finite step sizes."
            )
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}; give at least 1.")
        if not 1 <= self.evaluations <= self.steps:
            raise ValueError(f"evaluations is {self.evaluations} for steps {self.steps}; give 1 to {self.steps}.")
        if self.backend not in BACKENDS:
            raise ValueError(f"backend is {self.backend!r}; give one of {', '.join(BACKENDS)}.")
        if self.backend == "numba" and find_spec("numba") is None:
            raise ValueError("backend is 'numba', which is missing; install sb3-robust-be[linear] or give 'numpy'.")
        if self.jobs is not None and self.jobs < 1:
            raise ValueError(f"jobs is {self.jobs}; give at least 1.")
        check_optimizer(self.optimizer)
        if self.metric not in OBJECTIVES or OBJECTIVES[self.metric].takes_tau:
            raise ValueError(f"metric is {self.metric!r}; give an objective without a threshold, such as 'msve'.")
        named = tuple(a if isinstance(a, Algorithm) else algorithm(a) for a in self.algorithms)
        object.__setattr__(self, "chosen", named)

    @property
    def compiled(self) -> bool:
        return self.backend == "numba" or (self.backend == "auto" and find_spec("numba") is not None)

    @property
    def grid(self) -> tuple[Floats, Floats]:
        """``α`` and ``α_h = η α`` of every cell, ``η`` fastest, each ``(len(alphas) · len(etas),)``."""
        alpha = np.repeat(np.asarray(self.alphas, dtype=np.float64), len(self.etas))
        return alpha, alpha * np.tile(np.asarray(self.etas, dtype=np.float64), len(self.alphas))


@dataclass(frozen=True, eq=False)
class SweepResult:
    """Results by ``[algorithm, alpha, eta, seed]``.

    :param auc: Mean of the metric over the evaluations; infinite for a run that diverged.
    :param late: Mean of the metric over the evaluations in the last quarter of the steps, likewise.
    :param final: The metric at the end, likewise.
    :param diverged_at: Updates done when a weight was first seen beyond ``1e12`` or not finite, at an evaluation;
        0 for a run that did not diverge.
    """

    settings: Settings
    auc: Floats
    late: Floats
    final: Floats
    diverged_at: NDArray[np.int64]

    def best(self, k: int) -> tuple[int, int]:
        """Indices of the ``(α, η)`` with the least mean AUC of algorithm ``k``."""
        mean = self.auc[k].mean(axis=-1)
        a, e = np.unravel_index(int(np.argmin(mean)), mean.shape)
        return int(a), int(e)


def sweep(problem: Problem, settings: Settings, progress: Callable[[float], None] | None = None) -> SweepResult:
    """Run every algorithm on every ``(α, η)`` and seed.

    :param progress: Called with the finished fraction, from 0 to 1.
    """
    return sweep_metrics(problem, settings, (settings.metric,), progress)[settings.metric]


def sweep_metrics(
    problem: Problem,
    settings: Settings,
    metrics: Sequence[str],
    progress: Callable[[float], None] | None = None,
    taken: NDArray[np.int32] | None = None,
) -> dict[str, SweepResult]:
    """As :func:`sweep`, with several metrics of the same runs; ``settings.metric`` is replaced by each of them.

    :param metrics: Values of :attr:`Settings.metric`.
    :param taken: The seeds' trajectories, of :func:`~sb3_robust_be.linear.transitions.sample_trajectories`, where they
        are at hand: they are the same in every sweep of a problem.
    :return: By metric.
    """
    by_metric = {name: replace(settings, metric=name) for name in metrics}
    if not by_metric:
        raise ValueError("metrics is empty; give at least one, such as 'msve'.")
    expected = (len(settings.seeds), settings.steps)
    if taken is None:
        taken = sample_trajectories(problem, settings.steps, settings.seeds)
    elif taken.shape != expected:
        raise ValueError(f"taken has shape {taken.shape}; give {expected}, a row of steps per seed.")
    shape = (len(settings.chosen), len(settings.alphas) * len(settings.etas), len(settings.seeds))
    summaries, diverged = np.empty((len(by_metric), 3, *shape)), np.empty(shape, dtype=np.int64)
    tasks = list(_tasks(settings))
    finished, lock = 0, Lock()

    def work(task: tuple[int, slice, slice]) -> None:
        nonlocal finished
        k, cells, seeds = task
        alpha, alpha_h = (rate[cells] for rate in settings.grid)
        runs = Runs(problem, settings.chosen[k], settings.optimizer, alpha, alpha_h, taken[seeds], settings.compiled)
        summaries[:, :, k, cells, seeds], diverged[k, cells, seeds] = _run(problem, settings, list(by_metric), runs)
        with lock:
            finished += 1
            if progress is not None:
                progress(finished / len(tasks))

    # The compiled loop releases the interpreter lock, so threads suffice.
    jobs = settings.jobs or (available_cores() if settings.compiled else 1)
    with ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(work, tasks):
            pass
    full = (shape[0], len(settings.alphas), len(settings.etas), shape[2])
    diverged = diverged.reshape(full)
    return {
        name: SweepResult(own, auc, late, final, diverged)
        for (name, own), (auc, late, final) in zip(by_metric.items(), summaries.reshape(-1, 3, *full), strict=True)
    }


def _tasks(settings: Settings) -> Iterator[tuple[int, slice, slice]]:
    cells = len(settings.alphas) * len(settings.etas)
    for k in range(len(settings.chosen)):
        for cell in range(0, cells, LANES):
            for seed in range(0, len(settings.seeds), _SEEDS_PER_TASK):
                end = min(seed + _SEEDS_PER_TASK, len(settings.seeds))
                yield k, slice(cell, min(cell + LANES, cells)), slice(seed, end)


def _run(problem: Problem, settings: Settings, metrics: Sequence[str], runs: Runs) -> tuple[Floats, NDArray[np.int64]]:
    """AUC, late mean and final value of each metric, ``(metrics, 3, cells, seeds)``, and divergence."""
    seeds = len(runs.taken)
    total, late, value = (np.zeros((len(metrics), runs.cells, seeds)) for _ in range(3))
    diverged = np.zeros((runs.cells, seeds), dtype=np.int64)
    ends = np.linspace(0, settings.steps, settings.evaluations + 1).astype(int)
    is_late = ends > 0.75 * settings.steps
    for begin, end, in_last_quarter in zip(ends[:-1], ends[1:], is_late[1:], strict=True):
        runs.advance(int(end - begin))
        # Rows of theta and theta_h together; a NaN fails the comparison as well.
        sane = (np.abs(runs.state[:, : 2 * runs.D, : runs.cells]) <= DIVERGENCE_BOUND).all(axis=1)
        diverged[(diverged == 0) & ~sane.T] = end
        gone = (diverged > 0).T
        theta = np.ascontiguousarray(np.where(gone[:, None, :], 0.0, runs.theta).transpose(2, 0, 1))
        for m, name in enumerate(metrics):
            value[m] = OBJECTIVES[name].value(problem, theta)
        value[:, gone.T] = np.inf
        runs.stop(gone)
        total += value
        if in_last_quarter:
            late += value
    return np.stack([total / settings.evaluations, late / is_late.sum(), value], axis=1), diverged
