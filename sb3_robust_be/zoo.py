"""rl_zoo3 with this package's algorithms: the commands ``train``, ``enjoy`` and ``tune``.

rl_zoo3 has no plug-in point, but looks algorithms up in tables when its scripts run. :func:`register` enters ours, and
the commands call rl_zoo3's scripts with their defaults in front of the caller's arguments, where argparse lets the
caller's win.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import gymnasium as gym
import optuna
from huggingface_sb3 import EnvironmentName
from rl_zoo3.enjoy import enjoy as rl_zoo3_enjoy
from rl_zoo3.exp_manager import ExperimentManager
from rl_zoo3.hyperparams_opt import HYPERPARAMS_CONVERTER, HYPERPARAMS_SAMPLER
from rl_zoo3.train import train as rl_zoo3_train
from rl_zoo3.utils import ALGOS, get_model_path
from stable_baselines3.common import utils as sb3_utils
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.utils import LinearSchedule

from sb3_robust_be import pretrained, registry
from sb3_robust_be.messages import did_you_mean, first_line
from sb3_robust_be.qrc.validation import constructor_arguments
from sb3_robust_be.updates import H_TARGETS, LIMITS

__all__ = ["config_file", "enjoy", "register", "searched_arguments", "train", "tune"]

DEFAULT_ALGORITHM = "qlc"
LOG_FOLDER = "logs"
# Apart from the runs of `train`, of which `enjoy` takes the newest: a search leaves a run without a model.
TUNE_FOLDER = os.path.join(LOG_FOLDER, "tune")

Suggest = Callable[[optuna.Trial, str], Any]


def _log_uniform(low: float, high: float) -> Suggest:
    return lambda trial, name: trial.suggest_float(name, low, high, log=True)


def _one_of(choices: tuple[str | int, ...]) -> Suggest:
    return lambda trial, name: trial.suggest_categorical(name, choices)


FIRST_RATE = "learning_rate_start"
"""In a trial, where a learning rate that falls begins; where it ends is the class's default"""

# Around the paper's values: step sizes 2^-13 ... 2^-8 (MinAtar), 1 for the next three, refreshes 1 ... 64 (MinAtar)
# and 500 (the ablation). It publishes no grid for SBEED's temperature and eta; the limits are ours. QLC's learning rate
# falls from 2^-9 to 2^-13, so that the lowest start does not fall.
SEARCHED_ARGUMENTS: dict[str, Suggest] = {
    "learning_rate": _log_uniform(2.0**-14, 2.0**-7),
    FIRST_RATE: _log_uniform(2.0**-13, 2.0**-6),
    "huber_threshold": _log_uniform(0.1, 100.0),
    "h_regularization": _log_uniform(1e-3, 10.0),
    "h_learning_rate_ratio": _log_uniform(2.0**-6, 2.0**6),
    "limit": _one_of(LIMITS),
    "h_target": _one_of(H_TARGETS),
    "temperature": _log_uniform(1e-3, 10.0),
    "eta": _log_uniform(1e-3, 1.0),
    "target_update_interval": _one_of((1, 8, 32, 64, 500)),
}
"""What ``tune`` searches, by the name of the argument. A trial's parameters have the same names, so that they are
keyword arguments of the algorithm as they stand, but for :data:`FIRST_RATE`."""

SEARCHED_WITH = {"h_target": "limit", "target_update_interval": "temperature", FIRST_RATE: "learning_rate"}
"""An argument is searched where the algorithm's default for it, or for the one named here, is not ``None``."""


def searched_arguments(algorithm: type[BaseAlgorithm]) -> dict[str, Suggest]:
    """The arguments that ``tune`` searches for an algorithm.

    :param algorithm: A class of the registry.
    :return: The rows of :data:`SEARCHED_ARGUMENTS` that matter for it: where its learning rate falls by default, the
        first rate, else the constant one.
    """
    defaults = {name: parameter.default for name, parameter in constructor_arguments(algorithm).items()}
    left_out = "learning_rate" if isinstance(defaults["learning_rate"], LinearSchedule) else FIRST_RATE
    return {
        name: suggest
        for name, suggest in SEARCHED_ARGUMENTS.items()
        if name != left_out and defaults.get(SEARCHED_WITH.get(name, name)) is not None
    }


def _converter(algorithm: type[BaseAlgorithm]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """From a trial's parameters, which are numbers and words, to arguments of the algorithm."""
    falling = constructor_arguments(algorithm)["learning_rate"].default

    def convert(sampled_params: dict[str, Any]) -> dict[str, Any]:
        arguments = dict(sampled_params)
        # Trials of 0.1 have a constant rate.
        if FIRST_RATE in arguments:
            arguments["learning_rate"] = LinearSchedule(arguments.pop(FIRST_RATE), falling.end, falling.end_fraction)
        return arguments

    return convert


def _sampler(algorithm: type[BaseAlgorithm]) -> Callable[..., dict[str, Any]]:
    searched, convert = searched_arguments(algorithm), _converter(algorithm)

    def sample(trial: optuna.Trial, n_actions: int, n_envs: int, additional_args: dict[str, Any]) -> dict[str, Any]:
        return convert({name: suggest(trial, name) for name, suggest in searched.items()})

    return sample


_make_schedules = ExperimentManager._preprocess_schedules


def _make_other_schedules(hyperparams: dict[str, Any]) -> dict[str, Any]:
    """rl_zoo3's, which makes schedules of numbers and ``lin_…`` and refuses one that is made already, as a trial's."""
    if not isinstance(rate := hyperparams.get("learning_rate"), LinearSchedule):
        return _make_schedules(hyperparams)
    others = {name: value for name, value in hyperparams.items() if name != "learning_rate"}
    return {**_make_schedules(others), "learning_rate": rate}


def register() -> None:
    """Enter the registry's algorithms into rl_zoo3's tables. Repeating it changes nothing.

    The tables are changed in place, for rl_zoo3's modules hold references to them. Its ``ExperimentManager`` then takes
    a ``LinearSchedule`` for ``learning_rate`` beside numbers and ``lin_…``, whose fall ends at 0.
    """
    for name, algorithm in registry.classes().items():
        ALGOS[name] = algorithm
        HYPERPARAMS_SAMPLER[name] = _sampler(algorithm)
        HYPERPARAMS_CONVERTER[name] = _converter(algorithm)  # type: ignore[assignment]  # mypy wants the names, too
    ExperimentManager._preprocess_schedules = staticmethod(_make_other_schedules)  # type: ignore[method-assign]


def config_file(algorithm: str) -> Path | None:
    """Find the shipped configuration of an algorithm.

    :param algorithm: The name in files and commands, as ``"qrc_huber"``.
    :return: The shipped rl_zoo3 configuration, or ``None`` for an algorithm that this package ships none for.
    """
    if algorithm not in registry.ENTRIES or not registry.ENTRIES[algorithm].config:
        return None
    package = Path(__file__).parent
    # A wheel has the folder inside the package, a source tree beside it.
    folder = next(path for path in (package / "zoo_configs", package.parent / "zoo_configs") if path.is_dir())
    return folder / f"{algorithm}.yml"


def train(argv: list[str]) -> int:
    """rl_zoo3's ``train``: with our algorithms and configurations, a progress bar and TensorBoard files by default.

    :param argv: Arguments of rl_zoo3's ``train``, ``--no-progress`` and ``--no-tensorboard``.
    :return: The exit code.
    """
    own = argparse.ArgumentParser(prog="sb3-robust-be train", usage="%(prog)s [options]", add_help=False)
    own.add_argument("--no-progress", action="store_true", help="no progress bar (default: one)")
    own.add_argument(
        "--no-tensorboard",
        action="store_true",
        help="no TensorBoard files (default: in the folder tensorboard of the log folder, -tb DIR for another)",
    )
    switches, arguments = own.parse_known_args(argv)
    call = _Call("train", arguments, own.format_help())
    call.check_environment()
    call.check_trial()
    defaults = call.config_defaults()
    if not switches.no_progress:
        defaults.append("--progress")
    own.add_argument("-tb", "--tensorboard-log", default="")
    logs_there = own.parse_known_args(argv)[0].tensorboard_log or not switches.no_tensorboard
    # rl_zoo3 would end the progress bar, which has not begun then, and show that error in place of SB3's.
    if logs_there and sb3_utils.SummaryWriter is None and not call.wants_help:
        call.error(
            'TensorBoard is not installed: pip install "sb3-robust-be[report]", or train with --no-tensorboard and '
            "without --tensorboard-log."
        )
    if not switches.no_tensorboard:
        defaults += ["--tensorboard-log", os.path.join(call.seen.folder, "tensorboard")]
    return call.run(rl_zoo3_train, defaults)


def tune(argv: list[str]) -> int:
    """rl_zoo3's ``train -optimize``, searching :func:`searched_arguments` around the shipped configuration.

    :param argv: Arguments of rl_zoo3's ``train``.
    :return: The exit code.
    """
    call = _Call("tune", argv)
    call.check_environment()
    return call.run(rl_zoo3_train, ["--optimize-hyperparameters", "--log-folder", TUNE_FOLDER, *call.config_defaults()])


def enjoy(argv: list[str]) -> int:
    """rl_zoo3's ``enjoy``, on what ``train`` wrote, and without a window where there is no display.

    :param argv: Arguments of rl_zoo3's ``enjoy``, and ``--pretrained``.
    :return: The exit code.
    """
    own = argparse.ArgumentParser(prog="sb3-robust-be enjoy", usage="%(prog)s [options]", add_help=False)
    own.add_argument(
        "--pretrained", action="store_true", help="an agent that comes with the package, in place of one of your own"
    )
    switches, arguments = own.parse_known_args(argv)
    call = _Call("enjoy", arguments, own.format_help())
    if switches.pretrained:
        call.check_pretrained()
        defaults = ["--folder", str(pretrained.FOLDER)]
    else:
        call.check_model()
        defaults = ["--folder", LOG_FOLDER]
    if not _has_display():
        defaults.append("--no-render")
    return call.run(rl_zoo3_enjoy, defaults)


def _has_display() -> bool:
    # SDL_VIDEODRIVER: the caller has chosen a driver for pygame, perhaps one that needs no display.
    variables = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    return not sys.platform.startswith("linux") or any(os.environ.get(name) for name in variables)


class _Call:
    """One call of an rl_zoo3 script: its arguments, our defaults, and checks.

    Checks end in :meth:`error` where rl_zoo3 would show a traceback or go on without a word.
    """

    def __init__(self, command: str, arguments: list[str], own_help: str = "") -> None:
        register()
        self.arguments = arguments
        self.own_help = own_help
        self.wants_help = bool({"-h", "--help"} & set(arguments))
        # Reads a few of the arguments that rl_zoo3's parser will read again.
        self._parser = argparse.ArgumentParser(
            prog=f"sb3-robust-be {command}", usage="%(prog)s [options], see --help", add_help=False
        )
        option = self._parser.add_argument
        option("--algo", default=DEFAULT_ALGORITHM)
        option("--env", default="CartPole-v1")
        option("--gym-packages", nargs="+", default=[])
        if command == "enjoy":
            option("-f", "--folder", default=LOG_FOLDER)
            option("--exp-id", type=int, default=0)
            option("--load-best", action="store_true")
            option("--load-checkpoint", type=int)
            option("--load-last-checkpoint", action="store_true")
        else:
            option("-f", "--log-folder", dest="folder", default=LOG_FOLDER)
            option("--storage")
            option("--study-name")
            option("--trial-id", type=int)
            option("-optimize", "--optimize-hyperparameters", action="store_true")
        self.seen, _ = self._parser.parse_known_args(arguments)

    def error(self, message: str) -> NoReturn:
        """Print one message and exit with code 2."""
        self._parser.error(message)

    def config_defaults(self) -> list[str]:
        """``--conf-file`` with our file, for the algorithms that have one. It holds for every environment."""
        path = config_file(self.seen.algo)
        return [] if path is None else ["--conf-file", str(path)]

    def check_environment(self) -> None:
        """Import the packages, and refuse an id that gymnasium does not know, with the closest it knows."""
        if self.wants_help:
            return
        self._check_module()
        for package in self.seen.gym_packages:
            try:
                importlib.import_module(package)
            except Exception as error:
                self.error(
                    f"--gym-packages {package} cannot be imported ({first_line(error)}); give modules that are "
                    "installed or in the current folder."
                )
        env_id = self.seen.env
        if env_id in gym.registry:
            return
        if env_id.startswith("MinAtar/"):
            importlib.import_module("minatar")  # raises where the extra is missing
        self.error(
            f"--env {env_id!r} is not registered with gymnasium.{did_you_mean(env_id, gym.registry)} If a package "
            "registers it, name that with --gym-packages."
        )

    def _check_module(self) -> None:
        """Refuse gymnasium's ``module:id`` for ``--env``, since rl_zoo3 would look up the whole text as an id."""
        module, colon, env_id = self.seen.env.rpartition(":")
        if colon:
            packages = " ".join(dict.fromkeys([module, *self.seen.gym_packages]))
            self.error(
                f"--env {self.seen.env!r} names a module, which rl_zoo3 cannot take there; give "
                f"--gym-packages {packages} --env {env_id}."
            )

    def check_trial(self) -> None:
        """Refuse what rl_zoo3 would silently ignore: a study without a trial, or the reverse, and trial 0."""
        seen = self.seen
        if seen.trial_id is None:
            given = [name for name, value in (("--storage", seen.storage), ("--study-name", seen.study_name)) if value]
            if given and not seen.optimize_hyperparameters:
                self.error(
                    f"{' and '.join(given)} without --trial-id would be ignored by rl_zoo3, which would train untuned; "
                    "name a trial of the study with --trial-id N (of N trials, the first by -N and the last by -1), or "
                    "search with `tune`."
                )
            return
        if not (seen.storage and seen.study_name):
            self.error(f"--trial-id {seen.trial_id} needs the --storage and the --study-name that `tune` was given.")
        if seen.trial_id == 0:
            self.error("--trial-id 0 would be ignored by rl_zoo3: of N trials, name the first by --trial-id -N.")

    def check_model(self) -> None:
        """Refuse to play an agent that has not been trained."""
        seen = self.seen
        if self.wants_help or seen.algo not in ALGOS:
            return
        self._check_module()
        env_name = EnvironmentName(seen.env)
        which = (seen.load_best, seen.load_checkpoint, seen.load_last_checkpoint)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                get_model_path(seen.exp_id, seen.folder, seen.algo, env_name, *which)
        except (AssertionError, ValueError) as error:
            self.check_environment()  # of an id that nobody knows there is no agent to train
            train_first = f"sb3-robust-be train --algo {seen.algo} --env {seen.env}"
            self.error(f"{error}. Train an agent first, `{train_first}`, or choose one with -f and --exp-id.")

    def check_pretrained(self) -> None:
        """Refuse to play an agent that does not come with the package, or to choose among those that do."""
        seen = self.seen
        if self.wants_help:
            return
        self._check_module()
        chosen = ("folder", "exp_id", "load_best", "load_checkpoint", "load_last_checkpoint")
        # What stands in the namespace keeps argparse from filling in its default.
        unset = argparse.Namespace(**dict.fromkeys(chosen))
        typed, _ = self._parser.parse_known_args(self.arguments, unset)
        if given := [name for name in chosen if getattr(typed, name) is not None]:
            option = "-f" if given[0] == "folder" else f"--{given[0].replace('_', '-')}"
            self.error(f"{option} chooses among your own agents, and --pretrained takes the package's; leave one out.")
        try:
            pretrained.find_pretrained(seen.algo, seen.env)
        except ValueError as error:
            self.error(f"--pretrained: {error}")

    def run(self, script: Callable[[], None], defaults: list[str]) -> int:
        """Run the script, which takes its arguments from ``sys.argv``."""
        if self.wants_help:
            print(f"The algorithm is {DEFAULT_ALGORITHM} by default.\n\n{self.own_help}\nrl_zoo3's own:\n")
        caller = sys.argv
        sys.argv = [self._parser.prog, "--algo", DEFAULT_ALGORITHM, *defaults, *self.arguments]
        try:
            script()
        finally:
            sys.argv = caller
        return 0
