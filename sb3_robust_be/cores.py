"""How many processor cores there are to use."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Those this process may use, where the system tells; else all."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
