"""The examples of jobs that wait, of answers from outside, of completing transactions and of schedules, as processes."""

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


SCHEDULES = """\
preview: 2031-03-30 03:00:00+02:00
preview: 2031-03-31 02:30:00+02:00
by hand: the nightly report
waits:   paused
resumed: the paused report
in code: planned/planned.beat by planned every 1.0 s
"""


EXPECTED = {"fan_in": FAN_IN, "approval": APPROVAL, "completion": COMPLETION, "schedules": SCHEDULES}


# What those leave in the database differs from what they found there: accounts that are paid from, schedules.
LEAVE_SOMETHING = ("completion", "schedules")


@pytest.mark.parametrize("example", EXPECTED)
def test_the_example_prints_what_it_should_each_time(example: str, each_url: str) -> None:
    for _ in range(2 if example in LEAVE_SOMETHING else 1):
        command = [sys.executable, "-W", "error", "-X", "dev", "-m", f"examples.{example}", "--url", each_url]
        finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        assert (finished.returncode, finished.stdout) == (0, EXPECTED[example]), finished.stderr
