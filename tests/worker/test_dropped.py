"""Attempts that are dropped together with their event loop."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.telemetry._tracing import Tracing
from aioqueue.worker._holdings import Holdings, Slot
from aioqueue.worker._slots import Slots
from aioqueue.worker._wakeup import Wakeup
from tests.telemetry.spans import Recorded
from tests.worker.recovery_bench import orphan

if TYPE_CHECKING:
    from collections.abc import Generator


class Never:
    """Never comes."""

    def __await__(self) -> Generator[None]:
        while True:
            yield


async def never(_: Slot) -> None:
    await Never()


def dropped(slots_options: dict[str, Any]) -> None:
    """Begin an attempt, close its event loop, and drop it."""
    holdings, nobody = Holdings(), SimpleNamespace(take=lambda *_: pytest.fail("told of an end"))

    async def begin() -> None:
        attempts: Any = SimpleNamespace(run=never)
        parts: Any = {"writer": nobody, "leases": nobody, "stages": nobody, **slots_options}
        Slots(attempts, parts["leases"], 1, set(), holdings=holdings, wakeup=Wakeup(), **parts).start(orphan(type="a"))
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    (slot,) = holdings.running.values()
    assert slot.began
    holdings.running.clear()
    holdings.held.clear()
    del slot
    gc.collect()


def test_an_attempt_that_is_dropped_with_its_event_loop_isnt_told_as_broken(caplog: pytest.LogCaptureFixture) -> None:
    """A body that swallows its cancellation is left behind by its worker; it's dropped when the loop is closed."""
    dropped({})
    assert not [record for record in caplog.records if record.name.startswith("aioqueue") and record.levelname == "ERROR"]


def test_its_span_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = Recorded(monkeypatch)
    dropped({"tracing": Tracing(on=True)})
    attributes = dict(spans.one("process a").attributes or {})
    assert attributes["aioqueue.outcome"] == "interrupted"
