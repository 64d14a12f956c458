"""`enqueue_v2`: jobs that wait for others, for drivers other than our own, psql and triggers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from aioqueue.abc import ChainEnd, EndedBlocker, NewBlocker
from aioqueue.testing.conformance._waiting import (
    after,
    complete,
    completed,
    ends_well,
    fail,
    failed,
    settled_after,
    start_blocker,
    tend_all,
)
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import connected, job, opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob, NewJob

pytestmark = pytest.mark.anyio


def enqueue(url: str, store: PostgresStore, jobs: Sequence[NewJob]) -> list[tuple[str, bool]]:
    """Run what `client.statement()` gives, on a synchronous driver."""
    with psycopg.connect(url) as connection:
        sql, parameters = store.statement(jobs)
        return connection.execute(sql.encode(), parameters).fetchall()


def live(url: str) -> list[tuple[Any, ...]]:
    return execute(url, "select id, state, open_blockers, marked from aioqueue.job order by id")


async def test_a_graph(postgres_url: str) -> None:
    """What waits is stored as blocked, and gets the outputs at its places, whatever their names hold."""
    async with opened(postgres_url) as store:
        first, second, plain = job(), job(), job()
        places = b'[["output", "a\\u0000b", 0]]'
        last = job("b", blockers=(NewBlocker(first.id, places=places), NewBlocker(second.id, settled=True)))
        jobs = [first, second, plain, last]
        assert enqueue(postgres_url, store, jobs) == [(str(each.id), True) for each in jobs]
        assert live(postgres_url) == [
            (first.id, 1, 0, True), (second.id, 1, 0, True), (plain.id, 1, 0, False), (last.id, 0, 2, True),
        ]  # fmt: skip
        assert enqueue(postgres_url, store, jobs) == [(str(each.id), False) for each in jobs]
        assert live(postgres_url)[-1] == (last.id, 0, 2, True)
        lease_id = await store.open_lease("w", 600)
        for claimed in await store.claim(lease_id, ["a"], 10):
            await complete(store, claimed, b'"page"')
        (claimed,) = await store.claim(lease_id, ["b"], 10)
        assert claimed.blockers == (
            EndedBlocker(first.id, ChainEnd.COMPLETED, b'"page"', places=places),
            EndedBlocker(second.id, ChainEnd.COMPLETED, b'"page"'),
        )


async def test_chains_that_are_there(postgres_url: str) -> None:
    """Live ones are marked; a unique key stands for the chain that holds it; what has completed counts at once."""
    async with opened(postgres_url) as store:
        running, good, bad = await start_blocker(store), await completed(store, b'"out"'), await failed(store)
        holder, repeated = job(key="k", unique=Unique()), job(key="k", unique=Unique())
        await store.insert([holder])
        waits, ready = after(job("b"), running.id, repeated.id, good), after(job("b"), good)
        lost, settled, behind = after(job("b"), good, bad), settled_after(job("b"), bad), job("b")
        behind = after(behind, lost.id)
        stored = enqueue(postgres_url, store, [repeated, waits, ready, lost, settled, behind])
        assert stored[0] == (str(holder.id), False)
        states = {row[0]: row[1:] for row in live(postgres_url)}
        assert states[running.id] == (2, 0, True)
        assert states[holder.id] == (1, 0, True)
        assert states[waits.id] == (0, 2, True)
        assert states[ready.id] == states[settled.id] == (1, 0, True)
        assert [each.chain_id for each in await store.list_blockers(waits.id, 10)] == [running.id, holder.id, good]
        await tend_all(store)
        for each in (lost, behind):
            (found,) = await store.fetch([each.id])
            assert found is not None
            assert found.state is JobState.FAILED
            assert found.last_error is not None
            assert found.last_error.message == f"it waited for blocker {bad}: failed: ValueError: boom"


async def test_one_that_failed_and_was_retried(postgres_url: str) -> None:
    """What others were told of its failure doesn't count any more; of one that ended beside it, it does."""
    async with opened(postgres_url) as store:
        blocker, bad = await start_blocker(store), await failed(store)
        await store.insert([after(job("b"), blocker.id)])
        await fail(store, blocker)
        await store.retry([blocker.id])
        needs, takes, both = after(job("b"), blocker.id), settled_after(job("b"), blocker.id), job("b")
        both = settled_after(both, blocker.id, bad)
        enqueue(postgres_url, store, [needs, takes, both])
        await tend_all(store)
        states = {row[0]: row[1:3] for row in live(postgres_url)}
        assert states == {blocker.id: (1, 0), needs.id: (0, 1), takes.id: (0, 1), both.id: (0, 1)}
        again = (await store.claim(await store.open_lease("w", 600), ["blocker"], 1))[0]
        await complete(store, again)
        assert {row[1:3] for row in live(postgres_url)} == {(1, 0)}


@pytest.mark.parametrize("code", ["AQ001", "AQ002"])
async def test_what_cant_be_stored(postgres_url: str, code: str) -> None:
    """Nothing of it is; each error has a code of its own."""
    first, second = new_id(), new_id()
    wrong: dict[str, list[dict[str, Any]]] = {
        "AQ001": [{"type": "a"}, {"type": "a", "blockers": [{"chain_id": str(new_id())}]}],
        "AQ002": [{"type": "a", "id": str(first), "blockers": [{"chain_id": str(second)}]}, {"type": "a", "id": str(second)}],
    }
    with pytest.raises(psycopg.Error) as caught:
        execute(postgres_url, f"select aioqueue.enqueue_v2('{json.dumps(wrong[code])}')")
    assert caught.value.sqlstate == code
    assert live(postgres_url) == []


async def test_a_locked_blocker_is_waited_for_briefly(postgres_url: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as holder:
        blocker = job()
        await store.insert([blocker])
        waits = json.dumps({"type": "a", "blockers": [{"chain_id": str(blocker.id)}]})
        async with holder.transaction():
            await holder.execute("select from aioqueue.job for update")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                execute(postgres_url, f"select aioqueue.enqueue_v2('{waits}')")
        setting = "current_setting('lock_timeout')"
        query = f"select {setting}, (select count(*) from aioqueue.enqueue_v2('{waits}')), {setting}"
        assert execute(postgres_url, query) == [("0", 1, "0")]


async def test_a_strange_history_is_no_obstacle(postgres_url: str) -> None:
    """Such as one that holds what PostgreSQL can't make text of."""
    async with opened(postgres_url) as store:
        bad = await failed(store)
        execute(postgres_url, r"""update aioqueue.archive set errors = array['{"type": "\u0000"}'::json]""")
        waits = after(job("b"), bad)
        enqueue(postgres_url, store, [waits])
        await tend_all(store)
        assert await last_message(store, waits.id) == f"it waited for blocker {bad}: failed"


async def last_message(store: PostgresStore, job_id: UUID) -> str:
    (found,) = await store.fetch([job_id])
    assert found is not None
    assert found.last_error is not None
    return found.last_error.message


async def test_a_blocker_that_ends_at_that_moment(postgres_url: str) -> None:
    """Whichever comes first: the dependent is ready once both are done."""
    async with opened(postgres_url) as store:
        with psycopg.connect(postgres_url, autocommit=True) as connection:

            def insert(new: NewJob) -> None:
                sql, parameters = store.statement([new])
                for _ in range(100):
                    with contextlib.suppress(psycopg.errors.LockNotAvailable):
                        connection.execute(sql.encode(), parameters)
                        return

            async def settle(claimed: ClaimedJob) -> None:
                while (await store.settle([ends_well(claimed)]))[0].busy:
                    await asyncio.sleep(0)

            for _ in range(20):
                blocker = await start_blocker(store)
                waits = after(job(), blocker.id)
                await asyncio.gather(settle(blocker), asyncio.to_thread(insert, waits))
                (found,) = await store.fetch([waits.id])
                assert found is not None
                assert found.state is JobState.READY
