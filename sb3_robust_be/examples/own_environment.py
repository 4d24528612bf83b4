"""Your own environment, with Stable-Baselines3's wrappers and callbacks."""

from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

from sb3_robust_be import QLC


class Tank(gym.Env[np.ndarray, Any]):
    """Keep the temperature of a tank at 60 °C: heating or not, while it cools and is disturbed."""

    observation_space = gym.spaces.Box(-100.0, 200.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.temperature, self.steps = self.np_random.uniform(20.0, 90.0), 0
        return np.array([self.temperature], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.temperature += 4.0 * action - 0.05 * (self.temperature - 20.0) + self.np_random.normal(0.0, 0.5)
        reward = -abs(self.temperature - 60.0) / 10.0
        return np.array([self.temperature], np.float32), reward, False, self.steps == 100, {}  # cut off, not ended


class PrintDiagnostics(BaseCallback):
    """Print what the algorithm says about its corrections, every 1 000 steps."""

    def _on_step(self) -> bool:
        if self.n_calls % 1000 == 0:
            entries = self.logger.name_to_value
            ratio, error = entries.get("train/correction_ratio"), entries.get("train/td_error_abs_mean")
            print(f"step {self.num_timesteps}: correction ratio {ratio:.2f}, mean |TD error| {error:.3f}")
        return True


if __name__ == "__main__":
    env = VecNormalize(make_vec_env(Tank, seed=0))
    # Its statistics are copied from those of the training before each evaluation.
    eval_env = VecNormalize(make_vec_env(Tank, seed=1), training=False, norm_reward=False)

    model = QLC("MlpPolicy", env, learning_starts=100, train_freq=2, seed=0, policy_kwargs={"net_arch": [32, 32]})
    eval_env.obs_rms = env.obs_rms
    print(f"return before: {evaluate_policy(model, eval_env, 5)[0]:.0f}")
    best = EvalCallback(eval_env, eval_freq=1000, n_eval_episodes=3, best_model_save_path=".", verbose=0)
    model.learn(3000, callback=CallbackList([PrintDiagnostics(), best]), log_interval=1000)
    print(f"return after: {evaluate_policy(model, eval_env, 5)[0]:.0f}")

    model.save("tank")
    env.save("tank_normalization.pkl")  # an agent that was trained on normalised observations needs them
