"""The README's results are those of the published tables."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from sb3_robust_be.experiments.declared import load_declared, prediction
from sb3_robust_be.experiments.publish import FOLDER, load, published
from sb3_robust_be.report import verdict_table

README = Path(__file__).parents[1] / "README.md"
HEADER = ["paper", "judged as", "ours", "95 % interval", "seeds", "verdict"]
COMMAND = re.compile(r"sb3-robust-be experiment run (\S+) --scale (\w+)")


def lines_of_results():
    text = README.read_text(encoding="utf-8").partition("\n## Results\n")[2].partition("\n## ")[0]
    return text.splitlines()


def cells(line):
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def tables():
    """The rows of each table of verdicts by the experiment and scale of the command before it."""
    found, command, inside = {}, None, False
    for line in lines_of_results():
        if match := COMMAND.search(line):
            command = match.groups()
        if not line.startswith("|"):
            inside = False
        elif cells(line) == HEADER:
            inside = True
        elif inside and set(line) - set("|-: "):
            found.setdefault(command, []).append(dict(zip(HEADER, cells(line), strict=True)))
    return found


TABLES = tables()


def test_every_published_experiment_has_its_table():
    assert set(TABLES) == set(published(FOLDER))


@cache
def printed_verdicts(name, scale):
    """The cells of each verdict by its claim, made from the rows anew."""
    experiment, rows = load_declared(name), load(FOLDER, name, scale)
    preset = experiment.preset(scale)
    if name == "prediction":
        # Its figures, of which nothing is asked here, are most of the time.
        verdicts, _ = prediction.judged(prediction.panels_of(preset, rows), prediction.errors_before(rows))
    else:
        verdicts = experiment.analyse(preset, rows).verdicts
    table = verdict_table(verdicts)
    found = {row[0]: dict(zip(table.header(), row, strict=True)) for row in table.cells()}
    assert len(found) == len(verdicts)
    return found


@pytest.mark.parametrize("key", sorted(TABLES), ids="-".join)
def test_rows_are_the_published_verdicts(key):
    """Outcome, estimate, interval and seeds of each claim, word for word."""
    verdicts = printed_verdicts(*key)
    for row in TABLES[key]:
        published_row = verdicts[row["judged as"]]
        outcome = published_row["outcome"].removesuffix(" by this many seeds")
        assert row["verdict"].strip("*") == outcome
        assert (row["verdict"][:2] == "**") == (outcome == "does not hold"), "what fails is easily found"
        if (estimate := published_row["estimate [interval]"]) != "–":
            assert f"{row['ours']} {row['95 % interval']}".removesuffix(" –") == estimate
        seeds = published_row["seeds"]
        assert row["seeds"] == ("exact" if seeds in ("", "–") else one_number(seeds))


def one_number(seeds):
    """``30 + 30`` as 30."""
    counts = seeds.split(" + ")
    return counts[0] if len(set(counts)) == 1 else seeds


@pytest.mark.parametrize("key", sorted(TABLES), ids="-".join)
def test_every_claim_of_an_experiment_is_judged(key):
    assert len(TABLES[key]) >= len(load_declared(key[0]).claims)


def test_pictures_are_there():
    pictures = re.findall(r"!\[[^]]+\]\((\.github/[^)]+)\)", README.read_text(encoding="utf-8"))
    assert pictures
    assert {path.name for path in (README.parent / ".github").glob("*.png")} == {Path(name).name for name in pictures}
