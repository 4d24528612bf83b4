"""Adam's step by the kernel alone is torch's own, bit for bit, or it is left to torch."""

from __future__ import annotations

import copy

import pytest
import torch as th
from torch.optim.optimizer import register_optimizer_step_post_hook
from two_heads import SpacesOnly, make_batch

from sb3_robust_be import QRC, QRCHuber
from sb3_robust_be.qrc import dqn
from sb3_robust_be.qrc.adam import fused_step

SHAPES = ((3, 4), (4,), (2, 4), ())
OPTIMIZERS = {
    "adam": (th.optim.Adam, {}),
    "adamw": (th.optim.AdamW, {"weight_decay": 0.1}),
    "settings": (th.optim.Adam, {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.3}),
    "decoupled": (th.optim.Adam, {"decoupled_weight_decay": True, "weight_decay": 0.3}),
}


def two_groups(cls=th.optim.Adam, dtype=th.float32, lr=1e-2, **kwargs):
    """Parameters in two groups, of which the second has its own learning rate and decay, and their optimiser."""
    generator = th.Generator().manual_seed(0)
    parameters = [th.nn.Parameter(th.randn(shape, generator=generator).to(dtype)) for shape in SHAPES]
    groups = [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.5 * lr, "weight_decay": 1.0}]
    return parameters, cls(groups, lr=lr, **{"fused": True, **kwargs})


def give_gradients(parameters, seed):
    generator = th.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = th.randn(parameter.shape, generator=generator).to(parameter.dtype)


def assert_equal(mine, torchs):
    for x, y in zip(mine[0], torchs[0], strict=True):
        assert th.equal(x, y)
    mine, torchs = (side[1].state_dict() for side in (mine, torchs))
    assert mine["param_groups"] == torchs["param_groups"]
    assert mine["state"].keys() == torchs["state"].keys()
    for i, state in mine["state"].items():
        assert state.keys() == torchs["state"][i].keys()
        assert all(th.equal(x, torchs["state"][i][name]) for name, x in state.items())


@pytest.mark.parametrize("dtype", [th.float32, th.float64], ids=str)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_steps_are_torchs(kind, dtype):
    cls, kwargs = OPTIMIZERS[kind]
    mine, torchs = (two_groups(cls, dtype, **kwargs) for _ in range(2))
    before = [x.detach().clone() for x in mine[0]]
    for i in range(20):
        for parameters, optimizer in (mine, torchs):
            give_gradients(parameters, i)
            optimizer.param_groups[0]["lr"] = 1e-2 / (1 + i)
            if optimizer is torchs[1]:
                optimizer.step()
            elif not fused_step(optimizer):
                assert i == 0, "torch's own makes the state"
                optimizer.step()
        assert_equal(mine, torchs)
    assert all((x - y).abs().min() > 1e-3 for x, y in zip(mine[0], before, strict=True))
    assert all(state["step"] == 20 for state in mine[1].state.values())


def test_parameters_without_a_gradient_stay():
    mine, torchs = two_groups(), two_groups()
    for i in range(4):
        for parameters, optimizer in (mine, torchs):
            give_gradients(parameters, i)
            if i % 2:
                parameters[1].grad = None
                parameters[3].grad = None
            if optimizer is torchs[1] or not fused_step(optimizer):
                optimizer.step()
    assert_equal(mine, torchs)
    assert [int(mine[1].state[p]["step"]) for p in mine[0]] == [4, 2, 4, 2]


def test_a_group_without_gradients_stays_and_none_at_all_is_left_to_torch():
    mine, torchs = two_groups(), two_groups()
    for i in range(3):
        for parameters, optimizer in (mine, torchs):
            give_gradients(parameters, i)
            if i == 1:
                parameters[2].grad = parameters[3].grad = None
            if optimizer is torchs[1] or not fused_step(optimizer):
                assert i == 0 or optimizer is torchs[1]
                optimizer.step()
    assert_equal(mine, torchs)
    mine[1].zero_grad()
    assert not fused_step(mine[1])


def test_one_that_has_no_state_yet_is_left_to_torch():
    parameters, optimizer = two_groups()
    give_gradients(parameters, 0)
    parameters[3].grad = None
    optimizer.step()
    give_gradients(parameters, 1)
    before = [x.detach().clone() for x in parameters]
    assert not fused_step(optimizer)
    assert all(th.equal(x, y) for x, y in zip(parameters, before, strict=True))
    assert [float(optimizer.state[p]["step"]) for p in parameters[:3]] == [1, 1, 1]
    assert parameters[3] not in optimizer.state


OTHERS = {
    "not fused": {"fused": False},
    "by default": {"fused": None},
    "amsgrad": {"amsgrad": True},
    "maximize": {"maximize": True},
    "capturable": {"capturable": True},
    "sgd": {"cls": th.optim.SGD},
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_optimisers_are_left_alone(kind):
    parameters, optimizer = two_groups(**OTHERS[kind])
    for i in range(2):
        give_gradients(parameters, i)
        assert not fused_step(optimizer)
        optimizer.step()


def test_hooks_another_step_and_two_dtypes_are_left_to_torch():
    parameters, optimizer = two_groups()
    give_gradients(parameters, 0)
    optimizer.step()
    assert fused_step(optimizer)
    for register in (optimizer.register_step_pre_hook, register_optimizer_step_post_hook):
        handle = register(lambda *_: None)
        assert not fused_step(optimizer)
        handle.remove()
    # A learning-rate scheduler counts the steps by putting itself before them.
    th.optim.lr_scheduler.ConstantLR(optimizer)
    assert not fused_step(optimizer)
    del optimizer.step
    assert fused_step(optimizer)
    parameters[0].data, parameters[0].grad = parameters[0].data.double(), None
    parameters[0].grad = th.ones(SHAPES[0], dtype=th.float64)
    assert not fused_step(optimizer)


def learned(monkeypatch=None, cls=QRCHuber, updates=30, model=None, **kwargs):
    """A model after updates, by torch's own steps if there is a ``monkeypatch``."""
    if monkeypatch is not None:
        monkeypatch.setattr(dqn, "fused_step", lambda optimizer: False)
    model = model or cls("MlpPolicy", SpacesOnly(), seed=0, buffer_size=100, **kwargs)
    model.policy.set_training_mode(True)
    for i in range(updates):
        model._current_progress_remaining = 1 - i / updates
        model._update_learning_rate(model.policy.optimizer)
        batch = make_batch(seed=i)
        model._update(batch._replace(rewards=batch.rewards.float(), dones=batch.dones.float()), model.update_settings())
    if monkeypatch is not None:
        monkeypatch.undo()
    return model


def assert_same_model(one, other):
    assert_equal(*((list(m.policy.parameters()), m.policy.optimizer) for m in (one, other)))


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"learning_rate": lambda progress: 1e-2 * progress, "h_learning_rate_ratio": 0.25, "max_grad_norm": 0.5},
        {"h_decoupled_weight_decay": True, "learning_rate": 1e-2},
        {"h_regularization_scale": "features"},
        {"policy_kwargs": {"optimizer_class": th.optim.AdamW, "optimizer_kwargs": {"weight_decay": 0.1}}},
        {"policy_kwargs": {"optimizer_kwargs": {"eps": 1e-3, "fused": False}}},
    ],
    ids=["default", "scheduled", "decoupled", "features", "adamw", "not_fused"],
)
@pytest.mark.parametrize("cls", [QRC, QRCHuber])
def test_models_learn_what_they_learned_with_torchs_step(cls, kwargs, monkeypatch):
    with_torchs = learned(monkeypatch, cls, **kwargs)
    calls = []
    kernel = dqn.fused_step
    monkeypatch.setattr(dqn, "fused_step", lambda optimizer: (calls.append(kernel(optimizer)), calls[-1])[1])
    mine = learned(cls=cls, **kwargs)
    assert_same_model(mine, with_torchs)
    not_fused = kwargs.get("policy_kwargs", {}).get("optimizer_kwargs", {}).get("fused") is False
    assert calls == [False] + 29 * [not not_fused]


def test_a_file_in_which_adam_is_not_fused_loads_and_learns_on(tmp_path, monkeypatch):
    """The groups of a file, as before fused steps were the default, take the place of the model's own."""
    saved = learned(updates=5)
    for group in saved.policy.optimizer.param_groups:
        group["fused"] = None
    saved.save(tmp_path / "model")
    loaded = QRCHuber.load(tmp_path / "model", env=SpacesOnly())
    assert [group["fused"] for group in loaded.policy.optimizer.param_groups] == [None, None]
    assert_same_model(learned(model=loaded), learned(model=copy.deepcopy(saved)))


def test_saved_and_learned_on(tmp_path):
    at_once = learned(model=learned(updates=5))
    learned(updates=5).save(tmp_path / "model")
    assert_same_model(learned(model=QRCHuber.load(tmp_path / "model", env=SpacesOnly())), at_once)
