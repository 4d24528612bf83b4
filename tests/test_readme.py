"""The README's Python runs, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\n```\n(.*?)```)?", README, re.DOTALL)


def test_there_are_blocks():
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize(("code", "printed"), BLOCKS, ids=range(len(BLOCKS)))
def test_python_block(code, printed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(code.replace("50_000", "300").replace("verbose=1", "verbose=0"), "README.md", "exec"), {})
    if printed:
        assert capsys.readouterr().out == printed
