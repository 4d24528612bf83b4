"""``experiment report`` and ``experiment publish``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from sb3_robust_be import report
from sb3_robust_be.experiments.experiment import Experiment, Results
from sb3_robust_be.experiments.find import (
    ALL,
    collected,
    command_line,
    find,
    find_all,
    folder,
    results_in,
    what_is_left,
)
from sb3_robust_be.experiments.publish import FOLDER, load, publish, published
from sb3_robust_be.experiments.reporting import make_report
from sb3_robust_be.report import Report

DEFAULT_SCALE = "laptop"


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """
    :param parser: Of ``report``.
    """
    # `all --published` without a scale is all there is.
    parser.set_defaults(scale=None)
    parser.add_argument("--markdown", action="store_true", help="print verdicts and tables, write no page")
    parser.add_argument(
        "--published",
        action="store_true",
        help="from the published tables; `all`: of every scale unless one is given",
    )
    parser.add_argument("--from", dest="source", metavar="FOLDER", help="--published there (default: the package's)")


def add_publish_options(parser: argparse.ArgumentParser) -> None:
    """
    :param parser: Of ``publish``.
    """
    parser.add_argument("--to", metavar="FOLDER", help="(default: published in that of --out)")


def run_report(args: argparse.Namespace) -> int:
    """Make pages, or print Markdown.

    :param args: Of a parser with :func:`add_report_options`.
    :return: 1 if runs are missing.
    """
    if args.published or args.source:
        return _report_published(args)
    args.scale = args.scale or DEFAULT_SCALE
    missing = 0
    written = []
    for experiment in find_all(args.name):
        rows, open_runs = collected(experiment, args.scale, results_in(folder(args, experiment)))
        if left := what_is_left(experiment, args, open_runs):
            print(left, file=sys.stderr)
            missing += 1
            continue
        page = make_report(experiment, args.scale, rows, command_line("run", args, experiment))
        _show(page, args.scale, args)
        written.append(page)
    _index(written, args.scale, args)
    return int(missing > 0)


def _report_published(args: argparse.Namespace) -> int:
    source = Path(args.source or FOLDER)
    by_scale: dict[str, list[Report]] = {}
    missing = 0
    for experiment, scale in _published_ones(source, args):
        rows, open_runs = collected(experiment, scale, Results(source, load(source, experiment.name, scale)))
        run = f"sb3-robust-be experiment run {experiment.name} --scale {scale}"
        if open_runs:
            print(
                f"{experiment.name} is published with {len(open_runs)} runs left: {run} --from {source}",
                file=sys.stderr,
            )
            missing += 1
            continue
        page = make_report(experiment, scale, rows, run)
        _show(page, f"{scale}-published", args)
        by_scale.setdefault(scale, []).append(page)
    for scale, pages in by_scale.items():
        _index(pages, f"{scale}-published", args)
    return int(missing > 0)


def _published_ones(source: Path, args: argparse.Namespace) -> Iterator[tuple[Experiment, str]]:
    if args.name != ALL:
        yield find(args.name), args.scale or DEFAULT_SCALE
        return
    there = published(source)
    found = [
        (experiment, scale)
        for experiment in find_all(ALL)
        for name, scale in there
        if name == experiment.name and args.scale in (None, scale)
    ]
    if not found:
        raise ValueError(f"{source} has no published experiment{f' at scale {args.scale}' if args.scale else ''}.")
    yield from found


def _show(page: Report, kind: str, args: argparse.Namespace) -> None:
    print(report.markdown(page) if args.markdown else report.write(page, _pages(kind, args)))


def _index(pages: list[Report], kind: str, args: argparse.Namespace) -> None:
    if args.name == ALL and pages and not args.markdown:
        print(report.write_index(_pages(kind, args), pages))


def _pages(kind: str, args: argparse.Namespace) -> Path:
    return Path(args.out) / f"reports-{kind}"


def run_publish(args: argparse.Namespace) -> int:
    """Write the tables of the runs that have ended.

    :param args: Of a parser with :func:`add_publish_options`.
    :return: 1 if runs are missing.
    """
    missing = 0
    for experiment in find_all(args.name):
        rows, open_runs = collected(experiment, args.scale, results_in(folder(args, experiment)))
        if left := what_is_left(experiment, args, open_runs):
            print(left, file=sys.stderr)
            missing += 1
        if rows:
            path = publish(experiment.name, args.scale, rows, Path(args.to or Path(args.out) / "published"))
            print(f"{path} ({path.stat().st_size:,} bytes)")
    return int(missing > 0)
