"""Parts of mappings, and arrays as text."""

from __future__ import annotations

import numpy as np
import pytest
from sb3_robust_be.experiments.parts import (
    Noted,
    NotPublishedError,
    Part,
    array_from_json,
    array_to_json,
    from_columns,
    to_columns,
)

from sb3_robust_be.experiments.specs import dumps, loads


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.0, np.nan, np.inf, -np.inf, 1.0 / 3.0, -1e-300, 0.0]),
        np.linspace(0.0, 1.0, 24).reshape(2, 3, 4) ** 3,
        np.array([0.1, 1.0 / 3.0], dtype=np.float32),
        np.array([[1, -2], [3, 2**40]]),
        np.array([True, False]),
        np.array(3),
        np.array(0.1),
        np.zeros((0, 3)),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_come_back(array):
    back = array_from_json(loads(dumps(array_to_json(array, None), "array")))
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)


def test_digits_are_significant_ones():
    assert array_to_json(np.array([123456.0, 0.00123456, np.nan]), 4)[2] == "1.235e+05 0.001235 nan"
    assert array_to_json(np.array([123456]), 4)[2] == "123456"


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1j]), np.array([None])])
def test_other_arrays_are_refused(array):
    with pytest.raises(ValueError, match="cannot be published; give numbers or booleans"):
        array_to_json(array, None)


def read(source, reading):
    part = Part()
    reading(Noted(source, part))
    return part


SOURCE = {"b": 1.5, "a": {"x": 1, "y": {"z": None}}, "c": [1, {"d": 2}]}


def test_a_part_knows_what_was_read():
    part = read(SOURCE, lambda noted: (noted["a"]["x"], noted["c"]))
    assert part["a"]["x"] == 1
    assert part["c"] == [1, {"d": 2}]
    for ask in (
        lambda: part["b"],
        lambda: part["a"]["y"],
        lambda: len(part),
        lambda: list(part["a"]),
        lambda: "q" in part,
    ):
        with pytest.raises(NotPublishedError):
            ask()


def test_a_mapping_that_is_listed_is_known_as_a_whole_and_in_order():
    part = read(SOURCE, lambda noted: (noted["c"], list(noted)))
    assert list(part) == ["b", "a", "c"]
    assert part["a"]["y"]["z"] is None
    assert part.get("absent") is None
    with pytest.raises(KeyError):
        part["absent"]


def test_runs_of_one_structure_share_it():
    parts = {
        f"run {i}": read({"a": {"x": i}, "b": 2.0 * i}, lambda noted: (noted["b"], noted["a"]["x"])) for i in range(3)
    }
    parts["other"] = read(SOURCE, dict)
    parts["nothing"] = Part()
    columns = loads(dumps(to_columns(parts, lambda value: value), "columns"))
    assert sorted(len(group["runs"]) for group in columns) == [1, 1, 3]
    back = from_columns(columns, lambda value: value)
    assert set(back) == set(parts)
    assert (back["run 2"]["a"]["x"], back["run 2"]["b"]) == (2, 4.0)
    assert list(back["other"]) == list(SOURCE)
    with pytest.raises(NotPublishedError):
        back["run 1"]["c"]
    with pytest.raises(NotPublishedError):
        back["nothing"]["a"]
