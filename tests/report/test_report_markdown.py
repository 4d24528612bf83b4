"""A report as Markdown."""

import numpy as np
from report_pages import hostile_report

from sb3_robust_be import report
from sb3_robust_be.evaluation import computed, greater
from sb3_robust_be.report.tables import evidence


def test_verdicts_tables_failures_and_command():
    high, low = np.arange(10.0) + 20.0, np.arange(10.0)
    one = report.Report(
        "Some_thing (figure 1)",
        "one",
        verdicts=[computed("1 is below 2", 1.0, 2.0), greater("low is above high", low, high)],
        tables=[report.Table("numbers", [{"a_b": 1.5, "c": "x|y"}], "The *numbers*.")],
        failures=[("run", "line")],
        command="sb3-robust-be experiment run one",
    )
    lines = report.markdown(one).splitlines()
    assert lines[:3] == ["### Some\\_thing (figure 1)", "", "- 1 is below 2: **holds** (value 1; computed: below 2)"]
    assert lines[3].startswith("- low is above high: **does not hold** (difference of means −20")
    assert "95 % interval" in lines[3]
    assert "10 + 10 seeds" in lines[3]
    assert lines[5:] == [
        "The \\*numbers\\*.",
        "",
        "| a\\_b | c |",
        "| ---: | --- |",
        "| 1.5 | x\\|y |",
        "",
        "Failed runs: 1.",
        "",
        "    sb3-robust-be experiment run one",
    ]


def test_nothing_but_a_title():
    assert report.markdown(report.Report("Empty", "empty")) == "### Empty\n"


def test_hostile_text_stays_text():
    text = report.markdown(hostile_report([]))
    *shown, command = text.strip().splitlines()
    assert command.startswith("    <script>")  # indented: it is code
    assert "<script>" not in "\n".join(shown).replace("\\<", "")
    assert not {"\x07", "\x1b"} & set(text)


def test_the_evidence_has_what_there_is():
    few = greater("few", [1.0], [0.0])
    exact, undecided = evidence([computed("1 is below 2", 1.0, 2.0), few])
    assert exact == "value 1; computed: below 2"
    assert undecided.endswith(few.reason)
    assert "1 + 1 seeds" in undecided
