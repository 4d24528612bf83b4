"""Acting without the modules' overhead: the same values bit for bit, and no network where ε explores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from small_envs import MatchEnv, SpaceEnv, images, vector_and_code
from small_models import every_algorithm, generators, make, q_values, restore_generators
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from sb3_robust_be import QRC, SBEED
from sb3_robust_be.qrc import MinAtarCNN, QRCPolicy
from sb3_robust_be.qrc.forward import is_plain, plain_values
from sb3_robust_be.qrc.maskable import action_values

pytestmark = pytest.mark.filterwarnings("error::UserWarning")

VECTOR = spaces.Box(-1.0, 1.0, (4,), np.float32)
MINATAR: dict[str, Any] = {"features_extractor_class": MinAtarCNN, "net_arch": []}
NETWORKS: dict[str, tuple[spaces.Space, dict[str, Any]]] = {
    "64-64": (VECTOR, {"net_arch": [64, 64]}),
    "normalised": (VECTOR, {"net_arch": [32, 16], "layer_norm": True}),
    "tanh": (VECTOR, {"net_arch": [16], "activation_fn": nn.Tanh}),
    "elu, normalised": (VECTOR, {"net_arch": [16, 16], "activation_fn": nn.ELU, "layer_norm": True}),
    "dropout": (VECTOR, {"net_arch": [16], "activation_fn": nn.Dropout}),
    "linear": (VECTOR, {"net_arch": []}),
    "matrix": (spaces.Box(-1.0, 1.0, (2, 3), np.float32), {"net_arch": [16]}),
    "float64": (spaces.Box(-1.0, 1.0, (4,), np.float64), {"net_arch": [16]}),
    "integers": (spaces.Box(0, 255, (4,), np.uint8), {"net_arch": [16]}),
    "grid": (images(6, 6, 2, bool), {"net_arch": [16]}),
    "MinAtar": (images(10, 10, 4, bool), MINATAR),
    "MinAtar, normalised": (images(10, 10, 6, bool), {**MINATAR, "layer_norm": True}),
    "MinAtar, channels first": (images(5, 5, 3, bool, channels_last=False), {**MINATAR, "net_arch": [16]}),
}


def model_of(name: str = "64-64", n_actions: int = 5, **kwargs: Any) -> Any:
    space, policy_kwargs = NETWORKS[name]
    return make(QRC, SpaceEnv(space, n_actions), buffer_size=20, policy_kwargs=policy_kwargs, **kwargs)


def batch(space: spaces.Space, n: int) -> np.ndarray:
    space.seed(0)
    return np.stack([space.sample() for _ in range(n)]) if n else np.zeros((0, *space.shape), space.dtype)


def evaluations(model: Any) -> list[int]:
    """Sizes of the batches for which the network is evaluated from now on."""
    sizes: list[int] = []
    model.q_net.q_net[-1].register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    return sizes


@pytest.mark.parametrize("n", [0, 1, 2, 33])
@pytest.mark.parametrize("name", NETWORKS)
def test_values_are_the_networks_bit_for_bit(name, n):
    model = model_of(name)
    assert is_plain(model.q_net)
    observations = batch(model.observation_space, n)
    expected = q_values(model, observations)
    with th.inference_mode():
        found = plain_values(model.q_net, th.from_numpy(observations))
    assert found.dtype == expected.dtype
    assert th.equal(found, expected)
    assert th.equal(action_values(model.policy, observations)[0], expected)
    actions, state = model.predict(observations, deterministic=True)
    assert state is None
    assert actions.dtype == np.int64
    np.testing.assert_array_equal(actions, expected.argmax(dim=1))
    for observation in observations[:3]:
        single = model.predict(observation, deterministic=True)[0]
        assert single.shape == ()
        assert single == q_values(model, observation).argmax()


def test_the_first_of_equal_values():
    model = model_of()
    head, observations = model.q_net.q_net[-1], batch(VECTOR, 200)
    with th.no_grad():
        head.weight[3], head.bias[3] = head.weight[1], head.bias[1]
        head.bias[[1, 3]] += 0.3
    values = q_values(model, observations)
    assert th.equal(values[:, 1], values[:, 3])
    actions = model.predict(observations, deterministic=True)[0]
    assert 1 in actions
    assert 3 not in actions
    np.testing.assert_array_equal(actions, values.argmax(dim=1))
    with th.no_grad():
        head.weight.zero_()
        head.bias.zero_()
    assert (model.predict(observations, deterministic=True)[0] == 0).all()
    with th.no_grad():
        head.bias[2] = float("nan")
    np.testing.assert_array_equal(
        model.predict(observations, deterministic=True)[0], q_values(model, observations).argmax(dim=1)
    )


def load_state(model: Any, other: Any) -> None:
    model.policy.load_state_dict(other.policy.state_dict())


def assign_state(model: Any, other: Any) -> None:
    model.policy.load_state_dict(other.policy.state_dict(), assign=True)


def set_parameters(model: Any, other: Any) -> None:
    model.set_parameters(other.get_parameters())


def new_parameters(model: Any, other: Any) -> None:
    for i in (0, 2, 4):
        for name in ("weight", "bias"):
            setattr(model.q_net.q_net[i], name, nn.Parameter(getattr(other.q_net.q_net[i], name).detach().clone()))


def new_layers(model: Any, other: Any) -> None:
    for i in range(5):
        model.q_net.q_net[i] = other.q_net.q_net[i]


def learn(model: Any, other: Any) -> None:
    model.learn(40)


@pytest.mark.parametrize("change", [load_state, assign_state, set_parameters, new_parameters, new_layers, learn])
def test_changed_parameters_are_followed(change):
    model, other, observations = model_of(), model_of(seed=1, learning_rate=0.1).learn(30), batch(VECTOR, 50)
    model.predict(observations, deterministic=True)
    before = q_values(model, observations)
    change(model, other)
    expected = q_values(model, observations)
    assert not th.equal(expected, before)
    assert th.equal(action_values(model.policy, observations)[0], expected)
    np.testing.assert_array_equal(model.predict(observations, deterministic=True)[0], expected.argmax(dim=1))


def test_another_precision_is_the_same_error():
    """SB3 converts observations to float32, whatever the network is in."""
    model = model_of()
    model.policy.to(th.float64)
    for call in (lambda x: q_values(model, x), lambda x: model.predict(x, deterministic=True)):
        with pytest.raises(RuntimeError, match="dtype"):
            call(batch(VECTOR, 1))
    model.policy.to(th.float32)
    assert model.predict(batch(VECTOR, 1), deterministic=True)[0].shape == (1,)


def test_within_autocast():
    model, observations = model_of("normalised"), batch(VECTOR, 40)
    with th.autocast("cpu", dtype=th.bfloat16):
        expected = q_values(model, observations)
        assert expected.dtype == th.bfloat16
        assert th.equal(action_values(model.policy, observations)[0], expected)
        np.testing.assert_array_equal(model.predict(observations, deterministic=True)[0], expected.argmax(dim=1))


PARTS = {
    "network": lambda network: network,
    "layers": lambda network: network.q_net,
    "extractor": lambda network: network.features_extractor,
    "linear": lambda network: network.q_net[2],
    "activation": lambda network: network.q_net[1],
    "norm": lambda network: network.q_net[1],
}


@pytest.mark.parametrize("way", ["hook", "pre-hook", "forward", "global hook"])
@pytest.mark.parametrize("part", PARTS)
def test_what_a_user_puts_on_a_module_acts(part, way):
    model = model_of("normalised" if part == "norm" else "64-64")
    module, observations = PARTS[part](model.q_net), batch(VECTOR, 3)
    before = q_values(model, observations)
    forward, handle = module.forward, None
    if way == "hook":
        module.register_forward_hook(lambda module, inputs, output: output * 2 + 1)
    elif way == "pre-hook":
        module.register_forward_pre_hook(lambda module, inputs: inputs[0] * 2 + 1)
    elif way == "forward":
        module.forward = lambda x: forward(x) * 2 + 1
    else:
        handle = nn.modules.module.register_module_forward_hook(
            lambda called, inputs, output: output * 2 + 1 if called is module else None
        )
    try:
        expected = q_values(model, observations)
        assert not th.equal(expected, before)
        assert th.equal(action_values(model.policy, observations)[0], expected)
        np.testing.assert_array_equal(model.predict(observations, deterministic=True)[0], expected.argmax(dim=1))
    finally:
        if handle is not None:
            handle.remove()


def test_weight_norm_acts():
    """torch computes such a weight in a hook."""
    model, observations = model_of(), batch(VECTOR, 3)
    with pytest.warns(FutureWarning, match="weight_norm"):
        nn.utils.weight_norm(model.q_net.q_net[0])
    with th.no_grad():
        model.q_net.q_net[0].weight_g.mul_(2)
    assert th.equal(action_values(model.policy, observations)[0], q_values(model, observations))


class Doubled(FlattenExtractor):
    def forward(self, observations: th.Tensor) -> th.Tensor:
        return 2 * super().forward(observations)


class LastAction(QRCPolicy):
    def _predict(self, observation: Any, deterministic: bool = True) -> th.Tensor:
        return th.full((len(observation),), int(self.action_space.n) - 1)


def test_other_networks_are_asked_themselves():
    observations = batch(VECTOR, 20)
    model = make(QRC, SpaceEnv(VECTOR, 5), buffer_size=2, policy_kwargs={"features_extractor_class": Doubled})
    assert not is_plain(model.q_net)
    assert th.equal(action_values(model.policy, observations)[0], q_values(model, observations))
    for wrong in ("cnn", "linear", None):
        model = model_of("MinAtar")
        extractor = model.q_net.features_extractor
        assert is_plain(model.q_net)
        (extractor if wrong is None else getattr(extractor, wrong)).register_forward_hook(lambda module, x, y: 2 * y)
        assert not is_plain(model.q_net)
    model = make(QRC, SpaceEnv(VECTOR, 5), LastAction, buffer_size=2)
    assert (model.predict(observations, deterministic=True)[0] == 4).all()
    for space, policy in (
        (images(10, 10, 3), "CnnPolicy"),
        (images(10, 10, 3), "MlpPolicy"),
        (spaces.Discrete(4), "MlpPolicy"),
        (vector_and_code(), "MultiInputPolicy"),
    ):
        assert not is_plain(make(QRC, SpaceEnv(space), policy, buffer_size=2).q_net)


@pytest.mark.parametrize("start", [-3, 2])
def test_actions_start_where_the_space_does(start):
    model = make(QRC, MatchEnv(start), buffer_size=2)
    observations = np.eye(3, dtype=np.float32)
    expected = q_values(model, observations).argmax(dim=1).numpy() + start
    np.testing.assert_array_equal(model.predict(observations, deterministic=True)[0], expected)
    assert model.predict(observations[0], deterministic=True)[0] == expected[0]


def test_observations_are_not_written_to():
    model, observations = model_of("tanh"), batch(VECTOR, 4)
    model.q_net.q_net[0] = nn.ReLU()  # would act in place on the observations themselves
    model.q_net.q_net[1] = nn.Linear(4, 16)
    before = observations.copy()
    model.predict(observations, deterministic=True)
    np.testing.assert_array_equal(observations, before)


# ε-greedy

FORMS = {
    "vector": ("MlpPolicy", VECTOR),
    "picture": ("CnnPolicy", images(10, 10, 2)),
    "number": ("MlpPolicy", spaces.Discrete(6)),
    "counts": ("MlpPolicy", spaces.MultiDiscrete([3, 4])),
    "dict": ("MultiInputPolicy", vector_and_code()),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_network_is_not_asked_where_epsilon_explores(form):
    policy, space = FORMS[form]
    env = DummyVecEnv([lambda: SpaceEnv(space, 3)])
    model = make(QRC, env, policy, buffer_size=20)
    observation, sizes, asked = model.get_env().reset(), evaluations(model), []
    model.exploration_rate = 1.0
    for _ in range(5):
        actions = model.predict(observation)[0]
        assert actions.shape == (1,)
        assert actions[0] in range(3)
    assert sizes == []
    model.exploration_rate = 0.5
    np.random.seed(0)
    for _ in range(60):
        coin = np.random.get_state()
        asked.append(not np.random.rand(1)[0] < 0.5)
        np.random.set_state(coin)
        model.predict(observation)
    assert sizes == [1] * sum(asked)
    assert 10 < len(sizes) < 50
    del sizes[:]
    model.predict(observation, deterministic=True)
    assert sizes == [1]


def test_single_observations_explore_without_the_network():
    model = model_of()
    sizes = evaluations(model)
    model.exploration_rate = 1.0
    found = [model.predict(batch(VECTOR, 1)[0])[0] for _ in range(40)]
    assert all(isinstance(action, np.ndarray) and action.shape == () for action in found)
    assert {int(action) for action in found} == set(range(5))
    assert sizes == []


@pytest.mark.parametrize("rate", [0.0, 1.0])
@pytest.mark.parametrize("form", ["number", "counts", "dict"])
def test_integers_that_the_space_does_not_have_are_an_error_where_epsilon_explores_too(form, rate):
    policy, space = FORMS[form]
    model = make(QRC, SpaceEnv(space), policy, buffer_size=20)
    observation = {
        "number": np.array([2, 6]),
        "counts": np.array([[2, 3], [2, 4]]),
        "dict": {"vector": np.zeros((2, 3), np.float32), "code": np.array([0, 4])},
    }[form]
    model.exploration_rate = rate
    with pytest.raises(ValueError, match=r"observation has the number [46], which .*does not have"):
        model.predict(observation)


def test_softmax_actions_are_drawn_in_any_case():
    """As in 0.1: what torch's generator gives next does not depend on ε's coin for Dict observations."""
    model = make(SBEED, SpaceEnv(vector_and_code()), "MultiInputPolicy", buffer_size=20, behaviour="softmax")
    sizes = evaluations(model)
    model.exploration_rate = 1.0
    model.predict({"vector": np.zeros((2, 3), np.float32), "code": np.zeros(2, np.int64)})
    assert sizes == [2]


@pytest.mark.parametrize("form", ["vector", "dict", "number"])
@pytest.mark.parametrize("n_envs", [1, 3])
@every_algorithm
def test_draws_are_in_dqns_order(algorithm, n_envs, form):
    """A coin for each environment, then a random action for each that explores, then the batch of the update.

    The order, and with it what a seed gives, written out again, from which every action of a run is recomputed.
    """
    policy, space = FORMS[form]
    env = DummyVecEnv([lambda: SpaceEnv(space, 4)] * n_envs)
    settings = {"exploration_initial_eps": 0.4, "exploration_final_eps": 0.4, "learning_rate": 0.0}
    model = make(algorithm, env, policy, buffer_size=300, **settings)
    start, steps = generators(model), []

    def record(local: dict[str, Any], _: Any) -> bool:
        observation = local["self"]._last_obs
        keep = {k: v.copy() for k, v in observation.items()} if isinstance(observation, dict) else observation.copy()
        steps.append((keep, local["actions"].copy()))
        return True

    model.learn(60, callback=record)
    restore_generators(model, start)
    taken = 0
    for i, (observation, actions) in enumerate(steps):
        if i * n_envs < model.learning_starts:
            expected = np.array([model.action_space.sample() for _ in range(n_envs)])
        else:
            explore = np.random.rand(n_envs) < 0.4
            expected = q_values(model, observation).argmax(dim=1).numpy()
            expected[explore] = [model.action_space.sample() for _ in range(explore.sum())]
            taken += int((~explore).sum())
        np.testing.assert_array_equal(actions, expected, err_msg=f"step {i}")
        if (i + 1) * n_envs > model.learning_starts:
            np.random.randint(0, i + 1, size=model.batch_size)
            np.random.randint(0, n_envs, size=model.batch_size)
    assert 10 < taken < 60


class KeepsAConstant(FlattenExtractor):
    """Makes a constant when it is first called, as positional encodings do."""

    kept = None

    def __init__(self, space):
        super().__init__(space)
        self.scale = nn.Parameter(th.ones(()))

    def forward(self, observations):
        if self.kept is None:
            self.kept = th.ones(observations.shape[1]) / 2
        return super().forward(observations) * self.scale * self.kept


def test_what_a_layer_keeps_from_predict_can_be_learned_with():
    arguments = {"policy_kwargs": {"features_extractor_class": KeepsAConstant}, "learning_starts": 5, "train_freq": 1}
    model = QRC("MlpPolicy", "CartPole-v1", buffer_size=100, device="cpu", **arguments)
    model.predict(model.observation_space.sample(), deterministic=True)
    assert model.learn(12)._n_updates > 0
