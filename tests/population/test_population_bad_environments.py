"""What one member's environment raises or returns costs that member alone, and is told."""

from __future__ import annotations

import errno
import functools

import numpy as np
import pytest
from faulty_envs import AT, LENGTH, STEPS, FaultyEnv, Losing, nothing_fails, population
from populations import CountingEnv, assert_same_member, make, member_state

from sb3_robust_be.envs.lockstep import make_lockstep

pytestmark = pytest.mark.filterwarnings(
    "error", "ignore:.*have failed\\.:UserWarning", "ignore:.*bootstraps from a target network:UserWarning"
)
MEND, WRAP, WRAP_REWARD = "Fix the environment", "TransformObservation", "TransformReward"
# By fault: what the reason says.
AT_A_STEP = {
    "exception": ("step()", "RuntimeError: lost the robot (faulty_envs.py, line ", MEND),
    "reward nan": ("step()", "returned the reward nan.", WRAP_REWARD),
    "reward inf": ("step()", "returned the reward inf.", WRAP_REWARD),
    "reward huge": ("step()", "returned the reward 1e+39.", WRAP_REWARD),
    "reward text": ("step()", "ValueError", "'fast'", MEND),
    "place nan": ("step()", "an observation with nan under the key 'place'", WRAP),
    "place inf": ("step()", "an observation with -inf under the key 'place'", WRAP),
    "place shape": ("step()", "ValueError", "'place' has the shape (1,) and its space (2,)", MEND),
    "place missing": ("step()", "lacks the key 'place'", MEND),
    "cell top": ("step()", "an observation with 2 under the key 'cell'", "Discrete(4, start=-2)", MEND),
    "cell low": ("step()", "an observation with -3 under the key 'cell'", "Discrete(4, start=-2)", MEND),
}
AT_A_RESET = {
    "exception": ("reset()", "RuntimeError: lost the robot (faulty_envs.py, line ", MEND),
    "place nan": ("reset()", "an observation with nan under the key 'place'", WRAP),
    "place shape": ("reset()", "'place' has the shape (1,) and its space (2,)", MEND),
    "cell top": ("reset()", "an observation with 2 under the key 'cell'", MEND),
    "cell missing": ("reset()", "lacks the key 'cell'", MEND),
}


def assert_the_others_went_on(failed, healthy):
    assert failed.num_timesteps == STEPS
    for i in (0, 2):
        assert_same_member(member_state(failed, i), healthy[i])
        assert failed.returns[i].steps.tolist() == list(range(LENGTH, STEPS + 1, LENGTH))


@pytest.mark.parametrize("fault", AT_A_STEP)
def test_a_step_costs_one_member(fault):
    failed = population(fault).learn(STEPS)
    assert failed.failed_at.tolist() == [-1, AT, -1]
    assert failed.failed.tolist() == [False, True, False]
    assert failed.diverged.tolist() == [False, False, False]
    assert failed.failures[::2] == [None, None]
    reason = failed.failures[1]
    assert reason.startswith(f"At environment step {AT}: ")
    assert all(part in reason for part in AT_A_STEP[fault])
    assert "\n" not in reason
    assert ("FaultyEnv" in failed.tracebacks[1] or "faulty_envs" in failed.tracebacks[1]) == (fault == "exception")
    assert failed.returns[1].steps.tolist() == [5, 10, 15, 20]
    assert_the_others_went_on(failed, nothing_fails())


@pytest.mark.parametrize("fault", AT_A_RESET)
def test_a_reset_costs_one_member(fault):
    """The episode before it has ended well, and counts."""
    failed = population(fault, step=0).learn(STEPS)
    assert failed.failed_at.tolist() == [-1, 20, -1]
    assert all(part in failed.failures[1] for part in AT_A_RESET[fault])
    assert failed.returns[1].steps.tolist() == [5, 10, 15, 20]
    assert_the_others_went_on(failed, nothing_fails())


@pytest.mark.parametrize("fault", ["exception", "place nan", "cell top"])
def test_the_first_reset_costs_one_member(fault):
    failed = population(fault, step=0, episode=0).learn(STEPS)
    assert failed.failed_at.tolist() == [-1, 0, -1]
    assert failed.failures[1].startswith("At environment step 0: reset() of its environment")
    assert failed.returns[1].steps.size == 0
    assert_the_others_went_on(failed, nothing_fails())


@pytest.mark.parametrize("fault", ["place nan", "cell top", "exception"])
def test_a_last_observation_costs_one_member(fault):
    failed = population(fault, step=LENGTH).learn(STEPS)
    assert failed.failed_at.tolist() == [-1, 25, -1]
    assert failed.returns[1].steps.tolist() == [5, 10, 15, 20]
    assert_the_others_went_on(failed, nothing_fails())


def test_not_stepped_again_and_frozen():
    FaultyEnv.calls_after_the_fault = 0
    seen = []
    failed = population("exception", gradient_steps=2, target_update_interval=3)
    failed.learn(STEPS, callback=lambda p: seen.append(member_state(p, 1)))
    failed.learn(STEPS)
    assert FaultyEnv.calls_after_the_fault == 0
    for name, x in seen[AT].items():
        if not name.startswith("replay/"):
            np.testing.assert_array_equal(x, seen[-1][name], err_msg=name)
    assert not np.array_equal(seen[AT - 3]["rows"], seen[AT - 2]["rows"]), "until then it has learned"


@pytest.mark.parametrize(
    ("algorithm", "fault", "kwargs"),
    [
        ("dqn", "place nan", {"target_update_interval": 3}),
        ("sbeed", "exception", {"behaviour": "softmax"}),
        ("qlc", "reward inf", {"train_freq": 4, "gradient_steps": 2}),
    ],
)
def test_in_every_kind_of_algorithm(algorithm, fault, kwargs):
    failed = population(fault, algorithm, **kwargs).learn(STEPS)
    assert failed.failed_at.tolist() == [-1, AT, -1]
    assert_the_others_went_on(failed, nothing_fails(algorithm, **kwargs))


def test_resets_that_fail_at_random():
    """Every seed is what it is with the others, failed or not."""
    seeds = range(40)
    lossy = make("qrc", seeds, Losing).learn(60)
    sound = make("qrc", seeds, Losing, env_kwargs={"probability": 0.0}).learn(60)
    assert 0 < lossy.failed.sum() < 10
    for i in seeds:
        if lossy.failed[i]:
            step = lossy.failed_at[i]
            assert lossy.failures[i].startswith(f"At environment step {step}: reset() of its")
            assert lossy.returns[i].steps.tolist() == list(range(5, step + 1, 5))
        else:
            assert_same_member(member_state(lossy, i), member_state(sound, i))


# --- what users see ---


def test_one_warning_says_how_many_and_why():
    lossy = make("qrc", range(40), Losing, learning_rate=[1e-3, 1e30])
    with pytest.warns(UserWarning, match="have failed") as caught:
        lossy.learn(60)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    text = str(caught[0].message)
    assert 0 < lossy.failed[:40].sum() < 10
    assert not lossy.diverged[:40].any()
    assert lossy.failed[40:].all()
    assert 30 < lossy.diverged[40:].sum() < 40
    assert text.startswith(f"{lossy.failed.sum()} of 80 members have failed. ")
    assert text.count("RuntimeError: lost (faulty_envs.py, line ") == text.count("infinite or NaN") == 1
    assert "See pop.failures and pop.failed_at" in text
    assert len(text) < 600


def test_many_reasons_are_counted():
    class Unique(CountingEnv):
        def reset(self, **kwargs):
            raise RuntimeError(f"lost {id(self)}")

    with pytest.warns(UserWarning, match=r"9 of 9 members have failed.*lost.*And 4 other reasons\. See"):
        make("qrc", range(9), Unique).learn(30)


def test_training_ends_when_all_have_failed():
    class Dead(CountingEnv):
        def step(self, action):
            if self.count == 2:
                raise ValueError("dead")
            return super().step(action)

    steps = []
    dead = make("qrc", range(3), Dead)
    with pytest.warns(UserWarning, match=r"3 of 3 members have failed\. Members 0, 1, 2: step\(\).*ValueError: dead"):
        dead.learn(10_000, callback=lambda p: steps.append(p.num_timesteps))
    assert dead.num_timesteps == 3
    assert dead.failed_at.tolist() == [3, 3, 3]
    assert steps == [1, 2, 3]
    assert np.isnan(dead.curve(3)).all()
    for reset in (False, True):
        with pytest.warns(UserWarning, match="3 of 3"):
            dead.learn(100, reset_num_timesteps=reset)
    assert dead.failed_at.tolist() == [3, 3, 3]
    assert [e.steps.size for e in dead.returns] == [0, 0, 0]


def test_an_environment_that_cannot_be_made():
    made = []

    class Sockets(CountingEnv):
        def __init__(self):
            super().__init__()
            made.append(self)
            if len(made) == 2:
                raise OSError("no free port")

    with pytest.warns(UserWarning, match=r"Seed 1 will not be trained: making its env.*OSError: no free port \(test_"):
        failed = make("qrc", range(3), Sockets)
    failed.learn(30)
    assert failed.failed_at.tolist() == [-1, 0, -1]
    healthy = make("qrc", range(3), CountingEnv).learn(30)
    for i in (0, 2):
        assert_same_member(member_state(failed, i), member_state(healthy, i))


def test_what_the_first_environment_raises_is_the_callers():
    class Absent(CountingEnv):
        def __init__(self):
            raise OSError("no free port")

    with pytest.raises(OSError, match="no free port"):
        make("qrc", range(3), Absent)


def test_closing_closes_all():
    closed = []

    class Window(CountingEnv):
        def close(self):
            closed.append(self)
            if len(closed) == 1:
                raise OSError("no such window")

    trained = make("qrc", range(3), Window).learn(30)
    with pytest.warns(UserWarning, match=r"1 of 3 environments could not be closed\. member 0: close\(\).*no such win"):
        trained.env.close()
    assert len(closed) == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_is_no_error_of_the_environment_comes_through(error):
    class Stopped(CountingEnv):
        def step(self, action):
            raise error

    stopped = make("qrc", range(2), Stopped)
    with pytest.raises(error):
        stopped.learn(30)
    assert not stopped.failed.any()


def test_a_full_disk_is_no_members_fault():
    class Recording(CountingEnv):
        def step(self, action):
            raise OSError(errno.ENOSPC, "No space left on device", "video.mp4")

    stopped = make("qrc", range(2), Recording)
    with pytest.raises(OSError, match="No space left"):
        stopped.learn(30)
    assert not stopped.failed.any()


# --- numpy's versions of environments ---


def test_a_reset_in_numpys_versions(monkeypatch):
    """Whose member it is, is known."""
    healthy = make("qrc", range(3)).learn(60)
    lost = make("qrc", range(3))
    model, n_resets = lost.env._model, []
    reset = model.reset

    def fails_once(**kwargs):
        n_resets.append(kwargs)
        if len(n_resets) == 6:
            raise RuntimeError("lost")
        return reset(**kwargs)

    monkeypatch.setattr(model, "reset", fails_once)
    lost.learn(60)
    assert lost.failed.sum() == 1
    (i,) = np.flatnonzero(lost.failed)
    assert "reset() of its environment failed with RuntimeError: lost" in lost.failures[i]
    for j in set(range(3)) - {i}:
        assert_same_member(member_state(lost, j), member_state(healthy, j))


def test_lockstep_environments_say_why_and_show_what_fits():
    env = make_lockstep(functools.partial(FaultyEnv, "place nan"), range(3))
    env.reset()
    for _ in range(AT):
        step = env.step(np.ones(3, int))
    ((member, failure),) = env.failures.items()
    assert member == 1
    assert "nan under the key 'place'" in failure.reason
    assert step.rewards[1] == 0
    assert np.isfinite(step.observations["place"]).all()
    shown = {name: part[1].copy() for name, part in step.observations.items()}
    for _ in range(7):
        step = env.step(np.ones(3, int))
        assert {name: part[1].tolist() for name, part in step.observations.items()} == {
            name: part.tolist() for name, part in shown.items()
        }
    np.testing.assert_array_equal(env.begin_next_episodes()["place"][1], shown["place"])
    np.testing.assert_array_equal(env.reset()["cell"][1], 0 * shown["cell"] - 2)
