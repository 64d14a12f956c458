"""What an attempt enqueues is stored with its outcome, exactly once, or dropped with the attempt."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import (
    BlockerCycle,
    BlockerNotFound,
    Call,
    CallAlreadyEnqueued,
    CallError,
    Client,
    Fail,
    Fixed,
    JobState,
    Registry,
    Reschedule,
    Retry,
    Worker,
    current_attempt,
    done,
)
from aioqueue.abc import JobFilter
from aioqueue.telemetry._counters import LEDGER
from aioqueue.vocabulary._identifiers import new_id
from tests.worker.chains import once
from tests.worker.completing import run

if TYPE_CHECKING:
    from aioqueue import Attempt, Job, JobHandle

pytestmark = pytest.mark.anyio
ON_EACH_STORE = True


async def state(handle: JobHandle[Any]) -> JobState:
    return (await handle.snapshot()).state


async def stored(client: Client, call: Call[Any]) -> bool:
    return (await client.store.fetch_ends([call.id]))[0] is not None


async def jobs_of(client: Client, name: str) -> list[Job]:
    return list((await client.store.list(JobFilter(types=frozenset({name})), 100)).jobs)


async def test_it_is_stored_with_the_outcome_from_async_and_thread_handlers_and_their_threads(
    client: Client, registry: Registry
) -> None:
    ran: list[int] = []

    @registry.job
    async def child(number: int) -> None:
        ran.append(number)

    @registry.job
    async def in_the_loop() -> str:
        current_attempt().enqueue(child(1))
        await asyncio.create_task(later(2))
        return "done"

    async def later(number: int) -> None:
        current_attempt().enqueue(child(number))

    @registry.job
    def in_a_thread() -> None:
        attempt = current_attempt()
        attempt.enqueue(child(3))
        threads = [threading.Thread(target=attempt.enqueue, args=(child(number),)) for number in range(4, 24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for call, before in ((in_the_loop(), 0), (in_a_thread(), 2)):
        handle = await client.enqueue(call)
        await Worker(client, registry).run_once()
        assert await state(handle) is JobState.COMPLETED
        assert len(ran) > before
    assert sorted(ran) == list(range(1, 24))


@pytest.mark.without_postgres
@pytest.mark.parametrize("how", ["raises", "Fail", "Reschedule", "unreadable"])
async def test_it_is_dropped_with_an_attempt_that_does_not_complete_and_may_be_enqueued_again(
    client: Client, registry: Registry, how: str
) -> None:
    kept: list[Call[None]] = []
    ran: list[int] = []

    @registry.job
    async def child(number: int) -> None:
        ran.append(number)

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)), max_reschedules=1)
    async def parent() -> int:
        attempt = current_attempt()
        if not kept:
            kept.append(child(1))
            attempt.enqueue(kept[0])
            if how == "raises":
                raise ValueError("boom")
            if how == "Fail":
                raise Fail("no")
            if how == "Reschedule":
                raise Reschedule(delay=0)
            return "text"  # wrong on purpose
        attempt.enqueue(kept[0])
        return 1

    handle = await client.enqueue(parent())
    await Worker(client, registry).run_once()
    again = how in ("raises", "Reschedule")
    assert await state(handle) is (JobState.COMPLETED if again else JobState.FAILED)
    assert ran == ([1] if again else [])
    if not again:
        await client.enqueue(kept[0])  # it may be


@pytest.mark.without_postgres
async def test_an_interrupted_attempt_drops_it(client: Client, registry: Registry) -> None:
    begun, kept = asyncio.Event(), list[Call[None]]()

    @registry.job
    async def child() -> None: ...

    @registry.job
    async def parent() -> None:
        kept.append(child())
        current_attempt().enqueue(kept[0])
        begun.set()
        await asyncio.Event().wait()

    handle = await client.enqueue(parent())
    worker = Worker(client, registry, grace=0)
    async with worker:
        await asyncio.wait_for(begun.wait(), 10)
    assert await state(handle) is JobState.READY
    assert not await stored(client, kept[0])
    await client.enqueue(kept[0])


@pytest.mark.without_postgres
async def test_a_call_used_twice_fails_the_attempt_by_policy(client: Client, registry: Registry) -> None:
    numbers: list[int] = []

    @registry.job
    async def child() -> None: ...

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
    async def parent() -> None:
        numbers.append(current_attempt().number)
        call = child()
        current_attempt().enqueue(call)
        if len(numbers) == 1:
            current_attempt().enqueue(call)

    handle = await client.enqueue(parent())
    await Worker(client, registry).run_once()
    job = await handle.snapshot()
    assert (job.state, numbers, job.errors[0].type) == (JobState.COMPLETED, [1, 2], "CallAlreadyEnqueued")
    assert [each.state for each in await jobs_of(client, "child")] == [JobState.COMPLETED]


async def test_what_it_waits_for_comes_along_and_its_output_is_filled_in(client: Client, registry: Registry) -> None:
    got: list[object] = []

    @registry.job
    async def part(number: int) -> int:
        return number * 10

    @registry.job
    async def gather(parts: list[int], first: int) -> None:
        got.append((parts, first))

    @registry.job
    async def parent() -> None:
        first = part(1)
        current_attempt().enqueue(first)
        current_attempt().enqueue(gather([part(2).output, part(3).output], first.output))

    await client.enqueue(parent())
    await Worker(client, registry).run_once()
    assert got == [([20, 30], 10)]


async def test_a_continuation_waits_for_what_it_brings_along(client: Client, registry: Registry) -> None:
    @registry.job
    async def part(number: int) -> int:
        return number * 10

    @registry.job
    async def split(count: int) -> Call[int]:
        parts = [part(number) for number in range(count)]
        current_attempt().enqueue(parts[0])
        return total([each.output for each in parts])

    @registry.job
    def total(parts: list[int]) -> Call[int]:
        return done(sum(parts))

    handle = await client.enqueue(split(4))
    await Worker(client, registry).run_once()
    assert await handle.result(timeout=5) == 60


async def test_a_job_enqueues_its_successor_with_its_own_key(client: Client, registry: Registry) -> None:
    ran: list[int] = []

    @registry.job
    async def tick(number: int) -> None:
        ran.append(number)
        if number < 3:
            current_attempt().enqueue(tick(number + 1).options(key="tick", unique=True))

    await client.enqueue(tick(1).options(key="tick", unique=True))
    await Worker(client, registry).run_once()
    assert ran == [1, 2, 3]


async def test_what_cannot_be_stored_fails_the_attempt_by_policy_told_and_counted_once(
    client: Client, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    gone = client.handle(registry.job(nobody), new_id())
    tries: list[int] = []

    @registry.job(retry=Retry(max_attempts=3, backoff=Fixed(0)))
    async def parent(*, follows: bool) -> Call[None]:
        tries.append(current_attempt().number)
        follower = registry.types["nobody"]().options(after=[gone])
        if follows:
            return follower
        current_attempt().enqueue(follower)
        return done(None)

    for follows in (False, True):
        before, counted = len(tries), LEDGER.total().of("parent").outcomes.copy()
        caplog.clear()
        with caplog.at_level(logging.INFO, "aioqueue.worker"):
            handle = await client.enqueue(parent(follows=follows))
            await Worker(client, registry).run_once()
        job = await handle.snapshot()
        assert (job.state, tries[before:]) == (JobState.FAILED, [1, 2, 3])
        assert [each.type for each in job.errors] == [BlockerNotFound.__name__] * 3
        ends = [record for record in caplog.records if getattr(record, "event", "") == "attempt.ended"]
        assert [getattr(record, "outcome", "") for record in ends] == ["retried", "retried", "failed"]
        now = LEDGER.total().of("parent").outcomes
        added = {name.value: now[name] - counted[name] for name in now if now[name] != counted[name]}
        assert added == {"retry": 2, "failed": 1}
    gc.collect()


async def nobody() -> None: ...


async def test_a_chain_that_would_wait_for_itself_fails_its_attempt(client: Client, registry: Registry) -> None:
    @registry.job(retry=once)
    async def waits() -> Call[None]:
        attempt = current_attempt()
        itself = client.handle(registry.types["waits"], attempt.job.chain_id)
        between = registry.types["nobody"]().options(after=[itself])
        return registry.types["nobody"]().options(after=[between])

    registry.job(nobody)
    job = await (await run(client, registry, waits())).snapshot()
    assert (job.state, job.errors[0].type) == (JobState.FAILED, BlockerCycle.__name__)
    assert await jobs_of(client, "nobody") == []


@pytest.mark.without_postgres
async def test_a_refused_outcome_is_repaired_by_the_next_attempt(client: Client, registry: Registry) -> None:
    gone = client.handle(registry.job(nobody), new_id())

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
    async def parent() -> int:
        attempt = current_attempt()
        attempt.enqueue(registry.types["nobody"]())
        if attempt.number == 1:
            attempt.enqueue(registry.types["nobody"]().options(after=[gone]))
        return attempt.number

    handle = await client.enqueue(parent())
    await Worker(client, registry).run_once()
    assert await handle.result(timeout=5) == 2
    assert len(await jobs_of(client, "nobody")) == 1


@pytest.mark.without_postgres
async def test_outside_of_a_running_attempt_it_is_refused(client: Client, registry: Registry) -> None:
    kept: list[Attempt] = []

    @registry.job
    async def child() -> None: ...

    @registry.job(retry=once)
    async def parent(*, fails: bool) -> None:
        kept.append(current_attempt())
        if fails:
            raise ValueError("boom")

    for fails in (False, True):
        await client.enqueue(parent(fails=fails))
        await Worker(client, registry).run_once()
        with pytest.raises(CallError, match="has ended"):
            kept[-1].enqueue(child())
    with pytest.raises(RuntimeError, match="current_attempt"):
        current_attempt()
    with pytest.raises(TypeError, match="enqueue takes a call"):
        kept[-1].enqueue(child)  # wrong on purpose
    with pytest.raises(CallError, match="finished value"):
        kept[-1].enqueue(done(1))


@pytest.mark.without_postgres
async def test_enqueued_jobs_are_counted_when_they_are_stored(client: Client, registry: Registry) -> None:
    @registry.job
    async def child() -> None: ...

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
    async def parent() -> None:
        current_attempt().enqueue(child())
        if current_attempt().number == 1:
            raise ValueError("boom")

    before = LEDGER.total().enqueued.get("child", 0)
    await client.enqueue(parent())
    await Worker(client, registry).run_once()
    assert LEDGER.total().enqueued["child"] - before == 1


@pytest.mark.without_postgres
async def test_a_call_that_was_dropped_with_its_attempt_does_not_warn(client: Client, registry: Registry) -> None:
    @registry.job
    async def child() -> None: ...

    @registry.job(retry=once)
    async def parent() -> None:
        current_attempt().enqueue(child())
        raise ValueError("boom")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await client.enqueue(parent())
        await Worker(client, registry).run_once()
        gc.collect()


@pytest.mark.without_postgres
async def test_enqueueing_it_elsewhere_too_is_refused(client: Client, registry: Registry) -> None:
    @registry.job
    async def child() -> None: ...

    @registry.job(retry=once)
    async def parent() -> None:
        call = child()
        current_attempt().enqueue(call)
        with pytest.raises(CallAlreadyEnqueued):
            await current_attempt().client.enqueue(call)

    handle = await client.enqueue(parent())
    await Worker(client, registry).run_once()
    assert await state(handle) is JobState.COMPLETED
