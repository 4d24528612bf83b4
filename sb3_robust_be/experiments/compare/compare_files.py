"""The files that a comparison leaves: a table of its seeds, all it found as JSON, and its picture."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sb3_robust_be.codec import to_json
from sb3_robust_be.experiments.compare.compare_picture import stacked_png, stacked_svg
from sb3_robust_be.experiments.compare.recordings import RECORDED, Recordings
from sb3_robust_be.experiments.compare.setting import Setting
from sb3_robust_be.experiments.control.preset import ControlResults
from sb3_robust_be.experiments.setting_text import rate_text
from sb3_robust_be.report import Plot
from sb3_robust_be.report.plot import to_csv
from sb3_robust_be.runner.specs import read_json
from sb3_robust_be.runner.store import RUNS
from sb3_robust_be.system import write_atomically

_INDEX = "json"
_ENDINGS = (_INDEX, "csv", "png", "svg")
_OWN = re.compile(rf"compare(-{RECORDED}-[0-9a-f]+)?\.({'|'.join(_ENDINGS)})")


def ignore_in_git(folder: Path) -> None:
    """Have git pass over a folder of results, unless it has files that compare has not made.

    :param folder: Of a comparison; it is made where it is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = {path.name for path in folder.iterdir()}
    index = read_json(folder / f"compare.{_INDEX}")
    ours = index is not None and {"environment", "setting"} <= index.keys()
    if not names or (ours and all(name == RUNS or _OWN.fullmatch(name) for name in names)):
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def check_folder(out: Path, stem: str, env_id: str, setting: Setting) -> None:
    """Refuse to overwrite files of somebody else's, and what was found in another environment or with another setting.

    :param out: The folder.
    :param stem: Of the names of the files that are to be written.
    :param env_id: The environment of this comparison.
    :param setting: Of this comparison.
    :raises ValueError: If it holds another one's, or files of these names that no comparison has written.
    """
    path = out / f"{stem}.{_INDEX}"
    found = read_json(path)
    if found is None or not {"environment", "setting"} <= found.keys():
        # 0.1 has left a picture alone, beside its runs.
        ours = {"png"} if (out / RUNS).is_dir() else set()
        there = [own for ending in _ENDINGS if ending not in ours and (own := out / f"{stem}.{ending}").exists()]
        if there:
            raise ValueError(
                f"{there[0]} is there and was not written by compare, which would replace it; give another --out, or "
                "rename it."
            )
        return
    if found["environment"] != env_id:
        raise ValueError(
            f"{path} has the results on {found['environment']}, which those on {env_id} would replace; give "
            "another --out."
        )
    if found["setting"] != setting.digest():
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
    # The index first: after an interruption it says whose the others are.
    contents = dict(zip(_ENDINGS, (text.encode(), to_csv(seeds), stacked_png(plots), stacked_svg(plots)), strict=True))
    for ending, data in contents.items():
        write_atomically(out / f"{stem}.{ending}", data)
    return [out / f"{stem}.{ending}" for ending in contents]
