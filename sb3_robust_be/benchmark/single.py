"""``sb3-robust-be benchmark``: our algorithms against DQN in one process, at equal settings, in turn.

Machines drift, so every round runs each contender for the same number of environment steps, in an order that rotates,
and what is reported is the median over the rounds of the ratio within a round.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_robust_be import QRC, MinAtarCNN, QRCHuber
from sb3_robust_be.benchmark.breakdown import time_per_part
from sb3_robust_be.benchmark.machine import write_rows

BASELINE = "dqn"


class Setting(NamedTuple):
    """What all contenders share."""

    env: str
    net_arch: tuple[int, ...]
    train_freq: int
    steps: int


def contenders() -> dict[str, Callable[..., OffPolicyAlgorithm]]:
    """
    :return: Constructors by name; sbx's DQN is among them if it is installed.
    """
    found: dict[str, Callable[..., OffPolicyAlgorithm]] = {
        BASELINE: DQN,
        "qrc_huber": QRCHuber,
        "qrc_huber_compiled": lambda *args, **kwargs: QRCHuber(*args, compile=True, **kwargs),
        "qrc": QRC,
    }
    if importlib.util.find_spec("sbx") is not None:
        import sbx

        found["sbx_dqn"] = sbx.DQN
    return found


def _has_images(env: gym.Env) -> bool:
    return isinstance(env.observation_space, spaces.Box) and len(env.observation_space.shape) == 3


def network(env: gym.Env, net_arch: tuple[int, ...]) -> tuple[str, dict[str, Any]]:
    """
    :param env: What is played.
    :param net_arch: Hidden units; images have MinAtar's network instead.
    :return: The arguments ``policy`` and ``policy_kwargs`` of all contenders.
    """
    if _has_images(env):
        return "CnnPolicy", {"net_arch": [], "features_extractor_class": MinAtarCNN}
    policy = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
    return policy, {"net_arch": list(net_arch)}


def make_model(name: str, setting: Setting) -> OffPolicyAlgorithm:
    """
    :param name: A key of :func:`contenders`.
    :param setting: Shared by all.
    :return: A model before its first step.
    """
    env = gym.make(setting.env)
    policy, policy_kwargs = network(env, setting.net_arch)
    return contenders()[name](
        policy,
        env,
        learning_rate=2.0**-10,
        buffer_size=10_000,
        learning_starts=100,
        batch_size=32,
        train_freq=setting.train_freq,
        gradient_steps=1,
        exploration_initial_eps=0.1,
        exploration_final_eps=0.1,
        policy_kwargs=policy_kwargs,
        seed=0,
        device="cpu",
    )


def run_steps(model: OffPolicyAlgorithm, steps: int) -> tuple[float, float]:
    """
    :param model: Goes on from where it is.
    :param steps: Environment steps.
    :return: Wall-clock and CPU seconds.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    model.learn(steps, reset_num_timesteps=False)
    return time.perf_counter() - wall, time.process_time() - cpu


def peak_memory(name: str, setting: Setting) -> float:
    """
    :param name: A key of :func:`contenders`.
    :param setting: Shared by all.
    :return: Largest resident size, in MB, of a process that trains this contender alone.
    """
    program = (
        "import json, sys, torch; torch.set_num_threads(1)\n"
        "from sb3_robust_be.benchmark.machine import largest_size\n"
        "from sb3_robust_be.benchmark.single import Setting, make_model, run_steps\n"
        "name, setting = json.loads(sys.argv[1])\n"
        "run_steps(make_model(name, Setting(*setting)), 1000)\n"
        "print(largest_size())"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, json.dumps([name, setting])]
    # In parallel, threads and processes of the compiler would count as memory of the contender.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def compare(setting: Setting, repeats: int, memory: bool = True) -> list[dict[str, Any]]:
    """Run the contenders in turn.

    :param setting: Shared by all.
    :param repeats: Rounds.
    :param memory: Whether to measure peak memory too, one process per contender.
    :return: One row per contender: ``name``, ``steps_per_s`` (median), ``ratio_to_dqn`` (median of the rounds'),
        ``ratio_min``, ``ratio_max``, ``cpu_s`` (per 1000 steps, median), ``peak_mb`` and ``us_per_step`` by part.
    """
    # sbx's networks are not torch's: on images it would run another one.
    left_out = {"sbx_dqn"} if _has_images(gym.make(setting.env)) else set()
    models = {name: make_model(name, setting) for name in contenders() if name not in left_out}
    for model in models.values():
        run_steps(model, 300)  # imports, caches, and the compiler
    names = list(models)
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for i in range(repeats):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            rounds[name].append(run_steps(models[name], setting.steps))
    rows = []
    for name in names:
        ratios = [dqn[0] / own[0] for dqn, own in zip(rounds[BASELINE], rounds[name], strict=True)]
        rows.append(
            {
                "name": name,
                "steps_per_s": round(setting.steps / statistics.median(wall for wall, _ in rounds[name]), 1),
                "ratio_to_dqn": round(statistics.median(ratios), 3),
                "ratio_min": round(min(ratios), 3),
                "ratio_max": round(max(ratios), 3),
                "cpu_s": round(1000 / setting.steps * statistics.median(cpu for _, cpu in rounds[name]), 4),
                "peak_mb": round(peak_memory(name, setting), 1) if memory else None,
                "us_per_step": time_per_part(models[name], setting.steps),
            }
        )
    return rows


def _print(rows: list[dict[str, Any]]) -> None:
    print(f"{'':20}{'steps/s':>9}{'× DQN':>8}{'min':>7}{'max':>7}{'CPU s/1000':>12}{'peak MB':>9}")
    for row in rows:
        peak = "–" if row["peak_mb"] is None else f"{row['peak_mb']:.0f}"
        print(
            f"{row['name']:20}{row['steps_per_s']:>9.0f}{row['ratio_to_dqn']:>8.2f}{row['ratio_min']:>7.2f}"
            f"{row['ratio_max']:>7.2f}{row['cpu_s']:>12.3f}{peak:>9}"
        )
    parts = list(rows[0]["us_per_step"])
    print("\nµs per environment step\n" + " " * 20 + "".join(f"{part:>12}" for part in parts))
    for row in rows:
        print(f"{row['name']:20}" + "".join(f"{row['us_per_step'].get(part, 0):>12.0f}" for part in parts))


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sb3-robust-be benchmark", description=__doc__.partition("\n")[0])
    parser.add_argument("--env", default="CartPole-v1", help="gymnasium id (default: %(default)s)")
    parser.add_argument("--net-arch", type=int, nargs="*", default=[64, 64], help="hidden units (default: 64 64)")
    parser.add_argument("--train-freq", type=int, default=1, help="steps per update (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=15, help="rounds (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=500, help="steps of each contender in a round (default: 500)")
    parser.add_argument("--no-memory", action="store_true", help="leave out peak memory (one process each)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows, one object per contender")
    args = parser.parse_args(argv)
    for name in ("train_freq", "repeats", "steps"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1 and is {getattr(args, name)}")
    if args.env not in gym.registry:
        parser.error(f"--env {args.env!r} is not registered with gymnasium")
    if not isinstance(space := gym.make(args.env).action_space, spaces.Discrete):
        parser.error(f"--env {args.env!r} has the action space {space}, and DQN needs a Discrete one")
    return args


def main(argv: list[str]) -> int:
    """
    :param argv: The command's arguments.
    :return: The exit code.
    """
    args = _parse(argv)
    th.set_num_threads(1)
    setting = Setting(args.env, tuple(args.net_arch), args.train_freq, args.steps)
    with warnings.catch_warnings():
        # A contender whose compiler is missing must say so; SB3's remarks on environments are no news here.
        warnings.filterwarnings("ignore", category=UserWarning, module="stable_baselines3")
        rows = compare(setting, args.repeats, memory=not args.no_memory)
    _print(rows)
    if args.json is not None:
        write_rows(args.json, rows, ["sb3-robust-be benchmark", *argv])
    return 0
