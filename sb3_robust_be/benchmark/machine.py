"""What a benchmark ran on, and the file of its numbers."""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch as th


def largest_size() -> float:
    """
    :return: Largest resident size of this process so far, in MB.
    """
    status = Path("/proc/self/status")
    if status.exists():
        # Linux's getrusage starts from the size of the process that started this one.
        return next(int(line.split()[1]) / 2**10 for line in status.read_text().splitlines() if "VmHWM" in line)
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (2**20 if sys.platform == "darwin" else 2**10)


def machine() -> dict[str, Any]:
    """
    :return: What the numbers were taken on.
    """
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": th.__version__,
        "threads": th.get_num_threads(),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def write_rows(path: Path, rows: list[dict[str, Any]], command: Sequence[str]) -> None:
    """
    :param path: Of a JSON file.
    :param rows: One object per contender or cell.
    :param command: What made them; it is written beside each, with the machine.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    origin = {"command": " ".join(command), "machine": machine()}
    path.write_text(json.dumps([row | origin for row in rows], indent=1) + "\n")
