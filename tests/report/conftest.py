"""The figures and pages that several tests look at, made once."""

import pytest
from report_figures import MADE
from report_pages import hostile_plots, hostile_report

from sb3_robust_be import report


@pytest.fixture(scope="session")
def made():
    return {name: make() for name, make in MADE.items()}


@pytest.fixture(scope="session")
def hostile():
    return hostile_report(hostile_plots())


@pytest.fixture(scope="session")
def hostile_page(hostile, tmp_path_factory):
    """Where it is written; its folder did not exist."""
    return report.write(hostile, tmp_path_factory.mktemp("pages") / "new" / "folder")
