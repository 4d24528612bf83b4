"""Export an agent to ONNX, and run it where there is neither torch nor Stable-Baselines3 (extra "onnx")."""

import importlib.util
import subprocess
import sys
import warnings
from typing import Any

import gymnasium as gym
import numpy as np

FILE, BATCHES = "agent.onnx", {"observation": {0: "batch"}, "values": {0: "batch"}}


def export() -> None:
    """Train an agent, and write its action values as a function of observations."""
    import torch as th

    from sb3_robust_be import QLC

    model = QLC("MlpPolicy", "CartPole-v1", learning_starts=100, train_freq=2, seed=0)
    model.learn(2000)
    model.save("agent")

    warnings.simplefilter("ignore", DeprecationWarning)  # of the newer exporter, dynamo=True, which needs onnxscript
    names: dict[str, Any] = {"input_names": ["observation"], "output_names": ["values"]}
    example = th.as_tensor(model.observation_space.sample()[None])
    th.onnx.export(model.q_net.cpu().eval(), (example,), FILE, dynamic_axes=BATCHES, dynamo=False, **names)


def play() -> None:
    """Play ten episodes with onnxruntime alone."""
    import onnxruntime

    session = onnxruntime.InferenceSession(FILE)
    envs = gym.make_vec("CartPole-v1", num_envs=10)
    observations, _ = envs.reset(seed=0)
    returns, playing = np.zeros(10), np.ones(10, dtype=bool)
    while playing.any():
        (values,) = session.run(None, {"observation": observations})
        observations, rewards, terminated, truncated, _ = envs.step(values.argmax(axis=1))
        returns += playing * rewards
        playing &= ~(terminated | truncated)
    print(f"mean return {returns.mean():.0f}; torch is loaded: {'torch' in sys.modules}")


if __name__ == "__main__":
    if not all(map(importlib.util.find_spec, ("onnx", "onnxruntime"))):
        sys.exit('onnx and onnxruntime are not installed: pip install "sb3-robust-be[onnx]"')
    if "play" in sys.argv:
        play()
    else:
        export()
        subprocess.run([sys.executable, __file__, "play"], check=True)  # another process, without torch
