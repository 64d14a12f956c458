"""Unique calls, and calls with a chosen id, among what an attempt enqueues with its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from aioqueue import (
    Call,
    Client,
    ConflictingOptions,
    DuplicateJob,
    Fixed,
    JobState,
    Registry,
    Retry,
    Unique,
    Worker,
    WrongJobType,
    current_attempt,
    done,
)
from aioqueue.abc import JobFilter

if TYPE_CHECKING:
    from aioqueue import Job

pytestmark = pytest.mark.anyio
ON_EACH_STORE = True

LATER = 3600.0
ONCE = Retry(max_attempts=1)


async def jobs_of(client: Client, name: str) -> list[Job]:
    return list((await client.store.list(JobFilter(types=frozenset({name})), 100)).jobs)


@pytest.mark.without_postgres
async def test_raising_is_refused_where_nobody_would_hear_of_it(client: Client, registry: Registry) -> None:
    told: list[str] = []

    @registry.job
    async def child(number: int) -> int:
        return number

    @registry.job(retry=ONCE)
    async def parent() -> None:
        call = child(1).options(key="k", unique=Unique(on_conflict="raise"))
        for refused in (call, child(call.output)):
            with pytest.raises(ConflictingOptions) as raised:
                current_attempt().enqueue(refused)
            told.append(str(raised.value))
        await current_attempt().client.enqueue(call)

    @registry.job(retry=ONCE)
    async def begin() -> Call[int]:
        return child(child(2).options(key="other", unique=Unique(on_conflict="raise")).output)

    handle, chain = await client.enqueue(parent()), await client.enqueue(begin())
    await Worker(client, registry).run_once()
    assert (await handle.snapshot()).state is JobState.COMPLETED
    assert len(told) == 2
    assert all('has on_conflict="raise"' in text and "await attempt.client.enqueue(call)" in text for text in told)
    end = await chain.snapshot()
    assert (end.state, [each.type for each in end.errors]) == (JobState.FAILED, ["ConflictingOptions"])
    assert len(await jobs_of(client, "child")) == 1


@pytest.mark.without_postgres
async def test_in_completion_raising_is_for_what_is_enqueued_at_once(client: Client, registry: Registry) -> None:
    @registry.job
    async def child(number: int) -> int:
        return number

    @registry.job(retry=ONCE)
    async def parent() -> Call[int]:
        attempt = current_attempt()
        call = child(2).options(key="k", unique=Unique(on_conflict="raise"))
        async with attempt.completion() as tx:
            with pytest.raises(DuplicateJob, match="child"):
                await tx.enqueue(call)
            with pytest.raises(ConflictingOptions, match=r"child has on_conflict=\"raise\".*`tx\.enqueue\(call\)`"):
                tx.done(child(call.output))
            return tx.done(done(7))

    await client.enqueue(child(1).options(key="k", unique=True, delay=LATER))
    handle = await client.enqueue(parent())
    await Worker(client, registry).run_once()
    job = await handle.snapshot()
    assert (job.state, job.output) == (JobState.COMPLETED, 7)
    assert len(await jobs_of(client, "child")) == 1


async def test_keys_and_chosen_ids_count_there_too(client: Client, registry: Registry) -> None:
    chosen = uuid4()

    @registry.job
    async def child(number: int) -> int:
        return number

    @registry.job
    async def quick() -> None: ...

    @registry.job
    async def parent(number: int) -> None:
        attempt = current_attempt()
        part = child(100 + number)
        waits = child(part.output).options(key="returned", unique=True, delay=LATER)
        attempt.enqueue(waits)
        replaces = Unique(on_conflict="replace")
        attempt.enqueue(child(number).options(key="replaced", unique=replaces, delay=LATER, max_delay=2 * LATER))
        attempt.enqueue(quick().options(id=chosen))

    for number in range(3):
        handle = await client.enqueue(parent(number))
        await Worker(client, registry).run_once()
        assert (await handle.snapshot()).state is JobState.COMPLETED
    # Only the first one's part was needed; the last one's arguments are those of the job that is replaced.
    found = {(each.key, each.payload) for each in await jobs_of(client, "child")}
    assert found == {(None, b'{"number":100}'), ("returned", b'{"number":null}'), ("replaced", b'{"number":2}')}
    (only,) = await jobs_of(client, "quick")
    assert (only.id, only.state) == (chosen, JobState.COMPLETED)


async def test_an_id_of_another_type_fails_that_attempt_alone(client: Client, registry: Registry) -> None:
    chosen = uuid4()

    @registry.job
    async def child(number: int) -> int:
        return number

    @registry.job
    async def other() -> None: ...

    @registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
    async def parent(number: int) -> int:
        attempt = current_attempt()
        attempt.enqueue(child(number).options(delay=LATER))
        if number == 1 and attempt.number == 1:
            attempt.enqueue(other().options(id=chosen))
        return attempt.number

    await client.enqueue(child(0).options(id=chosen, delay=LATER))
    handles = [await client.enqueue(parent(number)) for number in range(3)]
    await Worker(client, registry).run_once()
    found = [await handle.snapshot() for handle in handles]
    assert [(each.state, each.attempt) for each in found] == [(JobState.COMPLETED, 1 + (number == 1)) for number in range(3)]
    (error,) = found[1].errors
    assert error.type == WrongJobType.__name__
    assert all(part in error.message for part in (str(chosen), "other", "choose another id"))
    assert len(await jobs_of(client, "child")) == 4
