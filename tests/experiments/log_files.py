"""Writes the logs of runs as SB3 does, by SB3's own writers, without training."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from stable_baselines3.common.logger import configure


def write_monitor(path: Path, episodes, env_id: str | None = "CartPole-v1", start: float = 1000.0) -> Path:
    """A Monitor file of ``(length, return)`` per episode, one step per second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="\n") as file:
        file.write(f"#{json.dumps({'t_start': start, 'env_id': str(env_id)})}\n")
        writer = csv.DictWriter(file, ("r", "l", "t"))
        writer.writeheader()
        time = 0
        for length, value in episodes:
            time += length
            writer.writerow({"r": value, "l": length, "t": time})
    return path


def write_log(folder: Path, records, formats=("csv",)) -> Path:
    """What SB3's logger writes for ``(step, entries)`` per line."""
    logger = configure(str(folder), list(formats))
    for step, entries in records:
        for name, value in entries.items():
            logger.record(name, value)
        logger.record("time/total_timesteps", step)
        logger.dump(step)
    logger.close()
    return folder
