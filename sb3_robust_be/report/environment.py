"""Versions of packages and the machine, for the foot of a report."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path

PACKAGES: tuple[str, ...] = (
    "sb3-robust-be",
    "numpy",
    "scipy",
    "torch",
    "stable-baselines3",
    "sb3-contrib",
    "gymnasium",
    "MinAtar",
    "matplotlib",
)


#: The names in :func:`hardware`, and ``GPU``, which is for the caller to add.
HARDWARE = ("processor", "cores", "memory", "system", "GPU")


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Python's version and those of the packages that are installed, without importing one."""
    found = {"Python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def hardware() -> dict[str, str]:
    """Processor, cores and memory as far as the system tells, and the system. A GPU is for the caller to add."""
    found = {"processor": _processor(), "cores": str(os.cpu_count() or "unknown")}
    with contextlib.suppress(AttributeError, OSError, ValueError):
        found["memory"] = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    return found | {"system": f"{platform.system()} {platform.machine()}".strip()}


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
