"""The files that a comparison leaves: a table of its seeds, all it found as JSON, and its picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sb3_robust_be.codec import to_json
from sb3_robust_be.experiments.compare.compare_picture import stacked_png, stacked_svg
from sb3_robust_be.experiments.compare.recordings import RECORDED, Recordings
from sb3_robust_be.experiments.compare.setting import Setting
from sb3_robust_be.experiments.compare.summary import rate_text
from sb3_robust_be.experiments.control.preset import ControlResults
from sb3_robust_be.report import Plot
from sb3_robust_be.report.plot import to_csv
from sb3_robust_be.runner.specs import read_json
from sb3_robust_be.system import write_atomically


def ignore_in_git(folder: Path) -> None:
    """Make a folder of results that git passes over. One that is there already is left as it is.

    :param folder: Of a comparison.
    """
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def check_folder(path: Path, env_id: str, setting: Setting) -> None:
    """Refuse to overwrite what was found in another environment or with another setting.

    :param path: Of the JSON file that is to be written.
    :param env_id: The environment of this comparison.
    :param setting: Of this comparison.
    :raises ValueError: If it holds another one's.
    """
    found = read_json(path)
    if found is None:
        return
    if found.get("environment") != env_id:
        raise ValueError(
            f"{path} has the results on {found.get('environment')}, which those on {env_id} would replace; give "
            "another --out."
        )
    if found.get("setting") != setting.digest():
        raise ValueError(f"{path} has the results of another setting, which would be lost; give another --out.")


def seed_rows(results: ControlResults) -> list[dict[str, Any]]:
    """
    :param results: Of all runs.
    :return: A row for each reported seed.
    """
    return [
        {
            "algorithm": label,
            "seed": seed,
            "step_size": rate_text(results.settings[key, label]["learning_rate"]),
            "steps": results.preset.steps_of(key),
            "return_last_quarter": row.get("final", ""),
            "return_all_steps": row.get("auc", ""),
            "unfinished": bool(row.get("unfinished")),
            "failed": row.get("failed", "" if row.get("diverged_at") is None else f"diverged at {row['diverged_at']}"),
        }
        for (key, label), rows in results.reported.items()
        for seed, row in zip(results.preset.reported_seeds(key), rows, strict=True)
    ]


def recorded_rows(recorded: Recordings) -> list[dict[str, Any]]:
    """
    :param recorded: The baseline's runs.
    :return: A row for each of them.
    """
    return [
        {"algorithm": RECORDED, "file": path, "return_last_quarter": final}
        for path, final in zip(recorded.paths, recorded.finals.tolist(), strict=True)
    ]


def write_files(
    out: Path, stem: str, seeds: Sequence[Mapping[str, Any]], plots: tuple[Plot, ...], found: Mapping[str, Any]
) -> list[Path]:
    """Write everything.

    :param out: The folder.
    :param stem: Of the files' names.
    :param seeds: A row each.
    :param plots: From top to bottom of the picture.
    :param found: All else, as JSON.
    :return: The files.
    """
    text = json.dumps(to_json(found, stem), indent=1, ensure_ascii=False, allow_nan=False)
    contents = {
        "csv": to_csv(seeds),
        "png": stacked_png(plots),
        "svg": stacked_svg(plots),
        "json": text.encode(),
    }
    for ending, data in contents.items():
        write_atomically(out / f"{stem}.{ending}", data)
    return [out / f"{stem}.{ending}" for ending in contents]
