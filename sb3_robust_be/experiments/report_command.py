"""``experiment report`` and ``experiment publish``."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sb3_robust_be import report
from sb3_robust_be.experiments.experiment import REPORTED
from sb3_robust_be.experiments.find import (
    ALL,
    collected,
    command_line,
    find,
    find_all,
    folder,
    results_in,
)
from sb3_robust_be.experiments.publish import FOLDER, find_table, publish, published
from sb3_robust_be.experiments.reporting import (
    PAPER,
    control_rows,
    make_report,
    report_folder,
    rows_of_all_runs,
    runs_left,
)
from sb3_robust_be.report import Report
from sb3_robust_be.system import available_cores

DEFAULT_SCALE = "laptop"
INTRODUCTION = (
    f"The experiments of the paper {PAPER}, and ours that explain them. Each page begins with what was compared and "
    "what was found; then come the paper's sentences, each with the verdicts on it, tables, and settings."
)


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """
    :param parser: Of ``report``.
    """
    # `all --published` without a scale is all there is.
    parser.set_defaults(scale=None)
    parser.add_argument("--markdown", action="store_true", help="print verdicts and tables, write no page")
    parser.add_argument("--png", action="store_true", help="write each figure as PNG, too")
    parser.add_argument(
        "--published",
        action="store_true",
        help="from the published tables; `all`: of every scale unless one is given",
    )
    parser.add_argument(
        "--partial", action="store_true", help="from the runs that have ended, while others are still to be made"
    )
    parser.add_argument("--from", dest="source", metavar="FOLDER", help="--published there (default: the package's)")


def add_publish_options(parser: argparse.ArgumentParser) -> None:
    """
    :param parser: Of ``publish``.
    """
    parser.add_argument("--to", metavar="FOLDER", help="(default: published in that of --out)")


class Job(NamedTuple):
    """A report page that is to be written."""

    name: str
    """As :func:`~sb3_robust_be.experiments.find.find` takes it"""
    scale: str
    source: str | None
    """A folder of published tables; ``None``: the runs themselves"""
    out: str
    """The folder of the experiments"""
    markdown: bool
    partial: bool = False
    """Whether to make a page of the runs that have ended, if others are missing"""
    png: bool = False
    """Whether figures are written as PNG, too"""


class Page(NamedTuple):
    """The outcome of a job: the written page, or the runs that are missing."""

    said: str
    report: Report | None
    """For the index, without figures and tables; ``None`` if runs are missing"""


def run_report(args: argparse.Namespace) -> int:
    """Make pages, or print Markdown.

    :param args: Of a parser with :func:`add_report_options`.
    :return: 1 if runs are missing.
    """
    jobs = _jobs(args)
    pages = _in_processes(jobs) if len(jobs) > 1 else [make_page(job) for job in jobs]
    for page in pages:
        print(page.said, file=sys.stderr if page.report is None else sys.stdout)
    if args.name == ALL and not args.markdown:
        made = {
            _folder(job) / f"{page.report.name}.html": page.report
            for job, page in zip(jobs, pages, strict=True)
            if page.report is not None
        }
        if made:
            # Of one scale beside its pages, of several above them.
            where = Path(os.path.commonpath([path.parent for path in made]))
            print(report.write_index(where, made, "Reports", [INTRODUCTION]))
    return int(any(page.report is None for page in pages))


def make_page(job: Job) -> Page:
    """
    :param job: An experiment of which a page is to be made.
    :return: The page's path or its Markdown, or how many runs are missing.
    """
    experiment, scale = find(job.name), job.scale
    run = f"sb3-robust-be experiment run {job.name} --scale {scale}"
    if job.source is None:
        run = f"{run} --out {job.out}"
    rows, missing = rows_of_all_runs(experiment, scale, job.out, job.source)
    partly = job.partial and any(row.get("stage", REPORTED) == REPORTED for row in rows)
    if missing and partly and not experiment.partial:
        return Page(f"--partial: a report of {experiment.name} needs all of its runs; left: {len(missing)}", None)
    if missing and not partly:
        again = run if job.source is None else f"{run} --from {job.source}"
        return Page(f"{runs_left(experiment, scale, missing, job.out, job.source)}: {again}", None)
    made = make_report(experiment, scale, rows, run, control_rows(experiment.name, scale, job.source))
    said = report.markdown(made) if job.markdown else str(report.write(made, _folder(job), job.png))
    return Page(said, replace(made, plots=(), tables=(), pictures=()))


def _in_processes(jobs: list[Job]) -> list[Page]:
    context = multiprocessing.get_context("spawn")
    # Figures are many small objects that the collector of cycles would go through again and again.
    with ProcessPoolExecutor(min(available_cores(), len(jobs)), mp_context=context, initializer=gc.disable) as pool:
        # The longest first, or the last page would be made alone, and the others' processes wait for it.
        ordered = sorted(jobs, key=_table_size, reverse=True)
        made = dict(zip(ordered, pool.map(make_page, ordered), strict=True))
    return [made[job] for job in jobs]


def _table_size(job: Job) -> int:
    """Of a published table in bytes, which says roughly how long its page takes; 0 for runs, of which nothing does."""
    table = None if job.source is None else find_table(Path(job.source) / f"{job.name}-{job.scale}")
    return 0 if table is None else table.stat().st_size


def _jobs(args: argparse.Namespace) -> list[Job]:
    source = str(args.source or FOLDER) if args.published or args.source else None
    if source is None or args.name != ALL:
        named = [one.name for one in find_all(ALL)] if args.name == ALL else [args.name]
        wanted = [(name, args.scale or DEFAULT_SCALE) for name in named]
    else:
        there = published(Path(source))
        wanted = [
            (experiment.name, scale)
            for experiment in find_all(ALL)
            for name, scale in there
            if name == experiment.name and args.scale in (None, scale)
        ]
        if not wanted:
            raise ValueError(f"{source} has no published experiment{f' at scale {args.scale}' if args.scale else ''}.")
    return [Job(name, scale, source, args.out, args.markdown, args.partial, args.png) for name, scale in wanted]


def _folder(job: Job) -> Path:
    return report_folder(job.out, job.scale, job.source)


def run_publish(args: argparse.Namespace) -> int:
    """Write the tables of the runs that have ended.

    :param args: Of a parser with :func:`add_publish_options`.
    :return: 1 if runs are missing.
    """
    missing = 0
    for experiment in find_all(args.name):
        rows, open_runs = collected(experiment, args.scale, results_in(folder(args.out, experiment, args.scale)))
        if open_runs:
            left = runs_left(experiment, args.scale, open_runs, args.out, None)
            print(f"{left}: {command_line('run', args, experiment)}", file=sys.stderr)
            missing += 1
        if rows:
            path = publish(experiment.name, args.scale, rows, Path(args.to or Path(args.out) / "published"))
            print(f"{path} ({path.stat().st_size:,} bytes)")
    return int(missing > 0)
