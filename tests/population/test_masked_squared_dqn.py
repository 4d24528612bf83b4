"""A single ``SquaredDQN`` in environments with ``action_masks()``: nothing illegal is done or bootstrapped from."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from masked_envs import LEGAL, TableEnv, WithMasks
from populations import SMALL
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import IdentityEnv

from sb3_robust_be import SquaredDQN
from sb3_robust_be.qrc.maskable import MaskableNStepReplayBuffer, MaskableReplayBuffer

MADE_WITH = {**SMALL, "exploration_fraction": 0.5, "seed": 0}
STATES = np.eye(6, dtype=np.float32)
every_loss = pytest.mark.parametrize("huber_threshold", [None, 1.0])
every_target = pytest.mark.parametrize("interval", [None, 10])


def make(env=None, policy="MlpPolicy", **kwargs):
    return SquaredDQN(policy, TableEnv() if env is None else env, **{**MADE_WITH, **kwargs})


def assert_legal(model):
    """The masks in the buffer are those of the very observations that are bootstrapped from."""
    samples = model.replay_buffer.sample(100)
    goes_on = samples.dones.flatten() == 0
    expected = th.as_tensor(LEGAL)[samples.next_observations.argmax(dim=1)]
    assert samples.next_action_masks.dtype == th.bool
    assert th.equal(samples.next_action_masks[goes_on], expected[goes_on])
    assert 0 < goes_on.sum() < len(goes_on)


@pytest.mark.parametrize("start", [0, 3])
@every_loss
@every_target
def test_no_illegal_action_is_taken(huber_threshold, interval, start):
    """At random, by ε and greedily: the environment fails where one is."""
    model = make(TableEnv(start=start), huber_threshold=huber_threshold, target_update_interval=interval).learn(120)
    assert model._n_updates == 100
    assert isinstance(model.replay_buffer, MaskableReplayBuffer)
    assert_legal(model)
    evaluate_policy(model, model.get_env(), 3)


def test_several_environments_dict_observations_and_n_step_returns():
    assert_legal(make(make_vec_env(TableEnv, 3, seed=0)).learn(90))
    assert make(TableEnv(as_dict=True), "MultiInputPolicy").learn(90)._n_updates > 0
    longer = make(n_steps=3).learn(90)
    assert isinstance(longer.replay_buffer, MaskableNStepReplayBuffer)
    assert longer.replay_buffer.n_steps == 3


@every_loss
@every_target
def test_illegal_actions_are_not_bootstrapped_from(huber_threshold, interval):
    """Two of three actions are never legal, and have the value 1000 in whatever bootstraps."""
    env = WithMasks(IdentityEnv(3), np.array([False, True, False]))
    model = make(env, huber_threshold=huber_threshold, target_update_interval=interval, gamma=0.9)
    for network in (model.q_net, model.q_net_target):
        with th.no_grad():
            network.q_net[-1].weight[:] = 0.0
            network.q_net[-1].bias[:] = th.tensor([1000.0, 0.0, 1000.0])
    model.learn(120)
    assert model._n_updates == 100
    assert set(model.replay_buffer.actions[:120].flatten()) == {1}
    values = model.q_net(th.arange(3)).detach()
    # As much as a reward of 1 forever.
    assert (values[:, 1] < 10).all()
    assert (values[:, [0, 2]] > 900).all()


@every_target
def test_td_errors_by_hand(interval):
    model = make(target_update_interval=interval).learn(60)
    data = model.replay_buffer.sample(50)
    terms = model.batch_loss(data, model.update_settings())
    q = model.q_net(data.observations).detach().numpy()
    after = (model.q_net if interval is None else model.q_net_target)(data.next_observations).detach().numpy()
    for i in range(50):
        legal = LEGAL[int(data.next_observations[i].argmax())]
        next_value = 0.0 if data.dones[i] else max(after[i, legal])
        expected = float(data.rewards[i]) + 0.99 * next_value - q[i, int(data.actions[i])]
        assert float(terms.td_error[i]) == pytest.approx(expected, abs=1e-5)


@every_target
def test_with_all_actions_legal_nothing_changes(interval):
    plain = make(IdentityEnv(3), target_update_interval=interval).learn(100)
    masked = make(WithMasks(IdentityEnv(3)), target_update_interval=interval).learn(100)
    assert isinstance(masked.replay_buffer, MaskableReplayBuffer)
    assert not isinstance(plain.replay_buffer, MaskableReplayBuffer)
    for name, value in plain.policy.state_dict().items():
        assert th.equal(value, masked.policy.state_dict()[name]), name


# predict


def biased(**kwargs):
    model = make(**kwargs)
    with th.no_grad():
        model.q_net.q_net[-1].weight[:] = 0.0
        model.q_net.q_net[-1].bias[:] = th.tensor([0.0, 50.0, 10.0, 20.0])
    return model


def test_predict_is_greedy_among_the_legal():
    model = biased(env=TableEnv(start=2))
    actions, state = model.predict(STATES, deterministic=True, action_masks=LEGAL)
    assert state is None
    assert actions.tolist() == [2 + 3, 2 + 1, 2 + 1, 2 + 1, 2 + 2, 2 + 1]
    single, _ = model.predict(STATES[0], deterministic=True, action_masks=LEGAL[0])
    assert (single.shape, int(single)) == ((), 2 + 3)


def test_exploration_is_uniform_among_the_legal():
    model = biased()
    model.exploration_rate = 1.0
    drawn = np.array([model.predict(STATES[[2, 4]], action_masks=LEGAL[[2, 4]])[0] for _ in range(600)])
    counts = np.bincount(drawn[:, 0], minlength=4)
    assert counts[0] == 0
    # 200 each; four standard deviations are 46.
    assert (abs(counts[1:] - 200) < 46).all()
    assert (drawn[:, 1] == 2).all()
    single = [model.predict(STATES[0], action_masks=LEGAL[0])[0] for _ in range(50)]
    assert {action.shape for action in single} == {()}
    assert set(map(int, single)) == {0, 3}


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ("x", r"action_masks must be booleans .* is 'x'"),
        (LEGAL[:2, :3], "shape"),
        (LEGAL[:3], r"\(2, 4\)|3 rows"),
        (LEGAL[0], r"\(2, 4\)|1 rows"),
        (np.zeros((2, 4), bool), "no action at all in row 0"),
    ],
)
def test_predict_refuses_wrong_masks(masks, message, deterministic):
    model = make()
    model.exploration_rate = 1.0
    with pytest.raises(ValueError, match=message):
        model.predict(STATES[:2], deterministic=deterministic, action_masks=masks)


# Files


@every_loss
def test_save_load_and_go_on(huber_threshold, tmp_path):
    made = make(huber_threshold=huber_threshold).learn(60)
    made.save(tmp_path / "model")
    made.save_replay_buffer(tmp_path / "buffer")
    loaded = SquaredDQN.load(tmp_path / "model", TableEnv(), device="cpu")
    loaded.load_replay_buffer(tmp_path / "buffer")
    assert loaded.replay_buffer.size() == 60
    loaded.learn(60, reset_num_timesteps=False)
    assert_legal(loaded)
    assert loaded._n_updates == 100


def test_a_dqn_of_sb3s_goes_on_with_masks(tmp_path):
    """Its file says which buffer it had, which knows of no masks."""
    DQN("MlpPolicy", IdentityEnv(3), **MADE_WITH).learn(30).save(tmp_path / "dqn")
    loaded = SquaredDQN.load(tmp_path / "dqn", WithMasks(IdentityEnv(3)), device="cpu").learn(40)
    assert isinstance(loaded.replay_buffer, MaskableReplayBuffer)


def test_an_environment_that_comes_later(tmp_path):
    make(IdentityEnv(3)).save(tmp_path / "model")
    loaded = SquaredDQN.load(tmp_path / "model", device="cpu")
    loaded.set_env(WithMasks(IdentityEnv(3), np.array([0, 1, 0], np.int8)))
    loaded.learn(40)
    assert set(loaded.replay_buffer.actions[:40].flatten()) == {1}


def test_transitions_without_masks_are_not_learned_from():
    model = make(IdentityEnv(3)).learn(30)
    model.set_env(WithMasks(IdentityEnv(3)))
    with pytest.raises(ValueError, match="The replay buffer has transitions without action masks"):
        model.learn(30)


def test_n_step_returns_are_given_up_as_it_is_loaded(tmp_path):
    make(n_steps=3).learn(40).save(tmp_path / "model")
    loaded = SquaredDQN.load(tmp_path / "model", env=TableEnv(), n_steps=1, device="cpu").learn(40)
    assert type(loaded.replay_buffer) is MaskableReplayBuffer
