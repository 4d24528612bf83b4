"""One picture of a comparison: distributions above, learning curves below."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.report import Plot

MEASURE = "return per step"


def make_plots(
    env: str, finals: Mapping[str, np.ndarray], curves: Mapping[str, np.ndarray], steps: int
) -> tuple[Plot, Plot]:
    """
    :param env: The panels' title.
    :param finals: Returns by algorithm, shape (seeds,), NaN for failed ones.
    :param curves: Shape (seeds, points), NaN where a seed has no value.
    :param steps: Of a run.
    :return: Half-violins with every seed as a dot, and learning curves, drawn where all seeds have a value.
    """
    rng = np.random.default_rng(0)
    points = next(iter(curves.values())).shape[1]
    at = (np.arange(points) + 0.5) * steps / points
    return (
        report.distributions("distributions", {env: finals}, measure=f"{MEASURE}, last 25 % of steps", rng=rng),
        report.learning_curves("learning-curves", {env: curves}, at, measure=MEASURE, rng=rng, show_runs=True),
    )


def stacked_png(plots: tuple[Plot, ...]) -> bytes:
    """
    :param plots: From top to bottom.
    :return: One picture.
    """
    from matplotlib import image

    pictures = [image.imread(io.BytesIO(plot.png()))[..., :3] for plot in plots]
    width = max(picture.shape[1] for picture in pictures)
    padded = [np.pad(p, ((0, 0), (0, width - p.shape[1]), (0, 0)), constant_values=1.0) for p in pictures]
    buffer = io.BytesIO()
    image.imsave(buffer, np.concatenate(padded), format="png")
    return buffer.getvalue()
