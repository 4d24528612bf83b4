"""From episodes to verdicts: the paper's measure, intervals, comparisons, performance profiles and claims.

>>> import numpy as np
>>> from sb3_robust_be import evaluation
>>> evaluation.final_performance(lengths=[50, 30], returns=[-50.0, -30.0], total_steps=80)
-30.0
>>> rng = np.random.default_rng(0)
>>> high, low = rng.normal(1.0, 1.0, 30), rng.normal(0.0, 1.0, 30)
>>> evaluation.greater("high is above low", high, low).outcome.value
'holds'

Needs numpy and scipy, and loads scipy's parts on first use. Nothing draws from numpy's global generator: what is
random takes ``rng``. Higher values are better throughout; negate errors.
"""

from __future__ import annotations

from sb3_robust_be.evaluation.attainable import enough_seeds
from sb3_robust_be.evaluation.bootstrap import Band, bootstrap_interval, bootstrap_means, bootstrap_samples, mean_band
from sb3_robust_be.evaluation.cdf_normalised import NormalisedAverages, cdf_normalised_averages
from sb3_robust_be.evaluation.claims import fails_more, greater, insensitive
from sb3_robust_be.evaluation.comparisons import (
    Comparison,
    brunner_munzel,
    holm,
    probability_of_improvement,
    welch_t,
)
from sb3_robust_be.evaluation.factorial import interactions, main_effects
from sb3_robust_be.evaluation.failures import failed, failed_difference, failed_fraction, lowest_for_failed
from sb3_robust_be.evaluation.families import holm_adjusted, judged, of_finite, unresolved_if_lost, without_runs
from sb3_robust_be.evaluation.hartigan import dip, dip_null
from sb3_robust_be.evaluation.intervals import (
    Interval,
    MeanError,
    iqm,
    mean_error,
    skewness_corrected_t,
    t_interval,
    worst_decile_mean,
)
from sb3_robust_be.evaluation.means import mean_curve, mean_interval, mean_intervals
from sb3_robust_be.evaluation.paired_errors import geometric_mean, lower, lower_ratio
from sb3_robust_be.evaluation.pairs import align_runs, bootstrap_t, paired_t, signed_rank
from sb3_robust_be.evaluation.profiles import (
    PerformanceProfile,
    ecdf_band,
    scaled_returns,
    score_distribution,
    suite_mean,
    to_rliable,
)
from sb3_robust_be.evaluation.returns import (
    CountedEpisodes,
    area_under_curve,
    binned_curve,
    final_performance,
    per_step_returns,
    with_unfinished,
)
from sb3_robust_be.evaluation.shapes import approximately_normal, bimodal, longer_tailed, narrower, spread_ratio
from sb3_robust_be.evaluation.stability import largest_fall, largest_rise, share_of_rise_lost, step_size_loss
from sb3_robust_be.evaluation.verdicts import Outcome, Verdict, combined, computed

__all__ = [
    "Band",
    "Comparison",
    "CountedEpisodes",
    "Interval",
    "MeanError",
    "NormalisedAverages",
    "Outcome",
    "PerformanceProfile",
    "Verdict",
    "align_runs",
    "approximately_normal",
    "area_under_curve",
    "bimodal",
    "binned_curve",
    "bootstrap_interval",
    "bootstrap_means",
    "bootstrap_samples",
    "bootstrap_t",
    "brunner_munzel",
    "cdf_normalised_averages",
    "combined",
    "computed",
    "dip",
    "dip_null",
    "ecdf_band",
    "enough_seeds",
    "failed",
    "failed_difference",
    "failed_fraction",
    "fails_more",
    "final_performance",
    "geometric_mean",
    "greater",
    "holm",
    "holm_adjusted",
    "insensitive",
    "interactions",
    "iqm",
    "judged",
    "largest_fall",
    "largest_rise",
    "longer_tailed",
    "lower",
    "lower_ratio",
    "lowest_for_failed",
    "main_effects",
    "mean_band",
    "mean_curve",
    "mean_error",
    "mean_interval",
    "mean_intervals",
    "narrower",
    "of_finite",
    "paired_t",
    "per_step_returns",
    "probability_of_improvement",
    "scaled_returns",
    "score_distribution",
    "share_of_rise_lost",
    "signed_rank",
    "skewness_corrected_t",
    "spread_ratio",
    "step_size_loss",
    "suite_mean",
    "t_interval",
    "to_rliable",
    "unresolved_if_lost",
    "welch_t",
    "with_unfinished",
    "without_runs",
    "worst_decile_mean",
]
