"""Without an interval there is no target network; with one it is DQN's, and it is announced."""

from __future__ import annotations

import warnings

import pytest
import torch as th
from small_envs import RewardEnv
from small_models import (
    BatchNormExtractor,
    assert_same,
    assert_same_parameters,
    every_algorithm,
    every_family_algorithm,
    make,
    parameters,
)
from stable_baselines3.common.env_util import make_vec_env

announced = pytest.mark.filterwarnings("ignore:.*bootstraps from a target network")


def values(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


def fill(network, value):
    with th.no_grad():
        for parameter in network.parameters():
            parameter.fill_(value)


def watched(model, steps):
    """Give the network the number of each step as its weights; return (step, the target's weights) as seen after it.

    Nothing is learned: ``learning_starts`` lies beyond ``steps``.
    """
    seen = []

    def callback(*_):
        seen.append((model.num_timesteps - model.n_envs, float(model.q_net_target.q_net[0].weight[0, 0])))
        fill(model.q_net, float(model.num_timesteps))
        return True

    fill(model.q_net, 0.0)
    fill(model.q_net_target, 0.0)
    model.learning_starts = 10**6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.learn(steps, callback=callback)
    return seen


@pytest.mark.filterwarnings("error::UserWarning")
@every_algorithm
def test_no_target_network_by_default(algorithm):
    model = make(algorithm)
    assert model.q_net_target is model.q_net is model.policy.q_net_target
    model.learn(20)
    assert model.q_net_target is model.q_net
    assert not any("target" in name for name in model.policy.state_dict())


# Where the paper has none; a copied configuration must not bring one in silently.
@every_family_algorithm
def test_one_warning_announces_the_target_network(algorithm):
    with pytest.warns(UserWarning, match=r"target network.*target_update_interval=10 .*None") as caught:
        model = make(algorithm, target_update_interval=10)
    assert len(caught) == 1
    assert caught[0].filename.endswith("small_models.py"), "it points at the line that made the model"
    assert model.q_net_target is not model.q_net
    assert_same(values(model.q_net_target), values(model.q_net))


@announced
@pytest.mark.parametrize(("n_envs", "interval"), [(1, 5), (1, 1), (4, 12), (4, 10), (3, 2)])
@pytest.mark.filterwarnings("ignore:.*less than the number of environments")
@every_algorithm
def test_refreshed_at_the_interval(algorithm, n_envs, interval):
    model = make(algorithm, make_vec_env(RewardEnv, n_envs), target_update_interval=interval)
    # As DQN: an interval that is no multiple of the number of environments is rounded down to one.
    effective = max(interval // n_envs, 1) * n_envs
    assert watched(model, 36) == [(s, float(s // effective * effective)) for s in range(0, 36, n_envs)]


@announced
@every_algorithm
def test_more_environments_than_the_interval_is_said(algorithm):
    with pytest.warns(UserWarning, match=r"target_update_interval=2 is less than the number of environments \(3\)"):
        make(algorithm, make_vec_env(RewardEnv, 3), target_update_interval=2)


@announced
@every_algorithm
def test_polyak_averaging(algorithm):
    model = make(algorithm, RewardEnv(), target_update_interval=2, tau=0.25)
    expected, target = [], 0.0
    for step in range(10):
        if step and step % 2 == 0:
            target = 0.75 * target + 0.25 * step
        expected.append((step, target))
    assert watched(model, 10) == expected


@announced
@every_algorithm
def test_batch_statistics_are_copied_with_the_weights(algorithm):
    kwargs = {"policy_kwargs": {"features_extractor_class": BatchNormExtractor}}
    model = make(algorithm, target_update_interval=12, tau=0.5, **kwargs)
    online, target = (net.features_extractor.net[1] for net in (model.q_net, model.q_net_target))
    model.learn(24)
    assert int(online.num_batches_tracked) == 14
    assert int(target.num_batches_tracked) == 0, "the target evaluates; only its statistics are copied, as DQN's"
    assert not target.training
    assert not th.equal(target.running_var, th.ones(4))
    # Refreshed once more, with no update after it.
    model.learning_starts = 10**6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.learn(12)
    th.testing.assert_close(target.running_mean, online.running_mean, rtol=0, atol=0)
    th.testing.assert_close(target.running_var, online.running_var, rtol=0, atol=0)
    assert not th.equal(target.weight, online.weight), "weights are averaged, statistics are not"


@announced
@every_family_algorithm
def test_bootstraps_from_the_target(algorithm):
    model = make(algorithm, RewardEnv(0.0), target_update_interval=10**6, gamma=0.5, learning_rate=0.0)
    fill(model.q_net, 0.0)
    fill(model.q_net_target, 0.0)
    with th.no_grad():
        model.q_net_target.q_net[-1].bias.fill_(8.0)
        model.q_net.q_net[-1].bias.fill_(1.0)
    model.learn(11)
    assert model.logger.name_to_value["train/td_error_q50"] == pytest.approx(0.5 * 8.0 - 1.0)


@announced
@every_algorithm
def test_only_the_online_network_learns_between_refreshes(algorithm):
    model = make(algorithm, target_update_interval=10**6)
    before, online = values(model.q_net_target), values(model.q_net)
    model.learn(40)
    assert_same(values(model.q_net_target), before)
    assert any(not th.equal(value, online[name]) for name, value in values(model.q_net).items())
    assert all(parameter.grad is None for parameter in model.q_net_target.parameters()), "no gradient is left behind"
    optimised = {id(p) for group in model.policy.optimizer.param_groups for p in group["params"]}
    assert optimised == {id(p) for p in model.q_net.parameters()}


@announced
@every_algorithm
def test_target_network_is_saved(algorithm, tmp_path):
    model = make(algorithm, target_update_interval=30).learn(40)
    assert any(not th.equal(v, model.q_net.state_dict()[k]) for k, v in model.q_net_target.state_dict().items())
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model", env=model.get_env())
    assert_same_parameters(loaded, model)
    assert loaded.target_update_interval == 30
    assert loaded.q_net_target is not loaded.q_net
    assert not loaded.q_net_target.training
    # The count of steps towards the next refresh goes on: at 60, as without the interruption.
    assert loaded._n_calls == 40
    target = values(loaded.q_net_target)
    loaded.learn(19, reset_num_timesteps=False)
    assert_same(values(loaded.q_net_target), target)
    loaded.learn(1, reset_num_timesteps=False)
    assert not th.equal(loaded.q_net_target.q_net[0].weight, target["q_net.0.weight"])


@announced
@every_algorithm
def test_policy_with_a_target_network_save_load(algorithm, tmp_path):
    model = make(algorithm, target_update_interval=1000).learn(20)
    model.policy.save(tmp_path / "policy")
    loaded = type(model.policy).load(tmp_path / "policy", device="cpu")
    assert_same(values(loaded.q_net), values(model.q_net))
    assert loaded.q_net_target is loaded.q_net, "a policy alone only acts"


@every_algorithm
def test_target_network_can_be_added_when_loading(algorithm, tmp_path):
    model = make(algorithm).learn(20)
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model", env=model.get_env(), target_update_interval=1000)
    assert loaded.q_net_target is not loaded.q_net
    assert_same(values(loaded.q_net_target), values(model.q_net))
    assert_same(values(loaded.q_net), values(model.q_net))
    before = values(loaded.q_net_target)
    loaded.learn(20)
    assert_same(values(loaded.q_net_target), before)


@announced
@every_algorithm
def test_target_network_can_be_dropped_when_loading(algorithm, tmp_path):
    model = make(algorithm, target_update_interval=1000).learn(20)
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model", env=model.get_env(), target_update_interval=None)
    assert loaded.q_net_target is loaded.q_net
    assert not any("target" in name for name in parameters(loaded))
    assert_same(values(loaded.q_net), values(model.q_net))
    loaded.learn(20)
    assert loaded._n_updates == model._n_updates + 10


@every_algorithm
def test_tau_without_a_target_network_is_ignored_aloud(algorithm):
    with pytest.warns(UserWarning, match=r"tau=0\.05 is ignored.*no target network") as caught:
        model = make(algorithm, tau=0.05).learn(30)
    assert len(caught) == 1
    assert ("huber_threshold" in str(caught[0].message)) == hasattr(model, "huber_threshold")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = make(algorithm).learn(30)
    assert_same_parameters(model, plain)
