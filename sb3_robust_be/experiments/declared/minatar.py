"""Table 1: MinAtar games, one setting for all of them, scaled returns; on a CPU."""

from __future__ import annotations

from dataclasses import replace

from sb3_robust_be.experiments.control.contenders import SMOOTH
from sb3_robust_be.experiments.control.minatar_games import (
    RATES,
    REFRESH,
    STEPS,
    contenders,
    experiment,
    preset,
    without_correction,
)
from sb3_robust_be.experiments.control.preset import ControlPreset

THREE = ("breakout", "freeway", "spaceinvaders")
RATE = (2.0**-12,)
NOTE = (
    "Three of the paper's five games, QRC-Huber with the smooth clip only, by populations on a CPU. Nothing is chosen: "
    "the step size is 2^-12 and DQN's refresh 64 steps, as in the published `minatar-population`, where nothing was "
    "chosen either; QLC and the DQN with layer normalisation have QLC's falling step size. On Freeway QRC without its "
    "correction stands beside it, an ablation of ours."
)


def _on_two_cores(steps: int, seeds: int, note: str) -> ControlPreset:
    own = contenders(RATE, (64,), (SMOOTH,))
    return replace(
        preset(steps, own, seeds, 0, f"{note} {NOTE}", stacked=True),
        domains=THREE,
        contenders_of={"freeway": (*own, without_correction(RATE))},
    )


_SMOKE = contenders(RATE, (64,))
PRESETS = {
    "smoke": replace(
        preset(120, _SMOKE, 1, 0, learning_starts=60, buffer_size=200),
        domains=("breakout", "freeway"),
        contenders_of={"freeway": (*_SMOKE, without_correction(RATE))},
    ),
    "laptop": _on_two_cores(
        50_000,
        3,
        "A hundredth of the paper's 5 million steps, three seeds: 2.9 million agent-steps, up to an hour on two cores.",
    ),
    "long": _on_two_cores(
        200_000,
        5,
        "A 25th of the paper's 5 million steps, five seeds: 19 million agent-steps, 4 to 5 hours on two cores.",
    ),
    "paper": preset(STEPS, contenders(RATES, REFRESH), 30, 5),
}


EXPERIMENT = experiment("minatar", "MinAtar: one setting for all games", PRESETS)
