"""The command's own behaviour; what the commands do is tested with their modules."""

import importlib
import os
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest
from gymnasium.error import DependencyNotInstalled

import sb3_robust_be
from sb3_robust_be import cli

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HEAVY = ("torch", "stable_baselines3", "sb3_contrib", "rl_zoo3", "optuna", "matplotlib")


def run_python(code: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, **options)


@pytest.fixture
def probe(monkeypatch):
    """Adds a command ``probe`` that runs the function it is given."""

    def install(function):
        module = types.ModuleType("probe_module")
        module.main = function
        monkeypatch.setitem(sys.modules, "probe_module", module)
        monkeypatch.setitem(cli.COMMANDS, "probe", cli.Command("probe_module:main", "a probe"))

    return install


@pytest.mark.parametrize("argument", ["--help", "-h", "--version"])
def test_help_and_version_load_nothing_heavy(argument):
    code = f"""
import sys
from sb3_robust_be.cli import main
assert main([{argument!r}]) == 0
loaded = [name for name in {HEAVY!r} if name in sys.modules]
assert not loaded, loaded
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert "sb3-robust-be" in done.stdout


def test_the_module_runs_as_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "sb3_robust_be", "--version"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == f"sb3-robust-be {sb3_robust_be.__version__}\n"


def test_the_entry_point_is_main():
    module, _, function = PYPROJECT["project"]["scripts"]["sb3-robust-be"].partition(":")
    assert getattr(importlib.import_module(module), function) is cli.main


def test_help_lists_every_command(capsys):
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, command in cli.COMMANDS.items():
        assert f"  {name} " in shown
        assert command.help in shown


def test_without_a_command_usage_and_code_2(capsys):
    assert cli.main([]) == 2
    assert "usage: sb3-robust-be COMMAND" in capsys.readouterr().out


@pytest.mark.parametrize(("typed", "meant"), [("trian", "train"), ("enjoi", "enjoy"), ("tuning", "tune")])
def test_an_unknown_command_names_the_closest(typed, meant, capsys):
    assert cli.main([typed]) == 2
    shown = capsys.readouterr().err
    assert repr(typed) in shown
    assert f"Did you mean {meant!r}?" in shown
    assert shown.count("\n") == 1


def test_no_far_fetched_suggestion(capsys):
    assert cli.main(["xyz"]) == 2
    shown = capsys.readouterr().err
    assert "Did you mean" not in shown
    assert "There are compare, experiment" in shown


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_leads_to_a_function(name):
    module, _, function = cli.COMMANDS[name].target.partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_arguments_and_exit_code_pass_through(probe):
    seen = []
    probe(lambda argv: seen.append(argv) or 7)
    assert cli.main(["probe", "--help", "-x", "1"]) == 7
    assert seen == [["--help", "-x", "1"]]


def test_arguments_default_to_the_process(probe, monkeypatch):
    probe(len)
    monkeypatch.setattr(sys, "argv", ["sb3-robust-be", "probe", "a", "b", "c"])
    assert cli.main() == 3


@pytest.mark.parametrize("module", cli.EXTRAS)
def test_a_missing_module_names_the_extra(module, probe, capsys):
    def fail(argv):
        raise ModuleNotFoundError(f"No module named '{module}.part'", name=f"{module}.part")

    probe(fail)
    assert cli.main(["probe"]) == 2
    shown = capsys.readouterr().err
    assert (
        shown == f'sb3-robust-be: probe: {module} is not installed: pip install "sb3-robust-be[{cli.EXTRAS[module]}]"\n'
    )


def test_a_cause_counts(probe, capsys):
    def fail(argv):
        try:
            raise ModuleNotFoundError("No module named 'Box2D'", name="Box2D")
        except ImportError as error:
            raise DependencyNotInstalled("Box2D is not installed") from error

    probe(fail)
    assert cli.main(["probe"]) == 2
    assert "[box2d]" in capsys.readouterr().err


def raise_unknown(argv):
    raise ModuleNotFoundError("No module named 'nowhere'", name="nowhere")


def raise_in_passing(argv):
    try:
        raise ModuleNotFoundError("No module named 'minatar'", name="minatar")
    except ImportError:
        raise ValueError("unrelated")  # noqa: B904 - the point is an error without a cause


@pytest.mark.parametrize(("function", "error"), [(raise_unknown, ModuleNotFoundError), (raise_in_passing, ValueError)])
def test_other_errors_keep_their_traceback(function, error, probe):
    probe(function)
    with pytest.raises(error):
        cli.main(["probe"])


def test_the_extras_exist():
    assert set(cli.EXTRAS.values()) <= set(PYPROJECT["project"]["optional-dependencies"])


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("optuna", ["train"], "zoo"),
        ("rl_zoo3", ["enjoy"], "zoo"),
        ("requests.exceptions", ["tune"], "zoo"),
        ("minatar", ["train", "--env", "MinAtar/Breakout-v0"], "minatar"),
        ("Box2D", ["train", "--env", "LunarLander-v3", "-n", "10"], "box2d"),
    ],
)
def test_a_real_command_without_its_extra(missing, arguments, extra, tmp_path):
    # None in sys.modules is Python's own way to say that a module is not there.
    code = f"""
import sys
sys.modules[{missing!r}] = None
from sb3_robust_be.cli import main
sys.exit(main({arguments!r}))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 2, done.stderr
    assert f'pip install "sb3-robust-be[{extra}]"' in done.stderr
    assert "Traceback" not in done.stderr
