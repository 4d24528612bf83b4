"""SBEED with the mellowmax policy as a Stable-Baselines3 algorithm."""

from sb3_robust_be.sbeed.sbeed import SBEED

__all__ = ["SBEED"]
