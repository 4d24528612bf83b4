"""Take an agent that ``train --save-replay-buffer`` has made into the package: ``python -m sb3_robust_be.pretrained``.

The seed is fixed before: what it gives is what is shipped.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from stable_baselines3.common.env_util import make_vec_env

from sb3_robust_be import pretrained, registry
from sb3_robust_be.hub import evaluation_of, write_results

EPISODES = 100
SEED = 0


def main() -> None:
    """Copy the agent and its configuration, and write down what 100 greedy episodes give."""
    parser = argparse.ArgumentParser(prog="python -m sb3_robust_be.pretrained", description=__doc__)
    parser.add_argument("run", type=Path, help="rl_zoo3's folder of the run, as logs/qlc/CartPole-v1_1")
    parser.add_argument("--env", required=True, help="gymnasium id")
    parser.add_argument("--algo", default="qlc", help="its name in commands (default: qlc)")
    parser.add_argument("--command", required=True, help="what has trained it, for the record")
    arguments = parser.parse_args()
    name = arguments.env.replace("/", "-")
    model = registry.load(arguments.algo).load(arguments.run / f"{name}.zip", device="cpu")
    model.load_replay_buffer(arguments.run / "replay_buffer.pkl")
    evaluation = evaluation_of(
        model, arguments.env, make_vec_env(arguments.env, seed=SEED), EPISODES, arguments.command
    )
    to = pretrained.FOLDER / arguments.algo / f"{name}_1"
    (to / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(arguments.run / f"{name}.zip", to)
    shutil.copy(arguments.run / name / "config.yml", to / name)
    write_results(to, evaluation)
    print(f"{to}: {evaluation.mean_reward:.2f} ± {evaluation.std_reward:.2f} over {EPISODES} greedy episodes")


if __name__ == "__main__":
    main()
