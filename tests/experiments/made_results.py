"""Results from a rule instead of runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.experiments.specs import Spec


class Made(Results):
    """
    :param rule: From a run's spec to its result.
    """

    def __init__(self, rule: Callable[[Spec], Any]) -> None:
        super().__init__("nowhere")
        self.rule = rule

    def of(self, specs):
        return [self.rule(spec) for spec in specs]
