"""A handler's own transaction: what it writes, what it enqueues and its outcome are committed together, or not at all."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from aioqueue import Call, CallError, Client, CompletionNotDone, JobState, Registry, TransactionError, current_attempt, done
from tests.worker.chains import once, steps, twice
from tests.worker.completing import Notes, outcomes, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue import Attempt
    from aioqueue.definitions._completion import Completion

pytestmark = pytest.mark.anyio
ON_EACH_STORE = True


async def test_writes_and_the_outcome_are_committed_together(client: Client, registry: Registry, notes: Notes) -> None:
    @registry.job
    async def charge(order: int) -> str:
        async with current_attempt().completion() as tx:
            await notes.write(tx, f"charged {order}")
            assert (await tx.fetch("select text from note"))[0][0] == f"charged {order}"
            return tx.done("receipt")

    before = outcomes("charge").get("ok", 0)
    handle = await run(client, registry, charge(7))
    job = await handle.snapshot()
    assert (job.state, job.attempt, await handle.result(timeout=5)) == (JobState.COMPLETED, 1, "receipt")
    assert await notes.all() == ["charged 7"]
    assert outcomes("charge")["ok"] == before + 1


@pytest.mark.parametrize("boom", [False, True])
async def test_other_jobs_end_with_it(client: Client, registry: Registry, boom: bool) -> None:
    @registry.declare
    async def asked(number: int) -> int: ...

    @registry.job(retry=once)
    async def ends(jobs: list[str]) -> None:
        async with current_attempt().completion() as tx:
            await tx.complete(asked, jobs[0], 1)
            await tx.fail(client.handle(asked, jobs[1]), "no")
            await client.complete(asked, jobs[2], 3, tx=tx)
            await client.using(tx).fail(jobs[3], "no")
            await client.enqueue(asked(4), tx=tx)
            if boom:
                raise ZeroDivisionError
            return tx.done(None)

    handles = await client.enqueue_many([asked(number) for number in range(4)])
    await run(client, registry, ends([str(each.id) for each in handles]))
    states = [(await each.snapshot()).state.value for each in handles]
    assert states == ["ready"] * 4 if boom else states == ["completed", "failed"] * 2
    assert len((await client.list_jobs(types=[asked])).jobs) == (4 if boom else 5)


async def test_an_error_rolls_back_writes_outcome_and_continuation(client: Client, registry: Registry, notes: Notes) -> None:
    kept: list[Call[str]] = []

    @registry.job(retry=twice)
    async def step(number: int) -> Call[str]:
        attempt = current_attempt()
        if number == 1:
            return done("end")
        if not kept:
            kept.append(step(1))
        async with attempt.completion() as tx:
            await notes.write(tx, f"try {attempt.number}")
            await tx.enqueue(note_it(attempt.number))
            tx.done(kept[0])
            if attempt.number == 1:
                raise ValueError("boom")
        return kept[0]

    @registry.job
    async def note_it(number: int) -> None:
        async with current_attempt().completion() as tx:
            await notes.write(tx, f"enqueued by {number}")
            tx.done(None)

    handle = await run(client, registry, step(0))
    first, second = await steps(client, handle)
    assert [error.type for error in first.errors] == ["ValueError"]
    assert (first.state, second.id, await handle.result(timeout=5)) == (JobState.CONTINUED, kept[0].id, "end")
    assert await notes.all() == ["enqueued by 2", "try 2"]


async def test_leaving_without_done_rolls_back_and_fails_the_attempt(client: Client, registry: Registry, notes: Notes) -> None:
    @registry.job(retry=once)
    async def forgets() -> None:
        async with current_attempt().completion() as tx:
            await notes.write(tx, "lost")

    handle = await run(client, registry, forgets())
    job = await handle.snapshot()
    assert (job.state, job.errors[0].type) == (JobState.FAILED, CompletionNotDone.__name__)
    assert await notes.all() == []


async def test_what_the_attempt_enqueues_goes_along_and_nothing_after_done(
    client: Client, registry: Registry, notes: Notes
) -> None:
    ran: list[int] = []

    @registry.job
    async def child(number: int) -> int:
        ran.append(number)
        return number

    @registry.job
    async def sum_of(numbers: list[int]) -> None:
        ran.append(sum(numbers))

    @registry.job
    async def parent() -> int:
        attempt = current_attempt()
        attempt.enqueue(child(1))
        async with attempt.completion() as tx:
            attempt.enqueue(sum_of([child(2).output, child(3).output]))
            result = tx.done(5)
            with pytest.raises(CallError, match="has settled its outcome"):
                attempt.enqueue(child(9))
            with pytest.raises(TransactionError, match="done already"):
                tx.done(6)
        with pytest.raises(CallError, match="has settled its outcome"):
            attempt.enqueue(child(9))
        return result

    handle = await run(client, registry, parent())
    assert await handle.result(timeout=5) == 5
    assert sorted(ran) == [1, 2, 3, 5]


async def test_one_that_was_rolled_back_may_be_followed_by_another(client: Client, registry: Registry, notes: Notes) -> None:
    ran: list[str] = []

    @registry.job
    async def child(text: str) -> None:
        ran.append(text)

    @registry.job(retry=once)
    async def tries() -> str:
        attempt = current_attempt()
        call = child("once")
        attempt.enqueue(child("before"))
        with pytest.raises(ValueError, match="boom"):
            async with attempt.completion() as tx:
                await notes.write(tx, "lost")
                await tx.enqueue(call)
                tx.done("first")
                raise ValueError("boom")
        async with attempt.completion() as tx:
            await notes.write(tx, "kept")
            await tx.enqueue(call)
            tx.done("second")
        with pytest.raises(TransactionError, match="was completed in one"):
            async with attempt.completion():
                raise AssertionError
        return "second"

    handle = await run(client, registry, tries())
    assert (await handle.snapshot()).output == "second"
    assert await notes.all() == ["kept"]
    assert sorted(ran) == ["before", "once"]


async def test_a_savepoint_is_rolled_back_alone_with_its_calls_and_its_done(
    client: Client, registry: Registry, notes: Notes
) -> None:
    ran: list[str] = []

    @registry.job
    async def child(text: str) -> None:
        ran.append(text)

    @registry.job(retry=once)
    async def nested() -> str:
        call = child("once")
        async with current_attempt().completion() as tx:
            await notes.write(tx, "kept")
            with pytest.raises(ValueError, match="boom"):
                async with tx.savepoint():
                    await notes.write(tx, "lost")
                    await tx.enqueue(call)
                    tx.done("inner")
                    raise ValueError("boom")
            async with tx.savepoint():
                await tx.enqueue(call)
            return tx.done("outer")

    handle = await run(client, registry, nested())
    assert (await handle.snapshot()).output == "outer"
    assert (await notes.all(), ran) == (["kept"], ["once"])


@pytest.mark.without_postgres
async def test_completion_middlewares_are_within_the_transaction_and_cannot_swallow(client: Client, notes: Notes) -> None:
    said: list[str] = []

    @asynccontextmanager
    async def outer(attempt: Attempt, tx: Completion) -> AsyncIterator[None]:
        said.append(f"outer begins {attempt.job.type}")
        await notes.write(tx, "outer")
        yield
        said.append("outer ends")

    @asynccontextmanager
    async def inner(attempt: Attempt, tx: Completion) -> AsyncIterator[None]:
        said.append("inner begins")
        try:
            yield
        except ValueError:
            said.append("inner swallows")
        await notes.write(tx, "inner")

    part = Registry(completion_middlewares=[inner])
    registry = Registry(completion_middlewares=[outer])

    @part.job(retry=once)
    async def works(*, fails: bool) -> None:
        async with current_attempt().completion() as tx:
            said.append("block")
            tx.done(None)
            if fails:
                raise ValueError("boom")

    registry.include(part)
    job = await (await run(client, registry, works(fails=False))).snapshot()
    assert job.state is JobState.COMPLETED
    assert said == ["outer begins works", "inner begins", "block", "outer ends"]
    assert await notes.all() == ["inner", "outer"]
    job = await (await run(client, registry, works(fails=True))).snapshot()
    assert (job.state, job.errors[0].type) == (JobState.FAILED, "ValueError")
    assert "inner swallows" in said
    assert await notes.all() == ["inner", "outer"]
