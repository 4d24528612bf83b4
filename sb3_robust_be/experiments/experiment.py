"""What an experiment is: declared data, the runs that follow from it, and what is made of their results."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sb3_robust_be.evaluation import Verdict
from sb3_robust_be.experiments.specs import Spec
from sb3_robust_be.experiments.store import load_arrays, load_failures, load_results

ScaleName = Literal["smoke", "laptop", "paper"]
SCALES: tuple[ScaleName, ...] = ("smoke", "laptop", "paper")


class Reading(NamedTuple):
    """A place where the paper contradicts itself or is silent."""

    question: str
    readings: tuple[str, ...]
    default: str
    why: str


class Results:
    """The finished runs in a folder.

    What it returns is to be read, by key, and not to be changed: that of a published summary has only the entries that
    the report read when it was published.

    :param out: The folder.
    """

    def __init__(self, out: str | Path) -> None:
        self.out = Path(out)

    def of(self, specs: Sequence[Spec]) -> list[dict[str, Any] | None]:
        """Each run's result; ``None`` for one that is not done."""
        return load_results(self.out, specs)

    def arrays(self, spec: Spec, name: str = "curve") -> dict[str, Any]:
        """The arrays of a finished run."""
        return load_arrays(self.out, spec, name)

    def reduced(
        self,
        spec: Spec,
        name: str,
        label: str,
        reduce: Callable[[Mapping[str, Any]], dict[str, Any]],
        exact: bool = True,
    ) -> dict[str, Any]:
        """What an analysis needs of arrays that are too large to be published.

        :param spec: Of a finished run.
        :param name: Of its file of arrays.
        :param label: Of the reduction, which is published under it.
        :param reduce: From the file's arrays to smaller ones.
        :param exact: Whether they are published to the last digit, or rounded as arrays are.
        """
        return reduce(self.arrays(spec, name))

    def failures(self, specs: Sequence[Spec]) -> list[dict[str, Any] | None]:
        """Each run's failure; ``None`` for one that has not failed."""
        return load_failures(self.out, specs)


@dataclass
class Analysis:
    """What a report shows of an experiment."""

    verdicts: list[Verdict] = field(default_factory=list)
    plots: list[Any] = field(default_factory=list)
    """Of :class:`~sb3_robust_be.report.Plot`"""
    tables: list[Any] = field(default_factory=list)
    """Of :class:`~sb3_robust_be.report.Table`"""
    notes: list[str] = field(default_factory=list)


Stages = Callable[[Any, Results], Iterator[list[Spec]]]
Analyse = Callable[[Any, Results], Analysis]


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments, or a user's own.

    :param name: In commands.
    :param figure: Where the paper has it.
    :param summary: One sentence.
    :param claims: The paper's, in words.
    :param presets: The sizes by name; of any type that ``stages`` and ``analyse`` take.
    :param stages: ``(preset, results) -> `` lists of runs; a list may depend on the results of those before it.
    :param analyse: ``(preset, results) -> `` what the report shows, from finished runs alone.
    :param readings: Where the paper leaves a choice.
    """

    name: str
    figure: str
    summary: str
    claims: tuple[str, ...]
    presets: Mapping[str, Any]
    stages: Stages
    analyse: Analyse
    readings: tuple[Reading, ...] = ()

    def preset(self, scale: str) -> Any:
        """
        :param scale: One of the presets' names.
        :raises ValueError: If there is no such preset.
        """
        if scale not in self.presets:
            raise ValueError(f"scale is {scale!r}; {self.name} has {', '.join(self.presets)}.")
        return self.presets[scale]


def load_experiment(path: Path) -> Experiment:
    """A user's own experiment.

    :param path: A Python file that defines ``EXPERIMENT``, or a YAML file (see :mod:`.custom`).
    :raises ValueError: If the file does not describe one.
    """
    if path.suffix in (".yml", ".yaml"):
        from sb3_robust_be.experiments.custom import from_yaml

        return from_yaml(path)
    module_spec = importlib.util.spec_from_file_location(path.stem, path)
    if module_spec is None or module_spec.loader is None:
        raise ValueError(f"{path} is no Python or YAML file; give one that ends in .py, .yml or .yaml.")
    module = importlib.util.module_from_spec(module_spec)
    # Dataclasses look their module up.
    sys.modules[path.stem] = module
    module_spec.loader.exec_module(module)
    found = getattr(module, "EXPERIMENT", None)
    if not isinstance(found, Experiment):
        raise ValueError(f"{path} defines no EXPERIMENT of type Experiment; see sb3_robust_be.experiments.experiment.")
    return found
