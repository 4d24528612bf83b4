"""Thirty runs of Stable-Baselines3's own training loop per algorithm, for a population to be compared with.

``python tests/population/single_runs.py FOLDER`` makes them (some twenty minutes of one core, resumable) and writes
``single_runs.json`` beside this file. The seeds are other than the population's: independent samples.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sb3_robust_be.experiments.control.training import SINGLE, control_spec
from sb3_robust_be.experiments.run_functions import run_units
from sb3_robust_be.runner import load_results

FILE = Path(__file__).with_suffix(".json")
ENV, STEPS, SEEDS = "CartPole-v1", 20_000, range(1_000, 1_030)
ARGUMENTS = {
    "learning_rate": 2.0**-9,
    "policy_kwargs": {"net_arch": [32, 32]},
    "buffer_size": 4_000,
    "learning_starts": 100,
    "batch_size": 32,
    "train_freq": 4,
    "gradient_steps": 1,
    "exploration_initial_eps": 1.0,
    "exploration_final_eps": 0.1,
    "exploration_fraction": 0.2,
}
OWN = {"dqn": {"target_update_interval": 100, "max_grad_norm": 10.0}, "qrc_huber": {}}


def main(folder: str) -> None:
    """Make the runs and the file."""
    specs = {
        name: [control_spec(name, ENV, STEPS, s, {**ARGUMENTS, **own, "device": "cpu"}, function=SINGLE) for s in SEEDS]
        for name, own in OWN.items()
    }
    run_units([[spec] for own in specs.values() for spec in own], folder)
    found = {
        name: {key: [result[key] for result in load_results(folder, own) if result] for key in ("final", "auc")}
        for name, own in specs.items()
    }
    FILE.write_text(
        json.dumps({name: {k: [round(x, 3) for x in v] for k, v in f.items()} for name, f in found.items()})
    )


if __name__ == "__main__":
    main(sys.argv[1])
