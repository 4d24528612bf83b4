"""All published pages together: not too long, not too large, and all found from one index."""

import pytest
from test_report_browser import BROWSER, opened

from sb3_robust_be import cli
from sb3_robust_be.experiments.publish import FOLDER, published

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    out = tmp_path_factory.mktemp("all")
    assert cli.main(["experiment", "report", "all", "--published", "--out", str(out)]) == 0
    return out


def test_all_pages_are_small_and_in_one_index(pages):
    files = [path for path in pages.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 12_000_000
    index = (pages / "index.html").read_text(encoding="utf-8")
    assert [path for path in files if path.name == "index.html"] == [pages / "index.html"]
    assert "Robust Losses for Learning Value Functions" in index
    for name, scale in published(FOLDER):
        page = f"reports-{scale}-published/{name}.html"
        assert (pages / page).is_file()
        assert f'href="{page}"' in index


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_no_page_is_long_or_wider_than_the_window(pages):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER)
        for path in sorted(pages.rglob("*.html")):
            for width in (1280, 400):
                page, _, said = opened(browser, path, width)
                height, across = (
                    page.evaluate(f"document.documentElement.{size}") for size in ("scrollHeight", "scrollWidth")
                )
                assert said == []
                assert width < 1280 or height <= 12_000, f"{path.name} is {height} pixels long"
                assert across <= width, path.name
                page.context.close()
        browser.close()
