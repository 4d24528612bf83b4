"""Tables as markdown, LaTeX and CSV, exactly."""

import csv
import io
import math

import numpy as np
import pytest

from sb3_robust_be.evaluation import Interval, combined, computed, fails_more, greater, t_interval
from sb3_robust_be.report import Table, verdict_table, verdicts_beside
from sb3_robust_be.report.tables import above_in, cell, interval, number, verdict_number


def made_up(estimate, low, high):
    return Interval(estimate, low, high, 0.95, "made up")


def table():
    rows = [
        {"algorithm": "QRC-Huber", "return": made_up(-115.84, -120.31, -110.2), "failed": 0, "κ": 1.0},
        {"algorithm": "DQN_{1} & co | <b>", "return": None, "failed": 12, "κ": math.inf},
    ]
    return Table("means", rows, "Mean\nreturn, 95 %.", {"algorithm": "algorithm", "return": "mean [95 %]", "κ": "κ"})


def test_markdown():
    assert table().markdown() == (
        "| algorithm | mean \\[95 %\\] | κ |\n"
        "| --- | ---: | ---: |\n"
        "| QRC-Huber | −116 \\[−120, −110\\] | 1 |\n"
        "| DQN\\_\\{1\\} & co \\| \\<b\\> | – | ∞ |\n"
    )


def test_latex():
    assert table().latex() == (
        "% Mean return, 95 %.\n"
        "\\begin{tabular}{lrr}\n"
        "\\toprule\n"
        "algorithm & mean [95 \\%] & $\\kappa$ \\\\\n"
        "\\midrule\n"
        "QRC-Huber & $-$116 [$-$120, $-$110] & 1 \\\\\n"
        "DQN\\_\\{1\\} \\& co \\textbar{} \\textless{}b\\textgreater{} & -- & $\\infty$ \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
    )
    text = Table("t", [{"a": r"\input{x} 50% of $5 #1 ~ ^ 2±1 α ≤ β×²…"}]).latex()
    assert (
        r"\textbackslash{}input\{x\} 50\% of \$5 \#1 \textasciitilde{} \textasciicircum{} 2$\pm$1 $\alpha$ $\leq$ "
        r"$\beta$$\times$$^2$\dots{} \\" in text
    )


def test_a_line_of_latex_that_begins_with_a_bracket_is_no_optional_argument():
    lines = Table("t", [{"a": "x"}, {"a": "[y]"}]).latex().splitlines()
    assert lines[4:6] == [r"x \\", r"{}[y] \\"]


def test_text_for_a_terminal():
    rows = [{"algorithm": "dqn", "seeds": 3}, {"algorithm": "qrc_huber", "seeds": 30}]
    assert Table("t", rows, headers={"algorithm": "", "seeds": "seeds"}).text() == (
        "           seeds\ndqn            3\nqrc_huber     30"
    )


def test_csv_has_every_key_in_full_precision():
    rows = list(csv.DictReader(io.StringIO(table().csv().decode())))
    assert rows[0] == {
        "algorithm": "QRC-Huber",
        "return": "-115.84",
        "return_low": "-120.31",
        "return_high": "-110.2",
        "failed": "0",
        "κ": "1.0",
    }
    assert (rows[1]["algorithm"], rows[1]["return"], rows[1]["κ"]) == ("DQN_{1} & co | <b>", "", "inf")
    third = Table("t", [{"x": np.float64(1.0) / 3.0, "n": np.int64(3)}]).csv().decode()
    assert third == "x,n\n0.3333333333333333,3\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-6.0, "−6"),
        (3.14159, "3.142"),
        (0.123456, "0.1235"),
        (0.99999, "1"),
        (0.00123456, "0.001235"),
        (0.000123456, "1.23e−4"),
        (9999.96, "10000"),
        (-10151.4, "−10151"),
        (123456.7, "123457"),
        (1234567.0, "1.23e6"),
        (1e30, "1e30"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
    ],
)
def test_numbers_have_four_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((0.5312, 0.501, 0.561), "0.531 [0.501, 0.561]"),
        ((-115.84, -120.31, -110.2), "−116 [−120, −110]"),
        ((0.04, -0.2, 0.3), "0.04 [−0.20, 0.30]"),
        ((1234.5, 1000.0, 1500.0), "1234 [1000, 1500]"),
        ((1e-5, 1e-7, 1e-4), "1e−5 [1e−7, 1e−4]"),
        ((2e9, 1e9, 3e9), "2e9 [1e9, 3e9]"),
        ((1.5, math.nan, math.nan), "1.5"),
        ((1.5, 1.5, 1.5), "1.5"),
        ((1.5, -math.inf, 2.0), "1.5 [−∞, 2]"),
    ],
)
def test_an_interval_has_two_digits_of_its_width(ends, text):
    assert interval(made_up(*ends)) == text


def test_cells():
    values = [True, np.bool_(False), 3, np.int32(-3), np.float32(0.5), "text", "", None, made_up(1.0, 0.0, 2.0)]
    assert [cell(value) for value in values] == ["yes", "no", "3", "−3", "0.5", "text", "–", "–", "1.0 [0.0, 2.0]"]


def test_cells_say_why_there_is_no_interval():
    assert cell(t_interval([500.0] * 4)) == "500 (all runs are equal)"
    assert cell(t_interval([3.0])) == "3 (one run has no spread)"
    assert cell(t_interval([1.0, 2.0, 3.0])) == "2.0 [−0.5, 4.5]"


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (lambda: greater("", [1.0, 2.0, 3.0], 0.5), "excess over 0.5 +1.5 [−1.0, 4.0]"),
        (lambda: greater("", [1.0, 2.0, 3.0], 2.5), "excess over 2.5 −0.5 [−3.0, 2.0]"),
        (
            lambda: greater("", [1.0, 2.0, 3.0], [0.0, 0.0, 0.0], margin=-0.5),
            "difference of means +2.0 [−0.5, 4.5] (against −0.5)",
        ),
        (
            lambda: greater("", [1.0, 4.0], [2.0, 3.0], method="rank"),
            "probability of improvement 0.50 [0.00, 1.00] (against 0.5)",
        ),
        (lambda: fails_more("", np.arange(9) < 9, 0.5), "fraction 1.00 [0.70, 1.00] (against 0.5)"),
        (lambda: computed("", 20.4, 10.0, "above", "ratio"), "ratio 20.4"),
        (lambda: combined("", [computed("", 1.0, 2.0)]), ""),
    ],
)
def test_the_number_of_a_verdict_says_what_it_is(verdict, text):
    assert verdict_number(verdict()) == text


def test_above_in():
    """x is above both of y's 1 and 2, below 5: ⅔ of the pairs for 3, all for 6, so that ⅚ in all."""
    verdict = greater("", [3.0, 6.0], [1.0, 2.0, 5.0])
    low, high = 100 * verdict.improvement.interval.low, 100 * verdict.improvement.interval.high
    p_value = number(verdict.improvement.p_value)
    assert above_in(verdict) == f"83 % of pairs [{low:.0f}, {high:.0f}], p = {p_value}"
    assert above_in(greater("", [3.0], [1.0])) == "100 % of pairs"
    assert above_in(greater("", [3.0, 4.0], 1.0)) == ""


def test_readings_of_the_same_claims_stand_side_by_side():
    high, low = np.arange(10.0) + 20.0, np.arange(10.0)
    holds, fails = greater("above", high, low), greater("above", low, high)
    one = [holds, combined("both", [holds, fails]), greater("in one alone", high, low)]
    other = [combined("both", [holds]), fails]
    table = verdicts_beside("t", "C", {"first": one, "second": other})
    assert [row["claim"] for row in table.rows] == ["above", "both"]
    above, both = table.rows
    assert (above["first"], above["second"]) == ("holds", "does not hold")
    assert above["number, first"] == f"difference of means +{interval(holds.interval)}"
    assert above["p, second"] == fails.p_value
    assert (both["first"], both["second"]) == ("does not hold", "holds")
    assert "number, first" not in both, "a combination has none"
    exact = verdicts_beside("t", "", {"a": [computed("c", 1.0, 2.0)]}).rows
    assert exact == [{"claim": "c", "a": "holds", "number, a": "value 1", "p, a": None}]


def test_the_table_of_verdicts():
    high, low = np.arange(10.0) + 20.0, np.arange(10.0)
    holds = greater("high is above low", high, low)
    verdicts = [holds, computed("1 is below 2", 1.0, 2.0), combined("both", [holds, greater("not", low, high)])]
    found = verdict_table(verdicts)
    cells = found.cells()
    assert [line[:2] for line in cells] == [[verdict.claim, str(verdict.outcome)] for verdict in verdicts]
    assert [line[2] for line in cells] == [f"difference of means +{interval(holds.interval)}", "value 1", "–"]
    assert [line[4] for line in cells] == [number(holds.p_value), "–", cells[2][4]]
    assert [line[5:7] for line in cells] == [[above_in(holds), "10 + 10"], ["–", "–"], ["–", "10 + 10"]]
    assert "not: does not hold" in cells[2][7]
    assert "above in" not in verdict_table(verdicts[1:]).header()
    rows = list(csv.DictReader(io.StringIO(found.csv().decode())))
    assert [float(rows[0][key]) for key in ("estimate", "estimate_low", "estimate_high", "p_value", "statistic")] == [
        holds.estimate,
        holds.interval.low,
        holds.interval.high,
        holds.p_value,
        holds.statistic,
    ]
