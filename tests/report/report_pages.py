"""A report with hostile strings wherever strings can be, and a reader of pages."""

import re
from html.parser import HTMLParser

import numpy as np

from sb3_robust_be import report
from sb3_robust_be.evaluation import combined, computed, greater

HOSTILE = (
    """<script>alert(1)</script> "' onload=x ]]> --> url(http://a.example/b) &amp; id="figures" \x07\x1b[31m $x_1$"""
)
SWEPT = {2.0**i: np.random.default_rng(i).normal(size=30) for i in range(40)}
"""More runs than are drawn as shapes"""
VOID = {"meta", "br", "hr", "img", "link", "input"}


def hostile_plots():
    """Two figures with the same labels, so that their ids would collide, and a bitmap in one of them."""
    x = np.linspace(-1.0, 1.0, 5)
    plots = [
        report.lines(name, {HOSTILE: {HOSTILE: x**2, "MSBE": x}}, x, x_label=HOSTILE, measure="y", caption=HOSTILE)
        for name in ("objectives", "objectives-2")
    ]
    sweep = {"many runs": {"qrc": SWEPT, HOSTILE: {2.0: [np.nan]}}}
    options = {"parameter": "α", "measure": "return", "rng": np.random.default_rng(0)}
    return [*plots, report.sensitivity("sweep", sweep, **options)]


def hostile_report(plots):
    high, low = np.arange(10.0) + 20.0, np.arange(10.0)
    verdicts = [greater(HOSTILE, high, low), greater("lower is higher", low, high), greater("few", [1.0], [0.0])]
    return report.Report(
        title=HOSTILE,
        name="all",
        verdicts=[*verdicts, computed("1 < 2", 1.0, 2.0), combined(HOSTILE, verdicts)],
        plots=plots,
        tables=[report.Table("numbers", [{HOSTILE: HOSTILE, "n": 1.5}], HOSTILE)],
        failures=[(HOSTILE, HOSTILE)] * 30,
        command=HOSTILE,
        versions={HOSTILE: HOSTILE},
        hardware={HOSTILE: HOSTILE},
        notes=[HOSTILE],
    )


class Page(HTMLParser):
    """Elements, ids and references of a page; an element that is not closed or closed twice is an error."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs)
        self.tags.append(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def ids(self):
        return [value for _, key, value in self.attributes if key == "id"]

    @property
    def links(self):
        return [value for tag, key, value in self.attributes if tag == "a" and key == "href"]

    @property
    def fragments(self):
        """Every id that something in the page refers to."""
        found = [value[1:] for _, key, value in self.attributes if key == "href" and value.startswith("#")]
        found += [value for _, key, value in self.attributes if key == "aria-labelledby"]
        for _, _, value in self.attributes:
            found += re.findall(r"url\(#([^)]+)\)", value)
        return found
