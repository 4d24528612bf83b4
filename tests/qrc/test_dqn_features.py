"""Everything that works with SB3's DQN around the update works here."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from small_envs import RewardEnv, SpaceEnv, images, vector_and_code
from small_models import (
    BatchNormExtractor,
    assert_learned,
    assert_same_parameters,
    every_algorithm,
    every_family_algorithm,
    make,
    parameters,
)
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.callbacks import (
    CheckpointCallback,
    ConvertCallback,
    EvalCallback,
    StopTrainingOnMaxEpisodes,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

pytestmark = pytest.mark.filterwarnings("error::UserWarning", "ignore:rich is experimental")


def sampled_batches(model, monkeypatch):
    """Every batch that the model samples from now on."""
    batches, sample = [], model.replay_buffer.sample

    def recorded(*args, **kwargs):
        batches.append(sample(*args, **kwargs))
        return batches[-1]

    monkeypatch.setattr(model.replay_buffer, "sample", recorded)
    return batches


@every_algorithm
def test_vec_normalize(algorithm, monkeypatch, tmp_path):
    env = VecNormalize(make_vec_env(lambda: RewardEnv(reward=50.0), 2), clip_reward=3.0)
    model = make(algorithm, env)
    batches = sampled_batches(model, monkeypatch)
    model.learn(24)
    assert (model.replay_buffer.rewards[: model.replay_buffer.pos] == 50.0).all()
    expected = env.normalize_reward(np.array([50.0]))
    th.testing.assert_close(batches[-1].rewards, th.full((8, 1), float(expected[0])), rtol=0.2, atol=0.0)
    assert (batches[-1].observations.abs() < 0.1).all(), "a constant observation is normalised to 0"
    model.save(tmp_path / "model")
    algorithm.load(tmp_path / "model", env=model.get_env()).learn(24)


@every_algorithm
def test_frame_stack(algorithm):
    model = make(algorithm, VecFrameStack(make_vec_env(lambda: SpaceEnv(images(10, 10, 2)), 1), 3), "CnnPolicy")
    before = parameters(model)
    assert_learned(model.learn(20), before)


@every_algorithm
def test_her(algorithm, tmp_path):
    env = BitFlippingEnv(n_bits=3)
    kwargs = {"n_sampled_goal": 4, "goal_selection_strategy": "future"}
    model = make(
        algorithm, env, "MultiInputPolicy", replay_buffer_class=HerReplayBuffer, replay_buffer_kwargs=dict(kwargs)
    )
    before = parameters(model)
    assert_learned(model.learn(40), before)
    assert (model.replay_buffer.sample(200).rewards == 0).float().mean() > 0.3, "hindsight makes successes"
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = algorithm.load(tmp_path / "model", env=model.get_env(), force_reset=False)
    loaded.load_replay_buffer(tmp_path / "buffer", truncate_last_traj=False)
    assert isinstance(loaded.replay_buffer, HerReplayBuffer)
    assert loaded.replay_buffer_kwargs == kwargs
    loaded.learn(12, reset_num_timesteps=False)
    assert loaded._n_updates == model._n_updates + 12


@every_family_algorithm
def test_n_step(algorithm):
    model = make(algorithm, RewardEnv(), n_steps=3, gamma=0.5, learning_rate=0.0, learning_starts=40)
    with th.no_grad():
        for parameter in model.q_net.parameters():
            parameter.zero_()
        model.q_net.q_net[-1].bias.fill_(8.0)
    model.learn(41)
    assert isinstance(model.replay_buffer, NStepReplayBuffer)
    # δ = 1 + γ + γ² + γ³·8 − 8, but for the batch's few samples at the buffer's end.
    assert model.logger.name_to_value["train/td_error_q50"] == pytest.approx(1.75 + 1.0 - 8.0)


@every_algorithm
def test_optimize_memory_usage(algorithm):
    kwargs = {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}
    model = make(algorithm, buffer_size=30, **kwargs)
    before = parameters(model)
    assert_learned(model.learn(50), before)
    assert model.replay_buffer.optimize_memory_usage


class DoublingBuffer(ReplayBuffer):
    """A user's own buffer: rewards count twice."""

    def _normalize_reward(self, reward, env=None):
        return 2.0 * super()._normalize_reward(reward, env)


@every_algorithm
def test_custom_replay_buffer(algorithm, monkeypatch):
    model = make(algorithm, RewardEnv(), replay_buffer_class=DoublingBuffer)
    batches = sampled_batches(model, monkeypatch)
    model.learn(15)
    assert all((batch.rewards == 2.0).all() for batch in batches)


@every_algorithm
def test_callbacks(algorithm, tmp_path):
    saving = CheckpointCallback(20, str(tmp_path), "checkpoint", save_replay_buffer=True)
    evaluating = EvalCallback(make_vec_env("CartPole-v1", 1), n_eval_episodes=2, eval_freq=25, verbose=0)
    seen = []
    watch = ConvertCallback(lambda local, _: seen.append(local["actions"]) or True)
    model = make(algorithm).learn(50, callback=[saving, evaluating, watch])
    assert len(seen) == 50
    assert (evaluating.n_calls, evaluating.num_timesteps) == (50, 50)
    assert np.isfinite(evaluating.last_mean_reward)
    loaded = algorithm.load(tmp_path / "checkpoint_40_steps", env=model.get_env())
    loaded.load_replay_buffer(tmp_path / "checkpoint_replay_buffer_40_steps")
    # SB3 calls back before it stores the step's transition.
    assert (loaded.num_timesteps, loaded.replay_buffer.pos) == (40, 39)


@every_algorithm
def test_callback_stops_training(algorithm):
    model = make(algorithm, SpaceEnv(vector_and_code()), "MultiInputPolicy")
    model.learn(500, callback=StopTrainingOnMaxEpisodes(2))
    assert model.num_timesteps == 14


@every_algorithm
def test_evaluate_policy(algorithm):
    model = make(algorithm, RewardEnv())
    env = make_vec_env(lambda: SpaceEnv(model.observation_space), 1)
    with th.no_grad():
        model.q_net.q_net[-1].bias.copy_(th.tensor([100.0, 0.0]))
    assert evaluate_policy(model, env, n_eval_episodes=2) == (7.0, 0.0)


@every_algorithm
def test_progress_bar(algorithm, capsys):
    make(algorithm, RewardEnv()).learn(20, progress_bar=True)
    assert "20/20" in "".join(capsys.readouterr())


@every_algorithm
def test_tensorboard(algorithm, tmp_path):
    model = make(algorithm, SpaceEnv(vector_and_code()), "MultiInputPolicy", tensorboard_log=str(tmp_path))
    model.learn(60)
    model.learn(30, tb_log_name="again")
    assert {path.name for path in tmp_path.iterdir()} == {f"{algorithm.__name__}_1", "again_1"}
    events = EventAccumulator(str(tmp_path / f"{algorithm.__name__}_1")).Reload()
    tags = set(events.Tags()["scalars"])
    assert {"rollout/ep_rew_mean", "rollout/exploration_rate", "train/learning_rate", "train/loss"} <= tags
    assert {"train/q_mean", "train/td_error_abs_mean", "train/h_abs_mean"} <= tags
    assert all(np.isfinite(event.value) for tag in tags for event in events.Scalars(tag))


@every_algorithm
def test_custom_logger(algorithm, tmp_path):
    model = make(algorithm, SpaceEnv(vector_and_code()), "MultiInputPolicy")
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(60)
    header = (tmp_path / "progress.csv").read_text().splitlines()[0]
    assert "train/loss" in header
    assert "train/n_updates" in header


class Squares(BaseFeaturesExtractor):
    """A user's own extractor."""

    def __init__(self, observation_space, scale=1.0):
        super().__init__(observation_space, 5)
        self.linear, self.scale = nn.Linear(observation_space.shape[0], 5), scale

    def forward(self, observations):
        return self.scale * self.linear(observations) ** 2


@every_algorithm
def test_policy_kwargs(algorithm, tmp_path):
    kwargs = {
        **{"net_arch": [7, 6], "activation_fn": nn.Tanh, "features_extractor_class": Squares},
        **{"features_extractor_kwargs": {"scale": 2.0}, "optimizer_class": th.optim.RMSprop},
        **{"optimizer_kwargs": {"alpha": 0.9}, "layer_norm": False},
    }
    model = make(algorithm, policy_kwargs=kwargs)
    before = parameters(model)
    assert_learned(model.learn(20), before)
    assert [tuple(v.shape) for k, v in before.items() if k.startswith("q_net.q_net.")] == [
        *[(7, 5), (7,), (6, 7), (6,), (2, 6), (2,)]
    ]
    assert isinstance(model.q_net.q_net[1], nn.Tanh)
    assert model.q_net.features_extractor.scale == 2.0
    assert [group["alpha"] for group in model.policy.optimizer.param_groups] == [0.9, 0.9]
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model", env=model.get_env())
    assert_same_parameters(loaded, model)
    loaded.learn(20)


@every_algorithm
def test_batch_norm(algorithm, tmp_path):
    model = make(algorithm, policy_kwargs={"features_extractor_class": BatchNormExtractor})
    before = parameters(model)
    assert_learned(model.learn(40), before)
    statistics = "q_net.features_extractor.net.1."
    after = parameters(model)
    assert not th.equal(after[statistics + "running_var"], before[statistics + "running_var"])
    # Acting happens in evaluation mode, and one pass serves s and s': one update of the statistics per update.
    assert after[statistics + "num_batches_tracked"] == model._n_updates == 30
    observation = np.zeros(4, np.float32)
    alone = model.predict(observation, deterministic=True)[0]
    assert alone == model.predict(np.stack([observation, observation + 9]), deterministic=True)[0][0]
    model.save(tmp_path / "model")
    assert_same_parameters(algorithm.load(tmp_path / "model"), model)


@every_algorithm
def test_gradient_steps(algorithm):
    model = make(algorithm, make_vec_env("CartPole-v1", 2), train_freq=3, gradient_steps=-1, learning_starts=0)
    assert model.learn(24)._n_updates == 24
    model = make(algorithm, gradient_steps=3, train_freq=10, learning_starts=0)
    assert model.learn(20)._n_updates == 6
    assert make(algorithm, gradient_steps=0).learn(20)._n_updates == 0


@every_algorithm
def test_train_freq_in_episodes(algorithm):
    env = SpaceEnv(vector_and_code())
    model = make(algorithm, env, "MultiInputPolicy", train_freq=(2, "episode"), gradient_steps=-1, learning_starts=0)
    model.learn(20)
    assert (model.num_timesteps, model._n_updates) == (28, 28)


@every_algorithm
def test_learning_rate_schedule(algorithm):
    rates = []
    model = make(algorithm, learning_rate=lambda remaining: 1e-2 * remaining)
    model.learn(40, callback=lambda *_: rates.append(model.policy.optimizer.param_groups[0]["lr"]) or True)
    # Rates are written by the update after the step that the callback sees.
    np.testing.assert_allclose(rates[11:], [1e-2 * (1 - step / 40) for step in range(11, 40)])


@every_algorithm
def test_compiled_policy_is_saved_plain(algorithm, tmp_path):
    model = make(algorithm)
    model.policy = th.compile(model.policy, backend="eager")
    before = {k.removeprefix("_orig_mod."): v for k, v in parameters(model).items()}
    model.learn(30)
    model.policy(th.zeros(1, 4))  # the compiled entry
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model", env=model.get_env())
    assert loaded.policy.state_dict().keys() == before.keys()
    assert_same_parameters(loaded, type("Plain", (), {"policy": model.policy._orig_mod}))
    assert_learned(loaded, before)
    loaded.learn(20)
    plain = make(algorithm).learn(30)
    assert_same_parameters(plain, type("Plain", (), {"policy": model.policy._orig_mod}))
