"""What is measured of agents on Cliff World while they learn."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch as th

from sb3_robust_be import updates
from sb3_robust_be.envs.cliff_world import N_STATES, START, observation_table, transition_table
from sb3_robust_be.experiments.cliff_world.trace import GROUPS, checkpoints, measure, tables, visits
from sb3_robust_be.population import Population

UP, RIGHT, DOWN, LEFT = range(4)
GAMMA = 0.9
# Each kind of transition, with how often it is in the buffer: falls from the start and from above the cliff, blocked
# moves at the start and at the top, the move into the goal, and moves into and away from the start.
BUFFER = {(0, RIGHT): 3, (7, DOWN): 2, (0, LEFT): 4, (17, UP): 1, (9, DOWN): 2, (5, DOWN): 1, (0, UP): 5}


class Network:
    def __init__(self, q, h=None):
        self.q, self.h = (None if x is None else th.as_tensor(x) for x in (q, h))
        if h is not None:
            self.q_and_h = lambda seen: (self(seen), seen @ self.h)

    def __call__(self, seen):
        return seen @ self.q


def made_agent(settings, target=None, observation="one_hot", seed=0):
    """An agent with made values whose buffer holds :data:`BUFFER`, on one-hot observations."""
    rng = np.random.default_rng(seed)
    q, h = rng.normal(0, 20, (2, N_STATES, 4)).astype(np.float32)
    net = Network(q, None if settings is None else h)
    states, actions = (np.array([pair[i] for pair, count in BUFFER.items() for _ in range(count)]) for i in (0, 1))
    rows = observation_table(observation)[states]
    # What lies behind the filled part is not to be read.
    rest = np.full((5, 1, rows.shape[1]), 77.0, np.float32)
    buffer = SimpleNamespace(
        observations=np.concatenate([rows[:, None], rest]),
        actions=np.concatenate([actions[:, None, None], np.full((5, 1, 1), 3)]),
        size=lambda: len(rows),
    )
    return SimpleNamespace(
        q_net=net,
        q_net_target=net if target is None else Network(target),
        device="cpu",
        gamma=GAMMA,
        replay_buffer=buffer,
        projection_settings=lambda: settings,
    )


def by_hand(agent, settings, target):
    """The same numbers transition by transition."""
    q, h = tables(agent, "one_hot")
    seen: dict[str, list] = {group: [] for group in GROUPS}
    for (s, a), count in BUFFER.items():
        [(_, following, reward, terminated)] = transition_table()[s][a]
        discount = 0.0 if terminated else GAMMA
        delta = reward + discount * (q if target is None else target)[following].max() - q[s, a]
        z, clipped = 0.0, False
        if settings is not None:
            bound = np.inf if settings["threshold"] is None else settings["threshold"]
            bound = min(bound, abs(delta)) if settings["limit"] else bound
            z, clipped = np.clip(h[s, a], -bound, bound), abs(h[s, a]) > bound
        group = "falls" if reward == -1000 else "blocked moves" if following == s else "other moves"
        push = -discount * z if following == START else 0.0
        seen[group] += [(1.0, abs(delta), abs(h[s, a]), clipped, abs(discount * z), push)] * count
    total = sum(BUFFER.values())
    return {
        "share": [len(x) / total for x in seen.values()],
        "td_error": [np.mean([y[1] for y in x]) for x in seen.values()],
        "h": [np.mean([y[2] for y in x]) for x in seen.values()],
        "clipped": [np.mean([y[3] for y in x]) for x in seen.values()],
        "ratio": [sum(y[4] for y in x) / sum(y[1] for y in x) for x in seen.values()],
        "push": [sum(y[5] for y in x) / total for x in seen.values()],
    }


@pytest.mark.parametrize(
    "settings",
    [
        {"projection": "squared", "threshold": None, "limit": None},
        {"projection": "huber", "threshold": 15.0, "limit": None},
        {"projection": "huber", "threshold": 0.0, "limit": None},
        {"projection": "huber", "threshold": None, "limit": "magnitude"},
        None,  # no secondary estimates, as in DQN
    ],
)
@pytest.mark.parametrize("has_target", [False, True])
def test_measures_are_those_of_the_buffers_transitions(settings, has_target):
    target = np.random.default_rng(9).normal(0, 20, (N_STATES, 4)).astype(np.float32) if has_target else None
    agent = made_agent(settings, target)
    found, expected = measure(agent, "one_hot"), by_hand(agent, settings, target)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, err_msg=name)
    q = tables(agent, "one_hot")[0]
    assert found["start_value"] == q[START].max()
    assert found["start_stays"] == (q[START].argmax() != UP)
    if settings is not None and settings["threshold"] == 15.0:
        assert 0.0 < sum(found["clipped"]) < len(GROUPS), "both sides of the threshold"


def test_a_group_without_transitions_has_no_mean():
    agent = made_agent(None)
    agent.replay_buffer.size = lambda: 3  # falls from the start
    found = measure(agent, "one_hot")
    assert found["share"].tolist() == [1.0, 0.0, 0.0]
    assert np.isnan(found["td_error"]).tolist() == np.isnan(found["ratio"]).tolist() == [False, True, True]


@pytest.mark.parametrize("observation", ["coordinates", "one_hot"])
def test_visits_count_states_and_actions(observation):
    counts = visits(made_agent(None, observation=observation), observation)
    assert {(int(s), int(a)): counts[s, a] for s, a in np.argwhere(counts)} == BUFFER


@pytest.mark.parametrize(
    ("steps", "points", "expected"), [(10, 5, [2, 4, 6, 8, 10]), (7, 2, [3, 7]), (3, 5, [1, 2, 3])]
)
def test_checkpoints(steps, points, expected):
    assert checkpoints(steps, points).tolist() == expected


@pytest.mark.parametrize("algorithm", ["qrc_huber", "qlc", "dqn"])
def test_measures_are_those_of_the_algorithms_own_loss(algorithm):
    """Over the whole buffer as one batch."""
    population = Population(
        algorithm,
        "MlpPolicy",
        "RobustBE/CliffWorld-v0",
        [4],
        env_kwargs={"observation": "one_hot"},
        policy_kwargs={"net_arch": [8]},
        # QLC's default corrects nothing here, where hardly an error is above 0.
        **({"limit": "magnitude"} if algorithm == "qlc" else {}),
        learning_starts=20,
        learning_rate=0.01,
        train_freq=1,
        buffer_size=400,
        verbose=0,
    ).learn(200)
    agent = population[0]
    found = measure(agent, "one_hot")
    assert found["share"].sum() == pytest.approx(1.0)
    if algorithm == "dqn":
        assert found["ratio"].tolist() == [0.0, 0.0, 0.0]
        return
    everything = agent.replay_buffer._get_samples(np.arange(agent.replay_buffer.size()))
    with th.no_grad():
        terms = agent.batch_loss(everything, agent.update_settings())
    errors = found["share"] * found["td_error"]
    assert errors.sum() == pytest.approx(float(terms.td_error.abs().mean()), rel=1e-4)
    assert (found["ratio"] * errors).sum() == pytest.approx(float(terms.correction.abs().mean()), rel=1e-4)
    clipped = updates.is_clipped(terms.h, terms.td_error, **agent.projection_settings()).float().mean()
    assert (found["share"] * found["clipped"]).sum() == pytest.approx(float(clipped), abs=1e-6)
    assert 0.0 < clipped < 1.0
