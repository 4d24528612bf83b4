"""What changes between two commands: the environment, its registration, a version. Results are never mixed."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import changing_envs
import gymnasium as gym
import pytest
from changing_envs import SOURCE, write

import sb3_robust_be
from sb3_robust_be import cli
from sb3_robust_be.experiments import fingerprint
from sb3_robust_be.experiments.compare import compare_command as command
from sb3_robust_be.experiments.compare import compare_files

ROOT = Path(__file__).parents[2]
SMALL = ["--algos", "qlc", "--steps", "40", "--net-arch", "8", "--executor", "serial", "--quiet", "--out", "out"]
WALK = ["--env", "walks:Walk-v0", *SMALL]
YAML = """
env: walks:Walk-v0
steps: 40
seeds: {seeds}
net_arch: [8]
compile: false
algorithms: {{qlc: {{learning_rate: 0.001}}}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current one, with an environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    # They take longer than the runs.
    monkeypatch.setattr(command, "make_plots", lambda *_: (SimpleNamespace(caption="none"),))
    for picture in ("stacked_png", "stacked_svg"):
        monkeypatch.setattr(compare_files, picture, lambda _: b"")
    write(tmp_path, SOURCE)
    importlib.invalidate_caches()
    yield tmp_path
    changing_envs.forget()


def compare(seeds: int, *more: str) -> int:
    return cli.main(["compare", *WALK, "--seeds", str(seeds), *more])


def finals(out: Path) -> list[float]:
    return sorted(json.loads(path.read_text())["final"] for path in out.glob("runs/*/result.json"))


CHANGES = [
    (('"walks:Walk", max_episode_steps=10', '"walks:Walk", max_episode_steps=20'), "max_episode_steps: 10 → 20"),
    (("1.0, False", "100.0, False"), "source of walks: "),
    (('max_episode_steps=10', 'max_episode_steps=10, kwargs={}, reward_threshold=5.0'), "reward_threshold: None → 5.0"),
    (
        (
            'max_episode_steps=10',
            'max_episode_steps=10, additional_wrappers=(gym.wrappers.NormalizeReward.wrapper_spec(),)',
        ),
        "additional_wrappers: () → ",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "says"), CHANGES, ids=["registration", "source", "threshold", "wrappers"])
def test_a_changed_environment_is_not_averaged_with_the_old_one(change, says, folder, capsys):
    assert compare(1) == 0
    write(folder, SOURCE.replace(*change))
    capsys.readouterr()
    assert compare(2) == 2
    shown = capsys.readouterr()
    assert says in shown.err
    assert "holds 1 finished run made" in shown.err
    assert "--fresh" in shown.err
    assert "--out" in shown.err
    assert len(shown.err.splitlines()) == 1
    assert "Return per step" not in shown.out
    assert finals(folder / "out") == [10.0]


def test_fresh_keeps_the_old_folder(folder, capsys):
    assert compare(1) == 0
    before = {path.relative_to("out"): path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    write(folder, SOURCE.replace("1.0, False", "100.0, False"))
    assert compare(2, "--fresh") == 0
    (kept,) = folder.glob("out.*")
    assert f"kept in {kept}" in capsys.readouterr().out
    assert {path.relative_to(kept): path.read_bytes() for path in kept.rglob("*") if path.is_file()} == before
    assert finals(folder / "out") == [1000.0, 1000.0]
    # And again on the same day.
    assert compare(1, "--fresh") == 0
    assert sorted(path.name for path in folder.glob("out.*")) == [kept.name, f"{kept.name}.2"]


def test_fresh_without_earlier_runs_is_nothing(folder):
    assert compare(1, "--fresh") == 0
    assert not list(folder.glob("out.*"))
    assert finals(folder / "out") == [10.0]


@pytest.mark.parametrize(
    ("more", "says"), [(["--shard", "1/2"], "--fresh with --shard 1/2"), (["--out", "."], "holds the current folder")]
)
def test_fresh_renames_no_folder_in_use(more, says, folder, capsys):
    (folder / "runs").mkdir()
    assert compare(1, "--fresh", *more) == 2
    assert says in capsys.readouterr().err
    assert (folder / "runs").is_dir()


def test_fresh_waits_for_runs_in_work(folder, capsys):
    assert compare(1) == 0
    (directory,) = (folder / "out/runs").iterdir()
    (directory / "result.json").unlink()  # Its process is this one, which is alive.
    assert compare(1, "--fresh") == 2
    assert "runs are being made in out" in capsys.readouterr().err


def test_the_same_environment_goes_on(folder):
    assert compare(1) == 0
    (first,) = folder.glob("out/runs/*/result.json")
    before = first.stat().st_mtime_ns
    changing_envs.forget()
    assert compare(2) == 0
    assert first.stat().st_mtime_ns == before
    assert finals(folder / "out") == [10.0, 10.0]


def test_a_mended_exception_runs_again(folder, capsys):
    broken = SOURCE.replace(
        "        return np.zeros(2, np.float32), 1.0", "        raise KeyError('lost')\n        return 0, 1.0"
    )
    write(folder, broken)
    assert compare(2) == 1
    shown = capsys.readouterr().out
    assert "qlc, seed 0: At environment step 1: step() of its environment failed with KeyError: 'lost'" in shown
    assert "--retry-failed" in shown
    write(folder, SOURCE)
    assert compare(2) == 0
    assert "lost" not in capsys.readouterr().out
    assert finals(folder / "out") == [10.0, 10.0]
    assert not list(folder.glob("out/runs/*/failed.json"))


def test_failures_of_the_same_environment_are_tried_again_on_demand(folder, capsys):
    """What the source does not say, such as a missing file, may have been mended, too."""
    write(
        folder, SOURCE.replace("super().reset(seed=seed)", "super().reset(seed=seed)\n        open('needed').close()")
    )
    assert compare(1) == 1
    assert "No such file or directory: 'needed'" in capsys.readouterr().out
    Path("needed").touch()
    assert compare(1) == 1
    assert compare(1, "--retry-failed") == 0
    assert finals(folder / "out") == [10.0]


def test_modules_that_the_environment_imports_count(folder, capsys):
    write(folder, "REWARD = 1.0\n", "walk_rewards")
    source = SOURCE.replace("import gymnasium as gym\n", "import gymnasium as gym\nfrom walk_rewards import REWARD\n")
    write(folder, source.replace("1.0, False", "REWARD, False"))
    assert compare(1) == 0
    write(folder, "REWARD = 100.0\n", "walk_rewards")
    assert compare(2) == 2
    assert "source of walk_rewards: " in capsys.readouterr().err


def test_modules_that_a_step_imports_count(folder, capsys):
    """They have not been loaded when the environment is looked at."""
    write(folder, "REWARD = 1.0\n", "late_rewards")
    source = SOURCE.replace("1.0, False", "__import__('late_rewards').REWARD, False")
    write(folder, f"def late():\n    import late_rewards\n\n\n{source}")
    assert compare(1) == 0
    write(folder, "REWARD = 100.0\n", "late_rewards")
    assert compare(2) == 2
    assert "source of late_rewards: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["gymnasium", "sb3_robust_be"])
def test_another_version_is_not_averaged(name, monkeypatch, capsys):
    assert compare(1) == 0
    if name == "gymnasium":
        monkeypatch.setattr(gym, "__version__", "99.0")
    else:
        monkeypatch.setattr(fingerprint, "__version__", "99.0")
    assert compare(2) == 2
    assert "→ 99.0" in capsys.readouterr().err


def test_another_torch_is_noted_only(folder, monkeypatch):
    assert compare(1) == 0
    monkeypatch.setattr(fingerprint.report, "versions", lambda: {"torch": "99.0"})
    assert compare(2) == 0
    noted = [json.loads(path.read_text())["noted"] for path in folder.glob("out/runs/*/fingerprint.json")]
    assert sorted(one["torch"] == "99.0" for one in noted) == [False, True]
    assert all("processor" in one for one in noted)


def test_runs_of_an_earlier_version_are_used_with_a_warning(folder):
    assert compare(1) == 0
    for path in folder.glob("out/runs/*/fingerprint.json"):
        path.unlink()
    with pytest.warns(UserWarning, match="of an earlier version") as seen:
        assert compare(2) == 0
    assert len({str(one.message) for one in seen if "earlier version" in str(one.message)}) == 1
    assert finals(folder / "out") == [10.0, 10.0]


def test_experiments_keep_to_one_environment_too(folder, capsys):
    path = folder / "mine.yml"
    run = ["experiment", "run", str(path), "--out", "out", "--executor", "serial", "--quiet"]
    path.write_text(YAML.format(seeds=1))
    assert cli.main(run) == 0
    write(folder, SOURCE.replace("1.0, False", "100.0, False"))
    path.write_text(YAML.format(seeds=2))
    assert cli.main(run) == 2
    assert "source of walks: " in capsys.readouterr().err
    assert cli.main([*run, "--fresh"]) == 0
    assert finals(folder / "out/own-mine-laptop") == [1000.0, 1000.0]
    (kept,) = folder.glob("out/own-mine-laptop.*")
    assert finals(kept) == [10.0]


def test_experiments_share_the_runs_of_one_environment(folder, capsys):
    run = ["--out", "out", "--executor", "serial", "--quiet"]
    for name in ("first", "second"):
        Path(f"{name}.yml").write_text(YAML.format(seeds=2))
    assert cli.main(["experiment", "run", "first.yml", *run]) == 0
    assert cli.main(["experiment", "run", "second.yml", *run]) == 0
    told = "Runs that are there already, and are copied: 2 from own-first-laptop."
    assert told in capsys.readouterr().out
    assert finals(folder / "out/own-second-laptop") == [10.0, 10.0]
    # All anew; and another environment's runs are others'.
    assert cli.main(["experiment", "run", "second.yml", *run, "--fresh"]) == 0
    # As after an interruption.
    for path in (folder / "out/own-second-laptop/runs").iterdir():
        shutil.rmtree(path)
    assert cli.main(["experiment", "run", "second.yml", *run]) == 0
    write(folder, SOURCE.replace("1.0, False", "100.0, False"))
    Path("third.yml").write_text(YAML.format(seeds=2))
    assert cli.main(["experiment", "run", "third.yml", *run]) == 0
    assert told not in capsys.readouterr().out
    assert finals(folder / "out/own-third-laptop") == [1000.0, 1000.0]


def test_an_experiments_failures_name_the_option(folder, capsys):
    write(folder, SOURCE.replace("max_episode_steps=10", "max_episode_steps=10, nondeterministic=True").replace(
        "        return np.zeros(2, np.float32), 1.0", "        raise KeyError('lost')\n        return 0, 1.0"
    ))  # fmt: skip
    Path("mine.yml").write_text(YAML.format(seeds=2))
    run = ["experiment", "run", "mine.yml", "--out", "out", "--executor", "serial", "--quiet"]
    assert cli.main(run) == 1
    shown = capsys.readouterr().out
    for seed in range(2):
        assert f"own, qlc, reported, seed {seed}: At environment step 1: step() of its environment failed" in shown
    assert "--retry-failed" in shown
    write(folder, SOURCE)
    assert cli.main(run) == 0


def test_a_version_of_our_own_is_beside_every_run(folder):
    assert compare(1) == 0
    (written,) = [json.loads(path.read_text()) for path in folder.glob("out/runs/*/fingerprint.json")]
    assert written["compared"]["sb3_robust_be"] == sb3_robust_be.__version__
    assert all(isinstance(value, str) for value in [*written["compared"].values(), *written["noted"].values()])
