"""`client.events`: what happens to jobs, in order, without gaps that aren't told of."""

from __future__ import annotations

import asyncio
import gc
import random
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue import Client, ClientClosed, EventStream, NotSupported, Registry, StoreUnavailable, Worker
from aioqueue.client import _event_feed, _subscription
from aioqueue.events import Event, JobCompleted, JobEnqueued, JobEvent, JobStarted, Reset
from tests.client.fake_store import FakeStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

registry = Registry()
LIFE = [JobEnqueued, JobStarted, JobCompleted]


@registry.job
async def add(left: int, right: int) -> int:
    return left + right


@registry.job
async def other() -> None:
    pass


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_event_feed, "_LOOK_APART_SECONDS", 0.0)
    monkeypatch.setattr(_event_feed, "_FIRST_PAUSE_SECONDS", 0.001)


@pytest.fixture
async def client(fake: FakeStore) -> AsyncIterator[Client]:
    async with Client(fake, poll_interval=600) as client:
        yield client


async def take(stream: EventStream, number: int) -> list[Event]:
    with anyio.fail_after(30):
        return [await anext(stream) for _ in range(number)]


async def left_over(stream: EventStream) -> list[Event]:
    """What comes within a few turns of the event loop."""
    found: list[Event] = []
    while True:
        waiting = asyncio.ensure_future(anext(stream))
        for _ in range(20):
            await asyncio.sleep(0)
        if not waiting.done():
            waiting.cancel()
            return found
        found.append(waiting.result())


def kinds(events: list[Event]) -> list[type[Event]]:
    return [type(each) for each in events]


async def test_all_of_a_job_comes_once_and_in_order(client: Client) -> None:
    async with client.events() as stream:
        handle = await client.enqueue(add(1, 2))
        await Worker(client, registry).run_once()
        events = await take(stream, 3)
        assert await left_over(stream) == []
    assert kinds(events) == LIFE
    assert all(isinstance(each, JobEvent) and each.job_id == handle.id and each.job_type == "add" for each in events)
    assert [getattr(each, "sequence", None) for each in events] == [1, 2, 3]
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


@pytest.mark.parametrize("by", ["types", "names", "job_id", "chain_id", "handle"])
async def test_a_stream_gives_what_was_asked_for(client: Client, by: str) -> None:
    first, second = await client.enqueue(add(1, 1)), await client.enqueue(other())
    wanted: dict[str, dict[str, Any]] = {
        "types": {"types": [other]},
        "names": {"types": ["other"]},
        "job_id": {"job_id": str(second.id)},
        "chain_id": {"chain_id": second.id},
        "handle": {"job_id": second},
    }
    async with client.events(**wanted[by]) as stream, client.events() as everything:
        await Worker(client, registry).run_once()
        assert {getattr(each, "job_id", None) for each in await take(everything, 4)} == {first.id, second.id}
        events = await take(stream, 2)
        assert kinds(events) == [JobStarted, JobCompleted]
        assert await left_over(stream) == []


async def test_all_streams_of_a_client_have_one_reader_which_ends_after_the_last(
    client: Client, fake: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_event_feed, "_LINGER_SECONDS", 0.0)
    async with client.events() as first, client.events() as second:
        await client.enqueue(add(1, 2))
        assert await take(first, 1) == await take(second, 1)
        assert (fake.calls["open_reader"], len(fake.database.events.readers)) == (1, 1)
    await client.enqueue(add(1, 2))  # wakes it
    await ended(fake)
    stream = client.events()
    begun = asyncio.ensure_future(anext(stream))
    while not fake.database.events.readers:
        await asyncio.sleep(0)
    begun.cancel()
    await asyncio.wait([begun])
    del begun, stream  # dropped, and never closed
    gc.collect()
    await client.enqueue(add(1, 2))
    await ended(fake)


async def ended(fake: FakeStore) -> None:
    with anyio.fail_after(30):
        while fake.database.events.readers:
            await asyncio.sleep(0.001)


async def test_a_stream_that_goes_on_after_an_event_misses_nothing(client: Client) -> None:
    async with client.events() as stream:
        first = await client.enqueue(add(1, 2))
        (seen,) = await take(stream, 1)
        assert isinstance(seen, JobEnqueued)
    await Worker(client, registry).run_once()  # while nobody is there
    async with client.events(after=seen.sequence) as stream:
        await client.enqueue(other())
        events = await take(stream, 3)
        assert await left_over(stream) == []
    assert kinds(events) == [JobStarted, JobCompleted, JobEnqueued]
    assert [getattr(each, "job_id", None) for each in events[:2]] == [first.id] * 2


async def test_what_a_stream_has_read_to_go_on_is_not_given_again_when_the_others_come_to_it(
    client: Client, fake: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, read = asyncio.Event(), fake.read_events

    async def read_later(reader: Any, cursor: str, limit: int) -> Any:
        if (task := asyncio.current_task()) is not None and task.get_name() == "aioqueue events":
            await looks.wait()
        return await read(reader, cursor, limit)

    async with client.events() as stream:
        await client.enqueue(add(1, 2))
        (seen,) = await take(stream, 1)
        assert isinstance(seen, JobEnqueued)
    monkeypatch.setattr(fake, "read_events", read_later)
    await Worker(client, registry).run_once()
    async with client.events(after=seen.sequence) as stream:
        assert kinds(await take(stream, 2)) == [JobStarted, JobCompleted]
        looks.set()
        await client.enqueue(other())
        assert kinds(await take(stream, 1)) == [JobEnqueued]
        assert await left_over(stream) == []


@pytest.mark.parametrize("unknown", [-1, 0, 77, 2**63, 2**100])
async def test_an_event_that_nobody_knows_is_a_reset(client: Client, unknown: int) -> None:
    async with client.events(after=unknown) as stream:
        await client.enqueue(other())
        assert kinds(await take(stream, 2)) == [Reset, JobEnqueued]


async def test_a_reader_that_is_too_slow_is_reset_and_others_are_not(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_subscription, "_MOST_BUFFERED", 2)
    async with client.events() as slow, client.events() as quick:
        for _ in range(3):
            await client.enqueue(other())
            assert kinds(await take(quick, 1)) == [JobEnqueued]
        assert kinds(await take(slow, 1)) == [Reset]
        await client.enqueue(other())
        assert kinds(await take(slow, 1)) == [JobEnqueued]


async def test_a_reader_that_has_run_out_is_a_reset(client: Client, fake: FakeStore) -> None:
    async with client.events() as stream:
        fake.advance(3600)
        assert kinds(await take(stream, 1)) == [Reset]
        await client.enqueue(other())
        assert kinds(await take(stream, 1)) == [JobEnqueued]
    assert fake.calls["open_reader"] == 2


@pytest.mark.parametrize("verb", ["open_reader", "begin_events", "read_events"])
async def test_what_fails_is_tried_again(client: Client, fake: FakeStore, verb: str, caplog: pytest.LogCaptureFixture) -> None:
    fake.faults[verb] = ["before", RuntimeError("odd"), "after"]
    async with client.events() as stream:
        await client.enqueue(other())
        assert kinds(await take(stream, 1)) == [JobEnqueued]
    assert [each.levelname for each in caplog.records if "events can't be read" in each.message][:1] == ["WARNING"]


async def test_a_first_step_that_was_cancelled_can_be_repeated(client: Client, fake: FakeStore) -> None:
    fake.gates["begin_events"] = gate = asyncio.Event()
    stream = client.events(after=5)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(stream), 0.001)
    gate.set()
    assert kinds(await take(stream, 1)) == [Reset]


async def test_going_on_needs_the_database(client: Client, fake: FakeStore) -> None:
    fake.faults["resume_events"] = ["before"]
    with pytest.raises(StoreUnavailable):
        async with client.events(after=5):
            pass


async def test_closing_the_client_ends_streams_and_leaves_nothing_behind(fake: FakeStore) -> None:
    async with Client(fake) as client:
        streams = [client.events() for _ in range(3)]
        waiting = [asyncio.ensure_future(anext(each)) for each in streams]
        while not fake.calls["read_events"]:
            await asyncio.sleep(0)
    for each in waiting:
        with pytest.raises(ClientClosed):
            await each
    assert fake.database.events.readers == {}
    assert [task for task in asyncio.all_tasks() if task.get_name() == "aioqueue events"] == []
    with pytest.raises(ClientClosed):
        client.events()


async def test_a_store_without_a_log_says_so(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_event_feed, "SupportsEvents", type("Nobody", (), {}))
    with pytest.raises(NotSupported):
        client.events()


async def test_streams_that_break_off_at_random_see_each_event(each_client: Client) -> None:
    """Three readers, each going on after the newest event that it has seen, while two workers run fifty jobs."""
    try:
        each_client.events()
    except NotSupported:
        pytest.skip("this store keeps no log so far")
    number = 50
    seen: list[dict[Any, list[type[Event]]]] = [{}, {}, {}]
    twice: list[int] = [0, 0, 0]

    async def read(reader: int) -> None:
        after: int | None = None
        known: set[int] = set()
        while sum(each[-1] is JobCompleted for each in seen[reader].values()) < number:
            async with each_client.events(after=after) as stream:
                if after is None:
                    begun[reader].set()
                for _ in range(random.randint(1, 15)):
                    event = await anext(stream)
                    assert isinstance(event, JobEvent)
                    assert event.sequence is not None
                    after = max(after or 0, event.sequence)
                    if event.sequence in known:
                        twice[reader] += 1
                        continue
                    known.add(event.sequence)
                    of_job = seen[reader].setdefault(event.job_id, [])
                    of_job.append(type(event))
                    if len(known) == 3 * number:
                        return

    begun = [asyncio.Event() for _ in seen]
    with anyio.fail_after(60):
        async with asyncio.TaskGroup() as group:
            for reader in range(len(seen)):
                group.create_task(read(reader))
            for each in begun:
                await each.wait()
            await each_client.enqueue_many([add(1, n) for n in range(number)])
            await asyncio.gather(*(Worker(each_client, registry, name=name).run_once() for name in "ab"))
    for of_jobs in seen:
        assert list(of_jobs.values()) == [LIFE] * number
