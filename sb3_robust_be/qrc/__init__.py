"""QRC, QRC-Huber, QLC, GQ and GQ-Huber as Stable-Baselines3 algorithms."""

from sb3_robust_be.qrc.dqn import TwoHeadDQN
from sb3_robust_be.qrc.extractors import MinAtarCNN
from sb3_robust_be.qrc.layer_norm import LayerNormExtractor
from sb3_robust_be.qrc.maskable import MaskableDictReplayBuffer, MaskableNStepReplayBuffer, MaskableReplayBuffer
from sb3_robust_be.qrc.policies import CnnPolicy, MlpPolicy, MultiInputPolicy, QRCNetwork, QRCPolicy
from sb3_robust_be.qrc.qrc import GQ, QLC, QRC, GQHuber, QRCHuber, RobustQLearning

__all__ = [
    "GQ",
    "QLC",
    "QRC",
    "CnnPolicy",
    "GQHuber",
    "LayerNormExtractor",
    "MaskableDictReplayBuffer",
    "MaskableNStepReplayBuffer",
    "MaskableReplayBuffer",
    "MinAtarCNN",
    "MlpPolicy",
    "MultiInputPolicy",
    "QRCHuber",
    "QRCNetwork",
    "QRCPolicy",
    "RobustQLearning",
    "TwoHeadDQN",
]
