"""How the log of events is read on PostgreSQL beyond the conformance cases: what commits late, begins early, or is old."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue.postgres._options_schema import Schema
from aioqueue.store_rules._events import KEPT_SECONDS
from aioqueue.vocabulary._event_log import EventKind
from tests.postgres.backlog import explain
from tests.postgres.statements import all_statements
from tests.postgres.stores import claimed, completed, connected, job, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    import asyncpg

    from aioqueue.postgres import PostgresStore

pytestmark = pytest.mark.anyio

STATEMENTS = all_statements(Schema())


async def enqueue(connection: asyncpg.Connection[Any], *jobs: dict[str, Any]) -> list[UUID]:
    """As somebody does with SQL alone."""
    rows = await connection.fetch("SELECT id FROM aioqueue.enqueue_v2($1::json)", json.dumps(jobs))
    return [row[0] for row in rows]


class Reading:
    """One reader, which goes on from page to page."""

    def __init__(self, store: PostgresStore, reader: UUID, cursor: str) -> None:
        self.store = store
        self.reader = reader
        self.cursor = cursor

    async def new(self, limit: int = 1000) -> list[tuple[UUID, EventKind]]:
        """What has become visible."""
        page = await self.store.read_events(self.reader, self.cursor, limit)
        assert not page.reset
        self.cursor = page.cursor
        return [(each.job_id, each.kind) for each in page.events]


@asynccontextmanager
async def reading(store: PostgresStore) -> AsyncIterator[Reading]:
    reader = await store.open_reader(600)
    page = await store.begin_events(reader)
    assert not page.reset
    yield Reading(store, reader, page.cursor)


async def test_what_commits_late_comes_late_though_its_number_is_lower(postgres_url: str) -> None:
    """Neither lost nor told twice; in small pages too, and for a reader that resumes after the greater number: he isn't told
    again of what had ended when that was written, however long another transaction has been open.
    """
    late, early, prompt, more = job(), job(), job(), [job() for _ in range(3)]
    async with opened(postgres_url) as store, reading(store) as log:
        async with store.transaction() as transaction:
            await transaction.insert([late])
            await store.insert([early])
            await store.insert([prompt])
            assert await log.new() == [(each.id, EventKind.ENQUEUED) for each in (early, prompt)]
            assert (await store.resume_events(log.reader, 1, 10)).reset
            assert (await store.resume_events(log.reader, 3, 10)).events == ()
            await store.insert(more[:2])
            assert await log.new(limit=1) == [(more[0].id, EventKind.ENQUEUED)]
        await store.insert(more[2:])
        seen = [await log.new(limit=1) for _ in range(4)]
        assert seen == [[(each.id, EventKind.ENQUEUED)] for each in (more[1], late, more[2])] + [[]]
        everything = await store.resume_events(log.reader, 3, 1000)
        assert [each.job_id for each in everything.events] == [late.id, *(each.id for each in more)]


async def test_the_rest_of_a_transaction_comes_after_its_middle_whatever_has_been_committed_meanwhile(
    postgres_url: str,
) -> None:
    """The transaction of the event after which a reader goes on isn't open in that event's own snapshot."""
    mine, others = [job() for _ in range(3)], [job(), job()]
    async with opened(postgres_url) as store, reading(store) as log:
        async with store.transaction() as transaction:
            await transaction.insert(mine[:1])
            await store.insert(others)  # a later number of a transaction, and ended before the next statement
            await transaction.insert(mine[1:])
        seen = await store.read_events(log.reader, log.cursor, 100)
        assert [each.job_id for each in seen.events] == [each.id for each in (mine[0], *others, *mine[1:])]
        for limit in (100, 1):
            rest = await store.resume_events(log.reader, seen.events[-2].sequence, limit)
            assert [each.job_id for each in rest.events] == [mine[2].id]


@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read"])
async def test_a_reader_begins_once_whoever_doesn_t_see_it_has_ended(postgres_url: str, isolation: Any) -> None:
    """A transaction from before that has written, or only looked so far: its events aren't logged."""
    insert = "INSERT INTO aioqueue.lease (worker, expires_at) VALUES ('x', now())"
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        transaction = other.transaction(isolation=isolation)
        await transaction.start()
        await other.execute(insert if isolation == "read_committed" else "SELECT FROM aioqueue.job")
        reader = await store.open_reader(600)
        page = await store.begin_events(reader, timeout=0.02)
        assert (page.events, page.reset) == ((), True)
        assert not (await store.read_events(reader, page.cursor, 10)).reset  # it can be gone on from all the same
        async with anyio.create_task_group() as group:
            pages: list[bool] = []

            async def begin() -> None:
                pages.append((await store.begin_events(reader, timeout=60)).reset)

            group.start_soon(begin)
            await anyio.wait_all_tasks_blocked()
            assert pages == []
            await enqueue(other, {"type": "a"})
            await transaction.commit()
        assert pages == [False]
        second = await store.open_reader(600)
        await other.execute("BEGIN")
        await other.execute(insert)
        assert not (await store.begin_events(second, timeout=0.0)).reset  # all has been logged since the first one began
        await other.execute("ROLLBACK")


async def test_what_other_drivers_and_sql_enqueue_is_logged(postgres_url: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as other, reading(store) as log:
        transaction = other.transaction()
        await transaction.start()
        (first,) = await store.insert([job()], tx=other)
        await transaction.commit()
        waiting = job(job_type="b")
        second, _ = await enqueue(
            other, {"type": "a"}, {"id": str(waiting.id), "type": "b", "blockers": [{"chain_id": str(first.id)}]}
        )
        expected = [(first.id, EventKind.ENQUEUED), (second, EventKind.ENQUEUED), (waiting.id, EventKind.BLOCKED)]
        assert await log.new() == expected


async def test_old_events_are_removed_by_what_was_visible(postgres_url: str) -> None:
    """What a long transaction has logged long ago stays for those who couldn't see it; who was away for longer is told."""
    old, long_ago = job(), job()
    async with opened(postgres_url) as store, connected(postgres_url) as other, reading(store) as log:
        away, numbers = log.cursor, "SELECT job_id FROM aioqueue.event ORDER BY sequence"
        async with store.transaction() as transaction:
            await transaction.insert([long_ago])
            await store.insert([old])
            assert await log.new() == [(old.id, EventKind.ENQUEUED)]
            await other.execute("DELETE FROM aioqueue.event_mark")
            await store.keep_reader(log.reader, 600)  # marks what is visible
            past = f"at - {KEPT_SECONDS + 1} * interval '1 second'"
            await other.execute(f"UPDATE aioqueue.event_mark SET at = {past}")
            await transaction.execute(f"UPDATE aioqueue.event SET at = {past} WHERE job_id = $1", long_ago.id)
            await store.keep_reader(log.reader, 600)
            assert [row[0] for row in await other.fetch(numbers)] == []
        assert [row[0] for row in await other.fetch(numbers)] == [long_ago.id]
        assert await log.new() == [(long_ago.id, EventKind.ENQUEUED)]
        at, _, snapshot = away.partition(" ")
        gone = await store.read_events(log.reader, f"{int(at) - int((KEPT_SECONDS + 60) * 1e6)} {snapshot}", 10)
        assert (gone.events, gone.reset) == ((), True)
        assert (await store.resume_events(log.reader, 2, 10)).reset


async def test_what_the_last_reader_leaves_is_removed(postgres_url: str) -> None:
    """Some minutes after its end, by whoever tends, in portions."""
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        async with reading(store) as log:
            await store.insert([job() for _ in range(3)])
            await store.tend(100)
            await store.keep_reader(log.reader, 0.0)
        await other.execute(
            "INSERT INTO aioqueue.event (kind, job_id, chain_id, type, attempt, claims) "
            "SELECT 'started', gen_random_uuid(), gen_random_uuid(), 'a', 1, 1 FROM generate_series(1, 5000)"
        )
        past = f"at - {KEPT_SECONDS + 1} * interval '1 second'"
        await other.execute(f"UPDATE aioqueue.event SET at = {past}; UPDATE aioqueue.event_mark SET at = {past}")
        assert [(await store.tend(100)).more for _ in range(3)] == [True, False, False]
        assert await other.fetchval("SELECT count(*) FROM aioqueue.event") == 0
        assert await other.fetchval("SELECT count(*) FROM aioqueue.event_mark") == 0


async def test_nothing_is_made_ready_for_a_log_that_nobody_reads(postgres_url: str) -> None:
    """Of what runs for each job: the readers' table is looked at, and no function called; the log's table isn't even there."""
    async with opened(postgres_url) as store, connected(postgres_url) as other:
        lease_id, (claim,) = await claimed(store)
        assert {name for name in ("claim", "insert", "settle") if "INSERT INTO aioqueue.event" in STATEMENTS[name]} == set()
        nothing: list[Any] = []
        settlement = completed(claim)
        arguments = [[settlement.id], [settlement.claims], [lease_id], [4], ["1"], *[nothing] * 4, None]
        plan = await explain(other, STATEMENTS["settle"], arguments)
        assert "reader" in {scan[1] for scan in plan.scans}
        assert "event" not in plan.text
        assert await other.fetchval("SELECT count(*) FROM aioqueue.event") == 0


async def test_a_look_into_a_long_log_reads_what_is_new(postgres_url: str) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as other, reading(store) as log:
        await other.execute(
            "INSERT INTO aioqueue.event (kind, job_id, chain_id, type, attempt, claims) "
            "SELECT 'started', gen_random_uuid(), gen_random_uuid(), 'a', 1, 1 FROM generate_series(1, 20000)"
        )
        at, _, snapshot = log.cursor.partition(" ")
        first = await store.read_events(log.reader, log.cursor, 100)
        assert len(first.events) == 100
        seen, until_at, until, after = first.cursor.split(" ")[0], *first.cursor.split(" ")[2:]
        assert (seen, int(after)) == (at, first.events[-1].sequence)
        arguments = [log.reader, int(at), snapshot, 100, until, int(after)]
        on = await explain(other, STATEMENTS["events_read_on"], arguments)
        assert on.buffers < 400, on.text
        new = await explain(other, STATEMENTS["events_read"], [log.reader, int(until_at), until, 100])
        assert new.buffers < 100, new.text
