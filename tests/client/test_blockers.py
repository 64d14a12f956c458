"""What operators see and change of jobs that wait for each other, and blocks within a transaction."""

from __future__ import annotations

from typing import Any

import pytest

from aioqueue import (
    BlockerReference,
    Changed,
    Client,
    ConfigurationError,
    JobHandle,
    JobNotFound,
    JobState,
    NotCommitted,
    ReasonCode,
    Registry,
    TransactionError,
    Unique,
)
from tests.client.jobs import fetch, nothing

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::aioqueue.CallNeverEnqueued")]

registry = Registry(prefix="waits.")


@registry.job
async def page(url: str) -> int:
    return len(url)


@registry.declare
def approve(order: int) -> bool:
    raise NotImplementedError


@registry.job
async def total(pages: list[int]) -> int:
    return sum(pages)


async def test_who_waits_for_whom_is_shown(each_client: Client) -> None:
    pages = [page(str(number)) for number in range(3)]
    waiting = await each_client.enqueue(total([each.output for each in pages]))
    shown = await each_client.blockers(waiting)
    assert [each.chain_id for each in shown] == [each.id for each in pages]
    assert [(each.ordinal, each.settled, each.resolved, each.type, each.state) for each in shown] == [
        (number, False, False, "waits.page", JobState.READY) for number in range(3)
    ]
    assert [each.ordinal for each in await each_client.blockers(waiting.id, limit=1, after=0)] == [1]
    (dependent,) = await each_client.dependents(pages[0].id)
    assert (dependent.job_id, dependent.chain_id) == (waiting.id, pages[0].id)
    await each_client.complete(page, pages[0].id, 1)
    assert [each.resolved for each in await each_client.blockers(str(waiting.id))] == [True, False, False]
    assert await each_client.dependents(pages[0].id) == []
    assert await each_client.blockers(pages[0].id) == []
    for look in (each_client.blockers, each_client.dependents):
        with pytest.raises(JobNotFound):
            await look(page("x").to_new_job().id)
        with pytest.raises(ConfigurationError):
            await look(waiting, limit=0)


async def test_what_others_wait_for_isnt_deleted_and_they_are_named(each_client: Client) -> None:
    call = page("a")
    waiting = await each_client.enqueue(total([call.output]))
    other = await each_client.enqueue(page("b"))
    with pytest.raises(BlockerReference, match=rf"jobs wait for it: {waiting.id} of waits\.total\. cascade") as caught:
        await each_client.delete(call.id, other)
    error = caught.value
    assert (error.job_id, error.job_type, error.dependents) == (call.id, "waits.page", (waiting.id,))
    assert error.changed == {call.id: Changed.BLOCKS, other.id: Changed.DONE}
    with pytest.raises(JobNotFound):
        await each_client.job(other)
    assert await each_client.delete(call.id, cascade=True) == {call.id: Changed.DONE}
    for _ in range(10):
        if not (await each_client.store.tend(100)).more:
            break
    for job_id in (call.id, waiting.id):
        with pytest.raises(JobNotFound):
            await each_client.job(job_id)


async def test_with_a_retry_those_that_failed_through_it_live_again(each_client: Client) -> None:
    call = page("a")
    waiting = await each_client.enqueue(total([call.output]))
    await each_client.fail(call.id, "no")
    assert (await each_client.job(waiting)).state is JobState.FAILED
    assert await each_client.retry(waiting) == {waiting.id: Changed.BLOCKER_FAILED}
    assert await each_client.retry(call.id, cascade=True) == {call.id: Changed.DONE}
    job = await each_client.job(waiting)
    assert (job.state, job.open_blockers) == (JobState.BLOCKED, 1)
    await each_client.fail(call.id, "no")
    await each_client.retry(call.id)
    assert (await each_client.job(waiting)).state is JobState.FAILED
    assert await each_client.retry(waiting) == {waiting.id: Changed.DONE}
    assert (await each_client.job(waiting)).state is JobState.BLOCKED


async def test_a_block_within_a_transaction_is_rolled_back_alone(each_client: Client) -> None:
    before, within, nested = page("before"), page("within"), page("nested")
    gone: list[JobHandle[int]] = []
    async with each_client.transaction() as tx:
        await tx.enqueue(before)
        with pytest.raises(ZeroDivisionError):
            async with tx.savepoint():
                gone.append(await tx.enqueue(total([within.output])))
                async with tx.savepoint():
                    gone.append(await tx.enqueue(nested))
                with pytest.raises(NotCommitted):
                    await gone[-1].result()
                raise ZeroDivisionError
        for handle in gone:
            with pytest.raises(JobNotFound, match="rolled back"):
                await handle.result()
        again = await tx.enqueue(nested)
        async with tx.savepoint():
            kept = await tx.enqueue(total([within.output, again.output]))
        with pytest.raises(NotCommitted):
            await kept.result()
    states = [(await each_client.job(each.id)).state for each in (before, within, nested, kept)]
    assert states == [JobState.READY] * 3 + [JobState.BLOCKED]
    with pytest.raises(TransactionError):
        async with tx.savepoint():
            pass


async def test_a_transaction_that_is_rolled_back_takes_its_blocks_along(each_client: Client) -> None:
    call = page("a")
    handles: list[JobHandle[int]] = []
    with pytest.raises(ZeroDivisionError):
        async with each_client.transaction() as tx:
            async with tx.savepoint():
                handles.append(await tx.enqueue(call))
            raise ZeroDivisionError
    with pytest.raises(JobNotFound, match="rolled back"):
        await handles[0].result()
    assert (await each_client.enqueue(call)).created


async def test_why_names_what_a_job_waits_for(each_client: Client) -> None:
    pages = [page(str(number)) for number in range(12)]
    waiting = await each_client.enqueue(total([each.output for each in pages]))
    await each_client.complete(page, pages[0].id, 1)
    (reason,) = (await each_client.why(waiting)).reasons
    assert reason.code is ReasonCode.BLOCKED
    assert reason.text.startswith(f"it waits for 11 chains: waits.page {pages[1].id} (ready), ")
    assert reason.text.endswith(f"{pages[10].id} (ready) and 1 more")
    assert f"aioqueue jobs why {pages[1].id}" in reason.advice


async def test_why_says_that_a_declared_job_waits_for_an_answer(each_client: Client) -> None:
    handle = await each_client.enqueue(approve(1))
    (reason,) = (await each_client.why(handle)).reasons
    assert (reason.code, f"jobs complete {handle.id}" in reason.advice) == (ReasonCode.UNANSWERED, True)
    by_id = (await each_client.why(handle.id)).reasons
    assert [each.code for each in by_id] == [ReasonCode.NO_WORKER]
    await each_client.store.open_lease("w", 60, types=["waits.approve"])
    assert [each.code for each in (await each_client.why(handle)).reasons] == [ReasonCode.ABOUT_TO_START]


async def test_why_one_that_took_a_key_over_waits(each_client: Client) -> None:
    options: dict[str, Any] = {"key": "k", "unique": Unique(on_conflict="replace")}
    first = await each_client.enqueue(nothing().options(**options))
    lease = await each_client.store.open_lease("one", 600)
    await each_client.store.claim(lease, [nothing.name], 1)
    other = await each_client.enqueue(fetch("a").options(delay=3600))
    second = await each_client.enqueue(nothing().options(after=[other], **options))
    assert second.id != first.id
    blocked, replaced = (await each_client.why(second)).reasons
    assert (blocked.code, blocked.text) == (ReasonCode.BLOCKED, f"it waits for 1 chain: test.fetch {other.id} (scheduled)")
    assert replaced.code is ReasonCode.KEY_TAKEN_OVER
    assert f"took its unique key over from test.nothing {first.id} (running)" in replaced.text
    assert f"aioqueue jobs fail {first.id}" in replaced.advice
    await each_client.complete_by_name(fetch.name, other, None)
    assert [each.code for each in (await each_client.why(second)).reasons] == [ReasonCode.KEY_TAKEN_OVER]
