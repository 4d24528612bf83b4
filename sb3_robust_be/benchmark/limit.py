"""What a core could do at most: how fast it multiplies matrices of a network's size, and how many an update needs."""

from __future__ import annotations

import statistics
import time

import torch as th
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

DTYPES = {"float32": th.float32, "bfloat16": th.bfloat16}
REPEATS = 9


def largest_product(model: OffPolicyAlgorithm) -> tuple[int, int, int]:
    """
    :param model: An agent.
    :return: Rows, inner numbers and columns of the product of a batch, s and s' together, with the weights of the
        network's largest fully connected layer.
    """
    layers = [layer for layer in model.policy.modules() if isinstance(layer, nn.Linear)]
    largest = max(layers, key=lambda layer: layer.weight.numel())
    return 2 * model.batch_size, largest.in_features, largest.out_features


def gflops(shape: tuple[int, int, int], dtype: th.dtype) -> float:
    """
    :param shape: Rows, inner numbers and columns.
    :param dtype: Of the numbers.
    :return: Thousand millions of additions and multiplications per second in products of this size, as many of them at
        once as take a few milliseconds; the median of some.
    """
    rows, inner, columns = shape
    flops = 2 * rows * inner * columns
    n = max(1, min(100, round(2e8 / flops)))
    left, right = (th.rand(n, *size).to(dtype) for size in ((rows, inner), (inner, columns)))
    seconds = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        th.bmm(left, right)
        seconds.append(time.perf_counter() - start)
    return n * flops / statistics.median(seconds[1:]) / 1e9


def update_flops(model: OffPolicyAlgorithm) -> int:
    """
    :param model: An agent that has learned, and does one more update.
    :return: Additions and multiplications of the matrix products and convolutions of an update.
    """
    model.set_logger(Logger(None, []))
    with FlopCounterMode(display=False) as counter:
        model.train(1, model.batch_size)
    return int(counter.get_total_flops())


def limits(model: OffPolicyAlgorithm) -> dict[str, float]:
    """
    :param model: As of :func:`update_flops`, not compiled.
    :return: ``mflop_per_update``, and for float32 and bfloat16 the speed of products and the agent-steps per second,
        with an update each, of a core that did nothing else.
    """
    flops, shape = update_flops(model), largest_product(model)
    found: dict[str, float] = {"mflop_per_update": round(flops / 1e6, 2)}
    for name, dtype in DTYPES.items():
        speed = gflops(shape, dtype)
        found[f"gflop_per_s_{name}"] = round(speed, 1)
        found[f"limit_{name}"] = round(1e9 * speed / flops)
    return found
