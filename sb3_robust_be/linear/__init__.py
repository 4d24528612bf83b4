"""Linear prediction with robust Bellman errors, exactly: problems, objectives, fixed points and online algorithms.

>>> from sb3_robust_be import linear
>>> problem = linear.get("HardAlias-2")
>>> linear.solve(problem, "mhbe", tau=0.03).theta.round(4)
array([-0.1856])

Needs numpy and scipy; the sweeps are compiled where numba is installed (the ``linear`` extra).
"""

from __future__ import annotations

from sb3_robust_be.linear.catalogue import PROBLEMS, get
from sb3_robust_be.linear.fixed_points import OBJECTIVES, FixedPoint, solve
from sb3_robust_be.linear.methods import ALGORITHMS, METHODS, Algorithm, algorithm
from sb3_robust_be.linear.objectives import mabe, mave, mhbe, msbe, mstde, msve
from sb3_robust_be.linear.online import LinearTD, expected_update, update_variance
from sb3_robust_be.linear.problems import Problem
from sb3_robust_be.linear.projected import (
    clipped_projection,
    mapbe,
    mhpbe,
    mspbe,
    signed_projection,
    tdrc_surface,
)
from sb3_robust_be.linear.sweeps import Settings, SweepResult, sweep

__all__ = [
    "ALGORITHMS",
    "METHODS",
    "OBJECTIVES",
    "PROBLEMS",
    "Algorithm",
    "FixedPoint",
    "LinearTD",
    "Problem",
    "Settings",
    "SweepResult",
    "algorithm",
    "clipped_projection",
    "expected_update",
    "get",
    "mabe",
    "mapbe",
    "mave",
    "mhbe",
    "mhpbe",
    "msbe",
    "mspbe",
    "mstde",
    "msve",
    "signed_projection",
    "solve",
    "sweep",
    "tdrc_surface",
    "update_variance",
]
