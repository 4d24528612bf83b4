"""One colour, marker and label per algorithm, in every figure."""

import subprocess
import sys

import matplotlib
import pytest
from report_figures import MADE

from sb3_robust_be import registry
from sb3_robust_be.linear.methods import ALGORITHMS as LINEAR
from sb3_robust_be.report import label, looks
from sb3_robust_be.report.style import PALETTE, SETTINGS, settings

CONTROL = registry.names()


@pytest.mark.parametrize("name", sorted({*CONTROL, *LINEAR}))
def test_every_algorithm_of_the_package_has_its_look_whatever_the_others_are(name):
    alone = looks([name])[name]
    assert alone.colour in PALETTE
    assert alone.label == label(name) != name
    for others in (sorted(CONTROL), sorted(LINEAR), ["mine", "yours"]):
        together = looks([*others, name])[name]
        assert (together.colour, together.marker, together.line) == (alone.colour, alone.marker, alone.line)


def test_labels():
    names = ["qrc_huber", "gq", "tdc-huber", "tdc-l1", "qlc-same-sign", "dqn, refresh 50", "MHBE, τ = 1", "mine", ""]
    expected = ["QRC-Huber", "GQ", "TDC-Huber", "TDC-ℓ1", "QLC-same sign", "DQN, refresh 50", "MHBE, τ = 1", "mine", ""]
    assert [label(name) for name in names] == expected


def test_the_control_algorithms_differ_in_colour_and_in_marker():
    found = looks(CONTROL).values()
    assert len({look.colour for look in found}) == len({look.marker for look in found}) == len(CONTROL)


def test_variants_share_the_colour_and_differ_in_line_and_marker():
    for names in (["tdc", "tdc-huber", "tdc-l1"], ["dqn, 1", "dqn, 50", "dqn, 500"], ["mine, a", "mine, b"]):
        found = looks(names).values()
        assert len({look.colour for look in found}) == 1
        assert len({look.marker for look in found}) == len({look.line for look in found}) == len(names)


def test_unknown_names_get_the_free_colours_in_alphabetical_order():
    found = looks(["zeta", "dqn", "alpha", "qrc"])
    used = {found["dqn"].colour, found["qrc"].colour}
    first, second = [colour for colour in PALETTE if colour not in used][:2]
    assert (found["alpha"].colour, found["zeta"].colour) == (first, second)
    assert looks(["alpha", "qrc", "zeta", "dqn"]) == {name: found[name] for name in ("alpha", "qrc", "zeta", "dqn")}
    many = looks([f"algorithm {i}" for i in range(20)]).values()
    assert len({(look.colour, look.marker, look.line) for look in many}) == 20


def test_the_users_settings_are_neither_used_nor_changed():
    with matplotlib.rc_context({"font.size": 31.0, "axes.grid": False, "lines.linewidth": 9.0}):
        before = dict(matplotlib.rcParams)
        with settings():
            assert matplotlib.rcParams["font.size"] == SETTINGS["font.size"]
            assert matplotlib.rcParams["lines.linewidth"] == SETTINGS["lines.linewidth"]
            assert matplotlib.rcParams["axes.titlepad"] == matplotlib.rcParamsDefault["axes.titlepad"]
        assert dict(matplotlib.rcParams) == before
        sizes = [text.get_fontsize() for axis in MADE["lines"]().figure.axes for text in axis.get_xticklabels()]
        assert max(sizes) < 12.0


CODE = """
import sys
from sb3_robust_be import report
from sb3_robust_be.evaluation import t_interval
print(report.Table("means", [{"mean": t_interval([1.0, 2.0, 3.0])}]).markdown())
assert not {"torch", "stable_baselines3", "matplotlib"} & set(sys.modules), "light until a figure is made"
"""


def run(code):
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)


def test_tables_need_no_matplotlib_and_figures_no_pyplot():
    drawing = """
plot = report.lines("l", {"p": {"MSBE": [1.0, 0.0]}}, [0.0, 1.0], x_label="x", measure="y")
assert b"<svg" in plot.svg()
assert "matplotlib.pyplot" not in sys.modules
"""
    done = run(CODE + drawing)
    assert done.returncode == 0, done.stderr
    assert "| 2.0 \\[-" not in done.stdout
    assert "\\[" in done.stdout


def test_without_matplotlib_the_error_says_what_to_install():
    done = run(
        "import sys; sys.modules['matplotlib'] = None\n"
        "from sb3_robust_be import report\n"
        "report.lines('l', {'p': {'MSBE': [1.0, 0.0]}}, [0.0, 1.0], x_label='x', measure='y')"
    )
    assert done.returncode == 1
    assert 'ImportError: figures need matplotlib: pip install "sb3-robust-be[report]"' in done.stderr
