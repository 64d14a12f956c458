"""Transactions of the client's own, and the guards around them."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from aioqueue.client import Client
from aioqueue.errors import (
    CallAlreadyEnqueued,
    ClientClosed,
    JobNotFound,
    NotCommitted,
    NotInTransaction,
    OutsideTransaction,
    TransactionError,
)
from tests.client.jobs import add, completed, work

pytestmark = pytest.mark.anyio


async def test_nothing_is_there_before_the_commit(client: Client) -> None:
    call = add(1, 2)
    async with client.transaction() as tx:
        await tx.execute("create table orders (id integer)")
        assert await tx.execute("insert into orders values (?)", 7) == 1
        handle = await tx.enqueue(call)
        assert [row[0] for row in await tx.fetch("select id from orders")] == [7]
        assert await client.store.fetch([call.id]) == [None]
        with pytest.raises(NotCommitted):
            await handle.result()
        with pytest.raises(NotCommitted):
            await handle.snapshot()
    await work(client.store, completed(b"3"))
    assert await handle.result(timeout=60) == 3


async def test_after_a_rollback_nothing_is_there_and_the_calls_may_be_enqueued_again(client: Client) -> None:
    calls = [add(1, 2), add(3, 4)]
    with pytest.raises(LookupError):
        async with client.transaction() as tx:
            await tx.execute("create table orders (id integer)")
            handles = await tx.enqueue_many(calls)
            raise LookupError
    assert await client.store.fetch([call.id for call in calls]) == [None, None]
    with pytest.raises(JobNotFound, match="rolled back"):
        await handles[0].result()
    async with client.transaction() as tx:
        await tx.execute("create table orders (id integer)")
        again = await tx.enqueue_many(calls)
        by_name = await tx.enqueue_by_name("elsewhere.hash", {"path": "a"})
    assert None not in await client.store.fetch([*[handle.id for handle in again], by_name.id])


async def test_one_that_is_cancelled_is_rolled_back(client: Client) -> None:
    call, entered = add(1, 2), asyncio.Event()

    async def produce() -> None:
        async with client.transaction() as tx:
            await tx.enqueue(call)
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(produce())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await client.store.fetch([call.id]) == [None]
    assert (await client.enqueue(call)).created


async def test_one_whose_client_is_closed_is_rolled_back(each_url: str) -> None:
    call = add(1, 2)
    client = Client(each_url)
    await client.migrate()
    await client.open()
    with pytest.raises(ClientClosed):
        async with client.transaction() as tx:
            handle = await tx.enqueue(call)
            await client.close()
    assert "rolled back" in repr(tx)
    async with client:
        with pytest.raises(JobNotFound, match="rolled back"):
            await handle.result()
        assert await client.store.fetch([call.id]) == [None]
        assert (await client.enqueue(call)).created


async def test_a_call_is_enqueued_once_in_a_transaction(client: Client) -> None:
    call = add(1, 2)
    async with client.transaction() as tx:
        await tx.enqueue(call)
        with pytest.raises(CallAlreadyEnqueued):
            await tx.enqueue(call)


async def test_an_enqueue_beside_the_open_transaction_is_refused(client: Client) -> None:
    call = add(1, 2)
    async with client.transaction() as tx:
        with pytest.raises(OutsideTransaction):
            await client.enqueue(call)
        with pytest.raises(OutsideTransaction):
            await client.enqueue_many([call])
        with pytest.raises(OutsideTransaction):
            await client.enqueue_by_name("elsewhere.hash")
        with pytest.raises(OutsideTransaction):
            async with client.transaction():
                pass
        for change in (client.delete, client.retry, client.run_now):
            with pytest.raises(OutsideTransaction):
                await change(call.id)
        with pytest.raises(OutsideTransaction):
            await client.prune(older_than=0)
        first = await client.enqueue(call, tx=tx)
        (second,) = await client.using(tx).enqueue_many([add(3, 4)])
        third = await client.using(tx).enqueue_by_name("elsewhere.hash")
    assert None not in await client.store.fetch([first.id, second.id, third.id])
    await client.enqueue(add(5, 6))


async def test_no_transaction_where_one_is_passed_on_is_refused(client: Client) -> None:
    with pytest.raises(OutsideTransaction):
        await client.enqueue(add(1, 2), tx=None)
    with pytest.raises(OutsideTransaction):
        await client.enqueue_many([], tx=None)
    with pytest.raises(OutsideTransaction):
        client.using(None)


async def test_a_transaction_that_has_ended(client: Client) -> None:
    async with client.transaction() as tx:
        assert tx.connection is not None
        assert "open" in repr(tx)
    with pytest.raises(TransactionError, match="has ended"):
        await tx.enqueue(add(1, 2))
    with pytest.raises(TransactionError):
        await tx.enqueue_many([])
    with pytest.raises(TransactionError):
        await tx.execute("select 1")
    with pytest.raises(TransactionError):
        await tx.fetch("select 1")
    with pytest.raises(TransactionError):
        _ = tx.connection


async def test_a_transaction_of_another_client(client: Client, url: str) -> None:
    async with Client(url) as other, client.transaction() as tx:
        with pytest.raises(TransactionError, match="another client"):
            await other.enqueue(add(1, 2), tx=tx)


async def test_in_a_users_transaction(client: Client, url: str) -> None:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    try:
        with pytest.raises(NotInTransaction):
            await client.enqueue(add(1, 2), tx=connection)
        call = add(1, 2)
        connection.execute("begin immediate")
        handle = await client.using(connection).enqueue(call)
        assert await client.store.fetch([call.id]) == [None]
        connection.execute("commit")
        await work(client.store, completed(b"3"))
        assert await handle.result(timeout=60) == 3
    finally:
        connection.close()


async def test_what_isnt_a_connection(client: Client) -> None:
    call = add(1, 2)
    with pytest.raises(TypeError):
        await client.enqueue(call, tx=object())
    assert (await client.enqueue(call)).created


async def test_nested_blocks_that_end_in_another_order(each_client: Client) -> None:
    async with each_client.transaction() as tx:
        kept = await tx.enqueue(add(1, 2))
        outer, inner = tx.savepoint(), tx.savepoint()
        await outer.__aenter__()
        lost = await tx.enqueue(add(3, 4))
        await inner.__aenter__()
        for each in (outer, inner):
            with pytest.raises(TransactionError, match="in the reverse of their order"):
                await each.__aexit__(None, None, None)
    found = await each_client.store.fetch([kept.id, lost.id])
    assert [each is not None for each in found] == [True, False]
