"""Attempts that are dropped together with their event loop."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import ClaimedJob
from aioqueue.worker._holdings import Slot
from aioqueue.worker._slots import Slots

if TYPE_CHECKING:
    from collections.abc import Generator


class Never:
    """Never comes."""

    def __await__(self) -> Generator[None]:
        while True:
            yield


async def never(_: Slot) -> None:
    await Never()


def test_an_attempt_that_is_dropped_with_its_event_loop_isnt_told_as_broken(caplog: pytest.LogCaptureFixture) -> None:
    """A body that swallows its cancellation is left behind by its worker; it's dropped when the loop is closed."""
    now = datetime.now(UTC)
    times: dict[str, Any] = {"created_at": now, "run_at": now, "started_at": now}
    job = ClaimedJob(
        id=new_id(), type="a", payload=b"{}", priority=2, attempt=1, claims=1, lease_id=3, max_attempts=10, **times
    )
    slots: Any = SimpleNamespace(_attempts=SimpleNamespace(run=never), _log_broken=lambda *_: pytest.fail("told as broken"))
    attempt = Slots._run(slots, Slot(job))
    attempt.send(None)
    attempt.close()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
