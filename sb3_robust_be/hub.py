"""Trained agents on the Hugging Face Hub, named as rl_zoo3 does it, with a card that says how good they are.

Needs the extra ``zoo``, which brings huggingface_sb3.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from pprint import pformat
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from sb3_robust_be import registry
from sb3_robust_be.messages import warn
from sb3_robust_be.qrc.dqn import TwoHeadDQN
from sb3_robust_be.qrc.validation import check_count, constructor_arguments
from sb3_robust_be.report.environment import versions
from sb3_robust_be.report.tables import markdown_text

__all__ = ["Evaluation", "evaluation_of", "load_from_hub", "push_to_hub", "training_diagnostics"]

RESULTS = "results.json"
NORMALIZATION = "vec_normalize.pkl"
"""rl_zoo3's name for the statistics of ``VecNormalize``"""
SAMPLED_TRANSITIONS = 1000

DIAGNOSTICS = {
    "h_clip_fraction": "share of h beyond its bound: near 1 the correction is taken away",
    "correction_ratio": "mean |γz| / mean |δ|: 0 is semi-gradient Q-learning, towards 1 residual gradient",
    "h_explained": "1 − Var(δ − h) / Var(δ): how much of the TD error h knows; below 0, h does harm",
    "td_error_abs_mean": "mean |δ|",
}
"""The entries of the log that a card shows, and how to read them"""


class Evaluation(NamedTuple):
    """How good an agent is, and all that is needed to make it again; the fields of ``results.json``."""

    algorithm: str
    """Its name in files and commands"""
    env_id: str
    mean_reward: float
    """Mean return of greedy episodes, as SB3's ``evaluate_policy`` has it"""
    std_reward: float
    """Standard deviation of these returns"""
    n_eval_episodes: int
    reward_threshold: float | None
    """The return at which gymnasium counts the environment as solved, where it says so"""
    num_timesteps: int
    """Environment steps of training"""
    diagnostics: Mapping[str, float]
    """Of :func:`training_diagnostics`"""
    settings: Mapping[str, str]
    """The arguments of the constructor, as text"""
    versions: Mapping[str, str]
    command: str
    """What trained it, where that is known"""


def training_diagnostics(model: BaseAlgorithm) -> dict[str, float]:
    """Measure the diagnostics of an agent on the transitions that its training has left in the replay buffer.

    They are computed as the log's, over 1 000 transitions drawn from the buffer. Nothing is changed, numpy's global
    random numbers included.

    :param model: A trained agent. One from a file has no buffer until its ``load_replay_buffer`` is called.
    :return: By name, see :data:`DIAGNOSTICS`; empty for an algorithm without a secondary head, or an empty buffer.
    """
    if not isinstance(model, TwoHeadDQN) or model.replay_buffer is None or model.replay_buffer.size() == 0:
        return {}
    state = np.random.get_state()  # noqa: NPY002 - the generator that the buffer draws from
    data = model.replay_buffer.sample(SAMPLED_TRANSITIONS, env=model.get_vec_normalize_env())
    np.random.set_state(state)  # noqa: NPY002
    training = model.policy.training
    model.policy.set_training_mode(False)
    settings = model.update_settings()
    with th.no_grad():
        terms = model.batch_loss(data, settings)
    model.policy.set_training_mode(training)
    logger = Logger(folder=None, output_formats=[])
    diagnostics = model.diagnostics_class()
    diagnostics.hold([terms], settings, (), grad_norm=th.zeros(()))  # there is no gradient, and its norm is not shown
    diagnostics.record(logger)
    return {name: float(logger.name_to_value[f"train/{name}"]) for name in DIAGNOSTICS}


def evaluation_of(
    model: BaseAlgorithm, env_id: str, eval_env: GymEnv, n_eval_episodes: int = 100, command: str = ""
) -> Evaluation:
    """Play greedy episodes, and gather what a model card says.

    :param model: A trained agent, with its replay buffer if the card is to have the diagnostics.
    :param env_id: A gymnasium id.
    :param eval_env: Where it plays; not the one in which it trains on.
    :param n_eval_episodes: How many episodes.
    :param command: What trained it.
    """
    mean, std = evaluate_policy(model, eval_env, n_eval_episodes, deterministic=True)
    known = gym.registry.get(env_id)
    return Evaluation(
        algorithm=name_of(model),
        env_id=env_id,
        mean_reward=float(mean),  # type: ignore[arg-type]  # lists only if asked for
        std_reward=float(std),  # type: ignore[arg-type]
        n_eval_episodes=n_eval_episodes,
        reward_threshold=None if known is None else known.reward_threshold,
        num_timesteps=model.num_timesteps,
        diagnostics=training_diagnostics(model),
        settings=_settings(model),
        versions=versions(),
        command=command,
    )


def name_of(model: BaseAlgorithm) -> str:
    """
    :param model: An agent of an algorithm of the registry.
    :return: Its algorithm's name in files and commands.
    :raises TypeError: For another algorithm.
    """
    for name in registry.names():
        if type(model) is registry.load(name):  # a subclass is another algorithm
            return name
    raise TypeError(
        f"model is {type(model).__name__}, which this package does not know; give one of "
        f"{', '.join(entry.class_name for entry in registry.ENTRIES.values())}, or use huggingface_sb3 itself."
    )


def _settings(model: BaseAlgorithm) -> dict[str, str]:
    shown = [
        name for name in constructor_arguments(type(model)) if name in vars(model) and name not in ("policy", "env")
    ]
    return {name: str(getattr(model, name)) for name in shown if name not in ("verbose", "tensorboard_log", "device")}


def model_card(evaluation: Evaluation, organization: str, repo_name: str) -> Any:
    """Make the card of a repository.

    :param evaluation: Of the agent.
    :param organization: User or organisation on the Hub.
    :param repo_name: Of the repository.
    :return: A ``huggingface_hub.ModelCard``.
    """
    from huggingface_hub import ModelCard, ModelCardData
    from huggingface_hub.repocard import metadata_eval_result

    class_name = registry.find(evaluation.algorithm).class_name
    env_id = evaluation.env_id
    result = metadata_eval_result(
        model_pretty_name=class_name,
        task_pretty_name="reinforcement-learning",
        task_id="reinforcement-learning",
        metrics_pretty_name="mean_reward",
        metrics_id="mean_reward",
        metrics_value=f"{evaluation.mean_reward:.2f} +/- {evaluation.std_reward:.2f}",
        dataset_pretty_name=env_id,
        dataset_id=env_id,
    )
    tags = [env_id, "deep-reinforcement-learning", "reinforcement-learning", "stable-baselines3"]
    data = ModelCardData(library_name="stable-baselines3", tags=tags, **result)
    return ModelCard(f"---\n{data.to_yaml()}\n---\n{_text(evaluation, class_name, organization, repo_name)}")


def _text(evaluation: Evaluation, class_name: str, organization: str, repo_name: str) -> str:
    threshold = evaluation.reward_threshold
    solved = "gymnasium names no return at which this environment is solved"
    if threshold is not None:
        solved = f"gymnasium counts it as solved from {threshold:g} on"
    arguments = f'"{evaluation.algorithm}", "{evaluation.env_id}", "{organization}"'
    hub = _huggingface()
    if repo_name != hub.ModelName(evaluation.algorithm, hub.EnvironmentName(evaluation.env_id)):
        arguments += f', repo_name="{repo_name}"'
    rows = [
        f"| `{name}` | {value:.3g} | {markdown_text(DIAGNOSTICS[name])} |"
        for name, value in evaluation.diagnostics.items()
    ]
    measured = ["They are not known: the agent came without its replay buffer, or has no secondary head."]
    if rows:
        measured = [
            f"Over {SAMPLED_TRANSITIONS} transitions of the replay buffer that training has left:",
            "",
            "| `train/…` | is | read it as |",
            "|---|---:|---|",
            *rows,
        ]
    lines = [
        f"# {class_name} on {evaluation.env_id}",
        "",
        f"Greedy return over {evaluation.n_eval_episodes} episodes: **{evaluation.mean_reward:.2f} ± "
        f"{evaluation.std_reward:.2f}** (mean and standard deviation), after {evaluation.num_timesteps} steps of "
        f"training; {solved}. This is one agent of one seed.",
        "",
        "The algorithm is of the package sb3-robust-be, for Stable-Baselines3.",
        "",
        "## Use",
        "",
        "```python",
        "from sb3_robust_be import load_from_hub",
        "",
        f"model = load_from_hub({arguments})",
        "```",
        "",
        "## Diagnostics",
        "",
        *measured,
        "",
        "## Settings",
        "",
        *(["Trained by", "", f"    {evaluation.command}", ""] if evaluation.command else []),
        "```python",
        pformat(dict(evaluation.settings)),
        "```",
        "",
        "## Versions",
        "",
        *(f"- {name}: {value}" for name, value in evaluation.versions.items()),
        "",
    ]
    return "\n".join(lines)


def _huggingface() -> Any:
    try:
        import huggingface_sb3
    except ModuleNotFoundError as error:
        raise ImportError(
            f'{error.name} is not installed, which the Hub needs: pip install "sb3-robust-be[zoo]".'
        ) from error
    return huggingface_sb3


def load_from_hub(
    algo: str, env_id: str, organization: str, repo_name: str | None = None, **load_arguments: Any
) -> BaseAlgorithm:
    """
    Download a trained agent from the Hugging Face Hub and load it.

    huggingface_sb3 downloads nothing until the environment variable ``TRUST_REMOTE_CODE`` is ``True``, because files of
    Stable-Baselines3 may contain any code: load only those of people you trust.

    :param algo: The algorithm's name in files and commands, as ``"qlc"``.
    :param env_id: The gymnasium id of the environment that it was trained on.
    :param organization: User or organisation on the Hub.
    :param repo_name: Of the repository, ``algo-env_id`` by default, as rl_zoo3's.
    :param load_arguments: Of the class's ``load``, as ``env`` and ``device``. If the agent was trained with
        ``VecNormalize``, ``env`` gets its statistics, which then stay as they are.
    :return: The agent.
    :raises ImportError: Without the extra ``zoo``.
    :raises ValueError: For an unknown algorithm, or without ``TRUST_REMOTE_CODE``.
    :raises huggingface_hub.errors.LocalEntryNotFoundError: If the Hub cannot be reached for a file that an earlier call
        has not left here.
    """
    algorithm = registry.load(algo)
    hub = _huggingface()
    name = hub.ModelName(algo, hub.EnvironmentName(env_id))
    repo_id = hub.ModelRepoId(organization, repo_name or name)
    path = hub.load_from_hub(repo_id, name.filename)
    statistics = _statistics(hub, repo_id)
    env = load_arguments.pop("env", None)
    if statistics is not None:
        if env is None:
            warn(
                f"{repo_id} was trained on normalised observations, and acts badly on others. Pass env=…, which is "
                "then normalised as in training, and take observations from model.get_env()."
            )
        else:
            env = _normalized(env, statistics)
    model: BaseAlgorithm = algorithm.load(path, env=env, **load_arguments)
    return model


def _statistics(hub: Any, repo_id: str) -> str | None:
    """Download the statistics of ``VecNormalize``; ``None`` where the repository has none."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return str(hub.load_from_hub(repo_id, NORMALIZATION))
    except LocalEntryNotFoundError as error:  # an EntryNotFoundError too, but of a Hub that was not asked
        if try_to_load_from_cache(repo_id, NORMALIZATION) is not None:
            return None  # not a path, or it would have been found: an earlier call was told that there is no such file
        raise LocalEntryNotFoundError(
            f"The Hub could not be asked whether {repo_id} has {NORMALIZATION}, the statistics of VecNormalize without "
            "which an agent that was trained with them acts badly; try again when it can be reached."
        ) from error
    except EntryNotFoundError:
        return None


def _normalized(env: GymEnv, statistics: str | Path) -> VecNormalize:
    """Normalise an environment's observations by saved statistics, which stay as they are; rewards are plain."""
    if not isinstance(env, VecEnv):
        single = env
        env = DummyVecEnv([lambda: single])
    normalized = VecNormalize.load(str(statistics), env)
    normalized.training = normalized.norm_reward = False
    return normalized


def push_to_hub(
    model: BaseAlgorithm,
    env_id: str,
    organization: str,
    repo_name: str | None = None,
    *,
    eval_env: GymEnv | None = None,
    n_eval_episodes: int = 100,
    command: str = "",
    commit_message: str = "Upload a trained agent",
    token: str | None = None,
    local_repo_path: str | Path | None = None,
) -> str:
    """
    Evaluate a trained agent, write its model card, and upload both to the Hugging Face Hub.

    The files are the agent, the statistics of ``VecNormalize`` if it was trained with them, ``results.json`` and the
    card, ``README.md``, which has the return of greedy episodes, the diagnostics of training, settings and versions.

    :param model: A trained agent. Call its ``load_replay_buffer`` first if it comes from a file and the card is to have
        the diagnostics.
    :param env_id: The gymnasium id of its environment.
    :param organization: User or organisation on the Hub.
    :param repo_name: Of the repository, ``algo-env_id`` by default, as rl_zoo3's.
    :param eval_env: Where it is evaluated; a new ``gym.make(env_id)`` by default, normalised as in training. Give the
        one you need if there are wrappers.
    :param n_eval_episodes: Greedy episodes of the evaluation.
    :param command: What trained it, for the card.
    :param commit_message: Of the upload.
    :param token: Of the Hub; by default the one that ``hf auth login`` has stored.
    :param local_repo_path: A folder that gets a copy of the files; ``None``: none is kept.
    :return: The address of the repository.
    :raises ImportError: Without the extra ``zoo``.
    :raises TypeError: For an algorithm that this package does not know.
    :raises ValueError: Without an episode of evaluation.
    """
    check_count("n_eval_episodes", n_eval_episodes, "100 is the default.")
    algo = name_of(model)
    hub = _huggingface()
    from huggingface_hub import HfApi

    name = hub.ModelName(algo, hub.EnvironmentName(env_id))
    repo_name = repo_name or str(name)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model.save(folder / name.filename)
        normalize = model.get_vec_normalize_env()
        if normalize is not None:
            normalize.save(str(folder / NORMALIZATION))
        if eval_env is None:
            eval_env = make_vec_env(env_id, seed=0)
            if normalize is not None:
                eval_env = _normalized(eval_env, folder / NORMALIZATION)
        evaluation = evaluation_of(model, env_id, eval_env, n_eval_episodes, command)
        write_results(folder, evaluation)
        model_card(evaluation, organization, repo_name).save(folder / "README.md")
        if local_repo_path is not None:
            # A copy: whatever else is in the caller's folder is not uploaded.
            shutil.copytree(folder, local_repo_path, dirs_exist_ok=True)
        api = HfApi(token=token)
        address = api.create_repo(repo_id=hub.ModelRepoId(organization, repo_name), exist_ok=True)
        api.upload_folder(repo_id=f"{organization}/{repo_name}", folder_path=folder, commit_message=commit_message)
    return str(address)


def write_results(folder: Path, evaluation: Evaluation) -> None:
    """Write ``results.json``.

    :param folder: Where to.
    :param evaluation: Of the agent.
    """
    text = json.dumps(evaluation._asdict(), indent=2, ensure_ascii=False)
    (folder / RESULTS).write_text(text + "\n", encoding="utf-8")
