"""With tables for both heads, the exact law of the transitions and exact h, SBEED's solutions are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from scipy.optimize import approx_fprime, minimize
from scipy.special import logsumexp
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from two_heads import GAMMA, SpacesOnly, gradients, make_model

from sb3_robust_be import SBEED

TEMPERATURE = 0.5


class TabularMDP:
    """States as one-hot vectors; each action leads to one of equally likely successors, of which ``-1`` is the end.

    :param successors: (states, actions, outcomes), integers.
    :param rewards: (states, actions, outcomes).
    """

    def __init__(self, successors: np.ndarray, rewards: np.ndarray) -> None:
        self.successors, self.rewards = successors, rewards
        self.n_states, self.n_actions, self.n_outcomes = successors.shape

    def batch(self) -> ReplayBufferSamples:
        """One row per outcome, in the order of ``successors``."""
        states, actions, _ = np.indices(self.successors.shape).reshape(3, -1)
        after = self.successors.ravel()
        one_hot = th.eye(self.n_states)
        return ReplayBufferSamples(
            observations=one_hot[states],
            actions=th.as_tensor(actions).reshape(-1, 1),
            next_observations=one_hot[after],
            dones=th.as_tensor(after == -1).double().reshape(-1, 1),
            rewards=th.as_tensor(self.rewards).double().reshape(-1, 1),
        )

    def bellman(self, q: np.ndarray) -> np.ndarray:
        """``E[r + γ V(q)(s')]``, V by scipy's logsumexp."""
        value = TEMPERATURE * (logsumexp(q / TEMPERATURE, axis=1) - np.log(self.n_actions))
        bootstrap = np.where(self.successors == -1, 0.0, value[self.successors])
        return (self.rewards + GAMMA * bootstrap).mean(-1)

    def value_iteration(self) -> np.ndarray:
        q = np.zeros((self.n_states, self.n_actions))
        for _ in range(400):
            q = self.bellman(q)
        return q


def random_mdp(random_outcomes: bool) -> TabularMDP:
    rng = np.random.default_rng(3)
    successors, rewards = rng.integers(-1, 4, size=(4, 2, 4)), 2.0 * rng.normal(size=(4, 2, 4))
    if not random_outcomes:
        successors, rewards = (np.broadcast_to(x[..., :1], x.shape).copy() for x in (successors, rewards))
    return TabularMDP(successors, rewards)


class Tables:
    """A SBEED model whose two heads are tables, as a function to minimise."""

    def __init__(self, mdp: TabularMDP, eta: float, **kwargs) -> None:
        env = SpacesOnly(mdp.n_states, mdp.n_actions)
        self.model = make_model(SBEED, net_arch=[], env=env, temperature=TEMPERATURE, eta=eta, **kwargs)
        for network in (self.model.q_net, self.model.q_net_target):
            for layer in (network.q_net[0], network.h_net):
                layer.bias.data.zero_()
                layer.bias.requires_grad_(False)
        self.mdp, self.eta, self.rows = mdp, eta, mdp.batch()

    def __call__(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss at the table q and exact h, and the gradient that the model's own update leaves."""
        shape = (self.mdp.n_states, self.mdp.n_actions)
        self.model.q_net.q_net[0].weight.data = th.as_tensor(flat.reshape(shape).T.copy())
        delta = self.td_errors()
        h = delta.mean(-1)
        self.model.q_net.h_net.weight.data = th.as_tensor(h.T.copy())
        found = gradients(self.model, self.rows)
        assert found["h_net.weight"].abs().max() < 1e-12, "h is exact"
        loss = 0.5 * np.mean(delta**2) - 0.5 * self.eta * np.mean((delta - h[..., None]) ** 2)
        return float(loss), found["q_net.0.weight"].numpy().T.ravel()

    def td_errors(self) -> np.ndarray:
        terms = self.model.batch_loss(self.rows, self.model.update_settings())
        return terms.td_error.numpy().reshape(self.mdp.successors.shape)

    def solve(self) -> np.ndarray:
        """The minimiser. BFGS compares losses, whose rounding hides small gradients; Newton's steps need none."""
        start = np.zeros(self.mdp.n_states * self.mdp.n_actions)
        q = minimize(self, start, jac=True, method="BFGS", options={"gtol": 1e-5}).x

        def slope(flat: np.ndarray) -> np.ndarray:
            return self(flat)[1]

        for _ in range(4):
            curvature = approx_fprime(q, slope, 1e-6)
            q = q - np.linalg.solve(curvature, slope(q))
        # The gradient is a mean of terms of size 1 to 10, and zero to their rounding.
        assert np.abs(slope(q)).max() < 1e-13
        assert np.linalg.eigvalsh(curvature + curvature.T).min() > 0.0, "a minimum"
        return q.reshape(self.mdp.n_states, self.mdp.n_actions)


def test_eta_one_solves_a_stochastic_mdp_exactly():
    mdp = random_mdp(random_outcomes=True)
    exact = mdp.value_iteration()
    np.testing.assert_allclose(Tables(mdp, eta=1.0).solve(), exact, atol=1e-7)
    np.testing.assert_allclose(mdp.bellman(exact), exact, atol=1e-12)
    assert np.abs(exact[:, 0] - exact[:, 1]).min() > 0.01, "the mellowmax is of different values"


def test_smaller_eta_pays_for_variance_with_bias():
    """Of mean[δ²], 1 − η of the conditional variance stays in the loss: less of it, further from the solution."""
    mdp = random_mdp(random_outcomes=True)
    exact = mdp.value_iteration()
    biases, variances = [], []
    for eta in (0.0, 0.5, 0.9, 1.0):
        tables = Tables(mdp, eta)
        solution = tables.solve()
        biases.append(np.abs(solution - exact).max())
        # At η = 1 both are zero, as the difference of two losses of size 1 to 10: to the rounding of these.
        assert tables(solution.ravel())[0] <= tables(exact.ravel())[0] + 1e-13
        tables(solution.ravel())
        variances.append(tables.td_errors().var(-1).mean())
    assert (np.diff(biases) < 0).all(), biases
    assert (np.diff(variances) > 0).all(), variances
    assert biases[0] > 0.1
    assert biases[-1] < 1e-7


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
def test_there_is_no_bias_without_chance(eta):
    mdp = random_mdp(random_outcomes=False)
    np.testing.assert_allclose(Tables(mdp, eta).solve(), mdp.value_iteration(), atol=1e-7)


@pytest.mark.parametrize(("eta", "expected"), [(0.0, 2 / (2 + GAMMA**2)), (0.5, 2 / (2 + GAMMA**2 / 2)), (1.0, 1.0)])
def test_the_bias_by_hand(eta, expected):
    """From A to B or C by chance, rewards 0; from B and C to the end, rewards 1 and −1; one action.

    By symmetry q(A) = 0 and q(B) = −q(C) = x, and the loss is proportional to (1 − η)(γx)² + 2(1 − x)².
    """
    successors = np.array([[[1, 2]], [[-1, -1]], [[-1, -1]]])
    rewards = np.array([[[0.0, 0.0]], [[1.0, 1.0]], [[-1.0, -1.0]]])
    solution = Tables(TabularMDP(successors, rewards), eta).solve()
    np.testing.assert_allclose(solution, [[0.0], [expected], [-expected]], atol=1e-8)


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
def test_a_target_network_makes_every_eta_value_iteration(eta):
    """Where V(s') is a constant, each refresh is one application of the Bellman operator, without bias."""
    mdp = random_mdp(random_outcomes=True)
    tables = Tables(mdp, eta, target_update_interval=10)
    target = tables.model.q_net_target.q_net[0]
    q = target.weight.detach().numpy().T.copy()
    for _ in range(3):
        q = mdp.bellman(q)
        np.testing.assert_allclose(tables.solve(), q, atol=1e-8)
        target.weight.data = th.as_tensor(q.T.copy())
