"""The page of results is what the published tables give."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from sb3_robust_be import cli
from sb3_robust_be.evaluation import Outcome, mean_interval
from sb3_robust_be.experiments import results_page
from sb3_robust_be.experiments.control import yardstick
from sb3_robust_be.experiments.control.domains import DOMAINS
from sb3_robust_be.experiments.control.preset import read
from sb3_robust_be.experiments.declared import defaults, drop_in, load_declared, prediction
from sb3_robust_be.experiments.publish import FOLDER, load, published
from sb3_robust_be.experiments.results_page import COLUMNS, PAGE, results_section
from sb3_robust_be.report.sentences import is_combined

ROOT = Path(__file__).parents[1]
TEXT = (FOLDER / PAGE).read_text(encoding="utf-8")
MADE_AGAIN = "the page is not what the tables give: sb3-robust-be experiment page"
START, *SECTIONS = re.split(r"^(?=## \S+ \(\w+\)$)", TEXT, flags=re.MULTILINE)
BY_EXPERIMENT = {re.match(r"## (\S+) \((\w+)\)\n", section).groups(): section for section in SECTIONS}


def test_every_published_experiment_has_its_section():
    assert set(BY_EXPERIMENT) == set(published(FOLDER))
    assert len(SECTIONS) == len(BY_EXPERIMENT)


@pytest.mark.parametrize("key", published(FOLDER), ids="-".join)
def test_sections_are_what_the_tables_give(key, monkeypatch):
    """Byte for byte, made from the rows anew."""
    # Figures, of which nothing is asked here, are most of this one's time.
    monkeypatch.setattr(prediction, "sensitivity_plots", lambda *arguments: [])
    assert BY_EXPERIMENT[key].rstrip("\n") == results_section(FOLDER, *key).rstrip("\n"), MADE_AGAIN


@pytest.mark.parametrize("key", published(FOLDER), ids="-".join)
def test_every_claim_of_an_experiment_is_judged(key):
    outcomes = [outcome for outcome in Outcome for _ in range(BY_EXPERIMENT[key].count(f"| {outcome} |"))]
    assert len(outcomes) >= len(load_declared(key[0]).claims)


def test_the_command_writes_the_page(tmp_path, monkeypatch, capsys):
    """Its beginning and order; the sections themselves are compared above."""
    for name, scale in published(FOLDER):
        (tmp_path / f"{name}-{scale}.csv").touch()
    monkeypatch.setattr(results_page, "results_section", lambda folder, *key: BY_EXPERIMENT[key].rstrip("\n") + "\n")
    assert cli.main(["experiment", "page", "--from", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / PAGE}\n"
    assert (tmp_path / PAGE).read_text(encoding="utf-8") == TEXT, MADE_AGAIN


def test_a_folder_without_tables(tmp_path, capsys):
    assert cli.main(["experiment", "page", "--from", str(tmp_path)]) == 2
    assert f"{tmp_path} has no table of a declared experiment" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_every_column_is_explained():
    explained = {name for names in COLUMNS for name in names.split(", ")}
    traces = "trace, "
    for key in published(FOLDER):
        names = {name for row in load(FOLDER, *key) for name in row if not name.startswith(traces)}
        assert names <= explained, key


def test_links_lead_somewhere():
    """Of every page of Markdown to files of this repository, and every picture is in one of them."""
    pictures = set()
    for page in [*ROOT.glob("*.md"), *(ROOT / "sb3_robust_be").rglob("*.md"), *(ROOT / ".github").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in link:
                target = (page.parent / link).resolve()
                assert target.exists(), f"{page.relative_to(ROOT)}: {link}"
                pictures |= {target.name} if target.suffix == ".png" else set()
    assert pictures == {path.name for path in (ROOT / ".github").glob("*.png")}


def test_links_within_the_page():
    anchors = {
        re.sub(r"[^\w\- ]", "", line[3:]).replace(" ", "-") for line in re.findall(r"^## .*", TEXT, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= anchors


def readmes_tables(heading: str, page: str = "README.md", level: str = "##") -> list[list[list[str]]]:
    """The cells of the tables in a section of README, or of another page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    section = text.partition(f"\n{level} {heading}\n")[2].partition(f"\n{level} ")[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    return [[line.strip("| ").split(" | ") for line in table.splitlines()] for table in tables]


def cell_of(values: np.ndarray) -> str:
    found = mean_interval(values, rng=np.random.default_rng(0))
    return f"{found.estimate:.0f} [{found.low:.0f}, {found.high:.0f}]".replace("-", "−")


def test_drop_in():
    """The table of README, of the published runs of `drop-in`."""
    (header, _, *lines), *_ = readmes_tables("Drop-in")
    labels = {
        "DQN": "dqn",
        "QLC, its own learning rate": "qlc, its own learning rate",
        "QLC, DQN's learning rate": "qlc",
        "DQN, QLC's learning rate": "dqn, QLC's learning rate",
    }
    assert header[1:] == list(labels)
    found = drop_in.read(load_declared("drop-in").preset("long"), load(FOLDER, "drop-in", "long"))
    assert [line[0] for line in lines] == list(found)
    for name, *cells in lines:
        assert cells == [cell_of(found[name].finals[label]) for label in labels.values()]


def test_defaults():
    """What README says of classes without an argument, of the published runs of `defaults`."""
    preset = load_declared("defaults").preset("laptop")
    cart_pole, acrobot = defaults.returns(preset, load(FOLDER, "defaults", "laptop")).values()
    qlc, dqn, huber, slow_qlc, slow_huber = (
        (cell_of(cart_pole[label]), cell_of(acrobot[label]))
        for label in ("qlc", "dqn", "qrc_huber", "qlc, DQN's learning rate", "qrc_huber, DQN's learning rate")
    )
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    for sentence in (
        f"was {qlc[0]} on CartPole-v1, where SB3's DQN has {dqn[0]},",
        f"and {qlc[1]} on Acrobot-v1, where DQN has {dqn[1]} (`defaults`, 30 seeds, 95 % intervals).",
        f"(QRCHuber {huber[0]} and {huber[1]})",
        f"QRCHuber has {slow_huber[0]} with it and {huber[0]} with 1e-3, QLC {slow_qlc[0]} and its own {qlc[0]} (",
        f"too much for QRCHuber, {huber[1]} for {slow_huber[1]},",
        f"and QLC has {slow_qlc[1]} with 1e-4, with its own {qlc[1]}",
    ):
        assert sentence in text


def test_where_to_start():
    """The table of README, of the published runs of `one-setting`."""
    ((header, _, *lines),) = readmes_tables("Where to start")
    preset = load_declared("one-setting").preset("long")
    finals = read(preset.one_for_all(), load(FOLDER, "one-setting", "long")).finals
    labels = {
        "QLC": "qlc, one-sided, layer norm",
        "squared, no target, LayerNorm": "dqn, squared loss, layer norm",
        "squared, target, LayerNorm": "dqn, squared loss, target, layer norm",
        "squared, target": "dqn, squared loss, target",
        "SB3's Huber loss, target": "dqn",
    }
    assert header[1:] == list(labels)
    assert [line[0].replace("Space Invaders", "SpaceInvaders") for line in lines] == list(finals)
    for runs, (_, *cells) in zip(finals.values(), lines, strict=True):
        assert cells == [cell_as(cell, runs[label]) for label, cell in zip(labels.values(), cells, strict=True)]


def test_averages_of_where_to_start():
    """QLC's and the best DQN's averages in README, over all environments and over those that chose nothing."""
    preset = load_declared("one-setting").preset("long")
    finals = read(preset.one_for_all(), load(FOLDER, "one-setting", "long")).finals
    labels = [*preset.candidates, *preset.baselines]
    chosen_on = {DOMAINS[key].name for key in preset.chosen_on}
    held_out = {name: runs for name, runs in finals.items() if name not in chosen_on}
    said = []
    for of in (finals, held_out):
        averages = yardstick.averages(of, labels)
        means = {label: averages.interval(label) for label in labels}
        assert max(preset.baselines, key=lambda label: means[label].estimate) == "dqn, squared loss, layer norm"
        for label in ("qlc, one-sided, layer norm", "dqn, squared loss, layer norm"):
            said.append("{0.estimate:.2f} [{0.low:.2f}, {0.high:.2f}]".format(means[label]))
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    qlc, dqn, held_out_qlc, held_out_dqn = said
    assert f"QLC has {qlc}, the best DQN, without a target network, {dqn}," in text
    assert f"designed), {held_out_qlc} and {held_out_dqn}." in text


def test_averages_without_space_invaders():
    """README's differences, as in the table of all leads with one environment left out."""
    preset = load_declared("one-setting").preset("long")
    finals = read(preset.one_for_all(), load(FOLDER, "one-setting", "long")).finals
    chosen_on = {DOMAINS[key].name for key in preset.chosen_on}
    where = {"all": finals, "held out": {name: runs for name, runs in finals.items() if name not in chosen_on}}
    labels = [*preset.candidates, *preset.baselines]
    averages = {words: yardstick.averages(of, labels) for words, of in where.items()}
    rows = yardstick.leads_without_each("qlc, one-sided, layer norm", preset.baselines, averages).rows
    (line,) = (row for row in rows if row["without"] == "SpaceInvaders")
    nine, five = (
        "{0.estimate:.2f} [{0.low:.2f}, {0.high:.2f}]".format(line[words]).replace("-", "−") for words in where
    )
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert (
        f"without Space Invaders it leads the best by {nine} on the nine, and by {five}, not resolved, on the" in text
    )
    leads = {row["without"]: row["all"].estimate for row in rows}
    assert min(leads, key=leads.get) == "SpaceInvaders", "the one that the lead rests on most"


def published_finals(name: str, scale: str) -> dict[str, dict[str, np.ndarray]]:
    """Final returns of the reported seeds, by domain and contender."""
    return read(load_declared(name).preset(scale), load(FOLDER, name, scale)).finals


OURS = {
    "Asterix": ("qlc", "qrc_huber"),
    "Breakout": ("qrc_huber", "qlc"),
    "Freeway": ("qlc", "qrc_huber"),
    "Seaquest": ("qlc", "qrc"),
    "SpaceInvaders": ("qrc_huber", "qrc"),
}
"""The contenders that a line of the table of highest means names, the highest first"""
IN_WORDS = {"qlc": "the `QLC` of 0.1", "qrc": "`QRC`", "qrc_huber": "`QRCHuber`"}


def test_highest_means_of_the_findings():
    """The table of experiments/README.md on MinAtar, of the published runs of `minatar-population`."""
    (header, _, *lines), *_ = readmes_tables("MinAtar", "sb3_robust_be/experiments/README.md", "###")
    assert header == ["game", "highest mean among our algorithms, and another", "return", "DQN"]
    finals = published_finals("minatar-population", "laptop")
    assert [line[0].replace("Space Invaders", "SpaceInvaders") for line in lines] == list(OURS)
    for (domain, named), (_, words, returns, dqn) in zip(OURS.items(), lines, strict=True):
        runs = finals[domain]
        ours = {label: values.mean() for label, values in runs.items() if not label.startswith("dqn")}
        assert ours[named[0]] == max(ours.values()), domain
        for label, said in zip(named, words.split("; "), strict=True):
            assert said.startswith(IN_WORDS[label]), domain
        assert [cell_as(text, runs[label]) for label, text in zip(named, returns.split("; "), strict=True)] == (
            returns.split("; ")
        )
        assert dqn == cell_as(dqn, runs["dqn"]), domain


def test_minatar_on_two_cores_of_the_findings():
    """The first table of experiments/README.md on `minatar`, of its published runs."""
    labels = {
        "QRC-Huber": "qrc_huber",
        "QRC": "qrc",
        "QLC": "qlc",
        "DQN": "dqn",
        "DQN, squared loss, no target": "dqn, squared loss, no target",
        "the same, layer norm, QLC's rate": "dqn, squared loss, layer norm",
        "QRC, no correction": "qrc, no correction",
    }
    (header, _, *lines), _ = readmes_tables("MinAtar on two cores", "sb3_robust_be/experiments/README.md", "###")
    assert header == ["game", *labels]
    finals = published_finals("minatar", "long")
    assert [line[0].replace("Space Invaders", "SpaceInvaders") for line in lines] == list(finals)
    for runs, (_, *cells) in zip(finals.values(), lines, strict=True):
        assert cells == [
            cell_as(cell, runs[label]) if label in runs else "–"
            for label, cell in zip(labels.values(), cells, strict=True)
        ]
        assert {len(own) for own in runs.values()} == {5}


def findings(section, experiment, header):
    """The lines of a section's only table in experiments/README.md, and the returns that they are of."""
    ((found, _, *lines),) = readmes_tables(section, "sb3_robust_be/experiments/README.md", "###")
    assert found == header
    return lines, published_finals(experiment, "long")


CONTROL_TABLES = (
    {
        "QRC-Huber": "qrc_huber",
        "the same, hard clip": "qrc_huber, hard clip",
        "QRC": "qrc",
        "QLC, constant rate": "qlc",
        "SBEED": "sbeed",
        "DQN, tuned": "dqn",
        "DQN with LayerNorm, tuned": "dqn, layer norm",
    },
    {
        "DQN, squared loss, target": "dqn, squared loss, target",
        "DQN, squared loss, no target": "dqn, squared loss, no target",
        "random agent": "random",
    },
)


def test_control_of_the_findings():
    """The tables of experiments/README.md on control, of its published runs."""
    tables = readmes_tables("Control", "sb3_robust_be/experiments/README.md", "###")
    finals = published_finals("control", "long")
    for labels, (header, _, *lines) in zip(CONTROL_TABLES, tables, strict=True):
        assert header == ["environment", *labels]
        assert sorted(line[0] for line in lines) == sorted(finals)
        for name, *cells in lines:
            assert {len(finals[name][label]) for label in labels.values()} == {10 if name == "Lunar Lander" else 30}
            # Equal runs have no interval.
            assert cells == [cell_of(finals[name][label]).removesuffix(" [nan, nan]") for label in labels.values()]


def test_both_clips_of_the_findings():
    """How many claims come out otherwise with the hard clip, in experiments/README.md."""
    experiment = load_declared("control")
    analysis = experiment.analyse(experiment.preset("long"), load(FOLDER, "control", "long"))
    tables = {table.name: table for table in analysis.tables}
    combined = [row for row in tables["both-clips"].rows if row["smooth clip"] != row["hard clip"]]
    single = tables["both-clips-comparisons"]
    every = len([one for one in analysis.verdicts if "QRC-Huber" in one.claim and not is_combined(one)])
    counted = f"{len(single.rows)} of {every}"
    assert single.caption.startswith(f"The {counted} single comparisons")
    text = " ".join((ROOT / "sb3_robust_be/experiments/README.md").read_text(encoding="utf-8").split())
    assert f"With the hard clip {counted} comparisons come out otherwise, and nine combined claims" in text
    assert len(combined) == 9
    assert any(note.startswith("Where there are fewer than 30 runs") for note in analysis.notes), "Lunar Lander"


def test_target_networks_of_the_findings():
    """The table of experiments/README.md on target networks, of its published runs."""
    labels = {
        "QRC-Huber": "qrc_huber",
        "the same, hard clip": "qrc_huber, hard clip",
        "QRC": "qrc",
        "DQN, threshold 1": "dqn",
        "DQN, squared loss": "dqn, squared loss",
    }
    refreshes = {"none": 1, "every 50 steps": 50, "every 500 steps": 500}
    lines, finals = findings("Target networks", "target-networks", ["environment", "target network", *labels])
    assert sorted(line[:2] for line in lines) == sorted([domain, named] for domain in finals for named in refreshes)
    for domain, named, *cells in lines:
        runs = [finals[domain][f"{label}, refresh {refreshes[named]}"] for label in labels.values()]
        assert {len(values) for values in runs} == {30}
        assert cells == [cell_of(values) for values in runs]


def test_thresholds_of_the_findings():
    """The table of experiments/README.md on thresholds, of its published runs."""
    labels = [f"κ = {k:g}" for k in (0.25, 0.5, 1, 2, 4, 8)]
    endings = {"smooth": "", "hard": ", hard clip"}
    lines, finals = findings("Thresholds", "threshold", ["environment", "clip", *labels])
    assert sorted(line[:2] for line in lines) == sorted([domain, clip] for domain in finals for clip in endings)
    for domain, clip, *cells in lines:
        runs = [finals[domain][label + endings[clip]] for label in labels]
        assert {len(values) for values in runs} == {30}
        assert cells == [cell_of(values) for values in runs]


def cell_as(text: str, values: np.ndarray) -> str:
    """The mean with its interval, with as many decimals as a text has."""
    places = len(re.match(r"−?\d+(?:\.(\d+))?", text)[1] or "")
    found = mean_interval(values, rng=np.random.default_rng(0))
    numbers = (f"{x:.{places}f}".replace("-", "−") for x in (found.estimate, found.low, found.high))
    return "{} [{}, {}]".format(*numbers)
