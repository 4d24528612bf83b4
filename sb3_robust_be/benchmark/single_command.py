"""``sb3-robust-be benchmark``: our algorithms against DQN in one process, at equal settings, in turn."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch as th
from gymnasium import spaces

from sb3_robust_be.benchmark.log_curves import figure_path
from sb3_robust_be.benchmark.machine import write_rows
from sb3_robust_be.benchmark.single import Setting, compare, network
from sb3_robust_be.benchmark.widths import WIDTHS, compare_widths, draw, print_widths

NAMES = 22
"""Characters of the column of names"""


def _print(rows: list[dict[str, Any]]) -> None:
    print(f"{'':{NAMES}}{'steps/s':>9}{'× DQN':>8}{'min':>7}{'max':>7}{'CPU s/1000':>12}{'peak MB':>9}")
    for row in rows:
        peak = "–" if row["peak_mb"] is None else f"{row['peak_mb']:.0f}"
        print(
            f"{row['name']:{NAMES}}{row['steps_per_s']:>9.0f}{row['ratio_to_dqn']:>8.2f}{row['ratio_min']:>7.2f}"
            f"{row['ratio_max']:>7.2f}{row['cpu_s']:>12.3f}{peak:>9}"
        )
    parts = list(rows[0]["us_per_step"])
    print("\nµs per environment step\n" + " " * NAMES + "".join(f"{part:>12}" for part in parts))
    for row in rows:
        print(f"{row['name']:{NAMES}}" + "".join(f"{row['us_per_step'].get(part, 0):>12.0f}" for part in parts))


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sb3-robust-be benchmark", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--env", default="CartPole-v1", help="gymnasium id (default: %(default)s)")
    parser.add_argument("--net-arch", type=int, nargs="*", default=[64, 64], help="hidden units (default: 64 64)")
    parser.add_argument("--train-freq", type=int, default=1, help="steps per update (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=15, help="rounds (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=500, help="steps of each contender in a round (default: 500)")
    parser.add_argument(
        "--widths",
        type=int,
        nargs="*",
        metavar="N",
        help="time DQN, ours and ours compiled with networks of these widths, as many hidden layers as --net-arch has "
        f"(without numbers: {' '.join(map(str, WIDTHS))})",
    )
    parser.add_argument(
        "--figure", type=figure_path, metavar="FILE", help="with --widths: draw steps/s against it, as .svg or .png"
    )
    parser.add_argument("--no-memory", action="store_true", help="leave out peak memory (one process each)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows, one object per contender")
    args = parser.parse_args(argv)
    if args.widths == []:
        args.widths = list(WIDTHS)
    for name in ("train_freq", "repeats", "steps"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1 and is {getattr(args, name)}")
    if args.widths is None and args.figure is not None:
        parser.error("--figure is drawn over the widths of networks: add --widths")
    if args.widths is not None and (min(args.widths) < 1 or len(set(args.widths)) < len(args.widths)):
        parser.error(f"--widths must be different numbers of at least 1 and are {args.widths}")
    if args.widths is not None and not args.net_arch:
        parser.error("--widths are of hidden layers: give --net-arch at least one")
    if args.env not in gym.registry:
        parser.error(f"--env {args.env!r} is not registered with gymnasium")
    if not isinstance(space := gym.make(args.env).action_space, spaces.Discrete):
        parser.error(f"--env {args.env!r} has the action space {space}, and DQN needs a Discrete one")
    if args.widths is not None and network(gym.make(args.env), ())[0] == "CnnPolicy":
        parser.error(f"--env {args.env!r} has images, whose network has one width only: leave out --widths")
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
        if args.widths is None:
            rows = compare(setting, args.repeats, memory=not args.no_memory)
            _print(rows)
        else:
            rows = compare_widths(setting, args.widths, args.repeats)
            print_widths(rows)
    if args.json is not None:
        write_rows(args.json, rows, ["sb3-robust-be benchmark", *argv])
    if args.figure is not None:
        draw(rows, setting, args.figure)
    return 0
