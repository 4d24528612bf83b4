"""Every algorithm of the family by the name that configurations, files and commands use."""

from __future__ import annotations

from sb3_robust_be.qrc import GQ, QLC, QRC, GQHuber, QRCHuber
from sb3_robust_be.qrc.two_heads import TwoHeadQLearning
from sb3_robust_be.sbeed import SBEED

ALGORITHMS: dict[str, type[TwoHeadQLearning]] = {
    cls.algorithm_name: cls for cls in (QRC, QRCHuber, QLC, GQ, GQHuber, SBEED)
}
