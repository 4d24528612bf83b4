"""The benchmark's arithmetic and its files. How fast anything is, is no matter for a test."""

from __future__ import annotations

import json
import statistics

import pytest
import torch as th
from stable_baselines3 import DQN

from sb3_robust_be import QLC, QRC, QRCHuber
from sb3_robust_be.benchmark import limit, main, members_curve, single_command, widths
from sb3_robust_be.benchmark import population_benchmark as population
from sb3_robust_be.benchmark import single as benchmark
from sb3_robust_be.benchmark.breakdown import PARTS, time_per_part
from sb3_robust_be.qrc.compiled import CompiledUpdate

TINY = benchmark.Setting("CartPole-v1", (4,), 1, 20)


@pytest.fixture
def without_compiler(monkeypatch):
    monkeypatch.setattr(benchmark, "contenders", lambda: {"dqn": DQN, "qrc_huber": QRCHuber, "qrc": QRC})


def test_contenders_share_every_setting(without_compiler):
    models = [benchmark.make_model(name, TINY) for name in benchmark.contenders()]
    for name in ("buffer_size", "batch_size", "train_freq", "gradient_steps", "learning_starts", "gamma"):
        assert len({getattr(model, name) for model in models}) == 1, name
    schedules = {(m.exploration_initial_eps, m.exploration_final_eps, m.lr_schedule(1.0)) for m in models}
    assert len(schedules) == 1
    assert [[p.shape for p in m.q_net.q_net.parameters()] for m in models[1:]] == [
        [p.shape for p in models[0].q_net.q_net.parameters()]
    ] * 2


def test_the_compiled_contender_is_compiled():
    for name in ("qrc_huber", "qlc", "qlc_no_norm"):
        assert benchmark.make_model(f"{name}_compiled", TINY).compile is True
        assert benchmark.make_model(name, TINY).compile is False


@pytest.mark.parametrize("env", ["CartPole-v1", "MinAtar/Breakout-v1"])
@pytest.mark.parametrize("suffix", ["", "_compiled"])
def test_qlc_has_its_own_network_and_beside_it_that_of_the_others(suffix, env):
    setting = TINY._replace(env=env)
    own, plain = (benchmark.make_model(f"{name}{suffix}", setting) for name in ("qlc", "qlc_no_norm"))
    assert (type(own), type(plain)) == (QLC, QLC)
    assert (own.policy.layer_norm, plain.policy.layer_norm) == (True, False)
    assert own.limit == plain.limit == "one_sided"
    shapes = [[p.shape for p in model.q_net.parameters() if p.ndim > 1] for model in (own, plain)]
    assert shapes[0] == shapes[1]
    # A gain and an offset for each hidden layer.
    added = len(list(own.q_net.parameters())) - len(list(plain.q_net.parameters()))
    assert added == (4 if env.startswith("MinAtar") else 2)
    others = benchmark.make_model("qrc_huber", setting)
    assert [p.shape for p in plain.q_net.parameters()] == [p.shape for p in others.q_net.parameters()]
    assert (own.lr_schedule(0.0), own.batch_size) == (others.lr_schedule(0.0), others.batch_size)


def test_qlc_runs(monkeypatch):
    """With its compiled forms, whose graphs are not turned into code here."""
    monkeypatch.setattr(CompiledUpdate, "backend", staticmethod(lambda graph, inputs: graph))
    names = ("dqn", "qlc", "qlc_compiled", "qlc_no_norm", "qlc_no_norm_compiled")
    found = {name: make for name, make in benchmark.contenders().items() if name in names}
    monkeypatch.setattr(benchmark, "contenders", lambda: found)
    monkeypatch.setattr(benchmark, "WARM_UP", 110)
    rows = benchmark.compare(TINY._replace(steps=5), repeats=1, memory=False)
    assert tuple(row["name"] for row in rows) == names
    assert all(row["steps_per_s"] > 0 and set(row["us_per_step"]) == set(PARTS) for row in rows)


def test_names_and_numbers_do_not_touch(capsys):
    numbers = {"steps_per_s": 1234567.0, "ratio_to_dqn": 1.0, "ratio_min": 1.0, "ratio_max": 1.0, "cpu_s": 1.0}
    row = {**numbers, "peak_mb": None, "us_per_step": {"env": 1.0}}
    single_command._print([{"name": name, **row} for name in benchmark.contenders()])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("qlc_no_norm_compiled")]
    assert [line.split()[0] for line in lines] == ["qlc_no_norm_compiled"] * 2


def test_bfloat16_is_timed_with_images_only(monkeypatch):
    monkeypatch.setattr(benchmark, "make_model", lambda name, setting: name)
    monkeypatch.setattr(benchmark, "in_turn", lambda models, steps, repeats: {key: [(1.0, 1.0)] for key in models})
    monkeypatch.setattr(benchmark, "time_per_part", lambda model, steps: {})
    for env, timed in (("CartPole-v1", False), ("MinAtar/Breakout-v1", True)):
        names = [row["name"] for row in benchmark.compare(TINY._replace(env=env), 1, memory=False)]
        assert "qrc_huber_compiled" in names
        assert ("qrc_huber_bfloat16" in names) == timed
    assert benchmark.contenders()["qrc_huber_bfloat16"]("MlpPolicy", "CartPole-v1").compile == "bfloat16"


def test_small_images_get_the_same_features():
    setting = TINY._replace(env="MinAtar/Breakout-v1", net_arch=(64, 64))
    dqn, ours = (benchmark.make_model(name, setting) for name in ("dqn", "qrc_huber"))
    assert [p.shape for p in dqn.q_net.parameters()] == [
        p.shape for name, p in ours.q_net.named_parameters() if not name.startswith("h_net")
    ]


def test_ratios_are_taken_within_a_round(without_compiler, monkeypatch):
    # In round i the machine is i times slower for all; ours takes half of DQN's time, QRC a third, then a fourth.
    clock = {"dqn": [2.0, 4.0, 8.0], "qrc_huber": [1.0, 2.0, 4.0], "qrc": [2 / 3, 4 / 3, 2.0]}
    order = []

    class Model:
        def __init__(self, name):
            self.name, self.rounds = name, iter([(9.0, 9.0), *((t, t / 2) for t in clock[name])])

    def run_steps(model, steps):
        order.append(model.name)
        return next(model.rounds)

    monkeypatch.setattr(benchmark, "make_model", lambda name, setting: Model(name))
    monkeypatch.setattr(benchmark, "run_steps", run_steps)
    monkeypatch.setattr(benchmark, "time_per_part", lambda model, steps: {})
    dqn, ours, qrc = benchmark.compare(TINY, repeats=3, memory=False)
    assert (dqn["ratio_to_dqn"], dqn["ratio_min"], dqn["ratio_max"]) == (1.0, 1.0, 1.0)
    assert (ours["ratio_to_dqn"], ours["ratio_min"], ours["ratio_max"]) == (2.0, 2.0, 2.0)
    assert (qrc["ratio_to_dqn"], qrc["ratio_min"], qrc["ratio_max"]) == (3.0, 3.0, 4.0)
    assert ours["steps_per_s"] == 20 / statistics.median(clock["qrc_huber"])
    assert ours["cpu_s"] == 1000 / 20 * 1.0
    # Each contender comes first once.
    assert [order[3 + 3 * i] for i in range(3)] == ["dqn", "qrc_huber", "qrc"]


@pytest.mark.parametrize("cls", [DQN, QRCHuber], ids=lambda c: c.__name__)
def test_parts_add_up_and_leave_the_model_as_it_was(cls):
    model = cls("MlpPolicy", "CartPole-v1", learning_starts=10, train_freq=1, policy_kwargs={"net_arch": [4]})
    model.learn(50)
    updates = model._n_updates
    parts = time_per_part(model, 40)
    assert list(parts) == list(PARTS)
    assert all(microseconds >= 0 for microseconds in parts.values())
    for part in ("env", "action", "storing", "sampling", "forward", "backward", "optimiser"):
        assert parts[part] > 0, part
    assert model._n_updates == updates + 40
    assert "step" not in vars(model.env)
    assert "train" not in vars(model)


@pytest.mark.parametrize("compiled", [False, True])
def test_parts_are_those_of_the_update_that_is_timed(compiled, monkeypatch):
    """Watching it neither keeps torch's kernel from being called nor asks for another graph."""
    model = QRCHuber(
        "MlpPolicy", "CartPole-v1", learning_starts=10, train_freq=1, policy_kwargs={"net_arch": [4]}, compile=compiled
    )
    model.learn(30)
    calls = []

    def kernel(*args, own=th._fused_adam_, **kwargs):
        calls.append(args)
        return own(*args, **kwargs)

    monkeypatch.setattr(th, "_fused_adam_", kernel)
    graphs = set(model._compiled._graphs) if compiled else set()
    parts = time_per_part(model, 40)
    assert len(calls) == (0 if compiled else 40 * len(model.policy.optimizer.param_groups))
    if compiled:
        assert set(model._compiled._graphs) == graphs
        assert parts["optimiser"] == 0


def test_command_writes_one_object_per_contender(without_compiler, tmp_path, capsys):
    file = tmp_path / "results" / "benchmark.json"
    arguments = ["--repeats", "2", "--steps", "20", "--net-arch", "4", "--no-memory", "--json", str(file)]
    assert main(arguments) == 0
    rows = json.loads(file.read_text())
    assert [row["name"] for row in rows] == ["dqn", "qrc_huber", "qrc"]
    assert {"name", "steps_per_s", "ratio_to_dqn", "ratio_min", "ratio_max", "cpu_s", "peak_mb"} <= set(rows[0])
    printed = capsys.readouterr().out
    assert all(row["name"] in printed for row in rows)
    assert "µs per environment step" in printed


def test_peak_memory_is_of_a_process_of_its_own():
    # A process that has imported torch and SB3 has more than 100 MB.
    assert 100 < benchmark.peak_memory("qrc", TINY) < 4000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--repeats", "0"], "--repeats must be at least 1 and is 0"),
        (["--train-freq", "-1"], "--train-freq must be at least 1 and is -1"),
        (["--env", "CartPole-v99"], "'CartPole-v99' is not registered"),
        (["--widths", "8", "0"], "--widths must be different numbers of at least 1 and are [8, 0]"),
        (["--widths", "8", "8"], "--widths must be different numbers of at least 1 and are [8, 8]"),
        (["--widths", "--net-arch"], "give --net-arch at least one"),
        (["--widths", "--env", "MinAtar/Breakout-v1"], "leave out --widths"),
        (["--widths", "--figure", "curve.pdf"], "curve.pdf must end on .svg or .png"),
        (["--figure", "curve.svg"], "add --widths"),
    ],
)
def test_bad_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


# --- widths ---


@pytest.fixture
def eager_widths(monkeypatch):
    monkeypatch.setattr(widths, "CONTENDERS", {"dqn": "dqn", "qrc_huber": "qrc_huber"})


def test_every_width_is_compared_with_the_dqn_of_its_width(eager_widths, monkeypatch):
    # A round takes DQN as many seconds as its layers have units, and ours half of them.
    def run_steps(model, steps):
        units = model.q_net.q_net[0].out_features
        assert [layer.out_features for layer in list(model.q_net.q_net)[:-1:2]] == [units, units]
        return (units / (2 if isinstance(model, QRCHuber) else 1), 1.0)

    monkeypatch.setattr(benchmark, "run_steps", run_steps)
    rows = widths.compare_widths(TINY._replace(net_arch=(64, 64)), (5, 10), repeats=2)
    assert [(row["width"], row["name"]) for row in rows] == [(w, n) for w in (5, 10) for n in ("dqn", "qrc_huber")]
    assert [row["steps_per_s"] for row in rows] == [20 / 5, 20 / 2.5, 20 / 10, 20 / 5]
    assert [row["ratio_to_dqn"] for row in rows] == [1.0, 2.0, 1.0, 2.0]


def test_the_command_over_widths(eager_widths, tmp_path, capsys):
    file, figure = tmp_path / "widths.json", tmp_path / "new" / "widths.svg"
    arguments = ["--widths", "4", "8", "--repeats", "1", "--steps", "10", "--json", str(file), "--figure", str(figure)]
    assert main(arguments) == 0
    rows = json.loads(file.read_text())
    assert [(row["width"], row["name"]) for row in rows] == [(w, n) for w in (4, 8) for n in ("dqn", "qrc_huber")]
    assert rows[0]["command"].startswith("sb3-robust-be benchmark --widths 4 8")
    assert "qrc_huber" in capsys.readouterr().out
    words = (
        "DQN",
        "QRC-Huber",
        "units of each of 2 hidden layers",
        "environment steps per second",
        ">8<",
        "CartPole-v1",
    )
    text = figure.read_text()
    assert [word for word in words if word not in text] == []


def test_widths_without_numbers_and_what_is_compared(monkeypatch, capsys):
    assert list(widths.CONTENDERS) == ["dqn", "qrc_huber", "qrc_huber_compiled"]
    asked = []

    def compare_widths(setting, widths, repeats):
        asked.append((setting.net_arch, widths, repeats))
        return []

    monkeypatch.setattr(single_command, "compare_widths", compare_widths)
    assert main(["--widths", "--net-arch", "1", "1", "1"]) == 0
    assert asked == [((1, 1, 1), [16, 32, 64, 128, 256, 512], 15)]


# --- populations ---

CELL = population.Cell(3, (4,), False)


def test_a_row_per_population_and_ratios_within_a_round(monkeypatch):
    # DQN slows down by half in the second round, and the population by a quarter.
    rates = {"DQN": iter([100.0, 50.0, 50.0]), "Population": iter([1000.0, 750.0, 500.0])}
    monkeypatch.setattr(population, "WARM_UP", 1)
    monkeypatch.setattr(population, "_agent_steps_per_s", lambda who, steps: next(rates[type(who).__name__]))
    (row,) = population.measure("qrc_huber", "CartPole-v1", (CELL,), repeats=3, seconds=0.001)
    assert (row["ratio_to_dqn"], row["ratio_min"], row["ratio_max"]) == (10.0, 10.0, 15.0)
    assert (row["agent_steps_per_s"], row["dqn_steps_per_s"]) == (750, 50.0)
    assert (row["members"], row["net_arch"], row["network"], row["compiled"]) == (3, (4,), "4", False)


def test_both_sides_share_every_setting():
    own = population.settings("CartPole-v1", (4,))
    model = DQN(**own)
    members = population.Population("dqn", seeds=range(2), verbose=0, **own)
    for name in ("batch_size", "learning_starts", "gradient_steps", "train_freq", "learning_rate"):
        assert getattr(members[0], name) == getattr(model, name)


def test_the_command_writes_its_cells(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(population, "WARM_UP", 1)
    monkeypatch.setattr(population, "CELLS", (CELL,))
    path = tmp_path / "new" / "cells.json"
    assert main(["population", "--repeats", "1", "--seconds", "0.01", "--json", str(path)]) == 0
    (row,) = json.loads(path.read_text())
    assert {"members", "net_arch", "compiled", "agent_steps_per_s", "ratio_to_dqn", "command", "machine"} <= row.keys()
    assert {"mflop_per_update", "gflop_per_s_float32", "limit_float32", "limit_bfloat16"} <= row.keys()
    assert row["command"].startswith("sb3-robust-be benchmark population --repeats 1")
    printed = capsys.readouterr().out
    assert "× DQN" in printed
    assert f"{row['limit_bfloat16']} agent-steps/s in bfloat16" in printed
    asked = []
    monkeypatch.setattr(population, "measure", lambda algo, env, cells, *rest: asked.extend(cells) or [row])
    assert main(["population", "--bfloat16"]) == 0
    assert asked == [CELL, CELL._replace(compiled="bfloat16")]


def test_populations_of_images_have_the_network_of_single_agents():
    own = population.settings("MinAtar/Breakout-v1", (64, 64))
    members = population.Population("qrc_huber", seeds=range(2), verbose=0, **own)
    single = benchmark.make_model("qrc_huber", TINY._replace(env="MinAtar/Breakout-v1"))
    assert population._name("MinAtar/Breakout-v1", (64, 64)) == "MinAtarCNN"
    assert [p.shape for p in members[0].q_net.parameters()] == [p.shape for p in single.q_net.parameters()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--members", "0"], "must be positive"),
        (["--figure", "curve.pdf"], "curve.pdf must end on .svg or .png"),
        (["--env", "CartPole-v99"], "'CartPole-v99' is not registered"),
    ],
)
def test_bad_arguments_of_populations(arguments, message, capsys):
    with pytest.raises(SystemExit):
        main(["population", *arguments])
    assert message in capsys.readouterr().err


def test_the_additions_and_multiplications_of_an_update():
    """Of s and s' together, 64 rows, through 4 → 8 → 2 units; of h's head, 8 → 2, for the 32 rows of s."""
    layer, values, secondary = 2 * 64 * 4 * 8, 2 * 64 * 8 * 2, 2 * 32 * 8 * 2
    # Forwards; gradients of the weights; the gradient that comes back from the values to the units.
    expected = (layer + values + secondary) + (layer + values + secondary) + values
    model = QRC("MlpPolicy", "CartPole-v1", learning_starts=10, policy_kwargs={"net_arch": [8]}, batch_size=32)
    assert limit.update_flops(model.learn(40)) == expected
    assert limit.largest_product(model) == (64, 4, 8)


def test_the_speed_of_products(monkeypatch):
    # A product of 2 × 5 and 5 × 10 numbers is 200 additions and multiplications, and 100 take half a second.
    clock = iter(0.5 * i for i in range(1000))
    monkeypatch.setattr(limit.time, "perf_counter", lambda: next(clock))
    for dtype in limit.DTYPES.values():
        assert limit.gflops((2, 5, 10), dtype) == pytest.approx(100 * 200 / 0.5 / 1e9)


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_curve_over_members(ending, tmp_path):
    rows = [
        {"members": n, "network": "4-4", "compiled": c, "agent_steps_per_s": 100 * n, "env": "CartPole-v1"}
        for n, c in ((1, False), (10, False), (10, True), (100, True), (10, "bfloat16"), (100, "bfloat16"))
    ]
    path = tmp_path / "new" / f"curve.{ending}"
    members_curve.draw(rows, path)
    if ending == "png":
        assert path.read_bytes().startswith(b"\x89PNG")
        return
    text = path.read_text()
    assert all(
        words in text
        for words in ("4-4, compiled", "4-4, eager", "4-4, bfloat16", "members of the population", ">100<")
    )
