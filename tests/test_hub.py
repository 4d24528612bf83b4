"""Agents on the Hugging Face Hub, with a folder in place of the Hub: nothing here touches the network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import gymnasium as gym
import huggingface_hub
import numpy as np
import pytest
import torch as th
import yaml
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from sb3_robust_be import QLC, QRC, QRCHuber, SquaredDQN, load_from_hub, push_to_hub
from sb3_robust_be.hub import evaluation_of, name_of, training_diagnostics

SMALL = {"learning_starts": 32, "train_freq": 2, "seed": 0, "policy_kwargs": {"net_arch": [16]}}


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """A folder that stands for the Hub, one folder in it per repository; uploads are also listed by their messages."""
    root = tmp_path / "hub"

    class Api:
        messages: ClassVar[list[str]] = []

        def __init__(self, token=None):
            self.token = token

        def create_repo(self, repo_id, exist_ok):
            assert exist_ok
            (root / repo_id).mkdir(parents=True, exist_ok=True)
            return f"https://hub/{repo_id}"

        def upload_folder(self, repo_id, folder_path, commit_message):
            assert self.token == "secret"
            shutil.copytree(folder_path, root / repo_id, dirs_exist_ok=True)
            Api.messages.append(commit_message)

    def download(repo_id, filename, **options):
        path = root / repo_id / filename
        if not path.is_file():
            raise EntryNotFoundError(f"{repo_id} has no {filename}")
        return str(path)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setenv("TRUST_REMOTE_CODE", "True")
    return root


@pytest.fixture(scope="module")
def model():
    return QLC("MlpPolicy", "CartPole-v1", **SMALL).learn(300)


def push(model, env_id="CartPole-v1", organization="me", *args, **options):
    return push_to_hub(model, env_id, organization, *args, n_eval_episodes=3, token="secret", **options)


def card_of(folder: Path) -> tuple[dict, str]:
    """Metadata and text."""
    _, metadata, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(metadata), text


def test_what_is_pushed_is_loaded(remote, model):
    assert push(model) == "https://hub/me/qlc-CartPole-v1"
    files = {path.name for path in (remote / "me" / "qlc-CartPole-v1").iterdir()}
    assert files == {"qlc-CartPole-v1.zip", "results.json", "README.md"}
    env = gym.make("CartPole-v1")
    loaded = load_from_hub("qlc", "CartPole-v1", "me", env=env, device="cpu", gamma=0.5)
    assert (type(loaded), loaded.gamma, loaded.num_timesteps) == (QLC, 0.5, 300)
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    expected, _ = model.predict(observations, deterministic=True)
    np.testing.assert_array_equal(loaded.predict(observations, deterministic=True)[0], expected)
    assert loaded.learn(50, reset_num_timesteps=False).num_timesteps == 350


def test_names_with_a_slash_and_of_a_repository(remote):
    model = QRC("MlpPolicy", "RobustBE/CliffWorld-v0", **SMALL)
    push(model, "RobustBE/CliffWorld-v0", "us", "mine", commit_message="hello")
    assert (remote / "us" / "mine" / "qrc-RobustBE-CliffWorld-v0.zip").is_file()
    assert isinstance(load_from_hub("qrc", "RobustBE/CliffWorld-v0", "us", "mine"), QRC)
    _, text = card_of(remote / "us" / "mine")
    assert 'load_from_hub("qrc", "RobustBE/CliffWorld-v0", "us", repo_name="mine")' in text
    assert huggingface_hub.HfApi.messages[-1] == "hello"


def test_the_card(remote, model):
    push(model, command="python train_it.py")
    folder = remote / "me" / "qlc-CartPole-v1"
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    metadata, text = card_of(folder)
    assert metadata["library_name"] == "stable-baselines3"
    (metric,) = metadata["model-index"][0]["results"][0]["metrics"]
    assert metric["value"] == f"{results['mean_reward']:.2f} +/- {results['std_reward']:.2f}"
    assert f"Greedy return over 3 episodes: **{results['mean_reward']:.2f} ±" in text
    assert "gymnasium counts it as solved from 475 on" in text
    assert "after 300 steps of training" in text
    for name in ("h_clip_fraction", "correction_ratio", "h_explained"):
        assert f"| `{name}` | {results['diagnostics'][name]:.3g} |" in text
    table = [re.split(r"(?<!\\)\|", line) for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 6
    assert {len(cells) for cells in table} == {5}, "three cells between four bars"
    assert "    python train_it.py" in text
    assert "'limit': 'one_sided'" in text
    assert f"- stable-baselines3: {results['versions']['stable-baselines3']}" in text
    assert 'load_from_hub("qlc", "CartPole-v1", "me")' in text


def test_files_are_kept_in_a_folder_on_request(remote, model, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "secret.txt").write_text("not for the Hub")
    push(model, local_repo_path=tmp_path / "kept")
    kept = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    assert kept.pop("secret.txt") == b"not for the Hub"
    assert kept == {path.name: path.read_bytes() for path in (remote / "me" / "qlc-CartPole-v1").iterdir()}


def test_the_evaluation_is_sb3s(model):
    found = evaluation_of(model, "CartPole-v1", make_vec_env("CartPole-v1", seed=3), 4)
    env, returns = make_vec_env("CartPole-v1", seed=3), []
    observation = env.reset()
    while len(returns) < 4:
        observation, _, done, infos = env.step(model.predict(observation, deterministic=True)[0])
        if done[0]:
            returns.append(infos[0]["episode"]["r"])
    assert found.mean_reward == pytest.approx(np.mean(returns))
    assert found.std_reward == pytest.approx(np.std(returns))
    assert (found.reward_threshold, found.num_timesteps, found.algorithm) == (475.0, 300, "qlc")


def test_diagnostics_by_their_definitions():
    """κ = 0.01 clips nearly every h that is not 0; β = 0 lets h grow."""
    model = QRCHuber("MlpPolicy", "CartPole-v1", **SMALL, h_regularization=0.0, huber_threshold=0.01).learn(300)
    np.random.seed(4)
    data = model.replay_buffer.sample(1000)
    with th.no_grad():
        terms = model.batch_loss(data, model.update_settings())
    td_error, h, correction = (getattr(terms, name).numpy() for name in ("td_error", "h", "correction"))
    np.random.seed(4)
    before = np.random.get_state()[1].copy()
    found = training_diagnostics(model)
    assert (np.random.get_state()[1] == before).all(), "it draws nothing from anyone's random numbers"
    assert found["h_clip_fraction"] == pytest.approx(np.mean(np.abs(h) > 0.01))
    assert found["correction_ratio"] == pytest.approx(np.abs(correction).mean() / np.abs(td_error).mean(), rel=1e-5)
    assert found["h_explained"] == pytest.approx(1 - np.var(td_error - h) / np.var(td_error), rel=1e-4)
    assert found["td_error_abs_mean"] == pytest.approx(np.abs(td_error).mean(), rel=1e-5)
    assert found["h_clip_fraction"] > 0.5


def test_no_diagnostics_without_transitions_or_second_head(remote, model, tmp_path):
    model.save(tmp_path / "agent")
    loaded = QLC.load(tmp_path / "agent")
    assert training_diagnostics(loaded) == {}
    assert training_diagnostics(DQN("MlpPolicy", "CartPole-v1", buffer_size=10)) == {}
    push(loaded)
    assert "They are not known" in card_of(remote / "me" / "qlc-CartPole-v1")[1]
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    loaded.load_replay_buffer(tmp_path / "buffer.pkl")
    assert training_diagnostics(loaded)


@pytest.fixture
def normalized(remote):
    env = VecNormalize(make_vec_env("CartPole-v1", seed=0))
    model = QLC("MlpPolicy", env, **SMALL).learn(300)
    mean = env.obs_rms.mean.copy()
    push(model)
    np.testing.assert_array_equal(env.obs_rms.mean, mean)  # evaluating has not moved them
    assert env.training
    assert env.norm_reward
    return mean


@pytest.mark.parametrize("env", [gym.make("CartPole-v1"), make_vec_env("CartPole-v1")], ids=type)
def test_statistics_of_vec_normalize_come_along(env, normalized):
    loaded = load_from_hub("qlc", "CartPole-v1", "me", env=env)
    statistics = loaded.get_vec_normalize_env()
    np.testing.assert_array_equal(statistics.obs_rms.mean, normalized)
    assert not statistics.training
    assert not statistics.norm_reward


def test_statistics_that_cannot_be_asked_for_are_an_error(normalized, monkeypatch):
    """Only a repository without the file has no statistics; a network that fails says nothing about it."""
    download = huggingface_hub.hf_hub_download

    def broken(repo_id, filename, **options):
        if filename.endswith(".zip"):
            return download(repo_id, filename, **options)
        raise LocalEntryNotFoundError("cannot reach the Hub")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", broken)
    answer = None
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda repo_id, filename: answer)
    with pytest.raises(LocalEntryNotFoundError, match=r"whether me/qlc-CartPole-v1 has vec_normalize\.pkl.*try again"):
        load_from_hub("qlc", "CartPole-v1", "me", env=gym.make("CartPole-v1"))
    answer = object()  # the Hub has said before that there is no such file
    assert load_from_hub("qlc", "CartPole-v1", "me", env=gym.make("CartPole-v1")).get_vec_normalize_env() is None


def test_statistics_without_an_environment_are_a_warning(normalized):
    with pytest.warns(UserWarning, match="me/qlc-CartPole-v1 was trained on normalised observations.*Pass env="):
        load_from_hub("qlc", "CartPole-v1", "me")


@pytest.mark.parametrize(
    ("make", "name"), [(QLC, "qlc"), (DQN, "dqn"), (SquaredDQN, "dqn_squared")], ids=["qlc", "dqn", "dqn_squared"]
)
def test_names_of_algorithms(make, name):
    assert name_of(make("MlpPolicy", "CartPole-v1", buffer_size=10)) == name


def test_mistakes(remote, model, monkeypatch):
    with pytest.raises(ValueError, match="n_eval_episodes"):
        push_to_hub(model, "CartPole-v1", "me", n_eval_episodes=0)
    assert not remote.exists()
    with pytest.raises(TypeError, match=r"model is PPO, .* give one of DQN, QRC, .*, or use huggingface_sb3"):
        push(PPO("MlpPolicy", "CartPole-v1", n_steps=64))
    with pytest.raises(ValueError, match="algorithm is 'qlcc'; give one of"):
        load_from_hub("qlcc", "CartPole-v1", "me")
    with pytest.raises(EntryNotFoundError, match=r"you/qlc-CartPole-v1 has no qlc-CartPole-v1\.zip"):
        load_from_hub("qlc", "CartPole-v1", "you")
    monkeypatch.delenv("TRUST_REMOTE_CODE")
    with pytest.raises(ValueError, match="TRUST_REMOTE_CODE"):
        load_from_hub("qlc", "CartPole-v1", "me")


@pytest.mark.parametrize(
    "call", ["load_from_hub('qlc', 'CartPole-v1', 'me')", "push_to_hub(model, 'CartPole-v1', 'me')"]
)
def test_without_the_extra(call):
    code = f"""
import sys
sys.modules["huggingface_sb3"] = None
from sb3_robust_be import QLC, load_from_hub, push_to_hub
model = QLC("MlpPolicy", "CartPole-v1", buffer_size=10)
{call}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        'ImportError: huggingface_sb3 is not installed, which the Hub needs: pip install "sb3-robust-be[zoo]".'
    )
