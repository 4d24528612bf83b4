"""Problems: the definitions of the six, the constructors, and errors that name argument, value and remedy."""

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from random_mdps import problems, properties, seeds, theta_of

from sb3_robust_be.linear import PROBLEMS, Problem, get
from sb3_robust_be.linear.features import baird_features, dependent_features, random_relu_features, widened_basis
from sb3_robust_be.linear.trajectories import sample_trajectories

TWO = np.array([[[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]])


def make(**changes):
    arguments = {"K": TWO, "R": np.ones_like(TWO), "gamma": 0.9, "pi": [[0.5, 0.5], [0.5, 0.5]]}
    return Problem.from_mdp(**(arguments | changes))


@pytest.mark.parametrize("name", PROBLEMS)
def test_catalogue_is_well_formed(name):
    problem = get(name)
    assert problem.name == name
    assert problem.gamma == 0.99
    assert problem.d.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(problem.K.sum(axis=2), 1.0, atol=1e-12)
    # v_π solves the Bellman equation, computed here from the tensors and not from P and r.
    values = np.append(problem.v_pi, 0.0)
    backup = np.einsum("sa,sat,sat->s", problem.pi, problem.K, problem.R + 0.99 * values)
    np.testing.assert_allclose(backup, problem.v_pi, atol=1e-10)
    if name != "Baird":
        assert np.linalg.matrix_rank(problem.X) == problem.n_features


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "Baird"])
def test_weighting_is_the_visitation_of_restarting_episodes(name):
    problem = get(name)
    behaviour = np.einsum("sa,sat->st", problem.b, problem.K[:, :, : problem.n_states])
    visits = np.linalg.solve(np.eye(problem.n_states) - behaviour.T, problem.mu0)
    np.testing.assert_allclose(problem.d, visits / visits.sum(), atol=1e-13)
    # The balance of every state holds in its own digits, also where it is visited once in 1e49 steps.
    restarting = behaviour + np.outer((problem.b * problem.K[:, :, -1]).sum(axis=1), problem.mu0)
    np.testing.assert_allclose(problem.d @ restarting, problem.d, rtol=1e-12)
    assert problem.d.min() > 0.0


def test_hard_alias_1_by_hand():
    problem = get("hardalias-1")
    assert problem.K[0, 0, 0] == 1.0  # left at the left end stays
    assert problem.K[7, 1, 8] == 1.0  # right at the right end ends
    assert (problem.R == -1.0).all()
    np.testing.assert_array_equal(problem.X[[0, 2, 7]], np.eye(4)[[0, 0, 0]])
    np.testing.assert_allclose(np.linalg.norm(problem.X, axis=1), 1.0)
    np.testing.assert_allclose(dependent_features()[1], np.array([1.0, 1.0, 0.0]) / np.sqrt(2.0))


def test_chains_and_outlier_by_hand():
    chain = get("SmallChain")
    np.testing.assert_allclose(chain.pi[:, 0], 0.9)
    np.testing.assert_allclose(chain.b, 0.5)
    assert chain.mu0[2] == 1.0
    assert chain.R[0, 0, 5] == -1.0
    assert chain.R[4, 1, 5] == 1.0
    assert get("BigChain").X.shape == (19, 9)
    outlier = get("Outlier", p_left=0.5)
    assert outlier.X.shape == (50, 5)
    assert outlier.r[0] == pytest.approx(-10.0)
    np.testing.assert_allclose(outlier.K[0, :, 25], 0.99)
    assert outlier.R[1, 0, 50] == -1.0
    assert outlier.R[49, 1, 50] == 1.0
    np.testing.assert_allclose(outlier.d[1:26], outlier.d[49:24:-1], rtol=1e-9)  # the fair walk is symmetric


def test_baird_by_hand():
    problem = get("Baird")
    np.testing.assert_array_equal(problem.X[2], [1, 0, 0, 2, 0, 0, 0, 0])
    np.testing.assert_array_equal(problem.X[6], [2, 0, 0, 0, 0, 0, 0, 1])
    np.testing.assert_array_equal(problem.theta0, [1, 1, 1, 1, 1, 1, 1, 10])
    np.testing.assert_array_equal(get("Baird", start="sixth").theta0, [1, 1, 1, 1, 1, 1, 10, 1])
    np.testing.assert_array_equal(problem.v_pi, 0.0)
    np.testing.assert_allclose(np.unique(problem.transitions.ratio), [0.0, 7.0])
    assert np.linalg.matrix_rank(baird_features()) == 7
    # The uniform weighting given for it is the behaviour's own stationary law.
    on_its_own = Problem.from_mdp(
        problem.K, problem.R, 0.99, problem.pi, problem.X, b=problem.b, mu0=problem.mu0, allow_dependent_features=True
    )
    np.testing.assert_allclose(on_its_own.d, problem.d, atol=1e-13)


def test_options_change_the_problem():
    assert get("HardAlias-2", epsilon=0.2).P[1, 1] == pytest.approx(0.8)
    assert get("HardAlias-2", start="one").theta0[0] == 1.0
    assert not np.array_equal(get("SmallChain", seed=0).X, get("SmallChain", seed=1).X)
    np.testing.assert_array_equal(get("BigChain", seed=4).X, get("BigChain", seed=4).X)
    assert get("Outlier").pi[0, 0] == 0.01


def test_random_features_are_nonnegative_of_full_rank_and_repeatable():
    X = random_relu_features(19, (76, 19, 9), seed=3)
    assert X.min() == 0.0
    assert np.linalg.matrix_rank(X) == 9
    wide = widened_basis(X, extra=5, seed=1)
    assert wide.shape == (19, 14)
    np.testing.assert_array_equal(wide[:, :9], X)
    assert not np.array_equal(wide, widened_basis(X, extra=5, seed=2))


def test_from_chain_ends_with_what_a_row_lacks():
    P, r = [[0.2, 0.3], [0.0, 0.6]], [1.0, -2.0]
    problem = Problem.from_chain(P, r, 0.5, [[1.0], [2.0]], d=[0.25, 0.75])
    np.testing.assert_allclose(problem.P, P)
    np.testing.assert_allclose(problem.r, r)
    np.testing.assert_allclose(problem.K[:, 0, 2], [0.5, 0.4])
    np.testing.assert_allclose(problem.v_pi, np.linalg.solve(np.eye(2) - 0.5 * np.array(P), r))
    np.testing.assert_array_equal(problem.mu0, problem.d)


def test_from_toy_text():
    env = gymnasium.make("FrozenLake-v1", is_slippery=True)
    problem = Problem.from_toy_text(env, gamma=0.9)
    assert problem.K.shape == (16, 4, 17)
    # The uniform policy's value by plain iteration over the environment's own table.
    v = np.zeros(16)
    for _ in range(400):
        v = np.array(
            [
                np.mean(
                    [sum(p * (r + 0.9 * v[t] * (not end)) for p, t, r, end in env.unwrapped.P[s][a]) for a in range(4)]
                )
                for s in range(16)
            ]
        )
    np.testing.assert_allclose(problem.v_pi, v, atol=1e-12)
    assert problem.mu0[0] == 1.0
    assert problem.d[15] == 0.0  # nobody acts in the goal
    for name in ("4x4", "8x8"):
        env = gymnasium.make("FrozenLake-v1", map_name=name)
        ends = np.isin(env.unwrapped.desc.ravel(), [b"H", b"G"])
        np.testing.assert_array_equal(Problem.from_toy_text(env).d == 0.0, ends)
    with pytest.raises(ValueError, match="no transition table"):
        Problem.from_toy_text(gymnasium.make("CartPole-v1"))


def test_arrays_are_frozen_copies():
    K = TWO.copy()
    problem = make(K=K)
    K[:] = 0.0
    np.testing.assert_array_equal(problem.K, TWO)
    with pytest.raises(ValueError, match="read-only"):
        problem.K[0, 0, 0] = 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"K": TWO * 0.9}, r"K\[0, 0\] sums to 0.9; give"),
        ({"K": TWO[0]}, r"K has shape \(2, 3\); give"),
        ({"K": np.full_like(TWO, np.nan)}, "K holds NaN"),
        ({"R": np.ones((2, 2))}, r"R has shape \(2, 2\); give \(2, 2, 3\)"),
        ({"gamma": 1.2}, "gamma is 1.2; give"),
        ({"pi": [[0.5, 0.6], [0.5, 0.5]]}, r"pi\[0\] sums to 1.1"),
        ({"pi": [[1.5, -0.5], [0.5, 0.5]]}, r"pi\[0, 1\] is -0.5"),
        ({"b": [[1.0, 0.0], [0.5, 0.5]]}, r"b\[0, 1\] is 0 but pi\[0, 1\] is 0.5.*give the behaviour"),
        ({"b": [0.5, 0.5]}, r"b has shape \(2,\)"),
        ({"X": [[1.0, 2.0], [2.0, 4.0]]}, "X has 2 columns but rank 1.*allow_dependent_features"),
        ({"X": [[1.0]]}, r"X has shape \(1, 1\); give one row"),
        ({"d": [0.5, 0.4]}, "d sums to 0.9"),
        ({"theta0": [1.0]}, r"theta0 has shape \(1,\); give \(2,\)"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_more_bad_arguments():
    assert make(X=[[1.0, 2.0], [2.0, 4.0]], allow_dependent_features=True).n_features == 2
    endless = np.zeros((2, 1, 3))
    endless[[0, 1], 0, [1, 0]] = 1.0
    with pytest.raises(ValueError, match=r"gamma is 1\.0 and the target policy never reaches"):
        Problem.from_mdp(endless, endless, 1.0, np.ones((2, 1)))
    stuck = np.zeros((2, 1, 3))
    stuck[[0, 1], 0, [0, 1]] = 1.0
    with pytest.raises(ValueError, match="several stationary laws; give d"):
        Problem.from_mdp(stuck, stuck, 0.9, np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"P\[0\] sums to 1.1"):
        Problem.from_chain([[1.1]], [0.0], 0.9)
    with pytest.raises(ValueError, match="r has shape"):
        Problem.from_chain([[1.0]], [0.0, 1.0], 0.9)
    with pytest.raises(ValueError, match="name is 'Bard'; give one of HardAlias-1"):
        get("Bard")
    with pytest.raises(ValueError, match="epsilon is not an option of Baird; it has start"):
        get("Baird", epsilon=0.1)
    with pytest.raises(ValueError, match="start is 'first'; give one of"):
        get("Baird", start="first")
    with pytest.raises(ValueError, match="hidden ends with 9 features for 5 states"):
        random_relu_features(5, (9,))


@properties
@given(problem=problems(), seed=seeds)
def test_transition_table_holds_the_mdp(problem, seed):
    table, theta = problem.transitions, theta_of(problem, seed)
    per_state = np.bincount(table.state, table.probability, problem.n_states)
    np.testing.assert_allclose(per_state, 1.0, atol=1e-12)
    td_error = table.reward + table.discount * (table.x_next @ theta) - table.x @ theta
    mean = np.bincount(table.state, table.probability * table.ratio * td_error, problem.n_states)
    np.testing.assert_allclose(mean, problem.bellman_error(theta), atol=1e-10)


def test_trajectories_follow_the_behaviour_policy():
    problem = get("SmallChain")
    table = problem.transitions
    taken = sample_trajectories(problem, 20_000, [0, 1])
    following = table.next_state[taken[:, :-1]]
    start = np.where(following == 5, 2, following)
    np.testing.assert_array_equal(table.state[taken[:, 1:]], start)
    assert (table.state[taken[:, 0]] == 2).all()
    frequency = np.bincount(table.state[taken].ravel(), minlength=5) / taken.size
    np.testing.assert_allclose(frequency, problem.d, atol=0.02)
    counts = np.bincount(taken.ravel(), minlength=len(table.state))
    np.testing.assert_allclose(counts / taken.size, problem.d[table.state] * table.probability, atol=0.02)


def test_trajectories_depend_on_their_seed_alone():
    problem = get("Baird")
    together = sample_trajectories(problem, 2500, [3, 4, 5])
    np.testing.assert_array_equal(sample_trajectories(problem, 1700, [4])[0], together[1, :1700])
    assert not np.array_equal(together[0], together[1])
