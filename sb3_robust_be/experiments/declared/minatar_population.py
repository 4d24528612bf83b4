"""Table 1 once more, by populations: every game's seeds in lock-step, for a machine with a GPU."""

from __future__ import annotations

from dataclasses import replace

from sb3_robust_be.experiments.control.minatar_games import (
    RATES,
    REFRESH,
    STEPS,
    contenders,
    experiment,
    first_round,
    preset,
)

PRESETS = {
    "smoke": replace(
        preset(
            120,
            contenders((2.0**-12,), (64,)),
            2,
            1,
            stacked=True,
            device="auto",
            learning_starts=100,
            buffer_size=200,
        ),
        domains=("breakout",),
        compile=False,
    ),
    "laptop": preset(
        130_000,
        first_round((2.0**-12,), (64,)),
        10,
        1,
        "Much shorter than the paper's 5 million steps, with one setting per algorithm, the hard clip only, the QLC of "
        "0.1 and ten seeds; ε reaches 0.1 at step 100 000. For a GPU, with about as many processes as it has cores "
        "(--jobs).",
        stacked=True,
        device="auto",
        exploration_fraction=100_000 / 130_000,
    ),
    "paper": preset(STEPS, contenders(RATES, REFRESH), 30, 5, stacked=True, device="auto"),
}

EXPERIMENT = experiment(
    "minatar-population", "MinAtar by populations on a GPU: five games, one setting for all", PRESETS
)
