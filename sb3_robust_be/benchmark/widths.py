"""``sb3-robust-be benchmark --widths``: the speed of single agents against the width of their networks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sb3_robust_be.benchmark.log_curves import draw_curves
from sb3_robust_be.benchmark.single import BASELINE, Setting, against, in_turn, make_model

WIDTHS = (16, 32, 64, 128, 256, 512)
"""How many units the hidden layers have one after another"""
CONTENDERS = {BASELINE: BASELINE, "qrc_huber": "qrc_huber", "qrc_huber_compiled": "qrc_huber, compiled"}
"""What is timed, and what its curve is called"""


def compare_widths(setting: Setting, widths: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """Run DQN, our update and its compiled form with networks of every width in turn.

    :param setting: Shared by all, with as many hidden layers.
    :param widths: Units of every hidden layer.
    :param repeats: Rounds.
    :return: One row per width and contender: ``width``, ``name``, and as of
        :func:`~sb3_robust_be.benchmark.single.against`, to the DQN of the same width.
    """
    models = {
        (width, name): make_model(name, setting._replace(net_arch=(width,) * len(setting.net_arch)))
        for width in widths
        for name in CONTENDERS
    }
    rounds = in_turn(models, setting.steps, repeats)
    return [
        {"width": width, "name": name, **against(rounds[width, BASELINE], rounds[width, name], setting.steps)}
        for width, name in models
    ]


def print_widths(rows: Sequence[dict[str, Any]]) -> None:
    """
    :param rows: Of :func:`compare_widths`.
    """
    print(f"{'width':>5} {'':20}{'steps/s':>9}{'× DQN':>8}{'min':>7}{'max':>7}")
    for row in rows:
        print(
            f"{row['width']:>5} {row['name']:20}{row['steps_per_s']:>9.0f}{row['ratio_to_dqn']:>8.2f}"
            f"{row['ratio_min']:>7.2f}{row['ratio_max']:>7.2f}"
        )


def draw(rows: Sequence[dict[str, Any]], setting: Setting, path: Path) -> None:
    """
    :param rows: Of :func:`compare_widths`.
    :param setting: What was played.
    :param path: Where to write the figure, which ends on ``.svg`` or ``.png``.
    """
    curves: dict[str, dict[int, float]] = {}
    for row in rows:
        curves.setdefault(CONTENDERS[row["name"]], {})[row["width"]] = row["steps_per_s"]
    draw_curves(
        path,
        setting.env,
        curves,
        x_label=f"units of each of {len(setting.net_arch)} hidden layers",
        measure="environment steps per second",
    )
