"""Chains that are enqueued again: with the unique key of one that lives, and after a commit that was unclear."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioqueue import Changed, Client, JobNotFound
from aioqueue.vocabulary._abilities import SupportsPrune
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import SettlementKind, StoredState
from tests.client.chains import HOUR, count, go_on, last, opened, settled, until
from tests.client.fake_store import FakeStore
from tests.client.jobs import Page

if TYPE_CHECKING:
    from uuid import UUID

pytestmark = pytest.mark.anyio


async def test_a_conflicts_handle_has_the_chains_id(each_url: str) -> None:
    async with opened(each_url) as (client, worker):
        handle = await client.enqueue(count(0, then="wait").options(key="k", unique=True))
        await worker.run_once()
        again = await client.enqueue(count(0).options(key="k", unique=True))
        assert (again.id, again.created) == (handle.id, False)
        assert (await again.snapshot()).position == 2
        assert await client.run_now(again) == {handle.id: Changed.DONE}
        await worker.run_once()
        assert await again.result(timeout=60) == Page("done", 7)
        assert (await client.enqueue(count(0).options(key="k", unique=True))).created


async def test_a_unique_key_through_a_chains_life(each_url: str) -> None:
    """Row by row what the table of docs/how-to/chains.md says."""
    async with opened(each_url) as (client, worker):
        store = client.store
        lease = await store.open_lease("tests", HOUR)

        async def another() -> tuple[UUID, bool]:
            handle = await client.enqueue(count(9).options(key="k", unique=True))
            return handle.id, handle.created

        first = await client.enqueue(count(1, then="fail").options(key="k", unique=True, delay=HOUR))
        had = (first.id, False)
        assert await another() == had, "scheduled"
        await client.run_now(first)
        assert await another() == had, "ready"
        (claimed,) = await store.claim(lease, ["chains.count"], 1)
        assert await another() == had, "running"
        await store.settle([settled(claimed, lease, SettlementKind.RETRIED, delay=HOUR)])
        assert await another() == had, "waiting for its next attempt"
        await client.run_now(first)
        (claimed,) = await store.claim(lease, ["chains.count"], 1)
        following = last("fail").options(delay=HOUR).to_new_job()
        await store.settle([settled(claimed, lease, SettlementKind.CONTINUED, following=following)])
        assert await another() == had, "at a step of another type, scheduled"
        await client.run_now(first)
        assert await another() == had, "at a step of another type, ready"
        await client.prune(older_than=0, states=["continued"])
        assert await another() == had, "its first step was pruned"
        (claimed,) = await store.claim(lease, ["chains.last"], 1)
        assert await another() == had, "at a step of another type, running"
        await store.settle([settled(claimed, lease, SettlementKind.FAILED)])

        assert await client.retry(first) == {first.id: Changed.DONE}
        assert await another() == had, "retried"
        await worker.run_once()
        second, created = await another()
        assert (created, second != first.id) == (True, True), "it has failed"
        assert await client.retry(first) == {first.id: Changed.KEY_HELD}, "another has begun"

        assert await another() == (second, False)
        assert await client.delete(second) == {second: Changed.DONE}
        for kind in (SettlementKind.COMPLETED, SettlementKind.CANCELLED):
            chain_id, created = await another()
            assert created, "deleted, completed"
            (claimed,) = await store.claim(lease, ["chains.count"], 1)
            assert claimed.chain_id == chain_id
            await store.settle([settled(claimed, lease, kind)])
        assert (await another())[1], "cancelled"


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("unique", [False, True])
async def test_what_an_unclear_commit_stored_may_have_gone_on_meanwhile(fake: FakeStore, *, many: bool, unique: bool) -> None:
    async with Client(fake) as client:
        call = count(1).options(key="k", unique=True) if unique else count(1)
        fake.faults["insert"] = ["after"]
        fake.gates["insert"] = asyncio.Event()
        fake.gates["insert"].set()
        enqueuing = asyncio.create_task(client.enqueue_many([call]) if many else client.enqueue(call))
        await until(lambda: bool(fake.jobs))
        fake.gates["insert"].clear()
        await go_on(fake, count(0).to_new_job())
        fake.gates.pop("insert").set()
        result = await enqueuing
        handle = result[0] if isinstance(result, list) else result
        assert (handle.id, handle.created) == (call.id, True)
        assert len(fake.jobs) == 2, "stored once, and one step on"


async def test_a_chain_whose_first_step_was_pruned_isn_t_stored_again(each_url: str) -> None:
    """An enqueue whose commit was unclear looks for what it has stored."""
    async with opened(each_url) as (client, worker):
        handle = await client.enqueue(count(0, then="wait"))
        await worker.run_once()
        assert isinstance(client.store, SupportsPrune)
        await client.store.prune(StoredState.CONTINUED, 0.0, None, 100)
        with pytest.raises(JobNotFound):
            await client.job(handle)
        assert await client._session.opened().enqueuer._inserter.find([handle.id, new_id()]) == {handle.id}
        await client.run_now(handle)
        await worker.run_once()
        assert await handle.result(timeout=60) == Page("done", 7)
