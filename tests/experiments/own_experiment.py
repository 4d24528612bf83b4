"""An experiment of two stages whose runs take no time, for the tests of tables and of commands."""

from __future__ import annotations

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.evaluation import computed
from sb3_robust_be.experiments.experiment import (
    REPORTED,
    SELECTION,
    Analysis,
    Experiment,
    Run,
    distinct_specs,
    without_rows,
)
from sb3_robust_be.experiments.rows import key_of, rounded

CAPPED = 'κ, "capped"'
CONTENDERS = {"plain": None, "no cap": None, CAPPED: 0.15}
"""The caps; the first two share all of their runs"""
RATES = (0.1, 0.2)
SELECTED = len(CONTENDERS) * len(RATES)
"""Runs that choose, of which :data:`SHARED` are the same as others"""
SHARED = len(RATES)


def make(specs, writers, report_progress):
    """Seed 2 fails where there is a cap."""
    for spec, writer in zip(specs, writers, strict=True):
        if spec["seed"] == 2 and spec["cap"] is not None:
            writer.fail("no luck")
            continue
        final = min(spec["rate"], spec["cap"] or 1.0) * (1.0 + spec["seed"] / 3.0)
        writer.write_arrays("curve", curve=np.linspace(0.0, final, 5), unread=np.zeros(100))
        writer.finish({"final": final, "nothing": np.nan, "unread": list(range(100))})


def _run(stage, label, rate, seed):
    names = {"stage": stage, "domain": "line", "contender": label, "setting": {"rate": rate}, "seed": seed}
    return Run(names, {"function": "own_experiment:make", "rate": rate, "cap": CONTENDERS[label], "seed": seed})


def plan(seeds, rows):
    """A seed that chooses the rate, and once it is chosen, as many seeds as the preset says."""
    selection = [_run(SELECTION, label, rate, 10_000) for label in CONTENDERS for rate in RATES]
    if without_rows(selection, rows):
        return selection
    return selection + [
        _run(REPORTED, label, rate, seed) for label, rate in _chosen(rows).items() for seed in range(seeds)
    ]


def _chosen(rows):
    found = {key_of(row, ("stage", "contender", "setting")): row["final"] for row in rows if "final" in row}
    return {
        label: max(RATES, key=lambda rate, own=label: found[key_of(_run(SELECTION, own, rate, 0).names, _BY)])
        for label in CONTENDERS
    }


_BY = ("stage", "contender", "setting")


def measure(run, results):
    result = results.result(run.spec)
    row = {name: result[name] for name in ("final", "nothing")}
    return [row | {"curve": rounded(results.arrays(run.spec)["curve"])}]


def analyse(seeds, rows):
    done = [row for row in rows if row["stage"] == REPORTED and "failed" not in row]
    finals = {label: [row["final"] for row in done if row["contender"] == label] for label in CONTENDERS}
    curves = {row["contender"]: row["curve"] for row in done}
    table = [{"contender": label, "mean": float(np.mean(own)), "seeds": len(own)} for label, own in finals.items()]
    plots = []
    if curves:
        plots = [report.lines("curves", {"line": curves}, np.arange(5.0), x_label="step", measure="return")]
    return Analysis(
        verdicts=[computed("The capped are small", sum(finals[CAPPED]), 1.0)],
        plots=plots,
        tables=[report.Table("finals", table)],
    )


EXPERIMENT = Experiment(
    "own", "nowhere", "Own", ("It works.",), {"laptop": 3, "smoke": 3}, plan=plan, measure=measure, analyse=analyse
)


def specs_of(seeds, rows=()):
    return distinct_specs(plan(seeds, rows))
