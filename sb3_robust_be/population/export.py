"""A member of a population as an ordinary agent."""

from __future__ import annotations

import math
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_robust_be.messages import warn
from sb3_robust_be.population.baseline import target_arguments
from sb3_robust_be.population.learner import Learner
from sb3_robust_be.population.trainer import Trainer
from sb3_robust_be.qrc.layer_norm import baseline_policy_kwargs
from sb3_robust_be.qrc.maskable import NEXT_ACTION_MASKS, MaskableReplayBuffer
from sb3_robust_be.qrc.masked_dqn import MaskedDQN


def single_agent(
    algorithm: type[OffPolicyAlgorithm],
    policy: str | type[Any],
    env: gym.Env,
    arguments: dict[str, Any],
    trainer: Trainer,
    member: int,
) -> OffPolicyAlgorithm:
    """Make an ordinary agent of a member.

    :param algorithm: DQN or a class of this package.
    :param policy: As for a single agent.
    :param env: One of its own.
    :param arguments: The member's, with its ``seed``.
    :param trainer: Of the population.
    :param member: Its index there.
    :return: An agent with the member's networks, optimiser, replay buffer, ε and counts. Its environment starts anew,
        and where the population normalises, it is a ``VecNormalize`` with the member's statistics.
    """
    if algorithm is DQN:
        arguments = _dqns_own(policy, arguments)
    with warnings.catch_warnings():
        # Whatever there is to say about the arguments, the population has said.
        warnings.simplefilter("ignore")
        scaled = env if trainer.normalizer is None else trainer.normalizer.environment(env, member)
        model = algorithm(policy, scaled, **arguments)
    if trainer.env.action_masks is not None and not isinstance(model, MaskedDQN):
        warn(
            f"This member, as a single {algorithm.__name__}, ignores action_masks() of the environment: illegal "
            "actions are taken, and bootstrapped from. SquaredDQN with huber_threshold=1 has this loss and uses them."
        )
    learner, row = trainer.learner_of(member)
    _copy_networks(model, learner, row)
    _copy_replay(model, trainer, member)
    failed_at = int(trainer.failed_at[member])
    model.num_timesteps = trainer.num_timesteps if failed_at < 0 else failed_at
    model._n_updates = learner.updates_of(row)
    model._n_calls = int(trainer.n_steps[member])  # type: ignore[attr-defined]
    model.exploration_rate = float(trainer.exploration.rates[member])  # type: ignore[attr-defined]
    model._total_timesteps = trainer.total
    model._current_progress_remaining = 1.0 - model.num_timesteps / trainer.total
    return model


def _dqns_own(policy: str | type[Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """SB3's DQN has a target network, clips gradients, has one loss, and normalises by its features extractor."""
    own = target_arguments(arguments, always_target=True)
    if own.pop("huber_threshold", 1.0) != 1.0:
        warn(
            f"This member was trained with huber_threshold={arguments['huber_threshold']}; SB3's DQN has the loss with "
            "threshold 1 and would learn on with that. To keep the loss, make the population, or a single agent that "
            "takes these parameters (set_parameters), of sb3_robust_be.SquaredDQN, which takes huber_threshold too."
        )
    if "max_grad_norm" in own and own["max_grad_norm"] is None:
        own["max_grad_norm"] = math.inf
    own["policy_kwargs"] = baseline_policy_kwargs(DQN, policy, own.get("policy_kwargs"))
    return own


@th.no_grad()
def _copy_networks(model: Any, learner: Learner, row: int) -> None:
    parameters = dict(model.policy.named_parameters())
    online = {name: x[row] for name, x in learner.layout.split(learner.rows).items()}
    rows = learner.rows if learner.target_rows is None else learner.target_rows
    target = {name: x[row] for name, x in learner.layout.split(rows, target=True).items()}
    for name, value in (online | target).items():
        if name in parameters:
            parameters[name].copy_(value)
    n_updates = learner.updates_of(row)
    if n_updates == 0:
        return
    if learner.feature_norm is not None:
        model._feature_norm.copy_(learner.feature_norm[row, 0])
        model._feature_norm_updates.fill_(n_updates)
    moments = zip(*(learner.layout.split(x).items() for x in (learner.mean, learner.square)), strict=True)
    for (name, mean), (_, square) in moments:
        parameter = parameters[name]
        step = th.tensor(float(n_updates))
        state = {"step": step, "exp_avg": mean[row], "exp_avg_sq": square[row]}
        model.policy.optimizer.state[parameter] = {k: v.to(parameter.device, copy=True) for k, v in state.items()}


def _copy_replay(model: Any, trainer: Trainer, member: int) -> None:
    replay, buffer = trainer.replay, model.replay_buffer
    if replay is None or replay.size == 0:
        return
    # From the oldest on, as many as the agent's buffer holds.
    newest = np.arange(replay.position - replay.size, replay.position) % replay.capacity
    # A failed member has made none of the last ones.
    own_size = max(0, replay.size - (trainer.n_calls - int(trainer.n_steps[member])))
    newest = newest[:own_size][-buffer.buffer_size :]
    n = len(newest)
    own = {name: x[member].cpu().numpy()[newest] for name, x in replay.fields().items()}
    if not isinstance(buffer, MaskableReplayBuffer):
        own.pop(NEXT_ACTION_MASKS, None)
    for name, values in own.items():
        field, _, key = name.partition("/")
        stored = getattr(buffer, field)
        array = stored[key] if key else stored
        array[:n, 0] = values.reshape(array[:n, 0].shape)
    buffer.pos, buffer.full = n % buffer.buffer_size, n == buffer.buffer_size
