"""Runs of control experiments that are also evaluated greedily on the way, and what these evaluations say."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sb3_robust_be.experiments.control.training import ReportProgress, finish_members, train_members
from sb3_robust_be.runner.specs import Spec
from sb3_robust_be.runner.writer import RunWriter

if TYPE_CHECKING:
    from sb3_robust_be.population import Population

EVALUATED = "train-evaluated"

WAY = 0.9
"""Of the way from the first evaluation to the final return, which a run has gone when it counts as having learned"""
LAST = 0.2
"""The part of the evaluations, at the end, whose mean is the final return"""


def evaluation_steps(steps: int, evaluations: int) -> list[int]:
    """
    :param steps: Of a run.
    :param evaluations: Into how many equal parts they divide it; no more than there are steps.
    :return: After how many steps it is evaluated: 0, and the end of each part.
    """
    return np.linspace(0, steps, min(evaluations, steps) + 1).round().astype(int).tolist()


def train_evaluated(specs: Sequence[Spec], writers: Sequence[RunWriter], report_progress: ReportProgress) -> None:
    """Train a population, and evaluate its members greedily before, during and after it.

    Training is what it is without evaluations, bit for bit (:meth:`~sb3_robust_be.Population.evaluate`). Evaluation
    number ``k`` has the seed ``k``, so that runs of equal seeds meet equal episodes.

    :param specs: Of ``control_spec``, and ``evaluations``, the number of equal parts of a run, each of which ends with
        an evaluation, and ``evaluation_episodes``, how many episodes each evaluation has.
    :param writers: One per spec; ``evaluations.npz`` has ``step``, shape (evaluations + 1,), and ``returns``, shape
        (evaluations + 1, episodes), NaN from where a run has failed on.
    :param report_progress: Takes the finished fraction.
    """
    started, first = time.time(), specs[0]
    due, n_episodes = evaluation_steps(first["steps"], first["evaluations"]), first["evaluation_episodes"]
    # Where all members have failed, training ends before the last evaluation.
    returns = np.full((len(specs), len(due), n_episodes), np.nan)

    def look(population: Population) -> None:
        if population.num_timesteps in due:
            number = due.index(population.num_timesteps)
            returns[:, number] = population.evaluate(n_episodes, seed=number)

    population = train_members(specs, report_progress, look)
    for writer, own in zip(writers, returns, strict=True):
        writer.write_arrays("evaluations", step=due, returns=own)
    finish_members(population, specs, writers, time.time() - started)


def final_returns(evaluations: np.ndarray) -> np.ndarray:
    """The mean of the last fifth of the evaluations, of which the first, before any step, is none.

    :param evaluations: Greedy returns, shape (..., points).
    :return: Shape (...,); NaN for a run that ended before its last evaluation.
    """
    last = max(1, round(LAST * (evaluations.shape[-1] - 1)))
    return np.asarray(evaluations[..., -last:].mean(axis=-1))


def steps_to_final(evaluations: np.ndarray, steps: Sequence[int]) -> float:
    """The steps until an evaluation has gone 90 % of the way from the first one to the run's final return.

    It is the first with ``R ≥ R_first + 0.9 (R_final − R_first)``: a difference, so that the sign of returns and their
    zero do not matter.

    :param evaluations: Greedy returns of one run, shape (points,).
    :param steps: After how many steps each was made.
    :return: Environment steps; NaN for a run whose final return is not above its first one, or does not exist.
    """
    first, final = float(evaluations[0]), float(final_returns(evaluations))
    if not final > first:
        return math.nan
    # The largest is at least the final return, so that one of them has; rounding may not take that away.
    wanted = min(first + WAY * (final - first), np.nanmax(evaluations))
    return float(steps[int(np.argmax(evaluations >= wanted))])
