"""Greedy episodes of all members of a population, apart from their training."""

from __future__ import annotations

import numpy as np

from sb3_robust_be.envs.lockstep import LockstepEnv
from sb3_robust_be.messages import warn
from sb3_robust_be.population.trainer import Trainer
from sb3_robust_be.updates import legal_values


def greedy_returns(trainer: Trainer, env: LockstepEnv, n_episodes: int) -> np.ndarray:
    """Play whole episodes with the members' greedy actions; nothing of the members changes.

    :param trainer: Of the population.
    :param env: Of as many members, in which nothing has been done yet.
    :param n_episodes: Of each member.
    :return: Their returns, shape (members, n_episodes). NaN for what a member did not end: one that has failed in
        training plays none, and one whose values are not finite or whose environment fails here plays no further ones.
    """
    returns = np.full((len(env.seeds), n_episodes), np.nan)
    n_ended, so_far = np.zeros(len(returns), np.int64), np.zeros(len(returns))
    playing = trainer.failed_at < 0
    for member in np.flatnonzero(~playing).tolist():
        env.stop(member)
    observations = trainer.prepare(env.reset())
    playing[list(env.failures)] = False
    while playing.any():
        values = trainer.action_values(observations)
        step = env.step(legal_values(values, env.action_masks).argmax(axis=1) + int(env.action_space.start))
        playing &= np.isfinite(values).all(axis=1)
        so_far += step.rewards
        ended = playing & (step.terminated | step.truncated)
        returns[ended, n_ended[ended]] = so_far[ended]
        n_ended += ended
        so_far[ended] = 0.0
        playing &= n_ended < n_episodes
        playing[list(env.failures)] = False
        for member in np.flatnonzero(~playing).tolist():
            env.stop(member)
        observations = trainer.prepare(step.observations)
    # What fails after the last episode has cost nothing.
    lost = [member for member in sorted(env.failures) if n_ended[member] < n_episodes and trainer.failed_at[member] < 0]
    if lost:
        warn(
            f"{len(lost)} of {len(returns)} members could not be evaluated to the end. "
            f"Member {lost[0]}: {env.failures[lost[0]].reason}"
        )
    return returns
