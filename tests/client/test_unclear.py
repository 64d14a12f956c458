"""Commits whose answer was lost, databases that are away, and callers that are cancelled."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.client import Client
from aioqueue.errors import CallAlreadyEnqueued, ClientClosed, RowRejected, StoreUnavailable
from tests.client.fake_store import FakeStore
from tests.client.jobs import add

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.client import JobHandle
    from aioqueue.vocabulary._job import Inserted, NewJob

pytestmark = pytest.mark.anyio


async def test_an_enqueue_whose_answer_was_lost_makes_one_job(fake: FakeStore, fake_client: Client) -> None:
    fake.faults["insert"] = ["after", "before"]
    handle = await fake_client.enqueue(add(1, 2))
    assert handle.created
    assert list(fake.jobs) == [handle.id]
    assert fake.inserts == [(1, False), (1, True)]


async def test_a_row_that_was_refused_is_certainly_not_there(fake: FakeStore, fake_client: Client) -> None:
    fake.faults["insert"] = [RowRejected("no")]
    call = add(1, 2)
    with pytest.raises(RowRejected):
        await fake_client.enqueue(call)
    await fake_client.enqueue(call)
    assert fake.inserts == [(1, False)]  # nothing is looked up


async def test_a_job_that_finished_before_the_repetition_isnt_stored_again(fake: FakeStore, fake_client: Client) -> None:
    fake.faults["insert"] = ["after"]
    call = add(1, 2)
    fake.gates["insert"] = gate = asyncio.Event()
    task = asyncio.create_task(fake_client.enqueue(call))
    await asyncio.sleep(0)
    gate.set()
    while call.id not in fake.jobs:
        await asyncio.sleep(0)
    fake.finish(call.id)
    assert (await task).created
    assert len(fake.jobs) == 1


async def test_what_stays_away_is_raised_in_a_bounded_time_and_may_be_enqueued_again(fake: FakeStore) -> None:
    async with Client(fake, retry_for=0) as client:
        fake.faults["insert"] = ["after"]
        call = add(1, 2)
        with pytest.raises(StoreUnavailable):
            await client.enqueue(call)
        fake.finish(call.id)
        handle = await client.enqueue(call)
        assert handle.created
        assert fake.inserts == [(1, False), (1, True)]
        with pytest.raises(CallAlreadyEnqueued):
            await client.enqueue(call)


async def test_many_whose_answer_was_lost_are_stored_once(fake: FakeStore, fake_client: Client) -> None:
    fake.faults["insert"] = ["after"]
    handles = await fake_client.enqueue_many([add(number, 1) for number in range(10)])
    assert [handle.id for handle in handles] == list(fake.jobs)
    assert all(handle.created for handle in handles)


async def test_more_than_a_chunk_whose_commit_is_unclear_are_stored_once(
    fake: FakeStore, fake_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioqueue.client._chunks.CHUNK_ROWS", 4)
    fake.faults["commit"] = ["before", "after"]
    handles = await fake_client.enqueue_many([add(number, 1) for number in range(10)])
    assert [handle.id for handle in handles] == list(fake.jobs)
    assert all(handle.created for handle in handles)
    assert fake.calls["transaction.insert"] == 6
    assert fake.calls["commit"] == 2


async def test_a_transaction_whose_commit_is_unclear_may_be_repeated(fake: FakeStore, fake_client: Client) -> None:
    calls = [add(number, 1) for number in range(3)]
    fake.faults["commit"] = ["after"]
    with pytest.raises(StoreUnavailable):
        async with fake_client.transaction() as tx:
            await tx.enqueue_many(calls)
    fake.finish(*[call.id for call in calls])
    async with fake_client.transaction() as tx:
        handles = await tx.enqueue_many(calls)
    assert all(handle.created for handle in handles)
    assert len(fake.jobs) == 3


async def test_a_row_at_fault_fails_alone(fake: FakeStore, fake_client: Client) -> None:
    good, bad = add(1, 2), add(3, 4)
    fake.faults["insert"] = [RowRejected("both"), "", RowRejected("the second")]
    results = await asyncio.gather(fake_client.enqueue(good), fake_client.enqueue(bad), return_exceptions=True)
    assert not isinstance(results[0], BaseException)
    assert isinstance(results[1], RowRejected)
    assert list(fake.jobs) == [good.id]
    await fake_client.enqueue(bad)


async def test_concurrent_enqueues_are_gathered(fake: FakeStore, fake_client: Client) -> None:
    handles = await asyncio.gather(*[fake_client.enqueue(add(number, 1)) for number in range(500)])
    assert len({handle.id for handle in handles}) == 500
    assert len(fake.inserts) <= 3


async def test_one_who_is_cancelled_while_waiting_takes_its_call_back(fake: FakeStore, fake_client: Client) -> None:
    fake.gates["insert"] = gate = asyncio.Event()
    first = asyncio.create_task(fake_client.enqueue(add(1, 1)))
    await asyncio.sleep(0)
    call = add(2, 2)
    second = asyncio.create_task(fake_client.enqueue(call))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.set()
    await first
    assert call.id not in fake.jobs
    await fake_client.enqueue(call)
    assert call.id in fake.jobs


@pytest.mark.parametrize("steps", range(8))
async def test_cancelled_at_any_step_a_call_can_be_enqueued_again_and_makes_one_job(steps: int) -> None:
    fake = FakeStore()
    async with Client(fake) as client:
        call = add(1, 2)
        task = asyncio.create_task(client.enqueue(call))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            await client.enqueue(call)
        assert list(fake.jobs) == [call.id]
    assert not fake.opened
    assert _tasks_of_ours() == []


@pytest.mark.parametrize("way", ["gathered", "with a key", "many"])
async def test_cancelled_between_the_commit_and_its_answer_a_call_is_found_when_it_is_enqueued_again(
    fake: FakeStore, fake_client: Client, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Also if it has finished meanwhile."""
    insert, committed, answers = fake.insert, asyncio.Event(), asyncio.Event()

    async def late(jobs: Sequence[NewJob], **named: Any) -> Sequence[Inserted]:
        inserted = await insert(jobs, **named)
        committed.set()
        await answers.wait()
        return inserted

    async def enqueue() -> JobHandle[int]:
        return (await fake_client.enqueue_many([call]))[0] if way == "many" else await fake_client.enqueue(call)

    monkeypatch.setattr(fake, "insert", late)
    call = add(1, 2).options(key="k", unique=True) if way == "with a key" else add(1, 2)
    task = asyncio.create_task(enqueue())
    await committed.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    fake.finish(call.id)
    answers.set()
    assert (await enqueue()).created
    assert fake.inserts == [(1, False), (1, True)]
    assert list(fake.jobs) == [call.id]


@pytest.mark.parametrize("steps", range(12))
async def test_cancelled_at_any_step_closing_closes(steps: int) -> None:
    fake = FakeStore()
    client = await Client(fake).open()
    handle = await client.enqueue(add(1, 2))
    waiting = asyncio.create_task(handle.result())
    writing = asyncio.create_task(client.enqueue(add(3, 4)))
    await asyncio.sleep(0)
    task = asyncio.create_task(client.close())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if steps == 0:  # it was cancelled before it began
        await client.close()
    with pytest.raises(ClientClosed):
        await waiting
    assert (await writing).id in fake.jobs
    assert not fake.opened
    assert _tasks_of_ours() == []


@pytest.mark.parametrize("steps", range(4))
async def test_cancelled_at_any_step_opening_leaves_nothing_open(steps: int) -> None:
    fake = FakeStore()
    client = Client(fake)
    task = asyncio.create_task(client.open())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() is not fake.opened
    if fake.opened:
        await client.close()
    async with client:
        await client.enqueue(add(1, 2))


async def test_closing_is_bounded_though_the_store_hangs(fake: FakeStore, caplog: pytest.LogCaptureFixture) -> None:
    client = await Client(fake, close_timeout=0.05).open()
    fake.gates["insert"] = asyncio.Event()
    fake.gates["close"] = asyncio.Event()
    writing = asyncio.create_task(client.enqueue(add(1, 2)))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(client.enqueue(add(3, 4)))
    await asyncio.sleep(0)
    with caplog.at_level(logging.WARNING, "aioqueue"):
        await client.close()
    with pytest.raises(StoreUnavailable, match="may be there or not"):
        await writing
    with pytest.raises((ClientClosed, StoreUnavailable)):
        await waiting
    assert "couldn't be closed within" in caplog.text
    assert _tasks_of_ours() == []


@pytest.mark.parametrize("verb", ["close", "fetch_ends"])
async def test_closing_is_bounded_though_the_store_doesnt_react_to_being_cancelled(
    fake: FakeStore, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """And those who wait for results are told."""
    client = await Client(fake, close_timeout=0.1).open()
    waiting = asyncio.create_task((await client.enqueue(add(1, 2))).result())
    let_go, began = asyncio.Event(), asyncio.Event()

    async def deaf(*arguments: object) -> list[None]:
        began.set()
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()
        return [None]

    monkeypatch.setattr(fake, verb, deaf)
    if verb == "fetch_ends":
        async with asyncio.timeout(60):
            await began.wait()
    async with asyncio.timeout(30):
        await client.close()
        with pytest.raises(ClientClosed):
            await waiting
    assert began.is_set()
    let_go.set()
    async with asyncio.timeout(60):
        while _tasks_of_ours():
            await asyncio.sleep(0.01)


async def test_closing_ends_the_repetitions(fake: FakeStore) -> None:
    client = await Client(fake, retry_for=600).open()
    fake.faults["insert"] = ["before"] * 100
    writing = asyncio.create_task(client.enqueue(add(1, 2)))
    await asyncio.sleep(0)
    started = time.monotonic()
    await client.close()
    with pytest.raises(StoreUnavailable):
        await writing
    assert time.monotonic() - started < 5


async def test_closing_waits_for_enqueues_in_flight(fake: FakeStore) -> None:
    client = await Client(fake).open()
    fake.gates["insert"] = gate = asyncio.Event()
    writing = asyncio.create_task(client.enqueue(add(1, 2)))
    await asyncio.sleep(0)
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    with pytest.raises(ClientClosed):
        await client.enqueue(add(3, 4))
    gate.set()
    await closing
    assert (await writing).id in fake.jobs


async def test_a_store_that_cant_be_opened_is_closed_and_may_be_opened_later(fake: FakeStore) -> None:
    fake.faults["open"] = ["before"]
    client = Client(fake)
    with pytest.raises(StoreUnavailable):
        await client.open()
    assert not fake.opened
    async with client:
        await client.enqueue(add(1, 2))


def _tasks_of_ours() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("aioqueue") and not task.done()]
