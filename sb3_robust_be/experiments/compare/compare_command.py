"""The command: runs, then the table, the verdict and the picture."""

from __future__ import annotations

import numpy as np

from sb3_robust_be.experiments.compare.compare_arguments import Comparison, parse
from sb3_robust_be.experiments.compare.compare_files import (
    check_folder,
    ignore_in_git,
    recorded_rows,
    seed_rows,
    write_files,
)
from sb3_robust_be.experiments.compare.compare_picture import make_plots
from sb3_robust_be.experiments.compare.comparison import (
    CHANGE,
    SELECTION_SEEDS,
    check_agents,
    check_images,
)
from sb3_robust_be.experiments.compare.recordings import RECORDED, measure_recordings
from sb3_robust_be.experiments.compare.summary import (
    MEANING,
    TITLE,
    as_text,
    described,
    edges,
    footnotes,
    summarise,
    verdict,
)
from sb3_robust_be.experiments.control.contenders import Rate
from sb3_robust_be.experiments.control.preset import ControlResults, measure, plan, read
from sb3_robust_be.experiments.control.yaml_file import analyse as control_analyse
from sb3_robust_be.experiments.experiment import SELECTION, Experiment, Results
from sb3_robust_be.experiments.options import exit_code, start_fresh
from sb3_robust_be.experiments.rows import Row
from sb3_robust_be.experiments.running import make_runs
from sb3_robust_be.report import aligned, versions
from sb3_robust_be.runner.specs import Spec
from sb3_robust_be.runner.store import run_directory, run_state


def _first_runs(comparison: Comparison) -> list[Spec]:
    """A run of each algorithm that has not begun: those that have were checked then."""
    first = {run.names["contender"]: run.spec for run in reversed(plan(comparison.preset, []))}
    return [spec for spec in first.values() if run_state(run_directory(comparison.out, spec)) == "left"]


def main(argv: list[str]) -> int:
    """
    :param argv: The command's arguments.
    :return: The exit code: 1 if a run failed.
    """
    comparison = parse(argv)
    return exit_code("sb3-robust-be compare", lambda: _compare(comparison))


def _compare(comparison: Comparison) -> int:
    how, out = comparison.how, comparison.out
    start_fresh(how, out)
    check_folder(out, comparison.stem, comparison.env, comparison.setting)
    experiment = Experiment(
        name="compare",
        figure="your own",
        summary=f"{', '.join(comparison.algorithms)} on {comparison.env}",
        claims=(),
        presets={},
        plan=plan,
        measure=measure,
        analyse=control_analyse,
        check=lambda preset: _check(comparison),
    )
    _say_settings(comparison)

    def before_round(names: list[Row]) -> None:
        ignore_in_git(out)
        if names[0]["stage"] == SELECTION:
            print(f"Choosing step sizes on {SELECTION_SEEDS} seeds that are not reported.")

    ran = make_runs(
        experiment,
        comparison.preset,
        Results(out),
        how,
        named=lambda row: f"{row['contender']}, seed {row['seed']}",
        before_round=before_round,
    )
    if ran.left:
        print(f"{ran.left} runs of other shards are left: the same command goes on when they have ended.")
        return 0
    return _say_what_is_found(comparison, read(comparison.preset, ran.rows))


def _check(comparison: Comparison) -> None:
    """Refuse what cannot be trained."""
    check_images(comparison.setup)
    specs = _first_runs(comparison)
    if comparison.setting.arguments is None and comparison.setting.normalize is None:
        check_agents(specs)
    else:
        check_agents(specs, CHANGE)


def _say_settings(comparison: Comparison) -> None:
    setting = comparison.setting
    columns = ("argument", "value", "of", "from")
    print(f"{comparison.env}, {setting.steps} steps, {comparison.preset.seeds} seeds; settings:\n")
    print(aligned([columns, *([row[name] for name in columns] for row in comparison.settings)], left=4))
    if setting.arguments is not None:
        print("What is not listed is each class's default.")
    for note in [*comparison.notes, *comparison.recorded_notes]:
        print(note)
    print(flush=True)


def _say_what_is_found(comparison: Comparison, results: ControlResults) -> int:
    (finals,) = results.finals.values()
    (curves,) = results.curves.values()
    rates: dict[str, Rate | None] = {label: own["learning_rate"] for (_, label), own in results.settings.items()}
    unfinished = {
        label: np.array([bool(row.get("unfinished")) for row in own]) for (_, label), own in results.reported.items()
    }
    seeds = seed_rows(results)
    notes = edges(rates, comparison.setting.learning_rates or [])
    if comparison.recordings:
        recorded = measure_recordings(comparison.recordings, comparison.setting.steps, comparison.env)
        finals, curves = {**finals, RECORDED: recorded.finals}, {**curves, RECORDED: recorded.curves}
        rates[RECORDED], unfinished[RECORDED] = None, np.zeros(len(recorded.finals), bool)
        seeds += recorded_rows(recorded)
        notes += recorded.notes
    rows = summarise(finals, rates, comparison.baseline, unfinished)
    notes = [*footnotes(rows, comparison.baseline), *notes]
    sentence = verdict(rows, finals, comparison.env)
    plots = make_plots(comparison.env, finals, curves, comparison.setting.steps)
    written = write_files(
        comparison.out,
        comparison.stem,
        seeds,
        plots,
        {
            "environment": comparison.env,
            **comparison.setting.described(),
            "settings": comparison.settings,
            "baseline": comparison.baseline,
            "measure": MEANING,
            "algorithms": [described(row) for row in rows],
            "verdict": sentence,
            "notes": [*comparison.notes, *comparison.recorded_notes, *notes],
            "versions": versions(),
        },
    )
    print(f"\n{TITLE} ({comparison.setting.steps} steps on {comparison.env}):\n")
    print(as_text(rows, comparison.baseline))
    print("\n".join(["", MEANING, *notes]))
    print(f"\n{sentence}\n")
    print(f"Written: {', '.join(map(str, written))}\nLearning curves: {plots[-1].caption}")
    return int(any(row.failed for row in rows))
