"""How the PostgreSQL store settles beyond the conformance cases: locked rows, slow ones, refused ones, large batches."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import pytest

from aioqueue.abc import JobFilter
from aioqueue.errors import RowRejected
from aioqueue.postgres import _rows_portions
from aioqueue.vocabulary._job import AttemptError, JobState, LostReason, Settlement, SettlementKind, SettleResult
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import claimed, completed, connected, job, opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def locked(connection: asyncpg.Connection[Any], claim: ClaimedJob) -> AsyncIterator[None]:
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("SELECT 1 FROM aioqueue.job WHERE id = $1 FOR SHARE", claim.id)
    try:
        yield
    finally:
        await transaction.rollback()


@pytest.mark.parametrize("orphaned", [False, True])
async def test_a_row_that_somebody_has_locked_is_busy_and_its_neighbours_are_written(postgres_url: str, orphaned: bool) -> None:
    """At once: nothing waits for it. Later it can be written as if nothing had been."""
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        lease_id, claims = await claimed(store, jobs=30)
        if orphaned:
            await other.execute("DELETE FROM aioqueue.lease WHERE id = $1", lease_id)
        batch = [completed(claim) for claim in claims]
        async with locked(other, claims[0]):
            with anyio.fail_after(60):
                results = await store.settle(batch, orphaned=orphaned)
            assert [(result.lost, result.busy) for result in results] == [(None, True)] + [(None, False)] * 29
            assert [each.state for each in await store.fetch([claim.id for claim in claims]) if each] == [
                "running",
                *["completed"] * 29,
            ]
        assert [(result.lost, result.busy) for result in await store.settle(batch, orphaned=orphaned)] == [(None, False)] * 30


async def test_a_job_that_is_marked_slow_is_settled_too(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        _, (claim,) = await claimed(store)
        execute(postgres_url, "UPDATE aioqueue.job SET marked = true")
        assert [result.lost for result in await store.settle([completed(claim)])] == [None]


async def test_the_same_job_twice_in_one_batch(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        _, (claim,) = await claimed(store)
        assert [result.lost for result in await store.settle([completed(claim)] * 2)] == [None, None]
        assert len((await store.list(JobFilter(), 10)).jobs) == 1


async def test_an_orphans_recovery_isnt_taken_for_the_owners_own_write(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        lease_id, (claim,) = await claimed(store)
        execute(postgres_url, f"DELETE FROM aioqueue.lease WHERE id = {lease_id}")
        failed = Settlement(id=claim.id, claims=claim.claims, lease_id=lease_id, kind=SettlementKind.FAILED)
        assert [result.lost for result in await store.settle([failed], orphaned=True)] == [None]
        assert [result.lost for result in await store.settle([failed], orphaned=True)] == [None]
        assert [result.lost for result in await store.settle([completed(claim)])] == [LostReason.COMPLETED]


async def test_a_bad_row_rejects_its_batch_and_changes_nothing(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        _, (first, second) = await claimed(store, jobs=2)
        with pytest.raises(RowRejected):
            await store.settle([completed(first), completed(second, b"{broken")])
        assert {snapshot.state for snapshot in await store.fetch([first.id, second.id]) if snapshot} == {"running"}
        assert [result.lost for result in await store.settle([completed(first)])] == [None]


async def test_a_thousand_retries_in_one_batch(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        lease_id, claims = await claimed(store, jobs=1_000)
        error = AttemptError(attempt=1, at=datetime.now(UTC), type="E", message="x" * 1_000)
        retried = [
            Settlement(id=each.id, claims=each.claims, lease_id=lease_id, kind=SettlementKind.RETRIED, delay=60.0, error=error)
            for each in claims
        ]
        assert {result.lost for result in await store.settle(retried)} == {None}
        assert {result.lost for result in await store.settle(retried)} == {None}


async def test_a_batch_of_large_outputs_goes_in_portions(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rows_portions, "MOST_BYTES", 1_000)
    async with opened(postgres_url) as store:
        _, claims = await claimed(store, jobs=10)
        outputs = [b'"%s"' % (b"x" * (100 if number % 3 else 2_000)) for number in range(10)]
        batch = [completed(claim, output) for claim, output in zip(claims, outputs, strict=True)]
        execute(postgres_url, f"UPDATE aioqueue.job SET marked = true WHERE id = '{claims[4].id}'")
        sizes = await counted(store, store.settle(batch))
        assert len(sizes) > 3
        assert max(sizes) < 2_100
        assert [each.output_json for each in await store.fetch([claim.id for claim in claims]) if each] == outputs


async def counted(store: PostgresStore, call: Awaitable[Sequence[SettleResult]]) -> list[int]:
    """Settle, and return how many bytes of outputs each statement had."""
    connection = store._opened.settler._connection
    sizes: list[int] = []
    fetch = connection.fetch

    async def noting(sql: str, *arguments: Any) -> Any:
        if len(arguments) > 5:
            sizes.append(sum(len(output) for output in arguments[4]))
        return await fetch(sql, *arguments)

    connection.fetch = noting
    assert {result.lost for result in await call} == {None}
    return sizes


@pytest.mark.parametrize("unique", [False, True])
async def test_a_batch_of_large_payloads_goes_in_portions(
    postgres_url: str, unique: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_rows_portions, "MOST_BYTES", 1_000)
    async with opened(postgres_url) as store:
        jobs = [
            job(payload=b'{"a":"%s"}' % (b"x" * (100 + number * 50)), key=str(number), unique=Unique() if unique else None)
            for number in range(20)
        ]
        assert all(result.created for result in await store.insert(jobs))
        assert not any(result.created for result in await store.insert(jobs, repeated=True))
        assert [each.payload for each in await store.fetch([new.id for new in jobs]) if each] == [new.payload for new in jobs]


@pytest.mark.parametrize("state", ["22003", "P0001"])
async def test_one_row_that_is_refused_slowly_stops_only_itself(postgres_url: str, state: str) -> None:
    """Data that is at fault is refused; what a trigger raises for reasons of its own may be written later."""
    raises = f"""CREATE FUNCTION public.raises() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.outcome = 'odd' THEN RAISE EXCEPTION 'not this one' USING ERRCODE = '{state}'; END IF; RETURN NEW; END $$;
        CREATE TRIGGER raises BEFORE INSERT ON aioqueue.archive FOR EACH ROW EXECUTE FUNCTION public.raises()"""
    async with opened(postgres_url) as store:
        _, claims = await claimed(store, jobs=9)
        execute(postgres_url, raises)
        execute(postgres_url, "UPDATE aioqueue.job SET marked = true")
        batch = [replace(completed(claim), outcome="odd" if number == 5 else "even") for number, claim in enumerate(claims)]
        results = await store.settle(batch)
        assert [result for number, result in enumerate(results) if number != 5] == [SettleResult()] * 8
        refused = results[5]
        assert (refused.lost, refused.busy) == ((LostReason.ERROR, False) if state == "22003" else (None, True))
        assert "not this one" in refused.message
        states = [found.state for found in await store.fetch([claim.id for claim in claims]) if found]
        assert states.count(JobState.COMPLETED) == 8
