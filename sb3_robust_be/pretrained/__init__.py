"""Trained agents that come with the package, in rl_zoo3's layout: ``ALGORITHM/ENVIRONMENT_1/ENVIRONMENT.zip``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sb3_robust_be import registry
from sb3_robust_be.hub import RESULTS
from sb3_robust_be.messages import did_you_mean

__all__ = ["FOLDER", "load_pretrained", "pretrained_agents"]

FOLDER = Path(__file__).parent
"""Of the agents, as rl_zoo3's ``enjoy -f`` takes it"""


def pretrained_agents() -> dict[tuple[str, str], dict[str, Any]]:
    """List the trained agents that come with the package.

    :return: What ``results.json`` says of each, its greedy return and how it was trained, by the algorithm's name in
        commands and the id of the environment.
    """
    found = {}
    for path in sorted(FOLDER.glob(f"*/*/{RESULTS}")):
        results = json.loads(path.read_text(encoding="utf-8"))
        found[results["algorithm"], results["env_id"]] = results
    return found


def find_pretrained(algo: str, env_id: str) -> Path:
    """Find an agent that comes with the package.

    :param algo: The algorithm's name in commands.
    :param env_id: A gymnasium id.
    :return: Its zip-file.
    :raises ValueError: If there is none, with those that there are.
    """
    agents = pretrained_agents()
    if (algo, env_id) not in agents:
        algorithms = list(dict.fromkeys(name for name, _ in agents))
        envs = [env for name, env in agents if name == algo]
        hint = did_you_mean(env_id, envs)
        there_are = f"for {', '.join(envs)}" if envs else f"of {', '.join(algorithms)} only, so choose another --algo"
        raise ValueError(
            f"there is no pretrained agent of {algo!r} for {env_id!r}.{hint} There are some {there_are}, or train one: "
            f"sb3-robust-be train --algo {algo} --env {env_id}"
        )
    name = env_id.replace("/", "-")  # rl_zoo3's EnvironmentName
    return FOLDER / algo / f"{name}_1" / f"{name}.zip"


def load_pretrained(env_id: str, algo: str = "qlc", **load_arguments: Any) -> Any:
    """
    Load a trained agent that comes with the package; it needs no network and no extra.

    It predicts, and learns on: the optimiser's state is there, the replay buffer is not and fills anew.

    :param env_id: The gymnasium id of its environment, as ``"CartPole-v1"``; :func:`pretrained_agents` lists them.
    :param algo: The algorithm's name in files and commands.
    :param load_arguments: Of the class's ``load``, as ``env`` and ``device``.
    :return: The agent.
    :raises ValueError: If there is none for that environment or algorithm.
    """
    return registry.load(algo).load(find_pretrained(algo, env_id), **load_arguments)
