"""Where a completing transaction is refused, and what can't be written in one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioqueue import (
    ArgumentsError,
    BlockerNotFound,
    Call,
    CallAlreadyEnqueued,
    CallError,
    Client,
    JobState,
    OutsideTransaction,
    Registry,
    TransactionError,
    current_attempt,
    done,
)
from aioqueue.vocabulary._identifiers import new_id
from tests.worker.chains import once, twice
from tests.worker.completing import Notes, run

pytestmark = pytest.mark.anyio
ON_EACH_STORE = True


@pytest.mark.without_postgres
async def test_enqueueing_beside_it_is_refused(client: Client, registry: Registry, notes: Notes) -> None:
    @registry.job
    async def child() -> None: ...

    @registry.job(retry=once)
    async def parent() -> None:
        attempt = current_attempt()
        async with attempt.completion() as tx:
            with pytest.raises(OutsideTransaction):
                await client.enqueue(child())
            with pytest.raises(OutsideTransaction):
                async with client.transaction():
                    raise AssertionError
            with pytest.raises(OutsideTransaction):
                await client.delete(attempt.job.id)
            with pytest.raises(TransactionError, match="has a block of completion"):
                async with attempt.completion():
                    raise AssertionError
            tx.done(None)
            with pytest.raises(TransactionError, match="done already"):
                tx.done(child())  # and it isn't called one that was forgotten
            with pytest.raises(TransactionError, match=r"with tx\.done"):
                await tx.fail(attempt.job.id, "no")
        await client.enqueue(child())

    handle = await run(client, registry, parent())
    assert (await handle.snapshot()).state is JobState.COMPLETED


@pytest.mark.without_postgres
async def test_of_two_tasks_one_completes_it(client: Client, registry: Registry, notes: Notes) -> None:
    results: list[Any] = []

    @registry.job(retry=once)
    async def parent() -> int:
        async def complete(number: int) -> int:
            async with current_attempt().completion() as tx:
                await notes.write(tx, str(number))
                return tx.done(number)

        results.extend(await asyncio.gather(complete(1), complete(2), return_exceptions=True))
        return 1

    job = await (await run(client, registry, parent())).snapshot()
    assert (job.state, job.output, await notes.all()) == (JobState.COMPLETED, 1, ["1"])
    assert results[0] == 1
    assert isinstance(results[1], TransactionError)


@pytest.mark.without_postgres
async def test_a_value_of_another_type_is_refused_as_arguments_are(client: Client, registry: Registry) -> None:
    @registry.job(retry=once)
    async def parent() -> int:
        async with current_attempt().completion() as tx:
            wrong: Any = "text"
            with pytest.raises(ArgumentsError, match=r"^output"):
                tx.done(wrong)
            return tx.done(4)

    assert await (await run(client, registry, parent())).result(timeout=5) == 4


@pytest.mark.without_postgres
async def test_within_another_transaction_and_in_a_thread_it_is_refused(client: Client, registry: Registry) -> None:
    @registry.job(retry=once)
    async def within() -> None:
        async with client.transaction(), current_attempt().completion() as tx:
            tx.done(None)

    @registry.job(retry=once)
    def in_a_thread() -> None:
        attempt = current_attempt()

        async def complete() -> None:
            async with attempt.completion() as tx:
                tx.done(None)

        attempt.from_thread(complete)

    for call, error, text in (
        (within(), "OutsideTransaction", "tx.enqueue"),
        (in_a_thread(), "TransactionError", "async def"),
    ):
        job = await (await run(client, registry, call)).snapshot()
        assert job.state is JobState.FAILED
        assert job.errors[0].type == error
        assert text in job.errors[0].message


@pytest.mark.without_postgres
async def test_after_the_attempt_it_is_refused(client: Client, registry: Registry) -> None:
    kept: list[Any] = []

    @registry.job
    async def leaks() -> None:
        kept.append(current_attempt())

    await run(client, registry, leaks())
    with pytest.raises(TransactionError, match="has ended"):
        async with kept[0].completion():
            raise AssertionError


async def test_what_cannot_be_stored_fails_the_attempt_by_policy(client: Client, registry: Registry, notes: Notes) -> None:
    gone = client.handle(registry.job(nobody), new_id())

    @registry.job(retry=twice)
    async def parent(how: str) -> Call[None]:
        attempt = current_attempt()
        async with attempt.completion() as tx:
            await notes.write(tx, how)
            if attempt.number == 2:
                return tx.done(done(None))
            if how == "blocker":
                attempt.enqueue(registry.types["nobody"]().options(after=[gone]))
                return tx.done(done(None))
            if how == "continuation":
                return tx.done(registry.types["nobody"]().options(after=[gone]))
            if how == "value":
                return tx.done(None)  # wrong on purpose
            call = registry.types["nobody"]()
            await tx.enqueue(call)
            return tx.done(call)

    for how, error in {
        "blocker": BlockerNotFound.__name__,
        "continuation": BlockerNotFound.__name__,
        "value": CallError.__name__,
        "twice": CallAlreadyEnqueued.__name__,
    }.items():
        job = await (await run(client, registry, parent(how))).snapshot()
        assert (job.state, job.attempt, [each.type for each in job.errors]) == (JobState.COMPLETED, 2, [error])
    assert await notes.all() == ["blocker", "continuation", "twice", "value"]


async def nobody() -> None: ...
