"""Figure 8: what target networks do to each algorithm."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sb3_robust_be.evaluation import Verdict, combined, greater, holm_adjusted, lowest_for_failed
from sb3_robust_be.experiments.control.contenders import FEW_RATES, RATES
from sb3_robust_be.experiments.control.control_analysis import control_analysis
from sb3_robust_be.experiments.control.preset import Contender, ControlPreset, measure, plan, read
from sb3_robust_be.experiments.experiment import Analysis, Experiment, Reading
from sb3_robust_be.experiments.rows import Rows

DOMAINS = ("acrobot", "cart-pole", "mountain-car")
ALGORITHMS = ("dqn", "qrc", "qrc_huber")
REFRESH = (1, 50, 500)
"""In steps; 1 is no target network"""


def _label(algorithm: str, refresh: int) -> str:
    return f"{algorithm}, refresh {refresh}"


def _contenders(rates: tuple[float, ...], refresh: tuple[int, ...] = REFRESH) -> tuple[Contender, ...]:
    return tuple(
        Contender(_label(a, r), a, {"learning_rate": rates}, {"target_update_interval": None if r == 1 else r})
        for a in ALGORITHMS
        for r in refresh
    )


PRESETS = {
    "smoke": ControlPreset(
        ("cart-pole",), _contenders((2.0**-10,)), seeds=2, selection_seeds=1, steps=0.002, compile=False
    ),
    "laptop": ControlPreset(
        DOMAINS,
        _contenders(FEW_RATES),
        seeds=30,
        selection_seeds=5,
        steps=0.3,
        note="Thinner than the paper's: three of six step sizes.",
    ),
    "paper": ControlPreset(DOMAINS, _contenders(RATES), seeds=100, selection_seeds=10),
}


def target_verdicts(finals: Mapping[str, Mapping[str, np.ndarray]]) -> list[Verdict]:
    """
    :param finals: Final returns (runs,) by domain and label; NaN for runs without one.
    :return: The combinations, then all comparisons as one family after Holm.
    """
    ranked = {domain: lowest_for_failed(own) for domain, own in finals.items()}
    claims, single = [], []
    for algorithm in ALGORITHMS[1:]:
        parts = [
            greater(
                f"{domain}: {algorithm} without a target is above refresh {r}",
                own[_label(algorithm, 1)],
                own[_label(algorithm, r)],
            )
            for domain, own in ranked.items()
            for r in REFRESH[1:]
        ]
        claims.append(combined(f"{algorithm} is best without a target network on every domain", parts))
        single += parts
    needed = []
    for domain, own in ranked.items():
        parts = [
            greater(
                f"{domain}: DQN with refresh {r} is above DQN without a target",
                own[_label("dqn", r)],
                own[_label("dqn", 1)],
            )
            for r in REFRESH[1:]
        ]
        # Either will do; the combination corrects for the choice.
        needed.append(combined(f"{domain}: DQN with refresh 50 or 500 is above DQN without a target", parts, 1))
        single += parts
    everywhere = combined("DQN needs a target network on every domain", needed)
    return [*claims, everywhere, *needed, *holm_adjusted(single)]


def _analyse(preset: ControlPreset, rows: Rows) -> Analysis:
    results = read(preset, rows)
    analysis = control_analysis(results)
    analysis.verdicts = target_verdicts(results.finals)
    return analysis


EXPERIMENT = Experiment(
    name="target-networks",
    figure="figure 8",
    summary="Target networks: DQN, QRC and QRC-Huber with refresh 1, 50 and 500",
    claims=(
        "QRC and QRC-Huber perform better without target networks.",
        "DQN needs target networks.",
    ),
    presets=PRESETS,
    plan=plan,
    measure=measure,
    analyse=_analyse,
    readings=(
        Reading(
            "When does DQN need a target network?",
            ("its refresh is tuned per domain (section 8.2)", "one refresh for all domains"),
            "tuned per domain",
            "it is enough that a refresh of 50 or one of 500 is above none; the test corrects for the two tries.",
        ),
    ),
)
