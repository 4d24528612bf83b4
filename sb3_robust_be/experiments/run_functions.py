"""The functions that execute runs, by short names, so that a run's spec stays the same when code moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sb3_robust_be import runner
from sb3_robust_be.experiments.cliff_world.learned_tables import TRAIN
from sb3_robust_be.experiments.control.evaluated_runs import EVALUATED
from sb3_robust_be.experiments.control.training import POPULATION, SINGLE
from sb3_robust_be.experiments.linear.exact_runs import SOLVE, SURFACES
from sb3_robust_be.experiments.linear.sweep_runs import SWEEP

_HERE = __name__.rpartition(".")[0]

RUN_FUNCTIONS: dict[str, str] = {
    POPULATION: f"{_HERE}.control.training:train_population",
    SINGLE: f"{_HERE}.control.training:train_single",
    EVALUATED: f"{_HERE}.control.evaluated_runs:train_evaluated",
    TRAIN: f"{_HERE}.cliff_world.learned_tables:train",
    SOLVE: f"{_HERE}.linear.exact_runs:solve_objectives",
    SURFACES: f"{_HERE}.linear.exact_runs:evaluate_surfaces",
    SWEEP: f"{_HERE}.linear.sweep_runs:sweep_step_sizes",
}
"""``"module:function"`` by name; a user's own experiment gives its functions as ``"module:function"``"""

STACKED = (POPULATION, EVALUATED, TRAIN)
"""Those that execute many runs as one population"""

#: Modules that a worker process has from the start. Those that are missing are passed over.
PRELOAD: tuple[str, ...] = ("torch", "stable_baselines3", "sb3_robust_be.qrc", "sb3_robust_be.sbeed")


def run_units(units: Iterable[Sequence[runner.Spec]], out: str | Path, **options: Any) -> runner.Summary:
    """Execute the runs that are not done, as :func:`sb3_robust_be.runner.run_units`, which lists the options.

    :param units: Lists of specs, whose ``"function"`` is one of :data:`RUN_FUNCTIONS` or a ``"module:function"``.
    :param out: The folder.
    :param options: Of :func:`sb3_robust_be.runner.run_units`.
    """
    return runner.run_units(units, out, **{"functions": RUN_FUNCTIONS, "preload": PRELOAD, **options})
