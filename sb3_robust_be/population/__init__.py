"""Many seeds and settings of one algorithm at once."""

from sb3_robust_be.population.members import Member
from sb3_robust_be.population.population import Population
from sb3_robust_be.population.returns import Episodes

__all__ = ["Episodes", "Member", "Population"]
