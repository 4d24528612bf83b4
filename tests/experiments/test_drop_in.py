"""rl_zoo3's DQN settings with another class: the settings, the measures by hand, and what is said of them."""

from __future__ import annotations

import ast
import importlib.util
import math
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch as th
import yaml
from made_rows import made_rows

from sb3_robust_be import QLC
from sb3_robust_be.experiments.control.evaluated_runs import EVALUATED, final_returns, steps_to_final
from sb3_robust_be.experiments.control.training import LINEAR
from sb3_robust_be.experiments.control.tuned_domains import DOMAINS
from sb3_robust_be.experiments.declared import load_declared
from sb3_robust_be.experiments.declared.drop_in import (
    BASELINE,
    CONTENDERS,
    WITH_QLCS_RATE,
    DropIn,
    DropInPreset,
    arguments_of,
)
from sb3_robust_be.experiments.experiment import distinct_specs
from sb3_robust_be.registry import DQN_ONLY

EXPERIMENT = load_declared("drop-in")


# Settings


@pytest.mark.skipif(importlib.util.find_spec("rl_zoo3") is None, reason="rl_zoo3 is not installed")
@pytest.mark.parametrize("env", DOMAINS)
def test_the_settings_are_rl_zoo3s(env):
    folder = Path(importlib.util.find_spec("rl_zoo3").origin).parent
    entry = yaml.safe_load((folder / "hyperparams" / "dqn.yml").read_text(encoding="utf-8"))[env]
    call = ast.parse(entry.pop("policy_kwargs"), mode="eval").body
    assert call.func.id == "dict"
    policy_kwargs = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    assert entry.pop("policy") == "MlpPolicy"
    assert entry.pop("n_timesteps") == DOMAINS[env].steps
    assert {**entry, "policy_kwargs": policy_kwargs} == DOMAINS[env].settings


def test_dqn_has_them_all_and_the_others_all_but_dqns_own():
    settings = DOMAINS["CartPole-v1"].settings | {"tau": 0.5, "max_grad_norm": 3.0}
    assert arguments_of(DropIn("dqn", "dqn"), settings) == settings
    for algorithm in ("qrc", "qrc_huber", "qlc"):
        own = arguments_of(DropIn(algorithm, algorithm), settings)
        assert own == {name: value for name, value in settings.items() if name not in DQN_ONLY}


def test_what_qlcs_class_brings_along():
    """Layer normalisation in the zoo's network and one-sided corrections, at the zoo's learning rate throughout."""
    (contender,) = (one for one in CONTENDERS if one.algorithm == "qlc")
    agent = QLC("MlpPolicy", "CartPole-v1", **arguments_of(contender, DOMAINS["CartPole-v1"].settings), device="cpu")
    layers = [module for module in agent.policy.q_net.modules() if isinstance(module, th.nn.LayerNorm)]
    assert [layer.normalized_shape for layer in layers] == [(256,), (256,)]
    assert agent.limit == "one_sided"
    assert [agent.lr_schedule(progress) for progress in (1.0, 0.0)] == [2.3e-3, 2.3e-3]


def test_a_candidates_arguments_come_first_and_its_networks_are_added():
    candidate = DropIn("mine", "qlc", {"gamma": 0.5, "policy_kwargs": {"optimizer_kwargs": {"eps": 1e-4}}})
    own = arguments_of(candidate, DOMAINS["MountainCar-v0"].settings)
    assert (own["gamma"], own["learning_rate"]) == (0.5, 4e-3)
    assert own["policy_kwargs"] == {"net_arch": [256, 256], "optimizer_kwargs": {"eps": 1e-4}}
    assert DOMAINS["MountainCar-v0"].settings["policy_kwargs"] == {"net_arch": [256, 256]}, "the zoo's stay"


def test_qlcs_learning_rate_is_the_one_that_it_has_by_default():
    default = QLC("MlpPolicy", "CartPole-v1", device="cpu").lr_schedule
    settings = DOMAINS["CartPole-v1"].settings
    for contender in WITH_QLCS_RATE:
        own = arguments_of(contender, settings)
        assert own["learning_rate"] == {LINEAR: [default(1.0), default(0.0)]}
        assert default(0.5) == (default(1.0) + default(0.0)) / 2
        assert own["batch_size"] == settings["batch_size"]


@pytest.mark.parametrize("scale", ["laptop", "long", "paper"])
def test_the_plan(scale):
    preset = EXPERIMENT.preset(scale)
    assert preset.seeds >= 10
    runs = EXPERIMENT.plan(preset, [])
    assert len(runs) == len(distinct_specs(runs)) == 4 * len(preset.contenders) * preset.seeds
    for run in runs:
        spec, zoo = run.spec, DOMAINS[run.names["domain"]]
        assert (spec["function"], spec["policy"], spec["steps"]) == (EVALUATED, "MlpPolicy", zoo.steps)
        assert (spec["evaluations"], spec["evaluation_episodes"]) == (25, 5)
        has_target = "target_update_interval" in spec["arguments"]
        assert has_target == (spec["algorithm"] == "dqn")
        assert "max_grad_norm" not in spec["arguments"], "SB3's DQN clips at 10 by itself"


def test_what_counts_as_failed_and_as_level():
    """Half, and a tenth, of the way from the floor to gymnasium's threshold, by hand."""
    assert {env: domain.fails_below for env, domain in DOMAINS.items()} == {
        "CartPole-v1": 242.0,
        "Acrobot-v1": -300.0,
        "MountainCar-v0": -155.0,
        "LunarLander-v3": 0.0,
    }
    tolerances = [domain.tolerance for domain in DOMAINS.values()]
    assert tolerances == pytest.approx([46.6, 40.0, 9.0, 40.0])
    assert [domain.solved for domain in DOMAINS.values()] == [gym.spec(env).reward_threshold for env in DOMAINS]
    for env in ("Acrobot-v1", "MountainCar-v0"):
        assert DOMAINS[env].floor == -gym.spec(env).max_episode_steps


# Measures


def test_final_returns_by_hand():
    """The last fifth of what follows the first evaluation, at least one."""
    ten = np.array([99.0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 10])
    assert final_returns(ten) == 9.0
    assert final_returns(np.array([5.0, 1, 2, 3])) == 3.0
    twenty_five = np.r_[99.0, np.zeros(20), 1, 2, 3, 4, 10]
    assert final_returns(np.stack([twenty_five, -twenty_five])).tolist() == [4.0, -4.0]
    ten[-1] = np.nan
    assert math.isnan(final_returns(ten))


@pytest.mark.parametrize(
    ("evaluations", "expected"),
    [
        ([0, 50, 89, 90, 95, 100], 300),  # 90 of 100, exactly
        ([-500, -400, -141, -140, -200, -100], 300),  # −500 + 0.9 · 400 = −140
        ([-200, -200, -200, -200, -200, -110], 500),  # at the very end
        ([-50, 10, 30, 40, 45, 50], 300),  # through 0: −50 + 0.9 · 100 = 40
        ([0, 120, 0, 0, 0, 100], 100),  # the first one counts, whatever follows
        ([9, 8, 9, 9, 8, 9], None),  # no higher than it began
        ([100, 90, 80, 70, 60, 50], None),
        ([0, 10, 20, 30, np.nan, np.nan], None),  # diverged
        ([np.nan] * 6, None),
    ],
)
def test_steps_to_final_by_hand(evaluations, expected):
    found = steps_to_final(np.array(evaluations, float), [0, 100, 200, 300, 400, 500])
    assert found == expected or (expected is None and math.isnan(found))


def test_who_ends_higher_always_gets_there():
    rng = np.random.default_rng(0)
    for _ in range(200):
        evaluations = rng.normal(size=26) * 10.0 ** rng.integers(-12, 12) + rng.normal()
        found = steps_to_final(evaluations, range(26))
        assert math.isnan(found) == (not final_returns(evaluations) > evaluations[0])


# Analysis


PRESET = DropInPreset(
    seeds=10,
    domains=("CartPole-v1", "MountainCar-v0"),
    contenders=(DropIn("dqn", "dqn"), DropIn("qlc", "qlc"), DropIn("mine", "qlc", {"gamma": 0.9})),
    evaluations=5,
    episodes=2,
)


def made(finals, learned_at=2):
    """Rows of runs that rise from the floor to their final return at an evaluation, and stay there.

    None: has failed; NaN: has diverged before the last evaluation.
    """

    def rule(run):
        final = finals.get((run.names["domain"], run.names["contender"]), lambda seed: 100.0 + seed)(run.names["seed"])
        if final is None:
            return None
        floor = DOMAINS[run.names["domain"]].floor
        evaluations = np.where(np.arange(6) < learned_at, floor, final)
        lost = math.isnan(final)
        measures = {"final": final - 5.0, "auc": final - 10.0, "diverged_at": 7 if lost else None}
        return {**measures, "unfinished": False, "evaluations": evaluations}

    rows = made_rows(EXPERIMENT.plan, PRESET, rule)
    return EXPERIMENT.analyse(PRESET, rows)


def outcomes(analysis):
    return {verdict.claim: str(verdict.outcome) for verdict in analysis.verdicts}


def test_level_everywhere_and_above_on_one():
    found = made(
        {
            ("CartPole-v1", "dqn"): lambda seed: 300.0 + seed,
            ("CartPole-v1", "qlc"): lambda seed: 400.0 + seed,
            ("CartPole-v1", "mine"): lambda seed: 200.0 + seed,
            ("MountainCar-v0", "dqn"): lambda seed: -110.0 - seed % 3,
            ("MountainCar-v0", "qlc"): lambda seed: -113.0 - seed % 3,
            ("MountainCar-v0", "mine"): lambda seed: -110.0 - seed % 3,
        }
    )
    said = outcomes(found)
    assert said["QLC is level with DQN or above on every domain"] == "holds"
    assert said["mine is level with DQN or above on every domain"] == "does not hold"
    assert said["CartPole-v1: the mean of QLC is above DQN's"] == "holds"
    assert said["CartPole-v1: the mean of mine is at most 46.6 below DQN's"] == "does not hold"
    assert said["MountainCar-v0: the mean of QLC is at most 9 below DQN's"] == "holds"
    assert said["MountainCar-v0: the mean of QLC is above DQN's"] == "does not hold"
    (table,) = found.tables
    rows = {(row["domain"], row["algorithm"]): row for row in table.rows}
    row = rows["CartPole-v1", "QLC"]
    assert row["final"].estimate == 404.5
    assert row["worst seed"] == 400.0
    assert row["failed seeds"] == "0 of 10"
    # The second of five parts of 50 000 steps.
    assert row["steps to 90 %"].estimate == 20_000
    assert row["difference to DQN"].estimate == pytest.approx(100.0)
    assert row["probability of improvement"].estimate == 1.0
    assert (row["while exploring"], row["AUC"]) == (399.5, 394.5)
    assert rows["CartPole-v1", "mine"]["failed seeds"] == "10 of 10", "below 242"
    assert rows["MountainCar-v0", "DQN"]["difference to DQN"] is None
    assert [plot.name for plot in found.plots] == ["greedy-evaluations", "distributions"]
    curve = [row for row in found.plots[0].data if (row["panel"], row["algorithm"]) == ("MountainCar-v0", "dqn")]
    assert [row["step"] for row in curve] == [0, 24_000, 48_000, 72_000, 96_000, 120_000]
    assert curve[0]["mean"] == -200.0


def test_seeds_that_never_learn_diverge_or_crash_have_failed():
    """Of DQN, five of ten on each domain: they stay at the floor, diverge, or crash."""
    lost = {0: 9.0, 1: math.nan, 2: None, 3: 9.0, 4: 200.0}
    found = made(
        {
            ("CartPole-v1", "dqn"): lambda seed: lost.get(seed, 500.0),
            ("CartPole-v1", "qlc"): lambda seed: 500.0,
            ("MountainCar-v0", "dqn"): lambda seed: -200.0 if seed < 5 else -100.0,
            ("MountainCar-v0", "qlc"): lambda seed: -100.0,
        }
    )
    row = next(row for row in found.tables[0].rows if (row["domain"], row["algorithm"]) == ("CartPole-v1", "DQN"))
    assert row["failed seeds"] == "5 of 10"
    assert (row["diverged"], row["crashed"]) == (1, 1)
    # The lowest of the domain in place of two: (4 · 9 + 200 + 5 · 500) / 10.
    assert row["final"].estimate == pytest.approx(273.6)
    # Seeds 0 to 3 never rise, or have no final return; the others do at 20 000.
    assert row["steps to 90 %"].estimate == pytest.approx((4 * 50_000 + 6 * 20_000) / 10)
    said = outcomes(found)
    assert said["Over all domains, DQN fails in more seeds than QLC"] == "holds"
    # Two of ten without a return are too many to speak of means.
    assert said["CartPole-v1: the mean of QLC is at most 46.6 below DQN's"] == "not resolved by this many seeds"


def test_a_contender_without_any_final_return_has_empty_cells():
    found = made({("CartPole-v1", "mine"): lambda seed: None, ("MountainCar-v0", "mine"): lambda seed: math.nan})
    for row in found.tables[0].rows:
        if row["algorithm"] == "mine":
            assert row["failed seeds"] == "10 of 10"
            assert {row["final"], row["steps to 90 %"], row["difference to DQN"], row["while exploring"]} == {None}


def test_rows_as_they_come_from_a_table_and_no_rows():
    assert len(EXPERIMENT.analyse(PRESET, []).tables[0].rows) == 6
    assert BASELINE in [contender.label for contender in CONTENDERS]
