"""Ctrl-C at a moment of the program's choosing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def on_ctrl_c(handler: Any) -> Iterator[Any]:
    """Another handler of SIGINT while it lasts; yields the usual one. Only the main thread can do that."""
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield before
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ctrl_c_later() -> Iterator[None]:
    """What is done within it is done whole; an interruption comes at its end."""
    caught: list[Any] = []
    with on_ctrl_c(lambda *signal_and_frame: caught.append(signal_and_frame)) as usual:
        yield
    if caught and callable(usual):
        usual(*caught[0])
