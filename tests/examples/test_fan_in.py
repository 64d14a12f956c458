"""The examples of jobs that wait for others, of answers from outside, and of completing transactions, as processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.processes import ROOT

FAN_IN = """\
fan-in:  6
diamond: three … words
settled: /a: 3, /d: failed
split:   5
failed:  BlockerFailed
"""

APPROVAL = """\
first answer:  True
second answer: False
order 7 is sent, says Ann
order 8 is put back, says nobody
"""

COMPLETION = """\
left:     [40, 60, 80]
attempts: [2, 2, 2]
accounts: [('ann', 40), ('bob', 60)]
told:     ['bob has got 20', 'bob has got 20', 'bob has got 20']
"""


EXPECTED = {"fan_in": FAN_IN, "approval": APPROVAL, "completion": COMPLETION}


@pytest.mark.parametrize("example", EXPECTED)
def test_the_example_prints_what_it_should_each_time(example: str, each_url: str) -> None:
    for _ in range(2):
        command = [sys.executable, "-W", "error", "-X", "dev", "-m", f"examples.{example}", "--url", each_url]
        finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        assert (finished.returncode, finished.stdout) == (0, EXPECTED[example]), finished.stderr
