"""The public names are typed: a user's script passes mypy's strict checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("typed_user.py")


def strict(script, cache):
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}", str(script)]
    return subprocess.run(command, capture_output=True, text=True, cwd=SCRIPT.parents[1], check=False)


@pytest.mark.slow
def test_a_users_script_is_typed(tmp_path):
    found = strict(SCRIPT, tmp_path / "cache")
    assert (found.returncode, found.stdout.strip()) == (0, "Success: no issues found in 1 source file"), found.stderr
    wrong = tmp_path / "wrong.py"
    wrong.write_text(SCRIPT.read_text(encoding="utf-8") + 'model.learn("many")\npopulation.curve("four")\n')
    found = strict(wrong, tmp_path / "cache")
    assert found.returncode == 1
    assert found.stdout.count("[arg-type]") == 2
