"""The log's numbers by hand, and when they are recorded: where SB3 writes its log, and at once by hand."""

from __future__ import annotations

import contextlib
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from small_envs import SpaceEnv
from small_models import every_algorithm, lines_of, make
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import EvalCallback, LogEveryNTimesteps
from stable_baselines3.common.logger import configure
from two_heads import make_model

from sb3_robust_be import QLC, QRC, QRCHuber
from sb3_robust_be.qrc.diagnostics import MAX_UPDATES_UNREAD, UpdateDiagnostics
from sb3_robust_be.qrc.losses import LossTerms
from sb3_robust_be.registry import classes

ALGORITHMS = classes()

KEYS = {
    *("loss", "td_error_abs_mean", "td_error_q05", "td_error_q50", "td_error_q95", "q_mean", "q_max", "h_abs_mean"),
    *("h_clip_fraction", "correction_ratio", "h_explained", "grad_norm"),
}


def column(*values):
    return th.tensor(values, dtype=th.float64).reshape(-1, 1)


def terms(
    td_error=(1.0, -2.0, 3.0, -4.0), h=(0.5, -1.5, 2.0, 0.0), correction=(0.5, -1.0, 1.0, 0.0), q=(1.0, 2, 3, -9)
):
    return LossTerms(th.zeros(()), column(*td_error), column(*h), column(*correction), column(*q))


def read(held, projection, gradients=((3.0, 4.0),), grad_norm=None):
    parameters = []
    for gradient in gradients:
        parameters.append(th.nn.Parameter(th.zeros(len(gradient))))
        parameters[-1].grad = th.tensor(gradient)
    diagnostics, logger = UpdateDiagnostics(), configure(None, [])
    diagnostics.hold(held, projection, parameters, grad_norm)
    diagnostics.record(logger)
    return {name.removeprefix("train/"): value for name, value in logger.name_to_value.items()}


HUBER_ONE = {"projection": "huber", "threshold": 1.0, "limit": None}


def test_values_by_hand():
    log = read([terms()], HUBER_ONE)
    assert set(log) == KEYS
    assert log["loss"] == pytest.approx(0.5 * (1 + 4 + 9 + 16) / 4)
    assert log["td_error_abs_mean"] == pytest.approx(2.5)
    assert log["td_error_q50"] == pytest.approx(-0.5)
    assert log["td_error_q05"] == pytest.approx(-4 + 0.15 * 2)  # linear between the order statistics
    assert log["td_error_q95"] == pytest.approx(3 - 0.15 * 2)
    assert log["q_mean"] == pytest.approx(-0.75)
    assert log["q_max"] == 3.0
    assert log["h_abs_mean"] == pytest.approx(1.0)
    assert log["h_clip_fraction"] == 0.5
    assert log["correction_ratio"] == pytest.approx(0.625 / 2.5)
    # δ − h = (0.5, −0.5, 1, −4), mean −0.75; δ has mean −0.5.
    assert log["h_explained"] == pytest.approx(1 - (1.5625 + 0.0625 + 3.0625 + 10.5625) / (2.25 + 2.25 + 12.25 + 12.25))
    assert log["grad_norm"] == pytest.approx(5.0)


def test_gradient_steps_of_one_call_are_pooled_and_clipping_hands_in_its_norm():
    log = read([terms(), terms(td_error=(0.0, 0, 0, 0), h=(9.0, 9, 9, 9))], HUBER_ONE, grad_norm=th.tensor(7.0))
    assert log["td_error_abs_mean"] == pytest.approx(1.25)
    assert log["h_clip_fraction"] == 0.75
    assert log["grad_norm"] == 7.0


@pytest.mark.parametrize(
    ("projection", "fraction"),
    [
        ({"projection": "squared", "threshold": None, "limit": None}, 0.0),
        ({"projection": "huber", "threshold": 1.75, "limit": None}, 0.25),
        ({"projection": "huber", "threshold": None, "limit": "magnitude"}, 0.0),
        ({"projection": "huber", "threshold": None, "limit": "same_sign"}, 0.0),
    ],
)
def test_clip_fraction_follows_the_projection(projection, fraction):
    assert read([terms()], projection)["h_clip_fraction"] == fraction


def test_equal_td_errors_of_zero_give_numbers():
    log = read([terms(td_error=(0.0, 0, 0, 0))], HUBER_ONE)
    assert log["correction_ratio"] == log["h_explained"] == 0.0
    assert all(np.isfinite(value) for value in log.values())


def warnings_of(readings, threshold=1.0):
    """Whether each of these (clipped share, largest |q|) readings in turn warns."""
    diagnostics = UpdateDiagnostics()
    diagnostics._settings = HUBER_ONE | {"threshold": threshold}
    found = []
    for clip_fraction, q_size in readings:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            diagnostics._watch(clip_fraction, q_size)
        found.append(bool(caught))
    return found


def test_warning_needs_clipping_in_a_row_and_growth():
    assert warnings_of([(1.0, 20), (1.0, 30), (1.0, 41), (1.0, 80)]) == [False, False, True, False]  # once
    assert not any(warnings_of([(1.0, 20), (1.0, 30), (1.0, 39)]))  # less than twice
    assert not any(warnings_of([(1.0, 1), (1.0, 5), (1.0, 10)]))  # by less than ten thresholds
    assert not any(warnings_of([(0.5, 20), (0.5, 30), (0.5, 90)]))  # not clipped
    # An unclipped reading starts the count, and the size to compare with, afresh.
    assert not any(warnings_of([(1.0, 20), (1.0, 30), (0.0, 35), (1.0, 60), (1.0, 70), (1.0, 80)]))
    assert not any(warnings_of([(1.0, 20), (1.0, 90), (0.0, 90), (1.0, 95)]))
    assert not any(warnings_of([(1.0, 20), (1.0, 30), (1.0, 90)], threshold=None))


def collected(cls, **kwargs):
    model = make_model(cls, learning_starts=5, gradient_steps=0, **kwargs)
    model.learn(60)
    return model


@pytest.mark.parametrize("cls", ALGORITHMS.values(), ids=ALGORITHMS)
def test_every_algorithm_logs_every_entry_once_per_train_call(cls):
    model = collected(cls)
    assert not KEYS & {name.removeprefix("train/") for name in model.logger.name_to_value}
    model.train(gradient_steps=3, batch_size=16)
    log = {name: value for name, value in model.logger.name_to_value.items() if name.startswith("train/")}
    assert {f"train/{key}" for key in KEYS} <= set(log)
    assert all(
        isinstance(value, float) and np.isfinite(value) for name, value in log.items() if name != "train/n_updates"
    )
    assert log["train/n_updates"] == 3
    # Recording again finds nothing new.
    model.logger.name_to_value.clear()
    model._diagnostics.record(model.logger)
    assert not model.logger.name_to_value


def test_nothing_is_read_from_the_device_until_a_line_is_logged(monkeypatch):
    model = make_model(QRC, learning_starts=5, gradient_steps=2, train_freq=1)
    reads, in_train, in_dump = [], [], []
    monkeypatch.setattr(th.Tensor, "item", lambda self: reads.append("item"))
    monkeypatch.setattr(th.Tensor, "cpu", lambda self: reads.append("cpu") or self)
    train = model.train

    def watched_train(**kwargs):
        reads.clear()
        train(**kwargs)
        in_train.extend(reads)

    def dump_once(*_):
        assert model.logger
        if model.num_timesteps == 20:
            reads.clear()
            model.dump_logs()
            in_dump.extend(reads)
        return True

    monkeypatch.setattr(model, "train", watched_train)
    model.learn(30, callback=dump_once, log_interval=None)
    assert (model._n_updates, in_train) == (2 * 25, [])
    assert in_dump


def test_unread_updates_do_not_pile_up(monkeypatch):
    model = make_model(QRCHuber, learning_starts=5, gradient_steps=MAX_UPDATES_UNREAD // 4, train_freq=1)
    recorded = []
    monkeypatch.setattr(model._diagnostics, "record", lambda logger: recorded.append(model.num_timesteps))
    monkeypatch.setattr(model, "_compute_gradients", lambda data, projection: terms())
    model.learn(9, callback=lambda *_: recorded.append("step") or True, log_interval=None)
    assert model._n_updates == MAX_UPDATES_UNREAD
    assert recorded == ["step"] * 9 + [9, 9], "after the last update, and at the end of learn()"


def held(line):
    return {f"train/{key}" for key in KEYS} <= set(line)


def test_looking_at_the_logger_records_nothing():
    assert type(make_model(QRC)).logger is DQN.logger
    model = make_model(QRC, learning_starts=5, train_freq=1)
    seen = []
    model.learn(20, callback=lambda *_: seen.append(dict(model.logger.name_to_value)) or True, log_interval=None)
    assert "train/n_updates" in seen[-1]
    assert not any(held(entries) for entries in seen)
    assert held(model.logger.name_to_value), "at the end of learn(), as DQN leaves its loss"


@pytest.mark.parametrize("log_interval", [1, 2])
@every_algorithm
def test_every_line_that_sb3_writes_has_them(algorithm, log_interval):
    """And each is of the last update before it."""
    model = make(algorithm, SpaceEnv(gym.spaces.Box(-1.0, 1.0, (3,))))
    lines = lines_of(model)
    model.learn(70, log_interval=log_interval)
    assert len(lines) == 10 // log_interval
    learned = [line for line in lines if "train/n_updates" in line]
    assert len(learned) == len(lines) - 1 // log_interval, "the first episode is over before learning starts"
    assert all(map(held, learned))
    assert len({line["train/td_error_abs_mean"] for line in learned}) == len(learned)


def test_lines_of_callbacks():
    """SB3's own way to have more lines; a line that a callback writes past ``dump_logs`` is the callback's."""
    model = make(QRC, SpaceEnv(gym.spaces.Box(-1.0, 1.0, (3,))))
    lines = lines_of(model)
    model.learn(35, callback=LogEveryNTimesteps(5), log_interval=None)
    assert [held(line) for line in lines] == [False, False, True, True, True, True, True]
    lines.clear()
    evaluation = EvalCallback(model.get_env(), eval_freq=50, n_eval_episodes=1, verbose=0, warn=False)
    model.learn(260, callback=evaluation, log_interval=None)
    assert ["eval/mean_reward" in line for line in lines] == [True] * 5
    # The updates begin at step 11: the 100th is made after step 110, the 200th after 210.
    assert [held(line) for line in lines[1:]] == [False, True, False, True]


@pytest.mark.parametrize("stop_at", [None, 20])
def test_training_by_hand_after_learn_records_at_once(stop_at):
    """Also after a ``learn()`` that was broken off."""
    model = make(QRC)

    def stop(*_):
        if model.num_timesteps == stop_at:
            raise KeyboardInterrupt
        return True

    with contextlib.suppress(KeyboardInterrupt):
        model.learn(40, callback=stop)
    model.logger.name_to_value.clear()
    model.train(gradient_steps=1, batch_size=8)
    assert held(model.logger.name_to_value)


def test_a_model_saved_in_the_middle_of_learn_records_by_hand(tmp_path):
    model = make(QRC)
    model.learn(40, callback=lambda *_: model.save(tmp_path / "model") or True)
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = QRC.load(tmp_path / "model", env=model.get_env())
    loaded.load_replay_buffer(tmp_path / "buffer")
    loaded.train(gradient_steps=1, batch_size=8)
    assert held(loaded.logger.name_to_value)


def test_log_matches_the_values_it_describes():
    model = collected(QLC, max_grad_norm=1e-3)
    model.train(gradient_steps=1, batch_size=32)
    log = model.logger.name_to_value
    # The norm before clipping, the gradients after it.
    clipped = th.nn.utils.get_total_norm([p.grad for p in model.policy.optimizer.param_groups[0]["params"]])
    assert clipped == pytest.approx(1e-3, rel=1e-3)
    assert log["train/grad_norm"] > 2e-3
    assert log["train/correction_ratio"] <= model.gamma  # |z| ≤ |δ|
    assert log["train/td_error_q05"] <= log["train/td_error_q50"] <= log["train/td_error_q95"]


def test_rollout_and_learning_rate_entries_survive():
    model = collected(QRC)
    model.learn(60, log_interval=None)
    model.train(gradient_steps=1, batch_size=8)
    assert model.logger.name_to_value["rollout/exploration_rate"] == pytest.approx(model.exploration_rate)
    assert model.logger.name_to_value["train/learning_rate"] == pytest.approx(1e-3)
