"""How long a stop takes at most is one sum, which the documentation and the files for deployment give."""

from __future__ import annotations

import math
import re

from aioqueue.cli._worker import longest_end
from aioqueue.definitions._settings import WorkerSettings
from aioqueue.worker._shutdown import longest_stop
from tests.processes import ROOT

GRACE = WorkerSettings.resolve(environment={}).grace
PROCESS = math.ceil(longest_end(GRACE) - GRACE)
EMBEDDED = math.ceil(longest_stop(GRACE) - GRACE)


def found(path: str, pattern: str) -> list[int]:
    """The numbers that a pattern finds in a file."""
    return [int(number) for number in re.findall(pattern, (ROOT / path).read_text().replace("\n", " "))]


def test_the_documentation_gives_the_sum() -> None:
    deployment = "docs/how-to/deployment.md"
    assert found(deployment, r"the grace and (\d+) s") == [PROCESS]
    assert found("docs/cli.md", r"the grace and (\d+) s") == [PROCESS]
    assert found("docs/how-to/embedding.md", r"the grace and (\d+) s") == [EMBEDDED]
    steps = re.findall(r"^\| .* \| (?:the grace.*|(\d+) s.*) \|$", (ROOT / deployment).read_text(), re.MULTILINE)
    assert sum(int(step) for step in steps if step) == PROCESS


def test_whoever_stops_a_worker_waits_longer() -> None:
    unit = found("examples/deployment/aioqueue-worker@.service", r"TimeoutStopSec=(\d+)")
    compose = found("examples/deployment/compose.yaml", r"stop_grace_period: (\d+)s")
    assert unit == compose == found("docs/how-to/deployment.md", r"(\d+) s for a grace of 30 s")
    assert unit[0] > longest_end(GRACE)
    for path in ("examples/deployment/aioqueue-worker@.service", "examples/deployment/compose.yaml"):
        assert PROCESS in found(path, r"(?:the grace|AIOQUEUE_GRACE) and (\d+) s")


def test_a_grace_of_nothing_has_its_bound_too() -> None:
    """A claim that is under way is waited for all the same."""
    assert longest_stop(0) == longest_stop(5) < longest_stop(6)
