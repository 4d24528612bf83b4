"""One picture of a comparison: distributions above, learning curves below."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from collections.abc import Mapping

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.experiments.plot.run_measures import EPISODES, WHEN
from sb3_robust_be.report import Plot
from sb3_robust_be.report.svg import SVG, inline


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
        report.distributions("distributions", {env: finals}, measure=f"{EPISODES}, {WHEN}", rng=rng),
        report.learning_curves("learning-curves", {env: curves}, at, measure=EPISODES, rng=rng, show_runs=True),
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


def stacked_svg(plots: tuple[Plot, ...]) -> bytes:
    """
    :param plots: From top to bottom.
    :return: One drawing.
    """
    drawings = [ET.fromstring(inline(plot.svg(), plot.name, plot.alt)) for plot in plots]
    sizes = [tuple(float(x) for x in drawing.attrib["viewBox"].split()[2:]) for drawing in drawings]
    width, height = max(w for w, _ in sizes), sum(h for _, h in sizes)
    box = {"width": f"{width:g}pt", "height": f"{height:g}pt", "viewBox": f"0 0 {width:g} {height:g}"}
    root, y = ET.Element("svg", {"xmlns": SVG, **box}), 0.0
    for drawing, (own_width, own_height) in zip(drawings, sizes, strict=True):
        for element in drawing.iter():
            element.tag = element.tag.removeprefix(f"{{{SVG}}}")
        drawing.attrib.update({"y": f"{y:g}", "width": f"{own_width:g}", "height": f"{own_height:g}"})
        root.append(drawing)
        y += own_height
    return ET.tostring(root, encoding="utf-8", xml_declaration=True)
