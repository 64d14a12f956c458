"""The batcher: coalescing, order, halving, cancellation, closing."""

from __future__ import annotations

import asyncio
import contextvars
import gc
from typing import TYPE_CHECKING

import pytest

from aioqueue.errors import ClientClosed, RowRejected, StoreError, StoreIncompatible, StoreUnavailable
from aioqueue.runtime._batcher import LARGEST_BATCH_BYTES, Batcher, portions

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.anyio

caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="nobody's")


class Writer:
    """Stores batches when it's allowed to, and says of each item that it's stored."""

    def __init__(self, *, open_: bool = True) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.entered = asyncio.Event()
        self.bad: set[int] = set()
        self.says: type[Exception] = RowRejected
        self.error: Exception | None = None
        self.running = 0
        self.most = 0
        if open_:
            self.gate.set()

    async def __call__(self, items: Sequence[int]) -> Sequence[str]:
        self.batches.append(list(items))
        self.running += 1
        self.most = max(self.most, self.running)
        self.entered.set()
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        if self.error is not None:
            raise self.error
        if self.bad.intersection(items):
            raise self.says(f"one of {len(items)} is bad")
        return [f"stored {item}" for item in items]


async def turns(number: int = 5) -> None:
    """Let the other tasks run."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_one_item_is_written_at_once() -> None:
    writer = Writer()
    batcher: Batcher[int, str] = Batcher(writer)
    assert await batcher.submit(1) == "stored 1"
    assert writer.batches == [[1]]
    await batcher.aclose()


async def test_the_next_batch_gathers_while_one_is_in_flight() -> None:
    writer = Writer(open_=False)
    batcher: Batcher[int, str] = Batcher(writer)
    first = asyncio.create_task(batcher.submit(0))
    await writer.entered.wait()
    others = [asyncio.create_task(batcher.submit(number)) for number in range(1, 6)]
    await turns()
    assert writer.batches == [[0]]
    writer.gate.set()
    assert await asyncio.gather(first, *others) == [f"stored {number}" for number in range(6)]
    assert writer.batches == [[0], [1, 2, 3, 4, 5]]
    await batcher.aclose()


async def test_items_of_one_turn_of_the_loop_share_a_batch() -> None:
    writer = Writer()
    batcher: Batcher[int, str] = Batcher(writer)
    futures = [batcher.submit_nowait(number) for number in range(3)]
    assert await asyncio.gather(*futures) == ["stored 0", "stored 1", "stored 2"]
    assert writer.batches == [[0, 1, 2]]
    await batcher.aclose()


async def test_batches_are_bounded_and_in_order() -> None:
    writer = Writer()
    batcher: Batcher[int, str] = Batcher(writer, limit=4)
    futures = [batcher.submit_nowait(number) for number in range(10)]
    assert await asyncio.gather(*futures) == [f"stored {number}" for number in range(10)]
    assert writer.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    await batcher.aclose()


async def test_batches_are_bounded_in_bytes_and_what_is_larger_goes_alone() -> None:
    writer = Writer()
    half, sizes = LARGEST_BATCH_BYTES // 2, [1, 2, 2, LARGEST_BATCH_BYTES * 3, 1, 1]
    batcher: Batcher[int, str] = Batcher(writer, size=lambda place: sizes[place] * half if sizes[place] < 9 else sizes[place])
    await asyncio.gather(*(batcher.submit_nowait(place) for place in range(6)))
    assert writer.batches == [[0], [1], [2], [3], [4, 5]]
    await batcher.aclose()


def test_portions() -> None:
    def cut(*sizes: int, limit: int = 3) -> list[list[int]]:
        return [list(each) for each in portions(sizes, limit, lambda size: size)]

    assert cut() == []
    assert cut(1, 2, 3, 4, 5, 6, 7) == [[1, 2, 3], [4, 5, 6], [7]]
    assert cut(1, LARGEST_BATCH_BYTES, 1, LARGEST_BATCH_BYTES - 1, LARGEST_BATCH_BYTES * 9, 1) == [
        [1],
        [LARGEST_BATCH_BYTES],
        [1, LARGEST_BATCH_BYTES - 1],
        [LARGEST_BATCH_BYTES * 9],
        [1],
    ]


async def test_what_writes_for_many_has_no_callers_context() -> None:
    seen: list[str] = []

    async def write(items: Sequence[int]) -> Sequence[int]:
        seen.append(caller.get())
        return items

    batcher: Batcher[int, int] = Batcher(write)
    token = caller.set("one request's")
    await batcher.submit(1)
    caller.reset(token)
    assert seen == ["nobody's"]
    await batcher.aclose()


async def test_one_call_is_in_flight() -> None:
    writer = Writer(open_=False)
    batcher: Batcher[int, str] = Batcher(writer, limit=1)
    futures = [batcher.submit_nowait(number) for number in range(3)]
    await turns()
    assert writer.most == 1
    writer.gate.set()
    await asyncio.gather(*futures)
    assert writer.most == 1
    await batcher.aclose()


async def test_a_call_that_gets_no_answer_holds_up_nobody_who_comes_later() -> None:
    """After a while one more is in flight beside it, and only one."""
    silent = asyncio.Event()
    batches: list[list[int]] = []

    async def write(items: Sequence[int]) -> Sequence[str]:
        batches.append(list(items))
        if 0 in items:
            await silent.wait()
        return [f"stored {item}" for item in items]

    batcher: Batcher[int, str] = Batcher(write, patience=0.01)
    first = batcher.submit_nowait(0)
    await turns()
    async with asyncio.timeout(60):
        assert await asyncio.gather(batcher.submit(1), batcher.submit(2)) == ["stored 1", "stored 2"]
        assert await batcher.submit(3) == "stored 3"
    assert batches == [[0], [1, 2], [3]]
    silent.set()
    assert await first == "stored 0"
    await batcher.aclose()


async def test_calls_that_get_no_answer_dont_add_up() -> None:
    writer = Writer(open_=False)
    batcher: Batcher[int, str] = Batcher(writer, patience=0.0, limit=1)
    futures = [batcher.submit_nowait(number) for number in range(4)]
    async with asyncio.timeout(60):
        while len(writer.batches) < 2:
            await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    assert writer.batches == [[0], [1]]
    writer.gate.set()
    assert await asyncio.gather(*futures) == [f"stored {number}" for number in range(4)]
    await batcher.aclose()


@pytest.mark.parametrize("error", [RowRejected, StoreError, ValueError, MemoryError])
async def test_the_guilty_row_fails_alone(error: type[Exception]) -> None:
    writer = Writer()
    writer.bad, writer.says = {5}, error
    batcher: Batcher[int, str] = Batcher(writer)
    futures = [batcher.submit_nowait(number) for number in range(8)]
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert type(results[5]) is error
    assert [each for place, each in enumerate(results) if place != 5] == [f"stored {n}" for n in range(8) if n != 5]
    assert writer.batches == [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [4], [5], [6, 7]]
    await batcher.aclose()


async def test_all_rows_guilty() -> None:
    writer = Writer()
    writer.bad = {0, 1, 2}
    batcher: Batcher[int, str] = Batcher(writer)
    results = await asyncio.gather(*(batcher.submit_nowait(n) for n in range(3)), return_exceptions=True)
    assert [type(each) for each in results] == [RowRejected] * 3
    await batcher.aclose()


@pytest.mark.parametrize("error", [StoreUnavailable, StoreIncompatible, ClientClosed])
async def test_errors_that_arent_about_rows_fail_the_batch_at_once_and_nothing_else(error: type[Exception]) -> None:
    writer = Writer()
    writer.error = error("gone")
    batcher: Batcher[int, str] = Batcher(writer)
    results = await asyncio.gather(*(batcher.submit_nowait(n) for n in range(3)), return_exceptions=True)
    assert results == [writer.error] * 3
    assert len(writer.batches) == 1
    writer.error = None
    assert await batcher.submit(7) == "stored 7"
    await batcher.aclose()


async def test_a_wrong_number_of_results_fails_the_whole_batch() -> None:
    async def wrong(items: Sequence[int]) -> Sequence[str]:
        return ["only one"]

    batcher: Batcher[int, str] = Batcher(wrong, limit=2)
    futures = [batcher.submit_nowait(number) for number in range(4)]
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert [str(each) for each in results] == ["1 results for a batch of 2"] * 4
    await batcher.aclose()


async def test_cancelled_while_waiting_takes_the_item_back() -> None:
    writer = Writer(open_=False)
    batcher: Batcher[int, str] = Batcher(writer)
    first = asyncio.create_task(batcher.submit(0))
    await writer.entered.wait()
    second, third = (asyncio.create_task(batcher.submit(number)) for number in (1, 2))
    await turns()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    writer.gate.set()
    assert [await first, await third] == ["stored 0", "stored 2"]
    assert writer.batches == [[0], [2]]
    await batcher.aclose()


async def test_cancelled_in_flight_the_write_goes_on() -> None:
    writer = Writer(open_=False)
    batcher: Batcher[int, str] = Batcher(writer)
    first, second = (asyncio.create_task(batcher.submit(number)) for number in (0, 1))
    await writer.entered.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    writer.gate.set()
    assert await second == "stored 1"
    assert writer.batches == [[0, 1]]
    await batcher.aclose()


async def test_cancelled_in_flight_and_then_an_error_warns_nobody(recwarn: pytest.WarningsRecorder) -> None:
    writer = Writer(open_=False)
    writer.error = StoreUnavailable("gone")
    batcher: Batcher[int, str] = Batcher(writer)
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    task = asyncio.create_task(batcher.submit(0))
    await writer.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    writer.gate.set()
    await batcher.aclose()
    del task
    gc.collect()
    await turns()
    assert problems == []


async def test_a_future_that_was_cancelled_doesnt_take_its_item_back() -> None:
    writer = Writer(open_=False)
    batcher: Batcher[int, str] = Batcher(writer)
    future = batcher.submit_nowait(1)
    future.cancel()
    writer.gate.set()
    await batcher.aclose()
    assert writer.batches == [[1]]


async def test_closing_waits_for_what_was_handed_over() -> None:
    writer = Writer(open_=False)
    batcher: Batcher[int, str] = Batcher(writer, limit=1)
    futures = [batcher.submit_nowait(number) for number in range(3)]
    closing = asyncio.create_task(batcher.aclose())
    await turns()
    assert not closing.done()
    with pytest.raises(ClientClosed):
        batcher.submit_nowait(9)
    with pytest.raises(ClientClosed):
        await batcher.submit(9)
    writer.gate.set()
    await closing
    assert [future.result() for future in futures] == ["stored 0", "stored 1", "stored 2"]
    await batcher.aclose()


async def test_closing_an_idle_one() -> None:
    batcher: Batcher[int, str] = Batcher(Writer())
    await batcher.aclose()
    await batcher.aclose()


def test_when_the_loop_ends_nobody_waits_for_ever() -> None:
    async def main() -> tuple[asyncio.Future[str], asyncio.Future[str]]:
        writer = Writer(open_=False)
        batcher: Batcher[int, str] = Batcher(writer, limit=1)
        in_flight, waiting = batcher.submit_nowait(0), batcher.submit_nowait(1)
        await writer.entered.wait()
        return in_flight, waiting  # asyncio.run cancels the batcher's task now

    in_flight, waiting = asyncio.run(main())
    assert in_flight.cancelled()
    assert waiting.cancelled()


async def test_cancelled_before_its_task_s_first_step_nobody_waits_for_ever() -> None:
    """As the event loop's end does. What the task would clean up isn't: it never gets there."""
    writer = Writer()
    batcher: Batcher[int, str] = Batcher(writer)
    futures = [batcher.submit_nowait(0), batcher.submit_nowait(1)]
    (task,) = batcher._tasks
    task.cancel()
    await turns()
    assert [future.cancelled() for future in futures] == [True, True]
    assert writer.batches == []
    await batcher.aclose()


async def test_aborted_before_its_task_s_first_step_it_writes_nothing() -> None:
    writer = Writer()
    batcher: Batcher[int, str] = Batcher(writer)
    future = batcher.submit_nowait(0)
    batcher.abort()
    await turns()
    assert future.cancelled()
    assert writer.batches == []
    await batcher.aclose()


async def test_many_concurrent_callers() -> None:
    writer = Writer()
    batcher: Batcher[int, str] = Batcher(writer, limit=100)
    results = await asyncio.gather(*(batcher.submit(number) for number in range(1000)))
    assert results == [f"stored {number}" for number in range(1000)]
    assert [item for batch in writer.batches for item in batch] == list(range(1000))
    assert len(writer.batches) == 10
    await batcher.aclose()
