"""The store in memory, beyond the conformance cases: reopened in other event loops, and with calls that fail."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

import pytest

from aioqueue import StoreUnavailable
from aioqueue.testing import MemoryStore
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob
from aioqueue.vocabulary._listing import JobFilter

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Losing(MemoryStore):
    """Loses the answers of one verb: what it does has happened."""

    lost = ""

    async def perform(self, verb: str, work: Callable[[], T]) -> T:
        answer = await super().perform(verb, work)
        if verb == self.lost:
            raise StoreUnavailable("the answer was lost")
        return answer


async def insert_in_transaction(store: MemoryStore) -> None:
    async with store.transaction() as tx:
        await tx.insert([NewJob(id=new_id(), type="a")])


async def stored(store: MemoryStore) -> int:
    return len((await store.list(JobFilter(), 100)).jobs)


def test_concurrent_transactions_in_one_event_loop_after_another() -> None:
    store = MemoryStore()

    async def two_at_once() -> int:
        await store.open()
        try:
            await asyncio.gather(insert_in_transaction(store), insert_in_transaction(store))
            return await stored(store)
        finally:
            await store.close()

    assert [asyncio.run(two_at_once()) for _ in range(3)] == [2, 4, 6]


def test_a_transaction_waits_for_one_in_another_event_loop() -> None:
    store = MemoryStore()
    other = store.another()

    async def elsewhere() -> None:
        await other.open()
        try:
            await insert_in_transaction(other)
        finally:
            await other.close()

    async def run() -> int:
        await store.open()
        try:
            async with store.transaction() as tx:
                waiting = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
                while not store.database.turn.waited_for:
                    await asyncio.sleep(0)
                await tx.insert([NewJob(id=new_id(), type="a")])
            await waiting
            return await stored(store)
        finally:
            await store.close()

    assert asyncio.run(run()) == 2


def test_a_transaction_that_gives_up_waiting_keeps_nobody_waiting() -> None:
    async def run() -> int:
        store = MemoryStore()
        await store.open()
        try:
            async with store.transaction():
                waiting = [asyncio.create_task(insert_in_transaction(store)) for _ in range(3)]
                await asyncio.sleep(0)
                waiting[0].cancel()
            await asyncio.wait(waiting)
            return await stored(store)
        finally:
            await store.close()

    assert asyncio.run(run()) == 2


@pytest.mark.parametrize("verb", ["begin", "transaction.insert", "execute", "commit"])
def test_a_lost_answer_leaves_no_transaction_open(verb: str) -> None:
    async def run(sql: sqlite3.Connection) -> int:
        store = Losing(sql=sql)
        await store.open()
        try:
            store.lost = verb
            with pytest.raises(StoreUnavailable):
                async with store.transaction() as tx:
                    await tx.insert([NewJob(id=new_id(), type="a")])
                    await tx.execute("create table t (x)")
            assert not sql.in_transaction
            store.lost = ""
            await insert_in_transaction(store)
            return await stored(store)
        finally:
            await store.close()

    with closing(sqlite3.connect(":memory:", isolation_level=None)) as sql:
        assert asyncio.run(run(sql)) == (2 if verb == "commit" else 1)
