"""Enqueueing: alone, many, by name, through middlewares, and what is refused."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from aioqueue.client import Client
from aioqueue.definitions._middleware import EnqueueNext
from aioqueue.errors import ArgumentsError, CallAlreadyEnqueued, ConfigurationError
from aioqueue.vocabulary._job import Inserted, JobState, NewJob
from tests.client.fake_store import FakeStore
from tests.client.jobs import add, completed, fetch, work

pytestmark = pytest.mark.anyio


async def test_an_enqueued_call_is_a_job(client: Client) -> None:
    call = add(1, 2)
    handle = await client.enqueue(call)
    assert handle.id == call.id
    assert handle.created
    assert (await handle.snapshot()).arguments == {"left": 1, "right": 2}
    assert str(handle.id) in repr(handle)


async def test_one_after_another(client: Client) -> None:
    handles = [await client.enqueue(add(number, 1)) for number in range(20)]
    assert len(await client.store.fetch([handle.id for handle in handles])) == 20


async def test_a_call_is_enqueued_once(client: Client) -> None:
    call = add(1, 2)
    await client.enqueue(call)
    with pytest.raises(CallAlreadyEnqueued):
        await client.enqueue(call)
    with pytest.raises(CallAlreadyEnqueued):
        await client.enqueue_many([call.options(priority=1)])
    await client.enqueue(call.copy())


async def test_a_unique_key_gives_the_job_that_is_there(client: Client) -> None:
    first = await client.enqueue(add(1, 2).options(key="sum", unique=True))
    second = await client.enqueue(add(3, 4).options(key="sum", unique=True))
    assert (second.id, second.created) == (first.id, False)
    await work(client.store, completed(b"3"))
    assert await second.result(timeout=60) == 3
    third = await client.enqueue(add(3, 4).options(key="sum", unique=True))
    assert third.created


async def test_many_are_stored_in_order(client: Client) -> None:
    calls = [add(number, 1) for number in range(12_000)]
    handles = await client.enqueue_many(iter(calls))
    assert [handle.id for handle in handles] == [call.id for call in calls]
    jobs = await client.store.fetch([handles[0].id, handles[-1].id])
    assert [job.arguments["left"] for job in jobs if job is not None] == [0, 11_999]


async def test_many_may_be_none(client: Client) -> None:
    assert await client.enqueue_many([]) == []


async def test_many_with_one_that_cant_be_enqueued_are_none(client: Client) -> None:
    calls = [add(number, 1) for number in range(3)]
    with pytest.raises(CallAlreadyEnqueued):
        await client.enqueue_many([*calls, calls[0]])
    assert await client.store.fetch([call.id for call in calls]) == [None] * 3
    assert len(await client.enqueue_many(calls)) == 3


async def test_what_isnt_a_call_is_refused(client: Client) -> None:
    with pytest.raises(TypeError, match=r"test\.add\(\.\.\.\)"):
        await client.enqueue(add)
    with pytest.raises(TypeError):
        await client.enqueue_many(["text"])


async def test_by_name(client: Client) -> None:
    handle = await client.enqueue_by_name("elsewhere.hash", {"path": "a", "sizes": [1, 2**70 // 2**10]}, priority=1, tags=["x"])
    job = await handle.snapshot()
    assert (job.type, job.priority, job.tags) == ("elsewhere.hash", 1, ("x",))
    assert job.arguments == {"path": "a", "sizes": [1, 2**60]}
    await work(client.store, completed(b'{"any":[1]}'), "elsewhere.hash")
    assert await handle.result(timeout=60) == {"any": [1]}


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 300, None, 7])
async def test_names_that_are_refused(fake_client: Client, name: str) -> None:
    with pytest.raises(ConfigurationError):
        await fake_client.enqueue_by_name(name, {})


async def test_arguments_by_name_that_cant_be_stored(fake_client: Client) -> None:
    with pytest.raises(ArgumentsError):
        await fake_client.enqueue_by_name("elsewhere.hash", {"value": float("nan")})
    with pytest.raises(ArgumentsError):
        await fake_client.enqueue_by_name("elsewhere.hash", {"value": object()})


async def test_middlewares_wrap_every_way_to_enqueue(fake: FakeStore) -> None:
    seen: list[str] = []

    def named(name: str) -> object:
        async def middleware(jobs: Sequence[NewJob], call_next: EnqueueNext) -> Sequence[Inserted]:
            seen.append(f"{name} {len(jobs)}")
            return await call_next([dataclasses.replace(job, metadata=b'{"tenant":"%s"}' % name.encode()) for job in jobs])

        return middleware

    async with Client(fake, middlewares=[named("outer"), named("inner")]) as client:
        handle = await client.enqueue(add(1, 2))
        assert (await handle.snapshot()).metadata == {"tenant": "inner"}
        await client.enqueue_many([add(1, 2), add(3, 4)])
        async with client.transaction() as tx:
            await tx.enqueue(add(1, 2))
        await client.enqueue_by_name("elsewhere.hash")
    assert seen == ["outer 1", "inner 1", "outer 2", "inner 2", "outer 1", "inner 1", "outer 1", "inner 1"]


async def test_a_middleware_that_fails_or_loses_jobs(fake: FakeStore) -> None:
    mode = "raise"

    async def middleware(jobs: Sequence[NewJob], call_next: EnqueueNext) -> Sequence[Inserted]:
        if mode == "raise":
            raise LookupError("no tenant")
        return (
            await call_next(jobs[1:])
            if mode == "drop"
            else (await call_next(jobs))[1:]
            if mode == "lose"
            else await call_next(jobs)
        )

    async with Client(fake, middlewares=[middleware]) as client:
        call = add(1, 2)
        with pytest.raises(LookupError):
            await client.enqueue(call)
        mode = "drop"
        with pytest.raises(ConfigurationError, match="pass on"):
            await client.enqueue(call)
        assert not fake.jobs
        mode = "lose"
        with pytest.raises(ConfigurationError, match="return what"):
            await client.enqueue(call)
        mode = "well"
        await client.enqueue(call.copy())


async def test_times_are_exact_whatever_their_zone(client: Client) -> None:
    moment = datetime(2031, 10, 26, 0, 30, tzinfo=UTC)
    berlin = ZoneInfo("Europe/Berlin")
    for at in (moment, moment.astimezone(ZoneInfo("Asia/Tokyo")), datetime(2031, 10, 26, 2, 30, fold=0, tzinfo=berlin)):
        job = await (await client.enqueue(add(1, 2).options(at=at))).snapshot()
        assert job.run_at == moment
        assert job.run_at.utcoffset() == timedelta(0)
        assert job.state is JobState.SCHEDULED
    job = await (await client.enqueue(add(1, 2).options(at=datetime(2031, 10, 26, 2, 30, fold=1, tzinfo=berlin)))).snapshot()
    assert job.run_at == moment + timedelta(hours=1)


async def test_times_at_the_edges(client: Client) -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert (await (await client.enqueue(add(1, 2).options(at=last))).snapshot()).run_at == last
    past = await (await client.enqueue(add(1, 2).options(at=datetime(1970, 1, 1, tzinfo=UTC)))).snapshot()
    assert past.state is JobState.READY
    with pytest.raises(ConfigurationError, match="no time zone"):
        add(1, 2).options(at=datetime(2031, 1, 1))
    with pytest.raises(ConfigurationError):
        add(1, 2).options(delay=-5)
    later = await (await client.enqueue(add(1, 2).options(delay=timedelta(hours=1)))).snapshot()
    assert timedelta(minutes=59) < later.run_at - later.created_at < timedelta(minutes=61)


async def test_concurrent_enqueues_are_all_stored(client: Client) -> None:
    handles = await asyncio.gather(*[client.enqueue(fetch(f"https://example.org/{number}")) for number in range(300)])
    jobs = await client.store.fetch([handle.id for handle in handles])
    assert [job.arguments["url"] for job in jobs if job is not None] == [
        f"https://example.org/{number}" for number in range(300)
    ]
