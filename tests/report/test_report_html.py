"""Pages: whole, self-contained, escaped, with their files beside them, and never half written."""

import csv
import errno
import io
import os
import platform
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html import escape

import numpy as np
import pytest
from report_pages import HOSTILE, SWEPT, Page, hostile_report

from sb3_robust_be import report
from sb3_robust_be.evaluation import combined, greater
from sb3_robust_be.report import html
from sb3_robust_be.system import StoreError

# No font has a sign for a bell.
pytestmark = pytest.mark.filterwarnings("ignore:Glyph:UserWarning")


@pytest.fixture(scope="module")
def written(hostile_page):
    return hostile_page, Page(hostile_page.read_text(encoding="utf-8"))


def small(name="small", **parts):
    return report.Report("Small", name, versions={"Python": "3"}, hardware={}, **parts)


def test_the_page_is_well_formed_and_its_ids_are_its_own(written):
    _, page = written
    assert len(set(page.ids)) == len(page.ids)
    assert set(page.fragments) <= set(page.ids)
    assert len(page.fragments) > 20
    assert page.tags.count("svg") == page.tags.count("figcaption") - 1 == 3, "the table has a caption too"
    assert page.tags.count("h1") == page.tags.count("main") == page.tags.count("nav") == 1


def test_nothing_is_loaded_from_elsewhere(written):
    path, page = written
    outside = re.compile(r"(?i)^\s*(https?:|//|file:|javascript:|ftp:)")
    for tag, key, value in page.attributes:
        if key in ("src", "href", "xlink:href", "data", "action", "poster", "srcset"):
            assert not outside.match(value), (tag, key, value)
            assert value.startswith(("#", "all/")) or (tag == "image" and value.startswith("data:image/png;base64,"))
        if "url(" in value and key != "content":
            assert re.findall(r"url\((?!#)", value) == [] or key in ("alt", "title"), (tag, key, value)
    style = re.search(r"<style>(.*?)</style>", path.read_text(encoding="utf-8"), re.S)[1]
    assert "url(" not in style
    assert "@import" not in style
    assert not {"script", "iframe", "object", "embed", "link", "base", "form"} & set(page.tags)
    assert not [key for _, key, _ in page.attributes if key.startswith("on")]


def test_hostile_words_are_shown_as_they_are(written):
    path, page = written
    words = HOSTILE.replace("\x07\x1b", "\ufffd\ufffd")
    head, *sections = path.read_text(encoding="utf-8").split("<section ")
    assert head.count(escape(words)) == 2, "title and heading"
    assert [section.count(escape(words)) > 0 for section in sections] == [True] * 6
    assert words in page.texts


def test_the_contents_lead_to_the_sections(written):
    _, page = written
    expected = ["#summary", "#verdicts", "#tables", "#settings", "#failures", "#made"]
    assert [link for link in page.links if link.startswith("#")] == expected
    text = "".join(page.texts)
    for words in ("holds", "does not hold", "not resolved by this many seeds", "Failed runs (30)", "Show all 30"):
        assert words in text
    empty = Page(html._page(small(), {}))
    assert empty.links == ["#made"], "what is empty has no section"


def test_a_page_begins_with_its_summary_and_three_figures_and_folds_the_others(made, tmp_path):
    plots = [made[name] for name in ("lines", "bars", "profiles", "sensitivity")]
    page = Page(html._page(small(plots=plots, summary=["First."]), drawings(plots)))
    assert [key for key in page.ids if key.startswith("figure")] == [
        *("figure-lines", "figure-bars", "figure-profiles"),
        *("figures", "figure-sensitivity"),
    ]
    assert "First." in page.texts
    # The last one has versions and hardware.
    assert page.tags.count("details") == 1 + 1
    named = Page(html._page(small(plots=plots, pictures=["sensitivity"]), drawings(plots)))
    order = [key.removeprefix("figure-") for key in named.ids if key.startswith("figure-")]
    assert order == ["sensitivity", "lines", "bars", "profiles"]
    assert named.tags.count("details") == 3 + 1
    with pytest.raises(ValueError, match="pictures has 'other', which is no figure of small"):
        small(plots=plots, pictures=["other"])


def drawings(plots):
    return {plot.name: plot.svg() for plot in plots}


def test_verdicts_stand_below_their_sentence_and_single_comparisons_fold():
    high, low = np.arange(10.0) + 20.0, np.arange(10.0)
    parts = [greater(f"part {i}", high, low) for i in range(3)]
    of_paper = [replace(one, sentence="In the paper's words.") for one in (combined("everywhere", parts), *parts)]
    found = html._page(small(verdicts=[greater("ours", low, high), *of_paper], claims=["In words."]), {})
    places = [found.index(words) for words in (
        "“In the paper&#x27;s words.”", "4 hold.", "everywhere", "<details>", "3 single comparisons: 3 hold", "part 2",
        "</details>", "Claims of ours", "1 does not hold.", "ours: ",
    )]  # fmt: skip
    assert places == sorted(places)
    assert "In words." not in found, "the paper's own words are there"
    without = html._page(small(verdicts=parts, claims=["In words."]), {})
    assert "In words." in without
    assert "<details>" not in without.partition("How it was made</h2>")[0]
    many = html._page(small(verdicts=[greater(f"part {i}", high, low) for i in range(7)]), {})
    assert "1 further verdict: 1 holds" in many
    claims = [combined(f"claim {i}", parts) for i in range(22)]
    many = html._page(small(verdicts=[*claims, *parts]), {})
    assert many.index("claim 19") < many.index("2 further verdicts: 2 hold") < many.index("claim 20")
    assert many.index("claim 21") < many.index("3 single comparisons: 3 hold")


def test_long_tables_and_readings_fold_and_wide_tables_say_so():
    short, long = (report.Table(name, [{"a": i} for i in range(n)], "C.") for name, n in (("s", 20), ("l", 21)))
    wide = report.Table("w", [{f"column {i}": "x" * 20 for i in range(7)}])
    found = html._page(small(tables=[short, long, wide], readings=["One?", "Two?"]), {})
    page = Page(found)
    assert page.tags.count("details") == 2 + 1
    assert "Versions and hardware" in page.texts
    assert "l: C. (21 rows)" in page.texts
    assert "What the paper leaves open, and what is done here (2)" in page.texts
    widths = [value.split()[1] for tag, key, value in page.attributes if value.startswith("scroll ")]
    assert widths == ["small", "small", "wide", "small"]


def test_every_drawing_has_a_description(written, hostile):
    _, page = written
    labelled = [value for tag, key, value in page.attributes if tag == "svg" and key == "aria-labelledby"]
    roles = [value for tag, key, value in page.attributes if tag == "svg" and key == "role"]
    assert labelled == [f"svg-{plot.name}-title" for plot in hostile.plots]
    assert roles == ["img"] * 3


def test_the_classes_of_two_drawings_differ(written, hostile):
    path, page = written
    used = [value for tag, key, value in page.attributes if key == "class" and re.fullmatch(r"f\d+-s\d+", value)]
    assert {value.split("-")[0] for value in used} == {f"f{i}" for i in range(len(hostile.plots))}
    rules = re.findall(r"\.(f\d+-s\d+){", path.read_text(encoding="utf-8"))
    assert len(rules) == len(set(rules))
    assert set(used) == set(rules)


def test_links_lead_to_files_that_hold_the_numbers(written, hostile):
    path, page = written
    files = [link for link in page.links if not link.startswith("#")]
    assert len(files) == len(set(files)) == 3 * 3 + 3
    assert all((path.parent / file).is_file() for file in files)
    folder = path.parent / "all"
    assert {file.name for file in folder.iterdir()} == {
        *(f"{name}.{ending}" for name in ("objectives", "objectives-2", "sweep") for ending in ("svg", "png", "csv")),
        *(f"{name}.{ending}" for name in ("numbers", "verdicts") for ending in ("md", "tex", "csv")),
    }
    assert (folder / "numbers.md").read_text(encoding="utf-8") == hostile.tables[0].markdown()
    assert (folder / "objectives.png").read_bytes().startswith(b"\x89PNG")
    ET.parse(folder / "objectives.svg")
    rows = list(csv.DictReader(io.StringIO((folder / "sweep.csv").read_text(encoding="utf-8"))))
    values = [float(row["value"]) for row in rows if row["kind"] == "run" and row["algorithm"] == "qrc"]
    assert values == [float(f"{value:.6g}") for value in np.concatenate(list(SWEPT.values()))]


def test_without_pngs_there_is_neither_file_nor_link(hostile, tmp_path):
    path = report.write(small(plots=hostile.plots[:1]), tmp_path, png=False)
    assert {file.name for file in (tmp_path / "small").iterdir()} == {"objectives.svg", "objectives.csv"}
    links = [link for link in Page(path.read_text(encoding="utf-8")).links if not link.startswith("#")]
    assert links == ["small/objectives.csv", "small/objectives.svg"]


def test_the_same_report_gives_the_same_page(hostile, tmp_path):
    pages = [report.write(small(plots=hostile.plots[:1]), tmp_path / folder).read_bytes() for folder in "ab"]
    assert pages[0] == pages[1]


def test_the_index_counts_sentences_and_verdicts_and_leads_to_the_pages(hostile, tmp_path):
    high, low = np.arange(10.0) + 20.0, np.arange(10.0)
    verdicts = [replace(greater(word, high, low), sentence=word) for word in ("one", "two")]
    other = small(failures=[("run", "line")], verdicts=[*verdicts, greater("three", low, high)])
    pages = {tmp_path / "a" / "all.html": hostile, tmp_path / "small.html": other}
    path = report.write_index(tmp_path, pages, "Two & more", ["Of a paper."])
    page = Page(path.read_text(encoding="utf-8"))
    assert [link for link in page.links if not link.startswith("#")] == ["a/all.html", "small.html"]
    assert set(page.fragments) <= set(page.ids)
    assert {"Two & more", "Of a paper."} <= set(page.texts)
    found = page.texts
    assert "2 hold, 2 do not hold, 1 is not resolved" in found
    assert "2 hold, 1 does not hold" in found
    assert found.count("2 hold") == 1, "the sentences of the second"
    assert [text for text in found if text.isdigit()] == ["30", "1"], "failed runs"


def test_a_page_comes_last_and_stays_whole(hostile, tmp_path, monkeypatch):
    order = []
    kept = html.write_atomically
    monkeypatch.setattr(html, "write_atomically", lambda path, data: (order.append(path.name), kept(path, data)))
    table = report.Table("t", [{"a": 1}])
    page = report.write(small(tables=[table]), tmp_path)
    assert order[-1] == "small.html"
    before = page.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StoreError, match="free some space"):
        report.write(small(tables=[table], notes=["new"]), tmp_path)
    assert page.read_bytes() == before
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="file"):
        report.write(small(), tmp_path / "file")
    with pytest.raises(StoreError, match="file"):
        report.write_index(tmp_path / "file", {})


def test_names_are_names_of_files():
    for name in ("", "../up", "a/b", ".hidden", "a b", "ä"):
        with pytest.raises(ValueError, match=re.escape(f"name is {name!r}")):
            small(name)
        with pytest.raises(ValueError, match=re.escape(f"name is {name!r}")):
            small(tables=[report.Table(name, [])])
    with pytest.raises(ValueError, match="'t' names two"):
        small(tables=[report.Table("t", []), report.Table("t", [])])
    hostile = hostile_report([])
    with pytest.raises(ValueError, match="'verdicts' names two"):
        report.Report("T", "t", hostile.verdicts, tables=[report.Table("verdicts", [])])


def test_versions_and_hardware():
    found = report.versions()
    assert found["Python"] == platform.python_version()
    assert found["numpy"] == np.__version__
    assert report.versions(["numpy", "no-such-package-here"]).keys() == {"Python", "numpy"}
    assert {"processor", "cores", "system"} <= report.hardware().keys()
    assert all(report.hardware().values())
    page = Page(html._page(report.Report("T", "t"), {}))
    assert {*found.values(), *report.hardware().values()} <= set(page.texts)
