"""QLC's learning rate over a run, over one that is stopped, and over one that goes on."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from small_models import SMALL

from sb3_robust_be import QLC, Population
from sb3_robust_be.qrc.qrc import FALLING

FIRST, LAST = 2.0**-9, 2.0**-13
SETTINGS = {name: value for name, value in SMALL.items() if name != "learning_rate"}


def rates(model, steps, **kwargs):
    """Of the values and of the secondary head, after each step of a run."""
    found = []
    model.learn(
        steps, lambda *_: found.append([g["lr"] for g in model.policy.optimizer.param_groups]) or True, **kwargs
    )
    return found


def test_it_falls_in_proportion_to_the_steps():
    model = QLC("MlpPolicy", "CartPole-v1", h_learning_rate_ratio=2.0, **SETTINGS)
    found = rates(model, 100)
    # The callback of a step comes before its update.
    for step in (20, 50, 100):
        expected = FIRST + (LAST - FIRST) * (step - 1) / 100
        assert found[step - 1] == pytest.approx([expected, 2.0 * expected])
    assert model.policy.optimizer.param_groups[0]["lr"] == pytest.approx(LAST)


def test_a_run_that_goes_on_has_the_rates_of_the_second_half_of_one_that_is_twice_as_long(tmp_path):
    whole = rates(QLC("MlpPolicy", "CartPole-v1", **SETTINGS), 200)
    model = QLC("MlpPolicy", "CartPole-v1", **SETTINGS)
    model.learn(100)
    model.save(tmp_path / "model")
    for going_on in (model, QLC.load(tmp_path / "model", env=gym.make("CartPole-v1"))):
        found = rates(going_on, 100, reset_num_timesteps=False)
        # From a sixteenth back to about half of the first rate, and down again.
        np.testing.assert_allclose(found[1:], whole[101:], rtol=1e-12)
        assert found[1][0] == pytest.approx((FIRST + LAST) / 2, rel=0.02)


def test_a_run_that_is_stopped_keeps_the_rate_that_it_had():
    model = QLC("MlpPolicy", "CartPole-v1", **SETTINGS)
    model.learn(100, lambda local, _: local["self"].num_timesteps < 50)
    assert model.policy.optimizer.param_groups[0]["lr"] == pytest.approx(FALLING(0.51), rel=0.02)


def test_populations_have_it_as_well():
    population = Population("qlc", "MlpPolicy", "CartPole-v1", [0, 1], verbose=0, **SETTINGS_OF_A_POPULATION)
    population.learn(60)
    assert [model.learning_rate for model in population] == [FALLING, FALLING]
    (learner,) = population._trainer.learners
    assert learner._settings_at(0.25).rates[0].flatten().tolist() == pytest.approx([FALLING(0.25)] * 2)


def rates_of_members(population, steps, **kwargs):
    """What each update took, shape (steps, 2 heads, members); the first ten steps have none."""
    found = []

    def look(p):
        (learner,) = p._trainer.learners
        taken = learner._unchanging or {}
        found.append([taken[f"rates/{head}"].flatten().tolist() for head in ("values", "secondary")] if taken else None)

    population.learn(steps, callback=look, **kwargs)
    return found


def test_a_population_that_goes_on_has_the_rates_of_an_agent_that_does(tmp_path):
    """60 steps and 60 more: the rate rises from a sixteenth to about half of the first one, and falls again."""
    agent = QLC("MlpPolicy", "CartPole-v1", h_learning_rate_ratio=2.0, **SETTINGS)
    agent.learn(60)
    # The callback of a step comes before its update.
    of_agent = rates(agent, 60, reset_num_timesteps=False)[1:]
    of_agent.append([group["lr"] for group in agent.policy.optimizer.param_groups])

    population = Population(
        "qlc", "MlpPolicy", "CartPole-v1", [0, 1], verbose=0, h_learning_rate_ratio=2.0, **SETTINGS_OF_A_POPULATION
    )
    first = rates_of_members(population, 60)
    assert first[9] is None
    # By hand: 2^-9 − (2^-9 − 2^-13)·t/60 at t = 30 and 60.
    assert first[29][0] == pytest.approx([0.00103759765625] * 2)
    assert first[59][0] == pytest.approx([LAST] * 2)
    population.save(tmp_path)
    for members in (population, Population.load(tmp_path)):
        second = rates_of_members(members, 60, reset_num_timesteps=False)
        # 2^-9 − (2^-9 − 2^-13)·t/120 at t = 61, 90 and 120; the secondary head's is twice that.
        for step, expected in ((61, 0.0010223388671875), (90, 0.000579833984375), (120, LAST)):
            np.testing.assert_allclose(second[step - 61], [[expected] * 2, [2 * expected] * 2], rtol=1e-6)
        np.testing.assert_allclose(np.array(second), np.array(of_agent)[:, :, None].repeat(2, axis=2), rtol=1e-6)


SETTINGS_OF_A_POPULATION = {name: value for name, value in SETTINGS.items() if name != "seed"}
