"""An exception in one seed's environment costs that seed alone, in experiments and in ``compare``."""

from __future__ import annotations

import re

import gymnasium as gym
import numpy as np
import pytest
from run_results import load_finals

from sb3_robust_be import cli
from sb3_robust_be.envs.lockstep import episode_seed
from sb3_robust_be.experiments.control.training import POPULATION, SINGLE, control_spec
from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.experiments.run_functions import run_units


def spec_of(seed, env, function, **more):
    arguments = {"policy_kwargs": {"net_arch": [8]}, "buffer_size": 200, "learning_starts": 20, "device": "cpu"}
    if function == POPULATION:
        del arguments["device"]
    return control_spec("qrc_huber", env, 100, seed, arguments, function=function, **more)


class LosesSeedOne(gym.Env):
    """Five steps an episode; one reset of seed 1 is lost, the first of a single agent's and the third of a member's."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        if seed in (1, episode_seed(1, 2)):
            raise RuntimeError("lost")
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.t += 1
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), float(action), self.t == 5, False, {}

    def close(self):
        if self.unwrapped.spec.kwargs.get("sticks"):
            raise OSError("no such window")


@pytest.fixture
def loses_seed_one():
    """The id under which it is registered."""
    gym.register("LosesSeedOne-v0", lambda **kwargs: LosesSeedOne())
    yield "LosesSeedOne-v0"
    gym.registry.pop("LosesSeedOne-v0")


REASON = {
    POPULATION: "At environment step 10: reset() of its environment failed with RuntimeError: lost (",
    SINGLE: "RuntimeError: lost",
}


@pytest.mark.parametrize("function", REASON)
@pytest.mark.filterwarnings("ignore:.*1 of 3 members have failed:UserWarning")
def test_one_bad_reset_costs_one_seed(function, loses_seed_one, tmp_path):
    specs = [spec_of(s, loses_seed_one, function) for s in range(3)]
    assert run_units([specs], tmp_path / "all", executor="serial", progress=False) == (2, 1, 0)
    found = Results(tmp_path / "all")
    failures = [found.failure(spec) for spec in specs]
    assert failures[::2] == [None, None]
    assert failures[1]["error"].startswith(REASON[function])
    assert 'raise RuntimeError("lost")' in failures[1]["traceback"]
    healthy = [specs[0], specs[2]]
    assert run_units([healthy], tmp_path / "two", executor="serial", progress=False).done == 2
    for spec in healthy:
        for name, array in Results(tmp_path / "two").arrays(spec).items():
            np.testing.assert_array_equal(found.arrays(spec)[name], array)
    assert np.isnan(load_finals(found, specs)).tolist() == [False, True, False]


@pytest.mark.parametrize("function", REASON)
def test_a_window_that_cannot_be_closed_costs_no_seed(function, loses_seed_one, tmp_path):
    specs = [spec_of(s, loses_seed_one, function, env_kwargs={"sticks": True}) for s in (2, 3)]
    with pytest.warns(UserWarning, match="no such window"):
        assert run_units([specs], tmp_path, executor="serial", progress=False) == (2, 0, 0)


@pytest.mark.filterwarnings("ignore:.*1 of 3 members have failed:UserWarning")
def test_compare_names_the_bad_seed_and_judges_by_the_others(loses_seed_one, tmp_path, capsys):
    small = ["--seeds", "3", "--steps", "150", "--net-arch", "8", "--executor", "serial", "--quiet"]
    assert cli.main(["compare", "--env", loses_seed_one, "--algos", "qlc,dqn", "--out", str(tmp_path), *small]) == 1
    printed = capsys.readouterr().out
    reason = r"At environment step 10: reset\(\) of its environment failed with RuntimeError: lost \("
    assert len(re.findall(rf"^(qlc|dqn), seed 1: {reason}", printed, re.MULTILINE)) == 2
    assert "seed 0" not in printed
    assert "seed 2" not in printed
    assert re.search(r"^qlc .* 3 .* 1 ", printed, re.MULTILINE)
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 4
    assert len(list(tmp_path.glob("runs/*/failed.json"))) == 2
