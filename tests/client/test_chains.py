"""Chains, as their producers and operators see them: results, errors, and any step's id."""

from __future__ import annotations

import asyncio

import pytest

from aioqueue import (
    Changed,
    Client,
    ConfigurationError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobState,
    ResultError,
    ResultTimeout,
    Worker,
)
from aioqueue.abc import Notification
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import SettlementKind
from tests.client.chains import HOUR, continued, count, go_on, opened, plain, registry, step_ids, until
from tests.client.fake_store import FakeStore
from tests.client.jobs import Page, ended

pytestmark = pytest.mark.anyio


async def test_the_result_is_that_of_the_last_step_by_any_steps_id(each_url: str) -> None:
    async with opened(each_url) as (client, worker):
        handle = await client.enqueue(count(2))
        waiting = asyncio.create_task(handle.result(timeout=60))
        await worker.run_once()
        assert await waiting == Page("done", 7)
        steps = await step_ids(client, handle.id)
        assert len(steps) == 4
        assert steps[0] == handle.id
        for each in steps:
            assert await client.handle(count, each).result(timeout=60) == Page("done", 7)
            assert await client.handle(count, each).result(timeout=0) == Page("done", 7)
            end = await client.chain(each)
            assert (end.id, end.chain_id, end.position, end.state) == (steps[3], handle.id, 3, JobState.COMPLETED)
            assert (await client.handle(count, each).snapshot()).id == steps[3]
        assert [(await client.job(each)).state for each in steps] == [JobState.CONTINUED] * 3 + [JobState.COMPLETED]


async def test_who_waits_by_a_later_steps_id_is_told_of_the_chains_end(each_url: str) -> None:
    """Ends are told by the chains' ids; nobody polls here."""
    async with Client(each_url, poll_interval=600) as client:
        worker = Worker(client, registry)
        handle = await client.enqueue(count(0, then="wait"))
        await worker.run_once()
        (_first, second, third) = await step_ids(client, handle.id)
        waiting = [asyncio.create_task(client.handle(count, each).result(timeout=60)) for each in (second, third, handle.id)]
        await asyncio.sleep(0)
        with pytest.raises(ResultTimeout) as late:
            await client.handle(count, second).result(timeout=0.01)
        assert (late.value.job_id, late.value.chain_id) == (third, handle.id)
        assert await client.run_now(second) == {second: Changed.DONE}
        await worker.run_once()
        assert await asyncio.gather(*waiting) == [Page("done", 7)] * 3


async def test_who_waits_by_a_later_steps_id_outlasts_that_step(each_url: str) -> None:
    """Continued steps of a living chain may be pruned."""
    async with Client(each_url, poll_interval=600) as client:
        worker = Worker(client, registry)
        handle = await client.enqueue(count(0, then="wait"))
        await worker.run_once()
        second = (await step_ids(client, handle.id))[1]
        waiting = asyncio.create_task(client.handle(count, second).result(timeout=60))
        waiters = client._session.opened().waiters
        await until(lambda: set(waiters._wanted) == {handle.id})
        assert await client.prune(older_than=0, states=["continued"]) == 2
        with pytest.raises(JobNotFound):  # nothing says any more whose step that was
            await client.chain(second)
        await client.run_now(handle)
        await worker.run_once()
        assert await waiting == Page("done", 7)


async def test_an_end_that_is_told_before_its_chain_is_known(fake: FakeStore) -> None:
    """A waiter who gave a later step's id doesn't recognise it, and so looks once more."""
    async with Client(fake, poll_interval=600) as client:
        first, second = await continued(client)
        fake.gates["fetch_ends"] = asyncio.Event()
        waiting = asyncio.create_task(client.handle(count, second).result(timeout=60))
        await until(lambda: fake.calls["fetch_ends"] > 0)
        fake.tell(Notification(finished=frozenset({first})))  # as if it had ended after the look that is on its way
        fake.gates.pop("fetch_ends").set()
        await until(lambda: fake.calls["fetch_ends"] == 2)
        fake.finish(second, output=b'{"url":"u","size":1}')
        assert await waiting == Page("u", 1)
        assert fake.calls["fetch_ends"] <= 4


async def test_those_who_wait_for_a_chain_by_different_ids_share_its_look_ups(fake: FakeStore) -> None:
    async with Client(fake, poll_interval=600) as client:
        first, second = await continued(client)
        handles = [client.handle(count, each) for each in (first, second, first, second)]
        tasks = [asyncio.create_task(each.result(timeout=60)) for each in handles]
        await until(lambda: fake.calls["fetch_ends"] == 2)
        cancelled = tasks.pop()
        cancelled.cancel()
        fake.finish(second, output=b'{"url":"u","size":1}')
        assert await asyncio.gather(*tasks) == [Page("u", 1)] * 3
        assert fake.calls["fetch_ends"] <= 3
        await until(lambda: not fake.subscribed)


async def test_a_chain_that_goes_on_is_no_end(fake: FakeStore) -> None:
    """A store that can't tell whose end it was wakes everybody."""
    async with Client(fake, poll_interval=600) as client:
        handle = await client.enqueue(count(1))
        waiting = asyncio.create_task(handle.result(timeout=60))
        await until(lambda: fake.calls["fetch_ends"] == 1)
        await go_on(fake, count(0).to_new_job())
        fake.tell(Notification(finished=None))
        await until(lambda: fake.calls["fetch_ends"] == 2)
        (end,) = await fake.fetch_ends([handle.id])
        assert end is not None
        assert not waiting.done()
        fake.finish(end.id, output=b'{"url":"u","size":1}')
        assert await waiting == Page("u", 1)


async def test_a_thousand_chains_share_a_few_lookups(fake: FakeStore) -> None:
    async with Client(fake, poll_interval=600) as client:
        handles = await client.enqueue_many([count(1) for _ in range(1000)])
        tasks = [asyncio.create_task(handle.result(timeout=60)) for handle in handles]
        await until(lambda: fake.calls["fetch_ends"] == 2)
        await go_on(fake, *(count(0).to_new_job() for _ in handles))
        assert fake.calls["fetch_ends"] == 2, "nobody looks at a chain that goes on"
        ends = [each.id for each in await fake.fetch_ends([handle.id for handle in handles]) if each is not None]
        assert len(ends) == 1000
        fake.finish(*ends, output=b'{"url":"u","size":1}')
        assert await asyncio.gather(*tasks) == [Page("u", 1)] * 1000
        assert fake.calls["fetch_ends"] <= 6


async def test_errors_name_the_step_and_the_chain(each_url: str) -> None:
    async with opened(each_url) as (client, worker):
        handle = await client.enqueue(count(1, then="fail"))
        await worker.run_once()
        steps = await step_ids(client, handle.id)
        for each in steps:
            with pytest.raises(JobFailed, match=f"chains.last, step 2 of the chain {handle.id}, has failed") as failed:
                await client.handle(count, each).result(timeout=60)
            assert (failed.value.job_id, failed.value.chain_id) == (steps[2], handle.id)
            assert (failed.value.job_type, failed.value.last_error) == ("chains.last", "Fail: no such page")

        waits = await client.enqueue(count(0, then="wait"))
        await worker.run_once()
        end = await client.chain(waits)
        for timeout in (0, 0.01):
            with pytest.raises(ResultTimeout, match=f"step 2 of the chain {waits.id}, isn't finished .* scheduled") as late:
                await waits.result(timeout=timeout)
            assert (late.value.job_id, late.value.chain_id) == (end.id, waits.id)
        await client.run_now(waits)
        lease = await client.store.open_lease("w", HOUR)
        (claimed,) = await client.store.claim(lease, ["chains.last"], 1)
        await client.store.settle([ended(SettlementKind.CANCELLED, "too late")(claimed)])
        with pytest.raises(JobCancelled, match="too late") as cancelled:
            await waits.result(timeout=60)
        assert (cancelled.value.job_id, cancelled.value.chain_id) == (end.id, waits.id)

        unknown = new_id()
        for look in (client.chain(unknown), client.chain_jobs(unknown), client.handle(count, unknown).result(timeout=60)):
            with pytest.raises(JobNotFound) as missing:
                await look
            assert (missing.value.job_id, missing.value.chain_id) == (unknown, unknown)


async def test_a_timeout_names_the_step_where_the_chain_is_by_then(fake: FakeStore) -> None:
    """Nobody has told the waiter that the chain went on."""
    async with Client(fake, poll_interval=600) as client:
        handle = await client.enqueue(count(1))
        waiting = asyncio.create_task(handle.result(timeout=0.2))
        await until(lambda: fake.calls["fetch_ends"] == 1)
        following = count(0).to_new_job()
        await go_on(fake, following)
        with pytest.raises(
            ResultTimeout, match=f"step 1 of the chain {handle.id}, isn't finished after 0.2 s: it is ready"
        ) as late:
            await waiting
        assert (late.value.job_id, late.value.chain_id) == (following.id, handle.id)
        assert fake.calls["fetch_ends"] == 2


async def test_those_whose_time_is_over_together_share_their_last_look(fake: FakeStore) -> None:
    async with Client(fake, poll_interval=600) as client:
        handles = await client.enqueue_many([count(1) for _ in range(100)])
        late = await asyncio.gather(*(each.result(timeout=0.1) for each in handles), return_exceptions=True)
        assert {type(each) for each in late} == {ResultTimeout}
        assert fake.calls["fetch_ends"] <= 10


async def test_an_end_that_only_the_last_look_sees_is_the_result(fake: FakeStore) -> None:
    async with Client(fake, poll_interval=600) as client:
        handle = await client.enqueue(count(0))
        waiting = asyncio.create_task(handle.result(timeout=0.2))
        await until(lambda: fake.calls["fetch_ends"] == 1)
        fake.finish(handle.id, output=b'{"url":"u","size":1}', tell=False)
        assert await waiting == Page("u", 1)


async def test_a_database_that_does_not_answer_holds_up_no_timeout_for_long(fake: FakeStore) -> None:
    async with Client(fake, poll_interval=600) as client:
        first, second = await continued(client)
        waiting = asyncio.create_task(client.handle(count, first).result(timeout=0.1))
        await until(lambda: fake.calls["fetch_ends"] == 1)
        fake.gates["fetch_ends"] = asyncio.Event()
        with pytest.raises(ResultTimeout) as late:
            await asyncio.wait_for(waiting, 30)
        assert (late.value.job_id, late.value.chain_id) == (second, first)
        fake.gates.pop("fetch_ends").set()


async def test_a_chain_that_is_deleted_while_a_later_steps_id_waits(fake: FakeStore) -> None:
    async with Client(fake, poll_interval=0.05) as client:
        first, second = await continued(client)
        waiting = asyncio.create_task(client.handle(count, second).result(timeout=60))
        await until(lambda: fake.calls["fetch_ends"] == 2)
        await client.delete(first)
        with pytest.raises(JobNotFound) as missing:
            await waiting
        assert (missing.value.job_id, missing.value.chain_id) == (second, first)


async def test_an_output_that_isn_t_what_the_chain_s_type_declares(each_url: str) -> None:
    async with opened(each_url) as (client, worker):
        handle = await client.enqueue(count(0))
        await worker.run_once()
        with pytest.raises(ResultError, match=f"step 1 of the chain {handle.id}") as caught:
            await client.handle(plain, handle.id).result(timeout=60)
        assert (caught.value.job_id, caught.value.chain_id) == ((await client.chain(handle)).id, handle.id)


async def test_a_job_alone_is_a_chain_of_one(each_url: str) -> None:
    async with opened(each_url) as (client, worker):
        handle = await client.enqueue(plain())
        await worker.run_once()
        assert await handle.result(timeout=60) == 1
        assert await client.chain(handle) == await client.job(handle)
        assert (await client.chain_jobs(handle)).jobs == (await client.job(handle),)


async def test_a_chain_s_steps_page_by_page(each_url: str) -> None:
    async with opened(each_url) as (client, worker):
        handle = await client.enqueue(count(4))
        await worker.run_once()
        seen: list[int] = []
        cursor: str | None = None
        for _ in range(3):
            page = await client.chain_jobs((await client.chain(handle)).id, limit=2, cursor=cursor)
            seen += [each.position for each in page.jobs]
            cursor = page.cursor
        assert (seen, cursor) == (list(range(6)), None)
        for limit in (0, 1001):
            with pytest.raises(ConfigurationError, match="limit"):
                await client.chain_jobs(handle, limit=limit)
        with pytest.raises(ValueError, match="cursor"):
            await client.chain_jobs(handle, cursor="x")
        with pytest.raises(ValueError, match="UUID"):
            await client.chain("x")


async def test_operators_may_give_any_steps_id(each_url: str) -> None:
    async with opened(each_url) as (client, worker):
        handle = await client.enqueue(count(1, then="fail"))
        await worker.run_once()
        first, second, third = await step_ids(client, handle.id)
        assert await client.retry(second) == {second: Changed.DONE}
        assert (await client.chain(first)).state is JobState.READY
        await worker.run_once()
        assert (await client.chain(first)).attempt == 1
        deleted = await client.delete(second, str(first), third)
        assert list(deleted) == [second, first, third]
        assert deleted[second] is Changed.DONE
        assert set(deleted.values()) <= {Changed.DONE, Changed.NOT_FOUND}  # the others', as the store finds them
        with pytest.raises(JobNotFound):
            await client.chain(first)
        with pytest.raises(JobNotFound):
            await handle.result(timeout=60)


async def test_a_chain_whose_last_step_was_pruned_has_no_result(each_url: str) -> None:
    """And nobody waits for it for ever."""
    async with Client(each_url, poll_interval=0.05) as client:
        handle = await client.enqueue(count(1))
        await Worker(client, registry).run_once()
        assert await client.prune(older_than=0, states=["completed"]) == 1
        for timeout in (None, 0, 60):
            with pytest.raises(JobNotFound):
                await handle.result(timeout=timeout)
        assert ((await client.chain(handle)).position, (await handle.snapshot()).state) == (1, JobState.CONTINUED)
        why = await client.why(handle)
        assert "the last steps of the chain have been removed" in why.reasons[0].text
