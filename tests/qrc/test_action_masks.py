"""Environments with ``action_masks()``: what is illegal is neither done nor bootstrapped from."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from masked_envs import BAD_MASKS, LEGAL, IllegalActionError, TableEnv, WithMasks
from sb3_contrib.common.envs import InvalidActionEnvDiscrete
from sb3_contrib.common.maskable.callbacks import MaskableEvalCallback
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from sb3_contrib.common.wrappers import ActionMasker
from small_envs import MatchEnv
from small_models import (
    assert_same,
    assert_same_parameters,
    every_algorithm,
    every_family_algorithm,
    generators,
    lines_of,
    make,
    q_values,
    reloaded,
    saved_data,
)
from stable_baselines3 import DQN, HerReplayBuffer
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize
from two_heads import GAMMA, N_ACTIONS, gradients, make_batch, make_model

from sb3_robust_be import QLC, QRC, SBEED, TerminalActionMasks
from sb3_robust_be.qrc.compiled import CompiledUpdate
from sb3_robust_be.qrc.maskable import (
    MaskableDictReplayBuffer,
    MaskableNStepReplayBuffer,
    MaskableReplayBuffer,
    MaskableReplayBufferSamples,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*bootstraps from a target network",
    "ignore:Evaluation environment is not wrapped",
    "ignore:Training ends at step",
)


def several(n=2, vec_env_cls=DummyVecEnv, **kwargs):
    return make_vec_env(TableEnv, n, env_kwargs=kwargs, vec_env_cls=vec_env_cls, seed=0)


# Acting


@every_algorithm
@pytest.mark.parametrize("start", [0, 3])
def test_no_illegal_action_is_taken(algorithm, start):
    """At random, by ε and greedily: the environment fails where one is, as it does for SB3's DQN."""
    model = make(algorithm, TableEnv(start=start), exploration_fraction=0.5).learn(120)
    assert isinstance(model.replay_buffer, MaskableReplayBuffer)
    assert model._n_updates > 0
    assert evaluate_policy(model, model.get_env(), 5)[0] >= 0


def test_an_algorithm_without_masks_fails_there():
    with pytest.raises(IllegalActionError):
        make(DQN, TableEnv(), policy_kwargs={"net_arch": [16]}).learn(120)


def test_softmax_behaviour():
    model = make(SBEED, several(), behaviour="softmax", temperature=10.0, exploration_final_eps=0.0).learn(200)
    drawn = {int(model.predict(np.eye(6, dtype=np.float32)[0], action_masks=LEGAL[0])[0]) for _ in range(60)}
    assert drawn == {0, 3}


@every_algorithm
def test_predict_is_greedy_among_the_legal(algorithm):
    model = make(algorithm, TableEnv(start=2))
    states = np.eye(6, dtype=np.float32)
    with th.no_grad():
        model.q_net.q_net[-1].bias[:] = th.tensor([0.0, 50.0, 10.0, 20.0])
    actions, state = model.predict(states, deterministic=True, action_masks=LEGAL)
    assert state is None
    assert actions.tolist() == [2 + 3, 2 + 1, 2 + 1, 2 + 1, 2 + 2, 2 + 1]
    single, _ = model.predict(states[0], deterministic=True, action_masks=LEGAL[0])
    assert single.shape == ()
    assert single == 5
    assert model.predict(states[0], deterministic=True)[0] == 2 + 1, "without masks"
    assert model.predict(th.as_tensor(states), deterministic=True, action_masks=LEGAL.tolist())[0].tolist() == [
        *(5, 3, 3, 3, 4, 3)
    ]


@pytest.mark.parametrize("plain", [True, False])
def test_exploration_is_uniform_among_the_legal(plain):
    model = make(QRC, TableEnv())
    model.exploration_rate = 1.0
    state = np.eye(6, dtype=np.float32)[[2, 4]]
    observation = state if plain else th.as_tensor(state)
    drawn = np.array([model.predict(observation, action_masks=LEGAL[[2, 4]])[0] for _ in range(600)])
    counts = np.bincount(drawn[:, 0], minlength=4)
    assert counts[0] == 0
    # 200 each; four standard deviations are 46.
    assert (abs(counts[1:] - 200) < 46).all()
    assert (drawn[:, 1] == 2).all()


def test_one_observation_explores_too():
    model = make(QRC, TableEnv())
    model.exploration_rate = 1.0
    drawn = {int(model.predict(np.eye(6, dtype=np.float32)[0], action_masks=LEGAL[0])[0]) for _ in range(50)}
    assert drawn == {0, 3}


WRONG_KINDS = (
    *("x", b"x", 1, True, 2.5, {}, {0, 1}, [], object(), len, ["yes", "no"], [[True], [True, False]], [None] * 4),
    *(np.array(True), np.ones((2, 4, 1), bool), th.ones(2, 4, requires_grad=True), np.array([{}] * 4)),
)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(
    ("masks", "message"),
    [
        (LEGAL[:2, :3], "shape"),
        (LEGAL[:2].astype(float), "booleans"),
        (np.zeros((2, 4), bool), "no action at all in row 0"),
        (LEGAL[:3], r"\(2, 4\)|3 rows"),
        (LEGAL[0], r"\(2, 4\)|1 rows"),
        *((wrong, r"action_masks must be booleans .* shape .*4.* and is .*np\.array") for wrong in WRONG_KINDS),
    ],
)
def test_predict_refuses_wrong_masks(masks, message, deterministic):
    model = make(QRC, TableEnv())
    model.exploration_rate = 1.0
    with pytest.raises(ValueError, match=message):
        model.predict(np.eye(6, dtype=np.float32)[:2], deterministic=deterministic, action_masks=masks)


# Storing


def assert_stored(samples):
    """The masks are those of the very observations that are bootstrapped from; where the episode is over, any do."""
    observations = samples.next_observations
    observations = observations["state"] if isinstance(observations, dict) else observations
    expected = th.as_tensor(LEGAL)[observations.argmax(dim=1)]
    goes_on = samples.dones.flatten() == 0
    assert samples.next_action_masks.dtype == th.bool
    assert th.equal(samples.next_action_masks[goes_on], expected[goes_on])
    assert samples.next_action_masks.any(dim=1).all()
    assert goes_on.any()
    assert not goes_on.all()


@pytest.mark.parametrize("n_steps", [1, 2, 3])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("handle", [True, False])
def test_the_masks_of_the_last_observations_are_stored(n_steps, n_envs, handle):
    """Episodes of three steps are cut off and those of four terminate; a reset follows each."""
    kwargs = {} if handle else {"replay_buffer_kwargs": {"handle_timeout_termination": False}}
    model = make(QRC, several(n_envs), n_steps=n_steps, learning_starts=1000, **kwargs).learn(300)
    assert type(model.replay_buffer) is (MaskableNStepReplayBuffer if n_steps > 1 else MaskableReplayBuffer)
    assert_stored(model.replay_buffer.sample(500))


def test_a_full_buffer_overwrites_the_oldest_masks():
    model = make(QRC, several(2), buffer_size=50, n_steps=2, learning_starts=1000).learn(300)
    assert model.replay_buffer.full
    assert_stored(model.replay_buffer.sample(300))


def test_dict_observations():
    model = make(QRC, several(2, as_dict=True), "MultiInputPolicy").learn(150)
    assert type(model.replay_buffer) is MaskableDictReplayBuffer
    assert_stored(model.replay_buffer.sample(300))


def test_normalised_observations_and_rewards():
    env = VecNormalize(several(2))
    model = make(QRC, env).learn(150)
    samples = model.replay_buffer.sample(300)
    assert_stored(samples)
    normalised = model.replay_buffer.sample(300, env=env)
    assert not set(np.unique(normalised.next_observations)) <= {0.0, 1.0}
    assert_stored(normalised)


def test_a_single_environment_whose_masks_come_from_a_wrapper():
    def legal(env):
        return [bool(x) for x in LEGAL[env.unwrapped.state]]

    env = ActionMasker(gym.wrappers.TimeLimit(TableEnv(ends=(1000,)), 4), legal)
    model = make(QRC, env, learning_starts=1000).learn(100)
    samples = model.replay_buffer.sample(200)
    assert samples.dones.sum() == 0
    assert th.equal(samples.next_action_masks, th.as_tensor(LEGAL)[samples.next_observations.argmax(dim=1)])


def test_environments_in_processes_need_the_wrapper():
    plain = several(2, SubprocVecEnv)
    try:
        with pytest.raises(ValueError, match="wrapper_class=TerminalActionMasks"):
            make(QRC, plain)
    finally:
        plain.close()
    env = make_vec_env(TableEnv, 2, vec_env_cls=SubprocVecEnv, wrapper_class=TerminalActionMasks, seed=0)
    try:
        model = make(QRC, env).learn(120)
        assert_stored(model.replay_buffer.sample(300))
    finally:
        env.close()


def test_the_wrapper_on_the_wrong_side_of_the_time_limit():
    env = gym.wrappers.TimeLimit(TerminalActionMasks(TableEnv(ends=(1000,))), 4)
    with pytest.raises(ValueError, match="outside of the wrapper that cuts episodes off"):
        make(QRC, DummyVecEnv([lambda: env])).learn(20)


class WithAttribute(MatchEnv):
    """What is called ``action_masks`` is no method."""

    action_masks = np.ones(3, bool)


@pytest.mark.parametrize("env", [WithAttribute, MatchEnv])
def test_without_the_method_there_is_nothing_to_keep(env):
    with pytest.raises(TypeError, match=r"has no method action_masks\(\)"):
        TerminalActionMasks(env())
    if env is WithAttribute:
        with pytest.raises(TypeError, match=r"has no method action_masks\(\)"):
            make(QRC, env())


def test_wrapping_in_place_changes_nothing_else_of_a_vec_env():
    env = DummyVecEnv([TableEnv])
    own = env.envs[0]
    make(QRC, env)
    make(QRC, env)
    assert isinstance(env.envs[0], TerminalActionMasks)
    assert env.envs[0].env is own, "once"
    env.set_attr("ends", (9,))
    assert own.ends == (9,)
    assert env.get_attr("ends") == [(9,)]


def test_a_buffer_without_a_model():
    space, actions = TableEnv().observation_space, TableEnv().action_space
    buffer = MaskableReplayBuffer(10, space, actions, device="cpu")
    step = [np.zeros((1, 6), np.float32)] * 2 + [np.array([1]), np.array([0.5]), np.array([False])]
    buffer.add(*step, [{"next_action_masks": LEGAL[2]}])
    assert buffer.sample(3).next_action_masks.tolist() == [LEGAL[2].tolist()] * 3
    with pytest.raises(ValueError, match="next_action_masks"):
        buffer.add(*step, [{}])
    assert buffer.size() == 1


class ZeroGoal(TableEnv):
    """A goal-conditioned form, of which only the space matters here."""

    def __init__(self) -> None:
        super().__init__()
        box = self.observation_space
        self.observation_space = gym.spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), box))


def test_what_cannot_store_masks_is_refused():
    with pytest.raises(ValueError, match="HerReplayBuffer cannot be used with masks"):
        make(QRC, ZeroGoal(), "MultiInputPolicy", replay_buffer_class=HerReplayBuffer)
    with pytest.raises(ValueError, match="replay_buffer_class=ReplayBuffer stores no action masks"):
        make(QRC, TableEnv(), replay_buffer_class=ReplayBuffer)
    with pytest.raises(ValueError, match="optimize_memory_usage=True does not work with action masks"):
        make(QRC, TableEnv(), optimize_memory_usage=True, replay_buffer_kwargs={"handle_timeout_termination": False})


# Bootstrapping


def masked_batch(batch_size=16, seed=0):
    """Random transitions, of which those that terminate allow nothing."""
    batch = make_batch(batch_size, seed)
    legal = th.as_tensor(LEGAL)[th.randint(0, 6, (batch_size,), generator=th.Generator().manual_seed(seed))]
    legal[batch.dones.flatten() == 1] = False
    return MaskableReplayBufferSamples(**batch._asdict(), next_action_masks=legal)


@every_family_algorithm
@pytest.mark.parametrize("interval", [None, 10])
def test_td_error_by_hand(algorithm, interval):
    model = make_model(algorithm, target_update_interval=interval)
    batch = masked_batch()
    terms = model.batch_loss(batch, model.update_settings())
    q, next_q = model.q_net(batch.observations).detach(), model.q_net(batch.next_observations).detach()
    differs = 0
    for i in range(len(q)):
        value = 0.0
        if batch.dones[i] == 0:
            value = max(float(next_q[i, a]) for a in range(N_ACTIONS) if batch.next_action_masks[i, a])
            differs += value < float(next_q[i].max())
        expected = batch.rewards[i] + GAMMA * value - q[i, batch.actions[i]]
        th.testing.assert_close(terms.td_error[i], expected)
    assert differs > 0


def test_soft_td_error_by_hand():
    model = make_model(SBEED, temperature=0.5)
    batch = masked_batch()
    terms = model.batch_loss(batch, model.update_settings())
    q, next_q = model.q_net(batch.observations).detach(), model.q_net(batch.next_observations).detach()
    for i in range(len(q)):
        legal = next_q[i, batch.next_action_masks[i]]
        value = 0.5 * th.log(th.exp(legal / 0.5).mean()) if batch.dones[i] == 0 else 0.0
        th.testing.assert_close(terms.td_error[i], batch.rewards[i] + GAMMA * value - q[i, batch.actions[i]])


@every_algorithm
@pytest.mark.parametrize("interval", [None, 10])
def test_no_gradient_at_illegal_actions(algorithm, interval):
    """Values of an action that is legal nowhere, and taken nowhere, stay as they are."""
    model = make_model(algorithm, target_update_interval=interval)
    batch = masked_batch()
    masks = batch.next_action_masks.clone()
    masks[:, 0] = False
    masks[:, 1] |= batch.dones.flatten() == 0
    batch = batch._replace(next_action_masks=masks, actions=batch.actions.clamp(min=1))
    found = gradients(model, batch)
    assert all(g.isfinite().all() for g in found.values())
    head = f"q_net.{len(model.q_net.q_net) - 1}.weight"
    assert (found[head][0] == 0).all()
    assert (found[head][1:] != 0).any()


@every_algorithm
@pytest.mark.parametrize("interval", [None, 10])
def test_compiled_updates(algorithm, interval, monkeypatch):
    """Traced and differentiated as for the compiler; with and without masks in one model."""
    monkeypatch.setattr(CompiledUpdate, "backend", staticmethod(lambda graph, inputs: graph))
    eager = make_model(algorithm, target_update_interval=interval)
    traced = make_model(algorithm, target_update_interval=interval, compile=True)
    for seed, batch in enumerate((masked_batch(), make_batch(), masked_batch(seed=1), masked_batch(seed=2))):
        expected, found = gradients(eager, batch), gradients(traced, batch)
        assert traced._compiled.works
        for name, gradient in expected.items():
            th.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-11, msg=f"{seed}: {name}")


# All actions legal, or no masks at all


@every_algorithm
@pytest.mark.parametrize("n_envs", [1, 2])
@pytest.mark.parametrize("interval", [None, 7])
def test_with_all_actions_legal_nothing_changes(algorithm, n_envs, interval):
    """Weights, optimiser and random numbers, bit for bit, through episodes that are cut off."""

    def train(wrap):
        env = DummyVecEnv([lambda: wrap(MatchEnv(start=1, length=5))] * n_envs)
        env.seed(3)
        model = make(algorithm, env, exploration_fraction=0.5, target_update_interval=interval).learn(100)
        return model, generators(model)

    (masked, masked_generators), (plain, plain_generators) = train(WithMasks), train(lambda env: env)
    assert isinstance(masked.replay_buffer, MaskableReplayBuffer)
    assert type(plain.replay_buffer) is ReplayBuffer
    assert_same_parameters(masked, plain)
    assert_same(dict_of(masked_generators), dict_of(plain_generators))


def dict_of(states):
    return {name: str(state) if name != "torch" else state for name, state in states.items()}


def test_with_all_actions_legal_n_step_returns_and_softmax_do_not_change():
    for algorithm, kwargs in ((QRC, {"n_steps": 3}), (SBEED, {"behaviour": "softmax", "temperature": 1.0})):
        masked, plain = (
            make(algorithm, wrap(MatchEnv(length=5)), **kwargs).learn(100) for wrap in (WithMasks, lambda env: env)
        )
        assert_same_parameters(masked, plain)


def test_without_masks_nothing_of_them_is_there(tmp_path):
    model = make(QRC, MatchEnv()).learn(50)
    assert model._last_action_masks is None
    assert not hasattr(model.replay_buffer.sample(2), "next_action_masks")
    assert type(model.replay_buffer) is ReplayBuffer
    assert type(make(QRC, MatchEnv(), n_steps=2).replay_buffer) is NStepReplayBuffer
    masked = make(QRC, TableEnv()).learn(50)
    for one in (model, masked):
        one.save(tmp_path / "model")
        assert not {name for name in saved_data(tmp_path / "model") if "mask" in name}


# Learning, evaluating, saving


@pytest.mark.parametrize("algorithm", [QLC, QRC, SBEED])
def test_a_masked_task_is_learned(algorithm):
    """sb3-contrib's task: of ten actions, three at random are legal, one of which is right. Chance has 33 of 100."""
    np.random.seed(0)
    env = InvalidActionEnvDiscrete(dim=10, n_invalid_actions=7)
    model = make(algorithm, env, gamma=0.0, learning_rate=1e-2, exploration_fraction=0.3, buffer_size=2000)
    model.learn(1500)
    assert evaluate_policy(model, env, 3)[0] > 90


def test_evaluation_callback(tmp_path):
    """sb3-contrib's passes masks to our ``predict``, and the environment fails where they are not used."""
    callback = MaskableEvalCallback(
        TableEnv(), n_eval_episodes=3, eval_freq=40, best_model_save_path=str(tmp_path), verbose=0
    )
    make(QRC, TableEnv()).learn(100, callback)
    assert np.isfinite(callback.best_mean_reward)


@every_algorithm
def test_diagnostics(algorithm):
    model = make(algorithm, TableEnv())
    lines = lines_of(model)
    model.learn(100, log_interval=2)
    assert np.isfinite(lines[-1]["train/loss"])
    assert "train/policy_entropy" not in lines[-1], "which actions are legal in s is not stored"


def test_save_load_and_go_on(tmp_path):
    model = make(QRC, several(2)).learn(100)
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = reloaded(model, tmp_path / "model")
    assert isinstance(loaded.replay_buffer, MaskableReplayBuffer)
    assert loaded.replay_buffer.size() == 0
    loaded.load_replay_buffer(tmp_path / "buffer")
    np.testing.assert_array_equal(loaded.replay_buffer.next_action_masks, model.replay_buffer.next_action_masks)
    loaded.learn(60, reset_num_timesteps=False)
    assert_stored(loaded.replay_buffer.sample(300))


def test_an_environment_that_comes_later(tmp_path):
    make(QRC, TableEnv()).learn(30).save(tmp_path / "model")
    model = QRC.load(tmp_path / "model")
    model.set_env(TableEnv())
    model.learn(60)
    assert_stored(model.replay_buffer.sample(300))


def test_transitions_without_masks_are_not_learned_from(tmp_path):
    plain = make(QRC, MatchEnv()).learn(30)
    plain.save_replay_buffer(tmp_path / "buffer")
    masked = make(QRC, WithMasks(MatchEnv()))
    with pytest.raises(ValueError, match="transitions without action masks"):
        masked.load_replay_buffer(tmp_path / "buffer")
    plain.set_env(WithMasks(MatchEnv()))
    with pytest.raises(ValueError, match="transitions without action masks"):
        plain.learn(10)


def test_going_on_in_an_environment_without_masks():
    """There, all actions are legal."""
    model = make(QRC, WithMasks(MatchEnv(), np.array([True, False, True]))).learn(30)
    model.set_env(MatchEnv())
    model.learn(30, reset_num_timesteps=False)
    masks = model.replay_buffer.next_action_masks[:60, 0]
    actions = model.replay_buffer.actions[:60, 0, 0]
    assert masks[30:].all()
    assert 1 in actions[30:]
    assert 1 not in actions[:30]


@pytest.mark.filterwarnings("ignore:.*was saved by SB3's DQN")
def test_warm_start_from_dqn(tmp_path):
    dqn = make(DQN, MatchEnv()).learn(30)
    dqn.save(tmp_path / "dqn")
    model = QRC.load(tmp_path / "dqn", env=WithMasks(MatchEnv(), np.array([False, True, True])))
    observations = np.eye(3, dtype=np.float32)
    assert th.equal(q_values(model, observations), q_values(dqn, observations))
    model.learn(60)
    assert isinstance(model.replay_buffer, MaskableReplayBuffer)
    assert 0 not in model.replay_buffer.actions[: model.replay_buffer.pos]


# Bad masks


@pytest.mark.parametrize("masks", BAD_MASKS.values(), ids=BAD_MASKS)
@pytest.mark.parametrize("n_envs", [1, 2])
def test_bad_masks_of_an_environment(masks, n_envs):
    env = DummyVecEnv([lambda: WithMasks(gym.make("CartPole-v1"), masks)] * n_envs)
    with pytest.raises(ValueError, match="action_masks must be booleans"):
        make(QRC, env).learn(10)


def test_integers_are_taken():
    model = make(QRC, WithMasks(MatchEnv(), np.array([0, 1, 0], np.int8))).learn(30)
    assert set(model.replay_buffer.actions[:30].flatten()) == {1}


def test_a_state_in_which_nothing_is_legal():
    with pytest.raises(ValueError, match="no action at all in row 0"):
        make(QRC, WithMasks(MatchEnv(), np.zeros(3, bool))).learn(10)


class StuckAtTheEnd(TableEnv):
    """Nothing is legal in the last state, in which the episode is cut off."""

    def action_masks(self):
        return LEGAL[self.state] & (self.count < 3)


def test_an_episode_is_cut_off_where_nothing_is_legal():
    with pytest.raises(ValueError, match="no action at all"):
        make(QRC, StuckAtTheEnd(ends=(3,))).learn(10)
    make(QRC, StuckAtTheEnd(ends=(-3,))).learn(30)
