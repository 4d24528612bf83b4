"""``sb3-robust-be benchmark population``: many agents in lock-step against SB3's DQN, one by one, per core.

Every round runs DQN and then each population for a while in this one process with one thread; what is reported is the
median over the rounds of the ratio of agent-steps per second within a round. Beside it stands what a core could do that
did nothing but the matrix products of the updates.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_robust_be.benchmark.limit import DTYPES, limits
from sb3_robust_be.benchmark.log_curves import figure_path
from sb3_robust_be.benchmark.machine import write_rows
from sb3_robust_be.benchmark.members_curve import MEMBERS, MODES, draw
from sb3_robust_be.benchmark.single import network
from sb3_robust_be.population import Population
from sb3_robust_be.qrc.products import CompileMode

WARM_UP = 200


class Cell(NamedTuple):
    """A population to time."""

    members: int
    net_arch: tuple[int, ...]
    compiled: CompileMode


CELLS = tuple(
    Cell(members, net_arch, compiled)
    for members, net_arch in ((30, (64, 64)), (100, (32, 32)))
    for compiled in (False, True)
)


def settings(env: str, net_arch: tuple[int, ...]) -> dict[str, Any]:
    """
    :param env: A gymnasium id.
    :param net_arch: Hidden units; images have MinAtar's network instead.
    :return: What DQN and populations share.
    """
    policy, policy_kwargs = network(gym.make(env), net_arch)
    return {
        "policy": policy,
        "env": env,
        "learning_rate": 2.0**-10,
        "buffer_size": 10_000,
        "learning_starts": 32,
        "batch_size": 32,
        "train_freq": 1,
        "gradient_steps": 1,
        "exploration_initial_eps": 0.1,
        "exploration_final_eps": 0.1,
        "policy_kwargs": policy_kwargs,
        "device": "cpu",
    }


def measure(algorithm: str, env: str, cells: tuple[Cell, ...], repeats: int, seconds: float) -> list[dict[str, Any]]:
    """
    :param algorithm: Of the populations.
    :param env: A gymnasium id.
    :param cells: What to time.
    :param repeats: Rounds.
    :param seconds: About how long each contender runs in a round.
    :return: One row per cell: ``members``, ``net_arch``, ``compiled``, ``agent_steps_per_s`` and ``ratio_to_dqn``
        (medians), the ratio's smallest and largest round, and :func:`~sb3_robust_be.benchmark.limit.limits`.
    """
    # Each population is compared with a DQN of its own network.
    networks = list(dict.fromkeys(cell.net_arch for cell in cells))
    baselines = [DQN(seed=0, **settings(env, net_arch)) for net_arch in networks]
    populations = [
        Population(algorithm, seeds=range(c.members), compile=c.compiled, verbose=0, **settings(env, c.net_arch))
        for c in cells
    ]
    alone = [Population(algorithm, seeds=[0], verbose=0, **settings(env, net_arch)) for net_arch in networks]
    found = [limits(one.learn(WARM_UP)[0]) for one in alone]
    contenders: list[Any] = [*baselines, *populations]
    steps = [_steps_per_round(contender, seconds) for contender in contenders]
    rounds: list[list[float]] = [[] for _ in contenders]
    for i in range(repeats):
        order = list(range(len(contenders)))
        for k in order[i % len(order) :] + order[: i % len(order)]:
            rounds[k].append(_agent_steps_per_s(contenders[k], steps[k]))
    rows = []
    for cell, own in zip(cells, rounds[len(networks) :], strict=True):
        which = networks.index(cell.net_arch)
        base = rounds[which]
        ratios = [rate / one for rate, one in zip(own, base, strict=True)]
        rows.append(
            {
                **cell._asdict(),
                "network": _name(env, cell.net_arch),
                "agent_steps_per_s": round(statistics.median(own)),
                "ratio_to_dqn": round(statistics.median(ratios), 2),
                "ratio_min": round(min(ratios), 2),
                "ratio_max": round(max(ratios), 2),
                "dqn_steps_per_s": round(statistics.median(base), 1),
                **found[which],
                "algorithm": algorithm,
                "env": env,
            }
        )
    return rows


def _name(env: str, net_arch: tuple[int, ...]) -> str:
    """The network in words: images have MinAtar's, whatever hidden units are asked for."""
    policy, _ = network(gym.make(env), net_arch)
    return "MinAtarCNN" if policy == "CnnPolicy" else "-".join(map(str, net_arch)) or "linear"


def _agent_steps_per_s(contender: Population | OffPolicyAlgorithm, steps: int) -> float:
    start = time.perf_counter()
    contender.learn(steps, reset_num_timesteps=False)
    members = len(contender) if isinstance(contender, Population) else 1
    return members * steps / (time.perf_counter() - start)


def _steps_per_round(contender: Population | OffPolicyAlgorithm, seconds: float) -> int:
    contender.learn(WARM_UP, reset_num_timesteps=False)  # imports, traces, caches, and the compiler
    start = time.perf_counter()
    contender.learn(WARM_UP, reset_num_timesteps=False)
    return max(1, round(seconds / (time.perf_counter() - start) * WARM_UP))


def _print(rows: list[dict[str, Any]]) -> None:
    print(f"{'members':>8}{'network':>12}{'':>10}{'agent-steps/s':>15}{'DQN':>6}{'× DQN':>8}{'min':>8}{'max':>8}")
    for row in rows:
        mode = MODES[row["compiled"]]
        print(
            f"{row['members']:>8}{row['network']:>12}{mode:>10}{row['agent_steps_per_s']:>15}{row['dqn_steps_per_s']:>6.0f}{row['ratio_to_dqn']:>8.1f}"
            f"{row['ratio_min']:>8.1f}{row['ratio_max']:>8.1f}"
        )
    for row in {row["network"]: row for row in rows}.values():
        speeds = " and ".join(
            f"{row[f'limit_{kind}']} agent-steps/s in {kind} ({row[f'gflop_per_s_{kind}']} GFLOP/s)" for kind in DTYPES
        )
        print(
            f"Network {row['network']}: an update takes {row['mflop_per_update']} million "
            f"additions and multiplications. Products of its largest layer alone would be {speeds} on this core."
        )


def main(argv: list[str]) -> int:
    """
    :param argv: The command's arguments.
    :return: The exit code.
    """
    description = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="sb3-robust-be benchmark population", description=description)
    parser.add_argument("--algo", default="qrc_huber", help="of the populations (default: %(default)s)")
    parser.add_argument("--env", default="CartPole-v1", help="gymnasium id (default: %(default)s)")
    parser.add_argument("--members", type=int, nargs="*", help="instead of 30 at 64-64 and 100 at 32-32")
    parser.add_argument("--net-arch", type=int, nargs="*", default=[64, 64], help="with --members (default: 64 64)")
    parser.add_argument("--bfloat16", action="store_true", help="also with compile='bfloat16'")
    parser.add_argument("--repeats", type=int, default=9, help="rounds (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each contender in a round (default: 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows, one object per cell")
    parser.add_argument(
        "--figure",
        type=figure_path,
        metavar="FILE",
        help="also draw agent-steps/s against the number of members, as FILE.svg or .png; without --members, of "
        f"{', '.join(map(str, MEMBERS))} members, compiled",
    )
    args = parser.parse_args(argv)
    if args.repeats < 1 or args.seconds <= 0 or min(args.members or [1]) < 1:
        parser.error("--repeats, --seconds and --members must be positive")
    if args.env not in gym.registry:
        parser.error(f"--env {args.env!r} is not registered with gymnasium")
    th.set_num_threads(1)
    chosen = tuple(Cell(n, tuple(args.net_arch), c) for n in args.members or () for c in (False, True)) or CELLS
    if args.figure is not None and not args.members:
        chosen = tuple(Cell(n, tuple(args.net_arch), True) for n in MEMBERS)
    if args.bfloat16:
        chosen += tuple(dict.fromkeys(cell._replace(compiled="bfloat16") for cell in chosen))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="stable_baselines3")
        rows = measure(args.algo, args.env, chosen, args.repeats, args.seconds)
    _print(rows)
    if args.json is not None:
        write_rows(args.json, rows, ["sb3-robust-be benchmark population", *argv])
    if args.figure is not None:
        draw(rows, args.figure)
    return 0
