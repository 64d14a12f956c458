"""The example of chains, as a process."""

from __future__ import annotations

import subprocess
import sys

from tests.processes import ROOT

EXPECTED = """\
linear:   Report(path='/a', words=3, note='') download > measure > publish
branched: Report(path='/b', words=0, note='there is nothing on it') download > measure > reject
looped:   4 poll > poll > poll > poll
go-to:    cats, draft 3 write > review > write > review > write > review
"""


def test_each_shape_of_a_chain(each_url: str) -> None:
    for _ in range(2):
        command = [sys.executable, "-W", "error", "-X", "dev", "-m", "examples.chains", "--url", each_url]
        finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        assert (finished.returncode, finished.stdout) == (0, EXPECTED), finished.stderr
