"""What operators look at and change in a transaction: ours, a user's, and beside it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from aioqueue import Changed, Client, JobFilter, JobNotFound, JobState, OutsideTransaction, TransactionError
from aioqueue.vocabulary._job import SettlementKind
from tests.client.fake_store import FakeStore
from tests.client.jobs import add, ended, fetch, work

if TYPE_CHECKING:
    from aioqueue import BoundClient, Transaction
    from aioqueue.client import Connection

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


async def test_our_own_sees_what_it_wrote_and_nobody_else_does(each_client: Client) -> None:
    client = each_client
    failed = await client.enqueue(add(1, 2))
    await work(client.store, ended(SettlementKind.FAILED, "no"))
    async with client.transaction() as tx:
        handle = await tx.enqueue(fetch("a").options(key="k", delay=HOUR))
        waiting = await tx.enqueue(add(2, 3).options(after=[handle]))
        assert await tx.retry(failed) == {failed.id: Changed.DONE}
        for verbs in (tx, client.using(tx)):
            await _sees(verbs, handle.id, waiting.id)
        found = await tx.find(fetch, key="k")
        assert found is not None
        assert found.id == handle.id
        # Beside it, what is committed is seen, and nothing may be changed.
        assert await client.find(fetch, key="k") is None
        assert [job.state for job in (await client.list_jobs()).jobs] == [JobState.FAILED]
        with pytest.raises(JobNotFound):
            await client.job(handle)
        for change in (client.retry, client.run_now, client.delete):
            with pytest.raises(OutsideTransaction):
                await change(failed)
            with pytest.raises(OutsideTransaction):
                await change(where=JobFilter(key="k"))
        assert await client.run_now(handle, tx=tx) == {handle.id: Changed.DONE}
        assert await tx.delete(where=JobFilter(key="none")) == {}
    assert await client.run_now(found) == {handle.id: Changed.DONE}
    for look in (tx.job, tx.retry):
        with pytest.raises(TransactionError, match="has ended"):
            await look(failed)


async def _sees(verbs: Transaction | BoundClient, handle: Any, waiting: Any) -> None:
    assert (await verbs.job(handle)).key == "k"
    assert (await verbs.chain(handle)).state is JobState.SCHEDULED
    assert [job.id for job in (await verbs.chain_jobs(handle)).jobs] == [handle]
    assert [each.chain_id for each in await verbs.blockers(waiting)] == [handle]
    assert [each.job_id for each in await verbs.dependents(handle)] == [waiting]
    assert [job.id for job in (await verbs.list_jobs(types=[fetch])).jobs] == [handle]
    assert [job.id for job in (await verbs.list_chains(key="k")).jobs] == [handle]
    assert await verbs.find(add, key="none") is None


async def test_what_was_rolled_back_has_not_happened(each_client: Client) -> None:
    client = each_client
    first, second = await client.enqueue_many([add(each, 1).options(delay=HOUR) for each in range(2)])
    with pytest.raises(ZeroDivisionError):
        async with client.transaction() as tx:
            await tx.delete(first)
            async with tx.savepoint():
                assert await tx.run_now(first, second) == {first.id: Changed.NOT_FOUND, second.id: Changed.DONE}
            raise ZeroDivisionError
    assert [(await client.job(each)).state for each in (first, second)] == [JobState.SCHEDULED] * 2


async def test_a_users_own(each_url: str) -> None:
    async with Client(each_url) as client:
        if each_url.startswith("sqlite"):
            with closing(sqlite3.connect(each_url.removeprefix("sqlite:///"), isolation_level=None)) as file:
                file.execute("begin immediate")
                handle = await _on_a_users(client, file)
                file.execute("commit")
        else:
            connection = await asyncpg.connect(each_url)
            async with connection.transaction():
                handle = await _on_a_users(client, connection)
            await connection.close()
        assert (await client.job(handle)).state is JobState.READY


async def _on_a_users(client: Client, connection: Connection) -> Any:
    handle = await client.enqueue(fetch("a").options(key="k", delay=HOUR), tx=connection)
    assert await client.find(fetch, key="k") is None
    found = await client.find(fetch, key="k", tx=connection)
    assert found is not None
    assert await client.run_now(found, tx=connection) == {handle.id: Changed.DONE}
    assert (await client.job(handle, tx=connection)).state is JobState.READY
    page = await client.using(connection).list_jobs(states=["ready"])
    assert [job.id for job in page.jobs] == [handle.id]
    return handle


async def test_anothers_transaction_and_none_are_refused(fake_client: Client) -> None:
    async with Client(FakeStore()) as other, other.transaction() as tx:
        for look in (fake_client.job, fake_client.retry, fake_client.blockers):
            with pytest.raises(TransactionError, match="another client"):
                await look("0" * 32, tx=tx)
            with pytest.raises(OutsideTransaction):
                await look("0" * 32, tx=None)
