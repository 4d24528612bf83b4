"""Logs that runs have left on disk: SB3's Monitor files, progress.csv, TensorBoard's event files.

Files in, arrays out; pandas is not needed. What cannot be read is a :class:`LogError`, whose message is one sentence.
"""

from sb3_robust_be.experiments.logs.logged_runs import Found, LoggedRun, find_runs, is_log, runs_of_files
from sb3_robust_be.experiments.logs.monitor_files import Episodes, LogError, MonitorFile, read_monitor
from sb3_robust_be.experiments.logs.scalar_files import Series, read_events, read_progress

__all__ = [
    "Episodes",
    "Found",
    "LogError",
    "LoggedRun",
    "MonitorFile",
    "Series",
    "find_runs",
    "is_log",
    "read_events",
    "read_monitor",
    "read_progress",
    "runs_of_files",
]
