"""Leases on PostgreSQL: who wins, when a late renewal and a recovery meet, and what is given back beside locked rows."""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import pytest

from aioqueue.errors import LeaseLost, StoreContended
from aioqueue.postgres import _lease
from aioqueue.postgres._notifications import decode_note
from aioqueue.postgres._options_schema import Schema
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import JobState, LostReason, NewJob, Settlement, SettlementKind, SettleResult
from tests.postgres.backlog import explain
from tests.postgres.statements import all_statements
from tests.postgres.stores import claimed, opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio

STATEMENTS = all_statements(Schema())
PATIENCE = 60.0
RENEW = "UPDATE aioqueue.lease SET expires_at = now() + interval '1 hour' WHERE id = $1"


@asynccontextmanager
async def transaction(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Another session with an open transaction, rolled back at the end if it hasn't been committed by hand."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("BEGIN")
        yield connection
    finally:
        await connection.close()


def retried(claim: ClaimedJob) -> Settlement:
    return Settlement(id=claim.id, claims=claim.claims, lease_id=claim.lease_id, kind=SettlementKind.RETRIED, delay=0.0)


def expire(url: str, where: str = "true") -> None:
    execute(url, f"UPDATE aioqueue.lease SET expires_at = now() - interval '1 second' WHERE {where}")


# -- a late renewal and a recovery ------------------------------------------------------------------------------------


async def test_a_renewal_that_isnt_committed_yet_holds_off_the_recovery(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        lease_id, (claim,) = await claimed(store)
        expire(postgres_url)
        async with transaction(postgres_url) as owner:
            await owner.execute(RENEW, lease_id)
            with anyio.fail_after(PATIENCE):
                assert await store.settle([retried(claim)], orphaned=True) == [SettleResult(busy=True)]
            await owner.execute("COMMIT")
        assert [result.lost for result in await store.settle([retried(claim)], orphaned=True)] == [LostReason.TAKEN]
        found = (await store.fetch([claim.id]))[0]
        assert found is not None
        assert found.state == JobState.RUNNING


async def test_a_renewal_that_was_committed_meanwhile_refuses_the_recovery(postgres_url: str) -> None:
    """The recovery's statement has begun before the renewal, and looks at the lease after it."""
    pause = """CREATE FUNCTION public.pause() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';
        CREATE TRIGGER pause BEFORE DELETE ON aioqueue.lease FOR EACH STATEMENT EXECUTE FUNCTION public.pause()"""
    waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    async with opened(postgres_url) as store:
        lease_id, (claim,) = await claimed(store)
        expire(postgres_url)
        execute(postgres_url, pause)
        async with transaction(postgres_url) as holder:
            await holder.execute("SELECT pg_advisory_xact_lock(1)")
            settling = asyncio.create_task(store.settle([retried(claim)], orphaned=True))
            with anyio.fail_after(PATIENCE):
                while not execute(postgres_url, waits):
                    await asyncio.sleep(0.01)
            execute(postgres_url, RENEW.replace("$1", str(lease_id)))
            await holder.execute("COMMIT")
            assert [result.lost for result in await settling] == [LostReason.TAKEN]
        assert [result.lost for result in await store.settle([retried(claim)])] == [None]


async def test_a_recovery_that_isnt_committed_yet_refuses_the_renewal(postgres_url: str) -> None:
    """The owner's renewal waits for it, and is told that the lease has gone."""
    async with opened(postgres_url) as store:
        lease_id, (claim,) = await claimed(store)
        expire(postgres_url)
        session = store.lease_session()
        await asyncio.to_thread(session.renew, lease_id + 1, 1, [])
        statement = STATEMENTS["settle_orphaned"]
        async with transaction(postgres_url) as recoverer:
            none: list[None] = []
            arguments = [[claim.id], [claim.claims], [lease_id], [8], [None], none, [0.0], none, none, None]
            assert len(await recoverer.fetch(statement, *arguments)) == 2  # the job and the lease
            renewing = asyncio.create_task(asyncio.to_thread(session.renew, lease_id, 600, [claim.claim]))
            with anyio.fail_after(PATIENCE):
                while not execute(postgres_url, "SELECT 1 FROM pg_locks WHERE NOT granted"):
                    await asyncio.sleep(0.01)
            await recoverer.execute("COMMIT")
        renewal = await renewing
        assert not renewal.valid
        await asyncio.to_thread(session.close)


async def test_a_recovery_ends_the_leases_that_it_relies_on_and_tells_their_owners(postgres_url: str) -> None:
    """Also those that taking the expired ones left, since it ends one at a time."""
    async with opened(postgres_url) as store, opened(postgres_url) as owner:
        held = [await claimed(owner, worker=f"w{number}") for number in range(3)]
        heard: set[int] = set()
        with owner.subscribe(lambda notification: heard.update(notification.leases)):
            expire(postgres_url)
            taken = await store.take_expired(10)
            assert len(taken) == 3
            assert [result.lost for result in await store.settle([retried(each) for each in taken], orphaned=True)] == [
                None
            ] * 3
            assert execute(postgres_url, "SELECT id FROM aioqueue.lease") == []
            with anyio.fail_after(PATIENCE):
                while heard != {lease_id for lease_id, _ in held}:
                    await asyncio.sleep(0.01)


async def test_a_living_owner_isnt_touched_by_the_settlement_of_somebody_elses_orphans(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        dead, (orphan,) = await claimed(store, worker="dead")
        living, (other,) = await claimed(store, worker="living")
        expire(postgres_url, f"id = {dead}")
        results = await store.settle([retried(orphan), retried(other)], orphaned=True)
        assert [result.lost for result in results] == [None, LostReason.TAKEN]
        assert execute(postgres_url, "SELECT id FROM aioqueue.lease") == [(living,)]


# -- ids ----------------------------------------------------------------------------------------------------------------


async def test_the_ids_of_leases_dont_come_again_after_the_database_has_gone_back(postgres_url: str) -> None:
    """As after a restore: the rows of the leases and the count of their column are as they were."""
    async with opened(postgres_url) as store:
        before = {await store.open_lease("w", 600) for _ in range(5)}
        execute(postgres_url, "DELETE FROM aioqueue.lease")
        execute(postgres_url, "ALTER TABLE aioqueue.lease ALTER COLUMN id RESTART")
        after = {await store.open_lease("w", 600) for _ in range(5)}
        assert not before & after
        assert all(0 < lease_id <= 2**62 for lease_id in before | after)


async def test_an_id_that_is_there_is_drawn_again(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([6, 6, 6, 2**62 - 1])
    monkeypatch.setattr(secrets, "randbelow", lambda _: next(drawn))
    async with opened(postgres_url) as store:
        assert await store.open_lease("w", 600) == 7
        assert await store.open_lease("w", 600) == 2**62


async def test_large_ids_survive_a_notification(postgres_url: str) -> None:
    """A number of 62 bits is more than a float holds."""
    text = execute(postgres_url, f"SELECT json_build_object('l', json_build_array({2**62 - 1}::bigint))::text")[0][0]
    notification = decode_note(str(text), "somebody")
    assert notification is not None
    assert notification.leases == {2**62 - 1}


# -- several leases -----------------------------------------------------------------------------------------------------


async def test_types_are_claimed_for_leases_of_their_own(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.insert([NewJob(id=new_id(), type=name) for name in ("a", "b", "c") for _ in range(3)])
        first, second = await store.open_lease("w", 600), await store.open_lease("w", 60)
        claims = await store.claim(first, ["a", "b", "c"], 10, leases={"b": second, "unknown": second})
        assert {(each.type, each.lease_id) for each in claims} == {("a", first), ("b", second), ("c", first)}
        held = execute(postgres_url, f"SELECT count(*) FROM aioqueue.job WHERE lease_id = {second}")
        assert held == [(3,)]


@pytest.mark.parametrize("which", [0, 1])
async def test_every_lease_that_is_named_must_be_valid(postgres_url: str, which: int) -> None:
    async with opened(postgres_url) as store:
        await store.insert([NewJob(id=new_id(), type="a")])
        leases = [await store.open_lease("w", 600), await store.open_lease("w", 60)]
        expire(postgres_url, f"id = {leases[which]}")
        with pytest.raises(LeaseLost, match=str(leases[which])):
            await store.claim(leases[0], ["a"], 10, leases={"b": leases[1]})
        assert execute(postgres_url, "SELECT state FROM aioqueue.job") == [(1,)]


# -- beside locked rows ---------------------------------------------------------------------------------------------------

LOCK = "SELECT 1 FROM aioqueue.job WHERE id = $1 FOR SHARE"


async def test_a_locked_row_doesnt_hold_up_what_is_given_back_with_it(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        lease_id, claims = await claimed(store, jobs=5)
        async with transaction(postgres_url) as other:
            await other.execute(LOCK, claims[0].id)
            with anyio.fail_after(PATIENCE):
                await store.release(lease_id, [claim.claim for claim in claims])
        states = [found.state for found in await store.fetch([claim.id for claim in claims]) if found]
        assert states == [JobState.RUNNING, *[JobState.READY] * 4]
        session = store.lease_session()
        renewal = await asyncio.to_thread(session.renew, lease_id, 600, [])
        assert renewal.unheld == (claims[0].claim,)
        await asyncio.to_thread(session.close)


async def test_a_row_that_is_locked_for_a_moment_is_given_back_at_the_end(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        lease_id, claims = await claimed(store, jobs=5)
        async with transaction(postgres_url) as other:
            await other.execute(LOCK, claims[0].id)
            ending = asyncio.create_task(store.release(lease_id, [], end=True))
            with anyio.fail_after(PATIENCE):
                while not execute(
                    postgres_url,
                    "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%SELECT j.id%' AND state = 'idle in transaction'",
                ):
                    await asyncio.sleep(0)
            await other.execute("COMMIT")
            await ending
        states = [(found.state, found.attempt) for found in await store.fetch([claim.id for claim in claims]) if found]
        assert states == [(JobState.READY, 0)] * 5


async def test_a_row_that_stays_locked_is_left_to_recovery_and_named(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_lease, "_END_SECONDS", 0.0)
    async with opened(postgres_url) as store:
        lease_id, claims = await claimed(store, jobs=5)
        async with transaction(postgres_url) as other:
            await other.execute(LOCK, claims[0].id)
            with caplog.at_level(logging.WARNING, "aioqueue"):
                await store.release(lease_id, [], end=True)
            assert str(claims[0].id) in caplog.text
            assert (await store.next_due([])).lease == 0
            assert await store.take_expired(10) == []
        assert [each.id for each in await store.take_expired(10)] == [claims[0].id]
        assert [result.lost for result in await store.settle([retried(claims[0])], orphaned=True)] == [None]
        assert (await store.next_due([])).lease is None


async def test_locked_orphans_dont_stand_before_the_others(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        _, claims = await claimed(store, jobs=10)
        expire(postgres_url)
        async with transaction(postgres_url) as other:
            for claim in claims[:5]:
                await other.execute(LOCK, claim.id)
            taken = await store.take_expired(5)
            assert {each.id for each in taken} == {claim.id for claim in claims[5:]}


async def test_operators_who_wait_for_locked_rows_hold_up_no_other_operation(postgres_url: str) -> None:
    """They wait without a connection, and then say that it's held."""
    async with opened(postgres_url) as store:
        jobs = [NewJob(id=new_id(), type="a", delay=600) for _ in range(10)]
        await store.insert(jobs)
        async with transaction(postgres_url) as other:
            for job in jobs:
                await other.execute(LOCK, job.id)
            changing = [asyncio.create_task(store.run_now([job.id])) for job in jobs]
            with anyio.fail_after(PATIENCE):
                for _ in range(10):
                    await store.insert([NewJob(id=new_id(), type="b")])
                    await store.stats()
            assert [str(changed) for task in changing for changed in await task] == ["contended"] * 10
            await other.execute("COMMIT")
        assert [str(changed) for changed in await store.run_now([job.id for job in jobs])] == ["done"] * 10


async def test_an_operator_who_waits_too_long_is_told(postgres_url: str) -> None:
    async with opened(postgres_url, timeout=0.5) as store:
        job = NewJob(id=new_id(), type="a")
        await store.insert([job])
        async with transaction(postgres_url) as other:
            await other.execute(LOCK, job.id)
            with pytest.raises(StoreContended):
                await store.delete([job.id])
        assert [str(changed) for changed in await store.delete([job.id])] == ["done"]


# -- what is due ----------------------------------------------------------------------------------------------------------


async def test_jobs_without_a_lease_are_told_but_not_ones_own(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        first, (one,) = await claimed(store)
        second, _ = await claimed(store)
        assert (await store.next_due(["a"], own=[first, second])).lease is None
        execute(postgres_url, f"DELETE FROM aioqueue.lease WHERE id = {first}")
        assert (await store.next_due(["a"], own=[first, second])).lease is None
        assert (await store.next_due(["a"], own=[second])).lease == 0
        assert [each.id for each in await store.take_expired(10, own=[second])] == [one.id]
        execute(postgres_url, f"UPDATE aioqueue.job SET lease_id = NULL WHERE lease_id = {first}")
        assert (await store.next_due(["a"], own=[first, second])).lease == 0
        assert [each.lease_id for each in await store.take_expired(10, own=[first, second])] == [0]


async def test_with_hundreds_of_leases_jobs_without_one_are_left_to_recovery(postgres_url: str) -> None:
    """Looking for them costs a descent of the index for each lease."""
    async with opened(postgres_url) as store:
        lease_id, _ = await claimed(store)
        execute(postgres_url, f"DELETE FROM aioqueue.lease WHERE id = {lease_id}")
        many = (
            "INSERT INTO aioqueue.lease (worker, expires_at) SELECT 'w', now() + interval '1 hour' FROM generate_series(1, 400)"
        )
        execute(postgres_url, many)
        due = await store.next_due(["a"])
        assert due.lease is not None
        assert due.lease > 3000
        assert len(await store.take_expired(10)) == 1


async def test_looking_for_jobs_without_a_lease_keeps_clear_of_what_living_leases_have_left(postgres_url: str) -> None:
    """Each job that was run leaves a dead entry in the index of running ones until vacuum comes: these aren't read."""
    async with opened(postgres_url) as store, transaction(postgres_url) as pinned:
        await pinned.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await pinned.fetch("SELECT 1 FROM aioqueue.job")  # a snapshot that keeps vacuum away
        leases = [await store.open_lease("w", 600) for _ in range(2)]
        for lease_id in leases * 3:
            await store.insert([NewJob(id=new_id(), type="a") for _ in range(1_000)])
            claims = await store.claim(lease_id, ["a"], 1_000)
            await store.settle([retried(each) for each in claims])
            claims = await store.claim(lease_id, ["a"], 1_000)
            completed = [replace(retried(each), kind=SettlementKind.COMPLETED, delay=None) for each in claims]
            await store.settle(completed)
        connection = await asyncpg.connect(postgres_url, statement_cache_size=0)
        try:
            for name, arguments in (
                ("take_expired", [10, [], None]),
                ("next_due", [["other"], [1], [], True, None, [], [], 0]),
            ):
                plan = await explain(connection, STATEMENTS[name], arguments)
                assert plan.buffers < 200, plan.text
        finally:
            await connection.close()
