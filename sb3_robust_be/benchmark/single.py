"""Our algorithms against DQN in one process, at equal settings, in turn.

Machines drift, so every round runs each contender for the same number of environment steps, in an order that rotates,
and what is reported is the median over the rounds of the ratio within a round.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, TypeVar

import gymnasium as gym
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_robust_be import QLC, QRC, MinAtarCNN, QRCHuber
from sb3_robust_be.benchmark.breakdown import time_per_part

BASELINE = "dqn"
BFLOAT16 = "qrc_huber_bfloat16"
WARM_UP = 300
"""Environment steps for imports, caches and the compiler"""

Key = TypeVar("Key", bound=Hashable)


class Setting(NamedTuple):
    """What all contenders share."""

    env: str
    net_arch: tuple[int, ...]
    train_freq: int
    steps: int


def _without_layer_norm(*args: Any, policy_kwargs: dict[str, Any], **kwargs: Any) -> QLC:
    """QLC with the network of the others: what its layer normalisation costs is the difference between the two."""
    return QLC(*args, policy_kwargs={**policy_kwargs, "layer_norm": False}, **kwargs)


def contenders() -> dict[str, Callable[..., OffPolicyAlgorithm]]:
    """
    :return: Constructors by name; sbx's DQN is among them if it is installed. QLC has its own network, with layer
        normalisation, and ``qlc_no_norm`` that of the others.
    """
    found: dict[str, Callable[..., OffPolicyAlgorithm]] = {
        BASELINE: DQN,
        "qrc_huber": QRCHuber,
        "qrc_huber_compiled": lambda *args, **kwargs: QRCHuber(*args, compile=True, **kwargs),
        BFLOAT16: lambda *args, **kwargs: QRCHuber(*args, compile="bfloat16", **kwargs),
        "qrc": QRC,
        "qlc": QLC,
        "qlc_compiled": lambda *args, **kwargs: QLC(*args, compile=True, **kwargs),
        "qlc_no_norm": _without_layer_norm,
        "qlc_no_norm_compiled": lambda *args, **kwargs: _without_layer_norm(*args, compile=True, **kwargs),
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


Times = list[tuple[float, float]]
"""Wall-clock and CPU seconds of every round"""


def in_turn(models: Mapping[Key, OffPolicyAlgorithm], steps: int, repeats: int) -> dict[Key, Times]:
    """Run models in turn, in an order that rotates.

    :param models: By any names; they go on from where they are.
    :param steps: Environment steps of each in a round.
    :param repeats: Rounds.
    :return: By the same names.
    """
    for model in models.values():
        run_steps(model, WARM_UP)
    names = list(models)
    rounds: dict[Key, Times] = {name: [] for name in names}
    for i in range(repeats):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            rounds[name].append(run_steps(models[name], steps))
    return rounds


def against(base: Times, own: Times, steps: int) -> dict[str, float]:
    """
    :param base: Of DQN.
    :param own: Of a contender.
    :param steps: Environment steps in a round.
    :return: ``steps_per_s`` (median), ``ratio_to_dqn`` (median of the rounds'), ``ratio_min``, ``ratio_max`` and
        ``cpu_s`` (per 1000 steps, median).
    """
    ratios = [dqn[0] / one[0] for dqn, one in zip(base, own, strict=True)]
    return {
        "steps_per_s": round(steps / statistics.median(wall for wall, _ in own), 1),
        "ratio_to_dqn": round(statistics.median(ratios), 3),
        "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
        "cpu_s": round(1000 / steps * statistics.median(cpu for _, cpu in own), 4),
    }


def compare(setting: Setting, repeats: int, memory: bool = True) -> list[dict[str, Any]]:
    """Run the contenders in turn.

    :param setting: Shared by all.
    :param repeats: Rounds.
    :param memory: Whether to measure peak memory too, one process per contender.
    :return: One row per contender: ``name``, as of :func:`against`, ``peak_mb`` and ``us_per_step`` by part.
    """
    # sbx's networks are not torch's: on images it would run another one. The products of small networks stay in single
    # precision.
    left_out = {"sbx_dqn"} if _has_images(gym.make(setting.env)) else {BFLOAT16}
    models = {name: make_model(name, setting) for name in contenders() if name not in left_out}
    rounds = in_turn(models, setting.steps, repeats)
    return [
        {
            "name": name,
            **against(rounds[BASELINE], rounds[name], setting.steps),
            "peak_mb": round(peak_memory(name, setting), 1) if memory else None,
            "us_per_step": time_per_part(model, setting.steps),
        }
        for name, model in models.items()
    ]
