"""QR-DQN's loss in our runs: sb3-contrib's, compiled where a run is long."""

import numpy as np
import pytest
import torch as th
from sb3_contrib.qrdqn import qrdqn

from sb3_robust_be.experiments.control import quantile_loss, training
from sb3_robust_be.experiments.control.quantile_loss import compiled_quantile_loss
from sb3_robust_be.experiments.control.training import SINGLE, control_spec
from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.experiments.run_functions import run_units

EAGER = qrdqn.quantile_huber_loss


def test_values_and_gradients_are_those_of_sb3_contrib():
    target = th.randn(8, 25, generator=th.Generator().manual_seed(1)) * 3.0
    found = {}
    for name in ("eager", "compiled"):
        quantiles = th.randn(8, 25, generator=th.Generator().manual_seed(0)).requires_grad_()
        if name == "eager":
            loss = EAGER(quantiles, target, sum_over_quantiles=True)
        else:
            with compiled_quantile_loss():
                assert qrdqn.quantile_huber_loss is not EAGER
                loss = qrdqn.quantile_huber_loss(quantiles, target, sum_over_quantiles=True)
        loss.backward()
        found[name] = loss.item(), quantiles.grad.numpy()
    assert qrdqn.quantile_huber_loss is EAGER
    np.testing.assert_allclose(found["compiled"][0], found["eager"][0], rtol=1e-5)
    np.testing.assert_allclose(found["compiled"][1], found["eager"][1], rtol=1e-4, atol=1e-6)


def test_several_runs_at_a_time(monkeypatch):
    monkeypatch.setattr(quantile_loss, "_compiled", lambda loss: lambda *a, **k: loss(*a, **k))
    first, second = compiled_quantile_loss(), compiled_quantile_loss()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert qrdqn.quantile_huber_loss is not EAGER
    second.__exit__(None, None, None)
    assert qrdqn.quantile_huber_loss is EAGER


def test_where_it_cannot_be_compiled_it_is_as_it_was(monkeypatch):
    def broken(loss, **_):
        def raises(*arguments, **options):
            raise RuntimeError("no g++")

        return raises

    monkeypatch.setattr(th, "compile", broken)
    with pytest.warns(UserWarning, match="no g\\+\\+.*Install a C\\+\\+ compiler"), compiled_quantile_loss():
        assert qrdqn.quantile_huber_loss is EAGER


@pytest.mark.parametrize(("compiled_from", "is_compiled"), [(200, True), (201, False)])
def test_long_runs_have_it(compiled_from, is_compiled, tmp_path, monkeypatch):
    used = []

    def counted(loss):
        def calls(*arguments, **options):
            used.append(1)
            return loss(*arguments, **options)

        return calls

    monkeypatch.setattr(training, "COMPILED_FROM", compiled_from)
    monkeypatch.setattr(quantile_loss, "_compiled", counted)
    arguments = {"learning_starts": 50, "train_freq": 10, "batch_size": 4, "policy_kwargs": {"net_arch": [4]}}
    spec = control_spec("qrdqn", "CartPole-v1", 200, 0, arguments, function=SINGLE)
    assert run_units([[spec]], tmp_path, executor="serial", progress=False).done == 1
    assert bool(used) is is_compiled
    own = Results(tmp_path).arrays(spec)["curve"]
    monkeypatch.setattr(training, "COMPILED_FROM", 10**9)
    assert run_units([[spec]], tmp_path / "again", executor="serial", progress=False).done == 1
    np.testing.assert_array_equal(own, Results(tmp_path / "again").arrays(spec)["curve"])
