"""The command ``sb3-robust-be COMMAND [ARGS]``.

A command's module is imported when it runs, and not before: ``--help`` answers without loading torch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple

from sb3_robust_be import __version__
from sb3_robust_be.messages import did_you_mean

PROGRAM = "sb3-robust-be"


class Command(NamedTuple):
    """A command: its function ``(argv: list[str]) -> int`` as ``"module:function"``, and one line of help."""

    target: str
    help: str


COMMANDS = {
    "compare": Command(
        "sb3_robust_be.experiments.compare:main", "which algorithm is better on an environment, over many seeds at once"
    ),
    "experiment": Command("sb3_robust_be.experiments.command:main", "the paper's experiments: run, report, publish"),
    "train": Command("sb3_robust_be.zoo:train", "train an agent with its shipped configuration (rl_zoo3's train)"),
    "enjoy": Command("sb3_robust_be.zoo:enjoy", "watch a trained agent and print its returns (rl_zoo3's enjoy)"),
    "tune": Command("sb3_robust_be.zoo:tune", "search the arguments that matter (rl_zoo3's train -optimize)"),
    "plot": Command(
        "sb3_robust_be.experiments.plot:main", "learning curves, diagnostics and a table of runs that you have made"
    ),
    "examples": Command("sb3_robust_be.examples:main", "copy example scripts and a notebook into a folder"),
    "linear": Command(
        "sb3_robust_be.linear.linear_command:main", "linear prediction: exact fixed points, sweeps over step sizes"
    ),
    "benchmark": Command(
        "sb3_robust_be.benchmark:main", "time our algorithms, or populations, against DQN, in turn in one process"
    ),
}

EXTRAS = {
    "rl_zoo3": "zoo",
    "huggingface_sb3": "zoo",
    "optuna": "zoo",
    "requests": "zoo",
    "pandas": "zoo",
    "tensorboard": "report",
    "yaml": "report",
    "minatar": "minatar",
    "Box2D": "box2d",
    "numba": "linear",
    "matplotlib": "report",
    "rich": "report",
    "distributed": "dask",
    "onnx": "onnx",
    "onnxruntime": "onnx",
}
"""Which of the package's extras brings a module that a command may miss."""


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {PROGRAM} COMMAND [ARGS]",
            "",
            "Robust Bellman-error algorithms for Stable-Baselines3.",
            "",
            "commands:",
            *lines,
            "",
            f"{PROGRAM} COMMAND --help lists the arguments of a command, {PROGRAM} --version the version.",
        ]
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _missing_extra(error: BaseException) -> str | None:
    """The advice for a module that is not there, or ``None`` if the error is about something else.

    Only explicit causes count (``raise … from``), as in gymnasium's error for environments without Box2D.
    """
    for cause in _causes(error):
        if isinstance(cause, ModuleNotFoundError) and cause.name is not None:
            module = cause.name.partition(".")[0]
            if module in EXTRAS:
                return f'{module} is not installed: pip install "{PROGRAM}[{EXTRAS[module]}]"'
    return None


@contextmanager
def _current_folder_is_searched() -> Iterator[None]:
    """Let modules of the current folder be imported, as ``python -m`` does, but after those that are installed.

    Worker processes search where this one does.
    """
    folder = str(Path.cwd())
    absent = not {folder, ""} & set(sys.path)
    if absent:
        sys.path.append(folder)
    try:
        yield
    finally:
        if absent:
            sys.path.remove(folder)


def _fail(message: str) -> int:
    print(f"{PROGRAM}: {message}", file=sys.stderr)
    return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    :param argv: The arguments after the program's name; those of the process by default.
    :return: The exit code: the command's, or 2 for a mistake in the call or an extra that is not installed.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"{PROGRAM} {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        return _fail(f"{name!r} is not a command.{did_you_mean(name, COMMANDS)} There are {', '.join(COMMANDS)}.")
    try:
        with _current_folder_is_searched():
            return int(resolve_name(COMMANDS[name].target)(rest))
    except Exception as error:
        if (advice := _missing_extra(error)) is not None:
            return _fail(f"{name}: {advice}")
        raise
