"""How ``train()`` treats the network, the optimiser's groups, the norms and the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from small_envs import RewardEnv, SpaceEnv, images, vector_and_code
from small_models import BatchNormExtractor, every_algorithm, make, parameters, those_with
from torch.utils._python_dispatch import TorchDispatchMode

pytestmark = pytest.mark.filterwarnings("error::UserWarning")


class CountReads(TorchDispatchMode):
    """Counts what makes a program wait for its device: ``item()``, ``float()``, ``if tensor`` and the like."""

    def __init__(self):
        super().__init__()
        self.reads = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.reads += func is th.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("max_grad_norm", [None, 1.0])
@every_algorithm
def test_updates_do_not_read_the_device(algorithm, max_grad_norm):
    model = make(algorithm, max_grad_norm=max_grad_norm).learn(20)
    with CountReads() as control:
        float(th.ones(1))
    assert control.reads == 1
    with CountReads() as counter:
        model.train(gradient_steps=25, batch_size=8)
    assert counter.reads <= 1, "the gradient's norm, for the log"
    with CountReads() as counter:
        model.learn(25, log_interval=None)
    assert counter.reads <= 1, "as much for 15 calls of train(), at the end"
    assert model._n_updates == 10 + 25 + 15


@pytest.mark.parametrize(
    ("space", "policy"),
    [
        (SpaceEnv(vector_and_code()).observation_space, "MultiInputPolicy"),
        (images(10, 10, 2), "CnnPolicy"),
        (images(36, 36, 1), "CnnPolicy"),
    ],
    ids=["dict", "small_image", "image"],
)
@every_algorithm
def test_one_pass_serves_both_observations(algorithm, space, policy):
    model = make(algorithm, SpaceEnv(space), policy).learn(12)
    passes = []
    model.q_net.features_extractor.register_forward_hook(lambda *args: passes.append(args[-1].shape[0]))
    model.train(gradient_steps=3, batch_size=8)
    assert passes == [16, 16, 16]


@every_algorithm
def test_one_pass_updates_batch_statistics_once(algorithm):
    model = make(algorithm, policy_kwargs={"features_extractor_class": BatchNormExtractor}).learn(12)
    norm = model.q_net.features_extractor.net[1]
    before = int(norm.num_batches_tracked)
    model.train(gradient_steps=5, batch_size=8)
    assert int(norm.num_batches_tracked) == before + 5


def step_sizes(algorithm, **kwargs):
    """Norms of one SGD step of rate 1: values, secondary head."""
    kwargs |= {"learning_rate": 1.0, "h_regularization": 0.0, "policy_kwargs": {"optimizer_class": th.optim.SGD}}
    model = make(algorithm, RewardEnv(1000.0), gradient_steps=0, **kwargs)
    with th.no_grad():
        model.q_net.h_net.bias.fill_(1.0)  # without which a saddlepoint's first step is zero
    model.learn(11)
    before = parameters(model)
    model.train(gradient_steps=1, batch_size=8)
    moved = {name: value - before[name] for name, value in parameters(model).items()}
    heads = [[v for k, v in moved.items() if ("h_net" in k) == secondary] for secondary in (False, True)]
    return [float(th.nn.utils.get_total_norm(head)) for head in heads]


@those_with("h_regularization")
def test_no_gradient_clipping_by_default(algorithm):
    values, secondary = step_sizes(algorithm)
    assert step_sizes(algorithm, max_grad_norm=None) == [values, secondary]
    assert secondary > 100.0


@those_with("h_regularization")
def test_values_and_secondary_head_are_clipped_apart(algorithm):
    np.testing.assert_allclose(step_sizes(algorithm, max_grad_norm=0.1), [0.1, 0.1], rtol=1e-3)
    # A limit beyond both norms changes nothing.
    assert step_sizes(algorithm, max_grad_norm=1e9) == step_sizes(algorithm)


@those_with("h_learning_rate_ratio")
def test_learning_rate_ratio_survives_the_schedule(algorithm):
    rates = []

    def watch(*_):
        rates.append([group["lr"] for group in model.policy.optimizer.param_groups])
        return True

    model = make(algorithm, learning_rate=lambda remaining: 0.01 * remaining, h_learning_rate_ratio=0.25)
    model.learn(20, callback=watch)
    np.testing.assert_allclose(rates[11:], [[0.01 * x, 0.0025 * x] for x in 1 - np.arange(11, 20) / 20])


@those_with("h_regularization", "h_learning_rate_ratio")
def test_regularisation_pulls_weight_and_bias_inside_the_gradient(algorithm):
    """Zero rewards and values: all that moves the head's parameters x is x ← x − ηα(∇L_h + βx)."""

    def moved(regularization):
        sgd = {"optimizer_class": th.optim.SGD, "net_arch": []}
        kwargs = {"learning_rate": 0.1, "h_learning_rate_ratio": 0.5, "h_regularization": regularization}
        model = make(algorithm, RewardEnv(0.0), gradient_steps=0, policy_kwargs=sgd, **kwargs).learn(11)
        with th.no_grad():
            for parameter in model.q_net.h_net.parameters():
                parameter.fill_(0.5)
        model.train(gradient_steps=1, batch_size=8)
        return model.q_net.h_net.weight, model.q_net.h_net.bias

    for plain, regularised in zip(moved(0.0), moved(3.0), strict=True):
        th.testing.assert_close(regularised, plain - 0.05 * 3.0 * 0.5)


@those_with("h_regularization")
@pytest.mark.parametrize("optimizer_class", [th.optim.AdamW, th.optim.NAdam])
def test_regularisation_is_never_decoupled(algorithm, optimizer_class):
    """A decoupled decay of β = 1 moves a parameter x by αβx, one inside Adam's gradient by about α, whatever x."""
    kwargs = {"optimizer_kwargs": {"weight_decay": 0.5}, "optimizer_class": optimizer_class}
    model = make(algorithm, gradient_steps=0, h_regularization=1.0, policy_kwargs=kwargs).learn(11)
    values, secondary = model.policy.optimizer.param_groups
    assert (values["weight_decay"], secondary["weight_decay"]) == (0.5, 1.0)
    assert values["decoupled_weight_decay"] == (optimizer_class is th.optim.AdamW), "the values' decay is the user's"
    assert not secondary["decoupled_weight_decay"]
    with th.no_grad():
        model.q_net.h_net.weight.fill_(1e6)
    model.train(gradient_steps=1, batch_size=8)
    assert (model.q_net.h_net.weight - 1e6).abs().max() < 10.0
