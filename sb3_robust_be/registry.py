"""Every algorithm of the family by the name that configurations, files and commands use."""

from __future__ import annotations

from sb3_robust_be.qrc import GQ, QLC, QRC, GQHuber, QRCHuber
from sb3_robust_be.qrc.dqn import TwoHeadDQN
from sb3_robust_be.sbeed import SBEED

ALGORITHMS: dict[str, type[TwoHeadDQN]] = {cls.algorithm_name: cls for cls in (QRC, QRCHuber, QLC, GQ, GQHuber, SBEED)}
