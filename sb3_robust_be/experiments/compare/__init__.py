"""``sb3-robust-be compare``: algorithms on the user's environment over many seeds, with a table and a verdict."""

from sb3_robust_be.experiments.compare.compare_command import main

__all__ = ["main"]
