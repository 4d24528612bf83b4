"""Pages as a real browser shows them: every figure there, nothing fetched, nothing complained of, light and dark."""

import shutil

import pytest

from sb3_robust_be import report

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
KINDS = ("distributions", "sensitivity", "bars", "lines", "grid_map of one")
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason=f"no Chromium here: none of {', '.join(BROWSERS)}"),
    pytest.mark.filterwarnings("ignore:Glyph:UserWarning"),
]

# What a person sees of each drawing: its size, and texts that stick out of it.
DRAWINGS = """
() => [...document.querySelectorAll('figure svg')].map(svg => {
  const box = svg.getBoundingClientRect();
  const out = [...svg.querySelectorAll('text')].filter(text => {
    const own = text.getBoundingClientRect();
    return own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1 || own.bottom > box.bottom + 1;
  });
  const shapes = [...svg.querySelectorAll('path, image, use')].map(shape => shape.getBoundingClientRect());
  return {
    width: box.width, height: box.height, texts: svg.querySelectorAll('text').length,
    shapes: shapes.filter(shape => shape.width + shape.height > 0).length, out: out.map(text => text.textContent),
    images: [...svg.querySelectorAll('image')].map(image => image.getBoundingClientRect().width),
  };
})
"""
# Luminances (WCAG 2) of the colours of a text and of what is behind it.
CONTRASTS = """
() => {
  const luminance = colour => {
    const parts = colour.match(/[0-9.]+/g).slice(0, 3).map(part => part / 255);
    const linear = parts.map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = element => {
    const colour = getComputedStyle(element).backgroundColor;
    return colour === 'rgba(0, 0, 0, 0)' ? behind(element.parentElement) : colour;
  };
  const contrast = element => {
    const [a, b] = [luminance(getComputedStyle(element).color), luminance(behind(element))].sort((a, b) => b - a);
    return (a + 0.05) / (b + 0.05);
  };
  return [...document.querySelectorAll('h1, p, a, td, th, li, pre, code, .outcome')].map(contrast);
}
"""


@pytest.fixture(scope="module")
def browser():
    # Where there is a browser, the tests need what drives it: a missing package is an error and not a skip.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(made, hostile, hostile_page):
    kinds = report.Report("Every kind", "kinds", plots=[made[name] for name in KINDS])
    path = report.write(kinds, hostile_page.parent)
    report.write_index(hostile_page.parent, {path: kinds, hostile_page: hostile})
    return hostile_page.parent


def opened(browser, path, width=1000, **context):
    """The page, all that it asked for, and all that it or the browser said."""
    page = browser.new_context(viewport={"width": width, "height": 800}, **context).new_page()
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    return page, [url for url in asked if not url.startswith("data:")], said


@pytest.mark.parametrize(("name", "drawings"), [("kinds", len(KINDS)), ("all", 3), ("index", 0)])
@pytest.mark.parametrize("width", [1000, 380])
def test_every_figure_is_there_and_nothing_is_fetched(browser, folder, name, drawings, width):
    path = folder / f"{name}.html"
    page, asked, said = opened(browser, path, width)
    assert asked == [path.as_uri()]
    assert said == []
    found = page.evaluate(DRAWINGS)
    assert len(found) == drawings
    for drawing in found:
        # On a telephone a figure is scrolled: smaller than this, nobody can read its words.
        assert (0.6 * 900 < drawing["width"] <= width) if width == 1000 else (600 < drawing["width"] < 700)
        assert drawing["height"] > 50
        assert drawing["texts"] > 8
        assert drawing["shapes"] > 10
        assert all(image > 0 for image in drawing["images"])
        if name == "kinds":
            assert drawing["out"] == []
    if name == "all":
        assert sum(len(drawing["images"]) for drawing in found) == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    hints = page.locator(".drawing + .hint").evaluate_all("all => all.map(one => getComputedStyle(one).display)")
    assert hints == ["block" if width == 380 else "none"] * drawings
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_in_light_and_dark(browser, folder, scheme):
    page, _, _ = opened(browser, folder / "all.html", color_scheme=scheme)
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 80
    assert min(contrasts) >= 4.5
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    # The drawings' black needs white behind it in both.
    assert page.evaluate("getComputedStyle(document.querySelector('.drawing')).backgroundColor") == "rgb(255, 255, 255)"
    page.context.close()


def test_the_contents_and_the_index_lead_on(browser, folder):
    page, _, _ = opened(browser, folder / "index.html")
    page.get_by_role("link", name="Every kind").click()
    assert page.url.endswith("kinds.html")
    page.get_by_role("link", name="How it was made").click()
    assert page.evaluate("document.querySelector('#made').getBoundingClientRect().top") < 800
    assert page.get_by_role("img").count() == 3, "the others are folded"
    for summary in page.locator("summary").all():
        summary.click()
    assert page.get_by_role("img").count() == len(KINDS)
    page.context.close()


def test_a_printed_page_has_no_background_and_whole_figures(browser, folder):
    page, _, _ = opened(browser, folder / "kinds.html", color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('figure')).breakInside") == "avoid"
    assert page.pdf().startswith(b"%PDF")
    page.context.close()
