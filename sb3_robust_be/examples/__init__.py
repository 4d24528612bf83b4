"""Short programs to begin with, which ``sb3-robust-be examples`` copies into a folder of your own."""

from __future__ import annotations

import argparse
from pathlib import Path

from sb3_robust_be.system import write_atomically

__all__ = ["copy_examples"]


def example_files() -> list[Path]:
    """
    :return: The scripts, the experiment in YAML and the notebook, by name.
    """
    kinds = (".py", ".yml", ".ipynb")
    files = (path for path in Path(__file__).parent.iterdir() if path.suffix in kinds and path.name != "__init__.py")
    return sorted(files)


def copy_examples(folder: str | Path) -> list[Path]:
    """Copy the examples, which is complete or not begun.

    :param folder: Where to; it is made. A file that is there already and differs is never replaced.
    :return: The copies.
    :raises FileExistsError: If there is such a file.
    """
    to = Path(folder)
    to.mkdir(parents=True, exist_ok=True)
    copies = {to / path.name: path.read_bytes() for path in example_files()}
    for path, content in copies.items():
        if path.exists() and (not path.is_file() or path.read_bytes() != content):
            raise FileExistsError(f"{path} is there already and differs from the example; name another folder.")
    for path, content in copies.items():
        write_atomically(path, content)
    return list(copies)


def main(argv: list[str]) -> int:
    """``sb3-robust-be examples [FOLDER]``.

    :param argv: The folder, ``examples`` by default.
    :return: The exit code.
    """
    parser = argparse.ArgumentParser(prog="sb3-robust-be examples", description="Copy the examples into a folder.")
    parser.add_argument("folder", nargs="?", default="examples", metavar="FOLDER", help="where to (default: examples)")
    folder = parser.parse_args(argv).folder
    try:
        copies = copy_examples(folder)
    except OSError as error:
        parser.error(str(error))
    for path in copies:
        first = path.read_text(encoding="utf-8").splitlines()[0]
        about = {".py": first.strip('"'), ".yml": first.strip("# ")}.get(path.suffix, "A population in a notebook.")
        print(f"{path}: {about}")
    return 0
