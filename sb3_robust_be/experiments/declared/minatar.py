"""Table 1: five MinAtar games, one setting for all of them, scaled returns."""

from __future__ import annotations

from sb3_robust_be.experiments.control.minatar_games import RATES, REFRESH, STEPS, contenders, experiment, preset

PRESETS = {
    "smoke": preset(120, contenders((2.0**-12,), (64,)), 1, 1, learning_starts=60, buffer_size=200),
    "laptop": preset(
        200_000,
        contenders((2.0**-12,), (64,)),
        3,
        1,
        note="Much shorter than the paper's 5 million steps, with one setting per algorithm and three seeds. "
        "About 8 hours on two cores: 12 million steps of single agents, 164 to 222 per second each.",
    ),
    "paper": preset(STEPS, contenders(RATES, REFRESH), 30, 5),
}


EXPERIMENT = experiment("minatar", "MinAtar: five games, one setting for all", PRESETS)
