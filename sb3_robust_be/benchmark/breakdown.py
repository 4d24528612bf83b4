"""Where the time of a training loop goes, part by part."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch as th
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_robust_be.qrc import dqn

PARTS = ("env", "action", "storing", "sampling", "forward", "backward", "optimiser", "logging", "other")


class _Stopwatch:
    """Time by part, where a part that runs inside another is taken off the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner: list[float] = []

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                elapsed = time.perf_counter() - start
                self.seconds[part] += elapsed - self._inner.pop()
                if self._inner:
                    self._inner[-1] += elapsed

        return wrapper


@contextmanager
def _watched(model: OffPolicyAlgorithm, watch: _Stopwatch) -> Iterator[None]:
    targets: list[tuple[Any, str, str]] = [
        (model.env, "step", "env"),
        (model, "_sample_action", "action"),
        (model, "_store_transition", "storing"),
        # What `train` does itself, after the parts below are taken off: the forward pass and the loss.
        (model, "train", "forward"),
        (th.Tensor, "backward", "backward"),
        (model._logger, "record", "logging"),
        (model._logger, "dump", "logging"),
    ]
    if isinstance(model, dqn.TwoHeadDQN):
        # A step of the optimiser that somebody has replaced would be called in place of the kernel or graph.
        targets += [(dqn, "sample_batch", "sampling"), (dqn, "fused_step", "optimiser")]
    else:
        targets.append((model.replay_buffer, "sample", "sampling"))
        optimizer = getattr(model.policy, "optimizer", None)
        if optimizer is not None:
            targets += [(optimizer, "step", "optimiser"), (optimizer, "zero_grad", "optimiser")]
    with ExitStack() as stack:
        for owner, name, part in targets:
            stack.enter_context(mock.patch.object(owner, name, watch.timed(part, getattr(owner, name))))
        # `learn` makes a logger of its own unless it is told that there is one.
        stack.enter_context(mock.patch.object(model, "_custom_logger", True))
        yield


def time_per_part(model: OffPolicyAlgorithm, steps: int) -> dict[str, float]:
    """
    The stopwatches cost some microseconds themselves, so this is a run of its own. A compiled update does forward
    pass, backward pass and Adam's step at once, under ``forward``.

    :param model: That has learned before; it goes on from where it is.
    :param steps: Environment steps.
    :return: Microseconds per environment step, by :data:`PARTS`.
    """
    watch = _Stopwatch()
    with _watched(model, watch):
        start = time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        total = time.perf_counter() - start
    watch.seconds["other"] = total - sum(watch.seconds.values())
    return {part: round(1e6 * watch.seconds[part] / steps, 1) for part in PARTS}
