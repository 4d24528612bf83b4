"""Numbers of the wrong kind or out of range, and a switch that is not one."""

from __future__ import annotations

import re

import pytest
from small_models import every_algorithm, make

from sb3_robust_be import QLC, SBEED, Population, SquaredDQN


@pytest.mark.parametrize("name", ["target_update_interval", "n_steps", "batch_size"])
@pytest.mark.parametrize("value", [2.5, True, float("nan")])
@every_algorithm
def test_counts_are_integers(algorithm, name, value):
    with pytest.raises(TypeError, match=re.escape(f"{name} must be an integer and is {value!r}")):
        make(algorithm, **{name: value})


@pytest.mark.parametrize("value", [0, -3])
@every_algorithm
def test_batches_have_a_size(algorithm, value):
    with pytest.raises(ValueError, match=f"batch_size must be at least 1 and is {value}"):
        make(algorithm, batch_size=value)


@pytest.mark.parametrize("value", [-1.0, 2, float("nan")])
@every_algorithm
def test_gamma_out_of_range(algorithm, value):
    with pytest.raises(ValueError, match=f"gamma must .*{value}"):
        make(algorithm, gamma=value)
    assert make(algorithm, gamma=1.0).gamma == 1.0


NONSENSE = {
    "buffer_size": [0, 2.5],
    "learning_starts": [-5, None, float("nan")],
    "tau": [2, -0.1],
    "exploration_fraction": [7, -1, None],
    "exploration_initial_eps": [-0.01, "0.1"],
    "exploration_final_eps": [-0.01],
    "train_freq": [0, 1.5, "4", (0, "step"), (4, "steps"), (1, 2, 3), None],
    "gradient_steps": [-2, 0.5, True],
    "learning_rate": [-1e-3, float("nan"), float("inf")],
}
every_nonsense = pytest.mark.parametrize(("name", "value"), [(name, x) for name, of in NONSENSE.items() for x in of])


@every_nonsense
@pytest.mark.parametrize("algorithm", [QLC, SBEED, SquaredDQN])
def test_arguments_of_dqn_out_of_range(algorithm, name, value):
    """SB3 takes them."""
    with pytest.raises((TypeError, ValueError), match=rf"^{name} must .* is .+\. \S"):
        algorithm("MlpPolicy", "CartPole-v1", **{"device": "cpu", "buffer_size": 10, name: value})


@every_nonsense
@pytest.mark.parametrize("algorithm", ["dqn", "qlc"])
def test_arguments_of_dqn_out_of_range_in_a_population(algorithm, name, value):
    with pytest.raises((TypeError, ValueError), match=rf"^{name} must "):
        Population(algorithm, "MlpPolicy", "CartPole-v1", [0], device="cpu", **{name: value})


@pytest.mark.parametrize("algorithm", [QLC, SquaredDQN])
def test_what_is_loaded_is_checked_as_what_is_made(algorithm, tmp_path):
    made = algorithm("MlpPolicy", "CartPole-v1", device="cpu", buffer_size=10, train_freq=(1, "episode"))
    made.save(tmp_path / "model")
    assert algorithm.load(tmp_path / "model", device="cpu").train_freq.frequency == 1
    with pytest.raises(ValueError, match="tau must be from 0 to 1 and is 7"):
        algorithm.load(tmp_path / "model", device="cpu", tau=7)


@every_algorithm
def test_compile_is_a_switch(algorithm):
    with pytest.raises(TypeError, match="compile must be True, False or 'bfloat16' and is 'False'"):
        make(algorithm, compile="False")
