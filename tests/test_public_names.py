"""What is public: the names in ``__all__``, which exist, of the modules that the README lists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import sb3_robust_be

PACKAGE = Path(sb3_robust_be.__file__).parent
README = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")
PACKAGES = sorted(
    ".".join(["sb3_robust_be", *path.parent.relative_to(PACKAGE).parts]) for path in PACKAGE.rglob("__init__.py")
)
PUBLIC = ("linear", "evaluation", "report", "experiments", "runner", "population", "envs", "qrc", "zoo")


@pytest.mark.parametrize("name", [*PACKAGES, "sb3_robust_be.zoo"])
def test_every_package_says_what_is_public_in_it(name):
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        assert getattr(module, public) is not None


def test_the_readme_lists_the_public_modules():
    sentence = re.search(r"Public are the names in `__all__` of (.*?)\. Everything else", README, re.DOTALL)
    assert sentence is not None
    assert set(re.findall(r"`([a-z_0-9]+)`", sentence[1])) == {"sb3_robust_be", *PUBLIC}
    assert all(importlib.import_module(f"sb3_robust_be.{name}").__all__ for name in PUBLIC)
