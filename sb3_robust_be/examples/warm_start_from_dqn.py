"""Go on from an agent that DQN has trained: the same file, another class."""

from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_robust_be import QLC

if __name__ == "__main__":
    dqn = DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=1e-3,
        learning_starts=100,
        train_freq=2,
        target_update_interval=100,
        exploration_fraction=0.3,
        seed=0,
        policy_kwargs={"net_arch": [64, 64]},
    )
    dqn.learn(4000)
    dqn.save("dqn")
    env = dqn.get_env()
    assert env is not None
    print(f"DQN after {dqn.num_timesteps} steps: {evaluate_policy(dqn, env, 10)[0]:.0f}")

    # The network and the number of steps are taken over and the secondary head starts at zero, which a warning says.
    # DQN's network is not normalised, so neither is this one.
    model = QLC.load("dqn", env=env)
    print(f"QLC as it starts: {evaluate_policy(model, env, 10)[0]:.0f}")
    model.replay_buffer = dqn.replay_buffer  # what DQN has seen; from a file: model.load_replay_buffer(path)
    model.learn(4000, reset_num_timesteps=False)
    print(f"QLC after {model.num_timesteps} steps: {evaluate_policy(model, env, 10)[0]:.0f}")
    model.save("qlc")
