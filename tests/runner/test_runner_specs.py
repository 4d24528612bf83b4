"""Specs are canonical JSON, and ids are made from it alone."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_robust_be.runner import run_id
from sb3_robust_be.runner.shards import units_of_shard
from sb3_robust_be.runner.specs import dumps, loads

SPEC = {
    "function": "some.module:run",
    "env": "CliffWorld-v0",
    "seed": 3,
    "alpha": 0.001,
    "kappa": math.inf,
    "settings": {"ü": "é", "hidden": (32, 32.0, None, True)},
}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text().filter(lambda key: key != "$float"), inner),
    max_leaves=10,
)


def test_golden_id():
    """``sha256sum`` of the text below: ids must not change, or finished runs would be made again."""
    text = (
        '{"alpha":0.001,"env":"CliffWorld-v0","function":"some.module:run","kappa":{"$float":"inf"},"seed":3,'
        '"settings":{"hidden":[32,32.0,null,true],"\\u00fc":"\\u00e9"}}'
    )
    assert dumps(SPEC, "spec") == text
    assert run_id(SPEC) == "1238d2b4050f4b16"


def test_the_id_depends_on_values_and_on_nothing_else():
    shuffled = dict(reversed(SPEC.items())) | {"seed": np.int64(3), "alpha": np.float64(0.001)}
    shuffled["settings"] = {"hidden": [32, 32.0, None, np.True_], "ü": "é"}
    assert run_id(shuffled) == run_id(SPEC)
    for name, value in (("seed", 4), ("seed", 3.0), ("seed", "3"), ("kappa", -math.inf), ("more", None)):
        assert run_id(SPEC | {name: value}) != run_id(SPEC)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text().filter(lambda key: key != "$float"), VALUES))
def test_specs_survive_json(spec):
    text = dumps(spec, "spec")
    assert dumps(loads(text), "spec") == text
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    np.testing.assert_equal(loads(text), spec)


def test_numpy_becomes_python():
    value = {"a": np.array([[1.5, np.nan]]), "b": np.float32(0.5), "c": np.arange(2), "d": np.bool_(False)}
    np.testing.assert_equal(loads(dumps(value, "result")), {"a": [[1.5, np.nan]], "b": 0.5, "c": [0, 1], "d": False})


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"settings": {"loss": {1, 2}}}, r"spec\['settings'\]\['loss'\] is {1, 2}, of type set; give"),
        ({"nets": [1, len]}, r"spec\['nets'\]\[1\] is <built-in function len>, of type builtin_function"),
        ({"phase": 1j}, r"spec\['phase'\] is 1j, of type complex"),
        ({1: 2}, r"spec has the key 1; give strings"),
        ({"x": {"$float": "nan"}}, r"spec\['x'\] has the key '\$float'"),
    ],
)
def test_what_is_not_json_is_named(bad, message):
    with pytest.raises(TypeError, match=message):
        run_id(bad)


def one(seed, function="m:f"):
    return {"function": function, "seed": seed}


def test_a_run_is_planned_once():
    units = [[one(0), one(1)], [one(1), one(2), one(2)], [one(0)]]
    assert units_of_shard(units) == [[one(0), one(1)], [one(2)]]


@pytest.mark.parametrize("count", [1, 3, 20])
def test_shards_are_a_partition_in_order(count):
    units = [[one(seed), one(-1 - seed)] for seed in range(10)]
    shards = [units_of_shard(units, f"{index + 1}/{count}") for index in range(count)]
    assert sorted((unit for shard in shards for unit in shard), key=lambda unit: unit[0]["seed"]) == units
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "1/0", "-1/2", "a/b", "1/2/3", ""])
def test_bad_shards(shard):
    with pytest.raises(ValueError, match=f"shard is {shard!r}; give 'i/n'"):
        units_of_shard([[one(0)]], shard)


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        ([], "A unit is empty"),
        ([one(0), one(1, "m:g")], "is m:f, m:g in one unit"),
        ([{"seed": 0}], "is None in one unit"),
        ([one(0, "module.function")], "is module.function in one unit"),
    ],
)
def test_bad_units(unit, message):
    with pytest.raises(ValueError, match=message):
        units_of_shard([unit])
