"""Numbers of the wrong kind or out of range, and a switch that is not one."""

from __future__ import annotations

import re

import pytest
from small_models import every_algorithm, make


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


@every_algorithm
def test_compile_is_a_switch(algorithm):
    with pytest.raises(TypeError, match="compile must be True or False and is 'False'"):
        make(algorithm, compile="False")
