"""A user's script, for mypy: what the public names take and return. It is checked and not run."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy

import sb3_robust_be
from sb3_robust_be import GQ, QLC, QRC, SBEED, GQHuber, Population, QRCHuber, SquaredDQN, TerminalActionMasks
from sb3_robust_be.evaluation import Interval, Verdict, bootstrap_interval, final_performance, greater
from sb3_robust_be.linear import PROBLEMS

env: gym.Env[npt.NDArray[np.float32], np.int64] = gym.make("CartPole-v1")

model: QLC = QLC("MlpPolicy", env, seed=0, policy_kwargs={"net_arch": [16]}).learn(100)
huber = QRCHuber("MlpPolicy", "CartPole-v1", learning_rate=1e-3, huber_threshold=2.0, compile=False)
others: list[QRC | GQ | GQHuber | SBEED | DQN] = [
    QRC("MlpPolicy", env, h_regularization=1.0),
    GQ("MlpPolicy", env),
    GQHuber("MlpPolicy", env),
    SBEED("MlpPolicy", env, temperature=0.1),
    SquaredDQN("MlpPolicy", env, target_update_interval=None),
]
model.save(Path("agent.zip"))
loaded: QLC = QLC.load("agent", env=env, device="cpu")
action, state = loaded.predict(env.reset()[0], deterministic=True)
chosen: npt.NDArray[np.generic] = action
masked = TerminalActionMasks(env)
steps: int = loaded.num_timesteps
mean, deviation = evaluate_policy(loaded, env, n_eval_episodes=1)

population: Population = Population(QLC, "MlpPolicy", "CartPole-v1", seeds=range(4), learning_rate=[1e-3, 2e-3]).learn(
    100
)
curves: npt.NDArray[np.float64] = population.curve(4)
failed: npt.NDArray[np.bool_] = population.failed
number: int = len(population)
agent = population[0]
agent.save("first")
population.save("population")
again: Population = Population.load("population")

rng = np.random.default_rng(0)
final: float = final_performance(population.returns[0].lengths, population.returns[0].returns, 100)
interval: Interval = bootstrap_interval(curves[:, -1], rng=rng)
verdict: Verdict = greater("the first half is above the second", curves[:2, -1], curves[2:, -1])
low, high = interval.low, interval.high
words: str = f"{verdict.claim}: {verdict.outcome}, {verdict.p_value:.3f}, {low:.1f} to {high:.1f}"
version: str = sb3_robust_be.__version__
problems: list[str] = list(PROBLEMS)
