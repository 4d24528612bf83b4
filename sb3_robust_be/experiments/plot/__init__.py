"""``sb3-robust-be plot``: figures and a table of the logs of runs that have been made, by whatever trained them."""

from sb3_robust_be.experiments.plot.plot_command import main

__all__ = ["main"]
