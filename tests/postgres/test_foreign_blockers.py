"""Jobs that wait for others, enqueued in transactions of other libraries: the real ones, on a real server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.abc import ChainEnd, EndedBlocker, JobFilter, NewBlocker
from aioqueue.errors import BlockerNotFound, StoreContended
from aioqueue.testing.conformance._waiting import after, complete, completed, failed, settled_after, start_blocker
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import connected, job, opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from uuid import UUID

pytestmark = pytest.mark.anyio


def live(url: str) -> list[tuple[Any, ...]]:
    return execute(url, "select id, state, open_blockers, marked from aioqueue.job order by id")


async def test_a_graph_is_stored_with_the_commit(postgres_url: str, library: Any) -> None:
    first, second = job(), job(key="k", unique=Unique())
    places = b'[["output", "pages", 0]]'
    last = job("b", blockers=(NewBlocker(first.id, places=places), NewBlocker(second.id, settled=True)))
    async with opened(postgres_url) as store, library(postgres_url) as users:
        inserted = await store.insert([first, second, last], tx=users.tx)
        assert [(each.id, each.created) for each in inserted] == [(each.id, True) for each in (first, second, last)]
        assert live(postgres_url) == []
        await users.commit()
        assert live(postgres_url) == [(first.id, 1, 0, True), (second.id, 1, 0, True), (last.id, 0, 2, True)]
        lease_id = await store.open_lease("w", 600)
        for claimed in await store.claim(lease_id, ["a"], 10):
            await complete(store, claimed, b'"page"')
        (claimed,) = await store.claim(lease_id, ["b"], 10)
        assert claimed.blockers == (
            EndedBlocker(first.id, ChainEnd.COMPLETED, b'"page"', places=places),
            EndedBlocker(second.id, ChainEnd.COMPLETED, b'"page"'),
        )


async def test_what_has_ended_counts_at_once(postgres_url: str, library: Any) -> None:
    async with opened(postgres_url) as store, library(postgres_url) as users:
        good, bad = await completed(store), await failed(store)
        ready, lost, settled = after(job(), good), after(job(), good, bad), settled_after(job(), good, bad)
        await store.insert([ready, lost, settled], tx=users.tx)
        await users.commit()
        assert live(postgres_url) == [(ready.id, 1, 0, True), (settled.id, 1, 0, True)]
        (found,) = await store.fetch([lost.id])
        assert found is not None
        assert found.last_error is not None
        assert found.last_error.message == f"it waited for blocker {bad}: failed: ValueError: boom"


async def test_an_unknown_blocker_leaves_the_transaction_as_it_was(postgres_url: str, library: Any) -> None:
    unknown = new_id()
    async with opened(postgres_url) as store, library(postgres_url) as users:
        await users.execute("create table business (a int)")
        with pytest.raises(BlockerNotFound, match=str(unknown)) as caught:
            await store.insert([job(), after(job(), unknown)], tx=users.tx)
        assert caught.value.blocker_id == unknown
        await users.execute("insert into business values (1)")
        await users.commit()
        assert execute(postgres_url, "select a from business") == [(1,)]
        assert (await store.list(JobFilter(), 10)).jobs == ()


async def test_a_locked_blocker_leaves_the_transaction_as_it_was(postgres_url: str, library: Any) -> None:
    """It's waited for briefly; the transaction waits for other rows as long as before."""
    blocker = job()
    async with opened(postgres_url) as store, library(postgres_url) as users, connected(postgres_url) as holder:
        await store.insert([blocker])
        await users.execute("create table waits (long text)")
        await users.execute("set local lock_timeout = '7s'")
        async with holder.transaction():
            await holder.execute("select from aioqueue.job for update")
            with pytest.raises(StoreContended):
                await store.insert([after(job(), blocker.id)], tx=users.tx)
            await users.execute("insert into waits values (current_setting('lock_timeout'))")
        dependent = after(job(), blocker.id)
        await store.insert([dependent], tx=users.tx)
        await users.execute("insert into waits values (current_setting('lock_timeout'))")
        await users.commit()
    assert execute(postgres_url, "select long from waits") == [("7s",)] * 2
    assert live(postgres_url) == [(blocker.id, 1, 0, True), (dependent.id, 0, 1, True)]


async def test_a_savepoint_takes_the_graph_with_it(postgres_url: str, library: Any) -> None:
    async with opened(postgres_url) as store, library(postgres_url) as users:
        blocker = await start_blocker(store)
        with pytest.raises(ZeroDivisionError):
            async with users.savepoint():
                await store.insert([after(job(), blocker.id)], tx=users.tx)
                raise ZeroDivisionError
        await users.commit()
        assert await store.list_dependents(blocker.id, 10) == []
        await complete(store, blocker)


async def test_a_repetition_finds_what_was_stored(postgres_url: str, library: Any) -> None:
    async with opened(postgres_url) as store, library(postgres_url) as users:
        graph = [first := job(), after(job(), first.id)]
        await store.insert(graph)
        again: list[tuple[UUID, bool]] = [
            (each.id, each.created) for each in await store.insert(graph, tx=users.tx, repeated=True)
        ]
        assert again == [(each.id, False) for each in graph]
        await users.commit()
        assert [each.resolved for each in await store.list_blockers(graph[1].id, 10)] == [False]


async def test_a_cancellation_behind_any_statement_leaves_no_part_of_it(postgres_url: str) -> None:
    """Where its transaction is committed all the same, nothing is stored as blocked without what it waits for."""
    async with opened(postgres_url) as store, connected(postgres_url) as users:
        blocker, ended = job(), await completed(store)
        await store.insert([blocker])
        whole = False
        for number in range(1, 30):
            graph = [first := job(), after(job(), first.id, blocker.id, ended)]
            statements: list[str] = []
            inserting: list[asyncio.Task[Any]] = []

            def ran(record: Any, number: int = number, ran: list[str] = statements, task: list[Any] = inserting) -> None:
                ran.append(record.query)
                if len(ran) == number:
                    task[0].cancel()

            async with users.transaction():
                with users.query_logger(ran):
                    inserting.append(asyncio.ensure_future(store.insert(graph, tx=users)))
                    with contextlib.suppress(asyncio.CancelledError):
                        await inserting[0]
            found = await store.fetch([each.id for each in graph])
            assert [each is not None for each in found] in ([False] * 2, [True] * 2)
            assert len(await store.list_blockers(graph[1].id, 10)) == (0 if found[1] is None else 3)
            if whole := len(statements) < number:
                break
        assert whole
        assert number > 5
