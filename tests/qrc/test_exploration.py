"""ε-greedy per environment, never more of it after an interruption, and a word when nothing will be learned."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import torch as th
from small_envs import MatchEnv, RewardEnv, SpaceEnv, vector_and_code
from small_models import every_algorithm, make
from stable_baselines3.common.env_util import make_vec_env

pytestmark = pytest.mark.filterwarnings("error::UserWarning")
VECTOR = SpaceEnv(vector_and_code()).observation_space["vector"]


def greedy_is_zero(algorithm, env, policy="MlpPolicy", **kwargs):
    """A model whose best action is the first everywhere."""
    model = make(algorithm, env, policy, **kwargs)
    with th.no_grad():
        model.q_net.q_net[-1].weight.zero_()
        model.q_net.q_net[-1].bias.copy_(th.tensor([1.0] + [0.0] * (model.action_space.n - 1)))
    return model


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
@every_algorithm
def test_epsilon_is_tossed_per_environment(algorithm, epsilon):
    """Of 5000 environments a share ε·(n−1)/n leaves the greedy action, all in one call."""
    model = greedy_is_zero(algorithm, SpaceEnv(VECTOR, n_actions=4))
    model.exploration_rate = epsilon
    actions, _ = model.predict(np.zeros((5000, 3), np.float32))
    assert actions.shape == (5000,)
    # Standard error below 0.007.
    assert np.mean(actions != 0) == pytest.approx(epsilon * 3 / 4, abs=0.03 if epsilon else 0.0)
    counts = np.bincount(actions, minlength=4)[1:] / 5000
    np.testing.assert_allclose(counts, epsilon / 4, atol=0.03)
    assert (model.predict(np.zeros((500, 3), np.float32), deterministic=True)[0] == 0).all()


@every_algorithm
def test_epsilon_of_dictionaries_and_single_observations(algorithm):
    env = SpaceEnv(vector_and_code(), n_actions=3)
    model = greedy_is_zero(algorithm, env, "MultiInputPolicy")
    model.exploration_rate = 0.5
    batch = {"vector": np.zeros((3000, 3), np.float32), "code": np.zeros(3000, np.int64)}
    assert np.mean(model.predict(batch)[0] != 0) == pytest.approx(1 / 3, abs=0.04)
    single = [model.predict(env.observation_space.sample())[0] for _ in range(600)]
    assert all(action.shape == () and model.action_space.contains(int(action)) for action in single)
    assert np.mean([int(action) != 0 for action in single]) == pytest.approx(1 / 3, abs=0.08)


@pytest.mark.parametrize("start", [2, -5])
@every_algorithm
def test_exploring_actions_start_where_the_space_does(algorithm, start):
    model = greedy_is_zero(algorithm, MatchEnv(start))
    model.exploration_rate = 0.5
    actions, _ = model.predict(np.zeros((900, 3), np.float32))
    assert set(actions) == {start, start + 1, start + 2}
    assert np.mean(actions == start) == pytest.approx(0.5 + 0.5 / 3, abs=0.06)


@every_algorithm
def test_environments_explore_apart_while_learning(algorithm):
    """With one toss for all, either every environment of a step follows the values or none does."""
    env = make_vec_env(lambda: SpaceEnv(VECTOR, n_actions=100), 8)
    model = greedy_is_zero(algorithm, env, learning_rate=0.0, exploration_initial_eps=0.5, exploration_final_eps=0.5)
    model.learn(320)
    explored = (model.replay_buffer.actions[5:40, :, 0] != 0).sum(axis=1)
    assert set(explored) & {2, 3, 4, 5, 6}, "some, not all"
    assert explored.mean() == pytest.approx(8 * 0.5 * 0.99, abs=0.8)


def rates_of(model, steps, **kwargs):
    rates = []
    # Seen after the step that follows it: the rate that chose this action.
    model.learn(steps, callback=lambda *_: rates.append(model.exploration_rate) or True, **kwargs)
    return [*rates[1:], model.exploration_rate]


@every_algorithm
def test_schedule_is_dqns(algorithm):
    settings = {"exploration_fraction": 0.5, "exploration_initial_eps": 0.8, "exploration_final_eps": 0.2}
    rates = rates_of(make(algorithm, RewardEnv(), **settings), 40)
    expected = [0.8 - 0.6 * step / 20 if step <= 20 else 0.2 for step in range(1, 41)]
    np.testing.assert_allclose(rates, expected)


@every_algorithm
def test_resuming_never_explores_more(algorithm, tmp_path):
    settings = {"exploration_fraction": 1.0, "exploration_initial_eps": 1.0, "exploration_final_eps": 0.1}
    model = make(algorithm, RewardEnv(), **settings)
    model.learn(20)
    assert model.exploration_rate == pytest.approx(0.1)
    assert rates_of(model, 20, reset_num_timesteps=False) == [model.exploration_rate] * 20
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model", env=model.get_env())
    assert max(rates_of(loaded, 20, reset_num_timesteps=False)) == pytest.approx(0.1)


@every_algorithm
def test_resuming_before_the_end_goes_on_falling(algorithm):
    """Stopped at ε = 0.55 halfway, and resumed for as long again: the schedule bends, and only downwards."""
    settings = {"exploration_fraction": 1.0, "exploration_initial_eps": 1.0, "exploration_final_eps": 0.1}
    model = make(algorithm, RewardEnv(), **settings)
    model.learn(40, callback=lambda local, _: local["self"].num_timesteps < 21)
    stopped = model.exploration_rate
    assert stopped == pytest.approx(1 - 0.9 * 20 / 40)
    rates = rates_of(model, 60, reset_num_timesteps=False)
    assert rates[0] == stopped
    assert all(after <= before for before, after in itertools.pairwise(rates))
    assert rates[-1] == pytest.approx(0.1)


@every_algorithm
def test_resuming_after_a_stop_at_the_first_step(algorithm):
    """A callback may stop training before ε has ever been set; that is no reason not to explore."""
    model = make(algorithm, RewardEnv(), exploration_fraction=1.0)
    model.learn(40, callback=lambda *_: False)
    assert model.num_timesteps == 1
    assert rates_of(model, 19, reset_num_timesteps=False)[0] == pytest.approx(1 - 0.95 * 2 / 20)


@every_algorithm
def test_a_new_run_explores_from_the_start(algorithm):
    model = make(algorithm, RewardEnv(), exploration_fraction=0.5)
    model.learn(20)
    model.learn(20, reset_num_timesteps=False)
    again = rates_of(model, 20)
    assert again[0] == pytest.approx(1.0 - 0.95 / 10)
    assert model.num_timesteps == 20


@every_algorithm
def test_total_timesteps_within_learning_starts_is_said(algorithm):
    with pytest.warns(UserWarning, match=r"step 10\b.*learning_starts=10\b.*no update.*total_timesteps") as caught:
        model = make(algorithm, RewardEnv()).learn(10)
    assert model._n_updates == 0
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Counted from the beginning: 5 more steps pass the tenth.
        model.learn(5, reset_num_timesteps=False)
        assert model._n_updates == 5
        make(algorithm, RewardEnv()).learn(11)
    with pytest.warns(UserWarning, match="learning_starts=10"):
        model.learn(5)
