"""Runs of control experiments, executed in two ways: many seeds in lock-step, or single agents by SB3."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sb3_robust_be import registry
from sb3_robust_be.codec import OBJECTS, from_json
from sb3_robust_be.evaluation import area_under_curve, binned_curve, final_performance, with_unfinished
from sb3_robust_be.experiments.control.quantile_loss import compiled_quantile_loss
from sb3_robust_be.experiments.environments import import_packages
from sb3_robust_be.messages import warn
from sb3_robust_be.runner.specs import Spec
from sb3_robust_be.runner.writer import RunWriter
from sb3_robust_be.system import StoreError, write_atomically

if TYPE_CHECKING:
    from sb3_robust_be.population import Population

CURVE_POINTS = 100
POPULATION = "train-population"
SINGLE = "train-single"
COMPILED_FROM = 10_000
"""From so many steps on compiling takes no longer than it saves, and less where torch's cache on disk has the code"""

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
    gym_packages: Sequence[str] = (),
    normalize: Mapping[str, Any] | None = None,
    compile: bool = False,
    function: str = POPULATION,
    learn_calls: int = 1,
) -> Spec:
    """Make a run's spec: everything that decides its outcome.

    :param algorithm: Its name in commands; ``"qrdqn"`` (sb3-contrib) as a single agent only.
    :param env: A gymnasium id.
    :param steps: Environment steps.
    :param seed: Of networks, environment and exploration.
    :param arguments: Of the algorithm, as JSON.
    :param policy: As for SB3.
    :param env_kwargs: Of ``gym.make``.
    :param gym_packages: Modules to import first, which register environments.
    :param normalize: Arguments of SB3's ``VecNormalize`` that scales observations and rewards; ``None``: nothing does.
    :param compile: Whether the population's update is compiled, which changes the last digits.
    :param function: :data:`POPULATION` or :data:`SINGLE`.
    :param learn_calls: In how many calls of ``learn``, about equally long, the steps are made; those after the first
        with ``reset_num_timesteps=False``.
    """
    # Absent where there are none, as it was before there could be any.
    packages = {"gym_packages": list(gym_packages)} if gym_packages else {}
    scaled = {} if normalize is None else {"normalize": dict(normalize)}
    calls = {"learn_calls": learn_calls} if learn_calls > 1 else {}
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
        **packages,
        **scaled,
        **calls,
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
    """Train a population of which each member is one run.

    :param specs: As of :func:`train_population`.
    :param report_progress: Takes the finished fraction.
    :param look: Called with the population before the first step and after every one.
    :return: A trained population, one member per spec; its environments are closed.
    """
    steps = specs[0]["steps"]

    def after_step(population: Population) -> None:
        report_progress(population.num_timesteps / steps)
        if look is not None:
            look(population)

    with _targets_are_meant():
        population = _population(specs)
    try:
        if look is not None:
            look(population)
        for k, part in enumerate(_parts(specs[0])):
            population.learn(part, callback=after_step, reset_num_timesteps=k == 0)
        return population
    finally:
        population.env.close()


def _parts(spec: Spec) -> list[int]:
    """The steps of each call of ``learn``."""
    calls, steps = spec.get("learn_calls", 1), spec["steps"]
    return [steps * (k + 1) // calls - steps * k // calls for k in range(calls)]


@contextlib.contextmanager
def _targets_are_meant() -> Iterator[None]:
    """No warning of a target network that an algorithm does not need: experiments compare with it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\w+ now bootstraps from a target network")
        yield


def _population(specs: Sequence[Spec]) -> Population:
    from sb3_robust_be.population import Member, Population

    first = specs[0]
    import_packages(first)
    shared = {k: v for k, v in first["arguments"].items() if all(s["arguments"].get(k, _ABSENT) == v for s in specs)}
    own = [{k: v for k, v in spec["arguments"].items() if k not in shared} for spec in specs]
    members = [Member(spec["seed"], _constructed(settings)) for spec, settings in zip(specs, own, strict=True)]
    return Population(
        first["algorithm"],
        first["policy"],
        first["env"],
        members,
        env_kwargs=first["env_kwargs"],
        normalize=first.get("normalize", False),
        compile=first["compile"],
        verbose=0,
        **_constructed(shared),
    )


def make_agent(spec: Spec) -> None:
    """Make an agent as a run would, to find mistakes in its arguments before the work.

    :param spec: Of :func:`control_spec`.
    :raises Exception: Whatever the algorithm, the network or the environment object to in it, before the first step.
    """
    import gymnasium as gym

    import_packages(spec)
    if spec["function"] == SINGLE:
        agent = _single_agent(
            {**spec, "arguments": {**spec["arguments"], "buffer_size": 1}}, gym.make(spec["env"], **spec["env_kwargs"])
        )
    else:
        agent = _population([spec])[0]
    # Some networks can be made, but take no observation. An action that explores would not ask them.
    agent.predict(agent.observation_space.sample(), deterministic=True)


def finish_members(population: Population, specs: Sequence[Spec], writers: Sequence[RunWriter], seconds: float) -> None:
    """Write every member's files. Who failed by its environment has failed; who diverged is done, without a return.

    :param population: Of :func:`train_members`.
    :param specs: Its members'.
    :param writers: One per spec.
    :param seconds: That all took.
    """
    share = {"seconds": seconds / len(specs), "members": len(specs)}
    failed_at, diverged = population.failed_at.tolist(), population.diverged
    reasons, tracebacks = population.failures, population.tracebacks
    lengths, returns = population.unfinished.lengths.tolist(), population.unfinished.returns.tolist()
    for i, (writer, spec, own) in enumerate(zip(writers, specs, population.returns, strict=True)):
        reason = reasons[i]
        if reason is not None and not diverged[i]:
            writer.fail(reason, tracebacks[i])
        else:
            episodes = _Episodes(own.lengths, own.returns, returns[i], lengths[i])
            _write(writer, spec, episodes, failed_at[i] if diverged[i] else None, share)


def train_single(specs: Sequence[Spec], writers: Sequence[RunWriter], report_progress: ReportProgress) -> None:
    """Execute runs one after another, each by SB3 itself: for environments and algorithms that cannot be stacked.

    :param specs: Of :func:`control_spec`.
    :param writers: One per spec.
    :param report_progress: Takes the finished fraction.
    """
    n_ended = 0

    def report_all(fraction: float) -> None:
        report_progress((n_ended + fraction) / len(specs))

    for n_ended, (spec, writer) in enumerate(zip(specs, writers, strict=True)):  # noqa: B007
        try:
            _train_one(spec, writer, report_all)
        except StoreError:
            raise
        except Exception as error:
            if writer.ended is None:
                writer.fail(error)
            else:  # It is done: this is the environment's that was to be closed.
                warn(f"{spec['env']}, seed {spec['seed']}: {error!r} after the training.")


def _train_one(spec: Spec, writer: RunWriter, report_progress: ReportProgress) -> None:
    import gymnasium as gym
    import torch as th
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.monitor import Monitor

    class Progress(BaseCallback):
        def __init__(self, steps: int, env: Monitor) -> None:
            super().__init__()
            self.steps, self.env = steps, env
            self.going_on: list[float] = []

        def _on_step(self) -> bool:
            # SB3 trains whole rollouts, so this is not always the last step.
            if self.num_timesteps == self.steps:
                self.going_on = list(self.env.rewards)
            report_progress(min(1.0, self.num_timesteps / self.steps))
            return True

    started = time.time()
    import_packages(spec)
    env = Monitor(gym.make(spec["env"], **spec["env_kwargs"]))
    with _targets_are_meant():
        model = _single_agent(spec, env)
    progress = Progress(spec["steps"], env)
    compiled = spec["algorithm"] == "qrdqn" and spec["steps"] >= COMPILED_FROM and model.device.type == "cpu"
    with compiled_quantile_loss() if compiled else contextlib.nullcontext():
        for k, part in enumerate(_parts(spec)):
            model.learn(part, callback=progress, progress_bar=False, reset_num_timesteps=k == 0)
    finite = all(bool(p.isfinite().all()) for p in model.policy.parameters() if isinstance(p, th.Tensor))
    lengths, returns = np.array(env.get_episode_lengths(), int), np.array(env.get_episode_rewards())
    within = np.cumsum(lengths) <= spec["steps"]
    episodes = _Episodes(lengths[within], returns[within], sum(progress.going_on), len(progress.going_on))
    share = {"seconds": time.time() - started, "members": 1}
    _write(writer, spec, episodes, None if finite else spec["steps"], share)
    env.close()


_ABSENT = object()


def _linear_schedule(ends: Sequence[float]) -> Any:
    from stable_baselines3.common.utils import LinearSchedule

    start, end = ends
    return LinearSchedule(start, end, 1.0)


LINEAR = "$linear"
"""A spec's form of a schedule: ``{"$linear": [start, end]}`` falls, or rises, in proportion to the steps of the run"""
_TAGS = {**OBJECTS, LINEAR: _linear_schedule}


def _constructed(arguments: dict[str, Any]) -> dict[str, Any]:
    """Convert a spec's arguments to the algorithm's: classes and schedules in place of their names."""
    found = {name: from_json(value, _TAGS) for name, value in arguments.items()}
    if isinstance(found.get("train_freq"), list):
        # A frequency and its unit, of which JSON makes a list.
        found["train_freq"] = tuple(found["train_freq"])
    return found


def _single_agent(spec: Spec, env: Any) -> Any:
    from sb3_robust_be.population.baseline import BaselineDQN, target_arguments
    from sb3_robust_be.population.normalization import as_vec_env, vec_normalize
    from sb3_robust_be.qrc.layer_norm import baseline_policy_kwargs
    from sb3_robust_be.qrc.validation import constructor_arguments

    name = spec["algorithm"]
    entry, algorithm = registry.find(name), registry.load(name)
    always_target = entry.always_target
    if name == "dqn" and "huber_threshold" in spec["arguments"]:
        algorithm, always_target = BaselineDQN, False  # SB3's has one threshold
    arguments = target_arguments(_constructed(spec["arguments"]), always_target=always_target)
    if entry.baseline:
        policy_kwargs = arguments.get("policy_kwargs")
        arguments["policy_kwargs"] = baseline_policy_kwargs(algorithm, spec["policy"], policy_kwargs)
    if "normalize" in spec:
        gamma = arguments.get("gamma", constructor_arguments(algorithm)["gamma"].default)
        env = vec_normalize(as_vec_env(env), spec["normalize"], gamma)
    return algorithm(spec["policy"], env, seed=spec["seed"], **arguments)


class _Episodes(NamedTuple):
    """The episodes of a run, within its number of steps."""

    lengths: np.ndarray
    """Lengths of the episodes that ended"""
    returns: np.ndarray
    """Returns of these episodes"""
    unfinished_return: float
    """Return so far of the episode in which the run stopped"""
    unfinished_length: int
    """Its steps so far; 0 if the run stopped at the end of an episode"""


def _write(writer: RunWriter, spec: Spec, episodes: _Episodes, diverged_at: int | None, share: dict[str, Any]) -> None:
    """A run's files. A run that has diverged has ended, and its final return is NaN."""
    steps, lengths, returns = spec["steps"], episodes.lengths, episodes.returns
    healthy = diverged_at is None
    last = (episodes.unfinished_length, episodes.unfinished_return) if healthy else (0, np.nan)
    counted = with_unfinished(lengths, returns, steps, *last)
    curve = binned_curve(counted.lengths, counted.returns, steps, min(CURVE_POINTS, steps))
    writer.write_arrays("curve", curve=curve, lengths=lengths, returns=returns)
    write_atomically(writer.directory / "monitor.csv", _monitor(spec, lengths, returns, share["seconds"]))
    writer.finish(
        {
            "final": final_performance(counted.lengths, counted.returns, steps) if healthy else np.nan,
            "auc": area_under_curve(counted.lengths, counted.returns, steps) if healthy else np.nan,
            "episodes": len(lengths),
            "unfinished": counted.unfinished,
            "unfinished_length": last[0],
            "unfinished_return": last[1],
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
