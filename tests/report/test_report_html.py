"""Pages: whole, self-contained, escaped, with their files beside them, and never half written."""

import csv
import errno
import io
import os
import platform
import re
import xml.etree.ElementTree as ET
from html import escape

import numpy as np
import pytest
from report_pages import HOSTILE, Page, hostile_report

from sb3_robust_be import report
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
    expected = ["#verdicts", "#notes", "#figures", "#tables", "#failures", "#made"]
    assert [link for link in page.links if link.startswith("#")] == expected
    text = "".join(page.texts)
    for words in ("holds", "does not hold", "not resolved by this many seeds", "Failed runs (30)", "Show all 30"):
        assert words in text
    empty = Page(html._page(small(), {}))
    assert empty.links == ["#made"], "what is empty has no section"


def test_every_drawing_has_a_description(written, hostile):
    _, page = written
    labelled = [value for tag, key, value in page.attributes if tag == "svg" and key == "aria-labelledby"]
    roles = [value for tag, key, value in page.attributes if tag == "svg" and key == "role"]
    assert labelled == [f"svg-{plot.name}-title" for plot in hostile.plots]
    assert roles == ["img"] * 3


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
    np.testing.assert_array_equal(values, np.random.default_rng(0).normal(size=5_001))


def test_the_same_report_gives_the_same_page(hostile, tmp_path):
    pages = [report.write(small(plots=hostile.plots[:1]), tmp_path / folder).read_bytes() for folder in "ab"]
    assert pages[0] == pages[1]


def test_the_index_lists_claims_by_report(hostile, tmp_path):
    other = small(failures=[("run", "line")])
    page = Page(report.write_index(tmp_path, [hostile, other]).read_text(encoding="utf-8"))
    assert [link for link in page.links if not link.startswith("#")] == ["all.html", "small.html"]
    assert set(page.fragments) <= set(page.ids)
    cells = [text for text in page.texts if text.strip().isdigit()]
    assert cells == ["2", "2", "1", "30", "0", "0", "0", "1"]
    assert "of-small" not in page.ids, "it has no claim"


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
        report.write_index(tmp_path / "file", [])


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
