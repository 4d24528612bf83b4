"""What a control run is, and the two ways to execute it: many seeds in lock-step, or one agent."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sb3_robust_be.evaluation import area_under_curve, binned_curve, final_performance
from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.experiments.specs import Spec
from sb3_robust_be.experiments.writer import RunWriter
from sb3_robust_be.files import write_atomically

if TYPE_CHECKING:
    from sb3_robust_be.population import Population

CURVE_POINTS = 100
POPULATION = "sb3_robust_be.experiments.control:train_population"
SINGLE = "sb3_robust_be.experiments.control:train_single"

ReportProgress = Callable[[float], None]


def control_spec(
    algorithm: str,
    env: str,
    steps: int,
    seed: int,
    arguments: dict[str, Any],
    *,
    policy: str = "MlpPolicy",
    env_kwargs: dict[str, Any] | None = None,
    compile: bool = False,
    function: str = POPULATION,
) -> Spec:
    """All that decides the outcome of a run.

    :param algorithm: Its name in commands; ``"qrdqn"`` (sb3-contrib) as a single agent only.
    :param env: A gymnasium id.
    :param steps: Environment steps.
    :param seed: Of networks, environment and exploration.
    :param arguments: Of the algorithm, as JSON.
    :param policy: As for SB3.
    :param env_kwargs: Of ``gym.make``.
    :param compile: Whether the population's update is compiled, which changes the last digits.
    :param function: :data:`POPULATION` or :data:`SINGLE`.
    """
    return {
        "function": function,
        "algorithm": algorithm,
        "env": env,
        "env_kwargs": env_kwargs or {},
        "policy": policy,
        "steps": steps,
        "seed": seed,
        "arguments": arguments,
        "compile": compile,
    }


def train_population(specs: Sequence[Spec], writers: Sequence[RunWriter], report_progress: ReportProgress) -> None:
    """Execute runs that differ in their seeds and in arguments that may differ within a population.

    :param specs: Of :func:`control_spec`.
    :param writers: One per spec.
    :param report_progress: Takes the finished fraction.
    """
    started = time.time()
    population = train_members(specs, report_progress)
    finish_members(population, specs, writers, time.time() - started)


def train_members(
    specs: Sequence[Spec], report_progress: ReportProgress, look: Callable[[Population], None] | None = None
) -> Population:
    """
    :param specs: As of :func:`train_population`.
    :param report_progress: Takes the finished fraction.
    :param look: Called with the population after every step.
    :return: A trained population, one member per spec.
    """
    steps = specs[0]["steps"]

    def after_step(population: Population) -> None:
        report_progress(population.num_timesteps / steps)
        if look is not None:
            look(population)

    return _population(specs).learn(steps, callback=after_step)


def _population(specs: Sequence[Spec]) -> Population:
    from sb3_robust_be.population import Member, Population

    first = specs[0]
    shared = {k: v for k, v in first["arguments"].items() if all(s["arguments"].get(k, _ABSENT) == v for s in specs)}
    members = [Member(spec["seed"], {k: v for k, v in spec["arguments"].items() if k not in shared}) for spec in specs]
    return Population(
        first["algorithm"],
        first["policy"],
        first["env"],
        members,
        env_kwargs=first["env_kwargs"],
        compile=first["compile"],
        verbose=0,
        **_constructed(shared),
    )


def check_environments(specs: Sequence[Spec]) -> None:
    """Before hours of work, not after: whether every environment can be made.

    :param specs: Of any function; those without an environment are passed over.
    :raises ValueError: If one cannot.
    """
    import gymnasium as gym

    distinct = {(spec["env"], str(spec["env_kwargs"])): spec["env_kwargs"] for spec in specs if "env" in spec}
    for (env, _), kwargs in distinct.items():
        try:
            gym.make(env, **kwargs).close()
        except Exception as error:
            raise ValueError(
                f"{env} cannot be made here: {error} Install what it needs, then run this again."
            ) from error


def make_agent(spec: Spec) -> None:
    """
    :param spec: Of :func:`control_spec`.
    :raises Exception: Whatever the algorithm, the network or the environment object to in it.
    """
    import gymnasium as gym

    if spec["function"] == SINGLE:
        _single_agent(
            {**spec, "arguments": {**spec["arguments"], "buffer_size": 1}}, gym.make(spec["env"], **spec["env_kwargs"])
        )
    else:
        _population([spec])


def finish_members(population: Population, specs: Sequence[Spec], writers: Sequence[RunWriter], seconds: float) -> None:
    """Write every member's files.

    :param population: Of :func:`train_members`.
    :param specs: Its members'.
    :param writers: One per spec.
    :param seconds: That all took.
    """
    share = {"seconds": seconds / len(specs), "members": len(specs)}
    failed_at = population.failed_at.tolist()
    for writer, spec, episodes, step in zip(writers, specs, population.returns, failed_at, strict=True):
        _write(writer, spec, episodes.lengths, episodes.returns, step if step >= 0 else None, share)


def train_single(specs: Sequence[Spec], writers: Sequence[RunWriter], report_progress: ReportProgress) -> None:
    """Execute runs one after another, each by SB3 itself: for environments and algorithms that cannot be stacked.

    :param specs: Of :func:`control_spec`.
    :param writers: One per spec.
    :param report_progress: Takes the finished fraction.
    """
    import gymnasium as gym
    import torch as th
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.monitor import Monitor

    class Progress(BaseCallback):
        def __init__(self, before: int) -> None:
            super().__init__()
            self.before = before

        def _on_step(self) -> bool:
            report_progress((self.before + self.num_timesteps / self.locals["total_timesteps"]) / len(specs))
            return True

    for i, (spec, writer) in enumerate(zip(specs, writers, strict=True)):
        started = time.time()
        env = Monitor(gym.make(spec["env"], **spec["env_kwargs"]))
        model = _single_agent(spec, env)
        model.learn(spec["steps"], callback=Progress(i), progress_bar=False)
        finite = all(bool(p.isfinite().all()) for p in model.policy.parameters() if isinstance(p, th.Tensor))
        lengths, returns = np.array(env.get_episode_lengths(), int), np.array(env.get_episode_rewards())
        share = {"seconds": time.time() - started, "members": 1}
        _write(writer, spec, lengths, returns, None if finite else spec["steps"], share)
        env.close()


_ABSENT = object()


def _constructed(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments as the algorithms take them: classes in place of their names."""
    from sb3_robust_be.population.storage import decode

    return {name: decode(value) for name, value in arguments.items()}


def _single_agent(spec: Spec, env: Any) -> Any:
    from sb3_contrib import QRDQN
    from stable_baselines3 import DQN

    from sb3_robust_be.registry import ALGORITHMS

    classes: dict[str, type[Any]] = {"dqn": DQN, "qrdqn": QRDQN, **ALGORITHMS}
    arguments = _constructed(spec["arguments"])
    if spec["algorithm"] in ("dqn", "qrdqn"):
        # SB3's have a target network; one that is refreshed before every update is none.
        arguments["target_update_interval"] = arguments.get("target_update_interval") or 1
        if (threshold := arguments.pop("huber_threshold", 1.0)) != 1.0:
            raise ValueError(f"huber_threshold is {threshold}; a single agent of SB3's has 1. Train a population.")
    return classes[spec["algorithm"]](spec["policy"], env, seed=spec["seed"], **arguments)


def _write(
    writer: RunWriter,
    spec: Spec,
    lengths: np.ndarray,
    returns: np.ndarray,
    diverged_at: int | None,
    share: dict[str, Any],
) -> None:
    """A run's files. A run that has diverged has ended, and its final return is NaN."""
    steps = spec["steps"]
    # SB3 trains whole rollouts, which may end later: what counts are the episodes within the steps.
    within = np.cumsum(lengths) <= steps
    lengths, returns = lengths[within], returns[within]
    curve = binned_curve(lengths, returns, steps, min(CURVE_POINTS, steps))
    writer.write_arrays("curve", curve=curve, lengths=lengths, returns=returns)
    write_atomically(writer.directory / "monitor.csv", _monitor(spec, lengths, returns, share["seconds"]))
    final = np.nan if diverged_at is not None else final_performance(lengths, returns, steps)
    writer.finish(
        {
            "final": final,
            "auc": np.nan if diverged_at is not None else area_under_curve(lengths, returns, steps),
            "episodes": len(lengths),
            "diverged_at": diverged_at,
            **share,
        }
    )


def _monitor(spec: Spec, lengths: np.ndarray, returns: np.ndarray, seconds: float) -> bytes:
    """SB3's monitor file; the times are those of an even pace, since a population's members share the clock."""
    text = io.StringIO()
    text.write("#" + json.dumps({"t_start": 0.0, "env_id": spec["env"]}) + "\n")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["r", "l", "t"])
    times = np.round(np.cumsum(lengths) / spec["steps"] * seconds, 3)
    table.writerows(zip(returns.tolist(), lengths.tolist(), times.tolist(), strict=True))
    return text.getvalue().encode()


def load_finals(results: Results, specs: Sequence[Spec]) -> np.ndarray:
    """
    :param results: Of the runs.
    :param specs: Of :func:`control_spec`.
    :return: The return per step over the last quarter, shape (runs,); NaN for runs that diverged, failed or are not
        done.
    """
    found = map(results.result, specs)
    return np.array([np.nan if result is None else result["final"] for result in found])


def load_curves(results: Results, specs: Sequence[Spec]) -> np.ndarray:
    """
    :param results: Of the runs.
    :param specs: Of :func:`control_spec`, all of as many steps.
    :return: Learning curves, shape (runs, points); NaN where there is none.
    """
    curves = np.full((len(specs), min(CURVE_POINTS, specs[0]["steps"])), np.nan)
    for row, spec in zip(curves, specs, strict=True):
        if results.result(spec) is not None:
            row[:] = results.arrays(spec)["curve"]
    return curves


def lowest_for_failed(finals: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """
    :param finals: Returns by algorithm, on one environment; NaN for runs without one.
    :return: The same with the lowest return of any run in place of NaN; 0 if there is none at all.
    """
    everything = np.concatenate(list(finals.values()))
    finite = everything[np.isfinite(everything)]
    lowest = finite.min() if finite.size else 0.0
    return {name: np.where(np.isfinite(x), x, lowest) for name, x in finals.items()}
