"""The table in docs/how-to/phases.md of what a percentage of a phase is of the whole job: each row is computed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aioqueue.definitions._progress import shown_progress

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "phases.md"
ROWS = re.findall(r"^\| (\d+) % of the (first|second|third) \| (\d+) % \|$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize(("percent", "phase", "whole"), ROWS)
def test_a_percentage_of_a_phase_is_that_much_of_the_job(percent: str, phase: str, whole: str) -> None:
    progress = shown_progress(("first", "second", "third"), phase, float(percent), None)
    assert f"{progress.percent:.0f}" == whole
