"""Runs of the exact linear experiments: minimisers of objectives, and objectives over a single weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_robust_be.experiments.experiment import Results, Run
from sb3_robust_be.experiments.linear.prediction_problems import Case, build
from sb3_robust_be.experiments.rows import Row
from sb3_robust_be.linear import OBJECTIVES, FixedPoint, Problem, solve, tdrc_surface
from sb3_robust_be.linear.features import widened_basis
from sb3_robust_be.linear.fixed_points import least_value_errors
from sb3_robust_be.linear.projected import mhpbe_maximiser
from sb3_robust_be.runner.specs import Spec
from sb3_robust_be.runner.writer import RunWriter

SOLVE = "minimise-objectives"
SURFACES = "evaluate-surfaces"

#: Curves that are no objectives of their own: TDRC's surface, and ``‖Π δ‖²`` over the clipped class, as the paper
#: prints the MHPBE.
SURFACES_ONLY: tuple[str, ...] = ("tdrc", "mhpbe-norm")

ReportProgress = Callable[[float], None]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Target:
    """An objective under the name that figures give it, such as ``Target("mhbe, τ = 1", "mhbe", 1.0)``."""

    label: str
    objective: str
    """A key of :data:`~sb3_robust_be.linear.OBJECTIVES`, ``"td"``, or for surfaces one of :data:`SURFACES_ONLY`"""
    tau: float | None = None
    basis: str | None = None
    """Class of ``h``: ``"all"``, ``"wide"`` (features of ``v`` and five random ones), or ``None``, features of ``v``"""

    def as_json(self) -> dict[str, Any]:
        return {"label": self.label, "objective": self.objective, "tau": self.tau, "basis": self.basis}


def solve_spec(case: Case, targets: Sequence[Target], basis_seed: int = 0) -> Spec:
    """A run that minimises objectives.

    :param case: The problem.
    :param targets: What to minimise.
    :param basis_seed: Of the random features of the ``"wide"`` class.
    """
    arguments = {**case.as_json(), "targets": [target.as_json() for target in targets], "basis_seed": basis_seed}
    return {"function": SOLVE, "steps": 0, "arguments": arguments}


def surface_spec(
    case: Case, targets: Sequence[Target], *, half_width: float, points: int, centre: float | str = 0.0
) -> Spec:
    """A run that evaluates objectives over the weight of a problem that has one.

    :param half_width: The weights reach so far from the centre.
    :param points: How many weights, an odd number, so that the centre is one of them.
    :param centre: A weight, or ``"td"`` for the TD solution.
    """
    grid = {"centre": centre, "half_width": half_width, "points": points}
    arguments = {**case.as_json(), "targets": [target.as_json() for target in targets], "grid": grid}
    return {"function": SURFACES, "steps": 0, "arguments": arguments}


def measure(run: Run, results: Results) -> list[Row]:
    """The rows of a run that is done: one per target, whose label is the row's ``contender``.

    :param run: With a spec of :func:`solve_spec` or :func:`surface_spec`.
    :param results: Of its folder.
    """
    result = results.result(run.spec)
    assert result is not None
    labels = [target["label"] for target in run.spec["arguments"]["targets"]]
    if run.spec["function"] == SOLVE:
        return [{"contender": label, **result["points"][label]} for label in labels]
    arrays = results.arrays(run.spec, "surfaces")
    return [
        {"contender": label, "theta": arrays["theta"], "values": values}
        for label, values in zip(labels, arrays["values"], strict=True)
    ]


def solve_objectives(specs: list[Spec], writers: list[RunWriter], report_progress: ReportProgress) -> None:
    """Of :func:`solve_spec`. The result has, by target's label, the minimiser and its value errors."""
    for i, (spec, writer) in enumerate(zip(specs, writers, strict=True)):
        arguments = spec["arguments"]
        problem = _problem(arguments)
        least = least_value_errors(problem)
        found = {}
        for target in arguments["targets"]:
            basis = (
                widened_basis(problem.X, seed=arguments["basis_seed"]) if target["basis"] == "wide" else target["basis"]
            )
            point = solve(problem, target["objective"], tau=target["tau"], basis=basis)
            found[target["label"]] = _as_result(problem, point, least)
        writer.finish({"least": least, "points": found})
        report_progress((i + 1) / len(specs))


def _problem(arguments: Mapping[str, Any]) -> Problem:
    return build(arguments["problem"], arguments["options"], arguments["initialisation"])


def _as_result(problem: Problem, point: FixedPoint, least: Mapping[str, float]) -> dict[str, Any]:
    errors = {name: float(OBJECTIVES[name].value(problem, point.theta)) for name in least}
    relative = {f"{name}_relative": error / least[name] for name, error in errors.items()}
    return {
        "theta": point.theta,
        "value": point.value,
        **errors,
        **relative,
        "largest_error": float(np.abs(problem.bellman_error(point.theta)).max()),
        "certificate": point.certificate,
        "unique": point.unique,
        "converged": point.converged,
    }


def evaluate_surfaces(specs: list[Spec], writers: list[RunWriter], report_progress: ReportProgress) -> None:
    """Of :func:`surface_spec`. ``surfaces.npz`` has the weights ``theta`` and ``values``, a row per target.

    :raises ValueError: If a problem has more than one weight.
    """
    for i, (spec, writer) in enumerate(zip(specs, writers, strict=True)):
        arguments = spec["arguments"]
        problem, grid = _problem(arguments), arguments["grid"]
        if problem.n_features != 1:
            raise ValueError(f"problem {problem.name} has {problem.n_features} weights; give one with a single weight.")
        centre = float(solve(problem, "td").theta[0]) if grid["centre"] == "td" else float(grid["centre"])
        theta = centre + np.linspace(-grid["half_width"], grid["half_width"], grid["points"])
        values = []
        for target in arguments["targets"]:
            values.append(_surface(problem, theta[:, None], target))
            report_progress((i + len(values) / len(arguments["targets"])) / len(specs))
        writer.write_arrays("surfaces", theta=theta, values=np.array(values))
        writer.finish({"centre": centre})


def _surface(problem: Problem, theta: Floats, target: Mapping[str, Any]) -> Floats:
    name, tau, basis = target["objective"], target["tau"], target["basis"]
    if name == "tdrc":
        return np.asarray(tdrc_surface(problem, theta))
    if name == "mhpbe-norm":
        return np.asarray(mhpbe_maximiser(problem, theta, tau, basis) ** 2 @ problem.d)
    entry = OBJECTIVES[name]
    return np.asarray(entry.value(problem, theta, **entry.settings(tau, basis)))
