"""Ticks on real databases."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from aioqueue import Client, Registry, Worker
from aioqueue.abc import SupportsSchedules
from aioqueue.vocabulary._schedules import TickOutcome
from tests.worker.scheduling import decided, definition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._schedules import DecidedTick

pytestmark = pytest.mark.anyio

registry = Registry()


@registry.job
async def work() -> None: ...


@registry.job
async def bad() -> None: ...


def keeper(client: Client) -> SupportsSchedules:
    assert isinstance(client.store, SupportsSchedules)
    return client.store


@pytest.mark.both_stores
async def test_three_hundred_that_are_due_in_one_second_are_enqueued_within_five(client: Client) -> None:
    store = keeper(client)
    names = [f"s{number:03}" for number in range(300)]
    await store.put_schedules([definition(work(), name, every=2.0) for name in names])
    async with Worker(client, registry, concurrency=1):
        await decided(store, names[-1])
        while True:
            found = await store.fetch_schedules(names)
            ticks: list[Sequence[DecidedTick]] = [each.ticks for each in found if each is not None]
            if all(ticks):
                break
            await asyncio.sleep(0.05)
    first = [each[-1] for each in ticks]
    assert {each.outcome for each in first} == {TickOutcome.ENQUEUED}
    late = [(each.decided_at - each.nominal_time).total_seconds() for each in first]
    assert max(late) < 5


REFUSES = {
    "sqlite": [
        """create trigger no_bad_jobs before insert on job when new.type = 'bad'
        begin select raise(abort, 'not on my watch'); end""",
    ],
    "postgresql": [
        """create function not_on_my_watch() returns trigger language plpgsql as
        $$begin raise exception 'not on my watch'; end$$""",
        """create trigger no_bad_jobs before insert on aioqueue.job for each row when (new.type = 'bad')
        execute function not_on_my_watch()""",
    ],
}


@pytest.mark.both_stores
async def test_a_job_that_a_trigger_refuses_is_taken_out_of_its_batch(client: Client, url: str) -> None:
    """Its tick is recorded as skipped, with the reason, and the others are enqueued."""
    store = keeper(client)
    async with client.transaction() as tx:
        for statement in REFUSES[url.partition(":")[0]]:
            await tx.execute(statement)
    names = [f"good{number}" for number in range(10)]
    await store.put_schedules([definition(bad(), every=1.0), *(definition(work(), name, every=1.0) for name in names)])
    async with Worker(client, registry):
        for name in names:
            assert (await decided(store, name))[0].outcome is TickOutcome.ENQUEUED
        (tick, *_) = await decided(store, "bad", 2)
    assert tick.outcome is TickOutcome.SKIPPED
    assert "not on my watch" in tick.reason


async def test_a_key_that_an_open_transaction_holds_keeps_one_schedule_waiting(postgres_url: str) -> None:
    names = [f"good{number}" for number in range(10)]
    only_one = bad().options(key="k", unique=True)
    async with Client(postgres_url) as client:
        store = keeper(client)
        await store.put_schedules([definition(only_one, every=1.0), *(definition(work(), name, every=1.0) for name in names)])
        async with Worker(client, registry):
            with suppress(asyncio.CancelledError):
                async with client.transaction() as tx:
                    await tx.enqueue(only_one.copy())
                    for name in names:
                        await decided(store, name)
                    (held,) = await store.fetch_schedules(["bad"])
                    assert held is not None
                    assert held.ticks == ()
                    raise asyncio.CancelledError
            assert (await decided(store, "bad"))[-1].outcome is TickOutcome.ENQUEUED


@pytest.mark.both_stores
async def test_one_that_another_process_puts_is_heard_of_by_an_idle_worker(client: Client, url: str) -> None:
    async with Worker(client, registry, poll_interval=60) as worker:
        while worker.health().last_claim is None:
            await asyncio.sleep(0.01)
        async with Client(url) as other:
            await other.schedules.put("s", work(), every=1.0)
        (tick, *_) = await decided(keeper(client), "s")
        assert (tick.decided_at - tick.nominal_time).total_seconds() < 20
