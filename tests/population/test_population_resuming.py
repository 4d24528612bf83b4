"""Going on: in the middle of a rollout, after an interruption, and anew; and arguments as numpy has them."""

from __future__ import annotations

import copy
import os
import pickle
import signal

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from populations import CountingEnv, make, rows

from sb3_robust_be.envs.lockstep import make_lockstep
from sb3_robust_be.population import Population


@pytest.mark.parametrize("stop", [50, 52])
def test_going_on_within_a_rollout_is_going_on(stop, tmp_path):
    """Updates come every fourth step, whether the run was stopped, saved and loaded in between or not."""
    whole = make("qrc", [0, 1], train_freq=4).learn(90)
    part = make("qrc", [0, 1], train_freq=4)
    part.learn(90, callback=lambda p: p.num_timesteps < stop)
    part.save(tmp_path)
    loaded = Population.load(tmp_path).learn(90 - stop, reset_num_timesteps=False)
    assert loaded._trainer.learners[0].n_updates == whole._trainer.learners[0].n_updates
    th.testing.assert_close(rows(loaded), rows(whole), rtol=0, atol=0)


def test_a_second_run_has_new_episodes():
    population = make("qrc", [0])
    starts = []
    for _ in range(2):
        population.learn(25, callback=lambda p: p.num_timesteps < 21)
        starts.append(population._trainer.replay.fields()["observations"][0].clone())
    firsts = [starts[0][0], starts[1][21]]
    assert not th.equal(*firsts)


def test_ctrl_c_comes_between_two_steps():
    """Sent in the middle of a step, it ends the run after it: everything counts as many steps."""

    class Interrupting(CountingEnv):
        steps_of_all = 0

        def step(self, action):
            Interrupting.steps_of_all += 1
            if Interrupting.steps_of_all == 31:  # the first of two members in the 16th step
                os.kill(os.getpid(), signal.SIGINT)
            return super().step(action)

    population = make("qrc", [0, 1], Interrupting)
    with pytest.raises(KeyboardInterrupt):
        population.learn(40)
    assert population.num_timesteps == population._trainer.n_calls == population._trainer.replay.size == 16
    assert Interrupting.steps_of_all == 32
    population.learn(24, reset_num_timesteps=False)
    uninterrupted = make("qrc", [0, 1], CountingEnv).learn(40)
    th.testing.assert_close(rows(population), rows(uninterrupted), rtol=0, atol=0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_go_on_like_the_original(copied):
    population = make("qrc_huber", [0, 1]).learn(40)
    other = copied(population)
    for one in (population, other):
        one.learn(20, reset_num_timesteps=False)
    th.testing.assert_close(rows(other), rows(population), rtol=0, atol=0)


def test_numpys_vectors_are_lists_and_its_numbers_numbers():
    population = make("qrc", np.arange(2), learning_rate=2.0 ** np.arange(-12, -10), gamma=np.float32(0.5))
    assert [member.settings["learning_rate"] for member in population.members] == [2**-12, 2**-12, 2**-11, 2**-11]
    assert population[0].gamma == 0.5


def test_slices():
    population = make("qrc", range(3)).learn(25)
    assert [model.seed for model in population[1:]] == [1, 2]


def test_a_run_without_updates_warns():
    with pytest.warns(UserWarning, match="before learning_starts=20"):
        make("qrc", [0]).learn(10)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"train_freq": 0}, ValueError, "train_freq must be at least 1 and is 0"),
        ({"train_freq": (2, "episode")}, ValueError, "counts episodes"),
        ({"seeds": [2**40]}, ValueError, "from 0 to 2³² − 1"),
    ],
)
def test_arguments_out_of_range(arguments, error, says):
    with pytest.raises(error, match=says):
        make("qrc", **{"seeds": [0], **arguments})


def test_sb3s_callbacks_are_refused_before_the_first_step():
    population = make("qrc", [0])
    with pytest.raises(TypeError, match="callback"):
        population.learn(30, callback=["a list"])
    assert population.num_timesteps == 0


def test_dqn_refuses_actions_that_do_not_start_at_0():
    class Shifted(CountingEnv):
        def __init__(self):
            super().__init__()
            self.action_space = gym.spaces.Discrete(2, start=3)

    with pytest.raises(ValueError, match="acts from 0 on"):
        make("dqn", [0], Shifted)


def test_options_are_read_from_the_environment_and_not_from_its_registration():
    """A registered function may have set them."""
    gym.register("Sutton/CartPole-v0", lambda **kw: CartPoleEnv(sutton_barto_reward=True, **kw), max_episode_steps=50)
    try:
        members = make_lockstep("Sutton/CartPole-v0", [0, 1])
        members.reset()
        rewards = np.array([members.step(np.ones(2, int)).rewards for _ in range(30)])
        assert set(np.unique(rewards)) == {-1.0, 0.0}
    finally:
        gym.registry.pop("Sutton/CartPole-v0")
