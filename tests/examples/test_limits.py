"""The example of limits, sequences and fairness, with workers in processes of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.processes import ROOT

EXPECTED = """\
account 1: 0 1 2 3 4 5 6 7
account 2: 0 1 2 3 4 5 6 7
20 payments, never more than 3 at once
15 pictures, never two of one customer at once
running now: job:limited.resize 0, stripe 0
"""


@pytest.mark.parametrize("fresh", ["url", "empty_postgres_url"], ids=["sqlite", "postgres"])
def test_what_the_workers_have_seen_together(request: pytest.FixtureRequest, fresh: str) -> None:
    """In a database in which nothing is yet."""
    url = request.getfixturevalue(fresh)
    command = [sys.executable, "-W", "error", "-X", "dev", "-m", "examples.limits", "--url", url]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (finished.returncode, finished.stdout) == (0, EXPECTED), finished.stderr
