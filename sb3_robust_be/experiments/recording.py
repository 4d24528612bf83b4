"""Results that note what is made of them, so that no more than that need be published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from sb3_robust_be.experiments.experiment import Results
from sb3_robust_be.experiments.parts import Noted, Part
from sb3_robust_be.experiments.specs import Spec, run_id


class RecordingResults(Results):
    """The finished runs in a folder, and what is read of them.

    :param out: The folder.
    """

    def __init__(self, out: str | Path) -> None:
        super().__init__(out)
        #: What was read of the results, by run.
        self.read_results: dict[str, Part] = {}
        #: And of the failures.
        self.read_failures: dict[str, Part] = {}
        #: And of the arrays, by file or reduction.
        self.read_arrays: dict[str, dict[str, Part]] = {}
        #: Reductions that are not to be rounded.
        self.exact: set[str] = set()

    def of(self, specs: Sequence[Spec]) -> list[dict[str, Any] | None]:
        """As the base class, for runs that have ended."""
        found = super().of(specs)
        if None in found:
            self.failures(specs)
        return _noted(found, specs, self.read_results)

    def arrays(self, spec: Spec, name: str = "curve") -> dict[str, Any]:
        """As the base class."""
        return self._noted_arrays(spec, name, super().arrays(spec, name))

    def reduced(
        self,
        spec: Spec,
        name: str,
        label: str,
        reduce: Callable[[Mapping[str, Any]], dict[str, Any]],
        exact: bool = True,
    ) -> dict[str, Any]:
        """As the base class; what the reduction reads is not noted, its outcome is."""
        key = reduction_name(name, label)
        if exact:
            self.exact.add(key)
        return self._noted_arrays(spec, key, reduce(super().arrays(spec, name)))

    def failures(self, specs: Sequence[Spec]) -> list[dict[str, Any] | None]:
        """As the base class, for runs that have ended."""
        failures = _noted(super().failures(specs), specs, self.read_failures)
        for spec, failure in zip(specs, failures, strict=True):
            if failure is None:  # It has ended otherwise.
                self.read_results.setdefault(run_id(spec), Part())
        return failures

    def _noted_arrays(self, spec: Spec, key: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
        part = self.read_arrays.setdefault(key, {}).setdefault(run_id(spec), Part())
        return cast(dict[str, Any], Noted(arrays, part))


def reduction_name(name: str, label: str) -> str:
    """Under which a reduction of a file of arrays is kept; no file has such a name."""
    return f"{name}: {label}"


def _noted(
    found: Sequence[dict[str, Any] | None], specs: Sequence[Spec], parts: dict[str, Part]
) -> list[dict[str, Any] | None]:
    """Mappings that read like the dicts they stand for."""
    return [
        None if one is None else cast(dict[str, Any], Noted(one, parts.setdefault(run_id(spec), Part())))
        for spec, one in zip(specs, found, strict=True)
    ]
