"""The Python of the README, and of the pages beside the code, runs and prints what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "sb3_robust_be").rglob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```\n(.*?)```)?", re.DOTALL)
BLOCKS = [
    pytest.param(*found, id=f"{page.parent.name}-{i}")
    for page in PAGES
    for i, found in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
]


def test_there_are_blocks():
    assert len(BLOCK.findall(README.read_text(encoding="utf-8"))) >= 2
    assert len(BLOCKS) >= 4


def test_the_readme_is_short():
    """What is long has a page beside the code."""
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 250


@pytest.mark.parametrize(("code", "printed"), BLOCKS)
def test_python_block(code, printed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(code.replace("50_000", "300").replace("verbose=1", "verbose=0"), "README.md", "exec"), {})
    if printed:
        assert capsys.readouterr().out == printed
