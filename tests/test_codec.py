"""What JSON lacks is tagged, and comes back as it was."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from torch import nn

from sb3_robust_be.codec import OBJECTS, from_json, import_name, to_json
from sb3_robust_be.population import Member, storage


def round_trip(value, tags=OBJECTS, tagged=lambda value: None):
    return from_json(json.loads(json.dumps(to_json(value, "value", tagged), allow_nan=False)), tags)


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 0.1, "text", [], {}, [1, [2.5, None]], {"a": {"b": math.inf}}, {"$": 1}, {"__import__": 1, "b": 2}],
)
def test_plain_values(value):
    assert round_trip(value) == value


def test_numbers_that_json_lacks():
    assert math.isnan(round_trip(math.nan))
    assert round_trip({"x": [-math.inf]}) == {"x": [-math.inf]}
    assert to_json(np.float32(np.inf), "value") == {"$float": "inf"}
    assert to_json(np.arange(3), "value") == [0, 1, 2]


def test_what_is_no_json_is_named():
    with pytest.raises(TypeError, match=r"spec\['a'\]\[1\] is <object"):
        to_json({"a": [1, object()]}, "spec")
    with pytest.raises(TypeError, match=r"spec has the key '\$float'"):
        to_json({"$float": 1, "b": 2}, "spec")


def test_names_of_classes():
    assert import_name(nn.ReLU) == "torch.nn.modules.activation:ReLU"
    assert from_json({"x": {"__import__": import_name(nn.ReLU)}}, OBJECTS) == {"x": nn.ReLU}
    assert import_name(lambda: None) is None
    assert from_json({"__import__": "a:b"}) == {"__import__": "a:b"}, "plain data leaves names alone"


def test_what_a_function_makes():
    schedule = {"__call__": [{"__import__": "stable_baselines3.common.utils:LinearSchedule"}, 1e-3, 1e-4, 1.0]}
    found = from_json({"learning_rate": schedule}, OBJECTS)["learning_rate"]
    assert [found(progress) for progress in (1.0, 0.5, 0.0)] == pytest.approx([1e-3, 5.5e-4, 1e-4])
    assert from_json(schedule) == schedule, "plain data leaves calls alone"


ARGUMENTS = {
    "train_freq": (4, "step"),
    "max_grad_norm": math.inf,
    "policy_kwargs": {"activation_fn": nn.ReLU, "net_arch": [8, 8]},
    "seeds": [Member(3, {"learning_rate": 0.1, "limit": None})],
}


def test_arguments_of_a_population():
    assert round_trip(ARGUMENTS, storage._TAGS, storage._encoded) == ARGUMENTS
    assert round_trip(range(3), storage._TAGS, storage._encoded) == [0, 1, 2]
    with pytest.raises(LookupError, match="lambda"):
        round_trip(lambda: None, storage._TAGS, storage._encoded)


def test_files_of_version_0_1():
    assert from_json({"max_grad_norm": {"__float__": "inf"}}, storage._TAGS) == {"max_grad_norm": math.inf}
