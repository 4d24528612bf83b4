"""Observations in the arrays that people have, and tensors that can be used on."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from small_envs import SpaceEnv, images, vector_and_code
from small_models import assert_learned, assert_same_parameters, every_algorithm, make, parameters, q_values
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnvWrapper

from sb3_robust_be import QRC, SBEED

pytestmark = pytest.mark.filterwarnings("error::UserWarning")

PLACES = {
    "vector": ("MlpPolicy", spaces.Box(-1.0, 1.0, (4,), np.float32)),
    "matrix": ("MlpPolicy", spaces.Box(-1.0, 1.0, (2, 3), np.float32)),
    "minatar": ("CnnPolicy", images(6, 6, 3, bool)),
    "picture": ("CnnPolicy", images(36, 40, 3)),
    "bits": ("MlpPolicy", spaces.MultiBinary(5)),
    "counts": ("MlpPolicy", spaces.MultiDiscrete([3, 4])),
    "number": ("MlpPolicy", spaces.Discrete(6)),
    "dict": ("MultiInputPolicy", vector_and_code()),
}
every_place = pytest.mark.parametrize("place", PLACES)


def mapped(function, observation):
    """A Dict's parts one by one."""
    if isinstance(observation, dict):
        return {key: function(part) for key, part in observation.items()}
    return function(observation)


def reverse(x):
    """The same numbers behind negative strides."""
    for axis in range(x.ndim):
        x = np.flip(np.flip(x, axis).copy(), axis)
    assert x.ndim == 0 or min(x.strides) < 0
    return x


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def strided(x):
    return np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x


def unaligned(x):
    wide = np.zeros(x.shape, dtype=[("pad", np.int8), ("value", x.dtype)])
    wide["value"] = x
    return wide["value"]


FORMS = {
    "negative strides": reverse,
    "read-only": read_only,
    "fortran": lambda x: np.array(x, order="F"),
    "strided": strided,
    "unaligned": unaligned,
    "float64": lambda x: x.astype(np.float64),
    "longdouble": lambda x: x.astype(np.longdouble),
    "uint16": lambda x: x if (x < 0).any() or x.dtype.kind == "f" else x.astype(np.uint16),
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "lists": lambda x: x.tolist(),
    "tensor": th.as_tensor,
    "tensor of a graph": lambda x: th.as_tensor(x).double().requires_grad_() * 1.0,
}
every_form = pytest.mark.parametrize("form", FORMS)


def observations(space, batch):
    space.seed(0)
    if batch is None:
        return mapped(np.asarray, space.sample())
    samples = [space.sample() for _ in range(batch)]
    return (
        {k: np.stack([s[k] for s in samples]) for k in space} if isinstance(space, spaces.Dict) else np.stack(samples)
    )


@pytest.mark.parametrize("batch", [None, 1, 5])
@every_form
@every_place
def test_predict_takes_any_form(place, form, batch):
    policy, space = PLACES[place]
    model = make(QRC, SpaceEnv(space, n_actions=7), policy, buffer_size=2)
    plain = observations(space, batch)
    given = mapped(FORMS[form], plain)
    before = mapped(np.array, plain)
    found, expected = (model.predict(x, deterministic=True)[0] for x in (given, plain))
    assert found.shape == (() if batch is None else (batch,))
    np.testing.assert_array_equal(found, expected)
    th.testing.assert_close(q_values(model, given), q_values(model, plain), rtol=1e-5, atol=1e-6)
    assert model.policy.is_vectorized_observation(given) == (batch is not None)
    for a, b in zip(*(x.values() if isinstance(x, dict) else [x] for x in (plain, before)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("algorithm", [QRC, SBEED])
@every_form
def test_exploring_takes_any_form(algorithm, form):
    """Where ε is tossed, and where SBEED samples its own policy."""
    kwargs = {"behaviour": "softmax"} if algorithm is SBEED else {}
    for place in ("vector", "picture"):
        policy, space = PLACES[place]
        model = make(algorithm, SpaceEnv(space, n_actions=7), policy, buffer_size=2, **kwargs)
        for rate in (0.0, 0.5, 1.0):
            model.exploration_rate = rate
            for batch in (None, 5):
                actions = model.predict(FORMS[form](observations(space, batch)))[0]
                assert actions.shape == (() if batch is None else (batch,))
                assert ((actions >= 0) & (actions < 7)).all()


def test_memory_mapped_observations(tmp_path):
    space = PLACES["vector"][1]
    model = make(QRC, SpaceEnv(space), buffer_size=2)
    batch = observations(space, 4)
    np.save(tmp_path / "observations.npy", batch)
    mapped_batch = np.load(tmp_path / "observations.npy", mmap_mode="r")
    expected = model.predict(batch, deterministic=True)[0]
    for given in (mapped_batch, mapped_batch[::-1]):
        found = model.predict(given, deterministic=True)[0]
        np.testing.assert_array_equal(found, expected if given is mapped_batch else expected[::-1])


@pytest.mark.parametrize("given", [[None] * 4, ["left"] * 4, np.array([1, "a", None, 2.0], object), [1j] * 4])
def test_what_holds_no_numbers(given):
    model = make(QRC, buffer_size=2)
    for observation in (given, np.array([given])):
        with pytest.raises(TypeError, match=r"observation .*dtype.*no numbers.*np.asarray"):
            model.predict(observation, deterministic=True)


@pytest.mark.parametrize(
    "given", [0.5, np.float32(1.0), np.ones(3), np.ones((2, 3)), np.ones((2, 2, 4)), [[1.0], [2.0]]]
)
def test_other_shapes_are_sb3s_error(given):
    model = make(QRC, buffer_size=2)
    with pytest.raises(ValueError, match=r"Unexpected observation shape .* please use \(4,\)"):
        model.predict(given, deterministic=True)


class Arrays(VecEnvWrapper):
    """Gives its observations in another form."""

    def __init__(self, venv, form):
        super().__init__(venv)
        self.form = form

    def reset(self):
        return mapped(self.form, self.venv.reset())

    def step_wait(self):
        observations, rewards, dones, infos = self.venv.step_wait()
        for info in infos:
            if "terminal_observation" in info:
                info["terminal_observation"] = mapped(lambda x: self.form(np.asarray(x)), info["terminal_observation"])
        return mapped(self.form, observations), rewards, dones, infos


ARRAY_FORMS = ("negative strides", "read-only", "fortran", "strided", "float64", "big-endian")


@pytest.mark.parametrize("form", ARRAY_FORMS)
@every_place
def test_learning_from_any_array(place, form):
    """The forms hold the same numbers: the agent is the same, bit for bit."""
    policy, space = PLACES[place]
    models = []
    for function in (lambda x: x, FORMS[form]):
        env = Arrays(DummyVecEnv([lambda: SpaceEnv(space)] * 2), function)
        models.append(make(QRC, env, policy, buffer_size=60).learn(40))
    assert_same_parameters(*models)


class Flipping(VecEnvWrapper):
    """Images upside down, without a copy."""

    def reset(self):
        return self.venv.reset()[:, ::-1]

    def step_wait(self):
        observations, *rest = self.venv.step_wait()
        return (observations[:, ::-1], *rest)


@pytest.mark.parametrize("place", ["picture", "minatar"])
@every_algorithm
def test_flipped_images(algorithm, place):
    env = Flipping(DummyVecEnv([lambda: SpaceEnv(PLACES[place][1])]))
    model = make(algorithm, env, "CnnPolicy", buffer_size=50)
    before = parameters(model)
    assert_learned(model.learn(20), before)
    picture = observations(PLACES[place][1], 3)
    for upside_down in (picture[:, ::-1], picture[0, ::-1]):
        expected = model.predict(upside_down.copy(), deterministic=True)[0]
        np.testing.assert_array_equal(model.predict(upside_down, deterministic=True)[0], expected)


# Tensors that leave the policy


@every_algorithm
def test_actions_of_the_policy_can_be_used_in_a_graph(algorithm):
    model = make(algorithm, buffer_size=2)
    x = th.ones(5, 4)
    for actions in (model.policy(x), model.policy._predict(x), model.q_net._predict(x)):
        assert not actions.is_inference()
        model.q_net.zero_grad()
        model.q_net(x).gather(1, actions[:, None]).sum().backward()
        assert model.q_net.q_net[-1].weight.grad.any()
        actions += 1
        actions[0] = 0


@every_algorithm
def test_tensors_of_observations_can_be_used_in_a_graph(algorithm):
    model = make(algorithm, buffer_size=2)
    model.predict(np.ones((3, 4), np.float32), deterministic=True)
    tensor, vectorized = model.policy.obs_to_tensor(np.ones((3, 4), np.float32))
    assert vectorized
    (model.q_net(tensor.requires_grad_()) ** 2).sum().backward()
    assert tensor.grad.shape == (3, 4)


def test_arrays_of_actions_are_the_callers():
    model, dqn = make(QRC, buffer_size=2), make(DQN, buffer_size=2)
    for observation in (np.ones((3, 4), np.float32), np.ones(4, np.float32)):
        ours, theirs = (m.predict(observation, deterministic=True)[0] for m in (model, dqn))
        assert (ours.dtype, ours.shape, ours.flags.writeable) == (theirs.dtype, theirs.shape, theirs.flags.writeable)


def test_nothing_warns_of_read_only_arrays():
    """torch says it once per process, so that a warning elsewhere would hide it."""
    model = make(QRC, buffer_size=2)
    before = th.is_warn_always_enabled()
    th.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for batch in (None, 3):
                model.predict(read_only(observations(PLACES["vector"][1], batch)), deterministic=True)
    finally:
        th.set_warn_always(before)
