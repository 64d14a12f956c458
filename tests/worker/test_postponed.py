"""What couldn't be written at once: each item waits for itself, and nothing waits for it."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING

import pytest

from aioqueue.errors import ClientClosed, RowRejected, StoreError, StoreIncompatible, StoreUnavailable
from aioqueue.runtime._batcher import LARGEST_BATCH_BYTES
from aioqueue.worker import _postponed
from aioqueue.worker._postponed import Postponed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence

pytestmark = pytest.mark.anyio

BUSY = "busy"
request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")


class Database:
    """Writes items, but for those that are to be busy, raise or hang.

    Attributes:
        says: What it says of an item in place of writing it: `BUSY`, an exception that the whole batch fails with, or an event
            that the whole batch waits for.
        tries: Each call's items.
        running: Calls that are in flight.
        tried: Set at each call.
    """

    def __init__(self) -> None:
        self.says: dict[int, str | Exception | asyncio.Event] = {}
        self.tries: list[list[int]] = []
        self.contexts: list[str] = []
        self.running = self.most = 0
        self.tried = asyncio.Event()
        self.waits: list[tuple[int, BaseException | None]] = []
        self.size = 1

    async def __call__(self, items: Sequence[int]) -> Sequence[str]:
        self.tries.append(list(items))
        self.contexts.append(request.get())
        self.tried.set()
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for item in items:
                if isinstance(event := self.says.get(item), asyncio.Event):
                    await event.wait()
            await asyncio.sleep(0)
            for item in items:
                if isinstance(error := self.says.get(item), Exception):
                    raise error
        finally:
            self.running -= 1
        return [BUSY if self.says.get(item) == BUSY else f"wrote {item}" for item in items]

    async def until_tried(self, item: int, times: int) -> None:
        async with asyncio.timeout(60):
            while sum(item in items for items in self.tries) < times:
                self.tried.clear()
                await self.tried.wait()


@pytest.fixture
async def database() -> Database:
    return Database()


@pytest.fixture
async def postponed(database: Database) -> AsyncIterator[Postponed[int, str]]:
    made: Postponed[int, str] = Postponed(
        database,
        busy=lambda result: result == BUSY,
        on_wait=lambda item, error, _: database.waits.append((item, error)),
        size=lambda _: database.size,
        name="test",
    )
    yield made
    made.abort()


async def soon(*futures: Awaitable[str]) -> list[str]:
    async with asyncio.timeout(60):
        return await asyncio.gather(*futures)


async def test_what_is_busy_is_tried_again_and_its_neighbours_are_written(
    database: Database, postponed: Postponed[int, str]
) -> None:
    database.says[0] = BUSY
    futures = [postponed.submit_nowait(item) for item in range(5)]
    assert await soon(*futures[1:]) == [f"wrote {item}" for item in range(1, 5)]
    await database.until_tried(0, 4)
    assert not futures[0].done()
    assert len(postponed) == 1
    assert set(database.waits) == {(0, None)}
    del database.says[0]
    assert await soon(futures[0]) == ["wrote 0"]
    assert len(postponed) == 0


@pytest.mark.parametrize("error", [StoreError("a trigger"), ValueError("ours"), MemoryError()])
async def test_what_fails_by_itself_goes_alone_from_then_on(
    database: Database, postponed: Postponed[int, str], error: Exception
) -> None:
    database.says[3] = error
    futures = [postponed.submit_nowait(item, wait=0) for item in range(8)]
    assert len(await soon(*futures[:3], *futures[4:])) == 7
    await database.until_tried(3, 8)
    assert database.tries[-1] == [3]
    begun = len(database.tries)
    more = [postponed.submit_nowait(item, wait=0) for item in range(10, 14)]
    await soon(*more)
    assert not [items for items in database.tries[begun:] if 3 in items and len(items) > 1]
    del database.says[3]
    assert await soon(futures[3]) == ["wrote 3"]


@pytest.mark.parametrize("error", [StoreUnavailable("out of memory"), StoreIncompatible("a trigger's table isn't there")])
async def test_one_item_that_makes_the_database_seem_away_is_found_out(
    database: Database, postponed: Postponed[int, str], error: Exception
) -> None:
    database.says = {5: error, 6: error}
    futures = [postponed.submit_nowait(item, wait=0) for item in range(100)]
    assert len(await soon(*futures[:5], *futures[7:])) == 98
    assert len(database.tries) < 60
    assert not futures[5].done()
    assert {item for item, _ in database.waits} <= {5, 6}  # nobody else is blamed
    database.says.clear()
    assert await soon(futures[5], futures[6]) == ["wrote 5", "wrote 6"]


async def test_one_item_that_hangs_keeps_nothing_from_being_written(database: Database, postponed: Postponed[int, str]) -> None:
    database.says[0] = gate = asyncio.Event()
    stuck = postponed.submit_nowait(0, wait=0)
    await database.until_tried(0, 1)
    assert await soon(*(postponed.submit_nowait(item) for item in range(1, 50))) == [f"wrote {item}" for item in range(1, 50)]
    assert not stuck.done()
    gate.set()
    assert await soon(stuck) == ["wrote 0"]


async def test_while_the_database_is_away_one_batch_is_tried_at_a_time_with_pauses(
    database: Database, postponed: Postponed[int, str]
) -> None:
    database.says = dict.fromkeys(range(200), StoreUnavailable("away"))
    began = asyncio.get_running_loop().time()
    futures = [postponed.submit_nowait(item, wait=0) for item in range(200)]
    async with asyncio.timeout(60):
        while len(database.tries) < 8:
            database.tried.clear()
            await database.tried.wait()
    # 0.05 s, doubled and varied by half: the sum of the pauses between eight tries is over half of 2.5 s.
    assert asyncio.get_running_loop().time() - began > 1
    assert database.most == 1
    database.says.clear()
    begun = len(database.tries)
    assert len(await soon(*futures)) == 200
    assert len(database.tries) - begun < 20  # the batches grow again


async def test_what_can_never_be_written_is_told_and_not_tried_again(
    database: Database, postponed: Postponed[int, str]
) -> None:
    database.says = {1: RowRejected("no"), 2: ClientClosed("over")}
    futures = [postponed.submit_nowait(item, wait=0) for item in (0, 1)]
    assert await soon(futures[0]) == ["wrote 0"]
    with pytest.raises(RowRejected):
        await futures[1]
    with pytest.raises(ClientClosed):
        await postponed.submit_nowait(2)
    assert len(postponed) == 0
    assert database.waits == []


async def test_a_batch_is_bounded_in_bytes(database: Database, postponed: Postponed[int, str]) -> None:
    database.size = LARGEST_BATCH_BYTES // 2 - 1
    await soon(*(postponed.submit_nowait(item, wait=0) for item in range(6)))
    assert max(map(len, database.tries)) == 2
    database.size = LARGEST_BATCH_BYTES * 2
    database.tries.clear()
    await soon(*(postponed.submit_nowait(item, wait=0) for item in range(3)))
    assert [len(items) for items in database.tries] == [1, 1, 1]


async def test_an_item_waits_for_as_long_as_was_asked_for(database: Database, postponed: Postponed[int, str]) -> None:
    late = postponed.submit_nowait(0, wait=600)
    assert await soon(postponed.submit_nowait(1)) == ["wrote 1"]
    assert database.tries == [[1]]
    postponed.abort()
    with pytest.raises(asyncio.CancelledError):
        await late


async def test_the_waits_of_what_is_busy_end_at_a_second(database: Database, postponed: Postponed[int, str]) -> None:
    database.says[0] = BUSY
    postponed.submit_nowait(0, wait=0)
    (entry,) = postponed._all
    waits: list[float] = []
    for times in range(1, 8):
        await database.until_tried(0, times)
        while len(database.waits) < times:
            await asyncio.sleep(0)
        waits.append(entry.due - postponed._loop.time())
        entry.due = 0.0  # don't wait for it
        postponed._wake_at(0.0)
    assert all(0.04 * 2**place < wait <= 0.1 * 2**place for place, wait in enumerate(waits[:4]))
    assert all(0.4 < wait <= 1 for wait in waits[5:])


async def test_what_takes_long_to_fail_alone_waits_for_longer(
    database: Database, postponed: Postponed[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tries may keep a connection that others need. If nothing is written, it isn't the only one that can't be."""
    monkeypatch.setattr(_postponed, "_TIMES_AS_LONG", 1e9)
    database.says = {0: StoreUnavailable("a lock that isn't had in time")}
    postponed.submit_nowait(0, wait=0)
    await database.until_tried(0, 6)
    database.says[1] = BUSY
    postponed.submit_nowait(1, wait=0)
    entries = {entry.item: entry for entry in postponed._all}
    async with asyncio.timeout(60):
        while entries[0].due - postponed._loop.time() < 4:
            await asyncio.sleep(0.01)
    await database.until_tried(1, 5)
    assert entries[0].due - entries[1].due > 3


async def test_many_that_fail_by_themselves_wait_longer(
    database: Database, postponed: Postponed[int, str], monkeypatch
) -> None:
    monkeypatch.setattr(_postponed, "_SECONDS_PER_ITEM", 1.0)
    database.says = dict.fromkeys(range(40), StoreError("a trigger"))
    for item in range(40):
        postponed.submit_nowait(item, wait=0)
    for entry in postponed._all:
        entry.tries = 20
    async with asyncio.timeout(60):
        while len(database.waits) < 40:
            await asyncio.sleep(0)
    now = postponed._loop.time()
    assert all(15 < entry.due - now <= 40 for entry in postponed._all)


async def test_aborting_cancels_what_waits_and_what_is_tried(database: Database, postponed: Postponed[int, str]) -> None:
    database.says[0] = asyncio.Event()
    tried, waiting = postponed.submit_nowait(0, wait=0), postponed.submit_nowait(1, wait=600)
    await database.until_tried(0, 1)
    postponed.abort()
    for future in (tried, waiting):
        with pytest.raises(asyncio.CancelledError):
            await future
    with pytest.raises(ClientClosed):
        postponed.submit_nowait(2)
    async with asyncio.timeout(60):
        while postponed._tries:
            await asyncio.wait(postponed._tries)
            await asyncio.sleep(0)
    assert len(postponed) == 0


async def test_a_try_that_is_cancelled_before_its_first_step_leaves_nobody_waiting(
    database: Database, postponed: Postponed[int, str]
) -> None:
    """As the end of an event loop does it."""
    future = postponed.submit_nowait(0, wait=600)
    postponed._begin(postponed._due(postponed._loop.time() + 1000))
    (task,) = postponed._tries
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await future
    assert database.tries == []
    assert len(postponed) == 0


async def test_tries_have_no_callers_context(database: Database, postponed: Postponed[int, str]) -> None:
    database.says[0] = BUSY
    request.set("somebody's")
    future = postponed.submit_nowait(0, wait=0)
    await database.until_tried(0, 2)
    database.says.clear()
    await soon(future)
    assert set(database.contexts) == {"none"}
