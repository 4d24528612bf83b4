"""The command's arguments: what is compared, with which settings, and who has given each."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sb3_robust_be import registry
from sb3_robust_be.experiments.compare.comparison import (
    ALGORITHMS,
    SELECTION_SEEDS,
    Setup,
    check_algorithms,
    first_of,
    look_at,
    make_preset,
    on_masks,
)
from sb3_robust_be.experiments.compare.recordings import RECORDED, find_recordings
from sb3_robust_be.experiments.compare.setting import DEFAULT_RATES, Setting, settings_rows
from sb3_robust_be.experiments.compare.user_settings import SET, UserSettings, check_names, read_settings, why_single
from sb3_robust_be.experiments.compare.values import as_json, assignments, python_value, rate
from sb3_robust_be.experiments.control.contenders import Rate
from sb3_robust_be.experiments.control.preset import ControlPreset
from sb3_robust_be.experiments.environments import import_packages
from sb3_robust_be.experiments.logs import LoggedRun
from sb3_robust_be.experiments.options import Execution, add_runner_options, execution_of
from sb3_robust_be.experiments.setting_text import shown

DEFAULT_ALGORITHMS = "qlc,qrc_huber,dqn"
DEFAULT_RATE = "2^-9:2^-13"


def _rate(text: str) -> Rate:
    """A step size as an argument: :func:`~sb3_robust_be.experiments.compare.values.rate`."""
    try:
        return rate(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _positive(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sb3-robust-be compare",
        description="Train algorithms on an environment over many seeds, and say which one is better, by how much and "
        "how surely. Interrupted, the same command continues. The exit code is 1 if a seed has failed.",
    )
    parser.add_argument("--env", required=True, help="gymnasium id, or MODULE:ID of a module that registers it")
    parser.add_argument(
        "--gym-packages", nargs="+", default=[], metavar="MODULE", help="to import first: they register environments"
    )
    parser.add_argument("--algos", help=f"of {', '.join(ALGORITHMS)} (default: {DEFAULT_ALGORITHMS})")
    parser.add_argument("--baseline", help="what the others are compared with (default: dqn, or the last algorithm)")
    parser.add_argument(
        "--baseline-monitor",
        nargs="+",
        metavar="PATTERN",
        help="Monitor files of SB3 as the baseline, one for each seed, as 'logs/dqn/*/monitor.csv': nothing is trained "
        "for it, and by default dqn is not either",
    )
    parser.add_argument("--seeds", type=_positive, default=30, help="per algorithm (default: %(default)s)")
    parser.add_argument(
        "--steps",
        "--n-timesteps",
        type=_positive,
        help=f"environment steps (default: the file's n_timesteps, or {Setting().steps})",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="your DQN's settings in rl_zoo3's format, as dqn.yml; the environment's entry is used, and what it leaves "
        "open is each class's default",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="your DQN's settings, in place of the file's or without one, as gamma=0.98 "
        '"policy_kwargs=dict(net_arch=[256, 256])"; NAME=None leaves a setting of the file out',
    )
    parser.add_argument(
        "--env-kwargs", nargs="+", default=[], metavar="NAME=VALUE", help="of gym.make, as is_slippery=False"
    )
    parser.add_argument(
        "--normalize",
        nargs="?",
        const="True",
        metavar="DICT",
        help="scale observations and rewards as VecNormalize does, for every algorithm; or its arguments, as "
        '"dict(norm_reward=False)". Returns are of the true rewards',
    )
    parser.add_argument(
        "--learning-rates",
        type=_rate,
        nargs="+",
        metavar="RATE",
        help=f"of every algorithm: constant, or FIRST:LAST for a linear fall over the run; several: each algorithm's "
        f"best one over {SELECTION_SEEDS} other seeds is used (default: {DEFAULT_RATE}; with --config or --set their "
        "learning_rate, or each class's own)",
    )
    parser.add_argument(
        "--own-learning-rates",
        action="store_true",
        help="the learning_rate of --config or --set is for the baselines alone (dqn, dqn_squared, qrdqn); every other "
        "class has its default",
    )
    parser.add_argument("--net-arch", type=_positive, nargs="+", metavar="UNITS", help="hidden units (default: 64 64)")
    parser.add_argument("--layer-norm", action="store_true", help="normalise the hidden layers of every algorithm")
    parser.add_argument(
        "--single-agents",
        action="store_true",
        help="train agents one by one by SB3, where they would be a population: slower, and every setting is possible",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="of the results (default: compare/ENV, and for other settings than the default a folder of their own)",
    )
    add_runner_options(parser)
    return parser


class Comparison(NamedTuple):
    """What is compared, and where the results go."""

    env: str
    algorithms: list[str]
    baseline: str
    recordings: list[LoggedRun]
    """In the baseline's place; empty: it is trained"""
    recorded_notes: list[str]
    setting: Setting
    setup: Setup
    preset: ControlPreset
    settings: list[dict[str, str]]
    """Every argument, with who has given it"""
    notes: list[str]
    """Said before the work"""
    out: Path
    how: Execution

    @property
    def stem(self) -> str:
        """Of the names of its files: with recordings it has others, for the runs are the same."""
        if not self.recordings:
            return "compare"
        # The files, and not their folders: of these another command may read other files.
        read = "\n".join(str(path.absolute()) for run in self.recordings for path in run.monitors)
        return f"compare-{RECORDED}-{hashlib.sha256(read.encode()).hexdigest()[:6]}"


def parse(argv: list[str]) -> Comparison:
    """
    :param argv: The command's arguments.
    :return: What they ask for; what they cannot mean ends the process with a sentence.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    if importlib.util.find_spec("matplotlib") is None:
        # Before the work, not after it.
        import matplotlib  # noqa: F401
    try:
        return _comparison(args)
    except ValueError as error:
        parser.error(str(error))


def _comparison(args: argparse.Namespace) -> Comparison:
    default = DEFAULT_ALGORITHMS.removesuffix(",dqn") if args.baseline_monitor else DEFAULT_ALGORITHMS
    algorithms = check_algorithms([name.strip() for name in (default if args.algos is None else args.algos).split(",")])
    baseline = _baseline(args, algorithms)
    recordings, recorded_notes = find_recordings(args.baseline_monitor) if args.baseline_monitor else ([], [])
    # They may register the environment, by which the file is asked.
    import_packages({"gym_packages": args.gym_packages})
    own = read_settings(args.config, args.set, args.env)
    if own.learning_rate is not None and own.origins["learning_rate"] == SET and args.learning_rates:
        raise ValueError(f"learning_rate is given by {SET} and by --learning-rates; give one of them.")
    if args.own_learning_rates:
        leaves = "--own-learning-rates leaves the learning_rate of --config or --set to the baselines"
        if args.learning_rates:
            raise ValueError(f"{leaves}; give it without --learning-rates.")
        if own.learning_rate is None:
            raise ValueError(f"{leaves}; give one there, or leave the option out.")
        if not recordings and not any(registry.find(name).baseline for name in algorithms):
            raise ValueError(f"{leaves}, and --algos names none; add dqn, or leave the option out.")
    env_kwargs = {**own.env_kwargs, **as_json(assignments(args.env_kwargs, "--env-kwargs"), "--env-kwargs")}
    setup = look_at(args.env, args.net_arch, args.gym_packages, env_kwargs)
    setup = setup._replace(policy=own.policy or setup.policy, stacked=setup.stacked and not args.single_agents)
    left_out = check_names(own, algorithms)
    own_rates = [name for name in algorithms if args.own_learning_rates and not registry.find(name).baseline]
    rates = args.learning_rates or ([own.learning_rate] if own.learning_rate is not None else None)
    setting = Setting(
        steps=args.steps or own.steps or Setting().steps,
        learning_rates=None if rates is None else sorted(rates, key=first_of),
        net_arch=args.net_arch,
        own_learning_rates=args.own_learning_rates,
        layer_norm=args.layer_norm,
        arguments=own.arguments if own.given else None,
        policy=own.policy,
        single_agents=args.single_agents,
        env_kwargs=env_kwargs,
        normalize=_normalize(args.normalize, own.normalize),
        name="-".join(filter(None, (own.name, "rates" if args.learning_rates else ""))),
    )
    notes = []
    if left_out:
        notes.append(f"Of {args.config.name}, what is DQN's alone is left out: {', '.join(left_out)}.")
    if (told := _on_rates(args, own, algorithms)) is not None:
        notes.append(told)
    if own.given and setup.stacked and (reason := why_single(algorithms, own.arguments)) is not None:
        setup = setup._replace(stacked=False)
        notes.append(f"The agents are trained one by one, since a population cannot have this setting: {reason}")
    notes += on_masks(setup, algorithms, bool(recordings))
    if rates is None and not own.given:
        rates = [rate(DEFAULT_RATE)]
    preset = make_preset(
        setup,
        algorithms,
        args.seeds,
        setting.steps,
        rates or [],
        args.layer_norm,
        setting.arguments,
        setting.normalize,
        args.net_arch,
        own_rates,
    )
    return Comparison(
        env=args.env,
        algorithms=algorithms,
        baseline=baseline,
        recordings=recordings,
        recorded_notes=recorded_notes,
        setting=setting,
        setup=setup,
        preset=preset,
        settings=[
            *settings_rows(preset, _origins(args, own), "compare", own_rates),
            *_other_rows(args, own, setting, setup),
        ],
        notes=notes,
        out=args.out or setting.folder(args.env),
        how=execution_of(args),
    )


def _on_rates(args: argparse.Namespace, own: UserSettings, algorithms: Sequence[str]) -> str | None:
    """What is to be said of a learning rate that was chosen for DQN."""
    if "qlc" not in algorithms or own.learning_rate is None or args.learning_rates or args.own_learning_rates:
        return None
    return (
        f"qlc has the learning_rate of {own.origins['learning_rate']}. If that was chosen for DQN, compare also with "
        "--own-learning-rates, with which qlc keeps its own, which falls over the run."
    )


def _baseline(args: argparse.Namespace, algorithms: list[str]) -> str:
    if args.baseline_monitor:
        if args.baseline:
            raise ValueError("--baseline and --baseline-monitor both name what the others are compared with; give one.")
        return RECORDED
    baseline = str(args.baseline or ("dqn" if "dqn" in algorithms else algorithms[-1]))
    if baseline not in algorithms:
        raise ValueError(f"--baseline {baseline!r} is not among --algos {','.join(algorithms)}")
    return baseline


def _normalize(option: str | None, own: Any) -> dict[str, Any] | None:
    from sb3_robust_be.population.normalization import normalize_options

    given = own if option is None else python_value(option, "--normalize")
    try:
        options = normalize_options(False if given is None else given)
    except TypeError as error:
        raise ValueError(str(error)) from error
    return None if options is None else dict(as_json(options, "--normalize"))


def _origins(args: argparse.Namespace, own: UserSettings) -> dict[str, str]:
    """By argument, who has given it, as far as that is not compare."""
    origins = dict(own.origins)
    if args.learning_rates:
        origins["learning_rate"] = "--learning-rates"
    elif own.given and own.learning_rate is None:
        origins["learning_rate"] = DEFAULT_RATES
    flags = [flag for flag, given in (("--net-arch", args.net_arch), ("--layer-norm", args.layer_norm)) if given]
    network = [*([origins["policy_kwargs"]] if "policy_kwargs" in origins else []), *flags]
    return {**origins, **({"policy_kwargs": " and ".join(network)} if network else {})}


def _other_rows(args: argparse.Namespace, own: UserSettings, setting: Setting, setup: Setup) -> list[dict[str, str]]:
    """As of the arguments, for what is the run's: its length, its policy, its environment."""
    values = {"n_timesteps": str(setting.steps), "policy": setup.policy}
    if setting.env_kwargs:
        values["env_kwargs"] = shown(setting.env_kwargs)
    if setting.normalize is not None:
        values["normalize"] = shown(setting.normalize) if setting.normalize else "as VecNormalize by default"
    origins = {name: own.origins[name] for name in values if name in own.origins}
    if args.steps:
        origins["n_timesteps"] = "--steps"
    if args.normalize is not None:
        origins["normalize"] = "--normalize"
    if args.env_kwargs:
        origins["env_kwargs"] = " and ".join([*([origins["env_kwargs"]] if own.env_kwargs else []), "--env-kwargs"])
    return [
        {"argument": name, "value": value, "of": "all", "from": origins.get(name, "compare")}
        for name, value in values.items()
    ]
