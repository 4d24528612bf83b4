"""An experiment of your own in Python: how it is run, measured and judged; own_experiment.yml is the short form."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_robust_be import evaluation, registry
from sb3_robust_be.experiments import Analysis, Experiment, Results, Run, RunWriter, Spec, report, run
from sb3_robust_be.report import Table, distributions

ENV, ALGORITHMS = "CartPole-v1", ("qlc", "dqn")
ARGUMENTS = {"learning_starts": 32, "train_freq": 2, "learning_rate": 0.002, "exploration_fraction": 0.2}


def train(specs: Sequence[Spec], writers: Sequence[RunWriter], report_progress: Callable[[float], None]) -> None:
    """Make one run, whose spec says everything about it. It is executed in a process of its own."""
    (spec,), (writer,) = specs, writers
    model = registry.load(spec["algorithm"])("MlpPolicy", ENV, seed=spec["seed"], **ARGUMENTS)
    model.learn(spec["steps"])
    mean_return, _ = evaluate_policy(model, make_vec_env(ENV, seed=spec["seed"]), 10)
    writer.finish({"final": mean_return})


def plan(preset: dict[str, int], rows: Sequence[Any]) -> list[Run]:
    """Every run by the names under which its row is found, and its spec, for the function above."""
    found = []
    for name in ALGORITHMS:
        for seed in range(preset["seeds"]):
            spec = {"function": "own_experiment:train", "algorithm": name, "seed": seed, "steps": preset["steps"]}
            found.append(Run({"domain": ENV, "contender": name, "seed": seed}, spec))
    return found


def measure(of: Run, results: Results) -> list[dict[str, Any]]:
    """The row of a run that is done."""
    result = results.result(of.spec)
    return [] if result is None else [{"final": result["final"]}]


def analyse(preset: dict[str, int], rows: Sequence[Any]) -> Analysis:
    """A verdict, a figure and a table, from the rows alone."""
    finals = {name: np.array([row["final"] for row in rows if row["contender"] == name]) for name in ALGORITHMS}
    verdict = evaluation.greater("QLC's mean return is above DQN's", finals["qlc"], finals["dqn"])
    plot = distributions("returns", {ENV: finals}, measure="mean greedy return", rng=np.random.default_rng(0))
    table = [{"algorithm": name, "mean": own.mean(), "worst seed": own.min()} for name, own in finals.items()]
    return Analysis(verdicts=[verdict], plots=[plot], tables=[Table("greedy-returns", table)])


SIZES = {"smoke": {"seeds": 2, "steps": 300}, "laptop": {"seeds": 5, "steps": 1500}}
EXPERIMENT = Experiment("own", "own", "QLC and DQN on CartPole", (), SIZES, plan=plan, measure=measure, analyse=analyse)

if __name__ == "__main__":
    ran = run(EXPERIMENT, "laptop")
    print(analyse(SIZES["laptop"], ran.rows).verdicts[0])
    print(f"The page with figure and table: {report(EXPERIMENT, 'laptop')}")
