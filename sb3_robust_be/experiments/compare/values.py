"""Values as people write them in commands and in rl_zoo3's files: Python's literals, ``dict(…)``, step sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pkgutil import resolve_name
from typing import Any

from sb3_robust_be.codec import IMPORT, import_name, to_json
from sb3_robust_be.experiments.control.contenders import Rate
from sb3_robust_be.experiments.control.training import LINEAR

_WORD = re.compile(r"[\w./-]+")
# What rl_zoo3 has at hand where it evaluates a text.
_MODULES = {"nn": "torch.nn", "th": "torch", "torch": "torch", "optim": "torch.optim", "np": "numpy"}


def rate(text: str) -> Rate:
    """Read a step size.

    :param text: ``0.001``, ``2^-10``, first and last one of a linear fall over the run as ``2^-9:2^-13``, or rl_zoo3's
        ``lin_0.001``, which falls to 0.
    :raises ValueError: For anything else, or a step size that is not between 0 and 1.
    """
    if text.startswith("lin_"):
        return {LINEAR: [_rate(text.removeprefix("lin_"), text), 0.0]}
    first, sign, last = text.partition(":")
    return {LINEAR: [_rate(first, text), _rate(last, text)]} if sign else _rate(text, text)


def _rate(number: str, text: str) -> float:
    base, sign, exponent = number.replace("**", "^").partition("^")
    try:
        value = float(base) ** float(exponent) if sign else float(number)
    except (OverflowError, ValueError, ZeroDivisionError):
        value = float("nan")
    if not 0 < value < 1:
        raise ValueError(
            f"{text!r} is no step size between 0 and 1; write 0.001 or 2^-10, or 2^-9:2^-13 for one that falls"
        )
    return value


def python_value(text: str, where: str) -> Any:
    """Read Python's literals, ``dict(…)``, ``inf``, ``float('inf')`` and names of torch's and numpy's, as ``nn.ReLU``.

    :param text: Of an expression. It is read and not run.
    :param where: What it is called in an error.
    :raises ValueError: For any other expression.
    """
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, AttributeError, ImportError) as error:
        raise ValueError(
            f"{where} is {text!r}, which cannot be read; write it with Python's literals, as "
            '"dict(net_arch=[256, 256], activation_fn=nn.ReLU)".'
        ) from error


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=named) if all(item.arg for item in named):
            return {str(item.arg): _value(item.value) for item in named}
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=number)], keywords=[]):
            return float(number)  # type: ignore[arg-type]
        case ast.Name(id="inf"):
            return float("inf")
        case ast.Dict(keys=keys, values=values) if all(keys):
            return {ast.literal_eval(key): _value(item) for key, item in zip(keys, values, strict=True) if key}
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part) for part in parts]
        case ast.Attribute():
            module, _, name = ast.unparse(node).partition(".")
            return resolve_name(f"{_MODULES.get(module, module)}:{name}" if module in _MODULES else ast.unparse(node))
    return ast.literal_eval(node)


def assignments(texts: Iterable[str], option: str) -> dict[str, Any]:
    """Read ``name=value`` pairs, or ``name:value`` as rl_zoo3 has them.

    :param texts: One each. A value is :func:`python_value`'s, or a word, which stands for itself.
    :param option: What they were given to, for errors.
    :raises ValueError: For one without a name or a value, and for one given twice.
    """
    found: dict[str, Any] = {}
    for text in texts:
        ends = [at for at in (text.find("="), text.find(":")) if at > 0]
        name, value = (text[: min(ends)], text[min(ends) + 1 :]) if ends else (text, "")
        if not name.isidentifier() or not value.strip():
            raise ValueError(f"{option} has {text!r}; give NAME=VALUE, with Python's literals or a word for VALUE.")
        if name in found:
            raise ValueError(f"{option} has {name} twice; give it once.")
        # As it stands: 2^-10 is no word.
        found[name] = value.strip() if name == "learning_rate" else _value_or_word(value.strip(), f"{option} {name}")
    return found


def _value_or_word(text: str, where: str) -> Any:
    try:
        return python_value(text, where)
    except ValueError:
        if _WORD.fullmatch(text):
            return text
        raise


def as_json(value: Any, where: str) -> Any:
    """
    :param value: Numbers, texts, lists and mappings, classes and functions among them.
    :param where: What it is called in an error.
    :return: The same as plain JSON, what can be imported by its name.
    :raises ValueError: For what JSON and a name cannot hold.
    """
    try:
        return to_json(value, where, _named)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _named(value: Any) -> Any:
    name = import_name(value) if callable(value) else None
    return None if name is None else {IMPORT: name}
