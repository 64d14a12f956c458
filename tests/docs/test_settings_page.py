"""The one table of settings says what the definitions say, and the other pages name only settings that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aioqueue.definitions._environment import URL_VARIABLE
from aioqueue.definitions._setting_table import METRICS_HOST, SETTINGS, URL
from aioqueue.telemetry._server import DEFAULT_METRICS_HOST
from tests.docs.settings_page import PAGE, parts, row, table
from tests.processes import ROOT

VARIABLES = {setting.variable for setting in SETTINGS}
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")])


def test_the_table_is_that_of_the_definitions() -> None:
    assert parts(PAGE.read_text())[1] == table(), "write it anew: python -m tests.docs.settings_page"


def test_a_setting_is_one_row_of_that_table() -> None:
    for setting in SETTINGS:
        assert row(setting).count("|") == 7, "a cell has a bar in it"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_only_variables_that_are_read(page: Path) -> None:
    named = set(re.findall(r"\bAIOQUEUE_[A-Z_]*[A-Z]\b", page.read_text()))
    assert {each for each in named if not each.startswith("AIOQUEUE_TEST_")} <= VARIABLES


def test_names_are_unique_and_defaults_those_of_their_users() -> None:
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)
    assert METRICS_HOST.default == DEFAULT_METRICS_HOST
    assert URL.variable == URL_VARIABLE
