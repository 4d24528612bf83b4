"""Many seeds and settings of one algorithm at once."""

from sb3_robust_be.population.baseline import SquaredDQN
from sb3_robust_be.population.episode_log import Episodes
from sb3_robust_be.population.members import Member
from sb3_robust_be.population.population import Population

__all__ = ["Episodes", "Member", "Population", "SquaredDQN"]
