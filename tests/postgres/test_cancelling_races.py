"""Asking chains to end while others write their rows: each ends once, what was asked ends, and nothing is left of requests."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue.errors import StoreContended
from aioqueue.vocabulary._answers import Cancellation, Changed
from aioqueue.vocabulary._attempt_error import AttemptError
from aioqueue.vocabulary._blockers import NewBlocker
from aioqueue.vocabulary._job import Claim, Ending, JobState, Settlement, SettlementKind
from aioqueue.vocabulary._unique import Unique
from tests.postgres.stores import claimed, completed, connected, job, opened
from tests.postgres_server import execute

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    import asyncpg

    from aioqueue.postgres import PostgresStore
    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio

JOBS = 30
LOCK = "SELECT FROM aioqueue.job WHERE id = $1 FOR UPDATE"
REQUESTS = "SELECT chain_id FROM aioqueue.cancel_request"
ERROR = AttemptError(attempt=1, at=datetime(2026, 1, 1, tzinfo=UTC), type="ValueError", message="boom")
FINISHED = {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED}


def ended(claim: ClaimedJob, kind: SettlementKind) -> Settlement:
    how: dict[str, Any] = {
        SettlementKind.COMPLETED: {"output": b"1"},
        SettlementKind.CONTINUED: {"next": job("next")},
        SettlementKind.RETRIED: {"delay": 0.0, "error": ERROR},
        SettlementKind.RESCHEDULED: {"delay": 0.0},
        SettlementKind.FAILED: {"error": ERROR, "yields": True},
    }[kind]
    return Settlement(id=claim.id, claims=claim.claims, lease_id=claim.lease_id, kind=kind, **how)


async def soon(call: Awaitable[object]) -> None:
    await asyncio.sleep(random.random() / 50)
    await call


async def tend_all(store: PostgresStore) -> None:
    while (await store.tend(100)).more:
        pass


async def states(store: PostgresStore, ids: list[UUID]) -> list[JobState | None]:
    return [found and found.state for found in await store.fetch_ends(ids)]


@pytest.mark.parametrize("kind", [kind for kind in SettlementKind if kind is not SettlementKind.CANCELLED])
async def test_while_outcomes_are_written(postgres_url: str, kind: SettlementKind) -> None:
    """What was completed first is finished, or cancelled behind the step that went on; nothing else is left."""
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        _, claims = await claimed(store, jobs=JOBS)
        settling = [soon(store.settle([ended(each, kind) for each in claims[start::3]])) for start in range(3)]
        answers: dict[UUID, Cancellation] = {}

        async def ask(where: PostgresStore, some: list[ClaimedJob]) -> None:
            for each in some:
                (answer,) = await where.cancel([each.id], "enough")
                answers.setdefault(each.id, answer)

        asking = [soon(ask(where, claims[start::2])) for start, where in enumerate((store, other))]
        await asyncio.gather(*settling, *asking)
        await tend_all(store)
        found = await store.fetch_ends([each.id for each in claims])
        for each, end in zip(claims, found, strict=True):
            assert end is not None
            assert end.state in FINISHED, (answers[each.id], end)
            assert sum(entry.type == "Cancelled" for entry in end.errors) <= 1
            if kind not in {SettlementKind.COMPLETED, SettlementKind.FAILED}:
                assert end.state is JobState.CANCELLED
        assert execute(postgres_url, REQUESTS) == []
        assert execute(postgres_url, "SELECT id FROM aioqueue.job") == []


async def test_while_jobs_are_claimed(postgres_url: str) -> None:
    """What was cancelled is never started, and what was started is asked."""
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        new = [job() for _ in range(JOBS)]
        await store.insert(new)
        lease_id = await store.open_lease("w", 600)
        started: set[UUID] = set()

        async def claim() -> None:
            for _ in range(6):
                started.update(each.id for each in await store.claim(lease_id, ["a"], 5))

        async def ask() -> list[Cancellation]:
            return [(await other.cancel([each.id], "enough"))[0] for each in reversed(new)]

        _, answers = await asyncio.gather(claim(), ask())
        for each, answer in zip(reversed(new), answers, strict=True):
            assert answer is (Cancellation.CANCELLING if each.id in started else Cancellation.CANCELLED)
        session = store.lease_session()
        renewal = await asyncio.to_thread(session.renew, lease_id, 600.0, [])
        assert {claim.id for claim in renewal.asked_to_stop} == started
        await asyncio.to_thread(session.close)


async def by_releasing(store: PostgresStore, lease_id: int, claims: list[ClaimedJob]) -> None:
    await store.release(lease_id, [Claim(each.id, each.claims) for each in claims])


async def by_ending_the_lease(store: PostgresStore, lease_id: int, claims: list[ClaimedJob]) -> None:
    await store.release(lease_id, [], end=True)


async def by_deleting(store: PostgresStore, lease_id: int, claims: list[ClaimedJob]) -> None:
    await store.delete([each.id for each in claims])


async def by_ending(store: PostgresStore, lease_id: int, claims: list[ClaimedJob]) -> None:
    await store.end([Ending(id=each.id, kind=SettlementKind.COMPLETED, output=b"1") for each in claims])


async def by_asking(store: PostgresStore, lease_id: int, claims: list[ClaimedJob]) -> None:
    await store.cancel([each.id for each in reversed(claims)], "other")
    waiting = claims
    while waiting:  # those whose rows the others have locked at that moment are busy
        results = await store.settle([ended(each, SettlementKind.RETRIED) for each in waiting])
        waiting = [each for each, result in zip(waiting, results, strict=True) if result.busy]


@pytest.mark.parametrize("way", [by_releasing, by_ending_the_lease, by_deleting, by_ending, by_asking])
async def test_while_others_take_them(
    postgres_url: str, way: Callable[[PostgresStore, int, list[ClaimedJob]], Awaitable[None]]
) -> None:
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        lease_id, claims = await claimed(store, jobs=JOBS)
        ids = [each.id for each in claims]
        parts = [ids[start::4] for start in range(4)]
        await asyncio.gather(soon(way(store, lease_id, claims)), *(soon(other.cancel(part, "enough")) for part in parts))
        await tend_all(store)
        left = [each for each in await states(store, ids) if each is not None and each not in FINISHED]
        # A claim whose row was locked when it was given back goes on running, asked.
        assert all(each is JobState.RUNNING for each in left)
        assert len(execute(postgres_url, REQUESTS)) == len(left)
        assert way in {by_releasing, by_ending_the_lease} or not left


async def test_while_what_was_cancelled_is_retried(postgres_url: str) -> None:
    """Whoever comes second finds what the first one has done; what lives again isn't asked for an earlier reason."""
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        new = [job() for _ in range(JOBS)]
        ids = [each.id for each in new]
        await store.insert(new)
        assert set(await store.cancel(ids, "first")) == {Cancellation.CANCELLED}
        retried, asked = await asyncio.gather(store.retry(ids), other.cancel(ids[::-1], "second"))
        await tend_all(store)
        for found, change, answer in zip(await store.fetch(ids), retried, reversed(asked), strict=True):
            assert found is not None
            assert change is Changed.DONE
            assert found.state is (JobState.CANCELLED if answer is Cancellation.CANCELLED else JobState.READY)
            assert [each.message for each in found.errors] == ["first", "second"][: len(found.errors)]
            assert (len(found.errors) == 2) == (answer is Cancellation.CANCELLED)
        assert execute(postgres_url, REQUESTS) == []


async def test_while_unique_keys_are_replaced(postgres_url: str) -> None:
    """The holder of a key is replaced, or ended and the key free: one live job has each, or none."""
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        unique = Unique(on_conflict="replace")
        first = [job(key=str(number), unique=unique) for number in range(JOBS)]
        await store.insert(first)
        again = [job(key=str(number), unique=unique) for number in range(JOBS)]
        written, answers = await asyncio.gather(store.insert(again), other.cancel([each.id for each in first], "enough"))
        await tend_all(store)
        assert len(written) == JOBS
        assert set(answers) <= {Cancellation.CANCELLED, Cancellation.CANCELLING}
        assert set(await states(store, [each.id for each in first])) == {JobState.CANCELLED}
        for row, new in zip(written, again, strict=True):
            if row.created:
                assert await states(store, [new.id]) == [JobState.READY]
        assert execute(postgres_url, REQUESTS) == []


async def test_whoever_holds_the_row_lets_it_go(postgres_url: str) -> None:
    """It's waited for in its queue: what was to be retried by whoever held it is cancelled, without tending."""
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        _, (claim,) = await claimed(store)
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetch(LOCK, claim.id)
        asking = asyncio.create_task(store.cancel([claim.id], "enough"))
        async with connected(postgres_url) as looking:
            while not await looking.fetch("SELECT FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0.005)
        await transaction.rollback()
        (result,) = await store.settle([ended(claim, SettlementKind.RETRIED)])
        assert await asking in ([Cancellation.CANCELLING], [Cancellation.FINISHED])
        assert result.cancelled or result.busy
        assert result.busy or await states(store, [claim.id]) == [JobState.CANCELLED]


async def test_a_step_that_whoever_holds_it_continues(postgres_url: str) -> None:
    """The request is beside the row, and whoever completes it within a transaction looks there."""
    async with opened(postgres_url) as store:
        _, (claim,) = await claimed(store)
        new = job("next")
        async with store.transaction() as tx:
            await tx.hold(Claim(claim.id, claim.claims), claim.lease_id)
            assert await store.cancel([claim.id], "enough") == [Cancellation.CANCELLING]
            (result,) = await tx.settle([replace(ended(claim, SettlementKind.CONTINUED), next=new)])
        assert result.cancelled
        assert await states(store, [claim.id, new.id]) == [JobState.CANCELLED, JobState.CANCELLED]
        assert execute(postgres_url, REQUESTS) == []


async def test_a_transaction_that_is_rolled_back_has_asked_nobody(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        _, (claim,) = await claimed(store)
        await store.insert([waiting := job("b")])
        with pytest.raises(ZeroDivisionError):
            async with store.transaction() as tx:
                answers = await tx.operations.cancel([claim.id, waiting.id], "enough")
                assert answers == [Cancellation.CANCELLING, Cancellation.CANCELLED]
                raise ZeroDivisionError
        assert await states(store, [claim.id, waiting.id]) == [JobState.RUNNING, JobState.READY]
        assert (await store.settle([ended(claim, SettlementKind.RETRIED)]))[0].cancelled is False
        assert execute(postgres_url, REQUESTS) == []


async def test_in_a_transaction_a_row_that_is_held_is_contended(postgres_url: str) -> None:
    """And the transaction is as it was."""
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        await store.insert([new := job()])
        async with connection.transaction():
            await connection.fetch(LOCK, new.id)
            async with store.transaction() as tx:
                with pytest.raises(StoreContended):
                    await tx.operations.cancel([new.id], "enough")
                await tx.insert([other := job()])
        assert await states(store, [new.id, other.id]) == [JobState.READY, JobState.READY]


REFUSE = """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON aioqueue.job FOR EACH ROW WHEN (OLD.type = 'odd') EXECUTE FUNCTION refuse()"""


async def test_a_row_that_refuses_to_be_ended(postgres_url: str) -> None:
    """Its neighbours end, and its request stays until tending can end it."""
    async with opened(postgres_url) as store:
        new = [job(), job("odd"), job()]
        await store.insert(new)
        execute(postgres_url, REFUSE)
        answers = await store.cancel([each.id for each in new], "enough")
        assert answers == [Cancellation.CANCELLED, Cancellation.CANCELLING, Cancellation.CANCELLED]
        assert [each and each.cancel_reason for each in await store.fetch([each.id for each in new])] == [None, "enough", None]
        await tend_all(store)
        execute(postgres_url, "DROP TRIGGER refuse ON aioqueue.job")
    async with opened(postgres_url) as store:
        await tend_all(store)
        assert await states(store, [new[1].id]) == [JobState.CANCELLED]


async def made_pending(connection: asyncpg.Connection[Any], claim: ClaimedJob) -> None:
    """As code from before does, which knows nothing of requests."""
    await connection.execute("UPDATE aioqueue.job SET state = 1, run_at = now() + interval '1 hour' WHERE id = $1", claim.id)


async def test_beside_code_that_knows_nothing_of_it(postgres_url: str) -> None:
    """What that has made pending is ended by tending; a request for what that has ended is forgotten, and so is one for what is
    deleted and comes again."""
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        _, (pending, gone, deleted) = await claimed(store, jobs=3)
        await store.cancel([pending.id, gone.id, deleted.id], "enough")
        await made_pending(connection, pending)
        await connection.execute("DELETE FROM aioqueue.job WHERE id = $1", gone.id)
        await store.delete([deleted.id])
        await store.insert([replace(job(), id=deleted.id)])
        await tend_all(store)
        assert await states(store, [pending.id, gone.id, deleted.id]) == [JobState.CANCELLED, None, JobState.READY]
        assert execute(postgres_url, REQUESTS) == []


async def test_those_that_wait_are_told_though_somebody_holds_them(postgres_url: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as connection:
        await store.insert([first := job(), waiting := replace(job("b"), blockers=(NewBlocker(first.id),))])
        async with connection.transaction():
            await connection.fetch(LOCK, waiting.id)
            assert await store.cancel([first.id], "enough") == [Cancellation.CANCELLED]
            assert await states(store, [waiting.id]) == [JobState.BLOCKED]
        await tend_all(store)
        (found,) = await store.fetch([waiting.id])
        assert found is not None
        assert found.state is JobState.FAILED
        assert "enough" in found.errors[-1].message


async def test_without_requests_nothing_is_paid(postgres_url: str) -> None:
    """A plain job is settled by the fast statement, whose text knows nothing of requests; only slow ones look."""
    async with opened(postgres_url) as store:
        statements = store._opened.settler._statements
        assert not [
            name for name in statements if name.startswith("settle") and "slowly" not in name and "cancel_reason" in name
        ]
        for name in ("settle", "settle_continued", "settle_orphaned", "settle_orphaned_continued"):
            assert "cancel" not in statements[name]
        _, (claim,) = await claimed(store)
        assert (await store.settle([completed(claim)]))[0].cancelled is False
