"""What the shipped configurations choose is what the published experiments chose, and reached with it."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
import yaml

from sb3_robust_be import zoo
from sb3_robust_be.experiments.control.preset import read
from sb3_robust_be.experiments.declared import load_declared
from sb3_robust_be.experiments.publish import FOLDER, load, published
from sb3_robust_be.qrc.qrc import FALLING

SMALL = {
    "cart-pole": "CartPole-v1",
    "acrobot": "Acrobot-v1",
    "mountain-car": "RobustBE/MountainCar1000-v0",
    "lunar-lander": "LunarLander-v3",
    "cliff-world": "RobustBE/CliffWorld-v0",
}
SOURCES = {
    "qrc": {"control": ["qrc"]},
    "qlc": {"one-setting": ["qlc, one-sided, layer norm"]},
    "sbeed": {"control": ["sbeed"]},
    # Where there is a sweep of thresholds, it is what chooses.
    "qrc_huber": {"control": ["qrc_huber"], "threshold": None},
    "gq": {"saddlepoint": ["gq"]},
    "gq_huber": {"saddlepoint": ["gq_huber"]},
    # SB3's DQN has no other loss.
    "dqn": {"control": ["dqn, Huber loss"]},
}
GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
NUMBER = r"(-?[\d.]+) \[-?[\d.]+, -?[\d.]+\]"


def scale_of(name):
    return "long" if (name, "long") in published(FOLDER) else "laptop"


def control_preset(name):
    preset = load_declared(name).preset(scale_of(name))
    return preset.one_for_all() if name == "one-setting" else preset


@cache
def published_results(name):
    return read(control_preset(name), load(FOLDER, name, scale_of(name)))


def evidence(name, labels):
    """By domain what the selection seeds prefer, arguments of the contender included, and its reported runs."""
    results = published_results(name)
    preset = results.preset
    contenders = [c for c in preset.contenders if labels is None or c.label in labels]
    for key in preset.domains:
        best = max(contenders, key=lambda c, own=key: score(results, own, c.label))
        runs = results.finals[preset.domain(key).name][best.label]
        yield key, {**best.choices, **results.settings[key, best.label]}, runs


def score(results, key, label):
    """Of a contender's best setting; all are alike where nothing is chosen."""
    return results.selection[key, label].scores.max() if (key, label) in results.selection else 0.0


def cases():
    for algorithm, sources in SOURCES.items():
        for key in SMALL:
            of_key = [name for name in sources if key in control_preset(name).domains]
            if of_key:
                yield algorithm, key, of_key[-1]


def entry_lines(algorithm, env):
    text = zoo.config_file(algorithm).read_text(encoding="utf-8")
    return text.partition(f"\n{env}:")[2].partition("\n\n")[0]


@pytest.mark.parametrize(("algorithm", "key", "name"), list(cases()))
def test_chosen_settings(algorithm, key, name):
    entry = yaml.safe_load(zoo.config_file(algorithm).read_text(encoding="utf-8"))[SMALL[key]]
    setting, runs = next((s, r) for k, s, r in evidence(name, SOURCES[algorithm][name]) if k == key)
    if algorithm == "qlc":
        # The rate that was chosen is the class's own, which an entry without one has.
        first, last = setting.pop("learning_rate")["$linear"]
        assert (first, last) == (FALLING.start, FALLING.end)
        assert "learning_rate" not in entry
        assert eval(entry["policy_kwargs"])["layer_norm"] is setting.pop("policy_kwargs")["layer_norm"]
    if algorithm == "dqn":
        assert setting.pop("huber_threshold") == 1.0
    assert {argument: entry[argument] for argument in setting} == setting
    found = re.search(rf"# {name}: {NUMBER} at [\d ]+ steps, (\d+) seeds", entry_lines(algorithm, SMALL[key]))
    assert found, entry_lines(algorithm, SMALL[key])
    assert int(found[2]) == len(runs)
    assert float(found[1]) == pytest.approx(np.nanmean(runs), rel=0.05, abs=0.6)


@pytest.mark.parametrize("key", SMALL)
def test_constant_rates_of_qlc(key):
    """What `control` found for each environment alone, beside the falling rate of all."""
    ((setting, runs),) = [(s, r) for k, s, r in evidence("control", ["qlc"]) if k == key]
    pattern = rf"# control: {NUMBER} at ([\d ]+) steps, (\d+) seeds, with ([\d.e-]+) \(2\^(-\d+)\)"
    mean, steps, seeds, rate, exponent = re.search(pattern, entry_lines("qlc", SMALL[key])).groups()
    assert float(mean) == pytest.approx(runs.mean(), abs=0.6)
    assert int(steps.replace(" ", "")) == control_preset("control").steps_of(key)
    assert (int(seeds), float(rate), 2.0 ** int(exponent)) == (len(runs), *(2 * [setting["learning_rate"]]))


# Today's QLC was run on three games; all others are those of `minatar-population`.
TODAYS = ("Breakout", "Freeway", "SpaceInvaders")


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("algorithm", ["qrc", "qrc_huber", "qlc", "dqn"])
def test_minatar_returns(algorithm, game):
    name, label = "minatar-population", algorithm
    if algorithm == "qlc" and game in TODAYS:
        name, (label,) = "one-setting", SOURCES["qlc"]["one-setting"]
    runs = published_results(name).finals[game][label]
    lines = entry_lines(algorithm, f"MinAtar/{game}-v0")
    found = re.search(rf"# {name}: {NUMBER} at 130 000 steps, (\d+) seeds", lines)
    assert found, lines
    assert (float(found[1]), int(found[2])) == (pytest.approx(runs.mean(), rel=0.05), len(runs))


@pytest.mark.parametrize("game", GAMES)
def test_minatar_has_todays_qlc_where_it_was_run(game):
    entry = yaml.safe_load(zoo.config_file("qlc").read_text(encoding="utf-8"))[f"MinAtar/{game}-v0"]
    assert entry["limit"] == ("one_sided" if game in TODAYS else "magnitude")


@pytest.mark.parametrize("env", [*SMALL.values(), *(f"MinAtar/{game}-v0" for game in GAMES)])
def test_one_file_says_start_here(env):
    assert sum("# Start here" in entry_lines(algorithm, env) for algorithm in SOURCES) == 1
