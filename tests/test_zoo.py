"""The commands train, enjoy and tune: real runs of rl_zoo3's scripts, and what this package adds to them."""

import csv
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import optuna
import pytest
import rl_zoo3.exp_manager
import rl_zoo3.hyperparams_opt
import rl_zoo3.train
import rl_zoo3.utils
import yaml
from rl_zoo3.utils import SimpleLinearSchedule
from stable_baselines3.common.monitor import load_results
from stable_baselines3.common.utils import ConstantSchedule, LinearSchedule

from sb3_robust_be import QLC, QRCHuber, cli, zoo
from sb3_robust_be.experiments.plot.labelled_runs import labelled_runs
from sb3_robust_be.experiments.plot.measured_runs import by_environment
from sb3_robust_be.experiments.plot.plot_figures import DIAGNOSTICS
from sb3_robust_be.registry import classes

ALGORITHMS = classes()

ROOT = Path(__file__).parents[1]
ENV_ID = "RobustBE/MountainCar1000-v0"
RUN = Path("logs") / "qlc" / "RobustBE-MountainCar1000-v0_1"
QUIET = ["--no-progress", "--no-tensorboard", "--eval-freq", "-1", "--log-interval", "-2"]
COMMON = {"learning_rate", "h_regularization", "h_learning_rate_ratio"}
SEARCHED = {
    "qrc": COMMON,
    "qrc_huber": COMMON | {"huber_threshold"},
    "qlc": COMMON | {"limit", "h_target"},
    "gq": COMMON,
    "gq_huber": COMMON | {"huber_threshold"},
    "sbeed": COMMON | {"temperature", "eta", "target_update_interval"},
}


def saved_config(folder: Path) -> dict:
    (path,) = folder.glob("*/config.yml")
    return dict(yaml.unsafe_load(path.read_text(encoding="utf-8")))


@pytest.fixture
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def tables(monkeypatch):
    """rl_zoo3's tables as they are without this package."""
    for table in (zoo.ALGOS, zoo.HYPERPARAMS_SAMPLER, zoo.HYPERPARAMS_CONVERTER):
        for name in ALGORITHMS:
            monkeypatch.delitem(table, name, raising=False)


@pytest.fixture
def passed(monkeypatch):
    """The arguments that a command hands to rl_zoo3's script, in place of running it."""
    seen: list[list[str]] = []
    for script in ("rl_zoo3_train", "rl_zoo3_enjoy"):
        monkeypatch.setattr(zoo, script, lambda: seen.append(sys.argv[1:]))
    return seen


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One run of the real command in a process of its own: no --algo, no --conf-file, an id with a slash."""
    folder = tmp_path_factory.mktemp("train")
    command = [sys.executable, "-m", "sb3_robust_be", "train", "--env", ENV_ID, "-n", "1010", "--eval-freq", "1000"]
    done = subprocess.run(
        [*command, "--eval-episodes", "1", "--seed", "0"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_train_writes_a_model_that_plays(trained):
    folder, _ = trained
    model = QLC.load(folder / RUN / "RobustBE-MountainCar1000-v0.zip")
    assert model.num_timesteps == 1010
    assert model._n_updates == 1010 - 32
    assert model.replay_buffer_class is None
    assert (model.buffer_size, model.policy.net_arch) == (4000, [32, 32])  # the entry of this environment
    action, _ = model.predict(np.array([-0.5, 0.0], dtype=np.float32), deterministic=True)
    assert action in (0, 1, 2)
    assert (folder / RUN / "best_model.zip").is_file()


def test_train_writes_monitor_and_tensorboard_files(trained):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, _ = trained
    episodes = load_results(str(folder / RUN))
    # Of 1 010 steps. Whether the goal is reached by chance before the limit of 1 000 is a matter of last digits.
    (length,) = episodes["l"]
    assert 10 < length <= 1000
    assert episodes["r"].tolist() == [-length]
    (events,) = (folder / "logs" / "tensorboard").rglob("events.out.tfevents.*")
    accumulator = EventAccumulator(str(events))
    accumulator.Reload()
    assert {"train/loss", "eval/mean_reward"} <= set(accumulator.Tags()["scalars"])


def test_plot_reads_what_train_wrote(trained, in_tmp_path):
    found = labelled_runs([str(trained[0] / "logs")])
    assert found.problems == []
    (label,) = found.runs
    assert label == "qlc"
    # rl_zoo3 has TensorBoard's files in another folder.
    (env,) = by_environment(found.runs)
    assert env == ENV_ID
    monitored, logged = found.runs[label]
    assert len(monitored.episodes) == 1
    assert set(DIAGNOSTICS.values()) <= set(logged.series)


def test_train_shows_a_progress_bar_and_the_configuration(trained):
    folder, output = trained
    assert "100%" in output
    assert "1,010/1,010" in output
    assert f"Loading hyperparameters from: {zoo.config_file('qlc')}" in output
    assert saved_config(folder / RUN)["policy_kwargs"] == "dict(net_arch=[32, 32], layer_norm=True)"


def test_enjoy_plays_the_newest_run(trained, in_tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(trained[0])
    assert cli.main(["enjoy", "--env", ENV_ID, "-n", "1000"]) == 0
    shown = capsys.readouterr().out
    assert f"Loading {RUN}" in shown
    lengths = [int(length) for length in re.findall(r"Episode Length (\d+)", shown)]
    assert lengths
    assert all(10 < length <= 1000 for length in lengths)


def test_training_goes_on(trained, in_tmp_path):
    start = trained[0] / RUN / "RobustBE-MountainCar1000-v0.zip"
    assert cli.main(["train", "--env", ENV_ID, "-n", "100", "-i", str(start), *QUIET]) == 0
    model = QLC.load(in_tmp_path / RUN / "RobustBE-MountainCar1000-v0.zip")
    assert model._n_updates == 1010 - 32 + 100 - 32


def test_progress_and_tensorboard_can_be_switched_off(in_tmp_path, capsys):
    assert cli.main(["train", "--algo", "qlc", "-n", "50", "--no-progress", "--no-tensorboard"]) == 0
    assert "100%" not in capsys.readouterr().out
    assert not list(in_tmp_path.rglob("*tfevents*"))
    assert list(in_tmp_path.rglob("*.monitor.csv"))


def test_an_environment_without_an_entry_trains(in_tmp_path, capsys):
    assert cli.main(["train", "--algo", "gq", "--env", "MountainCar-v0", "-n", "40", *QUIET]) == 0
    assert "Using 'default' hyperparameters" in capsys.readouterr().out
    assert saved_config(in_tmp_path / "logs/gq/MountainCar-v0_1")["n_timesteps"] == 100_000


def test_tune_qlc(in_tmp_path):
    """By the start of its falling learning rate, which a trial has as a number."""
    budget = ["--n-trials", "1", "-n", "60", "--eval-episodes", "1", "--no-optim-plots"]
    assert cli.main(["tune", "--algo", "qlc", *budget]) == 0
    (report,) = (in_tmp_path / "logs/tune/qlc").glob("report_CartPole-v1_1-trials*.csv")
    (trial,) = csv.DictReader(report.open())
    assert trial["state"] == "COMPLETE"
    assert 2.0**-13 <= float(trial["params_learning_rate_start"]) <= 2.0**-6
    assert "params_learning_rate" not in trial


def test_tune_and_train_on_a_trial(in_tmp_path):
    study = ["--storage", "tune.log", "--study-name", "two", "--algo", "qrc_huber"]
    budget = ["--n-trials", "2", "-n", "200", "--eval-episodes", "1"]
    assert cli.main(["tune", *study, *budget]) == 0
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend("tune.log"))
    trials = optuna.load_study(study_name="two", storage=storage).trials
    assert [trial.state.name for trial in trials] == ["COMPLETE", "COMPLETE"]
    assert list((in_tmp_path / "logs/tune/qrc_huber").glob("report_CartPole-v1_2-trials*.csv"))

    for trial_id, trial in ((1, trials[1]), (-2, trials[0])):
        assert cli.main(["train", *study, "--trial-id", str(trial_id), "-n", "40", *QUIET]) == 0
        newest = max((in_tmp_path / "logs/qrc_huber").glob("CartPole-v1_*"))
        config = saved_config(newest)
        assert {name: config[name] for name in trial.params} == trial.params
        assert config["policy_kwargs"] == "dict(net_arch=[64, 64])"  # the search leaves the network alone
        (path,) = newest.glob("*.zip")
        assert QRCHuber.load(path).huber_threshold == trial.params["huber_threshold"]


def stored_trial(values, name="qlc"):
    """A finished trial of the study ``one`` in ``tune.log``, as options of ``train``."""
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend("tune.log"))
    study = optuna.create_study(study_name="one", storage=storage)
    ranges = {key: optuna.distributions.FloatDistribution(1e-6, 1.0, log=True) for key in values}
    study.add_trial(optuna.trial.create_trial(params=values, distributions=ranges, value=1.0))
    return ["--storage", "tune.log", "--study-name", "one", "--trial-id", "-1", "--algo", name]


@pytest.mark.parametrize(
    ("values", "rate"),
    [
        ({"learning_rate_start": 0.004}, LinearSchedule(0.004, 2.0**-13, 1.0)),
        ({"learning_rate": 0.002}, ConstantSchedule(0.002)),
    ],
    ids=["falling", "constant, as in a study of 0.1"],
)
def test_train_on_a_trial_with_its_learning_rate(values, rate, in_tmp_path):
    assert cli.main(["train", *stored_trial(values), "-n", "40", *QUIET]) == 0
    model = QLC.load(in_tmp_path / "logs/qlc/CartPole-v1_1/CartPole-v1.zip")
    assert repr(model.learning_rate) == repr(rate)
    # The last update is that of the fortieth step.
    assert model.policy.optimizer.param_groups[0]["lr"] == pytest.approx(rate(0.0))


def test_learning_rates_of_a_configuration_are_rl_zoo3s(in_tmp_path):
    """A number and ``lin_…`` mean what they mean without this package."""
    for text, rate in (("0.002", ConstantSchedule(0.002)), ("'lin_0.002'", SimpleLinearSchedule(0.002))):
        assert cli.main(["train", "-params", f"learning_rate:{text}", "-n", "40", *QUIET]) == 0
        newest = max((in_tmp_path / "logs/qlc").glob("CartPole-v1_*"))
        assert repr(QLC.load(newest / "CartPole-v1.zip").learning_rate) == repr(rate)
    with pytest.raises(ValueError, match="Invalid value for learning_rate"):
        cli.main(["train", "-params", "learning_rate:[0.002]", *QUIET])


def test_a_policy_named_by_its_module_is_the_one_of_that_name(in_tmp_path):
    Path("own.yml").write_text("CartPole-v1: {policy: sb3_robust_be.qrc.MlpPolicy, n_timesteps: 30, buffer_size: 77}\n")
    assert cli.main(["train", "--conf-file", "own.yml", *QUIET]) == 0
    assert QLC.load(in_tmp_path / "logs/qlc/CartPole-v1_1/CartPole-v1.zip").policy.layer_norm


@pytest.mark.parametrize("name", ALGORITHMS)
def test_trials_are_arguments(name):
    """Every sampled set is accepted by the algorithm, and a stored trial says the same as the sampler said."""
    zoo.register()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(5):
        trial = study.ask()
        sampled = zoo.HYPERPARAMS_SAMPLER[name](trial, 0, 1, {})
        assert set(sampled) == SEARCHED[name]
        assert shown(zoo.HYPERPARAMS_CONVERTER[name](trial.params)) == shown(sampled)
        model = ALGORITHMS[name]("MlpPolicy", "CartPole-v1", buffer_size=10, **sampled)
        assert {key: getattr(model, key) for key in sampled} == sampled


def shown(arguments):
    """SB3's schedules, which are equal to themselves only, by all that they consist of."""
    return {name: repr(x) if isinstance(x, LinearSchedule) else x for name, x in arguments.items()}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_default_learning_rate_is_among_those_searched(name):
    zoo.register()
    trial = optuna.create_study().ask()
    sampled = zoo.HYPERPARAMS_SAMPLER[name](trial, 0, 1, {})["learning_rate"]
    default = ALGORITHMS[name]("MlpPolicy", "CartPole-v1", buffer_size=10).learning_rate
    if name == "qlc":
        searched, inside = trial.distributions["learning_rate_start"], default.start
        assert "learning_rate" not in trial.distributions
        assert (sampled.end, sampled.end_fraction) == (default.end, default.end_fraction) == (2.0**-13, 1.0)
        assert sampled.start == trial.params["learning_rate_start"]
    else:
        searched, inside = trial.distributions["learning_rate"], default
        assert "learning_rate_start" not in trial.distributions
        assert sampled == trial.params["learning_rate"]
    assert searched.log
    assert searched.low < inside < searched.high


@pytest.mark.parametrize("argument", zoo.SEARCHED_ARGUMENTS)
def test_every_searched_argument_is_searched_by_someone(argument):
    assert [name for name, cls in ALGORITHMS.items() if argument in zoo.searched_arguments(cls)]


def test_register_fills_the_tables_that_rl_zoo3_reads(tables):
    assert "qrc" not in rl_zoo3.train.ALGOS
    zoo.register()
    for module in (rl_zoo3.train, rl_zoo3.utils, rl_zoo3.exp_manager):
        assert {name: module.ALGOS[name] for name in ALGORITHMS} == ALGORITHMS
    for module in (rl_zoo3.hyperparams_opt, rl_zoo3.exp_manager):
        assert set(ALGORITHMS) <= set(module.HYPERPARAMS_SAMPLER)
        assert set(ALGORITHMS) <= set(module.HYPERPARAMS_CONVERTER)


def test_registering_again_changes_nothing(tables):
    zoo.register()
    names, dqn = list(zoo.ALGOS), zoo.HYPERPARAMS_SAMPLER["dqn"]
    schedules = rl_zoo3.exp_manager.ExperimentManager._preprocess_schedules
    zoo.register()
    assert rl_zoo3.exp_manager.ExperimentManager._preprocess_schedules is schedules
    assert list(zoo.ALGOS) == names
    assert zoo.HYPERPARAMS_SAMPLER["dqn"] is dqn


def test_the_parser_knows_the_algorithms(tables, in_tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["train", "--algo", "nothing"])
    shown = capsys.readouterr().err
    assert all(f"'{name}'" in shown for name in ALGORITHMS)


@pytest.mark.parametrize("name", [*ALGORITHMS, "dqn"])
def test_our_configuration_is_filled_in(name, passed):
    cli.main(["train", f"--algo={name}"])
    cli.main(["tune", "--algo", name])
    for arguments in passed:
        assert arguments[arguments.index("--conf-file") + 1] == str(zoo.config_file(name))


def test_other_algorithms_keep_rl_zoo3s_configuration(passed):
    cli.main(["train", "--algo", "ppo"])
    assert "--conf-file" not in passed[0]


@pytest.mark.parametrize("option", ["--conf-file", "-conf", "--conf"])
def test_the_callers_configuration_wins(option, in_tmp_path, capsys):
    Path("own.yml").write_text(
        "CartPole-v1: {policy: MlpPolicy, n_timesteps: 30, learning_starts: 9, buffer_size: 77}\n"
    )
    assert cli.main(["train", "--algo", "qrc", option, "own.yml", *QUIET]) == 0
    assert saved_config(in_tmp_path / "logs/qrc/CartPole-v1_1")["buffer_size"] == 77


def test_the_defaults_follow_the_callers_folder(passed):
    cli.main(["train", "-f", "elsewhere"])
    assert os.path.join("elsewhere", "tensorboard") in passed[0]


@pytest.mark.parametrize(("display", "rendered"), [("", False), (":0", True)])
def test_enjoy_opens_no_window_without_a_display(display, rendered, passed, trained, in_tmp_path, monkeypatch):
    monkeypatch.chdir(trained[0])
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.setattr(sys, "platform", "linux")
    cli.main(["enjoy", "--env", ENV_ID])
    assert ("--no-render" not in passed[0]) is rendered


def test_sys_argv_is_given_back(passed, monkeypatch):
    caller = ["pytest", "x"]
    monkeypatch.setattr(sys, "argv", caller)
    cli.main(["train"])
    assert sys.argv is caller


@pytest.mark.parametrize("command", ["train", "tune", "enjoy"])
def test_help_shows_ours_and_rl_zoo3s(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main([command, "--help"])
    shown = capsys.readouterr().out
    assert "qlc by default" in shown
    assert "--n-timesteps" in shown
    assert ("--no-progress" in shown) is (command == "train")


@pytest.mark.parametrize("argument", ["huber_threshold", "h_regularization", "h_learning_rate_ratio"])
@pytest.mark.parametrize("text", ["lin_2.0", "1e5"])
def test_strings_of_a_yml_are_refused(argument, text, in_tmp_path):
    """rl_zoo3 parses ``lin_…`` for learning rates only, and YAML reads ``1e5`` as a string."""
    with pytest.raises(TypeError, match=rf"{argument} must be a number and is the string '{text}'"):
        cli.main(["train", "-params", f"{argument}:'{text}'", *QUIET])


def test_a_copied_dqn_configuration_warns_of_its_target_network(in_tmp_path):
    copied = Path(inspect.getfile(rl_zoo3.train)).parent / "hyperparams" / "dqn.yml"
    with pytest.warns(UserWarning, match="target_update_interval=10 "):
        cli.main(
            ["train", "--algo", "qrc", "--conf-file", str(copied), "-n", "20", "-params", "learning_starts:9", *QUIET]
        )
