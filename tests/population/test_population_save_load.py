"""A population on disk: it goes on bit for bit, and the folder is at any time the old state or the new one."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch as th
from populations import assert_same_member, every_algorithm, make, member_state, rows
from small_envs import MatchEnv, SpaceEnv, vector_and_code
from torch import nn

from sb3_robust_be.population import Member, Population, storage
from sb3_robust_be.qrc import MlpPolicy

# Any warning is an error here, but for the announcements of target networks.
pytestmark = pytest.mark.filterwarnings("error", "ignore:.*bootstraps from a target network:UserWarning")


def assert_same(population, other):
    """All members bit for bit, and the counts."""
    assert population.members == other.members
    assert population.num_timesteps == other.num_timesteps
    assert population._trainer.n_calls == other._trainer.n_calls
    for i in range(len(population)):
        assert_same_member(member_state(population, i), member_state(other, i))
    for learner, twin in zip(population._trainer.learners, other._trainer.learners, strict=True):
        assert learner.n_updates == twin.n_updates


@every_algorithm
def test_goes_on_bit_for_bit(algorithm, trained):
    """Saved in the middle, against never interrupted: with and without target networks."""
    population, folder = trained(algorithm)
    loaded = Population.load(folder)
    assert (loaded.num_timesteps, loaded._trainer.learners[0].n_updates) == (30, 10)
    loaded.learn(10, reset_num_timesteps=False)
    assert_same(loaded, population)


FAR = {"train_freq": 4, "gradient_steps": 2, "exploration_fraction": [0.5, 1.0], "buffer_size": 25}


def dictionaries():
    """An environment with a name."""
    return SpaceEnv(vector_and_code())


ENVIRONMENTS = {
    "frozen_lake": ("FrozenLake-v1", "MlpPolicy", {}),
    "dict": (dictionaries, "MultiInputPolicy", {}),
    "start": (MatchEnv, "MlpPolicy", {"start": 3, "length": 7}),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_goes_on_in_any_environment(name, tmp_path):
    """With a full buffer, ε on its way, and several updates at once."""
    env, policy, kwargs = ENVIRONMENTS[name]
    network = {"net_arch": [8], "activation_fn": nn.Tanh}
    population = make("qrc_huber", [4, 2], env, policy, policy_kwargs=network, env_kwargs=kwargs, **FAR)
    population.learn(30)
    population.save(tmp_path)
    loaded = Population.load(str(tmp_path))
    assert loaded._trainer.learners[0].layout.names == population._trainer.learners[0].layout.names
    assert_same(loaded, population)
    for again in (loaded, population):
        again.learn(26, reset_num_timesteps=False)
    assert_same(loaded, population)
    assert (loaded.num_timesteps, loaded._trainer.replay.size) == (56, 25)


def test_before_the_first_step(tmp_path):
    population = make("gq", [1, 0], gamma=[0.5, 0.9])
    population.save(tmp_path / "a" / "b")
    loaded = Population.load(tmp_path / "a" / "b")
    assert (loaded.num_timesteps, loaded.returns[0].steps.size) == (0, 0)
    assert_same(loaded.learn(25), population.learn(25))


def test_only_arrays_and_json_without_pickle(trained):
    _, folder = trained("sbeed")
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".npz"]
    index = json.loads((folder / "population.json").read_text())
    assert index["arguments"]["temperature"] == [0.1, 1]
    with np.load(folder / index["state"], allow_pickle=False) as arrays:
        assert {arrays[name].dtype.kind for name in arrays} <= set("ifbu")
        assert {"learner0/rows", "learner1/target_rows", "replay/rewards", "log/table"} <= set(arrays)


# The folder at any time


def interrupt(monkeypatch, suffix):
    """The process ends where a file of this kind would be written."""
    write = storage.write_atomically

    def killed(path, data):
        if path.suffix == suffix:
            raise KeyboardInterrupt
        write(path, data)

    monkeypatch.setattr(storage, "write_atomically", killed)


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_an_interrupted_save_leaves_the_old_state(suffix, tmp_path, monkeypatch):
    """… however often, and also if both states are of the same step."""
    population = make("qrc", [0, 1], learning_starts=2)
    for _ in range(3):
        population.learn(12)
        population.save(tmp_path)
        population.save(tmp_path)
        old = [member_state(population, i) for i in range(2)]
        with monkeypatch.context() as patch:
            interrupt(patch, suffix)
            for steps in (12, 5):
                population.learn(steps)
                with pytest.raises(KeyboardInterrupt):
                    population.save(tmp_path)
        loaded = Population.load(tmp_path)
        assert loaded.num_timesteps == 12
        for i in range(2):
            assert_same_member(member_state(loaded, i), old[i])
    population.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2, "what the interrupted ones have left is gone"
    assert_same(Population.load(tmp_path), population)


# Arguments


def halved(progress):
    """A schedule with a name."""
    return 1e-3 * (1 + progress) / 2


ARGUMENTS = {
    "learning_rate": [1e-3, halved],
    "max_grad_norm": [None, float("inf")],
    "gamma": np.float32(0.5).item(),
    "tau": np.float64(1.0),
    "batch_size": np.int64(4),
    "train_freq": (2, "step"),
    "policy_kwargs": {
        "net_arch": [4, 3],
        "activation_fn": nn.Tanh,
        "optimizer_kwargs": {"betas": (0.5, 0.75), "eps": 1e-3},
    },
}


def test_arguments_survive_two_loads(tmp_path):
    members = [Member(s, {"huber_threshold": t}) for s, t in ((3, None), (0, 0.5))]
    for name, seeds in {"range": range(2, 4), "array": np.array([4, 1]), "members": members}.items():
        arguments = ARGUMENTS if name != "members" else {**ARGUMENTS, "learning_rate": halved, "max_grad_norm": None}
        population = make("qrc_huber", seeds, MatchEnv, env_kwargs={"length": 4}, verbose=0, **arguments)
        population.save(tmp_path / "once")
        Population.load(tmp_path / "once").save(tmp_path / "twice")
        loaded = Population.load(tmp_path / "twice")
        assert loaded.members == population.members
        assert loaded.arguments == population.arguments
        assert (loaded.algorithm, loaded.env_name, loaded.env_kwargs) == (population.algorithm, MatchEnv, {"length": 4})
        assert type(loaded[0].policy.q_net.q_net[1]) is nn.Tanh
        assert loaded._trainer.learners[0].adam == (0.5, 0.75, 1e-3)
        assert th.equal(rows(loaded), rows(population))


def test_what_has_no_name_must_be_given_again(tmp_path):
    env = lambda: MatchEnv(start=2)  # noqa: E731
    population = make("qrc", [0], env, learning_rate=[1e-3, lambda p: 1e-3 * p], compile=False)
    with pytest.warns(UserWarning, match=r"^(env|learning_rate) holds.*Population\.load\(.*") as caught:
        population.save(tmp_path)
    assert len(caught) == 2
    assert caught[0].filename == __file__
    with pytest.raises(ValueError, match=r"^env was .*<lambda>.*Give it again: Population\.load\(.*env=…\)"):
        Population.load(tmp_path)
    with pytest.raises(ValueError, match=r"^learning_rate was .*learning_rate=…"):
        Population.load(tmp_path, env=env)
    loaded = Population.load(tmp_path, env=env, learning_rate=[1e-3, 1e-2])
    assert loaded.env.action_space.start == 2
    assert loaded.arguments["learning_rate"] == [1e-3, 1e-2]


def test_names_that_are_gone(tmp_path):
    make("qrc", [0], MatchEnv).save(tmp_path)
    index = tmp_path / "population.json"
    index.write_text(index.read_text().replace("small_envs:MatchEnv", "small_envs:OtherEnv"))
    with pytest.raises(ValueError, match=r"^env was .*OtherEnv.*env=…"):
        Population.load(tmp_path)
    assert len(Population.load(tmp_path, env=MatchEnv)) == 1


def test_replacements(trained, capsys):
    _, folder = trained("qrc")
    loaded = Population.load(folder, compile=True, device="cpu", verbose=1, buffer_size=500)
    assert (loaded.compile, loaded.device.type, loaded.arguments["buffer_size"]) == (True, "cpu", 500)
    assert all(learner._compiled for learner in loaded._trainer.learners)
    assert "24 members × 40 transitions" in capsys.readouterr().out
    assert not Population.load(folder).compile


def test_a_larger_buffer_forgets_the_oldest_first(tmp_path):
    population = make("qrc", [0], MatchEnv, buffer_size=7, learning_starts=0, train_freq=1000).learn(10)
    population.save(tmp_path)
    loaded = Population.load(tmp_path, buffer_size=9).learn(3, reset_num_timesteps=False)
    assert loaded._trainer.replay.capacity == 9
    population = make("qrc", [0], MatchEnv, buffer_size=9, learning_starts=0, train_freq=1000).learn(13)
    kept, expected = (p._trainer.replay.fields()["observations"][0].tolist() for p in (loaded, population))
    assert sorted(kept) == sorted(expected)


def test_replacements_that_are_of_other_members(tmp_path):
    make("qrc", [3]).save(tmp_path)
    with pytest.raises(ValueError, match=r"saved state is of 1 members and the arguments are of 2\..*seeds"):
        Population.load(tmp_path, seeds=[3, 4])
    with pytest.raises(ValueError, match=r"of 1 members.*of 2\..*lists"):
        Population.load(tmp_path, gamma=[0.9, 0.99])


ANNOUNCED = pytest.mark.filterwarnings("ignore:.*bootstraps from a target network:UserWarning")


@ANNOUNCED
def test_replacements_that_need_more_than_was_saved(tmp_path):
    """… while what was saved beyond that is left out."""
    make("qrc", [3]).learn(25).save(tmp_path / "without")
    remedy = r"the saved members do not have\. Leave {} out of load\(\), or make a new Population"
    for name, value, text in (
        ("h_regularization_scale", "features", "='features' needs running means"),
        ("target_update_interval", 7, "=7 needs target networks"),
        ("target_update_interval", [7], r"=\[7\] needs target networks"),
    ):
        with pytest.raises(ValueError, match=f"^{name}{text}.*, which {remedy.format(name)}"):
            Population.load(tmp_path / "without", **{name: value})
    population = make("qrc", [3], h_regularization_scale="features", target_update_interval=7).learn(25)
    population.save(tmp_path / "with")
    loaded = Population.load(tmp_path / "with", h_regularization_scale="absolute", target_update_interval=None)
    assert th.equal(rows(loaded), rows(population))
    assert loaded._trainer.learners[0].state().keys() == {"rows", "mean", "square"}


@ANNOUNCED
def test_replacements_that_make_other_networks(tmp_path):
    make("qlc", [3], limit=["magnitude", None]).save(tmp_path / "two")
    with pytest.raises(ValueError, match=r"do not fit.*\(2, \d+\).*choices such as limit out of load\(\)"):
        Population.load(tmp_path / "two", limit=["magnitude", "magnitude"])
    make("qlc", [3], gamma=[0.9, 0.99]).save(tmp_path / "one")
    with pytest.raises(ValueError, match=r"do not fit.*policy_kwargs"):
        Population.load(tmp_path / "one", policy_kwargs={"net_arch": [8]})


OLD = {"seeds": [3, 4], "buffer_size": 100, "learning_starts": 20, "train_freq": 1, "verbose": 0, "device": "cpu"}


@pytest.mark.parametrize(
    ("algorithm", "given", "defaults"),
    [
        ("qlc", {}, {"learning_rate": 1e-4, "limit": "magnitude", "policy_kwargs": {"layer_norm": False}}),
        (
            *("qlc", {"learning_rate": 0.01, "limit": None, "policy_kwargs": {"net_arch": [8]}}),
            {"policy_kwargs": {"net_arch": [8], "layer_norm": False}},
        ),
        (
            *("qlc", {"limit": ["magnitude", None], "policy_kwargs": None, "learning_rate": [0.01, 0.02]}),
            {"policy_kwargs": {"layer_norm": False}},
        ),
        ("gq_huber", {}, {"learning_rate": 1e-4}),
        ("sbeed", {}, {}),
        ("dqn", {}, {}),
    ],
)
def test_folders_of_0_1_go_on_with_its_defaults(algorithm, given, defaults, tmp_path):
    """They have only what the caller gave, and the classes had other defaults."""
    population = Population(algorithm, "MlpPolicy", "CartPole-v1", **OLD, **{**given, **defaults})
    population.learn(30)
    population.save(tmp_path)
    path = tmp_path / "population.json"
    index = json.loads(path.read_text())
    arguments = {k: v for k, v in index["arguments"].items() if k not in defaults.keys() - given.keys()}
    if "policy_kwargs" in given:
        arguments["policy_kwargs"] = given["policy_kwargs"]
    path.write_text(json.dumps(index | {"format": 1, "arguments": arguments}))
    loaded = Population.load(tmp_path)
    assert_same(loaded, population)
    for again in (loaded, population):
        again.learn(10, reset_num_timesteps=False)
    assert_same(loaded, population)


class OwnPolicy(MlpPolicy):
    """Without the arguments of the package's own."""

    def __init__(self, observation_space, action_space, lr_schedule, net_arch=None, **others):
        super().__init__(observation_space, action_space, lr_schedule, net_arch, **others)
        assert "layer_norm" not in others


def test_a_policy_class_of_the_users_own_has_no_default_of_0_1(tmp_path):
    Population("qlc", OwnPolicy, "CartPole-v1", **OLD, limit="magnitude").save(tmp_path)
    path = tmp_path / "population.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 1}))
    assert len(Population.load(tmp_path)) == 2


def test_other_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"^{tmp_path} holds no population: population\.json is missing"):
        Population.load(tmp_path)
    make("qrc", [0]).save(tmp_path)
    index = tmp_path / "population.json"
    index.write_text(index.read_text().replace('"format": 2', '"format": 7'))
    with pytest.raises(ValueError, match=r"has the format 7; this version reads 1 and 2"):
        Population.load(tmp_path)
