"""The shipped configurations: the paper's numbers, each with its source, and each entry makes a model that learns."""

import argparse
import re

import numpy as np
import pytest
import torch as th
import yaml
from rl_zoo3.exp_manager import ExperimentManager
from rl_zoo3.utils import ALGOS
from stable_baselines3 import DQN

from sb3_robust_be import QLC, Population, registry, zoo
from sb3_robust_be.evaluation import final_performance
from sb3_robust_be.qrc.qrc import FALLING

NAMES = [name for name, entry in registry.ENTRIES.items() if entry.config]
MINATAR = [f"MinAtar/{game}-v0" for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")]
SMALL = ["CartPole-v1", "Acrobot-v1", "RobustBE/MountainCar1000-v0", "LunarLander-v3", "RobustBE/CliffWorld-v0"]
# An environment for each entry that is not one.
STAND_INS = {"default": "MountainCar-v0", "atari": "ALE/Pong-v5"}
# The paper's appendix "Nonlinear Control": steps, hidden units, most recent transitions.
PAPER = {
    "CartPole-v1": (100_000, [64, 64], 4_000),
    "Acrobot-v1": (100_000, [32, 32], 4_000),
    "RobustBE/MountainCar1000-v0": (100_000, [32, 32], 4_000),
    "RobustBE/CliffWorld-v0": (50_000, [32, 32], 4_000),
    "LunarLander-v3": (250_000, [128, 128], 10_000),
}


def load(name: str) -> dict:
    path = zoo.config_file(name)
    assert path is not None
    return yaml.safe_load(path.read_text(encoding="utf-8"))


CONFIGS = {name: load(name) for name in NAMES}
ENTRIES = [(name, key) for name in NAMES for key in CONFIGS[name] if not key.startswith(".")]


def network(entry: dict) -> list[int]:
    return eval(entry["policy_kwargs"])["net_arch"]


def make_model(name: str, env_id: str, folder, seed: int = 0, **hyperparams):
    """The model that rl_zoo3 makes of the shipped configuration."""
    zoo.register()
    manager = ExperimentManager(
        argparse.Namespace(),
        name,
        env_id,
        str(folder),
        eval_freq=-1,
        verbose=0,
        hyperparams=hyperparams,
        config=str(zoo.config_file(name)),
        seed=seed,
    )
    model, _ = manager.setup_experiment()
    return model


@pytest.mark.parametrize("name", NAMES)
def test_every_environment_has_an_entry(name):
    environments = {key for key in CONFIGS[name] if not key.startswith(".")}
    assert environments == {*SMALL, *MINATAR, *STAND_INS}


@pytest.mark.filterwarnings("ignore:.*learning_starts:UserWarning")
@pytest.mark.parametrize(("name", "key"), ENTRIES)
def test_every_entry_makes_a_model_that_learns(name, key, tmp_path):
    env_id = STAND_INS.get(key, key)
    # An update on every step from the first on, with a buffer that an Atari entry does not fill the memory with.
    fast = {"learning_starts": 0, "train_freq": 1, "batch_size": 2, "buffer_size": 100}
    model = make_model(name, env_id, tmp_path, **fast)
    assert type(model) is ALGOS[name]
    before = [parameter.detach().clone() for parameter in model.policy.q_net.parameters()]
    model.learn(6)
    after = list(model.policy.q_net.parameters())
    assert model._n_updates == 6
    assert any(not th.equal(old, new) for old, new in zip(before, after, strict=True))
    assert all(th.isfinite(parameter).all() for parameter in after)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_its_source(name):
    for line in zoo.config_file(name).read_text(encoding="utf-8").splitlines():
        setting = re.match(r"\s+(\w+): ([^#]*)(#.*)?$", line)
        if setting and re.search(r"(^|\W)[\d.]", setting[2]):
            assert setting[3], f"no source: {line}"


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_numbers(name):
    """YAML reads ``1e5`` as a string."""
    for entry in CONFIGS[name].values():
        for key, value in entry.items():
            if isinstance(value, str):
                with pytest.raises(ValueError, match="could not convert"):
                    float(value)
            assert key in ("policy", "policy_kwargs", "env_wrapper", "limit", "h_target", "projection") or isinstance(
                value, (int, float)
            ), (key, value)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("env_id", PAPER)
def test_the_papers_settings(name, env_id):
    entry = CONFIGS[name][env_id]
    n_timesteps, units, buffer_size = PAPER[env_id]
    assert (entry["n_timesteps"], network(entry), entry["buffer_size"]) == (n_timesteps, units, buffer_size)
    assert (entry["batch_size"], entry["train_freq"], entry["gradient_steps"]) == (32, 1, 1)
    assert (entry["gamma"], entry["exploration_initial_eps"], entry["exploration_final_eps"]) == (0.99, 0.1, 0.1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("env_id", MINATAR)
def test_the_papers_settings_for_minatar(name, env_id):
    entry = CONFIGS[name][env_id]
    assert (entry["n_timesteps"], entry["buffer_size"], entry["learning_starts"]) == (5_000_000, 100_000, 5_000)
    assert (entry["batch_size"], entry["train_freq"], entry["gamma"]) == (32, 1, 0.99)
    # Without one the class's own, which falls.
    for rate in (entry["learning_rate"],) if "learning_rate" in entry else (FALLING.start, FALLING.end):
        assert 2.0**-13 <= rate <= 2.0**-8
    assert "learning_rate" in entry or name == "qlc"


def test_the_papers_own_arguments():
    for key, entry in CONFIGS["gq_huber"].items():
        assert entry["huber_threshold"] == (2.0 if "MountainCar" in key else 1.0)
    # On the small domains QRC-Huber's is chosen; see test_zoo_evidence.py.
    assert {CONFIGS["qrc_huber"][key]["huber_threshold"] for key in (*MINATAR, *STAND_INS)} == {1.0}
    for name in registry.names(baselines=False):
        beta = 1.0 if name in ("qrc", "qrc_huber", "qlc") else 0.0
        assert {entry["h_regularization"] for entry in CONFIGS[name].values()} == {beta}
        assert {entry["h_learning_rate_ratio"] for entry in CONFIGS[name].values()} == {1.0}
    assert {CONFIGS["dqn"][game]["target_update_interval"] for game in MINATAR} <= {1, 8, 32, 64}
    with_target = {name for name in NAMES if any("target_update_interval" in e for e in CONFIGS[name].values())}
    assert with_target == {"dqn", "sbeed"}


@pytest.mark.parametrize("name", NAMES)
def test_the_algorithms_share_all_other_settings(name):
    own = {"huber_threshold", "limit", "h_target", "h_regularization", "h_learning_rate_ratio"}
    own |= {"projection", "target_update_interval", "max_grad_norm", "temperature", "eta"}
    for key, entry in CONFIGS["qrc"].items():
        other = CONFIGS[name][key]
        # DQN must be told of the network that our CnnPolicy picks by itself.
        skipped = own | ({"policy_kwargs"} if key in MINATAR else set())
        # Each algorithm's own is chosen; see test_zoo_evidence.py.
        skipped |= {"learning_rate"} if key in SMALL else set()
        if name == "qlc":
            # The class's falling rate, and normalised layers in the same network.
            skipped |= {"policy_kwargs"} | ({"learning_rate"} - other.keys())
            if "net_arch" in entry.get("policy_kwargs", ""):
                assert network(entry) == network(other)
        assert {k: v for k, v in entry.items() if k not in skipped} == {
            k: v for k, v in other.items() if k not in skipped
        }


@pytest.mark.parametrize("key", [key for name, key in ENTRIES if name == "qlc"])
def test_qlc_has_all_of_its_defaults_or_is_that_of_0_1(key):
    """One-sided corrections without normalised layers or with a constant rate are what no experiment supports."""
    entry = CONFIGS["qlc"][key]
    assert entry["limit"] in ("one_sided", "magnitude")
    of_0_1 = entry["limit"] == "magnitude"
    policy_kwargs = {**QLC.default_policy_kwargs, **eval(entry.get("policy_kwargs", "{}"))}
    assert policy_kwargs["layer_norm"] is not of_0_1
    assert ("learning_rate" in entry) is of_0_1


@pytest.mark.parametrize("name", NAMES)
def test_the_network_for_minatar(name, tmp_path):
    """One convolution with 16 3×3 filters, 128 units, and nothing between those and the values."""
    model = make_model(name, "MinAtar/Breakout-v0", tmp_path, buffer_size=10)
    shapes = [tuple(p.shape) for p in model.policy.q_net.parameters() if p.ndim > 1]
    assert shapes[:3] == [(16, 4, 3, 3), (128, 16 * 8 * 8), (6, 128)]
    assert shapes[3:] == ([] if name == "dqn" else [(6, 128)])


@pytest.mark.parametrize("name", NAMES)
def test_exploration_in_minatar(name, tmp_path):
    """1 at step 5 000, then a line to 0.1 at step 105 000."""
    model = make_model(name, "MinAtar/Breakout-v0", tmp_path, buffer_size=10)
    steps = np.array([5_000, 55_000, 105_000, 2_000_000])
    n_timesteps = CONFIGS[name]["MinAtar/Breakout-v0"]["n_timesteps"]
    rates = [model.exploration_schedule(1.0 - step / n_timesteps) for step in steps]
    np.testing.assert_allclose(rates, [1.0, 0.55, 0.1, 0.1], atol=1e-12)
    assert model.exploration_schedule(1.0) >= 1.0


@pytest.mark.parametrize("name", NAMES)
def test_the_first_update_comes_with_the_33rd_transition(name, tmp_path):
    model = make_model(name, "CartPole-v1", tmp_path)
    model.learn(33)
    assert model._n_updates == 1
    assert model.replay_buffer.size() == 33


def test_dqn_is_not_clipped():
    """SB3's DQN takes no ``None``; an infinite norm leaves every gradient as it is."""
    assert CONFIGS["dqn"]["CartPole-v1"]["max_grad_norm"] == float("inf")

    def weights(max_grad_norm: float) -> th.Tensor:
        model = DQN("MlpPolicy", "CartPole-v1", learning_starts=0, max_grad_norm=max_grad_norm, seed=0)
        model.policy.optimizer = th.optim.SGD(model.policy.parameters(), lr=0.01)  # Adam hides the gradient's scale
        return th.nn.utils.parameters_to_vector(model.learn(20).q_net.parameters())

    assert th.equal(weights(float("inf")), weights(1e30))
    assert not th.equal(weights(float("inf")), weights(1e-3))


@pytest.mark.slow
def test_cart_pole_is_learned_with_the_shipped_configuration():
    """The experiments' measure over the last quarter of 20 000 of the 100 000 steps, on seeds of no experiment.

    Twelve of them: what a seed reaches is decided by last digits, which are another processor's own. Sixteen others had
    a mean of 402 with a standard deviation of 107, so that a mean of twelve is 3.3 standard errors above the bound.
    """
    entry = {name: value for name, value in CONFIGS["qrc_huber"]["CartPole-v1"].items() if name != "n_timesteps"}
    entry["policy_kwargs"] = eval(entry["policy_kwargs"])
    population = Population(
        "qrc_huber", entry.pop("policy"), "CartPole-v1", range(70, 82), verbose=0, device="cpu", **entry
    ).learn(20_000)
    returns = [final_performance(own.lengths, own.returns, 20_000) for own in population.returns]
    assert np.mean(returns) >= 300, returns
