"""Published experiments: what a report reads of the runs, in one file per experiment and scale."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from sb3_robust_be.evaluation import Verdict
from sb3_robust_be.experiments.experiment import SCALES, Results
from sb3_robust_be.experiments.parts import (
    NotPublishedError,
    array_from_json,
    array_to_json,
    from_columns,
    to_columns,
)
from sb3_robust_be.experiments.recording import RecordingResults, reduction_name
from sb3_robust_be.experiments.reporting import Made
from sb3_robust_be.experiments.specs import Spec, dumps, loads, run_id
from sb3_robust_be.files import write_atomically
from sb3_robust_be.report import Report, verdict_table

FOLDER = Path(__file__).parents[1] / "results" / "experiments"
"""Where the package has its own"""
REBUILT = "Rebuilt"
"""The first word of the note that says so"""
_FORMAT = 1
_PLAIN_BYTES = 2**18
"""Above it a file is compressed, to about a fourth: curves and errors of many seeds are all digits"""
_ENDINGS = (".json", ".json.gz")


class PublishedResults(Results):
    """Results that were published; there is no folder of runs. What was not published is an error.

    :param content: Of :func:`to_json` or :func:`load`.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        super().__init__(f"{content['experiment']}-{content['scale']}")
        note = (
            f"{REBUILT} from the summaries of the runs that were published on {content['date']}, not from the runs "
            "themselves. Command, versions and hardware are those that were published with them."
        )
        if content["digits"] is not None:
            note += f" Curves have {content['digits']} significant digits, single numbers all."
        #: How the runs were made.
        self.made = Made(content["command"], content["versions"], content["hardware"], note)
        #: As they were printed, see :func:`verdict_rows`.
        self.verdicts: list[dict[str, str]] = content["verdicts"]
        self._results = from_columns(content["results"], _same)
        self._failures = from_columns(content["failures"], _same)
        self._arrays = {name: from_columns(groups, array_from_json) for name, groups in content["arrays"].items()}

    def of(self, specs: Sequence[Spec]) -> list[dict[str, Any] | None]:
        """As the base class."""
        return [self._ended(spec)[0] for spec in specs]

    def failures(self, specs: Sequence[Spec]) -> list[dict[str, Any] | None]:
        """As the base class."""
        return [self._ended(spec)[1] for spec in specs]

    def arrays(self, spec: Spec, name: str = "curve") -> dict[str, Any]:
        """As the base class."""
        with contextlib.suppress(KeyError):
            return cast(dict[str, Any], self._arrays[name][run_id(spec)])
        raise self._missing(spec, f"{name!r} of run")

    def reduced(
        self,
        spec: Spec,
        name: str,
        label: str,
        reduce: Callable[[Mapping[str, Any]], dict[str, Any]],
        exact: bool = True,
    ) -> dict[str, Any]:
        """As the base class, from what the reduction gave then."""
        return self.arrays(spec, reduction_name(name, label))

    def _ended(self, spec: Spec) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        run = run_id(spec)
        if run not in self._results and run not in self._failures:
            raise self._missing(spec, "run")
        # Parts read like the dicts they stand for.
        return cast(Any, (self._results.get(run), self._failures.get(run)))

    def _missing(self, spec: Spec, what: str) -> NotPublishedError:
        known = ", ".join(str(spec[key]) for key in ("algorithm", "env", "seed") if key in spec)
        return NotPublishedError(
            f"{what} {run_id(spec)} ({known or spec['function']}) is not published in {self.out}: the experiment or "
            "its report has changed since then. Make the report from the runs themselves and publish it again."
        )


def to_json(
    report: Report, scale: str, results: RecordingResults, made: Made, date: str, digits: int | None
) -> dict[str, Any]:
    """The content of a file.

    :param report: Of the runs. Its verdicts are in the file as printed, for readers; they follow from the rest.
    :param results: All of whose reading has been noted.
    :param made: How the runs were made.
    :param date: Of the publication.
    :param digits: Significant ones of arrays.
    """
    arrays = {
        name: to_columns(parts, partial(array_to_json, digits=None if name in results.exact else digits))
        for name, parts in results.read_arrays.items()
    }
    return {
        "format": _FORMAT,
        "experiment": report.name,
        "scale": scale,
        "date": date,
        "command": made.command,
        "versions": dict(made.versions),
        "hardware": dict(made.hardware),
        "digits": digits if arrays else None,
        "verdicts": verdict_rows(report.verdicts),
        "results": to_columns(results.read_results, _same),
        "failures": to_columns(results.read_failures, _same),
        "arrays": arrays,
    }


def verdict_rows(verdicts: Sequence[Verdict]) -> list[dict[str, str]]:
    """The table of the verdicts as printed, by heading."""
    table = verdict_table(verdicts)
    return [dict(zip(table.header(), cells, strict=True)) for cells in table.cells()]


def _same(value: Any) -> Any:
    """Of results and failures: they are JSON."""
    return value


def write(content: Mapping[str, Any], folder: Path) -> Path:
    """Write it atomically, the same bytes for the same content.

    :return: The file's path.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = dumps(content, "published").encode("ascii") + b"\n"
    plain, compressed = (folder / f"{content['experiment']}-{content['scale']}{ending}" for ending in _ENDINGS)
    if len(data) <= _PLAIN_BYTES:
        path, other = plain, compressed
    else:
        path, other, data = compressed, plain, gzip.compress(data, mtime=0)
    write_atomically(path, data)
    other.unlink(missing_ok=True)
    return path


def load(folder: Path, name: str, scale: str) -> PublishedResults:
    """
    :param folder: Of published files.
    :param name: Of an experiment.
    :param scale: Of its runs.
    :raises ValueError: If that is not published, or the file cannot be read.
    """
    paths = [folder / f"{name}-{scale}{ending}" for ending in _ENDINGS]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        there = ", ".join(f"{one} --scale {size}" for one, size in published(folder)) or "nothing"
        raise ValueError(f"{name} is not published at scale {scale} in {folder}. There is: {there}.")
    data = path.read_bytes()
    try:
        content = loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        if content["format"] == _FORMAT:
            return PublishedResults(content)
    except (ValueError, LookupError, TypeError, AttributeError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is no published experiment, or damaged: {error}") from error
    raise ValueError(f"{path} has format {content['format']}, not {_FORMAT}: it is of another version of the package.")


def published(folder: Path) -> list[tuple[str, str]]:
    """The names and scales of which a folder has files, sorted."""
    stems = {path.name.removesuffix(ending) for ending in _ENDINGS for path in folder.glob(f"*{ending}")}
    parts = (stem.rpartition("-") for stem in sorted(stems))
    return [(name, scale) for name, _, scale in parts if name and scale in SCALES]
