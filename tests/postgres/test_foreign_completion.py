"""Completing a job within a transaction of the user's own, of every library that we know."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from aioqueue.errors import BlockerNotFound, NotInTransaction, StoreContended, StoreUnavailable
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Claim, Ending, JobState, LostReason, SettlementKind
from tests.postgres.stores import claimed, completed, connected, job, opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from uuid import UUID

    from aioqueue.postgres import PostgresStore
    from tests.postgres.libraries import Opened

    Library = Callable[[str], AbstractAsyncContextManager[Opened]]

pytestmark = pytest.mark.anyio


async def states(store: PostgresStore, *ids: UUID) -> list[JobState | None]:
    return [None if each is None else each.state for each in await store.fetch(ids)]


async def test_a_job_is_held_and_completed_with_its_writes(postgres_url: str, library: Library) -> None:
    """Its children and those that wait for it too; nothing of it before the commit, nothing at all after a rollback."""
    execute(postgres_url, "CREATE TABLE mine (x integer)")
    async with opened(postgres_url) as store:
        lease_id, (claim, other) = await claimed(store, jobs=2)
        waiting = replace(job("d"), blockers=(NewBlocker(claim.id), NewBlocker(other.id)))
        await store.insert([waiting])
        for ending in ("rollback", "commit"):
            child = job("c")
            async with library(postgres_url) as own:
                assert await store.hold(claim.claim, lease_id, tx=own.tx) is None
                await own.execute("INSERT INTO mine VALUES (1)")
                settlement = replace(completed(claim), children=(child,))
                (result,) = await store.settle([settlement], tx=own.tx)
                assert (result.lost, result.busy, result.refused) == (None, False, None)
                assert await store.end([Ending(id=other.id, kind=SettlementKind.COMPLETED, output=b"2")], tx=own.tx) == [True]
                assert await states(store, claim.id, child.id) == [JobState.RUNNING, None]
                await getattr(own, ending)()
            committed = ending == "commit"
            assert len(execute(postgres_url, "SELECT x FROM mine")) == committed
            assert await states(store, claim.id, child.id, waiting.id) == (
                [JobState.COMPLETED, JobState.READY, JobState.READY]
                if committed
                else [JobState.RUNNING, None, JobState.BLOCKED]
            )
        # The worker's own repetition is recognised, and so is what isn't its own.
        assert [each.lost for each in await store.settle([completed(claim), completed(other)])] == [None, LostReason.COMPLETED]


async def test_what_is_refused_leaves_the_transaction_as_it_was(postgres_url: str, library: Library) -> None:
    execute(postgres_url, "CREATE TABLE mine (x integer)")
    async with opened(postgres_url) as store:
        lease_id, (claim,) = await claimed(store)
        async with library(postgres_url) as own:
            await own.execute("SET LOCAL lock_timeout = '7s'")
            assert await store.hold(claim.claim, lease_id, tx=own.tx) is None
            await own.execute("INSERT INTO mine VALUES (1)")
            child = replace(job("c"), blockers=(NewBlocker(new_id()),))
            (result,) = await store.settle([replace(completed(claim), children=(child,))], tx=own.tx)
            assert isinstance(result.refused, BlockerNotFound)
            ending = Ending(id=claim.id, kind=SettlementKind.COMPLETED, children=(child,))
            with pytest.raises(BlockerNotFound):
                await store.end([ending], tx=own.tx)
            await own.execute("INSERT INTO mine SELECT 7 WHERE current_setting('lock_timeout') = '7s'")
            await own.commit()
        assert execute(postgres_url, "SELECT x FROM mine ORDER BY x") == [(1,), (7,)]
        assert await states(store, claim.id, child.id) == [JobState.RUNNING, None]


async def test_a_claim_that_isnt_ones_own_isnt_held(postgres_url: str, library: Library) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        lease_id, (claim,) = await claimed(store)
        async with library(postgres_url) as own:
            assert await store.hold(Claim(claim.id, claim.claims + 1), lease_id, tx=own.tx) is LostReason.TAKEN
            assert await store.hold(Claim(new_id(), 1), lease_id, tx=own.tx) is LostReason.NOT_FOUND
            await own.rollback()
        async with other.transaction():
            await other.execute("SELECT FROM aioqueue.job FOR UPDATE")
            async with library(postgres_url) as own:
                with pytest.raises(StoreContended):
                    await store.hold(claim.claim, lease_id, tx=own.tx)
                await own.execute("SELECT 1")  # goes on
                await own.rollback()
        async with library(postgres_url) as own:
            assert await store.hold(claim.claim, lease_id, tx=own.tx) is None
            # The lease isn't locked; and whoever ends it now doesn't get this job.
            await other.execute("SET lock_timeout = '5s'; DELETE FROM aioqueue.lease")
            assert list(await store.take_expired(10)) == []
            assert [each.lost for each in await store.settle([completed(claim)], tx=own.tx)] == [None]
            await own.commit()
        assert await states(store, claim.id) == [JobState.COMPLETED]


async def test_what_is_written_without_a_transaction_is_refused(postgres_url: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        lease_id, (claim,) = await claimed(store)
        with pytest.raises(NotInTransaction):
            await store.hold(claim.claim, lease_id, tx=connection)
        with pytest.raises(NotInTransaction):
            await store.end([Ending(id=claim.id, kind=SettlementKind.COMPLETED)], tx=connection)
        with pytest.raises(TypeError, match="an asyncpg Connection"):
            await store.end([Ending(id=claim.id, kind=SettlementKind.COMPLETED)], tx=object())
        autocommit = await psycopg.AsyncConnection.connect(postgres_url, autocommit=True)
        async with autocommit:
            with pytest.raises(NotInTransaction):
                await store.settle([completed(claim)], tx=autocommit)
        assert await states(store, claim.id) == [JobState.RUNNING]


async def test_psycopg_before_it_took_the_servers_placeholders(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(psycopg, "AsyncRawCursor")
    async with opened(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as connection:
        lease_id, (claim,) = await claimed(store)
        assert await store.hold(claim.claim, lease_id, tx=connection) is None
        child = job("c", payload=b'{"a": "100 %", "b": "$1"}')
        settlement = replace(completed(claim, b'"%s $1"'), children=(child,))
        assert [(each.lost, each.refused) for each in await store.settle([settlement], tx=connection)] == [(None, None)]
        await connection.commit()
        found = await store.fetch([claim.id, child.id])
        assert [each and (each.output, each.payload) for each in found] == [("%s $1", b"{}"), (None, child.payload)]


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_above_read_committed(postgres_url: str, isolation: str) -> None:
    """Whoever began to wait after the snapshot makes it an error; without such a one the outcome is written, and told."""
    async with opened(postgres_url) as store, connected(postgres_url) as caller:
        lease_id, (claim,) = await claimed(store)
        await store.insert([first := replace(job("d"), blockers=(NewBlocker(claim.id),))])
        async with caller.transaction(isolation=isolation):
            await caller.fetch("SELECT FROM aioqueue.job")
            assert await store.hold(claim.claim, lease_id, tx=caller) is None
            # From here on nobody begins to wait for it.
            with pytest.raises(StoreContended):
                await store.insert([replace(job("d"), blockers=(NewBlocker(claim.id),))])
            assert [each.lost for each in await store.settle([completed(claim)], tx=caller)] == [None]
        assert await states(store, first.id) == [JobState.READY]
        lease_id, (claim,) = await claimed(store)
        transaction: Any = caller.transaction(isolation=isolation)
        await transaction.start()
        await caller.fetch("SELECT FROM aioqueue.job")
        await store.insert([late := replace(job("d"), blockers=(NewBlocker(claim.id),))])
        with pytest.raises(StoreUnavailable):
            await store.hold(claim.claim, lease_id, tx=caller)
        await transaction.rollback()
        assert await states(store, late.id) == [JobState.BLOCKED]


async def test_our_own_transaction_isnt_left_idle_for_ever(postgres_url: str) -> None:
    """The server ends it, and with it the lock on the job, once it has waited for as long as a statement may take."""
    async with opened(postgres_url, timeout=3) as store:
        lease_id, (claim,) = await claimed(store)
        async with store.transaction() as transaction:
            assert await transaction.hold(claim.claim, lease_id) is None
            ((limit,),) = await transaction.fetch("SELECT current_setting('idle_in_transaction_session_timeout')")
            assert limit == "3s"
        async with store.transaction() as transaction:
            ((limit,),) = await transaction.fetch("SELECT current_setting('idle_in_transaction_session_timeout')")
            assert limit == "0"
