"""What agents have learned in each cell of Cliff World."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from sb3_robust_be.envs.cliff_world import GOAL, START, observation_table, transition_table
from sb3_robust_be.experiments.control import ReportProgress, finish_members, train_members
from sb3_robust_be.experiments.specs import Spec
from sb3_robust_be.experiments.writer import RunWriter

TRAIN = "sb3_robust_be.experiments.cliff_maps:train"


def train(specs: Sequence[Spec], writers: Sequence[RunWriter], report_progress: ReportProgress) -> None:
    """As :func:`~sb3_robust_be.experiments.control.train_population`, keeping the values and secondary estimates.

    :param specs: Of ``control_spec``, on Cliff World.
    :param writers: One per spec; ``tables.npz`` has ``q`` and ``h``, shape (20, 4), ``h`` zero where there is none.
    :param report_progress: Takes the finished fraction.
    """
    started = time.time()
    population = train_members(specs, report_progress)
    for i, (spec, writer) in enumerate(zip(specs, writers, strict=True)):
        q, h = tables(population[i], spec["env_kwargs"].get("observation", "coordinates"))
        writer.write_arrays("tables", q=q, h=h)
    finish_members(population, specs, writers, time.time() - started)


def tables(model: Any, observation: Any) -> tuple[np.ndarray, np.ndarray]:
    """
    :param model: An agent on Cliff World.
    :param observation: What it sees, see :func:`~sb3_robust_be.envs.cliff_world.observation_table`.
    :return: ``q`` and ``h`` in every cell, shape (20, 4).
    """
    import torch as th

    seen = th.as_tensor(observation_table(observation), device=model.device)
    with th.no_grad():
        if hasattr(model.q_net, "q_and_h"):
            q, h = model.q_net.q_and_h(seen)
        else:
            q = model.q_net(seen)
            h = th.zeros_like(q)
    return q.cpu().numpy(), h.cpu().numpy()


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
