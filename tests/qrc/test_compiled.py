"""``compile=True`` changes the speed and nothing else."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import warnings

import cloudpickle
import pytest
import torch as th
from gymnasium.spaces import Box
from small_envs import SpaceEnv
from small_models import those_with
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import _inductor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.optim.optimizer import register_optimizer_step_post_hook
from two_heads import DoubleFlatten, SpacesOnly, make_batch, make_model

from sb3_robust_be import QRCHuber
from sb3_robust_be.qrc.compiled import CompiledUpdate, generate_code
from sb3_robust_be.qrc.validation import constructor_arguments
from sb3_robust_be.registry import classes

ALGORITHMS = classes()

pytestmark = pytest.mark.filterwarnings("ignore:.*bootstraps from a target network")
EVERY_ALGORITHM = pytest.mark.parametrize("cls", ALGORITHMS.values(), ids=ALGORITHMS)


@pytest.fixture
def quick_backend(monkeypatch):
    """Traced and differentiated as for the real compiler, then run without code generation."""
    monkeypatch.setattr(CompiledUpdate, "backend", staticmethod(lambda graph, inputs: graph))


class Silent:
    def record(self, *args, **kwargs):
        pass


def updated(model, updates=50, batch_size=16, reward_scale=3.0, single=False):
    """The model after updates on given batches, with its learning rate and settings as `train` sets them."""
    model._logger = Silent()
    for i in range(updates):
        model._current_progress_remaining = 1 - i / updates
        model.policy.set_training_mode(True)
        model._update_learning_rate(model.policy.optimizer)
        batch = make_batch(batch_size, seed=i, reward_scale=reward_scale)
        if single:
            batch = batch._replace(rewards=batch.rewards.float(), dones=batch.dones.float())
        model._update(batch, model.update_settings())
    return model


def assert_same(left, right, atol=1e-10):
    for (name, x), (_, y) in zip(left.policy.state_dict().items(), right.policy.state_dict().items(), strict=True):
        th.testing.assert_close(x, y, rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def pair(cls, **kwargs):
    return make_model(cls, **kwargs), make_model(cls, compile=True, **kwargs)


def assert_compiled(model, graphs=1):
    assert model._compiled.works
    assert len(model._compiled._graphs) == graphs


def assert_same_state(left, right, atol=1e-10):
    """What the optimisers keep, as SB3 saves it."""
    left, right = (model.policy.optimizer.state_dict() for model in (left, right))
    assert left["param_groups"] == right["param_groups"]
    assert left["state"].keys() == right["state"].keys()
    for i, own in left["state"].items():
        assert own.keys() == right["state"][i].keys()
        assert own["step"].dtype == right["state"][i]["step"].dtype
        for name, x in own.items():
            th.testing.assert_close(x, right["state"][i][name], rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def counted_steps(model):
    """The optimiser's own steps from now on, one entry each: before one, and only then, gradients are clipped.

    Another ``step`` in place of the optimiser's would itself keep a graph from making it.
    """
    own, steps = model._clip_gradients, []
    model._clip_gradients = lambda values: (steps.append(1), own(values))[1]
    return steps


def falling(progress):
    return 1e-2 * progress


STEPS = {
    "plain": {},
    "clipped": {"max_grad_norm": 0.1},
    "scheduled": {"learning_rate": falling, "h_learning_rate_ratio": 0.25, "max_grad_norm": 1e9},
    "decoupled": {"h_decoupled_weight_decay": True, "h_regularization": 2.0, "max_grad_norm": 0.5},
    "features": {"h_regularization_scale": "features", "h_learning_rate_ratio": 2.0, "max_grad_norm": 1.0},
}


EVERY_STEP_OF_EVERY_ALGORITHM = pytest.mark.parametrize(
    ("cls", "step"),
    [
        pytest.param(cls, step, id=f"{name}-{step}")
        for name, cls in ALGORITHMS.items()
        for step, arguments in STEPS.items()
        if arguments.keys() <= constructor_arguments(cls).keys()
    ],
)


@EVERY_STEP_OF_EVERY_ALGORITHM
@pytest.mark.parametrize("interval", [None, 10], ids=["no_target", "target"])
def test_compiled_equals_eager_after_two_hundred_updates(cls, interval, step, quick_backend):
    eager, compiled = pair(cls, **{"learning_rate": 1e-2, "target_update_interval": interval, **STEPS[step]})
    before, steps = eager.q_net.q_net[0].weight.clone(), counted_steps(compiled)
    assert_same(updated(eager, 200), updated(compiled, 200), atol=1e-8)
    assert_same_state(eager, compiled, atol=1e-6)
    assert (eager.q_net.q_net[0].weight - before).abs().max() > 1e-2
    assert_compiled(compiled)
    assert len(steps) == 1, "the first, which makes the optimiser's state"
    th.testing.assert_close(eager._feature_norm, compiled._feature_norm)
    assert eager._feature_norm_updates == compiled._feature_norm_updates == (200 if step == "features" else 0)
    assert all(p.grad is None for p in compiled.q_net.parameters())


@those_with("h_averaging", "h_decoupled_weight_decay")
def test_alternatives_compiled(algorithm, quick_backend):
    choices = {"h_averaging": "action", "h_decoupled_weight_decay": True, "h_regularization": 1.0}
    eager, compiled = pair(algorithm, learning_rate=1e-2, **choices)
    assert_same(updated(eager), updated(compiled))
    assert_compiled(compiled)


@EVERY_ALGORITHM
@pytest.mark.parametrize("interval", [None, 10], ids=["no_target", "target"])
def test_generated_code_equals_eager_after_two_hundred_updates(cls, interval):
    settings = {"learning_rate": falling, "h_learning_rate_ratio": 0.25, "max_grad_norm": 0.5}
    eager, compiled = pair(cls, target_update_interval=interval, **settings)
    assert_same(updated(eager, 200), updated(compiled, 200), atol=1e-5)
    assert_same_state(eager, compiled, atol=1e-5)
    assert_compiled(compiled)


@pytest.mark.parametrize("step", ["decoupled", "features"])
def test_generated_code_with_other_regularisers(step):
    eager, compiled = pair(QRCHuber, learning_rate=1e-2, **STEPS[step])
    assert_same(updated(eager, 200), updated(compiled, 200), atol=1e-5)
    assert_same_state(eager, compiled, atol=1e-5)
    assert_compiled(compiled)


def test_generated_code_in_single_precision():
    eager, compiled = (
        QRCHuber("MlpPolicy", SpacesOnly(), seed=0, buffer_size=100, learning_rate=1e-3, compile=flag)
        for flag in (False, True)
    )
    assert_same(updated(eager, 200, single=True), updated(compiled, 200, single=True), atol=1e-5)
    assert_same_state(eager, compiled, atol=1e-4)
    assert_compiled(compiled)


OPTIMIZERS = {
    "weight_decay": (th.optim.Adam, {"weight_decay": 0.1}),
    "adamw": (th.optim.AdamW, {"weight_decay": 0.1}),
    "betas": (th.optim.Adam, {"betas": (0.5, 0.9), "eps": 1e-3, "foreach": True}),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_adam_with_settings_of_the_users(optimizer, quick_backend):
    cls, kwargs = OPTIMIZERS[optimizer]
    eager, compiled = pair(QRCHuber, policy_kwargs={"optimizer_class": cls, "optimizer_kwargs": kwargs})
    steps = counted_steps(compiled)
    assert_same(updated(eager), updated(compiled))
    assert_same_state(eager, compiled)
    assert len(steps) == 1


class OwnAdam(th.optim.Adam):
    pass


OTHERS = {
    "sgd": (th.optim.SGD, {}),
    "rmsprop": (th.optim.RMSprop, {}),
    "amsgrad": (th.optim.Adam, {"amsgrad": True}),
    "maximize": (th.optim.Adam, {"maximize": True}),
    "own": (OwnAdam, {}),
}


@pytest.mark.parametrize("optimizer", OTHERS)
def test_other_optimisers_make_their_own_steps(optimizer, quick_backend):
    cls, kwargs = OTHERS[optimizer]
    eager, compiled = pair(
        QRCHuber, max_grad_norm=0.5, policy_kwargs={"optimizer_class": cls, "optimizer_kwargs": kwargs}
    )
    steps = counted_steps(compiled)
    assert_same(updated(eager, 10), updated(compiled, 10))
    assert_same_state(eager, compiled)
    assert len(steps) == 10
    assert_compiled(compiled)


def test_hooks_of_the_optimiser_are_called(quick_backend):
    eager, compiled = pair(QRCHuber)
    calls = []
    handle = compiled.policy.optimizer.register_step_post_hook(lambda *_: calls.append(1))
    updated(compiled, 5)
    handle.remove()
    updated(eager, 5)
    assert_same(updated(eager), updated(compiled))
    assert len(calls) == 5


def test_replaced_optimiser_state_is_noticed(quick_backend):
    eager, compiled = pair(QRCHuber, learning_rate=1e-2)
    other = updated(make_model(QRCHuber, seed=5), 3)
    for change in ("parameters", "cleared", "one"):
        for model in (eager, compiled):
            updated(model, 5)
            if change == "parameters":
                # torch's optimisers do not copy what they load.
                model.set_parameters(copy.deepcopy(other.get_parameters()))
            elif change == "cleared":
                model.policy.optimizer.state.clear()
            else:
                del model.policy.optimizer.state[model.q_net.h_net.bias]
        assert_same(updated(eager, 5), updated(compiled, 5))
        assert_same_state(eager, compiled)
    assert_compiled(compiled)


class WithSpareLayer(DoubleFlatten):
    """Has parameters that the loss does not depend on."""

    def __init__(self, observation_space):
        super().__init__(observation_space)
        self.spare = th.nn.Linear(2, 2)


def test_what_the_loss_does_not_depend_on_gets_no_state(quick_backend):
    eager, compiled = pair(QRCHuber, policy_kwargs={"features_extractor_class": WithSpareLayer})
    steps = counted_steps(compiled)
    assert_same(updated(eager), updated(compiled))
    assert_same_state(eager, compiled)
    assert len(steps) == 2
    assert len(compiled.policy.optimizer.state) == len(list(compiled.q_net.parameters())) - 2


@pytest.mark.parametrize("first", [False, True], ids=["eager_first", "compiled_first"])
def test_saved_in_one_mode_and_continued_in_the_other(first, tmp_path, quick_backend):
    def make(compile):
        kwargs = {"learning_rate": falling, "h_regularization_scale": "features", "max_grad_norm": 1.0}
        return QRCHuber("MlpPolicy", SpacesOnly(), seed=0, buffer_size=100, compile=compile, **kwargs)

    at_once = updated(updated(make(False), 20, single=True), 20, single=True)
    model = updated(make(first), 20, single=True)
    model.save(tmp_path / "model")
    loaded = QRCHuber.load(tmp_path / "model", env=SpacesOnly(), compile=not first)
    assert_same_state(loaded, model, atol=0)
    steps = counted_steps(loaded)
    updated(loaded, 20, single=True)
    assert_same(loaded, at_once, atol=1e-6)
    assert_same_state(loaded, at_once, atol=1e-5)
    assert len(steps) == (20 if first else 0), "the state that was loaded serves"


def test_numbers_that_are_not_finite_spread_as_eagerly(quick_backend):
    eager, compiled = pair(QRCHuber, max_grad_norm=1.0)
    for model in (updated(eager, 3), updated(compiled, 3)):
        batch = make_batch()
        model._update(batch._replace(rewards=batch.rewards / 0), model.update_settings())
    for x, y in zip(eager.q_net.parameters(), compiled.q_net.parameters(), strict=True):
        assert x.isnan().any()
        assert (x.isnan() == y.isnan()).all()


def test_generated_code_keeps_batch_norm_statistics():
    eager, compiled = pair(QRCHuber, policy_kwargs={"features_extractor_class": Normalised})
    assert_same(updated(eager), updated(compiled), atol=1e-5)
    assert_compiled(compiled)


def test_schedules_act_without_tracing_again(quick_backend):
    settings = {"learning_rate": lambda progress: 1e-2 * progress, "huber_threshold": lambda progress: 2.0 * progress}
    eager, compiled = pair(QRCHuber, **settings)
    fixed = make_model(QRCHuber, learning_rate=settings["learning_rate"], huber_threshold=2.0)
    assert_same(updated(eager), updated(compiled))
    assert_compiled(compiled)
    assert (updated(fixed).q_net.q_net[0].weight != eager.q_net.q_net[0].weight).any()


def test_truth_values_of_images_enter_as_floats(monkeypatch):
    entered = []

    def backend(graph, inputs):
        entered.extend(x.dtype for x in inputs)
        return graph

    monkeypatch.setattr(CompiledUpdate, "backend", staticmethod(backend))
    generator = th.Generator().manual_seed(0)
    images = [th.rand(8, 6, 6, 2, generator=generator) < 0.3 for _ in range(2)]
    batch = make_batch(8)
    batch = batch._replace(
        observations=images[0], next_observations=images[1], rewards=batch.rewards.float(), dones=batch.dones.float()
    )
    eager, compiled = (
        QRCHuber("CnnPolicy", SpaceEnv(Box(0, 1, (6, 6, 2), bool), n_actions=4), seed=0, compile=flag, buffer_size=100)
        for flag in (False, True)
    )
    for model in (eager, compiled):
        model.policy.set_training_mode(True)
        for _ in range(5):
            model._update(batch, model.update_settings())
    assert_same(eager, compiled, atol=1e-6)
    assert_compiled(compiled)
    assert th.bool not in entered
    assert batch.observations.dtype == th.bool


def test_another_batch_size_traces_again(quick_backend):
    eager, compiled = pair(QRCHuber)
    for batch_size, graphs in ((16, 1), (8, 2), (16, 2)):
        assert_same(updated(eager, 5, batch_size), updated(compiled, 5, batch_size))
        assert_compiled(compiled, graphs)


def test_whatever_is_baked_into_the_graph_traces_again(quick_backend):
    eager, compiled = pair(QRCHuber, learning_rate=1e-2)
    changes = [("gamma", 0.5), ("projection", "squared"), ("limit", "same_sign")]
    changes += [("h_target", "clipped"), ("h_averaging", "action")]
    for graphs, (name, value) in enumerate(changes, start=2):
        assert_same(updated(eager, 5), updated(compiled, 5))
        for model in (eager, compiled):
            setattr(model, name, value)
        assert_same(updated(eager, 5), updated(compiled, 5))
        assert_compiled(compiled, graphs)
    n_step = make_batch()._replace(discounts=th.full((16, 1), 0.3, dtype=th.float64))
    for model in (eager, compiled):
        model._compute_gradients(n_step, model.update_settings())
    th.testing.assert_close(eager.q_net.q_net[0].weight.grad, compiled.q_net.q_net[0].weight.grad)


def test_freezing_thawing_and_another_policy_are_noticed(quick_backend):
    eager, compiled = pair(QRCHuber, learning_rate=1e-2)
    for frozen in (False, True, False):
        for model in (eager, compiled):
            model.q_net.q_net[0].weight.requires_grad_(not frozen)
        before = compiled.q_net.q_net[0].weight.clone()
        assert_same(updated(eager, 5), updated(compiled, 5))
        assert (compiled.q_net.q_net[0].weight == before).all() == frozen
    for model in (eager, compiled):
        model.policy = copy.deepcopy(model.policy)
        model._create_aliases()
        model._compute_gradients(make_batch(), model.update_settings())
    th.testing.assert_close(eager.q_net.q_net[0].weight.grad, compiled.q_net.q_net[0].weight.grad)


@pytest.mark.parametrize("compile", [False, True], ids=["eager", "compiled"])
def test_models_can_be_copied_and_pickled_after_learning(compile):
    kwargs = {"learning_starts": 10, "train_freq": 1, "buffer_size": 100, "policy_kwargs": {"net_arch": [4]}}
    model = QRCHuber("MlpPolicy", "CartPole-v1", compile=compile, **kwargs).learn(30)
    for other in (copy.deepcopy(model), cloudpickle.loads(cloudpickle.dumps(model))):
        assert_same(other, model, atol=0)
        other.learn(20, reset_num_timesteps=False)
        assert other._n_updates == 40
        assert not compile or other._compiled.works


def test_discrete_observations_are_learned_eagerly_with_a_warning():
    model = QRCHuber("MlpPolicy", "FrozenLake-v1", learning_starts=10, train_freq=1, compile=True)
    with pytest.warns(UserWarning, match="Discrete observations cannot be compiled"):
        model.learn(30)
    assert model._n_updates == 20


class Normalised(FlattenExtractor):
    """A mode-dependent extractor."""

    def __init__(self, observation_space):
        super().__init__(observation_space)
        self.norm = th.nn.BatchNorm1d(self.features_dim)

    def forward(self, observations):
        return self.norm(super().forward(observations).double())


def test_batch_norm_statistics_and_modes(quick_backend):
    eager, compiled = pair(QRCHuber, policy_kwargs={"features_extractor_class": Normalised})
    assert_same(updated(eager), updated(compiled))
    assert_compiled(compiled)
    statistics = compiled.q_net.features_extractor.norm
    assert statistics.num_batches_tracked == 50
    for model in (eager, compiled):
        model.policy.set_training_mode(False)
        model._compute_gradients(make_batch(), model.update_settings())
    assert_compiled(compiled, 2)
    assert statistics.num_batches_tracked == 50
    for x, y in zip(eager.q_net.parameters(), compiled.q_net.parameters(), strict=True):
        th.testing.assert_close(x.grad, y.grad)


def test_gradient_clipping_and_frozen_parameters(quick_backend):
    eager, compiled = pair(QRCHuber, max_grad_norm=0.1)
    for model in (eager, compiled):
        model.q_net.q_net[0].weight.requires_grad_(False)
    before = compiled.q_net.q_net[0].weight.clone()
    assert_same(updated(eager), updated(compiled))
    assert (compiled.q_net.q_net[0].weight == before).all()


def test_saved_and_loaded_plain(tmp_path, quick_backend):
    kwargs = {"learning_starts": 10, "train_freq": 1, "policy_kwargs": {"net_arch": [4]}, "seed": 3}
    compiled = QRCHuber("MlpPolicy", "CartPole-v1", compile=True, **kwargs).learn(60)
    assert_compiled(compiled)
    compiled.save(tmp_path / "agent")
    loaded = QRCHuber.load(tmp_path / "agent", env=compiled.get_env())
    assert loaded.compile
    assert_same(loaded, compiled, atol=0)
    state, saved = loaded.policy.optimizer.state_dict(), compiled.policy.optimizer.state_dict()
    assert all((state["state"][i]["exp_avg_sq"] == x["exp_avg_sq"]).all() for i, x in saved["state"].items())
    loaded.learn(60, reset_num_timesteps=False)
    assert_compiled(loaded)
    # And without: what is saved does not depend on it.
    plain = QRCHuber.load(tmp_path / "agent", env=compiled.get_env(), compile=False)
    assert plain._compiled is None
    assert_same(plain, compiled, atol=0)


def test_diagnostics_are_those_of_the_eager_update(quick_backend):
    logs = []
    for compile in (False, True):
        kwargs = {"learning_starts": 10, "gradient_steps": 0, "policy_kwargs": {"net_arch": [4]}, "seed": 3}
        model = QRCHuber("MlpPolicy", "CartPole-v1", compile=compile, **kwargs).learn(60)
        model.set_random_seed(0)
        model.train(gradient_steps=2, batch_size=8)
        logs.append({name: x for name, x in model.logger.name_to_value.items() if name.startswith("train/")})
    assert logs[0].keys() == logs[1].keys()
    assert logs[1] == pytest.approx(logs[0], rel=1e-5)


def test_a_failing_backend_warns_once_and_goes_on(monkeypatch):
    def no_compiler(graph, inputs):
        raise RuntimeError("no compiler was found")

    monkeypatch.setattr(CompiledUpdate, "backend", staticmethod(no_compiler))
    eager, compiled = pair(QRCHuber)
    with pytest.warns(UserWarning, match=r"compile=True is ignored.*Install a C\+\+ compiler"):
        updated(compiled, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        updated(compiled, 3, batch_size=8)
    updated(eager, 2)
    assert_same(updated(eager, 3, batch_size=8), compiled)


def test_a_machine_without_a_compiler_warns_and_learns(tmp_path):
    program = """if True:
        from sb3_robust_be import QRCHuber
        model = QRCHuber("MlpPolicy", "CartPole-v1", learning_starts=10, train_freq=1, compile=True).learn(30)
        print(model._n_updates, model._compiled.works)
    """
    nothing = str(tmp_path / "no-such-compiler")
    environment = os.environ | {"CXX": nothing, "CC": nothing, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["20", "False"], done.stderr
    assert done.stderr.count("compile=True is ignored") == 1


# What a graph cannot know of the call that it is made for


def test_batches_of_another_type_have_a_graph_of_their_own():
    """Generated code would take their memory for that of the type it was made for."""
    models = pair(QRCHuber)
    for model in models:
        updated(model, 4)
        model._logger = Silent()
        for i in range(4):
            batch = make_batch(16, seed=i)
            wide = batch.observations.dtype == th.float64
            other = {
                name: getattr(batch, name).to(th.float32 if wide else th.float64)
                for name in ("observations", "next_observations")
            }
            model._update(batch._replace(**other), model.update_settings())
    assert_same(*models, atol=1e-6)
    assert_compiled(models[1], graphs=2)


def test_frozen_parameters_stay_with_a_target_network(quick_backend):
    for model in pair(QRCHuber, target_update_interval=10):
        frozen = next(iter(model.q_net.parameters()))
        frozen.requires_grad_(False)
        before = frozen.clone()
        updated(model, 6)
        assert th.equal(frozen, before)


def double_step(model):
    step = model.policy.optimizer.step
    model.policy.optimizer.step = lambda *args: (step(*args), step(*args))


def double_gradient(model):
    model.q_net.h_net.weight.register_hook(lambda gradient: 2 * gradient)


def halved_once_accumulated(model):
    def halve(parameter):
        parameter.grad.mul_(0.5)

    model.q_net.h_net.bias.register_post_accumulate_grad_hook(halve)


@pytest.mark.parametrize("change", [double_step, double_gradient, halved_once_accumulated])
def test_what_a_user_puts_around_a_step_acts(change, quick_backend):
    models, unchanged = pair(QRCHuber), updated(make_model(QRCHuber), 6)
    for model in models:
        change(model)
        updated(model, 6)
    assert_same(*models)
    with pytest.raises(AssertionError):
        assert_same(models[1], unchanged)


def test_hooks_of_every_optimiser_are_called(quick_backend):
    calls = []
    handle = register_optimizer_step_post_hook(lambda *_: calls.append(1))
    try:
        updated(make_model(QRCHuber, compile=True), 4)
    finally:
        handle.remove()
    assert len(calls) == 4


def test_autocast_is_no_part_of_a_graph_for_others(quick_backend):
    models = pair(QRCHuber)
    for model in models:
        with th.autocast("cpu", th.bfloat16):
            updated(model, 3)
        updated(model, 3)
    assert_same(*models, atol=1e-8)
    assert_compiled(models[1], graphs=2)


def test_the_compiler_is_not_given_the_inputs_of_the_tracing(monkeypatch):
    """torch 2.8 takes them for those of the call and then compiles nothing."""
    graph = make_fx(lambda x: x + 1)(th.ones(2))

    def noted(graph):
        return [node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder")]

    assert noted(graph) != [None]
    monkeypatch.setattr(_inductor, "standalone_compile", lambda graph, *_, **__: noted(graph))
    assert generate_code(graph, [th.ones(2)]) == [None]
