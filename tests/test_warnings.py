"""Warnings name the line that the user wrote, whatever lies between it and what warns."""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.env_util import make_vec_env

import sb3_robust_be
from sb3_robust_be import QRC, SBEED, Population, QRCHuber
from sb3_robust_be.messages import warn

SMALL = {"buffer_size": 200, "learning_starts": 5, "batch_size": 4, "policy_kwargs": {"net_arch": [4]}, "seed": 0}
PACKAGE = Path(sb3_robust_be.__file__).parent


def make(cls: type[DQN], **kwargs: Any) -> Any:
    return cls("MlpPolicy", "CartPole-v1", **{**SMALL, **kwargs})


def lines_warned(text: str, action: Callable[[], Any]) -> set[tuple[str, int]]:
    """Where the warnings with this text say that they come from."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    found = {(w.filename, w.lineno) for w in caught if text in str(w.message)}
    assert found, [str(w.message) for w in caught]
    return found


def line_of(function: Callable[..., Any], text: str) -> set[tuple[str, int]]:
    """The one line of a function that holds this text."""
    source, first = inspect.getsourcelines(function)
    (index,) = [i for i, line in enumerate(source) if text in line]
    return {(__file__, first + index)}


class OwnQRC(QRC):
    """As users write them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # a line of the user's


def make_with_target(cls):
    cls("MlpPolicy", "CartPole-v1", target_update_interval=10, **SMALL)


def make_with_tau(cls):
    cls("MlpPolicy", "CartPole-v1", tau=0.5, **SMALL)


def make_with_idle_threshold(cls):
    cls("MlpPolicy", "CartPole-v1", huber_threshold=2.0, projection="squared", **SMALL)


def make_with_frequent_target(cls):
    cls("MlpPolicy", make_vec_env("CartPole-v1", 3), target_update_interval=2, **SMALL)


@pytest.mark.parametrize("cls", [QRC, QRCHuber], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize(
    ("action", "text"),
    [
        (make_with_target, "bootstraps from a target network"),
        (make_with_tau, "tau=0.5 is ignored"),
        (make_with_idle_threshold, "has no effect"),
        (make_with_frequent_target, "number of environments"),
    ],
)
def test_constructors(cls, action, text):
    """With one constructor or two of this package above the user's line."""
    assert lines_warned(text, lambda: action(cls)) == line_of(action, "cls(")


def test_another_constructor():
    assert lines_warned("tau=0.5 is ignored", lambda: make_with_tau(SBEED)) == line_of(make_with_tau, "cls(")


def test_a_subclass_of_the_users():
    assert lines_warned("tau=0.5 is ignored", lambda: make_with_tau(OwnQRC)) == line_of(OwnQRC, "a line of the user's")


class Pictures(gym.Env):
    """Images of an ambiguous shape, which the features extractor looks at, that torch and SB3 make."""

    observation_space = gym.spaces.Box(0, 1, (5, 6, 7), np.uint8)
    action_space = gym.spaces.Discrete(2)


def test_a_features_extractor():
    def action():
        QRC("CnnPolicy", Pictures(), buffer_size=10)

    assert lines_warned("ambiguous", action) == line_of(action, "QRC(")


def test_load(tmp_path):
    make(DQN).save(tmp_path / "dqn")
    make(QRC).save(tmp_path / "qrc")

    def load_dqns():
        QRCHuber.load(tmp_path / "dqn")

    def load_with_tau():
        QRC.load(tmp_path / "qrc", tau=0.5)

    assert lines_warned("saved by SB3's DQN", load_dqns) == line_of(load_dqns, "QRCHuber.load")
    assert lines_warned("tau=0.5 is ignored", load_with_tau) == line_of(load_with_tau, "QRC.load")


def test_learn_and_what_it_calls(tmp_path):
    model = make(QRC, train_freq=1, h_regularization=0.0)

    def too_short():
        model.learn(3)

    def save_within():
        model.learn(20, callback=CheckpointCallback(10, str(tmp_path), "new folder/model"))

    assert lines_warned("there will be no update", too_short) == line_of(too_short, "learn")
    assert lines_warned("does not exist. Will create it", save_within) == line_of(save_within, "model.learn")


def test_learn_with_values_that_grow(monkeypatch):
    """Of the diagnostics, far below ``learn``."""
    model = make(QRCHuber, train_freq=1, huber_threshold=1e-3, learning_rate=1.0, h_regularization=0.0)
    model.q_net.h_net.bias.data.fill_(100.0)

    def grow():
        model.learn(600, log_interval=1)

    assert lines_warned("lies far below the TD errors", grow) == line_of(grow, "learn")


def test_save(tmp_path):
    model = make(QRC)

    def save():
        model.save(tmp_path / "missing" / "model")

    assert lines_warned("does not exist. Will create it", save) == line_of(save, "model.save")


def test_population(tmp_path):
    arguments = {**SMALL, "buffer_size": 50, "verbose": 0}
    del arguments["seed"]

    def build():
        return Population("qrc", "MlpPolicy", "CartPole-v1", range(2), target_update_interval=5, **arguments)

    def learn():
        population.learn(3)

    def save():
        nameless.save(tmp_path)

    assert lines_warned("bootstraps from a target network", build) == line_of(build, "Population(")
    with pytest.warns(UserWarning, match="target network"):
        population = build()
    assert lines_warned("there will be no update", learn) == line_of(learn, "learn(3)")
    nameless = Population("qrc", "MlpPolicy", lambda: gym.make("CartPole-v1"), range(2), **arguments)
    assert lines_warned("without an importable name", save) == line_of(save, "nameless.save")


def test_a_warning_is_filtered_and_shown_once_as_any_other():
    def twice():
        for _ in range(2):
            warn("said here")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        twice()
    assert [(w.filename, str(w.message), w.category) for w in caught] == [(__file__, "said here", UserWarning)]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", module=__name__)
        with pytest.raises(UserWarning, match="said here"):
            twice()


def test_no_level_is_guessed():
    """All warnings go through :func:`~sb3_robust_be.messages.warn`; which finds the user's line."""
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] == "messages.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = isinstance(node, ast.Call) and ast.unparse(node.func)
            assert call != "warnings.warn", f"{path.relative_to(PACKAGE)}, line {node.lineno}"
