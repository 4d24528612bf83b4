"""Numbers of numpy's, as they come out of arrays and searches, are numbers."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
from small_models import assert_same_parameters, every_algorithm, make, reloaded

pytestmark = pytest.mark.filterwarnings("error::UserWarning")
SETTINGS = {
    **{"learning_rate": np.float32(2.0**-9), "buffer_size": np.int64(300), "learning_starts": np.int32(12)},
    **{"batch_size": np.int16(8), "gamma": np.float64(0.9), "gradient_steps": np.int64(2), "n_steps": np.int64(1)},
    **{"exploration_fraction": np.float32(0.5), "exploration_final_eps": np.float32(0.25), "seed": np.int64(3)},
    **{"max_grad_norm": np.float32(4.0), "stats_window_size": np.int64(3), "verbose": np.int64(0)},
    **{"h_regularization": np.float32(0.5), "h_learning_rate_ratio": np.float32(2.0)},
}
PLAIN = {name: value.item() for name, value in SETTINGS.items()}


@pytest.mark.parametrize("train_freq", [2, (2, "step"), (1, "episode")])
@every_algorithm
def test_numpy_numbers_are_numbers(algorithm, train_freq, tmp_path):
    """The same run bit for bit, before and after a file, which holds them as JSON does."""
    numpys = (np.int64(train_freq[0]), train_freq[1]) if isinstance(train_freq, tuple) else np.int64(train_freq)
    model = make(algorithm, train_freq=numpys, **SETTINGS).learn(40)
    plain = make(algorithm, train_freq=train_freq, **PLAIN).learn(40)
    assert_same_parameters(model, plain)
    assert model.train_freq == plain.train_freq
    loaded = reloaded(model, tmp_path / "model").learn(20)
    assert_same_parameters(loaded, reloaded(plain, tmp_path / "plain").learn(20))
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        data = json.loads(archive.read("data"))
    kept = {name: value for name, value in PLAIN.items() if name != "stats_window_size"}
    assert {name: data[name] for name in kept} == kept
    assert data["_stats_window_size"] == 3


@every_algorithm
def test_numpy_seeds(algorithm, tmp_path):
    model, plain = make(algorithm, seed=None), make(algorithm, seed=None)
    model.set_parameters(plain.get_parameters())
    model.set_random_seed(np.int64(7))
    model.learn(20)
    plain.set_random_seed(7)
    plain.learn(20)
    assert_same_parameters(model, plain)
    assert_same_parameters(
        reloaded(model, tmp_path / "model", seed=np.uint32(5)).learn(20),
        reloaded(model, tmp_path / "model", seed=5).learn(20),
    )
