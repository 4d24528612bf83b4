"""Settings of runs as people write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sb3_robust_be.codec import FLOAT, IMPORT
from sb3_robust_be.experiments.control.contenders import Rate
from sb3_robust_be.experiments.control.training import LINEAR


def rate_text(rate: Rate | None) -> str:
    """
    :param rate: A step size; ``None``: not known.
    :return: It as people write it.
    """
    if rate is None:
        return "–"
    return " → ".join(f"{x:.3g}" for x in rate[LINEAR]) if isinstance(rate, Mapping) else f"{rate:.4g}"


def shown(value: Any) -> str:
    """
    :param value: Of a spec.
    :return: It as people write it, with all its digits.
    """
    if not isinstance(value, Mapping):
        return str(value)
    if len(value) == 1:
        ((tag, item),) = value.items()
        if tag in (IMPORT, FLOAT):
            return str(item).rpartition(":")[2]
        if tag == LINEAR:
            return " → ".join(map(str, item))
    return f"dict({', '.join(f'{name}={shown(item)}' for name, item in value.items())})"


def setting_text(setting: Mapping[str, Any]) -> str:
    """
    :param setting: Of a contender.
    :return: Its arguments, for a table: step sizes as powers of two, a falling one as its first and last value.
    """
    return ", ".join(f"{name}={_short(x)}" for name, x in setting.items())


def _short(value: Any) -> str:
    if isinstance(value, Mapping) and LINEAR in value:
        return " → ".join(map(_short, value[LINEAR]))
    if isinstance(value, float) and value > 0 and np.log2(value).is_integer() and value < 0.1:
        return f"2^{int(np.log2(value))}"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
