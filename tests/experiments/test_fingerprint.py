"""What a fingerprint consists of."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
from changing_envs import SOURCE, write
from gymnasium.envs.registration import EnvSpec

from sb3_robust_be.experiments.fingerprint import environment_fingerprint

ROOT = Path(__file__).parents[2]


def spec_of(env: str, **more) -> dict:
    return {"env": env, "env_kwargs": {}, **more}


def test_it_is_the_same_in_every_process(tmp_path):
    """Without addresses, and whatever order a process has for sets."""
    write(
        tmp_path,
        SOURCE + "Walk.__init__ = lambda self, **kwargs: None\n"
        "gym.registry['Walk-v0'].kwargs.update(s={'a', 'b', 'c'}, f=lambda: 1, o=object(), a=np.arange(3))\n",
    )
    code = (
        "from sb3_robust_be.experiments.fingerprint import environment_fingerprint as f\n"
        "print(f({'env': 'walks:Walk-v0', 'env_kwargs': {}}))"
    )
    shown = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert shown[0] == shown[1]
    assert "walks:<lambda>" in shown[0]


def test_what_is_in_it():
    import rl_zoo3.gym_patches  # noqa: F401  It replaces gymnasium's TimeLimit, which must make no difference.

    cart_pole = environment_fingerprint(spec_of("CartPole-v1"))
    assert cart_pole["gymnasium"] == gym.__version__
    assert cart_pole["entry_point"] == "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    assert cart_pole["max_episode_steps"] == "500"
    assert [name for name in cart_pole if name.startswith("source of ")] == [
        "source of gymnasium.envs.classic_control.cartpole"
    ]
    assert environment_fingerprint(spec_of("CartPole-v1")) == cart_pole
    longer = environment_fingerprint(spec_of("CartPole-v1") | {"env_kwargs": {"max_episode_steps": 7}})
    assert longer["max_episode_steps"] == "7"


def test_the_version_of_the_environments_distribution(monkeypatch):
    breakout = environment_fingerprint(spec_of("MinAtar/Breakout-v0"))
    assert "game" in breakout["kwargs"]
    # An environment of MinAtar's own.
    from minatar.gym import BaseEnv

    monkeypatch.setitem(gym.registry, "Own-v0", EnvSpec("Own-v0", BaseEnv, kwargs={"game": "breakout"}))
    own = environment_fingerprint(spec_of("Own-v0"))
    assert own["MinAtar"] == importlib.metadata.version("minatar")
    assert "source of minatar.gym" in own


def test_a_factory_and_its_wrappers_count(monkeypatch):
    class Wrapper(gym.Wrapper):
        pass

    monkeypatch.setitem(
        gym.registry, "Wrapped-v0",
        EnvSpec("Wrapped-v0", lambda: Wrapper(gym.make("CartPole-v1"))),
    )  # fmt: skip
    made = environment_fingerprint(spec_of("Wrapped-v0"))
    assert f"source of {__name__}" in made
    assert "source of gymnasium.envs.classic_control.cartpole" in made
