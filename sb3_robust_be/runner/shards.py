"""Which units a call of the runner is to execute."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from sb3_robust_be.runner.specs import Spec, dumps, loads, run_id


def units_of_shard(
    units: Iterable[Sequence[Spec]], shard: str | None = None, functions: Collection[str] = ()
) -> list[list[Spec]]:
    """Return the units of one shard, specs as JSON gives them back, each run once.

    The split does not look at what is done, so it stays the same while the work goes on: shard ``i/n`` has the units
    ``i - 1``, ``i - 1 + n``, ….

    :param units: Lists of specs.
    :param shard: ``"i/n"`` with ``1 ≤ i ≤ n``; ``None`` for everything.
    :param functions: Short names that a spec's ``"function"`` may have.
    """
    first, step = (0, 1) if shard is None else _parse_shard(shard)
    seen: set[str] = set()
    kept = []
    for unit in units:
        specs = [loads(dumps(spec, "spec")) for spec in unit]
        _check_functions(specs, functions)
        new = {run_id(spec): spec for spec in specs if run_id(spec) not in seen}
        seen.update(new)
        if new:
            kept.append(list(new.values()))
    return kept[first::step]


def _check_functions(specs: list[Spec], known: Collection[str]) -> None:
    if not specs:
        raise ValueError("A unit is empty; give each at least one spec.")
    functions = sorted({str(spec.get("function")) for spec in specs})
    named = functions[0] in known or re.fullmatch(r"[\w.]+:\w+", functions[0]) is not None
    if len(functions) > 1 or not named:
        short = f", or one of {', '.join(sorted(known))}" if known else ""
        raise ValueError(
            f"spec['function'] is {', '.join(functions)} in one unit; give all its specs the same "
            f"'module:function'{short}."
        )


def _parse_shard(shard: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", shard)
    index, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= index <= count:
        raise ValueError(f"shard is {shard!r}; give 'i/n' with 1 ≤ i ≤ n, such as '1/4'.")
    return index - 1, count
