"""sb3-contrib's QR-DQN with a compiled loss, which is most of its time."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from sb3_robust_be.messages import warn

_MODULE, _NAME = "sb3_contrib.qrdqn.qrdqn", "quantile_huber_loss"
_LOCK = threading.Lock()
_eager: list[Callable[..., Any]] = []
"""sb3-contrib's own, once for every run that trains with the compiled one: runs may be in threads"""


@contextlib.contextmanager
def compiled_quantile_loss() -> Iterator[None]:
    """Let QR-DQN train with its own loss compiled, on a CPU: the same function, equal up to rounding.

    It makes several temporaries of (batch, quantiles, quantiles) numbers: with rl_zoo3's 170 quantiles and batches of
    128 on Lunar Lander the loss and its gradient took 58 ms on one core, and compiled 3.3 ms. Where it cannot be
    compiled, it is used as it is, with a warning.
    """
    module = importlib.import_module(_MODULE)
    with _LOCK:
        eager = _eager[0] if _eager else getattr(module, _NAME)
        if not _eager:
            setattr(module, _NAME, _compiled(eager))
        _eager.append(eager)
    try:
        yield
    finally:
        with _LOCK:
            _eager.pop()
            if not _eager:
                setattr(module, _NAME, eager)


def _compiled(loss: Callable[..., Any]) -> Callable[..., Any]:
    import torch as th

    found: Callable[..., Any] = th.compile(loss, dynamic=False)
    quantiles = th.zeros(1, 2, requires_grad=True)
    try:
        found(quantiles, th.ones(1, 2), sum_over_quantiles=True).backward()
    except Exception as error:
        warn(f"QR-DQN's loss cannot be compiled here and is slower: {error!r}. Install a C++ compiler such as g++.")
        return loss
    return found
