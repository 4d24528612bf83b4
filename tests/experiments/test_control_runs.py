"""Control runs: what is executed, what is stored, and how the best settings are chosen."""

from __future__ import annotations

import json
import warnings

import gymnasium as gym
import numpy as np
import pytest
from run_results import load_curves, load_finals
from stable_baselines3 import DQN
from stable_baselines3.common.monitor import load_results as load_monitor
from torch import nn

from sb3_robust_be import QLC, LayerNormExtractor, SquaredDQN
from sb3_robust_be.evaluation import binned_curve, final_performance, lowest_for_failed, with_unfinished
from sb3_robust_be.experiments.control.preset import settings_of
from sb3_robust_be.experiments.control.training import POPULATION, SINGLE, _single_agent, control_spec, make_agent
from sb3_robust_be.experiments.environments import check_environments
from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.experiments.options import Execution, units_of
from sb3_robust_be.experiments.population_units import make_units
from sb3_robust_be.experiments.run_functions import run_units
from sb3_robust_be.population import Population
from sb3_robust_be.population.baseline import BaselineDQN
from sb3_robust_be.runner import Fingerprint, run_id
from sb3_robust_be.runner.store import run_directory

TINY = {
    "policy_kwargs": {"net_arch": [8]},
    "buffer_size": 200,
    "learning_starts": 20,
    "train_freq": 1,
    "batch_size": 8,
    "learning_rate": 1e-3,
}


def tiny(algorithm="qrc_huber", seed=0, steps=150, **more):
    arguments = {**TINY, **more.pop("arguments", {})}
    return control_spec(algorithm, more.pop("env", "CartPole-v1"), steps, seed, arguments, **more)


@pytest.fixture(scope="module")
def population_runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("population")
    specs = [tiny(seed=s, arguments={"learning_rate": rate}) for rate in (1e-3, 1e-2) for s in (0, 1)]
    assert run_units([specs], out, executor="serial", progress=False) == (4, 0, 0)
    return out, specs


def test_a_populations_runs_are_its_members(population_runs):
    out, specs = population_runs
    arguments = {**TINY, "learning_rate": [1e-3, 1e-2]}
    population = Population("qrc_huber", "MlpPolicy", "CartPole-v1", (0, 1), verbose=0, **arguments).learn(150)
    unfinished = zip(population.unfinished.lengths, population.unfinished.returns, strict=True)
    curves = load_curves(Results(out), specs)
    for spec, episodes, last, curve in zip(specs, population.returns, unfinished, curves, strict=True):
        arrays = Results(out).arrays(spec)
        np.testing.assert_array_equal(arrays["returns"], episodes.returns)
        np.testing.assert_array_equal(arrays["lengths"], episodes.lengths)
        counted = with_unfinished(episodes.lengths, episodes.returns, 150, *last)
        np.testing.assert_array_equal(curve, binned_curve(counted.lengths, counted.returns, 150, 100))
        result = Results(out).result(spec)
        assert result["final"] == final_performance(counted.lengths, counted.returns, 150)
        assert (result["diverged_at"], result["members"]) == (None, 4)


def test_the_monitor_file_is_sb3s(population_runs):
    out, specs = population_runs
    table = load_monitor(str(run_directory(out, specs[0])))
    arrays = Results(out).arrays(specs[0])
    np.testing.assert_array_equal(table["r"], arrays["returns"])
    np.testing.assert_array_equal(table["l"], arrays["lengths"])


def test_a_run_does_not_depend_on_the_unit(population_runs, tmp_path):
    out, specs = population_runs
    run_units([specs[2:3]], tmp_path, executor="serial", progress=False)
    assert load_finals(Results(tmp_path), specs[2:3]) == load_finals(Results(out), specs[2:3])


def test_a_diverged_run_is_done_and_has_no_return(tmp_path):
    specs = [tiny(seed=0), tiny(seed=0, arguments={"learning_rate": 1e30})]
    with pytest.warns(UserWarning, match="1 of 2 members"):
        assert run_units([specs], tmp_path, executor="serial", progress=False).done == 2
    healthy, diverged = map(Results(tmp_path).result, specs)
    assert healthy["diverged_at"] is None
    assert diverged["diverged_at"] > 20
    assert np.isnan(diverged["final"])
    assert np.isnan(load_finals(Results(tmp_path), specs)).tolist() == [False, True]


@pytest.mark.parametrize("algorithm", ["dqn", "qrdqn", "qlc"])
def test_single_agents(algorithm, tmp_path):
    specs = [tiny(algorithm, seed=s, function=SINGLE, arguments={"device": "cpu"}) for s in (0, 1)]
    assert run_units([specs], tmp_path, executor="serial", progress=False).done == 2
    for spec in specs:
        arrays = Results(tmp_path).arrays(spec)
        assert arrays["lengths"].sum() <= 150
        # Cart-pole pays 1 per step.
        np.testing.assert_array_equal(arrays["returns"], arrays["lengths"])


def test_a_single_dqn_with_another_loss(tmp_path):
    specs = [
        tiny("dqn", function=SINGLE, arguments={"huber_threshold": 0.01}),
        tiny("dqn_squared", function=SINGLE),
        tiny("dqn_squared", arguments={"learning_rate": {"$linear": [0.01, 0.001]}}),
    ]
    assert run_units([[spec] for spec in specs], tmp_path, executor="serial", progress=False).failed == 0


@pytest.mark.parametrize(
    ("algorithm", "own", "interval", "made"),
    [
        ("dqn", {}, None, (DQN, 1)),
        ("dqn", {"huber_threshold": 1.0}, None, (BaselineDQN, None)),
        ("dqn", {"huber_threshold": 0.5}, 0, (BaselineDQN, None)),
        ("dqn", {"huber_threshold": 0.5}, 7, (BaselineDQN, 7)),
        ("dqn_squared", {}, None, (SquaredDQN, None)),
        ("dqn_squared", {"policy_kwargs": {"layer_norm": True}}, 7, (SquaredDQN, 7)),
        ("qlc", {}, None, (QLC, None)),
    ],
)
def test_single_agents_without_a_target_network(algorithm, own, interval, made):
    """SB3's has one in any case; the others are told that there is none."""
    model = _single_agent(tiny(algorithm, arguments={**own, "target_update_interval": interval}), "CartPole-v1")
    assert (type(model), model.target_update_interval) == made


@pytest.mark.parametrize("function", [POPULATION, SINGLE])
def test_a_target_network_that_an_experiment_compares_with_is_meant(function, tmp_path):
    spec = tiny("qlc", arguments={"target_update_interval": 10}, function=function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run_units([[spec]], tmp_path, executor="serial", progress=False) == (1, 0, 0)
    with pytest.warns(UserWarning, match="now bootstraps from a target network"):
        make_agent(spec)


def test_lowest_for_failed():
    found = lowest_for_failed({"a": np.array([1.0, np.nan]), "b": np.array([-5.0, np.inf])})
    assert {name: x.tolist() for name, x in found.items()} == {"a": [1.0, -5.0], "b": [-5.0, -5.0]}
    assert lowest_for_failed({"a": np.array([np.nan])})["a"].tolist() == [0.0]


def test_settings_of_a_grid():
    assert settings_of({"a": [1, 2], "b": [3]}) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]
    assert settings_of({}) == [{}]


@pytest.mark.parametrize("jobs", [1, 2, 3, 8])
def test_units_hold_every_run_once_and_one_population_each(jobs):
    specs = [tiny(a, seed=s) for a in ("dqn", "qlc", "qrc") for s in range(40)]
    specs += [tiny("qrdqn", seed=s, function=SINGLE) for s in range(3)]
    units = make_units(specs, jobs)
    assert sorted(json.dumps(s) for unit in units for s in unit) == sorted(map(json.dumps, specs))
    assert all(len({s["algorithm"] for s in unit}) == 1 for unit in units)
    assert sum(len(unit) == 1 for unit in units) >= 3
    assert [len(unit) for unit in units] == sorted((len(unit) for unit in units), reverse=True)


@pytest.mark.parametrize(("net_arch", "largest"), [([32, 32], 100), ([64, 64], 32), ([8, 33], 32), ([], 32)])
def test_units_are_as_large_as_the_networks_are_best_with(net_arch, largest):
    specs = [tiny(seed=s, arguments={"policy_kwargs": {"net_arch": net_arch}}) for s in range(100)]
    units = make_units(specs, 1)
    assert max(map(len, units)) <= largest < 2 * max(map(len, units))
    assert len(units) == -(-100 // largest)
    assert max(map(len, make_units(specs, 1, largest=7))) <= 7


@pytest.mark.parametrize(
    ("groups", "jobs", "parts"), [(20, 16, 40), (5, 16, 20), (3, 2, 6), (1, 8, 8), (4, 2, 4), (9, 2, 9)]
)
def test_parts_keep_every_process_busy(groups, jobs, parts):
    specs = [tiny(env=f"Env{group}-v0", seed=s) for group in range(groups) for s in range(10)]
    assert len(make_units(specs, jobs)) == parts


def write_end(out, spec, name):
    directory = run_directory(out, spec)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_text("{}")
    (directory / "fingerprint.json").write_text('{"compared": {"v": "1"}}')


@pytest.mark.parametrize(("retry", "left"), [(False, 8), (True, 10)])
def test_after_an_interruption_the_processes_share_what_is_left(tmp_path, retry, left):
    specs = [tiny(env=f"Env{group}-v0", seed=s) for group in range(2) for s in range(12)]
    how = Execution(jobs=2, retry_failed=retry)
    made_with = {run_id(spec): Fingerprint({"v": "1"}, {}) for spec in specs}
    assert sorted(map(len, units_of(specs, tmp_path, how, made_with))) == [12, 12]
    for spec in specs[:14]:
        write_end(tmp_path, spec, "result")
    for spec in specs[14:16]:
        write_end(tmp_path, spec, "failed")
    units = units_of(specs, tmp_path, how, made_with)
    assert [len(unit) for unit in units if len(unit) > 1] == [left // 2, left // 2]
    assert sorted(json.dumps(s) for unit in units for s in unit) == sorted(map(json.dumps, specs))
    # Other machines may have seen less of what is done.
    shard = Execution(shard="1/2")
    assert units_of(specs, tmp_path, shard, made_with) == units_of(specs, tmp_path / "empty", shard, made_with)
    # What has failed with another version is made again, and not alone.
    other = {run: Fingerprint({"v": "2"}, {}) for run in made_with}
    assert [len(unit) for unit in units_of(specs, tmp_path, how, other) if len(unit) > 1] == [5, 5]


def test_environments_are_tried_before_the_work():
    check_environments([tiny(), {"function": "linear"}])
    with pytest.raises(ValueError, match=r"^Nowhere-v0 is not registered with gymnasium\. .*in gym_packages\.$"):
        check_environments([tiny(env="Nowhere-v0")])
    with pytest.raises(ValueError, match=r"Did you mean 'RobustBE/CliffWorld-v0'\? Correct the id"):
        check_environments([tiny(env="CliffWorld-v0")])
    with pytest.raises(ValueError, match=r"CartPole-v1 cannot be made here: .*Install what it needs"):
        check_environments([tiny(env="CartPole-v1", env_kwargs={"nonsense": 1})])


def test_choices_are_units_of_their_own():
    """A population would stack them apart."""
    choices = [tiny("qlc", arguments={"limit": limit}, seed=s) for limit in ("magnitude", "same_sign") for s in (0, 1)]
    assert sorted(map(len, make_units(choices, 1))) == [2, 2]


def test_settings_that_may_differ_share_a_population_and_others_do_not():
    rates = [tiny(arguments={"learning_rate": rate}) for rate in (1e-3, 1e-2)]
    networks = [tiny(arguments={"policy_kwargs": {"net_arch": [n]}}) for n in (4, 8)]
    assert len(make_units(rates, 1)) == 1
    assert len(make_units(networks, 1)) == 2


@pytest.mark.parametrize("algorithm", ["dqn", "qrdqn", "qlc"])
def test_a_single_agent_with_layer_normalisation(algorithm):
    """SB3's own have it by the features extractor."""
    arguments = {"policy_kwargs": {"net_arch": [4, 4], "layer_norm": True}, "buffer_size": 10, "device": "cpu"}
    spec = control_spec(algorithm, "CartPole-v1", 10, 0, arguments, function=SINGLE)
    model = _single_agent(spec, gym.make("CartPole-v1"))
    network = model.policy.quantile_net if algorithm == "qrdqn" else model.q_net
    assert [m.out_features for m in network.modules() if isinstance(m, nn.Linear)][:2] == [4, 4]
    assert sum(isinstance(m, nn.LayerNorm) for m in network.modules()) == 2
    assert isinstance(network.features_extractor, LayerNormExtractor) == (algorithm != "qlc")
    assert spec["arguments"]["policy_kwargs"] == {"net_arch": [4, 4], "layer_norm": True}
