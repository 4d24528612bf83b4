"""What agents have learned in each cell of Cliff World, and what their corrections did on the way."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sb3_robust_be.envs.cliff_world import GOAL, START, transition_table
from sb3_robust_be.experiments.cliff_world.trace import checkpoints, measure, tables
from sb3_robust_be.experiments.control.training import ReportProgress, finish_members, train_members
from sb3_robust_be.runner.specs import Spec
from sb3_robust_be.runner.writer import RunWriter

if TYPE_CHECKING:
    from sb3_robust_be.population import Population

TRAIN = "train-cliff-world"


def train(specs: Sequence[Spec], writers: Sequence[RunWriter], report_progress: ReportProgress) -> None:
    """Train a population, and write what it has learned in each cell and its corrections on the way.

    :param specs: Of ``control_spec``, on Cliff World, and ``trace``, after how many parts of a run to measure.
    :param writers: One per spec; ``tables.npz`` has ``q`` and ``h``, shape (20, 4), ``h`` zero where there is none;
        ``trace.npz`` has ``step``, shape (points,), and what
        :func:`~sb3_robust_be.experiments.cliff_world.trace.measure` gives there, points first.
    :param report_progress: Takes the finished fraction.
    """
    started, steps = time.time(), specs[0]["steps"]
    due = checkpoints(steps, specs[0]["trace"])
    observations = [spec["env_kwargs"].get("observation", "coordinates") for spec in specs]
    traces: list[list[dict[str, np.ndarray]]] = [[] for _ in specs]

    def look(population: Population) -> None:
        if population.num_timesteps in due:
            for i, (trace, observation) in enumerate(zip(traces, observations, strict=True)):
                trace.append(measure(population[i], observation))

    population = train_members(specs, report_progress, look)
    for i, (writer, observation, trace) in enumerate(zip(writers, observations, traces, strict=True)):
        q, h = tables(population[i], observation)
        writer.write_arrays("tables", q=q, h=h)
        # Where all members have failed, training ended before the last point.
        points = {name: np.array([point[name] for point in trace], np.float32) for name in (trace[0] if trace else {})}
        writer.write_arrays("trace", step=due[: len(trace)], **points)
    finish_members(population, specs, writers, time.time() - started)


def reaches_goal(q: np.ndarray) -> bool:
    """
    :param q: Shape (20, 4).
    :return: Whether the greedy policy walks from the start to the goal without falling.
    """
    outcomes = transition_table()
    state, seen = START, set()
    while state != GOAL and state not in seen:
        seen.add(state)
        # A fall leads back to the start, which has been seen.
        [(_, state, _, _)] = outcomes[state][int(q[state].argmax())]
    return state == GOAL
